r"""Aggregation of experts' forecasts: exponential weights, the Aggregating Algorithm, Bayes' mixture, and fixed share.

| symbol | meaning                                                    | shape |
|--------|------------------------------------------------------------|-------|
| N      | number of experts                                          |       |
| v      | the experts' forecasts: numbers, or probabilities of K classes | (N,) or (N, K) |
| p      | their weights, which sum to 1; p_i = 1 / N at first        | (N,)  |
| eta    | learning rate: p_i is multiplied by exp(-eta l(v_i, y))    |       |
| s      | share: p <- (1 - s) p + s / N afterwards                   |       |

A loss is eta-mixable if for all p and v there is a forecast with l(forecast, y) <= -ln(sum p_i exp(-eta l(v_i, y))) / eta
for all truths: then the regret to the best expert is at most ln N / eta, and with a share s, to the best sequence that
changes k times in T rounds, at most ((k + 1) ln N + k ln(1 / s) + (T - k) ln(1 / (1 - s))) / eta.

For the log-loss of probabilities, exp(-l(v_i, y)) = v_iy: the mixture sum p_i v_i attains equality with eta = 1.

References: [vovk1998] theorem 1, section 2.4; [herbster1998] theorem 7; [cesabianchi2006] sections 3.3, 3.5, 5.2 and 9.2.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal, final

import numpy as np

from okl_core.losses import LEAST_PROBABILITY, LOSSES, log_loss, sigmoid
from okl_core.types import F64, Forecast

AggregationName = Literal["aggregating", "exponential"]
MixedLoss = Literal["squared", "logistic"]


class Aggregation(ABC):
    """How forecasts are combined and experts weighted. It is stateless: weights are passed in and returned.

    The forecast of an expert is an array of `shape`; the forecast of a resting expert is NaN.
    """

    def __init__(self, eta: float, share: float, shape: tuple[int, ...]) -> None:
        self.eta, self.share, self.shape = eta, share, shape

    @abstractmethod
    def taken(self, forecasts: F64) -> F64:
        """Return the experts' forecasts as they enter the aggregation: clipped, shape (..., N, *shape)."""

    @abstractmethod
    def forecast(self, p: F64, v: F64) -> Forecast:
        """Combine the experts' forecasts, as returned by `taken`, shape (N, *shape); at least one expert is awake."""

    def probability(self, value: float) -> float | None:
        """Return the probability of the label +1 of a forecast with this value; None for numbers and classes."""
        return None

    @abstractmethod
    def loss(self, forecast: Forecast, y: float) -> float:
        """Return the loss of the pool."""

    @abstractmethod
    def losses(self, v: F64, forecast: Forecast, y: float) -> F64:
        """Return the losses of the experts, shape (N,), from their forecasts v; resting experts get the pool's forecast."""

    def weigh(self, p: F64, losses: F64, cumulative: F64) -> F64:
        """Return the weights after a round, from those before it, its losses, and the cumulative losses; shapes (N,)."""
        floor = self.share / len(p)
        if floor == 0.0:
            # Not from p: a weight that has underflowed to 0 would stay 0, however well the expert does from then on.
            weights = np.exp(-self.eta * (cumulative - cumulative.min()))
            return weights / weights.sum()
        # In logarithms, which exist since p >= floor: every product may underflow, even that of the best expert.
        logs = np.log(p) - self.eta * losses
        p = np.exp(logs - logs.max())
        return (1.0 - self.share) * (p / p.sum()) + floor


