"""From what a client sends to what a learner takes: named features to a vector, the session's labels and units to +-1 and
the learner's range, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from okl_core.types import F64, Forecast, Target
from service.errors import InvalidInput, WrongDimension, WrongFeatures, WrongTruth, WrongType
from service.schemas import Feature

Scalar = bool | str | float | int


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
    """Each input from [low, high] to [0, 1]; an input with low = high goes to x - low."""

    low: F64
    high: F64

    @classmethod
    def of(cls, X: F64) -> Scaling:
        """The ranges of the rows of X, shape (n, d)."""
        return cls(X.min(axis=0), X.max(axis=0))

    def __call__(self, X: F64) -> F64:
        """Of shape (d,) or (n, d)."""
        span = self.high - self.low
        # What leaves the range of floating point here is refused by the learner, which wants finite inputs.
        with np.errstate(over="ignore"):
            return (X - self.low) / np.where(span > 0.0, span, 1.0)


@dataclass(frozen=True, slots=True)
class Truths:
    """The session's truths in its own words, and the learner's.

    A classifier's labels are -1 and +1 to the learner. A regressor's range [low, high] is the learner's
    [-largest, largest], or [-1, 1] for a learner that takes any number.
    """

    target: Target
    labels: tuple[Scalar, Scalar] | None
    y_range: tuple[float, float] | None
    largest: float

    @property
    def is_classifier(self) -> bool:
        return self.labels is not None or self.target == "binary"

    @property
    def unit(self) -> float:
        """Size of the learner's unit in the units of the session."""
        if self.y_range is None:
            return 1.0
        return (self.y_range[1] - self.y_range[0]) / (2.0 * self._half)

    @property
    def _half(self) -> float:
        return self.largest if math.isfinite(self.largest) else 1.0

    def to_learner(self, y: Scalar) -> float:
        """Raises InvalidInput for a truth that this session does not take."""
        if self.is_classifier:
            return self._sign(y)
        if isinstance(y, bool | str):
            raise invalid("/y", f"is {y!r}; this session takes a number", WrongType)
        if self.y_range is None:
            if abs(y) > self.largest:
                raise invalid(
                    "/y",
                    f"is {y}; this learner takes |y| <= {self.largest}: create the session with a `y_range`, "
                    "or raise the learner's `clip`",
                    WrongTruth,
                )
            return float(y)
        low, high = self.y_range
        if not low <= y <= high:
            raise invalid("/y", f"is {y}; this session's `y_range` is [{low}, {high}]", WrongTruth)
        return ((y - low) / (high - low) * 2.0 - 1.0) * self._half

    def _sign(self, y: Scalar) -> float:
        labels = self.labels or (-1, 1)
        for label, sign in zip(labels, (-1.0, 1.0), strict=True):
            if y == label and isinstance(y, bool) == isinstance(label, bool):
                return sign
        told = f"is {y!r}; the labels of this session are {labels[0]!r} and {labels[1]!r}"
        raise invalid("/y", told, WrongTruth)

    def from_learner(self, value: float) -> float:
        """A regressor's value in the units of the session."""
        if self.y_range is None:
            return value
        low, high = self.y_range
        return low + (value / self._half + 1.0) * 0.5 * (high - low)

    def label(self, value: float) -> Scalar:
        """The label of a score."""
        return (self.labels or (-1, 1))[1 if value >= 0.0 else 0]

    def answer(self, forecast: Forecast) -> dict[str, Any]:
        """What a client is told of a forecast."""
        if not self.is_classifier:
            return {"value": self.from_learner(forecast.value)}
        told: dict[str, Any] = {"score": forecast.value, "label": self.label(forecast.value)}
        if forecast.probability is not None:
            told["probability"] = forecast.probability
        return told
