r"""What late truths may cost least squares: a bound for forecasts issued before the rounds that were under way were learned.

Rounds have the numbers 1 .. T in the order in which they are *learned*. The forecast of round n was issued when the rounds
1 .. i(n) were learned; M_n, the rounds between i(n) and n, were not, and nor was n itself.

| symbol     | meaning                                                                                        |
|------------|------------------------------------------------------------------------------------------------|
| A_n, u_n   | a I + sum_{j <= n} phi_j phi_j^T, and the solution A_n^{-1} sum_{j <= n} y_j phi_j               |
| gamma_n, g | phi_n^T u_{n-1}, what would be forecast when n is learned; y_n - gamma_n                        |
| q_n        | phi_n^T A_{n-1}^{-1} phi_n                                                                       |
| m_n, v_n   | phi_n^T u_{i(n)} and phi_n^T A_{i(n)}^{-1} phi_n, of the forecast issued                         |
| B_nj       | phi_n^T A_j^{-1} phi_j, j < n: how far learning j moves the forecast of n                        |
| lost       | a round n whose \|B_nj\|, j in M_n, add up to more than 1/2                                     |
| b_j        | sum of \|B_nj\| over the rounds n, not lost, that j was missing for: j in M_n                   |

I + K / a = (I + B) diag(1 + q) (I + B)^T, B strictly lower triangular: one Cholesky factor has them all.
`docs/late-truths.md` has the proof.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from okl_core.diagnostics.bounds import factor
from okl_core.errors import ConfigError, ShapeError
from okl_core.types import F64


def late_ridge_bound(
    K: F64,  # (n, n)
    regularization: float,
    largest: float,
    known: NDArray[np.int64],  # (n,)
    *,
    is_shrunk: bool = False,
) -> float:
    r"""What ridge regression may lose beyond its optimum in hindsight, of forecasts clipped to [-Y, Y], with late truths.

    4 Y^2 times the sum of q_j / (1 + q_j) + 2 b_j, or of 1 + (1 + q_j) b_j^2 where (1 + q_j) b_j > 1 or round j is lost; and
    at most 4 Y^2 n. For every stream with |y| <= Y and every delay. If nothing is late every b is 0, and this is at most
    `clipped_ridge_bound`. With delays of many rounds it is too large to say much before the stream is long.

    Parameters
    ----------
    K : F64, shape (n, n)
        Kernel matrix of the rounds, in the order in which they were learned.
    regularization, largest : float
        a > 0 and Y >= 0.
    known : shape (n,)
        i: of each round in that order, how many were learned when its forecast was issued; i_n < n, counted from 1.
    is_shrunk
        For the Aggregating Algorithm, m / (1 + v) in place of m: 4 Y^2 v_n / (1 + v_n) more for each round not lost.

    Raises
    ------
    ShapeError, ConfigError, NotPositiveDefiniteError

    Notes
    -----
    Beyond min_f sum (y - f)^2 + a |f|^2, `ridge_optimum`. Time O(n^3).

    Examples
    --------
    >>> K = np.ones((3, 3))
    >>> at_once, all_late = np.array([0, 1, 2]), np.array([0, 0, 0])
    >>> [round(late_ridge_bound(K, 1.0, 1.0, known), 3) for known in (at_once, all_late)]
    [4.333, 11.333]
    """
    n = len(K)
    if known.shape != (n,):
        raise ShapeError(f"known has shape {known.shape}, there are {n} rounds")
    rounds = np.arange(n)
    if n and not ((known >= 0) & (known <= rounds)).all():
        raise ConfigError("a forecast is issued before its round is learned: known must be at least 0, and below n")
    L = factor(K, regularization)
    diagonal = L.diagonal()
    one_plus_q = diagonal**2 / regularization
    B = L / diagonal
    is_missing = (rounds >= known[:, None]) & (rounds < rounds[:, None])
    late = np.where(is_missing, np.abs(B), 0.0)
    # A forecast that may be off by more than its range is not followed: it loses 4 Y^2 at most.
    is_lost = late.sum(axis=1) > 0.5
    b = late[~is_lost].sum(axis=0)
    follows = 1.0 - 1.0 / one_plus_q + 2.0 * b
    terms = np.where(is_lost | (one_plus_q * b > 1.0), 1.0 + one_plus_q * b * b, follows)
    if is_shrunk:
        # Each missing round takes phi_n^T A_j^{-1} phi_j (1 + q_j) phi_j^T A_j^{-1} phi_n off the variance.
        v = one_plus_q - 1.0 + (np.where(is_missing, B, 0.0) ** 2) @ one_plus_q
        terms += np.where(is_lost, 0.0, v / (1.0 + v))
    return 4.0 * largest * largest * min(float(terms.sum()), float(n))
