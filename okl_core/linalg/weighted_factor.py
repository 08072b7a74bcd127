r"""A weighted set of features, A = alpha I + sum_i w_i phi_i phi_i^T, as the Cholesky factor of its kernel form.

| symbol | meaning                                                                  | shape      |
|--------|--------------------------------------------------------------------------|------------|
| D      | diag(sqrt(w_i))                                                          | (k, k)     |
| L      | lower Cholesky factor of D K D + alpha I                                 | (k, k)     |
| z      | L^{-1} D k(x), k(x) the kernel row of an input                           | (k,)       |
| v      | kappa - z^T z = alpha phi^T A^{-1} phi, its posterior variance times alpha |            |

A point that joins with the weight w adds the row [sqrt(w) z, sqrt(alpha + w v)] to L: rank-one updates, and nothing is
inverted. The exact learners keep all their rounds with weight in such a factor, and row sampling its dictionary.

In a block of n inputs, S = K - Z^T Z holds the posterior covariances, and point j leaves S - u u^T, u = sqrt(w) S_j / delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import StateFormatError
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.types import F64, StatePart


@final
@dataclass(slots=True)
class WeightedFactor(StatePart):
    """`roots` are sqrt(w_i), `L` the factor; the points are kept by the owner."""

    roots: GrowingArray
    L: Factor

    def __post_init__(self) -> None:
        if self.roots.view.shape != (len(self.L),):
            raise StateFormatError(f"weights of shape {self.roots.view.shape} with {len(self.L)} rows of their factor")

    @classmethod
    def empty(cls, floats: FloatType = DOUBLE) -> WeightedFactor:
        """L is kept in these."""
        return cls(GrowingArray(), Factor(floats))

    def __len__(self) -> int:
        return len(self.roots)

    def solve(self, rows: F64) -> F64:
        """z from a kernel row, shape (k,), or Z from n of them, (k, n)."""
        return self.L.solve((self.roots.view if rows.ndim == 1 else self.roots.view[:, None]) * rows)

    def append(self, z: F64, root: float, diagonal: float) -> None:
        """A point joins with its z, sqrt(w) = `root`, and sqrt(alpha + w v) = `diagonal`: O(k)."""
        self.L.append(root * z, diagonal)
        self.roots.append(root)


@final
class WeightedBlock:
    """n inputs that may join one by one. K: (n, n), their kernel matrix; rows: (k, n), that of the points with them."""

    def __init__(self, factor: WeightedFactor, K: F64, rows: F64) -> None:
        self.factor = factor
        self.Z = factor.solve(rows)
        self.S = K - self.Z.T @ self.Z
        self.U = np.empty_like(K)
        self.joined: list[tuple[int, float, float]] = []
        """Place, sqrt(w) and sqrt(alpha + w v) of those that have joined."""

    def variance(self, j: int) -> float:
        """v of input j, given all that have joined; rounding may leave it below 0."""
        return self.S.item(j, j)

    def join(self, j: int, root: float, diagonal: float) -> F64:
        """Input j joins: O(n^2). Its u for the inputs after it, shape (n - j - 1,)."""
        later = slice(j + 1, None)
        u = np.multiply(self.S[j], root / diagonal, out=self.U[len(self.joined)])[later]
        self.S[later, later] -= u[:, None] * u
        self.joined.append((j, root, diagonal))
        return u

    def join_all(self, roots: F64, alpha: float) -> F64 | None:
        """All inputs join at once, with sqrt(w) = `roots`: O(n^3). Their part of L, shape (n, n).

        None, and nobody joins, where rounding has made D S D + alpha I indefinite.
        """
        A = roots[:, None] * self.S * roots
        A[np.diag_indices_from(A)] += alpha
        L, has_failed = dpotrf(A, lower=1, clean=1)
        if has_failed:
            return None
        self.U[:] = (L / roots[:, None]).T
        self.joined += zip(range(len(L)), roots.tolist(), L.diagonal().tolist(), strict=True)
        return L

    def settle(self) -> None:
        """Carry those that joined into the factor."""
        # A copy by rows: reading columns of Z one by one would touch a cache line for every entry.
        rows = self.Z.T[[j for j, _, _ in self.joined]]
        for i, (j, root, diagonal) in enumerate(self.joined):
            # The part of z that belongs to the points of the block before j is the column of U.
            self.factor.L.append(root * np.concatenate((rows[i], self.U[:i, j])), diagonal)
        self.factor.roots.extend(np.array([root for _, root, _ in self.joined]))


def diagonal_entry(alpha: float, root: float, variance: float) -> float:
    """sqrt(alpha + w v)."""
    return math.sqrt(alpha + root * root * variance)
