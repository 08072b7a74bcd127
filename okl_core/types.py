"""The small types that everything shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, final

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
"""An array of a state: float64, or float32 where a learner keeps it in single precision."""

Interval = tuple[float, float]
"""Both ends, which belong to it unless they are infinite."""

REALS: Interval = (-math.inf, math.inf)

Target = Literal["binary", "class", "real", "any"]
"""What a learner takes as truth: a label in {-1, +1}, a class in {0, ..., K - 1}, a real number, or label or number."""

MAX_CLASSES = 1000

MAX_GRAM_POINTS = 2000
"""Stored points of which a learner makes the whole kernel matrix at once: 32 MB, several times over."""

SMALLEST_PARAMETER, LARGEST_PARAMETER = 1e-150, 1e150
"""Between which a number of a config lies, if it is not 0: its square and the inverse of that are numbers too."""

LARGEST_AUTO_TRUTH = 1e100
"""Of a number that `auto` learns: its fourth power is a number too, not that of a larger one."""

ClassCount = Annotated[
    int,
    Field(
        ge=2,
        le=MAX_CLASSES,
        description="K: truths are 0 to K - 1. A session may leave it out, and takes the number of its labels.",
    ),
]


class Forecast(NamedTuple):
    """What a learner says before it sees the truth.

    `value` is the real-valued output: the score of a classifier (its sign is the label, with sign(0) = +1) or the
    predicted value of a regressor. `probability` is that of the label +1, where the loss defines one. A learner of K
    classes gives the `probabilities` of all, which sum to one; `value` is the largest of them. Where K grows there are
    those of the classes so far, none at first, and after t rounds they may sum to 1 - 1 / (t + 1).
    """

    value: float
    probability: float | None = None
    probabilities: tuple[float, ...] | None = None

    @property
    def label(self) -> int:
        """-1 or +1; of K classes the most probable one, the first if there are several, 0 if there is none yet."""
        if self.probabilities is not None:
            if not self.probabilities:
                return 0
            return self.probabilities.index(max(self.probabilities))
        return 1 if self.value >= 0.0 else -1


@dataclass(slots=True)
class Round:
    """One played round that has not been learned yet: `learn` carries it into the state.

    A learner subclasses it with the numbers it needs to do so. `t` is the round's number (1-based), `choices` the
    outcomes of its coins and thresholds.
    """

    t: int
    x: F64
    y: float
    forecast: Forecast
    loss: float
    choices: bytes


class RoundInfo(NamedTuple):
    """What a caller sees of one round: its number, the forecast made before the truth, and the loss of it."""

    t: int
    forecast: Forecast
    loss: float


class BlockInfo(NamedTuple):
    """What a caller sees of n rounds in order: `t` is the number of the last one."""

    t: int
    values: F64
    """Shape (n,): the forecasts' values."""
    losses: F64
    """Shape (n,)."""
    probabilities: F64 | None
    """Shape (n,), where the loss defines a probability; (n, K) from a learner of K classes."""
    choices: bytes


class Standing(NamedTuple):
    """How the parts of a learner made of several do: their weights, shape (N,), in the order of their names.

    Where there are `losses`, the cumulative ones of the parts, shape (N,), `loss` is that of the learner, and `bound` what
    its regret to the best of them is at most; NaN where none is known.
    """

    names: tuple[str, ...]
    weights: F64
    losses: F64 | None = None
    loss: float = math.nan
    bound: float = math.nan


class Parameters(BaseModel):
    """Frozen, finite, nothing unknown. Some may be words for what is found from the first inputs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @field_validator("*")
    @classmethod
    def _is_bearable(cls, value: object) -> object:
        if isinstance(value, float) and value and not SMALLEST_PARAMETER <= abs(value) <= LARGEST_PARAMETER:
            raise ValueError(
                f"is {value:g}; a number is 0, or from {SMALLEST_PARAMETER:g} to {LARGEST_PARAMETER:g} in size"
            )
        return value

    @property
    def dim(self) -> int | None:
        """The number of inputs that one of them is made for; None if they fit any."""
        made_for = [part.dim for _, part in self if isinstance(part, Parameters)]
        return next((dim for dim in made_for if dim is not None), None)

    def waiting(self) -> list[tuple[tuple[str, ...], str]]:
        """Path and word of each field that waits for inputs: [(("kernel", "sigma"), "median")]."""
        parts = [(name, part) for name, part in self if isinstance(part, Parameters)]
        return [((name, *path), word) for name, part in parts for path, word in part.waiting()]

    def resolved(self, X: F64, y: F64 | None = None) -> Self:
        """The same with these fields found from the rows of X, shape (n, d), and their truths y, shape (n,) or (n, k).

        Raises ShapeError for a field that needs y where there is none.
        """
        parts = {name: part.resolved(X, y) for name, part in self if isinstance(part, Parameters)}
        return self.model_copy(update=parts)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields replaced, not validated. What the original has computed from its own is not copied."""
        copied = super().model_copy(update=update, deep=deep)
        for name in vars(copied).keys() - type(copied).model_fields.keys():
            del vars(copied)[name]
        return copied


@final
class Registered:
    """Marks a config's field that takes whatever is registered when a value is validated.

    Parameters
    ----------
    register : Mapping[str, object]
        It grows, and loses nothing.
    choice : Callable[[], Any]
        Gives the type of the field from what is registered by then.
    """

    def __init__(self, register: Mapping[str, object], choice: Callable[[], Any]) -> None:
        self._register, self._choice = register, choice
        self._made: tuple[list[str], TypeAdapter[Any]] | None = None
        self._is_described: ContextVar[bool] = ContextVar("is_described", default=False)

    def _adapter(self) -> TypeAdapter[Any]:
        names, made = list(self._register), self._made
        if made is None or made[0] != names:
            self._made = made = names, TypeAdapter(self._choice())
        return made[1]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Errors keep their place: a ValidationError raised by a validator becomes a part of the outer one.
        return core_schema.no_info_plain_validator_function(lambda value: self._adapter().validate_python(value))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if self._is_described.get():
            # Within one of them, such as a kernel made of kernels: to list them all again would never end.
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
        """What to beware of with these parameters, a sentence each."""
        return ()


@dataclass(slots=True)
class StatePart:
    """A group of a state's fields: numbers, float64 arrays, other parts, and objects with `pack`, `unpack` and `nbytes`.

    `copy.deepcopy` must give a part that shares nothing with it that either writes to. One with `is_fixed` has as many
    numbers as at first, whatever it learns.
    """

    is_fixed: ClassVar[bool] = False

    @property
    def nbytes(self) -> int:
        """Memory that its arrays take, in bytes."""
        values = (getattr(self, field.name) for field in fields(self))
        return sum(getattr(value, "nbytes", 0) for value in values)


@dataclass(slots=True)
class LearnerState(StatePart):
    """Base of every learner's state. `t` counts rounds."""

    t: int
