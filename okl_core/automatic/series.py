r"""A time-series regression: the next difference from the last differences, the last level and the input, by least squares.

| symbol | meaning                                                         | shape |
|--------|-----------------------------------------------------------------|-------|
| y      | truths minus the first truth                                    |       |
| past   | the last LAGS truths, newest first, padded with zeros           | (L,)  |
| s      | largest \|y\| before the round                                  |       |

The features are those of the input, and GAIN / s times y_{t-1} and the L - 1 consecutive differences in `past`. The target is
(y_t - y_{t-1}) / s, clipped to [-JUMP, JUMP]. Both are invariant to scale and shift of the truths, and bounded.

References: [box2015] chapter 4: an autoregression of the differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from okl_core.automatic.shared_posterior import SharedPosterior, SharedProjection
from okl_core.types import F64, StatePart

LAGS = 16
"""Number of lagged truths: more than a year of monthly data, or two weeks of daily data."""

JUMP = 10.0

GAIN = 4.0
"""Factor on the features from past truths, since s is several times a typical difference."""

SMALLEST = GAIN * float(np.finfo(np.float64).tiny)
"""A smaller s counts as 0: GAIN / s would overflow."""


@final
@dataclass(slots=True)
class Series(StatePart):
    """The posterior, `past`, and `scale`, which is s."""

    posterior: SharedPosterior
    past: F64
    scale: float

    @classmethod
    def empty(cls, size: int) -> Series:
        """The state before the first round, with `size` features per input."""
        return cls(SharedPosterior(size + LAGS, 1), np.zeros(LAGS), 0.0)

    def project(self, phi: F64) -> tuple[float, SharedProjection]:
        """The forecast of y for the features of an input, shape (p,), and the projection that `absorb` takes."""
        projection = self.posterior.project(
            self._features(phi[:, None], self.past[:, None], np.array([self.scale]))[:, 0]
        )
        return float(projection.m[0]) * self.scale + float(self.past[0]), projection

    def absorb(self, projection: SharedProjection, y: float) -> None:
        self.posterior.absorb(projection, _jumps(np.array([y]), self.past[:1], np.array([self.scale])))
        self._extend(np.array([y]))

    def learn(self, Phi: F64, y: F64) -> F64:
        """Learn n rounds, Phi of shape (p, n) and y of shape (n,), and return their forecasts, (n,)."""
        known = np.concatenate((self.past[::-1], y))
        past = sliding_window_view(known, LAGS)[:-1, ::-1].T
        scales = np.maximum.accumulate(np.append(self.scale, np.abs(y)))[:-1]
        jumps = self.posterior.learn(self._features(Phi, past, scales), _jumps(y, past[0], scales)[:, None])
        self._extend(y)
        return jumps[:, 0] * scales + past[0]

    def _features(self, Phi: F64, past: F64, scales: F64) -> F64:  # past: (L, n), scales: (n,)
        lags = past * (GAIN / np.where(scales > SMALLEST, scales, 1.0))
        return np.concatenate((Phi, lags[:1], lags[:-1] - lags[1:]))

    def _extend(self, y: F64) -> None:
        self.past = np.concatenate((y[::-1], self.past))[:LAGS].copy()
        self.scale = max(self.scale, float(np.abs(y).max()))


def _jumps(y: F64, last: F64, scales: F64) -> F64:
    """The targets, shape (n,); 0 while the scale is 0."""
    moved = (y - last) / np.where(scales > SMALLEST, scales, 1.0)
    return np.where(scales > SMALLEST, np.clip(moved, -JUMP, JUMP), 0.0)
