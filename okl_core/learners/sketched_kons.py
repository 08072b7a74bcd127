"""Sketched-KONS: KONS that carries a gradient into A with the probability that its leverage asks for."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.second_order.kernel_space import KernelRound, KernelSpace, KernelState
from okl_core.second_order.newton import KernelNewtonConfig, NewtonRule, NewtonTotals
from okl_core.second_order.row_sampling import Kors
from okl_core.second_order.second_order import SecondOrder
from okl_core.second_order.sketch import Sketch


class SketchedKonsConfig(KernelNewtonConfig):
    """Parameters of Sketched-KONS."""

    floor_probability: float = Field(
        default=0.1, gt=0.0, le=1.0, description="gamma: least probability to keep a gradient; 1 is KONS itself."
    )
    oversampling: float = Field(
        default=4.0, gt=0.0, description="beta: a gradient is kept with probability beta tau, between gamma and 1."
    )
    accuracy: float = Field(default=0.5, gt=0.0, lt=1.0, description="epsilon, by which tau is overestimated.")


@final
@register
class SketchedKons(SecondOrder[SketchedKonsConfig, KernelState, KernelRound, NewtonTotals]):
    r"""KONS on a random sample of the gradients: nearly the same guarantee, at a much lower cost in long streams.

    With the symbols of `second_order.newton` and z = 1 with probability max(min(beta tau, 1), gamma), independent of the
    past, the steps are those of KONS with A~_t = A~_{t-1} + z eta g^2 phi_t phi_t^T. Every gradient moves the function
    learned; those that are kept also shrink the steps to come.

    Time O(d t + |J|^2 + |I|^2) a round, memory O(d t + |J|^2 + |I|^2): J are the gradients that were kept, about gamma t and
    the effective dimension times a logarithm, and I the dictionary of the leverage scores.

    | algorithm 3                  | here                                                                              |
    |------------------------------|-----------------------------------------------------------------------------------|
    | 1, 5-7: A~_0, forecast, g_t  | as in `Kons`                                                                      |
    | 2: a run of KORS             | `Sketch.init`                                                                     |
    | 8: tau~                      | `Kors.leverage`, in `Sketch.thin`; that class's module has the lines of KORS      |
    | 9, 10: p~, z_t               | `Sketch.toss`                                                                     |
    | 11: A~_t                     | `KernelSpace.absorb`, with the w = 0 that `Sketch.toss` gives a round with z_t = 0 |

    Notes
    -----
    For every f in the feature space with |f(x_t)| <= C in all rounds, the regret is at most (alpha / 2) |f|^2 plus

        1/2 sum g^2 q / (1 + z w q)                          `bound_gradient`,
        1/2 sum (z eta - sigma) g^2 (value - f(x_t))^2       at most `bound_step`, as for `kons`,

    whatever the coins. The first is of the order of d_eff log(T) / (sigma max(gamma, beta tau_min)) with high probability,
    by corollary 1, whose proof has one coin a round for both purposes where its algorithm has two.

    `sum_tau` estimates the effective dimension of the scaled gradients (by at most rho times too much, and at most all of
    them, see `second_order.row_sampling`).

    With a window, which needs adaptive steps, all of this runs over the rounds kept, between W and 5/4 W of them: a round
    then costs O(d W + |J|^2 + |I|^2). With a half-life H all sums are discounted in steps of H / 4 rounds, that of I among
    them, and run over 10 H rounds. The guarantee is lost, since the best function may need what was forgotten. Both are for
    streams that drift. Points of I that are left keep the probability they came in with.

    Against the paper: in the coefficients of lemma 4 a gradient that is not kept has no part in b; the two coins of a round
    are independent. The default beta is far below that of theorem 2, 3 log(T / delta) / epsilon^2, which would keep nearly
    every point of a stream of 10,000.

    References: [calandriello2017] algorithm 3, lemma 4, proposition 1, corollary 1.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "sketched-kons", "config": {"clip": 2.0, "oversampling": 0.1}}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> learner.describe()["active"], learner.predict(np.array([0.0])).value
    (0, 2.0)
    """

    kind: ClassVar[str] = "sketched-kons"
    references: ClassVar[tuple[str, ...]] = ("calandriello2017",)
    config_type = SketchedKonsConfig

    def space(self, config: SketchedKonsConfig) -> KernelSpace:
        kors = Kors(config.regularization, config.oversampling, config.accuracy)
        sketch = Sketch(config.kernel, kors, config.floor_probability)
        return KernelSpace(config.kernel, config.regularization, config.memory, sketch, config.clip)

    def rule(self, config: SketchedKonsConfig) -> NewtonRule:
        return config.rule
