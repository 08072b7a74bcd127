"""Forgetting: a window of rounds, with what it takes to be built anew from them; or a half-life of their weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticKnownError

from okl_core.contract.learned_half_life import LEARNED
from okl_core.errors import StateFormatError
from okl_core.linalg.growing import GrowingArray
from okl_core.types import StatePart

CHUNKS = 4
"""Rounds are forgotten a quarter of a window at a time. More often, and building anew would cost more than the rounds."""

STAIRS = 4
"""Steps in which a half-life discounts: one costs O(p^3) with p features."""


SHORTEST = 8
"""Rounds of a half-life."""

HalfLifeRounds = Annotated[
    int | None,
    Field(ge=SHORTEST, description="Forgetting: rounds in which the weight of a past round halves; none by default."),
]


def _rounds_or_learned(value: Any) -> Any:
    """What a half-life may be, told in one sentence where the members of the union would each tell their own."""
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
"""Of a learner that a pool may stand for, see `contract.learned_half_life`."""


@final
@dataclass(slots=True)
class Window(StatePart):
    """The last W rounds, W >= 1, and after them up to a quarter as many again, which are then forgotten at once.

    `J` and `N` are the numbers of the rounds whose points are stored, `b` is c_i / sqrt(w_i) of those in J: with points and
    weights, all that the engine's L and r are made of.

    Examples
    --------
    >>> window = Window(8)
    >>> [t for t in range(1, 20) if window.is_due(t)]
    [10, 12, 14, 16, 18]
    >>> window.room(0), window.room(9), window.room(10)
    (10, 1, 2)
    """

    size: int
    J: GrowingArray = field(default_factory=GrowingArray)
    N: GrowingArray = field(default_factory=GrowingArray)
    b: GrowingArray = field(default_factory=GrowingArray)

    def __post_init__(self) -> None:
        if self.size < 1 or len(self.J) != len(self.b):
            raise StateFormatError(f"a window of {self.size} rounds, {len(self.J)} points and {len(self.b)} values")

    @property
    def _chunk(self) -> int:
        return max(1, self.size // CHUNKS)

    def is_due(self, t: int) -> bool:
        """After round t, is it time to forget all but the last W?"""
        return t > self.size and (t - self.size) % self._chunk == 0

    def room(self, t: int) -> int:
        """Rounds after t up to the next one that is due."""
        return self._chunk + self.size - t if t < self.size else self._chunk - (t - self.size) % self._chunk

    def first_kept(self, rounds: GrowingArray, t: int) -> int:
        """The index of the first of `rounds`, ascending, that is among the last W after t."""
        return int(np.searchsorted(rounds.view, t - self.size, side="right"))

    def forget(self, t: int) -> tuple[int, int]:
        """Drop what is not of the last W rounds; how many of J and of N that were."""
        i, k = self.first_kept(self.J, t), self.first_kept(self.N, t)
        for array, count in ((self.J, i), (self.b, i), (self.N, k)):
            array.select(np.arange(count, len(array)))
        return i, k


@final
class HalfLife(NamedTuple):
    """The weight of a past round halves every so many rounds, STAIRS or more of them; None: it never does.

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
    def of(cls, told: int | Literal["learned"] | None) -> Self:
        """That of a config. One that says "learned" never plays: its spec stands for a pool."""
        return cls(None if told == "learned" else told)

    def factor(self, t: int) -> float | None:
        """What all weights are to be multiplied with after round t, if it is time to."""
        if self.rounds is None or t % (self.rounds // STAIRS):
            return None
        return 0.5 ** (self.rounds // STAIRS / self.rounds)

    def is_due_within(self, t: int, rounds: int) -> bool:
        """Is it time to forget after one of the next rounds?"""
        return self.rounds is not None and self.room(t, rounds + 1) <= rounds

    def room(self, t: int, most: int) -> int:
        """Rounds after t up to the next time to forget; `most` if there are more."""
        if self.rounds is None:
            return most
        return min(most, self.rounds // STAIRS - t % (self.rounds // STAIRS))
