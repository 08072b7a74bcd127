r"""A metric for kernels, learned from the directions in which the truth varies.

With G the estimate of `metrics.gradient_outer_product`, mu_1 its largest eigenvalue, and n samples,

    M = (G / mu_1 + I / n)^(1/2),   |x - z|_M^2 = (x - z)^T M (x - z).

Packing uses G itself. A kernel uses its square root: its length scale already fits the direction of the largest slope, and
with G the other directions would all but vanish.

References: [kuzborskij2017] section 4 for the estimate; [trivedi2014] for its use in a distance.
"""

from __future__ import annotations

import numpy as np

from okl_core.metrics.gradient_outer_product import gradient_outer_product
from okl_core.metrics.mahalanobis import Rows, eigensystem
from okl_core.types import F64

POINTS = 512
"""Maximum number of samples at which slopes are estimated."""


def learned_kernel_metric(X: F64, y: F64) -> F64:
    """Estimate the metric M from samples of a function.

    Samples are centred at their coordinate-wise median and scaled by the radius of a ball whose uniformly distributed points
    would have the same median distance from its centre. Outliers affect neither.

    Parameters
    ----------
    X : F64, shape (n, d)
    y : F64, shape (n,) or (n, k)
        The truths of one function, or of k functions whose outer products are added.

    Returns
    -------
    F64, shape (d, d)
        Symmetric, positive definite; the identity if no slope is found.
    """
    n, d = X.shape
    centred = X - np.median(X, axis=0)
    distances = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    # If more than half of the samples are one point, the median distance is 0.
    radius = float(np.median(distances)) * 2.0 ** (1.0 / d) or float(distances.max())
    # M does not depend on the unit of the truths; scaling keeps the squares of slopes from overflowing.
    size = np.abs(y).max()
    if not (radius > 0.0 and size > 0.0):
        return np.eye(d)
    columns = (y[:, None] if y.ndim == 1 else y) / size
    ball = centred / radius
    G = sum((gradient_outer_product(ball, column, points=POINTS) for column in columns.T), start=np.zeros((d, d)))
    mu, U = np.linalg.eigh(G)
    if not mu[-1] > 0.0:
        return np.eye(d)
    return _assembled(U, np.sqrt(np.maximum(mu / mu[-1], 0.0) + 1.0 / n))


def matrix_root(M: Rows) -> F64:
    """Return the symmetric square root of M, shape (d, d).

    Raise NotPositiveDefiniteError if M is not symmetric and positive definite.
    """
    values, U = eigensystem(M)
    return _assembled(U, np.sqrt(values))


def _assembled(U: F64, values: F64) -> F64:  # U: (d, d), values: (d,)
    """Return U diag(values) U^T, symmetric to the last bit."""
    M = (U * values) @ U.T
    return 0.5 * (M + M.T)
