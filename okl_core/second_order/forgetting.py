"""Forgetting, by a window of rounds or a half-life of their weights, and the data from which stored rounds are rebuilt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticKnownError

from okl_core.contract.learned_half_life import LEARNED
from okl_core.contract.workload import embedding_work
from okl_core.errors import StateFormatError
from okl_core.linalg.growing import GrowingArray
from okl_core.types import StatePart

CHUNKS = 4
"""Rounds are forgotten a quarter of a window at a time; more often, the rebuilds would cost more than the rounds."""

STAIRS = 4
"""Discount steps per half-life; each costs O(p^3) with p features or stored rounds."""

REMEMBERED = 10
"""Half-lives after which a stored round is dropped, with a thousandth of its weight left."""

ALL_DIGITS = 1.0 / float(np.finfo(np.float64).eps)
"""The conditioning at which no digit is correct. It caps larger values, since an infinite one would never fade."""

SHORTEST = 8
"""The shortest half-life, in rounds."""

HalfLifeRounds = Annotated[
    int | None,
    Field(ge=SHORTEST, description="Forgetting: rounds in which the weight of a past round halves; none by default."),
]


def _rounds_or_learned(value: Any) -> Any:
    """Check a half-life, with one error message instead of one per member of the union."""
    if value is None or (isinstance(value, str) and value == LEARNED):
        return value
    if isinstance(value, str):
        raise ValueError(f'is {value!r}; give "learned", or a number of rounds')
    if isinstance(value, bool) or not isinstance(value, int):
        raise PydanticKnownError("int_type")
    if value < SHORTEST:
        raise PydanticKnownError("greater_than_equal", {"ge": SHORTEST})
    return value


LearnedHalfLife = Annotated[
    Annotated[int, Field(ge=SHORTEST)] | Literal["learned"] | None,
    BeforeValidator(_rounds_or_learned),
    Field(
        description="Forgetting: rounds in which the weight of a past round halves; none by default. "
        '"learned": a pool of this learner with half-lives from 16 rounds to none.'
    ),
]
"""The half-life of a learner that a pool may replace, see `contract.learned_half_life`."""


WindowRounds = Annotated[
    int | None, Field(ge=1, description="Forgetting: rounds to remember, and up to a quarter more; all by default.")
]


@final
class Memory(NamedTuple):
    """Which stored rounds count: the last `size`, and up to `chunk` before them.

    Whenever a chunk is forgotten, all weights are multiplied by `factor`. With a window, a chunk is a quarter of it and
    `factor` is 1. With a half-life, a chunk is one of its steps, and a round counts for REMEMBERED half-lives.

    Examples
    --------
    >>> window, half_life = Memory.of_window(8), Memory.of_half_life(8)
    >>> [t for t in range(1, 20) if window.is_due(t)]
    [10, 12, 14, 16, 18]
    >>> window.room(0), window.room(9), window.room(10)
    (10, 1, 2)
    >>> [t for t in range(1, 8) if half_life.is_due(t)], half_life.size, round(half_life.factor**STAIRS, 12)
    ([2, 4, 6], 80, 0.5)
    """

    size: int
    chunk: int
    factor: float

    @classmethod
    def of_window(cls, rounds: int) -> Self:
        return cls(rounds, max(1, rounds // CHUNKS), 1.0)

    @classmethod
    def of_half_life(cls, rounds: int) -> Self:
        step, factor = stair(rounds)
        return cls(-(-REMEMBERED * rounds // step) * step, step, factor)

    def is_due(self, t: int) -> bool:
        """Whether a chunk is forgotten after round t."""
        return self.room(t - 1) == 1

    def ends_turn(self, t: int) -> bool:
        """Whether a turn ends with round t. A turn is at most a window or half-life; no round is dropped before one ends."""
        return (t - self.size - self.chunk) % (min(STAIRS, self.size) * self.chunk) == 0

    def room(self, t: int) -> int:
        """Return the number of rounds after t up to the next one that is due."""
        if self.factor == 1.0 and t < self.size:
            return self.chunk + self.size - t
        return self.chunk - (t - self.size) % self.chunk

    def first_kept(self, rounds: GrowingArray, t: int) -> int:
        """Return the index of the first of `rounds`, ascending, that is among the last `size` after round t."""
        return int(np.searchsorted(rounds.view, t - self.size, side="right"))


@final
@dataclass(slots=True)
class StoredRounds(StatePart):
    """The data from which the rounds of a `Memory` are rebuilt, beside points and weights.

    `J` and `N` are the numbers of the rounds whose points are stored; `b` is c_i / sqrt(w_i) of those in J. Together they
    determine the engine's L and r.

    `inherited` is the conditioning under which the stored rounds were decided. Rounding errors of a forecast stay in the w
    and b of its round. They enter the forecasts after it, and so rounds that never met the one that amplified them. With a
    half-life the error falls as the weights do. With a window it falls more slowly if w depends on the forecast, but it is a
    small part of what the conditioning allows, which may therefore be halved in each turn.
    """

    J: GrowingArray = field(default_factory=GrowingArray)
    N: GrowingArray = field(default_factory=GrowingArray)
    b: GrowingArray = field(default_factory=GrowingArray)
    inherited: float = 1.0

    def __post_init__(self) -> None:
        if len(self.J) != len(self.b):
            raise StateFormatError(f"{len(self.J)} rounds are stored with {len(self.b)} values")

    def inherit(self, conditioning: float) -> None:
        """Take over the conditioning of the stored rounds at the end of a turn, before any round is dropped."""
        # In this order of arguments NaN counts as ALL_DIGITS.
        self.inherited = max(0.5 * self.inherited, min(ALL_DIGITS, conditioning))

    def forget(self, memory: Memory, t: int) -> tuple[int, int]:
        """Drop rounds that no longer count after round t, and return how many of J and of N were dropped."""
        i, k = memory.first_kept(self.J, t), memory.first_kept(self.N, t)
        for array, count in ((self.J, i), (self.b, i), (self.N, k)):
            if count:
                array.select(np.arange(count, len(array)))
        self.b.view[:] *= math.sqrt(memory.factor)
        return i, k


@final
class HalfLife(NamedTuple):
    """A half-life: the weight of a past round halves every `rounds` rounds, at least STAIRS; None: it never does.

    Examples
    --------
    >>> forgetting = HalfLife(8)
    >>> [t for t in range(1, 8) if forgetting.factor(t)]
    [2, 4, 6]
    >>> round(forgetting.factor(2) ** STAIRS, 12)
    0.5
    >>> forgetting.room(1, 64), HalfLife(None).room(1, 64)
    (1, 64)
    """

    rounds: int | None

    @classmethod
    def of(cls, half_life: int | Literal["learned"] | None) -> Self:
        """Return the half-life of a config. A config with "learned" never plays, since a pool replaces its learner."""
        return cls(None if half_life == "learned" else half_life)

    def factor(self, t: int) -> float | None:
        """Return the factor by which to multiply all weights after round t; None if no discount is due."""
        if self.rounds is None:
            return None
        step, factor = stair(self.rounds)
        return None if t % step else factor

    def discount_work(self, t: int, rounds: int, size: int) -> float:
        """Return the work of a discount of `size` coordinates, if one of the next `rounds` rounds has one; else 0."""
        is_due = self.rounds is not None and self.room(t, rounds + 1) <= rounds
        return embedding_work(size) if is_due else 0.0

    def room(self, t: int, most: int) -> int:
        """Return the number of rounds after t up to the next discount, at most `most`."""
        if self.rounds is None:
            return most
        step, _ = stair(self.rounds)
        return min(most, step - t % step)


def stair(half_life: int) -> tuple[int, float]:
    """Return the rounds of one step of a half-life, and the factor by which it multiplies all weights."""
    step = half_life // STAIRS
    return step, 0.5 ** (step / half_life)
