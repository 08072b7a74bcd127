r"""Random Fourier features: z(x)^T z(x') estimates a kernel of x - x' that is the Fourier transform of a distribution.

    z(x) = (cos omega_i^T x, sin omega_i^T x)_{i = 1..D} / sqrt(D),

    gaussian     omega ~ N(0, I / sigma^2)
    laplacian    the entries of omega are independent, Cauchy with scale 1 / sigma
    matern       omega ~ the multivariate t distribution with 2 nu degrees of freedom and scale 1 / sigma

With a metric M the frequencies are M^(1/2) omega.
|z(x)| = 1, and z(x)^T z(x') is unbiased, with a variance of at most 1 / (2 D). It depends on x - x' only, so any point
may be the origin; an origin near the inputs preserves their digits.

References: [rahimi2007] section 3, [rasmussen2006] equation 4.15 for the Matern kernel.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field
from scipy.linalg.blas import ddot, dgemm  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.errors import DivergedError
from okl_core.kernels.kernels import Gaussian, Laplacian, Matern
from okl_core.types import F64

SpectralKernel = Annotated[Gaussian | Laplacian | Matern, Field(discriminator="kind")]
"""The kernels whose frequencies can be drawn."""

SMALLEST_UNIFORM = 2.0**-54
"""Replaces a uniform of 0, whose normal would be infinite; half of the next larger uniform."""


def draw(kernel: SpectralKernel, dim: int, D: int, rng: RoundRng) -> F64:
    """Draw D frequencies in turns, omega / (2 pi), shape (D, d). Raise ConfigError for an unresolved kernel."""
    scale = 2.0 * math.pi * kernel.scale
    if isinstance(kernel, Laplacian):
        omega = rng.uniform(D * dim).reshape(D, dim)
        omega -= 0.5
        omega *= np.pi
        np.tan(omega, out=omega)
        omega /= scale
        return omega
    omega = _normals(rng, D, dim)
    if isinstance(kernel, Matern):
        freedom = round(2.0 * kernel.nu)
        normals = _normals(rng, D, freedom)
        omega *= np.sqrt(freedom / np.square(normals, out=normals).sum(axis=1))[:, None]
    omega /= scale
    root = kernel.root_for(dim)
    return omega if root is None else omega @ root


def farther(farthest: float, H: F64) -> float:
    """Return the largest norm of the rows of H, shape (d,) or (n, d), or `farthest` if that is larger."""
    squares = ddot(H, H) if H.ndim == 1 else np.einsum("ij,ij->i", H, H).max().item()
    return max(farthest, math.sqrt(squares))


def largest_angle(frequencies: F64, farthest: float) -> float:
    """Bound omega^T h over |h| <= `farthest`, in O(d D); the rounding error of an angle is about eps times this."""
    if not len(frequencies):
        return 0.0
    return 2.0 * math.pi * farthest * math.sqrt(np.einsum("ij,ij->i", frequencies, frequencies).max().item())


def features(frequencies: F64, H: F64) -> F64:
    """Compute z for the rows of H, shape (n, d), from D frequencies in turns: shape (n, 2 D). Raise DivergedError."""
    D, c = len(frequencies), 1.0 / math.sqrt(len(frequencies))
    # Cosines and sines need twice the memory of one block.
    step = rows_at_once(2 * len(H), D)
    if step == D:
        # Computed in two separate arrays: on halves of one array numpy takes five times as long.
        return np.concatenate(_waves(frequencies, H, c), axis=1)
    Z = np.empty((len(H), 2 * D))
    for start in range(0, D, step):
        part = slice(start, start + step)
        Z[:, :D][:, part], Z[:, D:][:, part] = _waves(frequencies[part], H, c)
    return Z


def _waves(frequencies: F64, H: F64, c: float) -> tuple[F64, F64]:
    """Compute c times the cosines and the sines of n inputs, shape (n, D) each."""
    # scipy's BLAS overflows without a warning.
    turns = dgemm(1.0, frequencies.T, H.T, trans_a=1).T
    # One sum for all rows is three times as fast as one a row, but may overflow where that of no row does.
    if not math.isfinite(ddot(turns.ravel(), turns.ravel())) and not all(
        math.isfinite(ddot(row, row)) for row in turns
    ):
        raise DivergedError("a Fourier feature overflows; scale the inputs down, or raise sigma")
    turns -= np.rint(turns)
    # From t = tan(theta / 4), by arithmetic alone: on a block, numpy's cosine and sine take three times as long.
    turns *= 0.5 * np.pi
    t = _tangent(turns)
    C = t * t
    C += 1.0
    np.divide(2.0, C, out=C)
    S = np.multiply(t, C, out=t)
    C -= 1.0
    # S and C hold the sine and cosine of theta / 2; double the angle.
    S *= C
    S *= 2.0 * c
    C *= C
    C *= 2.0 * c
    C -= c
    return C, S


def _tangent(x: F64) -> F64:
    """Compute tan x for |x| <= pi / 4, x of any shape, to 1e-15, by the eighth convergent of its continued fraction.

    It uses arithmetic alone, which is vectorised on every machine.
    """
    v = x * x
    above = -36.0 * v
    for coefficient in (6930.0, -270270.0):
        above += coefficient
        above *= v
    above += 2027025.0
    above *= x
    below = v - 630.0
    for coefficient in (51975.0, -945945.0):
        below *= v
        below += coefficient
    below *= v
    below += 2027025.0
    above /= below
    return above


def _normals(rng: RoundRng, n: int, k: int) -> F64:
    """Draw standard normals, shape (n, k), by inverting their distribution function."""
    from scipy.special import ndtri

    u = rng.uniform(n * k)
    np.maximum(u, SMALLEST_UNIFORM, out=u)
    return ndtri(u, out=u).reshape(n, k)
