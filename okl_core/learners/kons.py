"""Kernel Online Newton Steps: second-order online convex optimisation in the whole feature space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from okl_core.engine import BLOCK, Decision, Engine, EngineState, Moments
from okl_core.kernels import Gaussian, Kernel
from okl_core.learner import Learner, register
from okl_core.losses import LOSSES, Loss
from okl_core.newton import NewtonConfig, account, clipped, newton_rule
from okl_core.rng import RoundRng
from okl_core.types import F64, BlockInfo, Forecast, Round


class KonsConfig(NewtonConfig):
    """Parameters of KONS."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")


@dataclass(slots=True)
class KonsState(EngineState):
    """The engine's state, and the running terms of the regret bound."""

    loss: float
    bound_gradient: float
    bound_step: float


@dataclass(slots=True)
class KonsRound(Round):
    moments: Moments
    decision: Decision


@final
@register
class Kons(Learner[KonsConfig, KonsState, KonsRound]):
    r"""Online Newton steps in the kernel's feature space, exactly: the strongest guarantee, at a cost that grows with t.

    With the symbols of `okl_core.newton`, A_t = A_{t-1} + eta g^2 phi_t phi_t^T and A_0 = alpha I,

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

    Rounding moves the forecasts by some t eps sum kappa |h(m)| / (alpha q) over the rounds that were projected: 1e-12 with
    alpha = 1, below 1e-5 with alpha = 1e-5. An alpha below 1e-14 sum w kappa is beyond float64 (DivergedError, at best).

    References: [calandriello2017] algorithm 1, lemmas 1 and 2, theorem 1.

    Examples
    --------
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

    def largest_truth(self, config: KonsConfig) -> float:
        return config.largest_truth

    def init(self, config: KonsConfig, dim: int) -> KonsState:
        return KonsState(0, *_engine(config).parts(dim), loss=0.0, bound_gradient=0.0, bound_step=0.0)

    def predict(self, config: KonsConfig, state: KonsState, x: F64) -> Forecast:
        return self._forecast(config, clipped(config, _engine(config).moments(state, x).m))

    def play(self, config: KonsConfig, state: KonsState, x: F64, y: float, rng: RoundRng) -> KonsRound:
        moments, decision = _engine(config).play(state, x, y, newton_rule(config, rng))
        value = decision.value
        loss = self.loss(config).value(value, y)
        forecast = self._forecast(config, value)
        return KonsRound(state.t + 1, x, y, forecast, loss, rng.choices(), moments, decision)

    def learn(self, config: KonsConfig, state: KonsState, played: KonsRound) -> None:
        _engine(config).absorb(state, played.x, played.moments, played.decision)
        account(config, state, played.loss, played.moments.q, played.decision)

    def run(self, config: KonsConfig, state: KonsState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        engine, rule, loss = _engine(config), newton_rule(config, rng), self.loss(config)
        values, losses = np.empty(len(y)), np.empty(len(y))
        for start in range(0, len(y), BLOCK):
            block = slice(start, start + BLOCK)
            played = engine.run(state, X[block], y[block], rule)
            values[block] = [decision.value for _, decision in played]
            losses[block] = loss.values(values[block], y[block])
            for cost, (q, decision) in zip(losses[block].tolist(), played, strict=True):
                account(config, state, cost, q, decision)
        probabilities = [loss.probability(value) for value in values.tolist()]
        given = None if None in probabilities else np.array(probabilities, dtype=np.float64)
        return BlockInfo(state.t, values, losses, given, rng.finish())

    def describe(self, config: KonsConfig, state: KonsState) -> dict[str, float]:
        numbers: dict[str, float] = {
            "t": state.t,
            "dictionary": len(state.J) + len(state.N),
            "bytes": state.nbytes,
            "active": len(state.J),
            "passive": len(state.N),
            "loss": state.loss,
            "log_det": state.log_det,
            "bound_gradient": state.bound_gradient,
            "bound_step": state.bound_step,
        }
        if config.step == "curvature":
            # w = sigma g^2, so that the two sums are the same one.
            numbers["bound_b2"] = state.bound_gradient
        return numbers

    def _forecast(self, config: KonsConfig, value: float) -> Forecast:
        return Forecast(value, self.loss(config).probability(value))


def _engine(config: KonsConfig) -> Engine:
    return Engine(config.kernel, config.regularization)
