r"""Exponential weights over all slopes of one input: the improper forecaster of the least regret, where it can be computed.

| symbol | meaning                                                                        | shape  |
|--------|--------------------------------------------------------------------------------|--------|
| B, R   | bound on the slopes, and on the inputs                                         |        |
| w      | the nodes: equally spaced in [-B, B], row 0 those >= 0, row 1 the same negated | (2, m) |
| L      | logarithm of the weights of the nodes, the largest 0                           | (2, m) |
| M      | factors of the weights since: the weights are exp(L) M                         | (2, m) |
| h, e h | 1 / (1 + e), e / (1 + e) with e = exp(-\|w x\|): sigmoid of \|w x\| and -\|w x\| | (m,)   |

Multiplying into M takes no logarithm. Before a factor in M can come near the smallest number L takes them over; an input
so large that a single one might is carried into L at once. So no weight is ever lost.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self, final

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.errors import StateFormatError
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, Loss, sigmoid
from okl_core.types import F64, Forecast, LearnerConfig, LearnerState, Round

DEEPEST = 300.0
"""Factors stay above exp(-300): then their product with a forecast's is a normal number."""
FIRST = (3.0 / 8.0, 7.0 / 6.0, 23.0 / 24.0)
"""The outermost weights of the quadrature, all others are 1. It is the trapezoid rule with ends of the order of Simpson's,
whose weights 4 and 2 would halve the nodes where the weights peak between two of them."""


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


class Sides(NamedTuple):
    """h and e h of an input."""

    likely: F64
    unlikely: F64


@final
class Mixture:
    """L and M, and the depth of the factors in M: none is below exp(-depth)."""

    __slots__ = ("L", "M", "depth", "weights")

    def __init__(self, L: F64) -> None:
        self.depth = 0.0
        self._settle(L)

    @property
    def nbytes(self) -> int:
        return self.L.nbytes + self.M.nbytes + self.weights.nbytes

    def log_weights(self) -> F64:
        return self.L + np.log(self.M)

    def log_odds(self, sides: Sides, x: float) -> float:
        """log(p / (1 - p)), for p the mean of sigmoid(w x)."""
        masses = ((self.weights * self.M) @ np.array(sides).T).tolist()
        (a, b), (c, d) = masses if x >= 0.0 else masses[::-1]
        return math.log(a + d) - math.log(b + c)

    def multiply(self, sides: Sides, direction: float, depth: float) -> None:
        """Multiply the weights by sigmoid(w direction), which is above exp(-depth) everywhere."""
        if self.depth + depth > DEEPEST:
            self._settle(self.log_weights())
            self.depth = 0.0
        rows = sides if direction >= 0.0 else sides[::-1]
        self.M[0] *= rows[0]
        self.M[1] *= rows[1]
        self.depth += depth

    def absorb(self, log_factors: F64) -> None:
        """Multiply the weights by factors given as logarithms, however small."""
        self._settle(self.log_weights() + log_factors)
        self.depth = 0.0

    def _settle(self, L: F64) -> None:
        self.L = L - L.max()
        self.M = np.ones_like(L)
        self.weights: F64 = np.exp(self.L)
        """Kept, since it changes far less often than M."""

    def pack(self) -> dict[str, F64]:
        return {"L": self.L.copy(), "M": self.M.copy(), "depth": np.array(self.depth)}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Mixture:
        L, M = arrays["L"], arrays["M"]
        if L.ndim != 2 or len(L) != 2 or L.shape != M.shape:
            raise StateFormatError(f"weights of shape {L.shape} with factors of shape {M.shape}")
        mixture = cls(np.array(L, dtype=np.float64))
        mixture.M, mixture.depth = np.array(M, dtype=np.float64), float(arrays["depth"].item())
        return mixture


@dataclass(slots=True)
class Foster1dState(LearnerState):
    mixture: Mixture
    loss: float


@dataclass(slots=True)
class Foster1dRound(Round):
    sides: Sides | None


