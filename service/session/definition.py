"""What a client decides when it makes a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from okl_core import LearnerSpec

Scalar = bool | str | int | float
Input = list[float] | dict[str, Scalar]
"""An input as a client sends it: a list of numbers, or named features."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One named input. A boolean counts 0 or 1; a category is one input per value, 1 where it is the value."""

    name: str
    type: Literal["number", "boolean", "category"] = "number"
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        return len(self.categories) or 1


@dataclass(frozen=True, slots=True)
class Ranges:
    """The interval of each input that is mapped to the learner's."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Scale = Literal["none", "warmup"] | Ranges


@dataclass(frozen=True, slots=True)
class Definition:
    """A session as it was asked for. `dim` and `features` are None where the first round decides."""

    name: str
    learner: LearnerSpec
    dim: int | None = None
    features: tuple[Feature, ...] | None = None
    labels: tuple[Scalar, ...] | None = None
    y_range: tuple[float, float] | None = None
    scale: Scale = "none"
    warmup_rounds: int = 100
    snapshot_every: int | None = None
    expires_s: float | None = None
    reservoir: bool = False
