"""Follow the regularised leader on the logistic loss: what batch training would do, repeated in every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.kernels.intercept import InterceptConfig
from okl_core.learners.logistic_leader import Tally
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, Forecast, LearnerState, Round


class FtrlLogisticConfig(InterceptConfig):
    """Parameters of FTRL."""

    regularization: float = Field(default=1.0, gt=0.0, description="lambda: weight of |theta|^2.")


@dataclass(slots=True)
class FtrlLogisticState(LearnerState):
    """All rounds, their leader, and the cumulative loss."""

    tally: Tally
    theta: F64
    loss: float


@dataclass(slots=True)
class FtrlLogisticRound(Round):
    phi: F64
    theta: F64
    """The leader after the round."""


@final
@register
class FtrlLogistic(Learner[FtrlLogisticConfig, FtrlLogisticState, FtrlLogisticRound]):
    r"""Logistic regression, trained anew on all rounds after every round: a yardstick, at a cost that grows with t.

    phi is the input, with one more coordinate of 1 for the intercept, and

        value = phi_t^T theta_t,   theta_t = argmin sum_{s < t} log(1 + exp(-y_s phi_s^T theta)) + lambda |theta|^2,

    to rounding, by Newton's method from theta_{t-1}. Inputs that come again are stored once and counted: with k distinct
    ones time O(k p^2) a round, memory O(k p), for p features.

    Notes
    -----
    A proper learner: its forecast is linear in the input. For every proper learner there are streams, one feature is
    enough, on which the regret against the best |theta| <= B is of the order of B^{2/3} n^{1/3}, as long as n is below
    exp(B). That of improper ones is of the order of B d log n or less.

    References: [hazan2014] for the lower bound; [jezequel2020].

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "ftrl-logistic", "config": {"intercept": False}}, dim=1)
    >>> round(learner.update(np.array([2.0]), 1.0).loss, 4)
    0.6931
    >>> round(learner.predict(np.array([2.0])).value, 4)
    0.6748
    """

    kind: ClassVar[str] = "ftrl-logistic"
    references: ClassVar[tuple[str, ...]] = ("hazan2014", "jezequel2020")
    config_type = FtrlLogisticConfig
    state_type = FtrlLogisticState

    def loss(self, config: FtrlLogisticConfig) -> Loss:
        return LOSSES["logistic"]

    def init(self, config: FtrlLogisticConfig, dim: int) -> FtrlLogisticState:
        p = dim + config.intercept
        return FtrlLogisticState(0, Tally(p), np.zeros(p), 0.0)

    def predict(self, config: FtrlLogisticConfig, state: FtrlLogisticState, x: F64) -> Forecast:
        value = ddot(state.theta, config.phi(x))
        require_finite(state.t + 1, value)
        return Forecast(value, self.loss(config).probability(value))

    def play(
        self, config: FtrlLogisticConfig, state: FtrlLogisticState, x: F64, y: float, rng: RoundRng
    ) -> FtrlLogisticRound:
        forecast = self.predict(config, state, x)
        loss = self.loss(config).value(forecast.value, y)
        phi = config.phi(x)
        theta = state.tally.with_round(phi, y).leader(config.regularization, state.theta)
        return FtrlLogisticRound(state.t + 1, x, y, forecast, loss, rng.choices(), phi, theta)

    def learn(self, config: FtrlLogisticConfig, state: FtrlLogisticState, played: FtrlLogisticRound) -> None:
        state.tally.add(played.phi, played.y)
        state.theta = played.theta
        state.loss += played.loss
        state.t += 1

    def describe(self, config: FtrlLogisticConfig, state: FtrlLogisticState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.tally),
            "bytes": state.tally.nbytes + state.theta.nbytes,
            "features": len(state.theta),
            "loss": state.loss,
            "norm": float(np.linalg.norm(state.theta)),
        }
