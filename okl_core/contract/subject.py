"""The subject of a contract check: a resolved spec, and a small stream for its learner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from okl_core.contract.facade import OnlineLearner, create
from okl_core.contract.learner import LearnerSpec, parse_spec, resolve
from okl_core.types import F64, REALS, Interval, Target

ROUNDS = 150
"""Long enough to cross the panels of a factor and a few capacity doublings, short enough for tests."""


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

    @property
    def half(self) -> int:
        return len(self.y) // 2

    @property
    def stops(self) -> tuple[int, ...]:
        """Rounds at which a learner is examined: before the first, after it, in the middle, and when it has grown."""
        return 0, 1, self.half, len(self.y) - 10


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
