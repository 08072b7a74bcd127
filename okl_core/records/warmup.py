"""The warm-up: first rounds of a stream, kept so that its fields, scaling and learner can be rebuilt from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from okl_core.records.record import Raw, Raws, size_of, weights_of
from okl_core.types import F64

ROUNDS = 500
"""Default length of a warm-up."""

FIRST = 8
"""Rounds after which a learner is first built; it is rebuilt each time the number of rounds doubles, and at the end."""

MOST_BYTES = 2 << 20
"""Limit on the size of the kept rounds; the warm-up ends with the round that crosses it."""


class Rows(NamedTuple):
    """n rounds: `lags` of shape (n, k), None without lags; `weights` of shape (n,), None if all are 1."""

    raws: list[Raw]
    truths: list[float]
    lags: F64 | None
    weights: F64 | None


@dataclass(slots=True)
class Warmup:
    """Input, lags, truth and weight of each round, at most `length` rounds; lags have shape (k,) each."""

    length: int
    raws: list[Raw] = field(default_factory=list)
    lags: list[F64 | None] = field(default_factory=list)
    truths: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    nbytes: int = 0

    def __len__(self) -> int:
        return len(self.raws)

    def is_last(self, raw: Raw) -> bool:
        """Whether the warm-up ends with the next round, which has this input."""
        return len(self) + 1 >= self.length or self.nbytes + size_of(raw) > MOST_BYTES

    def is_stage(self, raw: Raw) -> bool:
        """Whether the next round, which has this input, is a stage: the learner is then rebuilt."""
        return self._is_power(len(self) + 1) or self.is_last(raw)

    def rounds_before_a_stage(self, raws: Raws) -> int:
        """How many of these next rounds precede the first stage."""
        nbytes = self.nbytes
        for i, raw in enumerate(raws):
            n, nbytes = len(self) + i + 1, nbytes + size_of(raw)
            if self._is_power(n) or n >= self.length or nbytes > MOST_BYTES:
                return i
        return len(raws)

    def has_stage_within(self, rounds: int) -> bool:
        """Whether one of the next `rounds` rounds may be a stage."""
        n = len(self)
        if n + rounds >= self.length or self.nbytes * (n + rounds) > MOST_BYTES * max(1, n):
            return True
        return any(self._is_power(m) for m in range(n + 1, n + rounds + 1))

    def _is_power(self, n: int) -> bool:
        return n >= FIRST and n & (n - 1) == 0

    def add(self, raw: Raw, lags: F64 | None, y: float, weight: float = 1.0) -> None:
        self.raws.append(raw)
        self.lags.append(lags)
        self.truths.append(y)
        self.weights.append(weight)
        self.nbytes += size_of(raw)

    def add_rows(self, raws: Raws, lags: F64 | None, y: F64, weights: F64 | None) -> None:
        """Add n rounds; `lags` has shape (n, k), `y` and `weights` have shape (n,)."""
        n = len(y)
        own = [None] * n if lags is None else list(lags)
        for row in zip(raws, own, y.tolist(), [1.0] * n if weights is None else weights.tolist(), strict=True):
            self.add(*row)

    def with_next(self, raw: Raw, lags: F64 | None, y: float, weight: float) -> Rows:
        """All kept rounds and the next one."""
        return Rows(
            [*self.raws, raw],
            [*self.truths, y],
            None if lags is None else np.array([*self.lags, lags]),
            weights_of([*self.weights, weight]),
        )

    def copy(self) -> Warmup:
        lists = self.raws.copy(), self.lags.copy(), self.truths.copy(), self.weights.copy()
        return Warmup(self.length, *lists, self.nbytes)
