"""Streams and definitions for the tests of the online Newton learners."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from okl_core import OnlineLearner
from okl_core.losses import LOSSES
from okl_core.types import F64
from tests.oracles.kons import Derivative, LongF, Weight, features

ROUNDS = 320

Spec = dict[str, Any]

KERNELS: dict[str, Spec] = {
    "linear": {"kind": "linear"},
    "quadratic": {"kind": "polynomial", "degree": 2, "offset": 1.0},
    "homogeneous": {"kind": "polynomial", "degree": 2, "offset": 0.0},
    "cubic": {"kind": "polynomial", "degree": 3, "offset": 0.5},
}

STEPS: dict[str, list[str | float]] = {
    "squared": ["curvature", "adaptive", "inverse-sqrt", 0.4],
    "logistic": ["curvature", "adaptive", "inverse-sqrt", 0.4],
    "squared-hinge": ["curvature", "adaptive", "inverse-sqrt", 0.4],
    "hinge": ["inverse-sqrt", 0.4],
}

METHODS = [*((loss, step) for loss, steps in STEPS.items() for step in steps), ("logistic", "half-curvature")]


def random(rng: np.random.Generator, n: int, C: float) -> tuple[F64, F64]:
    return rng.uniform(-1, 1, (n, 2)), rng.uniform(-C, C, n)


def alternating(rng: np.random.Generator, n: int, C: float) -> tuple[F64, F64]:
    X = np.array([0.8, -0.6]) + 0.05 * rng.standard_normal((n, 2))
    return X, C * (-1.0) ** np.arange(n)


def saturated(rng: np.random.Generator, n: int, C: float) -> tuple[F64, F64]:
    """The truth is always C: about half the rounds are clipped onto it, and have no derivative."""
    X = rng.uniform(0.2, 1.0, (n, 2))
    X[::2] *= 0.5
    return X, np.full(n, C)


def repeated(rng: np.random.Generator, n: int, C: float) -> tuple[F64, F64]:
    return rng.uniform(-1, 1, (5, 2))[rng.integers(0, 5, n)], rng.uniform(-C, C, n)


def zeros(rng: np.random.Generator, n: int, C: float) -> tuple[F64, F64]:
    X = rng.uniform(-1, 1, (n, 2))
    X[rng.random(n) < 0.3] = 0.0
    return X, C * np.sin(3.0 * X[:, 0])


def flips(rng: np.random.Generator, n: int, C: float) -> tuple[F64, F64]:
    """Separable with a margin, and the sign of everything turns around every 60 rounds."""
    X = rng.uniform(-1, 1, (n, 2))
    return X, C * np.sign(X @ [1.0, 0.3]) * (-1.0) ** (np.arange(n) // 60)


STREAMS: dict[str, Callable[[np.random.Generator, int, float], tuple[F64, F64]]] = {
    stream.__name__: stream for stream in (random, alternating, saturated, repeated, zeros, flips)
}


def stream_for(loss: str, stream: str, n: int = ROUNDS, C: float = 1.0) -> tuple[F64, F64]:
    X, y = STREAMS[stream](np.random.default_rng(7), n, C)
    return X, y if loss == "squared" else np.where(y >= 0.0, 1.0, -1.0)


def definition(loss: str, step: str | float, C: float, choices: bytes) -> tuple[Derivative, Weight]:
    """g and w of KONS. At a kink of the hinge, and only there, the side is the one that `choices` records."""
    of_loss = LOSSES[loss]

    def derivative(t: int, value: float, y: float) -> float:
        g = of_loss.derivative(value, y)
        if loss != "hinge" or choices[t - 1] == (g != 0.0):
            return g
        assert abs(1.0 - y * value) < 1e-6
        return -y if choices[t - 1] else 0.0

    def weight(t: int, value: float, g: float, y: float) -> float:
        if step == "adaptive":
            return of_loss.weight(value, y, C)
        if step in ("curvature", "half-curvature"):
            return (1.0 if step == "curvature" else 0.5) * of_loss.curvature(C) * g**2
        if step == "inverse-sqrt":
            return g**2 / (of_loss.lipschitz(C) * C * math.sqrt(t))
        return float(step) * g**2

    return derivative, weight


def explicit(kernel: Spec, X: F64) -> LongF:
    return features(X, kernel.get("degree", 1), kernel.get("offset", 0.0))


def play_all(learner: OnlineLearner, X: F64, y: F64) -> tuple[F64, bytes]:
    """The values, and the choices on the way."""
    values, choices = np.empty(len(y)), b""
    for i, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        played = learner.play(x, truth)
        learner.learn(played)
        values[i] = played.forecast.value
        choices += played.choices
    return values, choices


def comparators(Phi: F64, y: F64, C: float) -> list[F64]:
    """Functions bounded by C on the stream: 0, random ones, and least squares on the whole of it and on its end."""
    rng = np.random.default_rng(3)
    found = [np.zeros(Phi.shape[1]), *rng.standard_normal((10, Phi.shape[1]))]
    for last in (len(y), len(y) // 3):
        found.append(np.linalg.lstsq(Phi[-last:], y[-last:], rcond=1e-6)[0])
    return [f * min(1.0, C / max(np.abs(Phi @ f).max(), 1e-300)) for f in found]
