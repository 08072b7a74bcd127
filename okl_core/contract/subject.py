"""The subject of a contract check: a resolved spec, and a small stream for its learner."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np

from okl_core.contract.facade import OnlineLearner, create
from okl_core.contract.learner import LearnerSpec, parse_spec, resolve
from okl_core.types import F64, REALS, Forecast, Interval, Stored, Target

ROUNDS = 150
"""Long enough to cross the panels of a factor and a few capacity doublings, short enough for tests."""


@final
class SeenRound(NamedTuple):
    """What a caller sees of a played round."""

    t: int
    forecast: Forecast
    loss: float
    choices: bytes


@final
class RecordedRun(NamedTuple):
    """A run of the whole stream, round by round, without anything in between."""

    played: list[SeenRound]
    states: dict[int, dict[str, Stored]]
    """Copies of the states after some rounds."""
    given: dict[int, dict[str, Stored]]
    """The same states, as the learner gave them away."""


@dataclass(frozen=True)
class Subject:
    """A resolved spec, and a stream for it: X of shape (n, d), y of shape (n,)."""

    spec: LearnerSpec
    dim: int
    X: F64
    y: F64

    def create(self) -> OnlineLearner:
        return create(self.spec, self.dim)

    def after(self, rounds: int) -> OnlineLearner:
        """A learner that has learned the first rounds of the stream."""
        learner = self.create()
        for x, y in self.rounds(0, rounds):
            learner.update(x, y)
        return learner

    def rounds(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[F64, float]]:
        return zip(self.X[start:stop], self.y[start:stop].tolist(), strict=True)

    @cached_property
    def recording(self) -> RecordedRun:
        """The run with which checks compare others: made once, since many need it, and with states at the stops."""
        learner, recording = self.create(), RecordedRun([], {}, {})
        for start, stop in itertools.pairwise((0, *self.stops, len(self.y))):
            for x, y in self.rounds(start, stop):
                played = learner.play(x, y)
                recording.played.append(SeenRound(played.t, played.forecast, played.loss, played.choices))
                learner.learn(played)
            recording.given[stop] = learner.state()
            recording.states[stop] = {name: copy.copy(array) for name, array in recording.given[stop].items()}
        return recording

    @property
    def half(self) -> int:
        return len(self.y) // 2

    @property
    def stops(self) -> tuple[int, ...]:
        """Rounds at which a learner is examined: before the first, after it, in the middle, and when it has grown."""
        return tuple(sorted({0, 1, self.half, max(0, len(self.y) - 10)}))

    @property
    def end(self) -> dict[str, Stored]:
        """The state of the recorded run after its last round."""
        return self.recording.states[len(self.y)]


CLASSES = 10
"""Most classes in a stream: with a new class in every round there would be nothing to learn."""


Check = Callable[[Subject], None]
"""One clause of the contract. Raises ContractViolation with a description."""


def make_subject(
    kind: str, config: Mapping[str, Any] | None = None, *, dim: int | None = None, seed: int = 0, rounds: int = ROUNDS
) -> Subject:
    """A resolved spec and a small stream that its learner accepts. Raises UnknownKind, ConfigError."""
    spec, learner, parsed = parse_spec({"kind": kind, "seed": seed, "config": dict(config or {})})
    dim = dim or learner.dims or 3
    X, y = small_stream(learner.target(parsed), learner.truth_range(parsed), dim, rounds, seed)
    return Subject(resolve(spec, X, y), dim, X, y)


def small_stream(target: Target, truths: Interval, dim: int, rounds: int, seed: int = 0) -> tuple[F64, F64]:
    """A stream with signal, noise, a zero input and repeated inputs.

    Real truths span the range `truths`, or [-1, 1] if that is infinite. With K classes, at most CLASSES, each of the first
    K rounds has a different class.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (rounds, dim))
    X[1] = 0.0
    repeated = rng.choice(np.arange(2, rounds), rounds // 10, replace=False)
    X[repeated] = X[repeated // 2]
    signal = np.sin(3.0 * X.sum(axis=1)) + X[:, 0] ** 2 - 0.3 + 0.3 * rng.standard_normal(rounds)
    if target == "binary":
        return X, np.where(signal >= 0.0, 1.0, -1.0)
    low, high = (-1.0, 1.0) if truths == REALS else truths
    if target == "class":
        high = min(high, low + CLASSES - 1.0)
        y = np.floor(low + (high - low + 1.0) * np.clip(0.5 * (signal + 1.0), 0.0, 1.0 - 1e-9))
        first = np.arange(low, high + 1.0)[:rounds]
        y[: len(first)] = first
        return X, y
    return X, low + (high - low) * np.clip(0.5 * (signal + 1.0), 0.0, 1.0)
