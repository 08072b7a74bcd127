r"""The truths of the inputs nearby among the last rounds, weighed by the inverse eighth power of the distance.

| symbol | meaning                                              | shape  |
|--------|------------------------------------------------------|--------|
| W      | window: rounds that are remembered                   |        |
| Z      | the last W inputs, in units of their length scales   | (W, d) |
| Y      | their truths                                         | (W, k) |

    f(z) = sum_i v_i y_i / sum_i v_i,   v_i = (|z - z_i|^2 + NEAREST)^{-4}

is the Hilbert kernel estimate: no bandwidth, and no sorting, so that the forecast is a continuous function of all numbers.

References: [devroye1998].
"""

from __future__ import annotations

from typing import final

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.types import F64

NEAREST = 1e-3
"""Squared distance, in length scales, below which inputs are the same: far above what a product of matrices loses of one."""


@final
class Neighbourhood:
    """The last W rounds; up to as many older ones wait to be dropped at once."""

    __slots__ = ("Y", "Z", "_start", "_stop", "window")

    def __init__(self, window: int, dim: int, truths: int, capacity: int = 16) -> None:
        self.window = window
        self.Z, self.Y = np.empty((capacity, dim)), np.empty((capacity, truths))
        self._start = self._stop = 0

    @property
    def nbytes(self) -> int:
        return self.Z.nbytes + self.Y.nbytes

    def __len__(self) -> int:
        return self._stop - self._start

    def forecast(self, z: F64) -> F64:
        """f of z, shape (d,); 0 before the first round. O(W d)."""
        kept = slice(self._start, self._stop)
        if not len(self):
            return np.zeros(self.Y.shape[1])
        v = inverse_powers(self.Z[kept], z[None, :])[:, 0]
        return (v @ self.Y[kept]) / v.sum()

    def learn(self, Z: F64, Y: F64) -> F64:
        """Remember n rounds, Z of shape (n, d) and Y of shape (n, k); their forecasts, each from the W rounds before it."""
        n, old = len(Z), len(self)
        self._append(Z, Y)
        kept = slice(self._stop - n - old, self._stop)
        V = inverse_powers(self.Z[kept], Z)
        age = old + np.arange(n) - np.arange(old + n)[:, None]
        V *= (age > 0) & (age <= self.window)
        sums = V.sum(axis=0)
        forecasts = V.T @ self.Y[kept]
        forecasts /= np.where(sums > 0.0, sums, 1.0)[:, None]
        self._start = max(self._start, self._stop - self.window)
        return forecasts

    def remember(self, z: F64, y: F64) -> None:
        """One round."""
        self._append(z[None, :], y[None, :])
        self._start = max(self._start, self._stop - self.window)

    def add_truths(self, count: int) -> None:
        self.Y = np.hstack((self.Y, np.zeros((len(self.Y), count))))

    def _append(self, Z: F64, Y: F64) -> None:
        n, old = len(Z), len(self)
        if self._stop + n > len(self.Z):
            kept = slice(self._start, self._stop)
            capacity = min(2 * (old + n), 2 * self.window + n)
            Z_new, Y_new = np.empty((capacity, self.Z.shape[1])), np.zeros((capacity, self.Y.shape[1]))
            Z_new[:old], Y_new[:old] = self.Z[kept], self.Y[kept]
            self.Z, self.Y, self._start, self._stop = Z_new, Y_new, 0, old
        self.Z[self._stop : self._stop + n] = Z
        self.Y[self._stop : self._stop + n] = Y
        self._stop += n

    def pack(self) -> dict[str, F64]:
        kept = slice(self._start, self._stop)
        return {"Z": self.Z[kept].copy(), "Y": self.Y[kept].copy(), "window": np.array(float(self.window))}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Neighbourhood:
        Z, Y, window = arrays["Z"], arrays["Y"], int(arrays["window"])
        if Z.ndim != 2 or Y.ndim != 2 or len(Z) != len(Y) or not len(Z) <= window:
            raise StateFormatError(f"a window of {window} rounds with inputs {Z.shape} and truths {Y.shape}")
        made = cls(window, Z.shape[1], Y.shape[1], capacity=max(16, len(Z)))
        made._append(Z, Y)
        return made


def inverse_powers(Z: F64, A: F64) -> F64:
    """v, shape (n, m), for Z of shape (n, d) and A of shape (m, d)."""
    v = Z @ (-2.0 * A.T)
    v += np.einsum("ij,ij->i", Z, Z)[:, None]
    v += np.einsum("ij,ij->i", A, A)
    np.maximum(v, 0.0, out=v)
    v += NEAREST
    v *= v
    v *= v
    return np.reciprocal(v, out=v)
