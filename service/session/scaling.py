"""The scaling of inputs: fixed ranges, or those of a warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from okl_core.types import F64


@dataclass(frozen=True, slots=True)
class Scaling:
    """Each input from [low, high] to [0, 1]; an input with low = high goes to x - low.

    With a radius r it is to [-r / sqrt(d), r / sqrt(d)]: what lies in the ranges then lies in the ball of this radius.
    """

    low: F64
    high: F64
    radius: float | None = None

    @classmethod
    def of(cls, X: F64, radius: float | None = None) -> Scaling:
        """The ranges of the rows of X, shape (n, d)."""
        return cls(X.min(axis=0), X.max(axis=0), radius)

    def __call__(self, X: F64) -> F64:
        """Of shape (d,) or (n, d)."""
        span = self.high - self.low
        # What leaves the range of floating point here is refused by the learner, which wants finite inputs.
        with np.errstate(over="ignore"):
            unit = (X - self.low) / np.where(span > 0.0, span, 1.0)
            if self.radius is None:
                return unit
            return np.where(span > 0.0, (2.0 * unit - 1.0) * (self.radius / math.sqrt(len(span))), unit)
