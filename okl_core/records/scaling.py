r"""Scaling of a vector's columns, with ranges that are fixed, or found from the rows so far and robust to outliers.

    u = (v - low) / span,   bent to a logarithm outside [-1, 2]: u becomes 2 + ln(1 + (u - 2)) above, likewise below.

When found from rows, [low, low + span] goes from the 5 % to the 95 % quantile of a column, each moved inwards to the next
value seen: among eight or more values, one absurd value moves neither. If the quantiles are equal, as in a column of zeros
with few ones, the range goes from the least to the largest value. If these are equal too, the span is unknown: v is encoded
as the sign of v - low, and the first round with another value sets the span to its distance from low. All rounds before it
have u = 0 either way.

If there are at least sixteen such columns, and half of those that vary have at least half of the largest range, all are
taken to share one unit, as pixels do: every span is the largest range. A nearly constant column is then not blown up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from okl_core.types import F64

LOW, HIGH = 0.05, 0.95
COMMON_COLUMNS = 16
BEND = 1.0
"""Distance beyond the ends of the range, in spans, up to which the scaling stays linear."""

FARTHEST = 1e6
"""Largest distance from the bend, in spans; farther values are clipped to it."""


@final
@dataclass(frozen=True, slots=True)
class Scaling:
    """Map column j from [low_j, low_j + span_j] to [0, 1]; a span of 0 is not known yet.

    With a radius r, the target is [-r / sqrt(d), r / sqrt(d)] instead, so that vectors within the ranges lie in the ball
    of this radius. With `bends`, far values are compressed to their logarithm.
    """

    low: F64
    span: F64
    bends: bool = True
    radius: float | None = None
    unknown: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The columns whose span is not known yet."""
    _divisor: F64 = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unknown", tuple(np.flatnonzero(self.span == 0.0).tolist()))
        object.__setattr__(self, "_divisor", np.where(self.span > 0.0, self.span, 1.0))

    @classmethod
    def of_ranges(cls, low: F64, high: F64, radius: float | None = None) -> Scaling:
        """A scaling with fixed ranges, low < high in every column; values outside are extrapolated linearly."""
        return cls(low, high - low, False, radius)

    @classmethod
    def found(cls, X: F64, measured: NDArray[np.bool_], hashed: NDArray[np.bool_], radius: float | None) -> Scaling:
        """A scaling found from the rows of X, shape (n, d), n at least 1.

        The masks have shape (d,). `measured` columns are numbers. `hashed` columns are sums of signed values, which are
        scaled with 0 fixed. The other columns are 0 or 1, or points on a circle, and are not scaled.
        """
        low, span = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if measured.any():
            low[measured], span[measured] = _ranges(X[:, measured])
        if hashed.any():
            sizes = np.abs(X[:, hashed])
            sizes = sizes[sizes > 0.0]
            span[hashed] = np.quantile(sizes, HIGH, method="lower") if len(sizes) else 1.0
        return cls(low, span, True, radius)

    def __call__(self, X: F64) -> F64:
        """The scaled values of X, shape (d,) or (n, d)."""
        # With a fixed range the result may overflow; the learner then refuses the input as not finite.
        with np.errstate(over="ignore"):
            unit = (X - self.low) / self._divisor
        signs = np.sign(unit[..., self.unknown]) if self.unknown else None
        if self.bends and not (unit.min(initial=0.0) >= -BEND and unit.max(initial=0.0) <= 1.0 + BEND):
            unit = _bent(unit)
        if self.radius is not None:
            unit = (2.0 * unit - 1.0) * (self.radius / math.sqrt(len(self.span)))
        if signs is not None:
            unit[..., self.unknown] = signs
        return unit

    def seen(self, v: F64) -> Scaling:
        """The scaling after a round with the unscaled vector v, shape (d,), which may set unknown spans."""
        if not self.unknown:
            return self
        with np.errstate(over="ignore"):
            first = np.abs(v - self.low)
        first = np.where(np.isfinite(first), first, 0.0)
        span = np.where(self.span > 0.0, self.span, first)
        return self if (span == self.span).all() else replace(self, span=span)

    def rows(self, V: F64) -> tuple[F64, Scaling]:
        """The rows of V, shape (n, d), each scaled with the spans set by the rows before it; and the final scaling."""
        scaling, X, start = self, np.empty_like(V), 0
        unknown = list(self.unknown)
        firsts = np.flatnonzero((V[:, unknown] != self.low[unknown]).any(axis=1)) if unknown else []
        for i in firsts:
            after = scaling.seen(V[i])
            if after is not scaling:
                X[start : i + 1], scaling, start = scaling(V[start : i + 1]), after, i + 1
        X[start:] = scaling(V[start:])
        return X, scaling

    def is_as(self, other: Scaling | None) -> bool:
        """Whether both scale alike."""
        if other is None:
            return False
        is_equal = np.array_equal(self.low, other.low) and np.array_equal(self.span, other.span)
        return is_equal and (self.bends, self.radius) == (other.bends, other.radius)


def _ranges(X: F64) -> tuple[F64, F64]:
    """Low and span of each column."""
    least, largest = X.min(axis=0), X.max(axis=0)
    low = np.quantile(X, LOW, axis=0, method="higher")
    high = np.quantile(X, HIGH, axis=0, method="lower")
    is_flat = ~(low < high)
    low, high = np.where(is_flat, least, low), np.where(is_flat, largest, high)
    # Subtract halves, so that the span stays finite if high - low overflows.
    span = np.minimum(high / 2.0 - low / 2.0, np.finfo(np.float64).max / 4.0) * 2.0
    varied = span[span > 0.0]
    if X.shape[1] >= COMMON_COLUMNS and len(varied) > 1:
        whole = np.minimum(largest / 2.0 - least / 2.0, np.finfo(np.float64).max / 4.0) * 2.0
        widest = float(whole.max())
        if 2 * int((whole >= 0.5 * widest).sum()) >= len(varied):
            span = np.full(len(span), widest)
    return low, span


def _bent(unit: F64) -> F64:
    beyond = np.maximum(unit - (1.0 + BEND), 0.0) - np.maximum(-BEND - unit, 0.0)
    inside = np.clip(unit, -BEND, 1.0 + BEND)
    return inside + np.sign(beyond) * np.log1p(np.minimum(np.abs(beyond), FARTHEST))
