"""Units of a pool: experts that learn together, or a single expert."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, final

from okl_core.contract.learner import Learner, require_dims
from okl_core.contract.rng import RoundRng
from okl_core.types import F64, Forecast, LearnerConfig, LearnerState, Round, Stored

Values = list[float] | list[tuple[float, ...]]
"""Forecasts of experts: numbers, or the probabilities of all classes."""


class UnitRound(Protocol):
    """A round that a unit has played and not learned."""

    @property
    def values(self) -> Values:
        """The forecasts of the members."""
        ...


S = TypeVar("S", bound=LearnerState)
R = TypeVar("R", bound=UnitRound)


class Unit(ABC, Generic[S, R]):
    """Experts that learn together. `places` are their indices in the pool."""

    def __init__(self, places: Sequence[int], lags: int, kinds: str) -> None:
        self.places = list(places)
        self.lags = lags
        self.kinds = kinds
        """The kinds of the experts, for messages."""

    @abstractmethod
    def init(self, dim: int) -> S: ...

    @abstractmethod
    def initial_bytes(self, dim: int) -> int: ...

    @abstractmethod
    def unpack(self, arrays: Mapping[str, Stored]) -> S:
        """Restore the state from the arrays that `pack` returned. Raise StateFormatError."""

    @abstractmethod
    def predict(self, state: S, x: F64, members: Sequence[int]) -> Values:
        """Return the forecasts for x, shape (d,), of `members`: the awake experts, by index in the unit."""

    @abstractmethod
    def play(self, state: S, x: F64, y: float, members: Sequence[int], rng: RoundRng) -> R:
        """Play one round of the members, without changing the state."""

    @abstractmethod
    def learn(self, state: S, played: R) -> None:
        """Learn a played round."""

    @abstractmethod
    def run(self, state: S, X: F64, y: F64, members: Sequence[int], rng: RoundRng) -> F64:
        """Learn n rounds in order; return the members' forecasts, shape (n, members), or (n, members, K) for classes."""

    @abstractmethod
    def conditioning(self, state: S) -> list[float]:
        """Return the conditioning of every expert."""

    @abstractmethod
    def extra_work(self, state: S, rounds: int) -> float:
        """Return the extra work, see `Learner.extra_work`."""

    @abstractmethod
    def size(self, state: S) -> tuple[int, int]:
        """Return the number of stored points and of bytes."""


class AloneRound(NamedTuple):
    played: Round

    @property
    def values(self) -> Values:
        return _value_of(self.played.forecast)


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

    def predict(self, state: LearnerState, x: F64, members: Sequence[int]) -> Values:
        return _value_of(self._learner.predict(self._config, state, x))

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
        numbers = self._learner.describe(self._config, state)
        return int(numbers["dictionary"]), int(numbers["bytes"])


def _value_of(forecast: Forecast) -> Values:
    return [forecast.value] if forecast.probabilities is None else [forecast.probabilities]
