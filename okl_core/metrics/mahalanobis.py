r"""A Mahalanobis metric, and its effective rank: how many of its directions matter after t rounds.

| symbol   | meaning                                                                      | shape  |
|----------|------------------------------------------------------------------------------|--------|
| M        | the metric, positive definite, divided by its largest eigenvalue             | (d, d) |
| lambda_m | its eigenvalues, 1 = lambda_1 >= ... >= lambda_d                             | (d,)   |
| z        | root x with root^T root = M: \|x - x'\|_M = \|z - z'\|                       | (d,)   |
| kappa    | kappa(r, t) = max {m : lambda_m >= t^(-2 / (1 + r))}                         |        |
| rho_t    | effective rank, min {r : kappa(r, t) <= r}                                   |        |

References: [kuzborskij2017] equations (5), (6).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import DivergedError, NotPositiveDefiniteError, StateFormatError
from okl_core.linalg.nearest import FARTHEST
from okl_core.types import F64

MOST_ROUNDS = 32.0
"""Natural logarithm of a number of rounds that no stream has."""


def rank_ends(eigenvalues: F64) -> list[float]:
    """The t from which on the effective rank is above 1, 2, ..., d - 1; ascending. Eigenvalues as in `effective_rank`."""
    ends: list[float] = []
    for r, eigenvalue in enumerate(eigenvalues[1:].tolist(), start=1):
        end = _first_above(r, eigenvalue)
        ends.append(max(end, ends[-1]) if ends else end)
    return ends


def _first_above(r: int, eigenvalue: float) -> float:
    """The first t with kappa(r, t) > r, that is with lambda_{r+1} >= t^(-2 / (1 + r))."""
    if math.log(eigenvalue) * -0.5 * (1 + r) > MOST_ROUNDS:
        return math.inf
    t = math.ceil(eigenvalue ** (-0.5 * (1 + r)))
    # The definition decides, where rounding leaves room for doubt.
    while t > 1 and eigenvalue >= (t - 1) ** (-2.0 / (1 + r)):
        t -= 1
    while eigenvalue < t ** (-2.0 / (1 + r)):
        t += 1
    return t


def effective_rank(eigenvalues: F64, t: int) -> int:
    """rho_t of a metric with these eigenvalues, shape (d,), descending from 1, all positive.

    Examples
    --------
    >>> [effective_rank(np.array([1.0, 0.01]), t) for t in (1, 99, 100)]
    [1, 1, 2]
    """
    return 1 + bisect_right(rank_ends(eigenvalues), t)


def symmetric(M: Sequence[Sequence[float]] | F64) -> F64:
    """M as an array, shape (d, d). Raises NotPositiveDefiniteError if it is not square and symmetric."""
    if {len(row) for row in M} != {len(M)}:
        raise NotPositiveDefiniteError(f"a metric of {len(M)} rows needs rows of as many numbers")
    matrix = np.array(M, dtype=np.float64)
    if not (matrix == matrix.T).all():
        raise NotPositiveDefiniteError("the metric is not symmetric")
    return matrix


@final
class Metric:
    """M as the module's table has it.

    `root` is of shape (d, d), or (d,) if M is diagonal. It is state: another processor would compute other last bits.
    """

    __slots__ = ("_ends", "eigenvalues", "root")

    def __init__(self, root: F64, eigenvalues: F64) -> None:
        self.root = root
        self.eigenvalues = eigenvalues
        self._ends = rank_ends(eigenvalues)

    @classmethod
    def of(cls, M: F64) -> Metric:
        """The metric of a matrix, shape (d, d), or of a diagonal, shape (d,). Raises NotPositiveDefiniteError."""
        if M.ndim == 1:
            largest, smallest = float(M.max()), float(M.min())
            values, directions = np.sort(M)[::-1], None
        else:
            ascending, U = np.linalg.eigh(M)
            largest, smallest = float(ascending[-1]), float(ascending[0])
            values, directions = ascending[::-1], U.T[::-1]
        if not smallest > len(M) * np.finfo(np.float64).eps * largest:
            raise NotPositiveDefiniteError(
                f"a metric is positive definite; the eigenvalues of this one are from {smallest:g} to {largest:g}"
            )
        eigenvalues = np.ascontiguousarray(values / largest)
        if directions is None:
            return cls(np.sqrt(M / largest), eigenvalues)
        return cls(np.ascontiguousarray(np.sqrt(eigenvalues)[:, None] * directions), eigenvalues)

    @classmethod
    def identity(cls, dim: int) -> Metric:
        return cls(np.ones(dim), np.ones(dim))

    @property
    def dim(self) -> int:
        return len(self.eigenvalues)

    @property
    def matrix(self) -> F64:
        """M, shape (d, d)."""
        return np.diag(self.root**2) if self.root.ndim == 1 else self.root.T @ self.root

    @property
    def nbytes(self) -> int:
        return self.root.nbytes + self.eigenvalues.nbytes

    def rank(self, t: int) -> int:
        """rho_t."""
        return 1 + bisect_right(self._ends, t)

    def radius(self, t: int) -> float:
        """eps_t."""
        return t ** (-1.0 / (1.0 + self.rank(t)))

    def map(self, x: F64) -> F64:
        """z of x, shape (d,). Raises DivergedError if it is so large that squared distances could overflow."""
        # Sums in a fixed order, not those of BLAS: one input alone and in a block must give the same bits.
        terms = self.root * x if self.root.ndim == 1 else np.multiply(self.root.T, x[:, None], order="C")
        z = terms if terms.ndim == 1 else np.add.reduce(terms, axis=0)
        if not ddot(z, z) <= FARTHEST:
            raise _too_large(x)
        return z

    def map_block(self, X: F64) -> F64:  # X: (n, d)
        """The same of n inputs, shape (d, n)."""
        if self.root.ndim == 1:
            Z = self.root[:, None] * X.T
        else:
            Z = self.root[:, :1] * X[:, 0]
            for j in range(1, self.dim):
                Z += self.root[:, j, None] * X[:, j]
        with np.errstate(over="ignore"):
            norms = np.einsum("ij,ij->j", Z, Z)
        if not (norms <= FARTHEST).all():
            raise _too_large(X[np.argmax(norms)])
        return Z

    def pack(self) -> dict[str, F64]:
        return {"root": self.root.copy(), "eigenvalues": self.eigenvalues.copy()}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Metric:
        root, eigenvalues = arrays["root"], arrays["eigenvalues"]
        d = len(eigenvalues)
        if root.shape not in ((d,), (d, d)):
            raise StateFormatError(f"a metric with a root of shape {root.shape} and {d} eigenvalues")
        return cls(np.array(root, order="C"), np.array(eigenvalues, order="C"))


def _too_large(x: F64) -> DivergedError:
    return DivergedError(f"an input with entries of {np.abs(x).max():g}: distances would overflow; scale it down")
