"""Distributions of fixed size: the reliability of probabilities, the residuals, and the delays of truths."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from okl_core.contract.state import count_in
from okl_core.errors import StateFormatError
from okl_core.types import F64, Stored

BINS: Final = 10
BIN_ROUNDS: Final = 4096
"""At twice this many rounds all counts of the reliability are halved, so that it covers about the last 4,000 to 8,000."""

RESIDUALS: Final = 500
"""The number of last rounds that the quantiles cover."""
QUANTILES: Final = (0.1, 0.5, 0.9)

DELAYS_S: Final = (0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0)
"""Edges of the bins for the delay between a prediction and its truth; the first and the last bin are open."""


class Spread:
    """The distributions of one session.

    `reliability`, shape (3, BINS): rounds, sum of the forecast probabilities, and how often the event happened; `delays`,
    shape (len(DELAYS_S) + 1,): rounds whose prediction waited.
    """

    __slots__ = ("_count", "_residuals", "_sure", "delays", "reliability")

    def __init__(self) -> None:
        self.reliability = np.zeros((3, BINS))
        self.delays = np.zeros(len(DELAYS_S) + 1)
        self._sure = 0.0
        self._residuals: F64 = np.zeros(0)
        self._count = 0

    def add_sure(self, probability: float, happened: bool) -> None:
        """Add a forecast probability, and whether the event happened."""
        bin = min(int(probability * BINS), BINS - 1)
        self.reliability[0, bin] += 1.0
        self.reliability[1, bin] += probability
        self.reliability[2, bin] += happened
        self._count_sure(1)

    def run_sure(self, probabilities: F64, happened: NDArray[np.bool_]) -> None:
        """Add rounds in order, shape (n,) each; the same as `add_sure` of each."""
        while len(probabilities):
            n = math.ceil(2 * BIN_ROUNDS - self._sure)
            bins = np.minimum((probabilities[:n] * BINS).astype(np.intp), BINS - 1)
            for row, parts in enumerate((1.0, probabilities[:n], happened[:n])):
                np.add.at(self.reliability[row], bins, parts)
            self._count_sure(len(bins))
            probabilities, happened = probabilities[n:], happened[n:]

    def _count_sure(self, rounds: int) -> None:
        self._sure += rounds
        if self._sure >= 2 * BIN_ROUNDS:
            self.reliability *= 0.5
            self._sure *= 0.5

    def add_residual(self, residual: float) -> None:
        """Add a residual, forecast minus truth."""
        if not len(self._residuals):
            self._residuals = np.zeros(RESIDUALS)
        self._residuals[self._count % RESIDUALS] = residual
        self._count += 1

    def run_residuals(self, residuals: F64, ends: Sequence[int]) -> F64:
        """Add residuals in order, shape (n,), as `add_residual` of each.

        Return the quantiles after each of `ends` rounds, shape (len(ends), len(QUANTILES)).
        """
        n, slot = min(self._count, RESIDUALS), self._count % RESIDUALS
        known = self._residuals[:n] if n < RESIDUALS else np.roll(self._residuals, -slot)
        joined = np.concatenate((known, residuals))
        found = [_quantiles(joined[max(0, n + end - RESIDUALS) : n + end]) for end in ends]
        self._count += len(residuals)
        last = joined[-RESIDUALS:]
        self._residuals = np.zeros(RESIDUALS)
        self._residuals[: len(last)] = last
        if self._count > RESIDUALS:
            self._residuals = np.roll(last, self._count % RESIDUALS)
        return np.array(found).reshape(-1, len(QUANTILES))

    def add_delay(self, seconds: float, rounds: int = 1) -> None:
        """Add the delay between a prediction and its truth, for this many rounds."""
        self.delays[bisect_right(DELAYS_S, seconds)] += rounds

    @property
    def has_reliability(self) -> bool:
        return self._sure > 0.0

    def quantiles(self) -> tuple[float, ...]:
        """The QUANTILES of the last residuals; zeros before the first."""
        return _quantiles(self._residuals[: min(self._count, RESIDUALS)])

    def pack(self) -> dict[str, F64]:
        n = min(self._count, RESIDUALS)
        return {
            "reliability": self.reliability.copy(),
            "delays": self.delays.copy(),
            "residuals": self._residuals[:n].copy(),
            "counts": np.array([self._sure, self._count], dtype=np.float64),
        }

    @classmethod
    def unpack(cls, arrays: Mapping[str, Stored]) -> Spread:
        """Raises StateFormatError."""
        spread = cls()
        try:
            spread.reliability[:], spread.delays[:] = arrays["reliability"], arrays["delays"]
            residuals, (sure, count) = arrays["residuals"], arrays["counts"].tolist()
            spread._sure, spread._count = sure, count_in(count)
            if not all(np.isfinite(part).all() and part.min() >= 0.0 for part in (spread.reliability, spread.delays)):
                raise ValueError("a number of rounds is negative or infinite")
            if spread._count:
                spread._residuals = np.zeros(RESIDUALS)
                spread._residuals[: min(spread._count, RESIDUALS)] = residuals
        except (KeyError, ValueError, TypeError) as error:
            raise StateFormatError(f"the history's distributions cannot be read: {error}") from error
        return spread


def _quantiles(residuals: F64) -> tuple[float, ...]:
    if not len(residuals):
        return (0.0,) * len(QUANTILES)
    ranks = [math.ceil(q * len(residuals)) - 1 for q in QUANTILES]
    return tuple(np.partition(residuals, ranks)[ranks].tolist())
