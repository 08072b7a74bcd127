r"""Numbers as a series: the next difference from the last differences, the last level and the input, by least squares.

| symbol | meaning                                                         | shape |
|--------|-----------------------------------------------------------------|-------|
| y      | truths from the first one on, as differences from it            |       |
| past   | the last LAGS truths, newest first, 0 before there were any     | (L,)  |
| s      | largest \|y\| before the round                                  |       |

The features are GAIN times y_{t-1} / s and the L - 1 differences of neighbours in `past` over s, and those of the input; the
truth is (y_t - y_{t-1}) / s, cut to [-JUMP, JUMP]. Features and truth alike are free of scale and shift, and bounded.

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
"""Truths that it looks back on: more than a year of months, two weeks of days."""

JUMP = 10.0

GAIN = 4.0
"""Of the features from past truths: s is several times what differences mostly are."""


@final
@dataclass(slots=True)
class Series(StatePart):
    """The posterior, `past`, and s."""

    posterior: SharedPosterior
    past: F64
    scale: float

    @classmethod
    def empty(cls, size: int) -> Series:
        """Before the first round, with `size` features of an input."""
        return cls(SharedPosterior(size + LAGS, 1), np.zeros(LAGS), 0.0)

    def project(self, phi: F64) -> tuple[float, SharedProjection]:
        """The forecast of y for the features of an input, shape (p,)."""
        projection = self.posterior.project(
            self._features(phi[:, None], self.past[:, None], np.array([self.scale]))[:, 0]
        )
        return float(projection.m[0]) * self.scale + float(self.past[0]), projection

    def absorb(self, projection: SharedProjection, y: float) -> None:
        self.posterior.absorb(projection, _jumps(np.array([y]), self.past[:1], np.array([self.scale])))
        self._extend(np.array([y]))

    def learn(self, Phi: F64, y: F64) -> F64:
        """Learn n rounds, Phi of shape (p, n) and y of shape (n,); their forecasts, (n,)."""
        known = np.concatenate((self.past[::-1], y))
        past = sliding_window_view(known, LAGS)[:-1, ::-1].T
        scales = np.maximum.accumulate(np.append(self.scale, np.abs(y)))[:-1]
        made = self.posterior.learn(self._features(Phi, past, scales), _jumps(y, past[0], scales)[:, None])
        self._extend(y)
        return made[:, 0] * scales + past[0]

    def _features(self, Phi: F64, past: F64, scales: F64) -> F64:  # past: (L, n), scales: (n,)
        lags = past * (GAIN / np.where(scales > 0.0, scales, 1.0))
        return np.concatenate((Phi, lags[:1], lags[:-1] - lags[1:]))

    def _extend(self, y: F64) -> None:
        self.past = np.concatenate((y[::-1], self.past))[:LAGS].copy()
        self.scale = max(self.scale, float(np.abs(y).max()))


def _jumps(y: F64, last: F64, scales: F64) -> F64:
    """The truths, shape (n,); 0 where there is no scale yet."""
    moved = (y - last) / np.where(scales > 0.0, scales, 1.0)
    return np.where(scales > 0.0, np.clip(moved, -JUMP, JUMP), 0.0)
