"""Streams whose truths vary in a few directions only, and what the packings make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from okl_core import create
from okl_core.packing.learned_metric import learned_metric
from okl_core.types import F64

ROUNDS = 8190
"""T(12): twelve phases."""

NOISE = 0.05

FREQUENCY = 3.0
"""Of the sine: about one full wave across the ball."""


@dataclass(frozen=True, slots=True)
class DirectionalStream:
    """x uniform in the unit ball, y = f + noise, f = 1/2 + mean_j sin(3 u_j^T x) / 2 in [0, 1]; u_j orthonormal."""

    X: F64
    """Shape (n, d)."""
    y: F64
    """Shape (n,); not clipped, so that the mean of y is f."""
    f: F64
    """Shape (n,)."""
    U: F64
    """The directions u_j, shape (d, k)."""


def ball(n: int, d: int, rng: np.random.Generator) -> F64:
    """n points uniform in the unit ball of R^d, shape (n, d)."""
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.random((n, 1)) ** (1.0 / d)


def directional_stream(n: int, d: int, directions: int, seed: int, *, noise: float = NOISE) -> DirectionalStream:
    rng = np.random.default_rng(seed)
    X = ball(n, d, rng)
    U = np.linalg.qr(rng.standard_normal((d, directions)))[0]
    f = 0.5 + 0.5 * np.sin(FREQUENCY * X @ U).mean(axis=1)
    return DirectionalStream(X, f + noise * rng.standard_normal(n), f, U)


@dataclass(frozen=True, slots=True)
class Outcome:
    regret: float
    """sum (value - y)^2 - (f - y)^2."""
    excess: float
    """sum (value - f)^2, the same in expectation and less noisy."""
    cosine: float
    """Of the metric at the end."""
    centres: int


def contestants(stream: DirectionalStream) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Name -> kind and config. `subspace` knows the directions."""
    d = stream.X.shape[1]
    M = stream.U @ stream.U.T + np.eye(d) / len(stream.y)
    return {
        "Euclidean": ("packing", {}),
        "Euclidean, linear": ("packing", {"estimate": "linear"}),
        "restart": ("metric-packing", {"refeed": False}),
        "refeed": ("metric-packing", {}),
        "refeed, linear": ("metric-packing", {"estimate": "linear"}),
        "restart at once": ("metric-packing", {"refeed": False, "spread": False}),
        "refeed at once": ("metric-packing", {"spread": False}),
        "subspace": ("packing", {"metric": (0.5 * (M + M.T)).tolist()}),
    }


def measure(stream: DirectionalStream, kind: str, config: Mapping[str, Any]) -> Outcome:
    low, high = float(stream.y.min()), float(stream.y.max())
    learner = create({"kind": kind, "config": {"truth_range": [low, high], **config}}, stream.X.shape[1])
    values = learner.run(stream.X, stream.y).values
    return Outcome(
        float(((values - stream.y) ** 2 - (stream.f - stream.y) ** 2).sum()),
        float(((values - stream.f) ** 2).sum()),
        cosine(stream.U, learned_metric(learner)),
        int(learner.describe()["dictionary"]),
    )


def cosine(U: F64, M: F64) -> float:
    """How far the top k eigenvectors V of a metric lie in the span of k directions: |U^T V| / sqrt(k), of Frobenius."""
    k = U.shape[1]
    top = np.linalg.eigh(M)[1][:, -k:]
    return float(np.linalg.norm(U.T @ top) / np.sqrt(k))
