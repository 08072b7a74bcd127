"""Small types shared by the whole library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

F64 = NDArray[np.float64]

Stored = NDArray[np.floating[Any]]
"""An array of a state: float64, or float32 if the learner keeps it in single precision."""

Interval = tuple[float, float]
"""Lower and upper end; finite ends belong to the interval."""

REALS: Interval = (-math.inf, math.inf)

Target = Literal["binary", "class", "real", "any"]
"""The kind of truth: a label in {-1, +1}, a class in {0, ..., K - 1}, a real number, or either a label or a number."""

MAX_CLASSES = 1000

MAX_GRAM_POINTS = 2000
"""The most stored points whose whole kernel matrix a learner forms at once: several matrices of 32 MB."""

SMALLEST_PARAMETER, LARGEST_PARAMETER = 1e-150, 1e150
"""Bounds on the size of a nonzero config number, chosen so that its square and the inverse of the square are finite."""

LARGEST_AUTO_TRUTH = 1e100
"""The largest truth that `auto` accepts: the fourth power of a larger number would overflow."""

ClassCount = Annotated[
    int,
    Field(
        ge=2,
        le=MAX_CLASSES,
        description="K: truths are 0 to K - 1. In a session the default is the number of its labels.",
    ),
]


class Forecast(NamedTuple):
    """A learner's prediction, made before it sees the truth.

    `value` is the real-valued output: the score of a classifier (its sign is the label, with sign(0) = +1) or the
    predicted value of a regressor. `probability` is that of the label +1, if the loss defines one. A learner of K
    classes gives the `probabilities` of all classes, which sum to one; `value` is the largest of them. If K grows,
    `probabilities` covers the classes seen so far, is empty at first, and may sum to 1 - 1 / (t + 1) after t rounds.
    """

    value: float
    probability: float | None = None
    probabilities: tuple[float, ...] | None = None

    @property
    def label(self) -> int:
        """-1 or +1; for K classes the most probable class, the lowest on ties, and 0 if none is known yet."""
        if self.probabilities is not None:
            if not self.probabilities:
                return 0
            return self.probabilities.index(max(self.probabilities))
        return 1 if self.value >= 0.0 else -1


@dataclass(slots=True)
class Round:
    """A round that has been played but not yet learned; `learn` carries it into the state.

    Learners subclass it to add the numbers that `learn` needs. `t` is the round's number (1-based), `choices` holds
    the outcomes of its coins and threshold tests.
    """

    t: int

    x: F64
    y: float
    forecast: Forecast
    loss: float
    choices: bytes


class RoundInfo(NamedTuple):
    """The result of one round: its number, the forecast made before the truth was seen, and its loss."""

    t: int
    forecast: Forecast
    loss: float


class BlockInfo(NamedTuple):
    """The results of n consecutive rounds; `t` is the number of the last one."""

    t: int
    values: F64
    """The forecasts' values, shape (n,)."""
    losses: F64
    """The losses, shape (n,)."""
    probabilities: F64 | None
    """Shape (n,) if the loss defines a probability; (n, K) from a learner of K classes."""
    choices: bytes


class Standing(NamedTuple):
    """The current standing of the parts of a composite learner: `weights`, shape (N,), in the order of `names`.

    `losses`, shape (N,), are the cumulative losses of the parts, and `loss` is that of the learner. `bound` is an upper
    bound on the regret against the best part; NaN if none is known.
    """

    names: tuple[str, ...]
    weights: F64
    losses: F64 | None = None
    loss: float = math.nan
    bound: float = math.nan


def bearable(size: float) -> float:
    """Return the config number closest to a size that was found in the inputs: they may be larger or smaller than any."""
    return min(max(size, SMALLEST_PARAMETER), LARGEST_PARAMETER) if size else 0.0


