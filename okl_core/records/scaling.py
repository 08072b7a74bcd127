r"""Scaling of a vector's columns, with ranges that are fixed, or found from the rows so far and robust to outliers.

    u = (v - low) / span,   bent to a logarithm outside [-1, 2]: u becomes 2 + ln(1 + (u - 2)) above, likewise below.

When found from rows, [low, low + span] goes from the 5 % to the 95 % quantile of a column, each moved inwards to the next
value seen: among eight or more values, one absurd value moves neither. If the quantiles are equal, as in a column of zeros
with few ones, the range goes from the least to the largest value that is not absurd: more than eight times as far from the
constant as is usual, where the usual distance is the 95 % quantile, moved downwards, of the values that differ from it. If
none differs, the span is unknown: v is encoded as the sign of v - low, and the next different value sets the span to its
distance from low. All rounds before it have u = 0 either way.

Three rules mend a span that later values contradict:

1. Until sixteen values have differed from the constant of a column, it is on trial. If its span is more than eight times
   off their usual distance, low becomes the constant and the span this distance.
2. After 64 values in a row, each unlike the one before and more than 1,000 spans from low, the span is unknown again, and
   low is the constant. So noise around a constant is not taken for the range of a column, and one code for a missing
   value, however long it is sent, does not become its range. Values equal to low, and repeated far values, count neither
   way.
3. The span that was lost returns after 64 values in a row within 1,000 such spans of low, if they are among the first 256
   after the trial. So a sensor's fault of up to about 270 rounds, such as two codes in turn, becomes a column's range only
   until 64 rounds after its end; what lasts longer stays. Values equal to low count neither way.

If there are at least sixteen such columns, and half of those that vary have at least half of the largest range, all are
taken to share one unit, as pixels do: every span is the largest range. A nearly constant column is then not blown up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from okl_core.types import F64

LOW, HIGH = 0.05, 0.95
COMMON_COLUMNS = 16
BEND = 1.0
"""Distance beyond the ends of the range, in spans, up to which the scaling stays linear."""

FARTHEST = 1e6
"""Largest distance from the bend, in spans; farther values are clipped to it."""

ABSURD = 8.0
"""Factor by which a distance is off if it is not taken for a usual one; learners bear a span that is less far off."""

SETTLED = 16
"""Values differing from the constant that end a column's trial."""

FAR = 1e3
"""Distance from low, in spans, from which on values contradict the span."""

LOST = 64
"""Contradictions in a row after which the span is unknown again."""

REMEMBERED = 256
"""Values after a trial among which a lost span returns; less than a warm-up, so that a range that lasts is kept."""

LARGEST = float(np.finfo(np.float64).max)
ROWS_AT_ONCE = 64
BYTES_OF_TRIAL, BYTES_OF_NUMBER = 250, 32
"""Memory of a trial, stray or former span, and of each number in it."""


class Trial(NamedTuple):
    """The constant of a column that had few other values, and their distances from it, in order."""

    constant: float
    distances: tuple[float, ...]


class Stray(NamedTuple):
    """How many values in a row, each unlike the one before, contradicted the span of a column; and the last of them."""

    times: int
    last: float


class Former(NamedTuple):
    """The span that a column lost, how many values came since its trial, and how many in a row, up to the last, fit it."""

    span: float
    values: int = 0
    fitting: int = 0


