r"""Sketched-KONS: KONS that carries a gradient into A with the probability that its leverage asks for.

| symbol  | meaning                                                                   | in [calandriello2017] |
|---------|---------------------------------------------------------------------------|-----------------------|
| gamma   | floor of the probabilities                                                | algorithm 3           |
| tau     | estimated ridge leverage score of g sqrt(eta) phi_t, by `second_order.row_sampling` | section 4           |
| beta    | oversampling: a gradient is kept with probability max(min(beta tau, 1), gamma) | algorithm 3      |
| z       | 1 for a gradient that is kept, else 0                                     | algorithm 3           |
| A~      | alpha I + sum_s z_s w_s phi_s phi_s^T, w = eta g^2                        | algorithm 3           |

The other symbols are those of `second_order.newton`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.contract.rng import RoundRng
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss
from okl_core.second_order.engine import Decision, Engine, EngineState
from okl_core.second_order.engine_learner import EngineLearner
from okl_core.second_order.newton import KernelNewtonConfig, account, clipped, newton_rule
from okl_core.second_order.row_sampling import Kors, KorsBlock, Sample
from okl_core.types import F64, Interval


class SketchedKonsConfig(KernelNewtonConfig):
    """Parameters of Sketched-KONS."""

    floor_probability: float = Field(
        default=0.1, gt=0.0, le=1.0, description="gamma: least probability to keep a gradient; 1 is KONS itself."
    )
    oversampling: float = Field(
        default=4.0, gt=0.0, description="beta: a gradient is kept with probability beta tau, between gamma and 1."
    )
    accuracy: float = Field(default=0.5, gt=0.0, lt=1.0, description="epsilon, by which tau is overestimated.")


@dataclass(slots=True)
class SketchedKonsState(EngineState):
    """The engine's state, the terms of the regret bound, the dictionary of the leverage scores and its points' rounds."""

    loss: float
    bound_gradient: float
    bound_step: float
    sum_tau: float
    sample: Sample
    sampled: GrowingArray


@final
class Sketch:
    """The rule of the rounds after a state: that of KONS, and two coins. `settle` ends it."""

    def __init__(self, config: SketchedKonsConfig, state: SketchedKonsState, X: F64, rng: RoundRng) -> None:
        kernel = config.kernel
        self._newton = newton_rule(config, rng)
        self._rng, self._gamma, self._t = rng, config.floor_probability, state.t
        self._block = KorsBlock(_kors(config), state.sample, X, kernel.gram(X), kernel.block(state.sample.points, X))
        self._kept: list[int] = []
        self._sum_tau = 0.0

    def __call__(self, m: float, q: float, y: float, t: int) -> Decision:
        decision = self._newton(m, q, y, t)
        j, scale = t - self._t - 1, math.sqrt(decision.w)
        tau = self._block.tau(j, scale)
        self._sum_tau += tau
        p = self._block.kors.probability(tau)
        # Two coins in every round, of the dictionary and of the sketch, so that none depends on how another one fell.
        u, v = self._rng.uniform(2).tolist()
        if self._rng.decide(u < p):
            self._block.keep(j, p, scale)
            self._kept.append(t)
        z = self._rng.decide(v < max(p, self._gamma))
        return decision if z else decision._replace(w=0.0)

    def settle(self, state: SketchedKonsState) -> None:
        """Carry what the rounds did to the dictionary into the state, which may be a restored twin of the first one."""
        self._block.sample = state.sample
        self._block.settle()
        for t in self._kept:
            state.sampled.append(t)
        state.sum_tau += self._sum_tau


@final
@register
class SketchedKons(EngineLearner[SketchedKonsConfig, SketchedKonsState, Sketch]):
    r"""KONS on a random part of the gradients: nearly its guarantee, for rounds that cost much less in long streams.

    With the symbols of `second_order.newton` and z = 1 with probability max(min(beta tau, 1), gamma), independent of the
    past, the steps are those of KONS with A~_t = A~_{t-1} + z eta g^2 phi_t phi_t^T. Every gradient moves the function
    learned; those that are kept also shrink the steps to come.

    Time O(d t + |J|^2 + |I|^2) a round, memory O(d t + |J|^2 + |I|^2): J are the gradients that were kept, about gamma t and
    the effective dimension times a logarithm, and I the dictionary of the leverage scores.

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
    then costs O(d W + |J|^2 + |I|^2), and the guarantee is lost, since the best function may need what was forgotten. It is
    for streams that drift. Points of I that are left keep the probability they came in with.

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
    state_type = SketchedKonsState

    def loss(self, config: SketchedKonsConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: SketchedKonsConfig) -> Interval:
        return config.truth_range

    def engine(self, config: SketchedKonsConfig) -> Engine:
        return Engine(config.kernel, config.regularization)

    def init(self, config: SketchedKonsConfig, dim: int) -> SketchedKonsState:
        parts = self.engine(config).parts(dim, config.window)
        sample = _kors(config).empty(dim)
        return SketchedKonsState(0, *parts, 0.0, 0.0, 0.0, sum_tau=0.0, sample=sample, sampled=GrowingArray())

    def projected_to(self, config: SketchedKonsConfig) -> float | None:
        return config.clip

    def value(self, config: SketchedKonsConfig, m: float, q: float) -> float:
        return clipped(config, m)

    def rule(self, config: SketchedKonsConfig, state: SketchedKonsState, X: F64, rng: RoundRng) -> Sketch:
        return Sketch(config, state, X, rng)

    def carry(
        self,
        config: SketchedKonsConfig,
        state: SketchedKonsState,
        rule: Sketch,
        rounds: Sequence[tuple[float, float, Decision]],
    ) -> None:
        rule.settle(state)
        for loss, q, decision in rounds:
            account(config, state, loss, q, decision)
        if state.window is not None and state.window.is_due(state.t):
            first = state.window.first_kept(state.sampled, state.t)
            state.sample = _kors(config).without(state.sample, first)
            state.sampled = GrowingArray.unpack(state.sampled.view[first:])

    def describe(self, config: SketchedKonsConfig, state: SketchedKonsState) -> dict[str, float]:
        numbers = self.describe_engine(state) | {"loss": state.loss, "sampled": len(state.sample)}
        numbers["bytes"] += state.sample.nbytes + state.sampled.nbytes
        if config.window is None:
            numbers |= {
                "sum_tau": state.sum_tau,
                "bound_gradient": state.bound_gradient,
                "bound_step": state.bound_step,
            }
        return numbers


def _kors(config: SketchedKonsConfig) -> Kors:
    return Kors(config.kernel, config.regularization, config.oversampling, config.accuracy)
