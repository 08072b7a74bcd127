r"""The gradient outer product of a function, estimated from noisy values: it tells in which directions the function varies.

| symbol | meaning                                                                               | shape  |
|--------|---------------------------------------------------------------------------------------|--------|
| G      | estimate of E (grad f)(x) (grad f)(x)^T, the mean of v v^T over evaluation points     | (d, d) |
| v      | estimated gradient at an evaluation point, (Delta_i A_i)_i                            | (d,)   |
| Delta  | slope along axis i at x, (fhat(x + tau e_i) - fhat(x - tau e_i)) / (2 tau)            |        |
| A      | 1 if x + tau e_i and x - tau e_i have min_count samples or more within eps / 2, or 0  |        |
| fhat   | kernel regression of y on x with K(u) = max(0, 1 - u) and bandwidth eps               |        |

    eps = c_eps n^(-1 / (2 (d + 1))),   tau = c_tau eps^(1/4),   c_eps = 1.5,   c_tau = 0.25.

The published min_count, 2 d ln(2 n), leaves no slope for n up to some thousands from d = 5 on: the number of samples in a
ball grows like n^(1 - d / (2 (d + 1))). With min_count 1, the default, the directions are found. Where A = 1, fhat has a
sample within its bandwidth, so its value elsewhere does not matter.

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
"""Distances computed at a time: few enough to stay in a cache."""

SMALLEST_WEIGHT = 1e-300
"""The smallest sum of weights that is divided by. A sample in a ball of half the bandwidth has the weight 1/2."""

MinCount = int | Literal["published"]


class Scales(NamedTuple):
    """The two lengths of the estimate, and the number of samples that a slope needs."""

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
        """The scales for n samples in R^dim."""
        eps = c_eps * n ** (-0.5 / (dim + 1))
        # A count above n is as good as n + 1, and fits into a float.
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
    """The estimate G from n samples of a function.

    Parameters
    ----------
    X : F64, shape (n, d)
        Where the function was sampled.
    y : F64, shape (n,)
        Its noisy values.
    bandwidth : float, optional
        eps, a length. By default that of the module's docstring.
    difference_step : float, optional
        tau, a length. By default that of the module's docstring for this eps.
    min_count : int >= 1, or "published"
        How many samples each of two balls must hold for a slope to count.
    points : int, optional
        The largest number of evaluation points: every k-th sample is one. By default every sample.

    Returns
    -------
    F64, shape (d, d)
        Symmetric, positive semi-definite.

    Raises
    ------
    ShapeError, NonFiniteError
        If the samples are not of these shapes, or not finite.
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
        raise ConfigError(f"points is {points}; it is at least 1")
    every = stride(n, n if points is None else points)
    pairs = range(-(-n // every) * d)
    with np.errstate(over="ignore", invalid="ignore"):
        values, is_supported = slopes(np.ascontiguousarray(X.T), y, every, pairs, Scales(eps, tau, usual.min_count))
        G = outer_product(np.where(is_supported, values, 0.0).reshape(-1, d))
    if not np.isfinite(G).all():
        raise DivergedError("the squares of the slopes overflow; scale the truths down, or the inputs up")
    return G


def outer_product(v: F64) -> F64:  # v: (m, d)
    """G from the gradients at m points: the mean of v v^T."""
    G = v.T @ v / len(v)
    return 0.5 * (G + G.T)


def stride(n: int, points: int) -> int:
    """The smallest k for which every k-th of n samples are at most `points`."""
    return -(-n // points)


def slopes(
    columns: F64,  # (d, n)
    y: F64,  # (n,)
    every: int,
    pairs: range,
    scales: Scales,
) -> tuple[F64, NDArray[np.bool_]]:
    """Delta and A of some pairs of an evaluation point and an axis.

    The samples are the columns. Pair p is axis p mod d at the sample `every` (p // d).

    Returns
    -------
    Delta : F64, shape (len(pairs),)
        Finite also where A is 0.
    A : NDArray[np.bool_], shape (len(pairs),)

    Notes
    -----
    The bits of a slope do not depend on the pairs that are asked for with it.
    """
    values, is_supported = np.empty(len(pairs)), np.empty(len(pairs), dtype=np.bool_)
    for point, axes, out in _by_point(pairs, len(columns)):
        values[out], is_supported[out] = _slopes_at(columns, y, every * point, axes, scales)
    return values, is_supported


def _by_point(pairs: range, d: int) -> Iterator[tuple[int, slice, slice]]:
    """The evaluation points of these pairs, each with its axes and their places among the pairs."""
    pair = pairs.start
    while pair < pairs.stop:
        point, axis = divmod(pair, d)
        stop = min(pairs.stop, (point + 1) * d)
        yield point, slice(axis, axis + stop - pair), slice(pair - pairs.start, stop - pairs.start)
        pair = stop


def _slopes_at(columns: F64, y: F64, i: int, axes: slice, scales: Scales) -> tuple[F64, NDArray[np.bool_]]:
    """Delta and A along some axes at sample i."""
    eps, tau, min_count = scales
    from_x = columns[:, i, None] - columns
    squares = np.einsum("ji,ji->i", from_x, from_x)
    # K is 0 beyond.
    near = np.flatnonzero(squares <= (eps + tau) * (eps + tau))
    # Measured from the first truth: constant truths have no slope then, not even one of rounding.
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
        # Not a product of BLAS, whose bits depend on the number of rows.
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
        raise ConfigError(f"min_count is {min_count!r}; it is a number, or 'published'")
    if isinstance(min_count, int) and min_count < 1:
        raise ConfigError(f"min_count is {min_count}; it is at least 1")
    return min_count


def _positive(value: float, name: str) -> float:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigError(f"{name} is {value}; it is a positive number")
    return value
