"""Units of a pool: experts that learn together, or one on its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, final

from okl_core.contract.learner import Learner, require_dims
from okl_core.contract.rng import RoundRng
from okl_core.types import F64, Forecast, LearnerConfig, LearnerState, Round, Stored

Said = list[float] | list[tuple[float, ...]]
"""Forecasts of experts: numbers, or the probabilities of all classes."""


class UnitRound(Protocol):
    """A round that a unit has played and not learned."""

    @property
    def values(self) -> Said:
        """The forecasts of the members."""
        ...


S = TypeVar("S", bound=LearnerState)
R = TypeVar("R", bound=UnitRound)


class Unit(ABC, Generic[S, R]):
    """Experts that learn together. `places` are theirs in the pool."""

    def __init__(self, places: Sequence[int], lags: int, kinds: str) -> None:
        self.places = list(places)
        self.lags = lags
        self.kinds = kinds
        """For messages."""

    @abstractmethod
    def init(self, dim: int) -> S: ...

    @abstractmethod
    def initial_bytes(self, dim: int) -> int: ...

    @abstractmethod
    def unpack(self, arrays: Mapping[str, Stored]) -> S:
        """The state that `pack` gave as arrays. Raises StateFormatError."""

    @abstractmethod
    def predict(self, state: S, x: F64, members: Sequence[int]) -> Said:
        """The forecasts for x, shape (d,), of those of its experts that are awake: `members`, by their places in the unit."""

    @abstractmethod
    def play(self, state: S, x: F64, y: float, members: Sequence[int], rng: RoundRng) -> R:
        """One round of the members; changes nothing."""

    @abstractmethod
    def learn(self, state: S, played: R) -> None:
        """Carry a played round into the state."""

    @abstractmethod
    def run(self, state: S, X: F64, y: F64, members: Sequence[int], rng: RoundRng) -> F64:
        """The members' forecasts in n rounds in order, shape (n, members), or (n, members, K) of classes."""

    @abstractmethod
    def conditioning(self, state: S) -> list[float]:
        """That of every expert."""

    @abstractmethod
    def extra_work(self, state: S, rounds: int) -> float:
        """As that of a learner."""

    @abstractmethod
    def size(self, state: S) -> tuple[int, int]:
        """Stored points and bytes."""


class AloneRound(NamedTuple):
    played: Round

    @property
    def values(self) -> Said:
        return _said(self.played.forecast)


@final
class Alone(Unit[LearnerState, AloneRound]):
    """An expert that shares nothing."""

    def __init__(self, place: int, lags: int, learner: Learner[Any, Any, Any], config: LearnerConfig) -> None:
        super().__init__([place], lags, learner.kind)
        self._learner, self._config = learner, config

    def init(self, dim: int) -> LearnerState:
        require_dims(self._learner, dim)
        return self._learner.init(self._config, dim)

    def initial_bytes(self, dim: int) -> int:
        return self._learner.initial_bytes(self._config, dim)

    def unpack(self, arrays: Mapping[str, Stored]) -> LearnerState:
        return self._learner.unpack(self._config, arrays)

    def predict(self, state: LearnerState, x: F64, members: Sequence[int]) -> Said:
        return _said(self._learner.predict(self._config, state, x))

    def play(self, state: LearnerState, x: F64, y: float, members: Sequence[int], rng: RoundRng) -> AloneRound:
        return AloneRound(self._learner.play(self._config, state, x, y, rng))

    def learn(self, state: LearnerState, played: AloneRound) -> None:
        self._learner.learn(self._config, state, played.played)

    def run(self, state: LearnerState, X: F64, y: F64, members: Sequence[int], rng: RoundRng) -> F64:
        info = self._learner.run(self._config, state, X, y, rng)
        P = info.probabilities
        return (info.values if P is None or P.ndim == 1 else P)[:, None]

    def conditioning(self, state: LearnerState) -> list[float]:
        return [self._learner.conditioning(self._config, state)]

    def extra_work(self, state: LearnerState, rounds: int) -> float:
        return self._learner.extra_work(self._config, state, rounds)

    def size(self, state: LearnerState) -> tuple[int, int]:
        told = self._learner.describe(self._config, state)
        return int(told["dictionary"]), int(told["bytes"])


def _said(forecast: Forecast) -> Said:
    return [forecast.value] if forecast.probabilities is None else [forecast.probabilities]
