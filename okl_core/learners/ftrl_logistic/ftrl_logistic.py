"""`ftrl-logistic`: follow the regularised leader of the logistic loss, that is batch training after every round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.kernels.intercept import InterceptConfig
from okl_core.learners.ftrl_logistic.logistic_leader import DistinctRounds
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, Forecast, LearnerState, Round

LONGEST = 1e13
"""The largest |phi| / max(sqrt(lambda), SHORTEST_UNIT). Rounding hides phi^T theta of a longer phi, since |theta| is of the
order of 1 / sqrt(lambda): after such a round hardly a leader would be found."""

SHORTEST_UNIT = 1e-3
"""With inputs of size 1 the leader is hardly longer than 1000, however small lambda is."""

ROUNDED = 0.125
"""Share of max |phi| / sqrt(2 lambda) that counts as conditioning. Between BLAS kernels, forecasts of inputs with offsets of
1e5 to 1e9 differ by up to 2.5 eps times that number; the replay tolerance allows 8 eps times it."""


class FtrlLogisticConfig(InterceptConfig):
    """Parameters of FTRL."""

    regularization: float = Field(default=1.0, gt=0.0, description="lambda: weight of |theta|^2.")


@dataclass(slots=True)
class FtrlLogisticState(LearnerState):
    """All rounds, their leader, and the cumulative loss."""

    rounds: DistinctRounds
    theta: F64
    loss: float


@dataclass(slots=True)
class FtrlLogisticRound(Round):
    """A round with its features and the leader that it makes."""

    phi: F64
    theta: F64
    """The leader after the round."""


@final
@register
class FtrlLogistic(Learner[FtrlLogisticConfig, FtrlLogisticState, FtrlLogisticRound]):
    r"""Logistic regression, retrained on all rounds after every round: a reference, at a cost that grows with t.

    phi is the input, with one more coordinate of 1 for the intercept, and

        value = phi_t^T theta_t,   theta_t = argmin sum_{s < t} log(1 + exp(-y_s phi_s^T theta)) + lambda |theta|^2,

    to rounding, by Newton's method from theta_{t-1}. Inputs that come again are stored once and counted. With k distinct
    inputs and p features a round takes time O((k + p) p^2) and memory O(k p). An input longer
    than 1e13 max(sqrt(lambda), 0.001) is refused with a DivergedError: rounding would hide the leaders after it.

    Notes
    -----
    A proper learner: its forecast is linear in the input. For every proper learner there are streams, even with one
    feature, on which the regret against the best |theta| <= B is of the order of B^{2/3} n^{1/3}, as long as n is below
    exp(B). That of improper learners is of the order of B d log n or less.

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
        return FtrlLogisticState(0, DistinctRounds(p), np.zeros(p), 0.0)

    def conditioning(self, config: FtrlLogisticConfig, state: FtrlLogisticState) -> float:
        """From the longest phi, whose rounding the leader takes over: O(k p)."""
        return 1.0 + ROUNDED * state.rounds.longest / math.sqrt(2.0 * config.regularization)

    def predict(self, config: FtrlLogisticConfig, state: FtrlLogisticState, x: F64) -> Forecast:
        value = ddot(state.theta, config.phi(x))
        require_finite(state.t + 1, value)
        return self.loss(config).forecast(value)

    def play(
        self, config: FtrlLogisticConfig, state: FtrlLogisticState, x: F64, y: float, rng: RoundRng
    ) -> FtrlLogisticRound:
        forecast = self.predict(config, state, x)
        loss = self.loss(config).value(forecast.value, y)
        phi = config.phi(x)
        _require_bearable(state.t + 1, phi, config.regularization)
        theta = state.rounds.objective_with(phi, y).leader(config.regularization, state.theta)
        return FtrlLogisticRound(state.t + 1, x, y, forecast, loss, rng.choices(), phi, theta)

    def learn(self, config: FtrlLogisticConfig, state: FtrlLogisticState, played: FtrlLogisticRound) -> None:
        state.rounds.absorb(played.phi, played.y)
        state.theta = played.theta
        state.loss += played.loss
        state.t += 1

    def describe(self, config: FtrlLogisticConfig, state: FtrlLogisticState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.rounds),
            "bytes": state.rounds.nbytes + state.theta.nbytes,
            "features": len(state.theta),
            "loss": state.loss,
            "norm": float(np.linalg.norm(state.theta)),
        }


def _require_bearable(t: int, phi: F64, regularization: float) -> None:
    """Raises DivergedError for features beside which rounding would hide the leader."""
    norm, longest = math.sqrt(ddot(phi, phi)), LONGEST * max(math.sqrt(regularization), SHORTEST_UNIT)
    if not norm <= longest:
        raise DivergedError(f"round {t}: an input of norm {norm:.1e} is above {longest:.1e}; scale the inputs down")
