"""A session's truths and forecasts, in its own labels or units and in the learner's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import numpy as np
from pydantic_core import to_json

from okl.errors import WrongTruth, WrongType
from okl_core.records.record import to_list
from okl_core.types import F64, REALS, Forecast, Interval, Target

from ..pointers import invalid
from .definition import Scalar
from .inputs import listed, shown

N = TypeVar("N", float, F64)

EXACT: Final = 2**53
"""Below it every integer is a float of its own."""


def as_label(value: Scalar) -> Scalar:
    """The value as a label: an integer for a whole float, so that a label 1 is answered as 1, not 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value


class Answer(NamedTuple):
    """A forecast in the session's terms.

    - A classifier of two labels gives `score`, `label` and, if the learner gives one, the `probability` of the second label.
    - A learner of classes gives `label` and `probabilities`, in the order of the labels; with two labels `probability` too.
    - A regressor gives `value`.
    - With intervals there are `low` and `high`, None for an open end, or the set of `labels`.

    All are None until the first truth decides between these.
    """

    value: float | None = None
    score: float | None = None
    label: Scalar | None = None
    probability: float | None = None
    probabilities: tuple[float, ...] | None = None
    low: float | None = None
    high: float | None = None
    labels: tuple[Scalar, ...] | None = None


@dataclass(frozen=True)
class Truths:
    """The mapping between the session's truths and the learner's.

    Two labels are -1 and +1 to the learner, K classes 0 to K - 1. A regressor's `y_range` is mapped to the interval of truths
    that the learner takes, or to [-1, 1] for a learner that takes any number.
    """

    target: Target
    labels: tuple[Scalar, ...] | None
    y_range: tuple[float, float] | None
    taken: Interval
    names: tuple[Scalar, ...] = field(init=False)
    """A classifier's labels, whether the session declared them or not."""
    _indices: tuple[dict[Scalar, int], dict[Scalar, int]] = field(init=False, repr=False)
    """The index of each label: one dictionary for non-bools, one for bools, since True equals 1."""
    _ordered: tuple[F64, F64] | None = field(init=False, repr=False, compare=False)
    """Labels that are all numbers, in increasing order, and their indices."""

    def __post_init__(self) -> None:
        names = self.labels or ()
        if self.labels is None and self.target == "class":
            names = tuple(range(int(self.taken[1]) + 1))
        elif self.labels is None and self.target == "binary":
            names = (-1, 1)
        object.__setattr__(self, "names", names)
        indices: tuple[dict[Scalar, int], dict[Scalar, int]] = ({}, {})
        for i, name in enumerate(names):
            indices[isinstance(name, bool)][name] = i
        object.__setattr__(self, "_indices", indices)
        numbers = [name for name in names if isinstance(name, int | float) and not isinstance(name, bool)]
        ordered = None
        if names and len(numbers) == len(names) and max(map(abs, numbers)) < EXACT:
            order = np.argsort(numbers)
            ordered = np.array(numbers, dtype=np.float64)[order], order.astype(np.float64)
        object.__setattr__(self, "_ordered", ordered)

    @property
    def is_classifier(self) -> bool:
        return self.labels is not None or bool(self.names)

    @cached_property
    def label_bytes(self) -> tuple[int, int]:
        """The bytes as JSON of the longest label, and of all labels."""
        sizes = [len(to_json(name)) + 1 for name in self.names]
        return max(sizes, default=0), sum(sizes)

    @property
    def has_classes(self) -> bool:
        """Whether the learner predicts classes, not signs or numbers."""
        return self.target == "class"

    @property
    def unit(self) -> float:
        """The size of the learner's unit in the session's units."""
        if self.y_range is None:
            return 1.0
        start, end = self.ends
        return (self.y_range[1] - self.y_range[0]) / (end - start)

    @property
    def ends(self) -> Interval:
        """The ends of `y_range` in the learner's terms."""
        return (-1.0, 1.0) if self.taken == REALS else self.taken

    def to_learner(self, y: Scalar) -> float:
        """The truth in the learner's terms. Raises InvalidInput for one that this session does not take."""
        if self.is_classifier:
            index = self._known_index(y)
            return float(index) if self.has_classes else 2.0 * index - 1.0
        if isinstance(y, bool | str):
            raise invalid("/y", f"is {shown(y)}; this session takes a number", WrongType)
        if self.y_range is None:
            if not self.taken[0] <= y <= self.taken[1]:
                raise invalid(
                    "/y",
                    f"is {y}; this learner takes truths from {self.taken[0]} to {self.taken[1]}: create the session with a "
                    "`y_range`, or widen the learner's `clip` or `truth_range`",
                    WrongTruth,
                )
            return float(y)
        low, high = self.y_range
        if not low <= y <= high:
            raise invalid("/y", f"is {y}; this session's `y_range` is [{low}, {high}]", WrongTruth)
        start, end = self.ends
        return min(start + (y - low) / (high - low) * (end - start), end)

    def to_learner_rows(self, ys: Sequence[Scalar] | F64) -> F64 | None:
        """As `to_learner`, for n truths, shape (n,); None if it would refuse any, or one is of an unusual type."""
        y = _numbers(ys)
        if self.is_classifier:
            classes = self._classes(ys, y)
            return classes if classes is None or self.has_classes else 2.0 * classes - 1.0
        if y is None:
            return None
        low, high = self.taken if self.y_range is None else self.y_range
        if not ((y >= low) & (y <= high)).all():
            return None
        if self.y_range is None:
            return y
        start, end = self.ends
        return np.minimum(start + (y - low) / (high - low) * (end - start), end)

    def _classes(self, ys: Sequence[Scalar] | F64, numbers: F64 | None) -> F64 | None:
        """The indices of n labels; `numbers` are these labels if they are numbers."""
        if numbers is not None and self._ordered is not None:
            labels, indices = self._ordered
            at = np.minimum(np.searchsorted(labels, numbers), len(labels) - 1)
            return indices[at] if (labels[at] == numbers).all() else None
        named: Sequence[Scalar] = to_list(ys)
        # Checking each label for a bool takes four times as long.
        has_bools = bool in set(map(type, named))
        found = [self.index_of(y) for y in named] if has_bools else list(map(self._indices[False].get, named))
        return None if None in found else np.array(found, dtype=np.float64)

    def index_of(self, y: Scalar) -> int | None:
        """The index of a label; None for another value."""
        return self._indices[isinstance(y, bool)].get(y)

    def _known_index(self, y: Scalar) -> int:
        index = self.index_of(y)
        if index is None:
            names = listed([shown(name) for name in self.names])
            raise invalid("/y", f"is {shown(as_label(y))}; the labels of this session are {names}", WrongTruth)
        return index

    def from_truth(self, y: float) -> Scalar:
        """A truth in the learner's terms as the client sent it; a number only up to rounding."""
        if self.is_classifier:
            return self.names[int(y) if self.has_classes else int(y > 0.0)]
        number = self.from_learner(y)
        return number if self.y_range is None else min(max(number, self.y_range[0]), self.y_range[1])

    def from_learner(self, value: N) -> N:
        """A regressor's value, or an array of them, in the session's units."""
        if self.y_range is None:
            return value
        low, high = self.y_range
        start, end = self.ends
        return low + (value - start) / (end - start) * (high - low)

    def label(self, value: float) -> Scalar:
        """The label of a score."""
        return self.names[1 if value >= 0.0 else 0]

    def answer(self, forecast: Forecast) -> Answer:
        """The forecast in the session's labels or units."""
        if not self.is_classifier:
            return Answer(value=self.from_learner(forecast.value))
        if forecast.probabilities is not None:
            probabilities = forecast.probabilities
            second = probabilities[1] if len(probabilities) == 2 else None
            return Answer(label=self.names[forecast.label], probability=second, probabilities=probabilities)
        return Answer(score=forecast.value, label=self.label(forecast.value), probability=forecast.probability)


def _numbers(ys: Sequence[Scalar] | F64) -> F64 | None:
    if isinstance(ys, np.ndarray):
        return ys
    try:
        return np.array(ys, dtype=np.float64) if set(map(type, ys)) <= {int, float} else None
    except OverflowError:
        return None
