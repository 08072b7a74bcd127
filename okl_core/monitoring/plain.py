"""The trivial forecasters, which run beside a session as baselines: they use past truths only, and cost almost nothing.

They are lightweight forms of the learners `majority` (for any number of classes), `mean` and `last-label`. Each pair
consists of a forecaster that summarises all past truths, and one that repeats the last truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import LabelError, NonFiniteError, StateFormatError
from okl_core.types import F64, MAX_CLASSES, StatePart

CLASS_NAMES, NUMBER_NAMES = ("majority", "last-label"), ("mean", "last-label")
"""Names of the two forecasters, for classes and for numbers."""

TABLE = 1 << 16
"""Limit on rounds times classes that are processed together."""

PlainValues = tuple[float, float]
"""The two trivial forecasts of one round: classes, or numbers."""


class PlainForecast(NamedTuple):
    """A class with its probability, or a number without a probability."""

    value: float
    probability: float | None = None


class PlainRows(NamedTuple):
    """The forecasts before each of n truths: values, shape (n, 2), and for classes their probabilities, shape (n, 2)."""

    values: F64
    probabilities: F64 | None


@final
@dataclass(slots=True)
class PlainClasses(StatePart):
    """Forecasts the most frequent class so far, the lowest on ties, and the last class; both are 0 at first.

    K is the number of classes, and grows with a truth of K or more. `counts` has shape (K,).

    Examples
    --------
    >>> plain = PlainClasses.of(2)
    >>> for truth in (1, 1, 0):
    ...     plain.learn(truth)
    >>> plain.issued(), [forecast.probability for forecast in plain.forecasts()]
    ((1.0, 0.0), [0.6, 0.4])
    """

    rounds: int = 0
    top: int = 0
    last: int = 0
    repeats: int = 0
    counts: F64 = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Raise StateFormatError for a state that no truths can lead to."""
        n = self.counts
        if n.ndim != 1 or len(n) > MAX_CLASSES or not (np.isfinite(n) & (n >= 0.0) & (n == np.floor(n))).all():
            raise StateFormatError(f"counts of shape {n.shape}: at most {MAX_CLASSES}, whole and not negative")
        known = max(len(n), 1)
        if n.sum() != self.rounds or not 0 <= self.last < known or not 0 <= self.repeats <= max(self.rounds - 1, 0):
            raise StateFormatError(
                f"{self.rounds} truths, {self.repeats} repeats and a last one of {self.last} are impossible"
            )
        if self.top != (int(n.argmax()) if len(n) else 0):
            raise StateFormatError(f"{self.top} is not the most frequent class")

    @classmethod
    def of(cls, classes: int = 0) -> PlainClasses:
        """The state before the first truth, with this number of classes known."""
        return cls(counts=np.zeros(classes))

    def issued(self) -> PlainValues:
        """The two classes."""
        return float(self.top), float(self.last)

    def forecasts(self) -> tuple[PlainForecast, PlainForecast]:
        """The two classes with their probabilities.

        These are (n_k + 1) / (t + K) for the majority class, and (r + 1) / (t + 2) for the last class, where r counts the
        truths that repeated the one before them. The other classes share the rest evenly.
        """
        known = len(self.counts)
        top = (self.counts.item(self.top) + 1.0) / (self.rounds + known) if known else 1.0
        return PlainForecast(self.top, top), PlainForecast(self.last, (self.repeats + 1.0) / (self.rounds + 2.0))

    def learn(self, truth: float) -> None:
        """Learn one truth, a whole number from 0 to 999. Raises LabelError; the state is then unchanged."""
        if not (0 <= truth < MAX_CLASSES and truth == int(truth)):
            raise LabelError(f"y is {truth}; a class is one of 0 to {MAX_CLASSES - 1}", "y")
        k = int(truth)
        if k >= len(self.counts):
            self.counts = np.concatenate((self.counts, np.zeros(k + 1 - len(self.counts))))
        self.counts[k] += 1.0
        count, best = self.counts.item(k), self.counts.item(self.top)
        if count > best or (count == best and k < self.top):
            self.top = k
        self.repeats += int(self.rounds > 0 and k == self.last)
        self.rounds += 1
        self.last = k

    def run(self, truths: F64) -> PlainRows:
        """Learn truths in order, shape (n,), and return the forecasts before each; equals `forecasts` and `learn` of each.

        Raises LabelError; the state is then unchanged.
        """
        ends = truths.min(initial=0.0), truths.max(initial=0.0)
        if not (ends[0] >= 0.0 and ends[1] < MAX_CLASSES and (truths == np.floor(truths)).all()):
            raise LabelError(f"a class is one of 0 to {MAX_CLASSES - 1}", "y")
        known, size = max(len(self.counts), int(ends[1]) + 1), len(truths)
        step = max(1, TABLE // known)
        parts = [self._run(truths[start : start + step].astype(np.intp)) for start in range(0, size, step)]
        rows = np.concatenate([np.zeros((0, 4)), *parts])
        return PlainRows(rows[:, :2], rows[:, 2:])

    def _run(self, classes: NDArray[np.intp]) -> F64:
        """Learn a slice of classes; the values and probabilities before each, shape (n, 4)."""
        n, size = len(classes), len(self.counts)
        # The number of known classes and the count of each, before each round and after the last.
        known = np.maximum.accumulate(np.concatenate(((size,), classes + 1)))
        counts = np.zeros((n + 1, known[-1]))
        counts[0, :size] = self.counts
        counts[np.arange(1, n + 1), classes] = 1.0
        np.add.accumulate(counts, out=counts)
        top = counts.argmax(axis=1)
        last = np.concatenate(((self.last,), classes))
        repeats = np.concatenate(((self.repeats,), classes == last[:-1]))
        repeats[1] &= self.rounds > 0
        repeats = np.add.accumulate(repeats)
        rounds = np.arange(self.rounds, self.rounds + n + 1)
        sure = (counts[np.arange(n + 1), top] + 1.0) / np.maximum(rounds + known, 1)
        rows = np.column_stack((top, last, np.where(known > 0, sure, 1.0), (repeats + 1.0) / (rounds + 2.0)))
        self.counts, self.rounds = counts[-1], self.rounds + n
        self.top, self.last, self.repeats = int(top[-1]), int(last[-1]), int(repeats[-1])
        return rows[:-1]


@final
@dataclass(slots=True)
class PlainNumbers(StatePart):
    """Forecasts the mean of the truths so far, and the last truth; both are 0 at first.

    Examples
    --------
    >>> plain = PlainNumbers()
    >>> plain.run(np.array([1.0, 2.0, 6.0])).values.tolist(), plain.issued()
    ([[0.0, 0.0], [1.0, 1.0], [1.5, 2.0]], (3.0, 6.0))
    """

    rounds: int = 0
    mean: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        """Raise StateFormatError for a state that no truths can lead to."""
        if self.rounds < 0 or not (math.isfinite(self.mean) and math.isfinite(self.last)):
            raise StateFormatError(f"{self.rounds} truths of mean {self.mean}, the last {self.last}, are impossible")

    def issued(self) -> PlainValues:
        """The two numbers."""
        return self.mean, self.last

    def forecasts(self) -> tuple[PlainForecast, PlainForecast]:
        """The two numbers as forecasts, which have no probability."""
        return PlainForecast(self.mean), PlainForecast(self.last)

    def learn(self, truth: float) -> None:
        """Learn one truth. Raises NonFiniteError; the state is then unchanged."""
        if not math.isfinite(truth):
            raise NonFiniteError(f"y is {truth}; it must be finite", "y")
        truth = float(truth)
        self.rounds += 1
        # Divide before subtracting: the difference of two finite numbers may overflow.
        self.mean += truth / self.rounds - self.mean / self.rounds
        self.last = truth

    def run(self, truths: F64) -> PlainRows:
        """Learn truths in order, shape (n,), and return the forecasts before each; equals `forecasts` and `learn` of each.

        Raises NonFiniteError; the state is then unchanged.
        """
        if not np.isfinite(truths).all():
            raise NonFiniteError("a truth is not a finite number", "y")
        values = np.empty((len(truths), 2))
        values[1:, 1] = truths[:-1]
        values[:1, 1] = self.last
        mean = self.mean
        for i, truth in enumerate(truths.tolist()):
            values[i, 0] = mean
            rounds = self.rounds + i + 1
            mean += truth / rounds - mean / rounds
        self.mean = mean
        self.rounds += len(truths)
        self.last = float(truths[-1]) if len(truths) else self.last
        return PlainRows(values, None)


Plain = PlainClasses | PlainNumbers
