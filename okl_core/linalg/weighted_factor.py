r"""A weighted set of features, A = alpha I + sum_i w_i phi_i phi_i^T, as the Cholesky factor of its kernel form.

| symbol | meaning                                                                  | shape      |
|--------|--------------------------------------------------------------------------|------------|
| D      | diag(sqrt(w_i))                                                          | (k, k)     |
| L      | lower Cholesky factor of D K D + alpha I                                 | (k, k)     |
| z      | L^{-1} D k(x), k(x) the kernel row of an input                           | (k,)       |
| v      | kappa - z^T z = alpha phi^T A^{-1} phi, its posterior variance times alpha |            |

Adding a point with weight w appends the row [sqrt(w) z, sqrt(alpha + w v)] to L: no matrix is inverted. The exact learners
keep every round with weight in such a factor; row sampling keeps its dictionary in one.

In a block of n inputs, S = K - Z^T Z holds the posterior covariances. Adding point j replaces S by S - u u^T, with
u = sqrt(w) S_j / delta and delta = sqrt(alpha + w v).
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
    """The weights' square roots sqrt(w_i) and the factor L; the owner keeps the points."""

    roots: GrowingArray
    L: Factor

    def __post_init__(self) -> None:
        if self.roots.view.shape != (len(self.L),):
            raise StateFormatError(f"weights of shape {self.roots.view.shape} with {len(self.L)} rows of their factor")

    @classmethod
    def empty(cls, floats: FloatType = DOUBLE) -> WeightedFactor:
        """Return a factor without points; L is kept in this precision."""
        return cls(GrowingArray(), Factor(floats))

    def __len__(self) -> int:
        return len(self.roots)

    def solve(self, rows: F64) -> F64:
        """Return z for a kernel row, shape (k,), or Z for n of them, shape (k, n)."""
        return self.L.solve((self.roots.view if rows.ndim == 1 else self.roots.view[:, None]) * rows)

    def append(self, z: F64, root: float, diagonal: float) -> None:
        """Add a point, given its z, sqrt(w) as `root`, and sqrt(alpha + w v) as `diagonal`: O(k)."""
        self.L.append(root * z, diagonal)
        self.roots.append(root)


@final
class WeightedBlock:
    """n inputs that may join the factor one by one.

    K, shape (n, n), is their kernel matrix; `rows`, shape (k, n), are the kernel values between the points and them.
    """

    def __init__(self, factor: WeightedFactor, K: F64, rows: F64) -> None:
        self.factor = factor
        self.Z = factor.solve(rows)
        self.S = K - self.Z.T @ self.Z
        self.U = np.empty_like(K)
        self.joined: list[tuple[int, float, float]] = []
        """Index, sqrt(w) and sqrt(alpha + w v) of each input that has joined."""

    def variance(self, j: int) -> float:
        """Return v of input j, given all that have joined; rounding may leave it below 0."""
        return self.S.item(j, j)

    def join(self, j: int, root: float, diagonal: float) -> F64:
        """Add input j, in O(n^2). Return its u for the inputs after it, shape (n - j - 1,)."""
        later = slice(j + 1, None)
        u = np.multiply(self.S[j], root / diagonal, out=self.U[len(self.joined)])[later]
        self.S[later, later] -= u[:, None] * u
        self.joined.append((j, root, diagonal))
        return u

    def join_all(self, roots: F64, alpha: float) -> F64 | None:
        """Add all inputs at once, with sqrt(w) in `roots`, in O(n^3). Return their part of L, shape (n, n).

        If rounding has made D S D + alpha I indefinite, return None and add none.
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
        """Append the inputs that joined to the factor."""
        # Copied by rows: reading columns of Z one by one would touch a cache line for every entry.
        rows = self.Z.T[[j for j, _, _ in self.joined]]
        for i, (j, root, diagonal) in enumerate(self.joined):
            # Column j of U is the part of z that belongs to earlier inputs of the block.
            self.factor.L.append(root * np.concatenate((rows[i], self.U[:i, j])), diagonal)
        self.factor.roots.extend(np.array([root for _, root, _ in self.joined]))


def diagonal_entry(alpha: float, root: float, variance: float) -> float:
    """Return sqrt(alpha + w v)."""
    return math.sqrt(alpha + root * root * variance)
