"""From what a client sends to what a learner takes: named features to a vector, the session's labels to +-1 or classes, its
units to the learner's range, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from okl_core.types import F64, REALS, Forecast, Interval, Target
from service.errors import InvalidInput, WrongDimension, WrongFeatures, WrongTruth, WrongType
from service.schemas import Feature

Scalar = bool | str | float | int

LABELS_TOLD = 10
"""An error names so many of a session's labels, and the last one."""


def invalid(pointer: str, detail: str, kind: type[InvalidInput] = InvalidInput) -> InvalidInput:
    """The error of one wrong place in a request."""
    return kind(f"{pointer}: {detail}", errors=[{"pointer": pointer, "detail": detail}])


@dataclass(frozen=True, slots=True)
class Layout:
    """How an input becomes a vector: named features, or a plain list of `dim` numbers."""

    dim: int
    features: tuple[Feature, ...] | None = None

    @classmethod
    def of_features(cls, features: Sequence[Feature]) -> Layout:
        return cls(sum(feature.width for feature in features), tuple(features))

    @classmethod
    def infer(cls, x: list[float] | dict[str, Scalar]) -> Layout:
        """The layout that fits the first input of a session that declared none. Names are taken in sorted order."""
        if isinstance(x, list):
            return cls(len(x))
        features = []
        for name in sorted(x):
            if isinstance(x[name], str):
                raise invalid(
                    pointer(name),
                    "a string needs a category that the session's `schema` declares when it is created",
                    WrongFeatures,
                )
            features.append(Feature(name=name, type="boolean" if isinstance(x[name], bool) else "number"))
        return cls.of_features(features)

    def vector(self, x: list[float] | dict[str, Scalar]) -> F64:
        """The input as a vector of shape (dim,). Raises InvalidInput."""
        if isinstance(x, list):
            if self.features is not None:
                names = ", ".join(feature.name for feature in self.features)
                raise invalid("/x", f"this session takes an object with the features {names}", WrongFeatures)
            if len(x) != self.dim:
                raise invalid("/x", f"has {len(x)} numbers; this session takes {self.dim}", WrongDimension)
            return np.array(x, dtype=np.float64)
        if self.features is None:
            raise invalid("/x", f"this session takes a list of {self.dim} numbers", WrongFeatures)
        return self._vector_of_features(x, self.features)

    def _vector_of_features(self, x: dict[str, Scalar], features: tuple[Feature, ...]) -> F64:
        values: list[float] = []
        for feature in features:
            if feature.name not in x:
                raise invalid(pointer(feature.name), "is missing", WrongFeatures)
            values.extend(_encode(feature, x[feature.name]))
        if len(x) > len(features):
            known = {feature.name for feature in features}
            extra = next(name for name in x if name not in known)
            raise invalid(pointer(extra), "is not a feature of this session", WrongFeatures)
        return np.array(values)


def pointer(name: str) -> str:
    """JSON pointer (RFC 6901) to a feature of x."""
    return "/x/" + name.replace("~", "~0").replace("/", "~1")


def _encode(feature: Feature, value: Scalar) -> list[float]:
    if feature.type == "category":
        if not isinstance(value, str) or value not in feature.categories:
            known = ", ".join(feature.categories)
            raise invalid(pointer(feature.name), f"is {value!r}; the categories are {known}", WrongFeatures)
        return [1.0 if value == category else 0.0 for category in feature.categories]
    if isinstance(value, bool) != (feature.type == "boolean") or isinstance(value, str):
        raise invalid(pointer(feature.name), f"is {value!r}; this feature is a {feature.type}", WrongType)
    return [float(value)]


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


@dataclass(frozen=True, slots=True)
class Truths:
    """The session's truths in its own words, and the learner's.

    A classifier's labels are -1 and +1 to the learner, those of K classes 0 to K - 1. A regressor's range [low, high] is
    that of the truths the learner takes, or [-1, 1] for a learner that takes any number.
    """

    target: Target
    labels: tuple[Scalar, ...] | None
    y_range: tuple[float, float] | None
    taken: Interval
    names: tuple[Scalar, ...] = field(init=False)
    """A classifier's labels, whether the session declared them or not."""
    _places: dict[tuple[bool, Scalar], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = self.labels or ()
        if self.labels is None and self.target == "class":
            names = tuple(range(int(self.taken[1]) + 1))
        elif self.labels is None and self.target == "binary":
            names = (-1, 1)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_places", {(isinstance(name, bool), name): i for i, name in enumerate(names)})

    @property
    def is_classifier(self) -> bool:
        return bool(self.names)

    @property
    def classes(self) -> int:
        """How many classes the learner tells apart; 0 for one that takes signs or numbers."""
        return len(self.names) if self.target == "class" else 0

    @property
    def unit(self) -> float:
        """Size of the learner's unit in the units of the session."""
        if self.y_range is None:
            return 1.0
        start, end = self._ends
        return (self.y_range[1] - self.y_range[0]) / (end - start)

    @property
    def _ends(self) -> Interval:
        """What the ends of `y_range` are to the learner."""
        return (-1.0, 1.0) if self.taken == REALS else self.taken

    def to_learner(self, y: Scalar) -> float:
        """Raises InvalidInput for a truth that this session does not take."""
        if self.is_classifier:
            place = self._place(y)
            return float(place) if self.classes else 2.0 * place - 1.0
        if isinstance(y, bool | str):
            raise invalid("/y", f"is {y!r}; this session takes a number", WrongType)
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
        start, end = self._ends
        return min(start + (y - low) / (high - low) * (end - start), end)

    def _place(self, y: Scalar) -> int:
        """Which of the labels it is."""
        place = self._places.get((isinstance(y, bool), y))
        if place is None:
            *told, last = map(repr, self.names)
            listed = ", ".join(told if len(told) < LABELS_TOLD else [*told[:LABELS_TOLD], "..."])
            raise invalid("/y", f"is {y!r}; the labels of this session are {listed} and {last}", WrongTruth)
        return place

    def from_learner(self, value: float) -> float:
        """A regressor's value in the units of the session."""
        if self.y_range is None:
            return value
        low, high = self.y_range
        start, end = self._ends
        return low + (value - start) / (end - start) * (high - low)

    def label(self, value: float) -> Scalar:
        """The label of a score."""
        return self.names[1 if value >= 0.0 else 0]

    def answer(self, forecast: Forecast) -> dict[str, Any]:
        """What a client is told of a forecast."""
        if not self.is_classifier:
            return {"value": self.from_learner(forecast.value)}
        if forecast.probabilities is not None:
            return {"label": self.names[forecast.label], "probabilities": list(forecast.probabilities)}
        told: dict[str, Any] = {"score": forecast.value, "label": self.label(forecast.value)}
        if forecast.probability is not None:
            told["probability"] = forecast.probability
        return told
