"""Streams, kernels and settings that the tests of the first-order learners share."""

from __future__ import annotations

import numpy as np

from okl_core.types import F64
from tests.oracles import kernels
from tests.oracles.first_order import KernelFunction

GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
QUADRATIC = {"kind": "polynomial", "degree": 2, "offset": 1.0}

FUNCTIONS: dict[str, KernelFunction] = {
    "gaussian": lambda x, z: kernels.gaussian(x.tolist(), z.tolist(), 0.5),
    "polynomial": lambda x, z: kernels.polynomial(x.tolist(), z.tolist(), 2, 1.0),
}


def stream(seed: int, n: int, loss: str) -> tuple[F64, F64]:
    """Inputs in R^2, and truths that depend on them, with noise: labels, or numbers in [-0.8, 0.8]."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    signal = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.4 * rng.standard_normal(n)
    return X, np.clip(signal, -0.8, 0.8) if loss == "squared" else np.where(signal >= 0.0, 1.0, -1.0)
