r"""Aggregation of experts' forecasts: exponential weights, the Aggregating Algorithm, and fixed share.

| symbol | meaning                                                    | shape |
|--------|------------------------------------------------------------|-------|
| N      | number of experts                                          |       |
| v      | the experts' forecasts                                     | (N,)  |
| p      | their weights, which sum to 1; p_i = 1 / N at first        | (N,)  |
| eta    | learning rate: p_i is multiplied by exp(-eta l(v_i, y))    |       |
| s      | share: p <- (1 - s) p + s / N afterwards                   |       |

A loss is eta-mixable if for all p and v there is a forecast with l(forecast, y) <= -ln(sum p_i exp(-eta l(v_i, y))) / eta
for both truths: then the regret to the best expert is at most ln N / eta, and with a share s, to the best sequence that
changes k times in T rounds, at most ((k + 1) ln N + k ln(1 / s) + (T - k) ln(1 / (1 - s))) / eta.

References: [vovk1998] theorem 1, section 2.4; [herbster1998] theorem 7; [cesabianchi2006] sections 3.3, 3.5 and 5.2.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, final

import numpy as np

from okl_core.losses import LOSSES, sigmoid
from okl_core.types import F64

AggregationName = Literal["aggregating", "exponential"]
MixedLoss = Literal["squared", "logistic"]


@final
class Aggregation(NamedTuple):
    """How forecasts in [-C, C] are weighted and put together; all weights are passed in and out, nothing is kept.

    `aggregating` is Vovk's: for squared loss eta = 1 / (2 C^2) and the forecast of the substitution function. With
    `exponential` the forecast is the weighted mean, for which squared loss allows eta = 1 / (8 C^2) (exp-concavity). For
    logistic loss both are the weighted mean of the probabilities, with eta = 1.
    """

    loss: MixedLoss
    name: AggregationName
    clip: float
    share: float

    @property
    def eta(self) -> float:
        if self.loss == "logistic":
            return 1.0
        return 1.0 / ((2.0 if self.name == "aggregating" else 8.0) * self.clip * self.clip)

    def value(self, p: F64, v: F64) -> float:
        """The forecast from the experts', shapes (N,), in [-C, C]; NaN is that of an expert at rest, and is left out."""
        C, eta = self.clip, self.eta
        is_awake = v == v
        if not is_awake.all():
            p, v = p[is_awake] / p[is_awake].sum(), v[is_awake]
        if self.loss == "logistic":
            # Both logarithms on their own: 1 - P would lose the odds of experts that are sure of themselves.
            value = _log_mean_exp(p, -np.logaddexp(0.0, -v)) - _log_mean_exp(p, -np.logaddexp(0.0, v))
        elif self.name == "exponential":
            value = float(p @ v)
        else:
            # g(y) of the definition above, at both ends; their difference is linear in the forecast.
            low = -math.log(float(p @ np.exp(-eta * (v + C) ** 2))) / eta
            high = -math.log(float(p @ np.exp(-eta * (v - C) ** 2))) / eta
            value = (low - high) / (4.0 * C)
        return min(max(value, -C), C)

    def probability(self, value: float) -> float:
        """That of the label +1: squared loss asks for the mean of the labels, logistic loss for the logarithm of the odds."""
        return sigmoid(value) if self.loss == "logistic" else 0.5 * (1.0 + min(max(value, -1.0), 1.0))

    def losses(self, v: F64, value: float, y: float) -> F64:
        """Those of the experts, shape (N,), from their forecasts v and that of the pool, which is theirs at rest."""
        return LOSSES[self.loss].values(np.where(v == v, v, value), np.full(len(v), y))

    def weigh(self, p: F64, losses: F64, cumulative: F64) -> F64:
        """The weights after a round from those before it and the losses, in it and in all rounds with it; shapes (N,)."""
        floor = self.share / len(p)
        if floor == 0.0:
            # Not from p: what has underflowed to 0 there would stay 0, however well the expert does from then on.
            weights = np.exp(-self.eta * (cumulative - cumulative.min()))
            return weights / weights.sum()
        # From the smallest loss: the factors do not all vanish, whatever eta is.
        p = p * np.exp(-self.eta * (losses - losses.min()))
        return (1.0 - self.share) * (p / p.sum()) + floor


def _log_mean_exp(p: F64, a: F64) -> float:
    """ln sum p_i exp(a_i), where p sums to 1."""
    largest = float(a[p > 0.0].max())
    return largest + math.log(float(p @ np.exp(np.minimum(a - largest, 0.0))))
