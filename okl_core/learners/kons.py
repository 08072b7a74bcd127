"""Kernel Online Newton Steps: second-order online convex optimisation in the whole feature space."""

from __future__ import annotations

from typing import ClassVar, final

from okl_core.contract.learner import register
from okl_core.second_order.kernel_space import KernelRound, KernelSpace, KernelState
from okl_core.second_order.newton import KernelNewtonConfig, NewtonRule, NewtonTotals
from okl_core.second_order.second_order import SecondOrder


class KonsConfig(KernelNewtonConfig):
    """Parameters of KONS."""


@final
@register
class Kons(SecondOrder[KonsConfig, KernelState, KernelRound, NewtonTotals]):
    r"""Online Newton steps in the kernel's feature space, exactly: the strongest guarantee, at a cost that grows with t.

    With the symbols of `second_order.newton`, A_t = A_{t-1} + eta g^2 phi_t phi_t^T and A_0 = alpha I,

        u_t = w_{t-1} - A_{t-1}^{-1} g_{t-1} phi_{t-1},   value = clip(phi_t^T u_t, -C, C),
        w_t = u_t - (h(phi_t^T u_t) / q) A_{t-1}^{-1} phi_t.

    Time O(t^2 + d t) a round, memory t^2 / 2 + O(d t).

    | algorithm 1                  | here                                                                              |
    |------------------------------|-----------------------------------------------------------------------------------|
    | 1: w_0, g_0, b_0, A_0        | `KernelSpace.init`                                                                |
    | 4: b_s, as in lemma 2        | c of `NewtonRule.decide`: b_s g_s phi_s = c_s phi_s, also where g_s is 0          |
    | 5: u_t                       | never formed: `KernelState` has r and L, which give its inner products            |
    | 6: phi_t^T u_t               | m of `KernelSpace._look`                                                          |
    | 7: the forecast              | `NewtonRule.value`                                                                |
    | 8: g_t                       | `NewtonRule._derivative`                                                          |
    | 8: A_t                       | w of `NewtonRule._weight`, for which `KernelSpace.absorb` appends a row to L      |

    `SecondOrder.play` and `SecondOrder.learn` go through these lines for one round, `KernelBlock.play` for one of a block.

    Notes
    -----
    For every f in the feature space with |f(x_t)| <= C in all rounds, the regret is at most (alpha / 2) |f|^2 plus

        1/2 sum g^2 q / (1 + w q)                          `bound_gradient`,
        1/2 sum (eta - sigma) g^2 (value - f(x_t))^2       at most `bound_step` = 2 C^2 sum max(eta - sigma, 0) g^2.

    sigma is the curvature at the point played if the steps are adaptive: the second term is then at most 0. With
    curvature steps it is 0 and the first is sum w q / (1 + w q) / (2 sigma), which in turn is at most
    `log_det` / (2 sigma).

    Against the paper: the coefficients of lemma 2 are corrected and hold where g = 0, which they divide by; half of its
    bound suffices; adaptive steps are ours.

    With a window, which needs adaptive steps, all sums run over the rounds kept, between W and 5/4 W of them: a round then
    costs O(W^2 + d W), and `log_det` is theirs. With a half-life H all sums are discounted in steps of H / 4 rounds, those of
    gradients and of projections, and run over 10 H rounds. The guarantee is lost, since the best function may need what was
    forgotten. Both are for streams that drift.

    Rounding moves the forecasts by some t eps sum kappa |h(m)| / (alpha q) over the rounds that were projected: 1e-12 with
    alpha = 1, up to some 1e-4 with alpha = 1e-5. An alpha below 1e-14 sum w kappa is beyond float64; a single round with
    w kappa above 1e11 alpha is refused (DivergedError).

    References: [calandriello2017] algorithm 1, lemmas 1 and 2, theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "kons", "config": {"clip": 2.0}}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([0.0])).value, 4)
    1.7778
    """

    kind: ClassVar[str] = "kons"
    references: ClassVar[tuple[str, ...]] = ("calandriello2017",)
    config_type = KonsConfig

    def space(self, config: KonsConfig) -> KernelSpace:
        return KernelSpace(config.kernel, config.regularization, config.memory, projected_to=config.clip)

    def rule(self, config: KonsConfig) -> NewtonRule:
        return config.rule
