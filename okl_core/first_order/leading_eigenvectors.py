"""Leading eigenvectors of a kernel matrix, made reproducible by a recorded rank and fixed signs."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from okl_core.contract.rng import RoundRng
from okl_core.types import F64


def leading_eigenvectors(K: F64, rank: int, negligible: float, rng: RoundRng) -> tuple[F64, F64]:
    """Return the largest eigenvalues of K, in descending order, and their eigenvectors.

    Parameters
    ----------
    K : F64, shape (n, n)
        Symmetric, C-contiguous. Overwritten.
    rank : int
        Number of eigenvalues to compute, at most n.
    negligible : float
        Eigenvalues up to this share of the largest are dropped: their eigenvectors consist of rounding errors.
    rng : RoundRng
        Records how many are kept, k >= 1, since rounding can move small eigenvalues across the threshold.

    Returns
    -------
    eigenvalues : F64, shape (k,)
        On replay k may come from another machine; the last eigenvalues may then not even be positive.
    V : F64, shape (n, k)
        Orthonormal columns; the entry of largest magnitude in each is positive.
    """
    n = len(K)
    # K is symmetric; its transpose is Fortran-ordered, so LAPACK can overwrite it without a copy.
    ascending, V = eigh(K.T, subset_by_index=(n - rank, n - 1), check_finite=False, overwrite_a=True)
    k = rng.pick(max(1, int(np.count_nonzero(ascending > negligible * ascending[-1]))))
    V = V[:, : -k - 1 : -1]
    V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(k)] < 0.0, -1.0, 1.0)
    return ascending[: -k - 1 : -1], V