@final
@dataclass(frozen=True, slots=True)
class Scaling:
    """Map column j from [low_j, low_j + span_j] to [0, 1]; a span of 0 is not known yet.

    With a radius r, the target is [-r / sqrt(d), r / sqrt(d)] instead, so that vectors within the ranges lie in the ball
    of this radius. With `bends`, far values are compressed to their logarithm, and spans may still change. `trials`,
    `strays` and `formers` hold, by column, what the later values of doubtful columns were.
    """

    low: F64
    span: F64
    bends: bool = True
    radius: float | None = None
    trials: Mapping[int, Trial] = field(default_factory=dict)
    strays: Mapping[int, Stray] = field(default_factory=dict)
    formers: Mapping[int, Former] = field(default_factory=dict)
    unknown: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The columns whose span is not known yet."""
    _divisor: F64 = field(init=False, compare=False, repr=False)
    _anchor: F64 = field(init=False, compare=False, repr=False)
    _limit: F64 = field(init=False, compare=False, repr=False)
    _repeated: F64 = field(init=False, compare=False, repr=False)
    """A value farther than the limit from the anchor, and not the repeated one, concerns its column; shape (d,) each."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unknown", tuple(np.flatnonzero(self.span == 0.0).tolist()))
        object.__setattr__(self, "_divisor", np.where(self.span > 0.0, self.span, 1.0))
        anchor = self.low.copy()
        with np.errstate(over="ignore"):
            limit = FAR * self.span if self.bends else np.full(len(self.span), np.inf)
        for j, trial in self.trials.items():
            anchor[j] = trial.constant
        limit[[*self.trials, *self.strays, *self.formers]] = 0.0
        repeated = np.full(len(self.span), np.nan)
        for j, stray in self.strays.items():
            # A trial counts every value. Otherwise a column that stays at one far value would cost a copy a round.
            repeated[j] = np.nan if j in self.trials else stray.last
        object.__setattr__(self, "_anchor", anchor)
        object.__setattr__(self, "_limit", limit)
        object.__setattr__(self, "_repeated", repeated)

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
        low, span, trials = np.zeros(X.shape[1]), np.ones(X.shape[1]), {}
        if measured.any():
            low[measured], span[measured], found = _ranges(X[:, measured])
            places = np.flatnonzero(measured).tolist()
            trials = {places[j]: trial for j, trial in found.items()}
        if hashed.any():
            sizes = np.abs(X[:, hashed])
            sizes = sizes[sizes > 0.0]
            span[hashed] = np.quantile(sizes, HIGH, method="lower") if len(sizes) else 1.0
        return cls(low, span, True, radius, trials)

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
        """The scaling after a round with the unscaled vector v, shape (d,), which may set or contradict spans."""
        concerned = self._concerns(v)
        if not np.count_nonzero(concerned):  # as in most rounds; `any` takes ten times as long
            return self
        low, span = self.low.copy(), self.span.copy()
        trials, strays, formers = dict(self.trials), dict(self.strays), dict(self.formers)
        for j in np.flatnonzero(concerned).tolist():
            value = v.item(j)
            if span[j] == 0.0 or j in trials:
                low[j], span[j], trial = _tried(value, low.item(j), span.item(j), trials.pop(j, None))
                if trial is not None:
                    trials[j] = trial
                continue
            stray = _strayed(value, low.item(j), span.item(j), strays.pop(j, None))
            former = _fitted(value, low.item(j), formers.pop(j, None))
            if former is not None and former.fitting == LOST:
                span[j] = former.span
            elif stray is not None and stray.times == LOST:
                span[j], formers[j] = 0.0, Former(span.item(j))
            else:
                if stray is not None:
                    strays[j] = stray
                if former is not None and former.values < REMEMBERED:
                    formers[j] = former
        return replace(self, low=low, span=span, trials=trials, strays=strays, formers=formers)

    def rows(self, V: F64) -> tuple[F64, Scaling]:
        """The rows of V, shape (n, d), each scaled with the spans set by the rows before it; and the final scaling."""
        scaling, X, start, i = self, np.empty_like(V), 0, 0
        while i < len(V):
            concerned = scaling._concerns(V[i : i + ROWS_AT_ONCE]).any(axis=1)
            if not concerned.any():
                i += ROWS_AT_ONCE
                continue
            i += int(concerned.argmax())
            after = scaling.seen(V[i])
            i += 1
            if not after.maps_alike(scaling):
                X[start:i], start = scaling(V[start:i]), i
            scaling = after
        X[start:] = scaling(V[start:])
        return X, scaling

    def first_rows(self, V: F64) -> tuple[F64, Scaling]:
        """As `rows`, for the rows that the scaling was found from: the columns on trial already know their values."""
        X, after = replace(self, trials={}).rows(V)
        return X, replace(after, trials={**after.trials, **self.trials})

    def _concerns(self, V: F64) -> NDArray[np.bool_]:
        """Whether each value of V, shape (d,) or (n, d), concerns the span of its column."""
        with np.errstate(over="ignore"):
            concerned = np.abs(V - self._anchor) > self._limit
        return concerned & (self._repeated != V) if self.strays else concerned

    @property
    def nbytes(self) -> int:
        trials = sum(BYTES_OF_TRIAL + BYTES_OF_NUMBER * len(trial.distances) for trial in self.trials.values())
        return 6 * self.low.nbytes + trials + BYTES_OF_TRIAL * (len(self.strays) + len(self.formers))

    def maps_alike(self, other: Scaling | None) -> bool:
        """Whether both scale alike."""
        if other is None:
            return False
        is_equal = np.array_equal(self.low, other.low) and np.array_equal(self.span, other.span)
        return is_equal and (self.bends, self.radius) == (other.bends, other.radius)


