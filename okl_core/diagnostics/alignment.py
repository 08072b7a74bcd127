r"""How well a kernel fits the labels, and what an optimistic learner can expect of it.

| symbol    | meaning                                                                                       |
|-----------|-----------------------------------------------------------------------------------------------|
| kappa_t   | k(x_t, x_t); D bounds it                                                                      |
| y^T K y   | the polarization \|sum_t y_t phi_t\|^2                                                        |
| A_T       | the alignment sum_t kappa_t - y^T K y / T                                                     |
| delta_t   | max(kappa_t - 2 y_t mean_r y_{t-r} k(x_{t-r}, x_t), 0), the mean over r = 1 .. min(t - 1, M)  |

For labels in {-1, +1}, A_T is the sum of the squared distances of y_t phi_t to their mean: the smaller it is, the better
the kernel tells the classes apart. Optimistic descent pays sqrt(sum delta_t), and sum delta_t <= 4 A_T + D, whatever M is.

References: [li2023] section 3 and corollary 1, whose 7 D is D here: the first M guesses are running means.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations_with_replacement
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import ConfigError, NonFiniteError, ShapeError
from okl_core.kernels.kernels import Kernel, Linear, Polynomial
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64

BLOCK = 512
"""Rounds whose kernel values are in memory at once, BLOCK^2 of them."""

MAX_FEATURES = 4096
"""A kernel with at most so many features sums them, instead of recording the stream."""


@final
class RunningAlignment:
    """y^T K y and A_t of the first t rounds, for every t, of a stream that comes in pieces.

    Parameters
    ----------
    kernel : Kernel
        A linear or polynomial one with at most MAX_FEATURES features F takes O(F) memory and O(F) time a round. Any other
        records the stream, in O(t d), and compares each round with all before it, in O(t d).
    dim : int
        d >= 1.

    Examples
    --------
    >>> alignment = RunningAlignment(Linear(), 1)
    >>> alignment.extend(np.array([[1.0], [2.0], [-1.0]]), np.array([1.0, 1.0, -1.0]))
    array([ 1.,  9., 16.])
    >>> alignment.polarization, round(alignment.value, 4)
    (16.0, 0.6667)
    """

    def __init__(self, kernel: Kernel, dim: int) -> None:
        self.kernel = kernel
        self.dim = dim
        self.t = 0
        self.trace = 0.0
        """sum_t kappa_t."""
        self.polarization = 0.0
        """y^T K y."""
        self._features = _Features.of(kernel, dim)
        self._sum = np.zeros(0 if self._features is None else len(self._features.weights))
        # What is recorded where there are no features.
        self._X, self._y = GrowingArray(dim), GrowingArray()

    @property
    def value(self) -> float:
        """A_t; 0 before the first round."""
        return self.trace - self.polarization / self.t if self.t else 0.0

    def extend(self, X: F64, y: F64) -> F64:  # X: (n, d), y: (n,)
        """n more rounds; y^T K y after each of them, shape (n,). Raises ShapeError, NonFiniteError."""
        _check(X, y, self.dim)
        kappa, cross = self.kernel.diag(X), np.empty(len(y))
        for rows in _blocks(len(y)):
            cross[rows] = self._block(X[rows], y[rows])
        # |s + y phi|^2 = |s|^2 + 2 y phi^T s + y^2 kappa
        polarizations = self.polarization + np.cumsum(y * (2.0 * cross + y * kappa))
        self.t += len(y)
        self.trace += float(kappa.sum())
        if len(y):
            self.polarization = float(polarizations[-1])
        return polarizations

    def _block(self, X: F64, y: F64) -> F64:
        """phi_t^T sum_{s < t} y_s phi_s of a block of rounds, shape (n,); the block then is past."""
        if self._features is not None:
            F = self._features(X)
            sums = np.cumsum(np.vstack((self._sum, y[:, None] * F)), axis=0)
            self._sum = sums[-1].copy()
            return np.einsum("ij,ij->i", F, sums[:-1])
        cross = y @ np.triu(self.kernel.gram(X), 1)
        for past in _blocks(len(self._y)):
            cross += self._y.view[past] @ self.kernel.block(self._X.view[past], X)
        self._X.extend(X)
        self._y.extend(y)
        return cross


def kernel_polarization(kernel: Kernel, X: F64, y: F64) -> float:  # X: (n, d), y: (n,)
    """y^T K y, without K: time as `RunningAlignment`, memory O(n d)."""
    return _aligned(kernel, X, y).polarization


def kernel_alignment(kernel: Kernel, X: F64, y: F64) -> float:  # X: (n, d), y: (n,)
    """A_n = sum kappa_t - y^T K y / n, without K: time as `RunningAlignment`, memory O(n d).

    Examples
    --------
    >>> kernel_alignment(Linear(), np.array([[1.0], [1.0]]), np.array([1.0, 1.0]))
    0.0
    >>> kernel_alignment(Linear(), np.array([[1.0], [1.0]]), np.array([1.0, -1.0]))
    2.0
    """
    return _aligned(kernel, X, y).value


def alignment_deltas(kernel: Kernel, X: F64, y: F64, *, window: int = 15) -> F64:  # X: (n, d), y: (n,)
    """delta_t of every round for M = `window`, shape (n,): what a learner pays that guesses by the last M rounds.

    A learner pays only in rounds with a loss, and what it adds up (`sum_delta` of pomdr) leaves out the first one, which
    has no guess, and is of projected gradients where it projects. Time O(n (BLOCK + M) d).

    Raises ConfigError, ShapeError, NonFiniteError.
    """
    if window < 1:
        raise ConfigError(f"the window is {window}; it has at least one round")
    _check(X, y, X.shape[-1])
    guesses = np.empty(len(y))
    for rows in _blocks(len(y)):
        past = slice(max(0, rows.start - window), rows.stop)
        ages = np.arange(rows.start, rows.stop) - np.arange(past.start, past.stop)[:, None]
        K = np.where((ages >= 1) & (ages <= window), kernel.block(X[past], X[rows]), 0.0)
        guesses[rows] = y[past] @ K / np.clip(np.arange(rows.start, rows.stop), 1, window)
    return np.maximum(kernel.diag(X) - 2.0 * y * guesses, 0.0)


def _aligned(kernel: Kernel, X: F64, y: F64) -> RunningAlignment:
    alignment = RunningAlignment(kernel, max(1, X.shape[-1]))
    alignment.extend(X, y)
    return alignment


class _Features(NamedTuple):
    """phi of an inner product's kernel: the monomials of degree p in z, each times the root of its multinomial coefficient.

    z is x, followed by the root of the offset where there is one.
    """

    powers: NDArray[np.intp]
    """The factors of each monomial as indices into z, shape (F, p)."""
    weights: F64
    """Shape (F,)."""
    root: float

    @classmethod
    def of(cls, kernel: Kernel, dim: int) -> _Features | None:
        """None for a kernel that has none, or too many."""
        if isinstance(kernel, Linear):
            degree, offset = 1, 0.0
        elif isinstance(kernel, Polynomial):
            degree, offset = kernel.degree, kernel.offset
        else:
            return None
        width = dim + (offset > 0.0)
        if math.comb(width + degree - 1, degree) > MAX_FEATURES:
            return None
        monomials = list(combinations_with_replacement(range(width), degree))
        repeats = [math.prod(math.factorial(n) for n in Counter(monomial).values()) for monomial in monomials]
        weights = np.sqrt(math.factorial(degree) / np.array(repeats, dtype=np.float64))
        return cls(np.array(monomials), weights, math.sqrt(offset))

    def __call__(self, X: F64) -> F64:
        """phi(x) of each row, shape (n, F)."""
        Z = np.column_stack((X, np.full(len(X), self.root))) if self.root > 0.0 else X
        F = np.repeat(self.weights[None, :], len(X), axis=0)
        for column in self.powers.T:
            F *= Z[:, column]
        return F


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]


def _check(X: F64, y: F64, dim: int) -> None:
    if X.ndim != 2 or X.shape[1] != dim or y.shape != (len(X),):
        raise ShapeError(f"X has shape {X.shape} and y {y.shape}; they must be (n, {dim}) and (n,)")
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise NonFiniteError("every input and every truth must be finite")
