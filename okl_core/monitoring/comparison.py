r"""A time-uniform comparison of two forecasters' errors, valid for any stream.

The score differences d_i in [-1, 1] are summarised by the mean of their conditional means, (1/n) sum E[d_i | all before]:
how much better one forecaster was in these rounds, if each truth had been drawn many times. The confidence band is that of
`okl_core.monitoring.bands`, with the mean of the earlier differences as the guess. It remains valid if it is inspected after
every round and acted on. [choe2024]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from okl_core.errors import InputError, StateFormatError
from okl_core.monitoring.bands import boundary
from okl_core.types import F64, Interval, StatePart

WHOLE: Interval = (-1.0, 1.0)
SLACK = 1e-9
"""Relative rounding error allowed in a sum."""


@final
@dataclass(slots=True)
class Comparison(StatePart):
    """Differences in [-1, 1]: their count, their sum, and V, the sum of squared distances from the mean of earlier ones.

    Examples
    --------
    >>> comparison = Comparison()
    >>> for t in range(400):
    ...     comparison.add(1.0 if t % 3 else 0.0)
    >>> [round(end, 2) for end in comparison.band(0.95)], comparison.is_better(0.95)
    ([0.57, 0.76], True)
    """

    count: int = 0
    total: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        """Raise StateFormatError for sums that no differences can have."""
        most = self.count * (1.0 + SLACK)
        if not (self.count >= 0 and abs(self.total) <= most and 0.0 <= self.spread <= 4.0 * most):
            raise StateFormatError(
                f"{self.count} differences of sum {self.total} and spread {self.spread} are impossible"
            )

    @property
    def mean(self) -> float:
        """Mean of the differences; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def add(self, difference: float) -> None:
        """Add one difference, positive if the forecaster in question was better. Raises InputError outside [-1, 1]."""
        if not -1.0 <= difference <= 1.0:
            raise InputError(f"a difference of {difference} is not in [-1, 1]", "y")
        difference = float(difference)
        away = difference - (self.total / self.count if self.count else 0.0)
        self.spread += away * away
        self.total += difference
        self.count += 1

    def run(self, differences: F64) -> None:
        """Add differences in order, shape (n,), bit for bit as by `add`. Raises InputError and then changes nothing."""
        if not ((differences >= -1.0) & (differences <= 1.0)).all():
            raise InputError("a difference is not in [-1, 1]", "y")
        totals = running(self.total, differences)
        away = differences - totals[:-1] / np.maximum(np.arange(self.count, self.count + len(differences)), 1)
        self.spread = running(self.spread, away * away).item(-1)
        self.total = totals.item(-1)
        self.count += len(differences)

    def band(self, level: float = 0.95) -> Interval:
        """A band that contains the mean of the conditional means in all rounds at once, with probability at least `level`."""
        if not self.count:
            return WHOLE
        width = boundary(self.spread, (1.0 - level) / 2.0, 2.0) / self.count
        return max(self.mean - width, -1.0), min(self.mean + width, 1.0)

    def is_better(self, level: float = 0.95) -> bool:
        """Whether the whole band is above 0; the probability of ever being wrong is at most (1 - level) / 2."""
        return self.band(level)[0] > 0.0


def cut(error: float, scale: float) -> float:
    """min(error / scale, 1), both at least 0; for a scale of 0, 1 if there is an error, else 0.

    Examples
    --------
    >>> cut(1.0, 4.0), cut(math.inf, 4.0), cut(0.0, 0.0), cut(1.0, 0.0)
    (0.25, 1.0, 0.0, 1.0)
    """
    if error < scale:
        return error / scale if scale < math.inf else 0.0
    return 1.0 if error > 0.0 else 0.0


def cuts(errors: F64, scales: F64 | float) -> F64:
    """`cut` of arrays that broadcast together."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        parts = np.where(np.isinf(scales), 0.0, errors / scales)
    return np.where(errors < scales, parts, (errors > 0.0).astype(np.float64))


def running(start: float, parts: F64) -> F64:
    """The running sums start, start + parts[0], ..., shape (n + 1,), added in order."""
    return np.add.accumulate(np.concatenate(((start,), parts)))