def _usual(distances: Sequence[float]) -> float:
    """The usual one of n distances, n at least 1; the largest of two or more never is."""
    # For so few, `np.quantile` takes sixty times as long.
    return sorted(distances)[int(HIGH * (len(distances) - 1))]


def _distance(value: float, other: float) -> float:
    return min(abs(value - other), LARGEST)


def _tried(value: float, low: float, span: float, trial: Trial | None) -> tuple[float, float, Trial | None]:
    """Low, span and trial of a column on trial, or of unknown span, after another value; no trial once it is over."""
    constant, distances = trial or Trial(low, ())
    distances = (*distances, _distance(value, constant))
    usual = _usual(distances)
    if not usual / ABSURD <= span <= 2.0 * ABSURD * usual:
        low, span = constant, usual
    return low, span, Trial(constant, distances) if len(distances) < SETTLED else None


def _strayed(value: float, low: float, span: float, stray: Stray | None) -> Stray | None:
    """The contradictions in a row after a value other than low and the last of them; None if it is none."""
    if not abs(value - low) > FAR * span:
        return None
    return Stray(1 if stray is None else stray.times + 1, value)


def _fitted(value: float, low: float, former: Former | None) -> Former | None:
    """The former span, if there is one, after a value other than low."""
    if former is None:
        return None
    fits = abs(value - low) <= FAR * former.span
    return Former(former.span, former.values + 1, former.fitting + 1 if fits else 0)


def _ranges(X: F64) -> tuple[F64, F64, dict[int, Trial]]:
    """Low and span of each column, and the columns on trial."""
    low = np.quantile(X, LOW, axis=0, method="higher")
    high = np.quantile(X, HIGH, axis=0, method="lower")
    usual, trials, is_flat = _spans(low, np.maximum(low, high)), {}, ~(low < high)
    for j in np.flatnonzero(is_flat).tolist():
        constant = low.item(j)
        distances = [_distance(value, constant) for value in X[:, j].tolist() if value != constant]
        usual[j] = _usual(distances) if distances else 0.0
        if 0 < len(distances) < SETTLED:
            trials[j] = Trial(constant, tuple(distances))
    least, largest = _extremes(X, low, usual, ABSURD)
    first = np.where(is_flat, least, low)
    span = _spans(first, np.where(is_flat, largest, high))
    varied = span[span > 0.0]
    if X.shape[1] >= COMMON_COLUMNS and len(varied) > 1:
        whole = _spans(*_extremes(X, low, usual, FAR))
        widest = float(whole.max())
        if 2 * int((whole >= 0.5 * widest).sum()) >= len(varied):
            span, trials = np.full(len(span), widest), {}
    return first, span, trials


def _extremes(X: F64, middle: F64, usual: F64, factor: float) -> tuple[F64, F64]:
    """Least and largest value of each column, of those at most so many times as far from its middle as is usual."""
    with np.errstate(over="ignore"):
        kept = np.where(np.abs(X - middle) <= factor * usual, X, middle)
    return kept.min(axis=0), kept.max(axis=0)


def _spans(low: F64, high: F64) -> F64:
    # Subtract halves, so that the span stays finite if high - low overflows.
    return np.minimum(high / 2.0 - low / 2.0, LARGEST / 4.0) * 2.0


def _bent(unit: F64) -> F64:
    beyond = np.maximum(unit - (1.0 + BEND), 0.0) - np.maximum(-BEND - unit, 0.0)
    inside = np.clip(unit, -BEND, 1.0 + BEND)
    return inside + np.sign(beyond) * np.log1p(np.minimum(np.abs(beyond), FARTHEST))
