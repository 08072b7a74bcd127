"""Streams in the unit ball, metrics, and the ways in which the nearest centre can be found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core.linalg import boxes, nearest
from okl_core.types import F64

WAYS = {
    "compared": (10**9, 10**9, 256),
    "scanned": (0, 10**9, 256),
    "boxed": (0, 2, 8),
}
"""FEW_NUMBERS and BOXES_FROM of `linalg.nearest` and BOX of `linalg.boxes` that make short streams take each way."""


def use_way(patch: pytest.MonkeyPatch, way: str) -> None:
    few, boxes_from, box = WAYS[way]
    patch.setattr(nearest, "FEW_NUMBERS", few)
    patch.setattr(nearest, "BOXES_FROM", boxes_from)
    patch.setattr(boxes, "BOX", box)


def ball(n: int, d: int, rng: np.random.Generator) -> F64:
    """n inputs, uniform in the unit ball of R^d, shape (n, d)."""
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.random((n, 1)) ** (1.0 / d)


def lattice(n: int, d: int, rng: np.random.Generator) -> F64:
    """n inputs on a grid: many are repeated, many are as far from one centre as from another."""
    return rng.integers(-4, 5, (n, d)) / (8.0 * 2.0 ** math.ceil(0.5 * math.log2(d)))


def truths(X: F64, rng: np.random.Generator) -> F64:
    """A smooth function of X with noise, in [0, 1]."""
    return np.clip(0.5 + 0.4 * np.sin(3.0 * X[:, 0] + X[:, -1]) + 0.1 * rng.standard_normal(len(X)), 0.0, 1.0)


def full_metric(d: int, rng: np.random.Generator) -> F64:
    """A positive definite matrix with largest eigenvalue 1, shape (d, d), exactly symmetric."""
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    # A rank r begins in the round t = eigenvalue^(-(1 + r) / 2). With powers of 2 these are integers, and rounding decides.
    eigenvalues = 1.9 ** -np.arange(d, dtype=np.float64)
    begins = eigenvalues[1:, None] ** (-0.5 * (1.0 + np.arange(1, d + 1)))
    assert (np.abs(begins - np.rint(begins))[begins < 1e5] > 1e-6).all()
    M = Q @ np.diag(eigenvalues) @ Q.T
    M = 0.5 * (M + M.T)
    return M / np.linalg.eigvalsh(M)[-1]
