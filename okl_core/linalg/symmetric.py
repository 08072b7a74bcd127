"""Symmetric matrices that are read and written by one triangle."""

from __future__ import annotations

from typing import final

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.types import F64, Stored


@final
class Symmetric:
    """A symmetric matrix P, p x p: a product with it, and an update of it, touch p (p + 1) / 2 numbers.

    Examples
    --------
    >>> P = Symmetric.diagonal(2, 2.0)
    >>> P.add_outer(1.0, np.array([1.0, -1.0]))
    >>> P.times(np.array([1.0, 1.0]))
    array([2., 2.])
    """

    # BLAS wants columns: a Fortran-ordered array of which the lower triangle counts, and what is above is any number.
    __slots__ = ("_lower", "floats")

    def __init__(self, lower: Stored, floats: FloatType = DOUBLE) -> None:
        self.floats = floats
        # What is beyond single precision is infinite, and the next round that meets it overflows.
        with np.errstate(over="ignore"):
            self._lower: Stored = np.asarray(lower, dtype=floats.dtype, order="F")

    @classmethod
    def diagonal(cls, size: int, entry: float, floats: FloatType = DOUBLE) -> Symmetric:
        """A diagonal matrix with equal entries."""
        return cls(np.eye(size, order="F") * entry, floats)

    def __len__(self) -> int:
        return len(self._lower)

    @property
    def nbytes(self) -> int:
        return self._lower.nbytes

    def times(self, x: F64) -> F64:
        """P x, for x of shape (p,), p > 0."""
        return self.floats.widened(self.floats.symv(1.0, self._lower, x, lower=1))

    def times_columns(self, X: F64) -> F64:
        """P X, Fortran-ordered, for X of shape (p, n)."""
        if not X.size:
            return np.zeros_like(X, order="F")
        return self.floats.widened(self.floats.symm(1.0, self._lower, np.asfortranarray(X), lower=1))

    def add_outer(self, a: float, x: F64) -> None:
        """P <- P + a x x^T, for x of shape (p,), p > 0."""
        self.floats.syr(a, x, a=self._lower, lower=1, overwrite_a=1)

    def add_gram(self, a: float, X: F64) -> None:
        """P <- P + a X X^T, for X of shape (p, n), p > 0."""
        self.floats.syrk(a, X, beta=1.0, c=self._lower, lower=1, overwrite_c=1)

    def grow(self, count: int, entry: float) -> None:
        """Add rows and columns of zeros, with this entry on the diagonal."""
        size = len(self._lower)
        grown = np.zeros((size + count, size + count), dtype=self.floats.dtype, order="F")
        grown[:size, :size] = self._lower
        with np.errstate(over="ignore"):
            grown[range(size, size + count), range(size, size + count)] = entry
        self._lower = grown

    def lower(self) -> F64:
        """The lower triangle, zeros above: a Fortran-ordered copy."""
        return np.asarray(np.tril(self._lower), dtype=np.float64, order="F")

    def full(self) -> F64:
        """Both triangles, a copy."""
        lower = self.lower()
        return lower + np.tril(lower, -1).T

    def pack(self) -> Stored:
        """The rows of the upper triangle one after the other, shape (p (p + 1) / 2,)."""
        return self._lower.T[np.triu_indices(len(self._lower))]

    @classmethod
    def unpack(cls, packed: Stored, size: int) -> Symmetric:
        """Raises StateFormatError for another number of numbers."""
        if packed.shape != (size * (size + 1) // 2,):
            raise StateFormatError(f"{packed.shape} numbers are not the triangle of {size} features")
        floats = FloatType.in_which(packed)
        upper = np.zeros((size, size), dtype=floats.dtype)
        upper[np.triu_indices(size)] = packed
        return cls(upper.T, floats)
