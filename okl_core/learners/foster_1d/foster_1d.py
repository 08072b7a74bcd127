"""`foster-1d`: exponential weights over the slopes of one input, the improper forecaster of least regret."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Self, final

from pydantic import Field, model_validator

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.learners.foster_1d.slope_mixture import NodeSigmoids, SlopeMixture, half_nodes, node_sigmoids
from okl_core.losses import LOSSES, Loss, sigmoid
from okl_core.types import F64, Forecast, LearnerConfig, LearnerState, Round


class Foster1dConfig(LearnerConfig):
    """Parameters of exponential weights over slopes."""

    comparator_norm: float = Field(default=1.0, gt=0.0, description="B: the slopes lie in [-B, B].")
    smoothing: float = Field(
        default=0.0, ge=0.0, lt=1.0, description="mu: the probability becomes (1 - mu) p + mu / 2."
    )
    nodes: int = Field(
        default=4001,
        ge=11,
        description="Slopes that weights are kept for, an odd number: 2 B R sqrt(n) and more for n rounds.",
    )

    @model_validator(mode="after")
    def _has_a_middle(self) -> Self:
        if self.nodes % 2 == 0:
            raise ValueError("nodes must be odd: 0 is one of them")
        return self

    @functools.cached_property
    def half(self) -> F64:
        """The slopes from 0 to B, read-only."""
        return half_nodes(self.comparator_norm, self.nodes)


@dataclass(slots=True)
class Foster1dState(LearnerState):
    """The weights of the slopes, and the cumulative loss."""

    mixture: SlopeMixture
    loss: float


@dataclass(slots=True)
class Foster1dRound(Round):
    """A round with the sigmoids of its input at the nodes; None for an input too large for them."""

    sigmoids: NodeSigmoids | None


@final
@register
class Foster1d(Learner[Foster1dConfig, Foster1dState, Foster1dRound]):
    r"""Exponential weights over the slope of a single input, logistic loss: regret 5 log(B R n + e), for every stream.

    The weights are the uniform prior on [-B, B] times the likelihoods of the past rounds, and p is the mean probability:

        P_t(w) ~ exp(-sum_{s < t} log(1 + exp(-y_s w x_s))),   p = E 1 / (1 + exp(-w x_t)),   value = log(p / (1 - p)).

    The integral is taken on `nodes` equally spaced slopes. Time and memory are O(nodes). Nothing is forgotten.

    Notes
    -----
    Against every slope |w| <= B the regret over n rounds with |x| <= R is at most 5 log(B R n + e): the loss of a round is
    -log of the probability of its truth, so mixing loses nothing. With d inputs the bound would be 5 d log(B R n / d + e),
    but the integral would be out of reach.

    For the nodes themselves, h = 2 B / (nodes - 1) apart, the regret is also at most

        log(8 (nodes - 1) / 3) + n R^2 h^2 / 32.

    The first term is -log of the smallest share of a node in the prior, the second what the node nearest to the best slope
    may lose to it. Take h below 1 / (R sqrt(n)), half of the smallest width that the weights can have around a slope inside
    (-B, B): forecasts are then those of the integral to rounding. With B = 1 the default is enough for 10^6 rounds of
    |x| <= 1.

    References: [foster2018] theorem 1, algorithm 1 for `smoothing`.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "foster-1d"}, dim=1)
    >>> round(learner.update(np.array([2.0]), 1.0).loss, 4)
    0.6931
    >>> round(learner.predict(np.array([2.0])).value, 4)
    0.4862
    """

    kind: ClassVar[str] = "foster-1d"
    references: ClassVar[tuple[str, ...]] = ("foster2018",)
    dims: ClassVar[int | None] = 1
    config_type = Foster1dConfig
    state_type = Foster1dState

    def loss(self, config: Foster1dConfig) -> Loss:
        return LOSSES["logistic"]

    def initial_bytes(self, config: Foster1dConfig, dim: int) -> int:
        return 3 * 8 * (config.nodes + 1)

    def init(self, config: Foster1dConfig, dim: int) -> Foster1dState:
        return Foster1dState(0, SlopeMixture.uniform(config.nodes), 0.0)

    def predict(self, config: Foster1dConfig, state: Foster1dState, x: F64) -> Forecast:
        return self._forecast(config, state, x.item(), node_sigmoids(config.half, x.item()))

    def play(self, config: Foster1dConfig, state: Foster1dState, x: F64, y: float, rng: RoundRng) -> Foster1dRound:
        sigmoids = node_sigmoids(config.half, x.item())
        forecast = self._forecast(config, state, x.item(), sigmoids)
        loss = self.loss(config).value(forecast.value, y)
        return Foster1dRound(state.t + 1, x, y, forecast, loss, rng.choices(), sigmoids)

    def learn(self, config: Foster1dConfig, state: Foster1dState, played: Foster1dRound) -> None:
        state.mixture.absorb(config.half, played.x.item(), played.y, played.sigmoids)
        state.loss += played.loss
        state.t += 1

    def describe(self, config: Foster1dConfig, state: Foster1dState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": 0,
            "bytes": state.mixture.nbytes,
            "loss": state.loss,
            "mean": state.mixture.mean(config.half),
        }

    def _forecast(
        self, config: Foster1dConfig, state: Foster1dState, x: float, sigmoids: NodeSigmoids | None
    ) -> Forecast:
        """The forecast for an input whose `node_sigmoids` these are."""
        value = _smoothed(state.mixture.log_odds(config.half, x, sigmoids), config.smoothing)
        return self.loss(config).forecast(value)


def _smoothed(value: float, mu: float) -> float:
    """The log odds of the probability (1 - mu) p + mu / 2, from those of p."""
    if mu == 0.0:
        return value
    p, q = sigmoid(value), sigmoid(-value)
    return math.log((1.0 - mu) * p + 0.5 * mu) - math.log((1.0 - mu) * q + 0.5 * mu)
