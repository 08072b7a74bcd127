r"""A Mahalanobis metric: |x - x'|_M = sqrt((x - x')^T M (x - x')).

| symbol   | meaning                                                                  | shape            |
|----------|--------------------------------------------------------------------------|------------------|
| M        | the metric: symmetric, positive definite                                 | (d, d)           |
| lambda_m | eigenvalues of M over the largest: 1 = lambda_1 >= ... >= lambda_d       | (d,)             |
| root     | a matrix with root^T root = M / its largest eigenvalue                   | (d, d), or (d,)  |
| z        | root x, so that \|x - x'\|_M = \|z - z'\|                                | (d,)             |

A root of shape (d,) holds the diagonal of a diagonal matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, final

import numpy as np
from pydantic import Field
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import DivergedError, NotPositiveDefiniteError, StateFormatError
from okl_core.linalg.nearest import FARTHEST
from okl_core.types import F64, Stored

Entries = Annotated[list[float], Field(min_length=1, fail_fast=True)]
"""The diagonal, or one row, of a matrix in a config."""

Matrix = Annotated[list[Entries], Field(min_length=1, fail_fast=True)]
"""A matrix in a config, row by row."""

Rows = Sequence[Sequence[float] | F64] | F64
"""A matrix as lists or as an array."""

ASYMMETRY = 1e-12
"""Tolerated difference between M and M^T, relative to the largest entry: far more than rounding in the product
U diag(v) U^T of a thousand columns, far less than a typing error."""


def symmetric(M: Rows) -> F64:
    """Return M as a symmetric array, shape (d, d), removing differences between M and M^T due to rounding.

    Raises
    ------
    NotPositiveDefiniteError
        If M is not square, or M and M^T differ by more than `ASYMMETRY` of the largest entry.
    """
    if {len(row) for row in M} != {len(M)}:
        raise NotPositiveDefiniteError(f"a metric of {len(M)} rows needs rows of as many numbers")
    matrix = np.array(M, dtype=np.float64)
    # Halved first, since the sum or difference of two entries may overflow.
    half = 0.5 * matrix
    if not (np.abs(half - half.T) <= ASYMMETRY * np.abs(half).max()).all():
        raise NotPositiveDefiniteError("the metric is not symmetric")
    return half + half.T


def eigensystem(M: Rows) -> tuple[F64, F64]:
    """Return the eigenvalues of M, shape (d,), ascending, and its eigenvectors, the columns of a (d, d) array.

    Raise NotPositiveDefiniteError if M is not symmetric and positive definite.
    """
    values, U = np.linalg.eigh(symmetric(M))
    _require_positive(values)
    return values, U


class MetricFactor(NamedTuple):
    """Root and eigenvalues of a metric; symbols as in the module's table."""

    root: F64
    eigenvalues: F64


def factored(M: Sequence[float] | Rows) -> MetricFactor:
    """Return the root and eigenvalues of a matrix, shape (d, d), or of a diagonal, shape (d,).

    Raise NotPositiveDefiniteError if it is not symmetric and positive definite.

    Examples
    --------
    >>> factored([4.0, 1.0, 2.0])
    MetricFactor(root=array([1.        , 0.5       , 0.70710678]), eigenvalues=array([1.  , 0.5 , 0.25]))
    """
    rows = [row for row in M if isinstance(row, (Sequence, np.ndarray))]
    if not rows:
        diagonal = np.array(M, dtype=np.float64)
        values = np.sort(diagonal)
        _require_positive(values)
        return MetricFactor(np.sqrt(diagonal / values[-1]), values[::-1] / values[-1])
    values, U = eigensystem(rows)
    eigenvalues = values[::-1] / values[-1]
    return MetricFactor(np.ascontiguousarray(np.sqrt(eigenvalues)[:, None] * U.T[::-1]), eigenvalues)


def _require_positive(values: F64) -> None:
    """Raise NotPositiveDefiniteError if the first of ascending eigenvalues is 0 up to rounding, or negative."""
    if not values[0] > len(values) * np.finfo(np.float64).eps * values[-1]:
        raise NotPositiveDefiniteError(
            f"a metric is positive definite; the eigenvalues of this one are from {values[0]:g} to {values[-1]:g}"
        )


@final
class Metric:
    """The map from x to z, under which distances in the metric become Euclidean.

    The root belongs to the state: on another processor `factored` may differ in the last bits.
    """

    __slots__ = ("root",)

    def __init__(self, root: F64) -> None:
        self.root = root

    @property
    def dim(self) -> int:
        return len(self.root)

    @property
    def matrix(self) -> F64:
        """M, shape (d, d), scaled to a largest eigenvalue of 1."""
        return np.diag(self.root**2) if self.root.ndim == 1 else self.root.T @ self.root

    @property
    def nbytes(self) -> int:
        return self.root.nbytes

    def map(self, x: F64) -> F64:
        """Return z for x, shape (d,). Raise DivergedError if x is so large that squared distances could overflow."""
        # Summed in a fixed order, not by BLAS: one input alone and in a block must give the same bits.
        terms = self.root * x if self.root.ndim == 1 else np.multiply(self.root.T, x[:, None], order="C")
        z = terms if terms.ndim == 1 else np.add.reduce(terms, axis=0)
        if not ddot(z, z) <= FARTHEST:
            raise _too_large(x)
        return z

    def map_block(self, columns: F64) -> F64:  # columns: (d, n)
        """Apply `map` to n inputs, one per column: shape (d, n)."""
        if self.root.ndim == 1:
            Z = self.root[:, None] * columns
        else:
            Z = self.root[:, :1] * columns[0]
            for j in range(1, self.dim):
                Z += self.root[:, j, None] * columns[j]
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->j", Z, Z)
        if not (squares <= FARTHEST).all():
            raise _too_large(columns[:, np.argmax(squares)])
        return Z

    def pack(self) -> dict[str, F64]:
        return {"root": self.root.copy()}

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> Metric:
        root = arrays["root"]
        if root.ndim not in (1, 2) or root.shape != (len(root),) * root.ndim:
            raise StateFormatError(f"a metric with a root of shape {root.shape}")
        return cls(np.array(root, dtype=np.float64, order="C"))


def _too_large(x: F64) -> DivergedError:
    return DivergedError(f"an input with entries of {np.abs(x).max():g}: distances would overflow; scale it down")
