"""Online Newton Steps for linear predictors: KONS with a linear kernel, at a cost that does not grow with the stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from okl_core.engine import Decision, Rule, require_finite
from okl_core.learner import Learner, register
from okl_core.learners.ons_root import Moments, Root, RootBlock
from okl_core.losses import LOSSES, Loss, probabilities
from okl_core.newton import NewtonConfig, account, clipped, newton_rule
from okl_core.rng import RoundRng
from okl_core.types import F64, BlockInfo, Forecast, LearnerState, Round

WIDE = 128
"""Features from which on a block of rounds is faster than its rounds one by one."""
BLOCK = 32
"""Rounds per block: longer blocks no longer speed the products up, and rounds inside cost O(BLOCK^2)."""


class OnsConfig(NewtonConfig):
    """Parameters of ONS."""

    intercept: bool = Field(default=True, description="Give every input one more coordinate, which is 1.")


@dataclass(slots=True)
class OnsState(LearnerState):
    """A^{-1} and the weights, and the running terms of the regret bound; `log_det` = log det(A / alpha)."""

    root: Root
    log_det: float
    loss: float
    bound_gradient: float
    bound_step: float


@dataclass(slots=True)
class OnsRound(Round):
    moments: Moments
    decision: Decision


@final
@register
class Ons(Learner[OnsConfig, OnsState, OnsRound]):
    r"""Online Newton steps for a linear function of the inputs: second-order learning in O(d^2) a round.

    phi is the input, with one more coordinate of 1 for the intercept. With the symbols of `okl_core.newton`,

        u_t = w_{t-1} - A_{t-1}^{-1} g_{t-1} phi_{t-1},   value = clip(phi_t^T u_t, -C, C),
        w_t = u_t - (h(phi_t^T u_t) / q) A_{t-1}^{-1} phi_t,   A_t = A_{t-1} + eta g^2 phi_t phi_t^T,   A_0 = alpha I.

    Time and memory O(d^2).

    Notes
    -----
    Against every weights v with |phi_t^T v| <= C in all rounds the regret is at most (alpha / 2) |v|^2 + `bound_gradient`
    + `bound_step`, as in `kons`. With curvature steps the last is 0, and the second at most `log_det` / (2 sigma), where

        log_det <= p log(1 + sigma L^2 R^2 T / (alpha p)),   p features, |phi_t| <= R.

    Against [hazan2007]: the set that is projected to is that of all weights whose next prediction is within C, where theirs
    is a fixed convex set; the projection is then a formula.

    Rounding moves predictions by about eps times the condition of A: over 10^5 rounds with d = 10 by 1e-14 for independent
    inputs, by 1e-13 where they all but lie in a plane (condition 6e5), by 1e-6 at most where moreover alpha = 1e-5
    (condition 1e10). Nothing is ever factorised again.

    References: [hazan2007] theorem 2; [calandriello2017] algorithm 1 for the projection.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "ons", "config": {"step": "adaptive", "intercept": False}}, dim=1)
    >>> learner.update(np.array([1.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([1.0])).value, 4)
    0.6667
    """

    kind: ClassVar[str] = "ons"
    references: ClassVar[tuple[str, ...]] = ("hazan2007", "calandriello2017")
    config_type = OnsConfig
    state_type = OnsState

    def loss(self, config: OnsConfig) -> Loss:
        return LOSSES[config.loss]

    def largest_truth(self, config: OnsConfig) -> float:
        return config.largest_truth

    def init(self, config: OnsConfig, dim: int) -> OnsState:
        root = Root(config.regularization, dim + config.intercept)
        return OnsState(0, root, log_det=0.0, loss=0.0, bound_gradient=0.0, bound_step=0.0)

    def predict(self, config: OnsConfig, state: OnsState, x: F64) -> Forecast:
        m = state.root.mean(_features(config, x))
        require_finite(state.t + 1, m)
        return self._forecast(config, clipped(config, m))

    def play(self, config: OnsConfig, state: OnsState, x: F64, y: float, rng: RoundRng) -> OnsRound:
        moments = state.root.moments(_features(config, x))
        decision = _decide(state.t + 1, moments.m, moments.q, y, newton_rule(config, rng))
        forecast = self._forecast(config, decision.value)
        loss = self.loss(config).value(decision.value, y)
        return OnsRound(state.t + 1, x, y, forecast, loss, rng.choices(), moments, decision)

    def learn(self, config: OnsConfig, state: OnsState, played: OnsRound) -> None:
        state.root.absorb(played.moments, played.decision)
        self._carry(config, state, played.loss, played.moments.q, played.decision)

    def run(self, config: OnsConfig, state: OnsState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        loss, rule, Phi = self.loss(config), newton_rule(config, rng), _features(config, X)
        learn = self._learn_block if len(state.root) >= WIDE else self._learn_rounds
        values = np.empty(len(y))
        for start in range(0, len(y), BLOCK):
            rows = slice(start, start + BLOCK)
            values[rows] = learn(config, state, Phi[rows], y[rows].tolist(), rule)
        return BlockInfo(state.t, values, loss.values(values, y), probabilities(loss, values), rng.finish())

    def _learn_rounds(self, config: OnsConfig, state: OnsState, Phi: F64, y: list[float], rule: Rule) -> list[float]:
        """The values of n rounds, learned one by one. Phi: (n, p)."""
        values: list[float] = []
        for phi, truth in zip(Phi, y, strict=True):
            moments = state.root.moments(phi)
            decision = _decide(state.t + 1, moments.m, moments.q, truth, rule)
            state.root.absorb(moments, decision)
            self._carry(config, state, self.loss(config).value(decision.value, truth), moments.q, decision)
            values.append(decision.value)
        return values

    def _learn_block(self, config: OnsConfig, state: OnsState, Phi: F64, y: list[float], rule: Rule) -> list[float]:
        """The same, from a few matrix products."""
        block = RootBlock(state.root, Phi)
        played: list[tuple[float, Decision]] = []
        for j, truth in enumerate(y):
            moments = block.moments(j)
            decision = _decide(state.t + 1 + j, moments.m, moments.q, truth, rule)
            block.absorb(moments, decision)
            played.append((moments.q, decision))
        block.settle()
        for truth, (q, decision) in zip(y, played, strict=True):
            self._carry(config, state, self.loss(config).value(decision.value, truth), q, decision)
        return [decision.value for _, decision in played]

    def describe(self, config: OnsConfig, state: OnsState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": 0,
            "bytes": state.root.nbytes,
            "features": len(state.root),
            "loss": state.loss,
            "log_det": state.log_det,
            "bound_gradient": state.bound_gradient,
            "bound_step": state.bound_step,
        }

    def _carry(self, config: OnsConfig, state: OnsState, loss: float, q: float, decision: Decision) -> None:
        account(config, state, loss, q, decision)
        state.log_det += math.log1p(decision.w * q)
        state.t += 1

    def _forecast(self, config: OnsConfig, value: float) -> Forecast:
        return Forecast(value, self.loss(config).probability(value))


def _decide(t: int, m: float, q: float, y: float, rule: Rule) -> Decision:
    """The rule's decision. Raises DivergedError."""
    require_finite(t, m, q)
    decision = rule(m, q, y, t)
    require_finite(t, *decision)
    return decision


def _features(config: OnsConfig, X: F64) -> F64:
    """phi of X, shape (..., d)."""
    return np.concatenate((X, np.ones((*X.shape[:-1], 1))), axis=-1) if config.intercept else X