@final
class ValueAggregation(Aggregation):
    """Aggregation of forecasts in [-C, C].

    `aggregating` is Vovk's algorithm: for squared loss it has eta = 1 / (2 C^2) and the forecast of the substitution
    function. With `exponential` the forecast is the weighted mean, for which squared loss allows eta = 1 / (8 C^2)
    (exp-concavity). For logistic loss both are the weighted mean of the probabilities, with eta = 1.
    """

    def __init__(self, loss: MixedLoss, name: AggregationName, clip: float, share: float, of_labels: bool) -> None:
        eta = 1.0 if loss == "logistic" else 1.0 / ((2.0 if name == "aggregating" else 8.0) * clip * clip)
        super().__init__(eta, share, ())
        self._name, self._clip, self._of_labels = name, clip, of_labels
        self._is_logistic, self._loss = loss == "logistic", LOSSES[loss]

    def taken(self, forecasts: F64) -> F64:
        return np.clip(forecasts, -self._clip, self._clip)

    def forecast(self, p: F64, v: F64) -> Forecast:
        value = self._value(*_awake(p, v))
        return Forecast(value, self.probability(value))

    def loss(self, forecast: Forecast, y: float) -> float:
        return self._loss.value(forecast.value, y)

    def losses(self, v: F64, forecast: Forecast, y: float) -> F64:
        return self._loss.values(np.where(v == v, v, forecast.value), np.full(len(v), y))

    def _value(self, p: F64, v: F64) -> float:
        C, eta = self._clip, self.eta
        if self._is_logistic:
            # Both logarithms separately: 1 - P would lose the odds of very confident experts.
            value = _log_mean_exp(p, -np.logaddexp(0.0, -v)) - _log_mean_exp(p, -np.logaddexp(0.0, v))
        elif self._name == "exponential":
            value = float(p @ v)
        else:
            # g(y) of the definition above, at both ends; their difference is linear in the forecast.
            low = -math.log(float(p @ np.exp(-eta * (v + C) ** 2))) / eta
            high = -math.log(float(p @ np.exp(-eta * (v - C) ** 2))) / eta
            value = (low - high) / (4.0 * C)
        return min(max(value, -C), C)

    def probability(self, value: float) -> float | None:
        """Return that of labels: a forecast is their mean (squared loss) or log odds (logistic)."""
        if not self._of_labels:
            return None
        return sigmoid(value) if self._is_logistic else 0.5 * (1.0 + min(max(value, -1.0), 1.0))


@final
class ClassAggregation(Aggregation):
    """Aggregation of probabilities of K classes: their weighted mean, Bayes' mixture, since the weights are its posterior.

    No logarithms are needed. An expert gives each class at least LEAST_PROBABILITY, so the leader alone, with a weight of at
    least 1 / N, contributes 10^20 times as much as an expert whose weight has underflowed could.
    """

    def __init__(self, classes: int, share: float) -> None:
        super().__init__(1.0, share, (classes,))

    def taken(self, forecasts: F64) -> F64:
        return np.maximum(forecasts, LEAST_PROBABILITY)

    def forecast(self, p: F64, v: F64) -> Forecast:
        p, v = _awake(p, v)
        q = np.maximum(p @ v, LEAST_PROBABILITY)
        return Forecast(float(q.max()), None, tuple(q.tolist()))

    def loss(self, forecast: Forecast, y: float) -> float:
        return log_loss(_given(forecast, y))

    def losses(self, v: F64, forecast: Forecast, y: float) -> F64:
        of_truth = v[:, int(y)]
        return -np.log(np.where(of_truth == of_truth, of_truth, _given(forecast, y)))


def _given(forecast: Forecast, y: float) -> float:
    """Return the forecast probability of the class y."""
    assert forecast.probabilities is not None
    return forecast.probabilities[int(y)]


def _awake(p: F64, v: F64) -> tuple[F64, F64]:
    """Return the normalised weights and the forecasts of the experts that are awake."""
    first = v if v.ndim == 1 else v[:, 0]
    is_awake = first == first
    return (p, v) if is_awake.all() else (p[is_awake] / p[is_awake].sum(), v[is_awake])


def _log_mean_exp(p: F64, a: F64) -> float:
    """Return ln sum p_i exp(a_i), where p sums to 1."""
    largest = float(a[p > 0.0].max())
    return largest + math.log(float(p @ np.exp(np.minimum(a - largest, 0.0))))
