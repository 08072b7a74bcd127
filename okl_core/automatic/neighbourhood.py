r"""A nearest-neighbour regression on the last rounds, weighted by the inverse eighth power of the distance.

| symbol | meaning                                              | shape  |
|--------|------------------------------------------------------|--------|
| W      | window: number of rounds remembered                  |        |
| Z      | the last W inputs, in units of their length scales   | (W, d) |
| rows   | Z encoded for one matrix product: [-2 z, \|z\|^2, 1] |        |
| Y      | the truths of the last W rounds                      | (W, k) |

    f(z) = sum_i v_i y_i / sum_i v_i,   v_i = (|z - z_i|^2 + NEAREST)^{-4}

is the Hilbert kernel estimate. It has no bandwidth and needs no sorting, so the forecast is continuous in all its arguments.

References: [devroye1998].
"""

from __future__ import annotations

from typing import final

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.types import F64

NEAREST = 1e-3
"""Squared distance, in length scales, below which inputs count as equal: far above the rounding of the matrix product."""


@final
class Neighbourhood:
    """The last W rounds, with round i in row i mod W; `count` is the number of all rounds so far."""

    __slots__ = ("Y", "count", "rows", "window")

    def __init__(self, window: int, dim: int, truths: int) -> None:
        self.window, self.count = window, 0
        self.rows, self.Y = np.empty((0, dim + 2)), np.empty((0, truths))

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.Y.nbytes

    def __len__(self) -> int:
        return min(self.count, self.window)

    def forecast(self, z: F64) -> F64:
        """f(z) for z of shape (d,); 0 before the first round. O(W d)."""
        size = len(self)
        if not size:
            return np.zeros(self.Y.shape[1])
        v = inverse_powers(self.rows[:size], asked(z[None, :]))[:, 0]
        return (v @ self.Y[:size]) / v.sum()

    def learn(self, Z: F64, Y: F64) -> F64:
        """Learn n rounds, Z of shape (n, d) and Y of shape (n, k), and return each forecast from the W rounds before it."""
        n, size = len(Z), len(self)
        V = inverse_powers(np.concatenate((self.rows[:size], encoded(Z))), asked(Z))
        # A round is a neighbour only of the W rounds after it.
        V[size:] *= np.triu(np.ones((n, n)), 1) * np.tri(n, n, self.window)
        last = self.count - 1
        rounds = last - (last - np.arange(size)) % self.window
        leaving = np.flatnonzero(rounds < self.count + n - 1 - self.window)
        V[leaving] *= self.count + np.arange(n) - rounds[leaving, None] <= self.window
        sums = V.sum(axis=0)
        forecasts = V.T @ np.concatenate((self.Y[:size], Y))
        forecasts /= np.where(sums > 0.0, sums, 1.0)[:, None]
        self.remember(Z, Y)
        return forecasts

    def remember(self, Z: F64, Y: F64) -> None:
        """Remember n rounds, Z of shape (n, d) and Y of shape (n, k)."""
        n = len(Z)
        needed = min(self.count + n, self.window)
        if needed > len(self.Y):
            more = min(max(needed, 2 * len(self.Y)), self.window) - len(self.Y)
            self.rows = np.concatenate((self.rows, np.zeros((more, self.rows.shape[1]))))
            self.Y = np.concatenate((self.Y, np.zeros((more, self.Y.shape[1]))))
        kept = min(n, self.window)
        places = (self.count + np.arange(n - kept, n)) % self.window
        self.rows[places], self.Y[places] = encoded(Z[n - kept :]), Y[n - kept :]
        self.count += n

    def add_truths(self, count: int) -> None:
        self.Y = np.hstack((self.Y, np.zeros((len(self.Y), count))))

    def pack(self) -> dict[str, F64]:
        size, numbers = len(self), np.array([float(self.window), float(self.count)])
        return {"rows": self.rows[:size].copy(), "Y": self.Y[:size].copy(), "numbers": numbers}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Neighbourhood:
        rows, Y, (window, count) = arrays["rows"], arrays["Y"], arrays["numbers"].astype(int).tolist()
        if rows.ndim != 2 or Y.ndim != 2 or not len(rows) == len(Y) == min(window, count):
            raise StateFormatError(f"{count} rounds in a window of {window}, with {rows.shape} and {Y.shape} numbers")
        neighbours = cls(window, rows.shape[1] - 2, Y.shape[1])
        neighbours.rows, neighbours.Y, neighbours.count = rows.copy(), Y.copy(), count
        return neighbours


def encoded(Z: F64) -> F64:
    """Rows [-2 z, |z|^2, 1] of Z, shape (n, d): their product with [a, 1, |a|^2 + NEAREST] is |z - a|^2 + NEAREST."""
    rows = np.empty((len(Z), Z.shape[1] + 2))
    np.multiply(Z, -2.0, out=rows[:, :-2])
    np.einsum("ij,ij->i", Z, Z, out=rows[:, -2])
    rows[:, -1] = 1.0
    return rows


def asked(Z: F64) -> F64:
    """Columns [a, 1, |a|^2 + NEAREST] of Z, shape (n, d)."""
    columns = np.empty((Z.shape[1] + 2, len(Z)))
    columns[:-2] = Z.T
    columns[-2] = 1.0
    columns[-1] = np.einsum("ij,ij->i", Z, Z)
    columns[-1] += NEAREST
    return columns


def inverse_powers(rows: F64, columns: F64) -> F64:
    """v, shape (n, m), for `encoded` rows and `asked` columns."""
    v = rows @ columns
    np.maximum(v, NEAREST, out=v)
    v *= v
    v *= v
    return np.reciprocal(v, out=v)
