"""Members at work: what all ways of running K learners of two labels have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError, StateFormatError
from okl_core.losses import LEAST_PROBABILITY
from okl_core.types import F64, Forecast, Stored

S = TypeVar("S")
R = TypeVar("R")


class Classes(ABC, Generic[S, R]):
    """K learners of two labels, of which the k-th is told the class k from the rest. S: their state, R: a round of all."""

    @abstractmethod
    def init(self, dim: int) -> S: ...

    @abstractmethod
    def unpack(self, arrays: Mapping[str, Stored], t: int) -> S:
        """The state after t rounds that `pack` gave as arrays. Raises StateFormatError."""

    @abstractmethod
    def predict(self, state: S, x: F64) -> list[float | None]:
        """The members' probabilities for x, shape (d,)."""

    @abstractmethod
    def play(self, state: S, x: F64, y: int, t: int, rng: RoundRng) -> tuple[list[float | None], R]:
        """Their probabilities and their round t with the truth y; changes nothing."""

    @abstractmethod
    def learn(self, state: S, played: R) -> None:
        """Carry a played round into the state."""

    @abstractmethod
    def room(self, state: S) -> int:
        """Rounds that the next block may have, at least 1."""

    @abstractmethod
    def run(self, state: S, X: F64, y: F64, t: int, rng: RoundRng) -> F64:
        """A block from round t on, for which there is room: the classes' probabilities, (n, K). If it raises nothing has
        changed."""

    @abstractmethod
    def conditioning(self, state: S) -> float: ...

    @abstractmethod
    def extra_work(self, state: S, rounds: int) -> float: ...

    @abstractmethod
    def size(self, state: S) -> tuple[float, float]:
        """Stored points and bytes."""


def require_round(what: str, t: int, expected: int) -> None:
    if t != expected:
        raise StateFormatError(f"{what} has learned {t} rounds, the learner {expected}")


def composed(P: Sequence[float | None], t: int) -> Forecast:
    """The forecast of round t from the members' probabilities."""
    q = scaled(np.array(P, dtype=np.float64), t)
    return Forecast(float(q.max()), None, tuple(q.tolist()))


def scaled(P: F64, t: int) -> F64:
    """The members' probabilities from round t on, shape (..., K), so that they sum to one. Raises DivergedError."""
    # If all are 0 the classes are equal.
    P = np.maximum(P, LEAST_PROBABILITY)
    sums = P.sum(axis=-1, keepdims=True)
    if not np.isfinite(sums).all():
        raise DivergedError(f"round {t} or later in its block: a probability is not finite; raise the regularization")
    return P / sums
