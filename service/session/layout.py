"""From an input as a client sends it to the vector that a learner takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.types import F64
from service.errors import InvalidInput, WrongDimension, WrongFeatures, WrongType
from service.session.definition import Definition, Feature, Input, Scalar

NAMES_TOLD = 10
"""An error names so many of a session's features, labels or categories, and the last one."""


def invalid(pointer: str, detail: str, kind: type[InvalidInput] = InvalidInput) -> InvalidInput:
    """The error of one wrong place in a request."""
    return kind(f"{pointer}: {detail}", errors=[{"pointer": pointer, "detail": detail}])


def listed(names: Sequence[object]) -> str:
    """The names in a sentence, those in the middle left out where there are many."""
    told = [str(name) for name in names]
    return ", ".join(told if len(told) <= NAMES_TOLD else [*told[: NAMES_TOLD - 1], "...", told[-1]])


@dataclass(frozen=True, slots=True)
class Layout:
    """How an input becomes a vector: named features, or a plain list of `dim` numbers."""

    dim: int
    features: tuple[Feature, ...] | None = None

    @classmethod
    def declared(cls, definition: Definition) -> Layout | None:
        """The layout that a session declares; None where the first round decides."""
        if definition.features is not None:
            return cls.of_features(definition.features)
        return None if definition.dim is None else cls(definition.dim)

    @classmethod
    def of_features(cls, features: Sequence[Feature]) -> Layout:
        return cls(sum(feature.width for feature in features), tuple(features))

    @classmethod
    def infer(cls, x: Input) -> Layout:
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

    def encode(self) -> bytes:
        """The layout as JSON."""
        features = self.features and [[one.name, one.type, one.categories] for one in self.features]
        return json.dumps({"dim": self.dim, "features": features}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, document: bytes) -> Layout:
        """Raises StateFormatError."""
        try:
            found = json.loads(document)
            if found["features"] is None:
                return cls(found["dim"])
            return cls.of_features([Feature(name, kind, tuple(several)) for name, kind, several in found["features"]])
        except (ValueError, KeyError, TypeError) as error:
            raise StateFormatError(f"the layout of the inputs cannot be read: {error}") from error

    def vector(self, x: Input) -> F64:
        """The input as a vector of shape (dim,). Raises InvalidInput."""
        if isinstance(x, list):
            if self.features is not None:
                names = listed([feature.name for feature in self.features])
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
            known = listed(feature.categories)
            raise invalid(pointer(feature.name), f"is {value!r}; the categories are {known}", WrongFeatures)
        return [1.0 if value == category else 0.0 for category in feature.categories]
    if isinstance(value, bool) != (feature.type == "boolean") or isinstance(value, str):
        raise invalid(pointer(feature.name), f"is {value!r}; this feature is a {feature.type}", WrongType)
    return [float(value)]
