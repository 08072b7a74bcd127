"""Symmetric matrices of which only one triangle is read and written."""

from __future__ import annotations

from typing import final

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.types import F64, Stored


@final
class Symmetric:
    """A symmetric matrix P, p x p, whose products and updates touch only p (p + 1) / 2 numbers.

    Examples
    --------
    >>> P = Symmetric.diagonal(2, 2.0)
    >>> P.add_outer(1.0, np.array([1.0, -1.0]))
    >>> P.times(np.array([1.0, 1.0]))
    array([2., 2.])
    """

    # A Fortran-ordered array, as BLAS expects; entries of the triangle that `floats` does not keep are arbitrary.
    __slots__ = ("_half", "floats")

    def __init__(self, lower: Stored, floats: FloatType = DOUBLE) -> None:
        self.floats = floats
        # Numbers out of the range of single precision become infinite; the next round that uses them is refused.
        with np.errstate(over="ignore"):
            self._half: Stored = np.asarray(lower if floats.lower else lower.T, dtype=floats.dtype, order="F")

    @classmethod
    def diagonal(cls, size: int, entry: float, floats: FloatType = DOUBLE) -> Symmetric:
        """Return a diagonal matrix with equal entries."""
        return cls(np.eye(size, order="F") * entry, floats)

    def __len__(self) -> int:
        return len(self._half)

    @property
    def nbytes(self) -> int:
        return self._half.nbytes

    def times(self, x: F64) -> F64:
        """Return P x, for x of shape (p,), p > 0."""
        return self.floats.widened(self.floats.symv(1.0, self._half, x, lower=self.floats.lower))

    def times_columns(self, X: F64) -> F64:
        """Return P X, Fortran-ordered, for X of shape (p, n)."""
        if not X.size:
            return np.zeros_like(X, order="F")
        return self.floats.widened(self.floats.symm(1.0, self._half, np.asfortranarray(X), lower=self.floats.lower))

    def add_outer(self, a: float, x: F64) -> None:
        """P <- P + a x x^T, for x of shape (p,), p > 0."""
        self.floats.syr(a, x, a=self._half, lower=self.floats.lower, overwrite_a=1)

    def add_gram(self, a: float, X: F64) -> None:
        """P <- P + a X X^T, for X of shape (p, n), p > 0."""
        self.floats.syrk(a, X, beta=1.0, c=self._half, lower=self.floats.lower, overwrite_c=1)

    def grow(self, count: int, entry: float) -> None:
        """Append `count` rows and columns of zeros, with `entry` on the diagonal."""
        size = len(self._half)
        grown = np.zeros((size + count, size + count), dtype=self.floats.dtype, order="F")
        grown[:size, :size] = self._half
        with np.errstate(over="ignore"):
            grown[range(size, size + count), range(size, size + count)] = entry
        self._half = grown

    @property
    def _lower(self) -> Stored:
        """The matrix, of which the lower triangle is the one that is kept."""
        return self._half if self.floats.lower else self._half.T

    def lower(self) -> F64:
        """Return a Fortran-ordered copy of the lower triangle, with zeros above."""
        return np.asarray(np.tril(self._lower), dtype=np.float64, order="F")

    def full(self) -> F64:
        """Return a copy of the whole matrix."""
        lower = self.lower()
        return lower + np.tril(lower, -1).T

    def pack(self) -> Stored:
        """Return the rows of the upper triangle, concatenated, shape (p (p + 1) / 2,)."""
        return self._lower.T[np.triu_indices(len(self))]

    @classmethod
    def unpack(cls, packed: Stored, size: int) -> Symmetric:
        """Restore a packed matrix. Raise StateFormatError if the number of entries does not fit."""
        if packed.shape != (size * (size + 1) // 2,):
            raise StateFormatError(f"{packed.shape} numbers are not the triangle of {size} features")
        floats = FloatType.in_which(packed)
        upper = np.zeros((size, size), dtype=floats.dtype)
        upper[np.triu_indices(size)] = packed
        return cls(upper.T, floats)
