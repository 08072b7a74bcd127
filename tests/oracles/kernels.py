"""Kernels as their formulas read: two points, no vectors of points, no cleverness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def remembered(kernel: Callable[[F64, F64], float]) -> Callable[[F64, F64], float]:
    """The kernel, which computes each value once; points are identified by their bytes."""
    values: dict[bytes, float] = {}

    def value(x: F64, z: F64) -> float:
        pair = x.tobytes() + z.tobytes()
        if pair not in values:
            values[pair] = kernel(x, z)
        return values[pair]

    return value


def gaussian(x: Sequence[float], z: Sequence[float], sigma: float) -> float:
    return math.exp(-(math.dist(x, z) ** 2) / (2.0 * sigma**2))


def laplacian(x: Sequence[float], z: Sequence[float], sigma: float) -> float:
    return math.exp(-sum(abs(a - b) for a, b in zip(x, z, strict=True)) / sigma)


def matern(x: Sequence[float], z: Sequence[float], sigma: float, nu: float) -> float:
    if nu == 1.5:
        r = math.sqrt(3.0) * math.dist(x, z) / sigma
        return (1.0 + r) * math.exp(-r)
    r = math.sqrt(5.0) * math.dist(x, z) / sigma
    return (1.0 + r + r * r / 3.0) * math.exp(-r)


def linear(x: Sequence[float], z: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(x, z, strict=True))


def polynomial(x: Sequence[float], z: Sequence[float], degree: int, offset: float) -> float:
    return (linear(x, z) + offset) ** degree
