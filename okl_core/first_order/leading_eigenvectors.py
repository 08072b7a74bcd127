"""The leading eigenvectors of a kernel matrix, the same on every machine: a recorded rank, and signs that are fixed."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from okl_core.contract.rng import RoundRng
from okl_core.types import F64


def leading_eigenvectors(K: F64, rank: int, negligible: float, rng: RoundRng) -> tuple[F64, F64]:
    """The largest eigenvalues of K, in descending order, and their eigenvectors.

    Parameters
    ----------
    K : F64, shape (n, n)
        Symmetric, C-contiguous. Overwritten.
    rank : int
        How many are asked for, at most n.
    negligible : float
        Eigenvalues below this share of the largest are left out: their eigenvectors are made of rounding errors.
    rng : RoundRng
        Records how many are left, k >= 1, since rounding moves small eigenvalues across the line.

    Returns
    -------
    eigenvalues : F64, shape (k,)
        On replay they may be those of another machine, and the last ones not even positive.
    V : F64, shape (n, k)
        Orthonormal columns, the largest entry of each positive.
    """
    n = len(K)
    # Symmetric, K is its transpose, which LAPACK overwrites.
    ascending, V = eigh(K.T, subset_by_index=(n - rank, n - 1), check_finite=False, overwrite_a=True)
    k = rng.pick(max(1, int(np.count_nonzero(ascending > negligible * ascending[-1]))))
    V = V[:, : -k - 1 : -1]
    V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(k)] < 0.0, -1.0, 1.0)
    return ascending[: -k - 1 : -1], V
