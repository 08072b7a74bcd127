"""Kernel Online Newton Steps: second-order online convex optimisation in the whole feature space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from okl_core.contract.learner import register
from okl_core.contract.rng import RoundRng
from okl_core.losses import LOSSES, Loss
from okl_core.second_order.engine import Decision, Engine, EngineState, Rule
from okl_core.second_order.engine_learner import EngineLearner
from okl_core.second_order.newton import KernelNewtonConfig, account, clipped, newton_rule
from okl_core.types import F64, Interval


class KonsConfig(KernelNewtonConfig):
    """Parameters of KONS."""


@dataclass(slots=True)
class KonsState(EngineState):
    """The engine's state, and the running terms of the regret bound."""

    loss: float
    bound_gradient: float
    bound_step: float


@final
@register
class Kons(EngineLearner[KonsConfig, KonsState, Rule]):
    r"""Online Newton steps in the kernel's feature space, exactly: the strongest guarantee, at a cost that grows with t.

    With the symbols of `second_order.newton`, A_t = A_{t-1} + eta g^2 phi_t phi_t^T and A_0 = alpha I,

        u_t = w_{t-1} - A_{t-1}^{-1} g_{t-1} phi_{t-1},   value = clip(phi_t^T u_t, -C, C),
        w_t = u_t - (h(phi_t^T u_t) / q) A_{t-1}^{-1} phi_t.

    Time O(t^2 + d t) a round, memory t^2 / 2 + O(d t).

    Notes
    -----
    For every f in the feature space with |f(x_t)| <= C in all rounds, the regret is at most (alpha / 2) |f|^2 plus

        1/2 sum g^2 q / (1 + w q)                          `bound_gradient`,
        1/2 sum (eta - sigma) g^2 (value - f(x_t))^2       at most `bound_step` = 2 C^2 sum max(eta - sigma, 0) g^2.

    sigma is the curvature at the point played if the steps are adaptive: the second term is then at most 0. With
    curvature steps it is 0 and the first is sum w q / (1 + w q) / (2 sigma), `bound_b2`, which in turn is at most
    `log_det` / (2 sigma).

    Against the paper: the coefficients of lemma 2 are corrected and hold where g = 0, which they divide by; half of its
    bound suffices; adaptive steps are ours.

    With a window, which needs adaptive steps, all sums run over the rounds kept, between W and 5/4 W of them: a round then
    costs O(W^2 + d W), and `log_det` is theirs. The guarantee is lost, since the best function may need what was forgotten.
    It is for streams that drift.

    Rounding moves the forecasts by some t eps sum kappa |h(m)| / (alpha q) over the rounds that were projected: 1e-12 with
    alpha = 1, up to some 1e-4 with alpha = 1e-5. An alpha below 1e-14 sum w kappa is beyond float64; a single round with
    w kappa above 1e13 alpha is refused (DivergedError).

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
    state_type = KonsState

    def loss(self, config: KonsConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: KonsConfig) -> Interval:
        return config.truth_range

    def engine(self, config: KonsConfig) -> Engine:
        return Engine(config.kernel, config.regularization)

    def init(self, config: KonsConfig, dim: int) -> KonsState:
        parts = self.engine(config).parts(dim, config.window)
        return KonsState(0, *parts, loss=0.0, bound_gradient=0.0, bound_step=0.0)

    def projected_to(self, config: KonsConfig) -> float | None:
        return config.clip

    def value(self, config: KonsConfig, m: float, q: float) -> float:
        return clipped(config, m)

    def rule(self, config: KonsConfig, state: KonsState, X: F64, rng: RoundRng) -> Rule:
        return newton_rule(config, rng)

    def carry(
        self, config: KonsConfig, state: KonsState, rule: Rule, rounds: Sequence[tuple[float, float, Decision]]
    ) -> None:
        for loss, q, decision in rounds:
            account(config, state, loss, q, decision)

    def describe(self, config: KonsConfig, state: KonsState) -> dict[str, float]:
        numbers = self.describe_engine(state) | {"loss": state.loss}
        if config.window is None:
            numbers |= {"bound_gradient": state.bound_gradient, "bound_step": state.bound_step}
            if config.step == "curvature":
                # w = sigma g^2, so that the two sums are the same one.
                numbers["bound_b2"] = state.bound_gradient
        return numbers
