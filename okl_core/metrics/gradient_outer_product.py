r"""The gradient outer product of a function, estimated from noisy values; it shows the directions of variation.

| symbol | meaning                                                                               | shape  |
|--------|---------------------------------------------------------------------------------------|--------|
| G      | estimate of E (grad f)(x) (grad f)(x)^T, the mean of v v^T over evaluation points     | (d, d) |
| v      | estimated gradient at an evaluation point, (Delta_i A_i)_i                            | (d,)   |
| Delta  | slope along axis i at x, (fhat(x + tau e_i) - fhat(x - tau e_i)) / (2 tau)            |        |
| A      | 1 if x + tau e_i and x - tau e_i each have >= min_count samples within eps / 2, or 0  |        |
| fhat   | kernel regression of y on x with K(u) = max(0, 1 - u) and bandwidth eps               |        |

    eps = c_eps n^(-1 / (2 (d + 1))),   tau = c_tau eps^(1/4),   c_eps = 1.5,   c_tau = 0.25.

The published min_count, 2 d ln(2 n), leaves no slope for d >= 5 and n up to some thousands: the number of samples in a ball
grows like n^(1 - d / (2 (d + 1))). The default, min_count 1, finds the directions. Where A = 1, fhat has a sample within its
bandwidth, so its value elsewhere does not matter.

References: [kuzborskij2017] appendix A; [trivedi2014].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import ConfigError, DivergedError, NonFiniteError, ShapeError
from okl_core.types import F64

BANDWIDTH = 1.5
"""c_eps."""

DIFFERENCE_STEP = 0.25
"""c_tau."""

CHUNK = 1 << 15
"""Distances computed at a time: few enough to stay in cache."""

SMALLEST_WEIGHT = 1e-300
"""Lower bound on a sum of weights before dividing. Only sums with A = 0 are smaller: samples within eps / 2 weigh >= 1/2."""

MinCount = int | Literal["published"]


class Scales(NamedTuple):
    """The two length scales of the estimate, and the number of samples that a slope needs."""

    bandwidth: float
    """eps."""
    difference_step: float
    """tau."""
    min_count: float

    @classmethod
    def of(
        cls,
        n: int,
        dim: int,
        c_eps: float = BANDWIDTH,
        c_tau: float = DIFFERENCE_STEP,
        min_count: MinCount = 1,
    ) -> Scales:
        """Return the scales for n samples in R^dim."""
        eps = c_eps * n ** (-0.5 / (dim + 1))
        # Any count above n is equivalent to n + 1, which fits into a float.
        count = 2.0 * dim * math.log(2.0 * n) if min_count == "published" else float(min(min_count, n + 1))
        return cls(eps, c_tau * eps**0.25, count)


def gradient_outer_product(
    X: F64,  # (n, d)
    y: F64,  # (n,)
    *,
    bandwidth: float | None = None,
    difference_step: float | None = None,
    min_count: MinCount = 1,
    points: int | None = None,
) -> F64:
    """Estimate G from n samples of a function.

    Parameters
    ----------
    X : F64, shape (n, d)
        Where the function was sampled.
    y : F64, shape (n,)
        Its noisy values.
    bandwidth : float, optional
        eps, a length. By default the formula in the module's docstring.
    difference_step : float, optional
        tau, a length. By default the formula in the module's docstring, for this eps.
    min_count : int >= 1, or "published"
        How many samples each of the two balls must hold for a slope to count.
    points : int, optional
        Maximum number of evaluation points, which are every k-th sample. By default every sample.

    Returns
    -------
    F64, shape (d, d)
        Symmetric, positive semi-definite.

    Raises
    ------
    ShapeError, NonFiniteError
        If the samples do not have these shapes, or are not finite.
    ConfigError
        If a parameter is out of range.
    DivergedError
        If the squares of the slopes overflow.

    Notes
    -----
    Time O(points n d), memory O(n d).

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 3))
    >>> G = gradient_outer_product(X, np.sin(3.0 * X[:, 1]), points=100)
    >>> bool(G[1, 1] > 0.9 * np.trace(G))
    True
    """
    X, y = _checked_samples(X, y)
    n, d = X.shape
    usual = Scales.of(n, d, min_count=_checked_count(min_count))
    eps = usual.bandwidth if bandwidth is None else _positive(bandwidth, "bandwidth")
    tau = DIFFERENCE_STEP * eps**0.25 if difference_step is None else _positive(difference_step, "difference_step")
    if points is not None and points < 1:
        raise ConfigError(f"points is {points}; it must be at least 1")
    every = stride(n, n if points is None else points)
    pairs = range(-(-n // every) * d)
    with np.errstate(over="ignore", invalid="ignore"):
        values, is_supported = slopes(np.ascontiguousarray(X.T), y, every, pairs, Scales(eps, tau, usual.min_count))
        G = outer_product(np.where(is_supported, values, 0.0).reshape(-1, d))
    if not np.isfinite(G).all():
        raise DivergedError("the squares of the slopes overflow; scale the truths down, or the inputs up")
    return G


def outer_product(v: F64) -> F64:  # v: (m, d)
    """Return G for the gradients at m points: the mean of v v^T."""
    G = v.T @ v / len(v)
    return 0.5 * (G + G.T)


def stride(n: int, points: int) -> int:
    """Return the smallest k such that taking every k-th of n samples gives at most `points`."""
    return -(-n // points)


def slopes(
    columns: F64,  # (d, n)
    y: F64,  # (n,)
    every: int,
    pairs: range,
    scales: Scales,
) -> tuple[F64, NDArray[np.bool_]]:
    """Compute Delta and A for pairs of an evaluation point and an axis.

    The samples are the columns. Pair p is axis p mod d at sample `every` (p // d).

    Returns
    -------
    Delta : F64, shape (len(pairs),)
        Finite even where A is 0.
    A : NDArray[np.bool_], shape (len(pairs),)

    Notes
    -----
    The bits of a slope do not depend on which other pairs are computed with it.
    """
    values, is_supported = np.empty(len(pairs)), np.empty(len(pairs), dtype=np.bool_)
    for point, axes, out in _by_point(pairs, len(columns)):
        values[out], is_supported[out] = _slopes_at(columns, y, every * point, axes, scales)
    return values, is_supported


def _by_point(pairs: range, d: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the evaluation points of these pairs, each with its axes and their positions among the pairs."""
    pair = pairs.start
    while pair < pairs.stop:
        point, axis = divmod(pair, d)
        stop = min(pairs.stop, (point + 1) * d)
        yield point, slice(axis, axis + stop - pair), slice(pair - pairs.start, stop - pairs.start)
        pair = stop


def _slopes_at(columns: F64, y: F64, i: int, axes: slice, scales: Scales) -> tuple[F64, NDArray[np.bool_]]:
    """Compute Delta and A along some axes at sample i."""
    eps, tau, min_count = scales
    from_x = columns[:, i, None] - columns
    squares = np.einsum("ji,ji->i", from_x, from_x)
    # Farther samples have K = 0.
    near = np.flatnonzero(squares <= (eps + tau) * (eps + tau))
    # Measured from the first truth, so that constant truths have a slope of exactly 0.
    truths, along, squares = y[near] - y[0], from_x[axes].take(near, axis=1), squares[near] + tau * tau
    values, is_supported = np.empty(len(along)), np.empty(len(along), dtype=np.bool_)
    size = max(1, CHUNK // max(1, len(near)))
    for start in range(0, len(along), size):
        part = slice(start, start + size)
        # |x + tau e_i - s|^2 = |x - s|^2 + 2 tau (x - s)_i + tau^2, and the same with -tau.
        shift = (2.0 * tau) * along[part]
        sides = np.empty((2, *shift.shape))
        np.add(squares, shift, out=sides[0])
        np.subtract(squares, shift, out=sides[1])
        is_supported[part] = (np.count_nonzero(sides <= 0.25 * eps * eps, axis=2) >= min_count).all(axis=0)
        # K = max(0, 1 - distance / eps), in place.
        np.maximum(sides, 0.0, out=sides)
        weights = np.sqrt(sides, out=sides)
        weights *= -1.0 / eps
        weights += 1.0
        np.maximum(weights, 0.0, out=weights)
        # Not a BLAS product, whose bits depend on the number of rows.
        above, below = np.einsum("sij,j->si", weights, truths) / np.maximum(weights.sum(axis=2), SMALLEST_WEIGHT)
        values[part] = (above - below) / (2.0 * tau)
    return values, is_supported


def _checked_samples(X: F64, y: F64) -> tuple[F64, F64]:
    X = np.ascontiguousarray(X, dtype=np.float64)
    y = np.ascontiguousarray(y, dtype=np.float64)
    if X.ndim != 2 or X.size == 0:
        raise ShapeError(f"X has shape {X.shape}; samples are of shape (n, d), one or more")
    if y.shape != (len(X),):
        raise ShapeError(f"y has shape {y.shape}, X has {len(X)} rows", "y")
    for array, name in ((X, "x"), (y, "y")):
        if not np.isfinite(array).all():
            raise NonFiniteError(f"{name} holds numbers that are not finite", name)
    return X, y


def _checked_count(min_count: MinCount) -> MinCount:
    if isinstance(min_count, str) and min_count != "published":
        raise ConfigError(f"min_count is {min_count!r}; it must be a number, or 'published'")
    if isinstance(min_count, int) and min_count < 1:
        raise ConfigError(f"min_count is {min_count}; it must be at least 1")
    return min_count


def _positive(value: float, name: str) -> float:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigError(f"{name} is {value}; it must be a positive number")
    return value
