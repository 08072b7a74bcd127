r"""A metric for kernels from the directions in which the truth varies.

With G the gradient outer product of `metrics.gradient_outer_product`, divided by its largest eigenvalue, and n samples,

    M = (G + I / n)^(1/2),   |x - z|_M^2 = (x - z)^T M (x - z).

The root of G, not G itself as in packing: a kernel already has a length scale that fits the direction of the largest slope,
and G makes the others as good as vanish.

References: [kuzborskij2017] section 4 for the estimate; [trivedi2014] for its use in a distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from okl_core.errors import NotPositiveDefiniteError
from okl_core.metrics.gradient_outer_product import gradient_outer_product
from okl_core.metrics.mahalanobis import symmetric
from okl_core.types import F64

POINTS = 512
"""Points at most at which slopes are estimated."""


def learned_kernel_metric(X: F64, y: F64) -> F64:
    """M of the samples X, shape (n, d), with the truths y, shape (n,) or (n, k): then of all k functions together.

    The identity where no slope is found. The unit of length is the radius of a ball whose uniform points would be as far from
    its centre, in the median, as the samples are from theirs: outliers do not change it.
    """
    n, d = X.shape
    centred = X - np.median(X, axis=0)
    distances = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    # More than half of them may be one point.
    radius = float(np.median(distances)) * 2.0 ** (1.0 / d) or float(distances.max())
    if not radius > 0.0:
        return np.eye(d)
    # The size of the truths does not matter, but squares of slopes must be numbers.
    size = np.abs(y).max()
    if not size > 0.0:
        return np.eye(d)
    columns = (y[:, None] if y.ndim == 1 else y) / size
    ball = centred / radius
    G = sum((gradient_outer_product(ball, column, points=POINTS) for column in columns.T), start=np.zeros((d, d)))
    values, U = np.linalg.eigh(G)
    if not values[-1] > 0.0:
        return np.eye(d)
    M = (U * np.sqrt(np.maximum(values / values[-1], 0.0) + 1.0 / n)) @ U.T
    return 0.5 * (M + M.T)


def matrix_root(M: Sequence[Sequence[float]] | F64) -> F64:
    """The symmetric root of M, shape (d, d). Raises NotPositiveDefiniteError if M is not symmetric and positive definite."""
    matrix = symmetric(M)
    values, U = np.linalg.eigh(matrix)
    if not values[0] > len(matrix) * np.finfo(np.float64).eps * values[-1]:
        raise NotPositiveDefiniteError(
            f"a metric is positive definite; the eigenvalues of this one are from {values[0]:g} to {values[-1]:g}"
        )
    root = (U * np.sqrt(values)) @ U.T
    return 0.5 * (root + root.T)