@final
@register
class Foster1d(Learner[Foster1dConfig, Foster1dState, Foster1dRound]):
    r"""Exponential weights over the slope of a single input, logistic loss: regret 5 log(B R n + e), for every stream.

    The weights are those of the uniform prior on [-B, B] after the past rounds,

        P_t(w) ~ exp(-sum_{s < t} log(1 + exp(-y_s w x_s))),   p = E 1 / (1 + exp(-w x_t)),   value = log(p / (1 - p)),

    with a quadrature on `nodes` equally spaced slopes. Time and memory O(nodes).

    Notes
    -----
    The loss of every round is -log of the probability that was given to its truth, since the logistic loss is 1-mixable: the
    regret against every |w| <= B is at most 5 log(B R n + e). In d dimensions it would be 5 d log(B R n / d + e), but the
    integral would be out of reach.

    On the nodes it is exponential weights in its own right: with h = 2 B / (nodes - 1) their spacing, the regret is also at
    most log(8 (nodes - 1) / 3) + n R^2 h^2 / 32, the logarithm of the smallest share that a node has of the prior, and
    what the node next to the best slope may lose to it. So take h below 1 / (R sqrt(n)), which is half of the smallest
    width that the weights can have around a slope inside of (-B, B): forecasts are then those of the integral to rounding.
    With B = 1 the default is enough for 10^6 rounds of |x| <= 1.

    It keeps all that was ever learned: there is no forgetting.

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
        row = np.zeros(config.nodes // 2 + 1)
        row[0] = math.log(0.5)
        row[: -len(FIRST) - 1 : -1] = np.log(FIRST)
        return Foster1dState(0, Mixture(np.array([row, row])), 0.0)

    def predict(self, config: Foster1dConfig, state: Foster1dState, x: F64) -> Forecast:
        return self._forecast(config, state, x.item(), _sides(config, x.item()))

    def play(self, config: Foster1dConfig, state: Foster1dState, x: F64, y: float, rng: RoundRng) -> Foster1dRound:
        sides = _sides(config, x.item())
        forecast = self._forecast(config, state, x.item(), sides)
        loss = self.loss(config).value(forecast.value, y)
        return Foster1dRound(state.t + 1, x, y, forecast, loss, rng.choices(), sides)

    def learn(self, config: Foster1dConfig, state: Foster1dState, played: Foster1dRound) -> None:
        direction = played.x.item() * played.y
        if played.sides is None:
            state.mixture.absorb(_log_sigmoids(config, direction))
        else:
            state.mixture.multiply(played.sides, direction, _depth(config, direction))
        state.loss += played.loss
        state.t += 1

    def describe(self, config: Foster1dConfig, state: Foster1dState) -> dict[str, float]:
        row = _half(config)
        p = np.exp(state.mixture.log_weights())
        return {
            "t": state.t,
            "dictionary": 0,
            "bytes": state.mixture.nbytes,
            "loss": state.loss,
            "mean": float((p[0] - p[1]) @ row / p.sum()),
        }

    def _forecast(self, config: Foster1dConfig, state: Foster1dState, x: float, sides: Sides | None) -> Forecast:
        """Raises DivergedError."""
        require_finite(state.t + 1, _depth(config, x))
        mixture = state.mixture
        if sides is not None:
            value = mixture.log_odds(sides, x)
        else:
            L = mixture.log_weights()
            value = _log_sum(L + _log_sigmoids(config, x)) - _log_sum(L + _log_sigmoids(config, -x))
        value = _smoothed(value, config.smoothing)
        return Forecast(value, self.loss(config).probability(value))


@functools.lru_cache(maxsize=8)
def _grid(B: float, nodes: int) -> F64:
    return np.linspace(0.0, B, nodes // 2 + 1)


def _half(config: Foster1dConfig) -> F64:
    """The nodes from 0 to B, shape (m,)."""
    return _grid(config.comparator_norm, config.nodes)


def _depth(config: Foster1dConfig, x: float) -> float:
    """-log of the smallest factor that a round with the input x may have, or more."""
    return config.comparator_norm * abs(x) + math.log(2.0)


def _sides(config: Foster1dConfig, x: float) -> Sides | None:
    """None for an input so large that its factors cannot be told from 0."""
    if _depth(config, x) > DEEPEST:
        return None
    e = np.exp(-abs(x) * _half(config))
    likely = 1.0 / (1.0 + e)
    return Sides(likely, e * likely)


def _log_sigmoids(config: Foster1dConfig, x: float) -> F64:
    """log sigmoid(w x) at the nodes, shape (2, m)."""
    a = x * _half(config)
    return -np.logaddexp(0.0, np.array([-a, a]))


def _log_sum(a: F64) -> float:
    """log of the sum of exp."""
    return float(np.logaddexp.reduce(a.ravel()))


def _smoothed(value: float, mu: float) -> float:
    """The logarithm of the odds of (1 - mu) p + mu / 2."""
    if mu == 0.0:
        return value
    p, q = sigmoid(value), sigmoid(-value)
    return math.log((1.0 - mu) * p + 0.5 * mu) - math.log((1.0 - mu) * q + 0.5 * mu)
