"""Each class's learner by itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import numpy as np

from okl_core.contract.learner import Learner, require_dims
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import pack
from okl_core.contract.workload import rows_at_once
from okl_core.errors import NumericalError, StateFormatError
from okl_core.learners.one_vs_rest.classes import Classes, require_round, scaled
from okl_core.pool.experts import BLOCK
from okl_core.types import F64, LearnerConfig, LearnerState, Round, Stored

AnyLearner = Learner[Any, Any, Any]


@final
class ClassStates(list[LearnerState]):
    """That of each class's learner."""

    def pack(self) -> dict[str, Stored]:
        return {f"{k}.{name}": array for k, member in enumerate(self) for name, array in pack(member).items()}


class ApartRound(NamedTuple):
    turns: list[Round]


@final
class Apart(Classes[ClassStates, ApartRound]):
    """K learners that share nothing."""

    def __init__(self, K: int, learner: AnyLearner, config: LearnerConfig) -> None:
        self._K, self._learner, self._config = K, learner, config
        self._streams = [f"class-{k}" for k in range(K)]

    def init(self, dim: int) -> ClassStates:
        require_dims(self._learner, dim)
        return ClassStates(self._learner.init(self._config, dim) for _ in range(self._K))

    def unpack(self, arrays: Mapping[str, Stored], t: int) -> ClassStates:
        parts: dict[str, dict[str, Stored]] = {str(k): {} for k in range(self._K)}
        for name, array in arrays.items():
            k, _, part = name.partition(".")
            if k not in parts:
                raise StateFormatError(f"the state has an array {name!r} of a class that there is not")
            parts[k][part] = array
        states = ClassStates(self._learner.unpack(self._config, part) for part in parts.values())
        for k, state in enumerate(states):
            require_round(f"class {k}", state.t, t)
        return states

    def predict(self, state: ClassStates, x: F64) -> list[float | None]:
        return [self._learner.predict(self._config, member, x).probability for member in state]

    def play(self, state: ClassStates, x: F64, y: int, t: int, rng: RoundRng) -> tuple[list[float | None], ApartRound]:
        forks = rng.begin_forks(dict.fromkeys(self._streams, t), t, 1)
        turns: list[Round] = []
        for k, (member, fork) in enumerate(zip(state, forks, strict=True)):
            with _named(k):
                turns.append(self._learner.play(self._config, member, x, 1.0 if k == y else -1.0, fork))
        rng.end_forks(forks, t, 1)
        return [turn.forecast.probability for turn in turns], ApartRound(turns)

    def learn(self, state: ClassStates, played: ApartRound) -> None:
        for member, turn in zip(state, played.turns, strict=True):
            self._learner.learn(self._config, member, turn)

    def room(self, state: ClassStates) -> int:
        return rows_at_once(self._K, BLOCK)

    def run(self, state: ClassStates, X: F64, y: F64, t: int, rng: RoundRng) -> F64:
        forks = rng.begin_forks(dict.fromkeys(self._streams, t), t, len(y))
        P = np.empty((len(y), self._K))
        before = copy.deepcopy(list(state))
        try:
            for k, (member, fork) in enumerate(zip(state, forks, strict=True)):
                with _named(k):
                    P[:, k] = self._learner.run(
                        self._config, member, X, np.where(y == k, 1.0, -1.0), fork
                    ).probabilities
            rng.end_forks(forks, t, len(y))
            return scaled(P, t)
        except BaseException:
            # Whatever it is: members at different rounds would never come together again.
            state[:] = before
            raise

    def conditioning(self, state: ClassStates) -> float:
        return max(self._learner.conditioning(self._config, member) for member in state)

    def extra_work(self, state: ClassStates, rounds: int) -> float:
        """The long rounds of several classes may be the same one."""
        return sum(self._learner.extra_work(self._config, member, rounds) for member in state)

    def size(self, state: ClassStates) -> tuple[float, float]:
        descriptions = [self._learner.describe(self._config, member) for member in state]
        return sum(numbers["dictionary"] for numbers in descriptions), sum(numbers["bytes"] for numbers in descriptions)


@contextmanager
def _named(k: int) -> Iterator[None]:
    """Errors of the arithmetic say which class's learner it is."""
    try:
        yield
    except NumericalError as error:
        raise type(error)(f"class {k} against the rest: {error}") from error
