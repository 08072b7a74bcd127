r"""The scale of a vector's columns: fixed, or found from the rows so far in a way that no single value can spoil.

    u = (v - low) / span,   and beyond [-1, 2] only as a logarithm: u = 2 + ln(1 + (u - 2)) above, the same below.

Found from rows, [low, low + span] is from the 5 % to the 95 % quantile of a column, each moved inwards to the next value
seen: of eight values or more one absurd value moves neither. Where these are equal, as in a column of zeros with few ones,
it is from the least to the largest value. Where these are equal too the span is not known yet: v gives the sign of v - low,
and the first round with another value fixes the span as its distance from low. All rounds before it have u = 0 either way.

Sixteen columns or more of which half have at least half of the largest range are taken to have one unit, as pixels have:
their spans are the largest one. A column that is almost constant so far is then not blown up.
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
"""How far beyond its ends the range goes on in a straight line, in spans."""

FARTHEST = 1e6
"""Spans from the bend; what is farther counts as this far."""


@final
@dataclass(frozen=True, slots=True)
class Scaling:
    """Column j from [low_j, low_j + span_j] to [0, 1]; a span of 0 is not known yet.

    With a radius r it is to [-r / sqrt(d), r / sqrt(d)]: what lies in the ranges then lies in the ball of this radius.
    `bends`: far values count by their logarithm.
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
        """Of fixed ranges, low below high in each; values outside go outside in a straight line."""
        return cls(low, high - low, False, radius)

    @classmethod
    def found(cls, X: F64, measured: NDArray[np.bool_], hashed: NDArray[np.bool_], radius: float | None) -> Scaling:
        """From the rows of X, shape (n, d), at least one.

        `measured`: the columns that are numbers; `hashed`: those that sums of signed values share, whose 0 stays; the rest
        are 0 or 1, or points of a circle, and stay as they are. Shape (d,) each.
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
        """Of shape (d,) or (n, d)."""
        # What leaves the range of floating point in a fixed range is refused by the learner, which wants finite inputs.
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
        """After a round with the unscaled vector v, shape (d,): with the spans that it fixes."""
        if not self.unknown:
            return self
        with np.errstate(over="ignore"):
            first = np.abs(v - self.low)
        first = np.where(np.isfinite(first), first, 0.0)
        span = np.where(self.span > 0.0, self.span, first)
        return self if (span == self.span).all() else replace(self, span=span)

    def rows(self, V: F64) -> tuple[F64, Scaling]:
        """The rows of V, shape (n, d), one after the other, each scaled with what those before it fixed; and what then is
        fixed."""
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
        """Does it give the same?"""
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
    # Half of the difference of the halves: what both ends overflow to stays finite.
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