class Parameters(BaseModel):
    """A frozen set of parameters: finite numbers, no unknown fields.

    A field may hold a word, such as "median", for a value that is found from the first inputs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @field_validator("*")
    @classmethod
    def _is_bearable(cls, value: object) -> object:
        if isinstance(value, int | float) and value and not SMALLEST_PARAMETER <= abs(value) <= LARGEST_PARAMETER:
            # Longer integers are no floats either.
            told = f"{value:g}" if isinstance(value, float) else "an integer of more than 150 digits"
            raise ValueError(
                f"is {told}; a number is 0, or from {SMALLEST_PARAMETER:g} to {LARGEST_PARAMETER:g} in size"
            )
        return value

    @property
    def dim(self) -> int | None:
        """The number of inputs that the parameters are made for; None if they fit any number."""
        dims = [part.dim for _, part in self if isinstance(part, Parameters)]
        return next((dim for dim in dims if dim is not None), None)

    def waiting(self) -> list[tuple[tuple[str, ...], str]]:
        """Path and word of each field that waits for inputs: [(("kernel", "sigma"), "median")]."""
        parts = [(name, part) for name, part in self if isinstance(part, Parameters)]
        return [((name, *path), word) for name, part in parts for path, word in part.waiting()]

    def resolved(self, X: F64, y: F64 | None = None) -> Self:
        """A copy with the waiting fields found from the rows of X, shape (n, d), and their truths y, shape (n,) or (n, k).

        Raises ShapeError for a field that needs y if y is None.
        """
        parts = {name: part.resolved(X, y) for name, part in self if isinstance(part, Parameters)}
        return self.model_copy(update=parts)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields replaced, without validation. Cached properties of the original are not copied."""
        copied = super().model_copy(update=update, deep=deep)
        for name in vars(copied).keys() - type(copied).model_fields.keys():
            del vars(copied)[name]
        return copied


@final
class Registered:
    """Annotation for a config field whose choices are the entries of a register at validation time.

    Parameters
    ----------
    register : Mapping[str, object]
        Entries may be added but are never removed.
    choice : Callable[[], Any]
        Returns the field's type, given what is registered by then.
    """

    def __init__(self, register: Mapping[str, object], choice: Callable[[], Any]) -> None:
        self._register, self._choice = register, choice
        self._made: tuple[list[str], TypeAdapter[Any]] | None = None
        self._is_described: ContextVar[bool] = ContextVar("is_described", default=False)

    def _adapter(self) -> TypeAdapter[Any]:
        names, cached = list(self._register), self._made
        if cached is None or cached[0] != names:
            self._made = cached = names, TypeAdapter(self._choice())
        return cached[1]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Errors keep their location: pydantic merges a ValidationError raised by a validator into the outer one.
        return core_schema.no_info_plain_validator_function(lambda value: self._adapter().validate_python(value))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if self._is_described.get():
            # A nested choice, such as a kernel made of kernels: listing all choices again would never end.
            return {"description": "Any of the same."}
        token = self._is_described.set(True)
        try:
            return handler(self._adapter().core_schema)
        finally:
            self._is_described.reset(token)


class LearnerConfig(Parameters):
    """Base of every learner's parameters."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """Warnings about these parameters, one sentence each."""
        return ()


@dataclass(slots=True)
class StatePart:
    """A group of a state's fields: numbers, float64 arrays, other parts, and objects with `pack`, `unpack` and `nbytes`.

    `copy.deepcopy` must give a part that shares no data that either part writes to.
    """

    @property
    def nbytes(self) -> int:
        """Memory taken by its arrays, in bytes."""
        values = (getattr(self, field.name) for field in fields(self))
        return sum(getattr(value, "nbytes", 0) for value in values)


@dataclass(slots=True)
class LearnerState(StatePart):
    """Base of every learner's state. `t` counts rounds."""

    t: int

    def require_config(self, config: Any) -> None:
        """Raise StateFormatError if its parts are not of the sizes that this config of its learner gives them."""
