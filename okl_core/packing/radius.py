r"""The radius of the balls of a packing, which shrinks more slowly the more directions matter in the metric.

| symbol   | meaning                                                                  | shape |
|----------|--------------------------------------------------------------------------|-------|
| lambda_m | eigenvalues of the metric, 1 = lambda_1 >= ... >= lambda_d > 0           | (d,)  |
| kappa    | kappa(r, t) = max {m : lambda_m >= t^(-2 / (1 + r))}                     |       |
| rho_t    | effective rank: how many directions matter by round t,                   |       |
|          | min {r : kappa(r, t) <= r}, from 1 to d and never falling                |       |
| eps_t    | radius of all balls in round t, t^(-1 / (1 + rho_t))                     |       |

References: [kuzborskij2017] equations (5), (6).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import final

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.types import F64

MOST_ROUNDS = 32.0
"""Natural logarithm of a number of rounds that no stream reaches."""


def effective_rank(eigenvalues: F64, t: int) -> int:
    """Return rho_t of a metric with these eigenvalues, shape (d,).

    Examples
    --------
    >>> [effective_rank(np.array([1.0, 0.01]), t) for t in (1, 99, 100)]
    [1, 1, 2]
    """
    return Radius(eigenvalues).rank(t)


@final
class Radius:
    """rho_t and eps_t of one metric, for every t.

    The eigenvalues belong to the state: their last bits decide in which round the rank rises.
    """

    __slots__ = ("_rises", "eigenvalues")

    def __init__(self, eigenvalues: F64) -> None:
        self.eigenvalues = eigenvalues
        self._rises = _rises(eigenvalues)

    @property
    def nbytes(self) -> int:
        return self.eigenvalues.nbytes

    def rank(self, t: int) -> int:
        """Return rho_t, t >= 1."""
        return 1 + bisect_right(self._rises, t)

    def at(self, t: int) -> float:
        """Return eps_t, t >= 1."""
        return t ** (-1.0 / (1.0 + self.rank(t)))

    def during(self, t: int, rounds: int) -> list[float]:
        """Return eps of `rounds` rounds from t on, the same numbers as `at`."""
        radii: list[float] = []
        while len(radii) < rounds:
            first, rank = t + len(radii), self.rank(t + len(radii))
            last = min([t + rounds, *self._rises[rank - 1 : rank]])
            power = -1.0 / (1.0 + rank)
            radii += [u**power for u in range(first, int(last))]
        return radii

    def pack(self) -> dict[str, F64]:
        return {"eigenvalues": self.eigenvalues.copy()}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Radius:
        eigenvalues = np.array(arrays["eigenvalues"], order="C")
        descends = eigenvalues.ndim == 1 and (np.diff(eigenvalues) <= 0.0).all() and (eigenvalues > 0.0).all()
        if not descends or eigenvalues[:1].tolist() != [1.0]:
            raise StateFormatError("eigenvalues of a metric are positive and descend from 1, shape (d,)")
        return cls(eigenvalues)


def _rises(eigenvalues: F64) -> list[float]:
    """Return the first t at which the rank exceeds 1, 2, ..., d - 1; ascending as lambda descends, possibly infinite."""
    return [_first_above(r, eigenvalue) for r, eigenvalue in enumerate(eigenvalues[1:].tolist(), start=1)]


def _first_above(r: int, eigenvalue: float) -> float:
    """Return the first t with kappa(r, t) > r, which is the first with lambda_{r+1} >= t^(-2 / (1 + r))."""
    if math.log(eigenvalue) * -0.5 * (1 + r) > MOST_ROUNDS:
        return math.inf
    t = math.ceil(eigenvalue ** (-0.5 * (1 + r)))
    # Rounding may have moved t across the threshold, so check the definition.
    while t > 1 and eigenvalue >= (t - 1) ** (-2.0 / (1 + r)):
        t -= 1
    while eigenvalue < t ** (-2.0 / (1 + r)):
        t += 1
    return t
