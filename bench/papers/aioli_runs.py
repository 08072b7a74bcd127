"""Streams and comparators of [jezequel2020]'s comparison: where linear forecasts must lose, and improper ones need not."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import expit

from okl_core.types import F64


def hard_norm(n: int) -> float:
    """B of the hard stream: log n."""
    return math.log(n)


def hard_stream(n: int, sign: int, seed: int) -> tuple[F64, F64]:
    """A stream of one input on which proper learners have regret of the order of B^{2/3} n^{1/3}. X: (n, 1), y: (n,).

    Few inputs 1 with the label -1 against many inputs 1/K with the label 1, K = (B^2 n)^{1/3} / 2, drawn independently: so
    nearly balanced that only all n rounds together tell, for `sign` 1 or -1, on which side the best slope is.

    References: [hazan2014]; the constants are ours.
    """
    K = 0.5 * (hard_norm(n) ** 2 * n) ** (1.0 / 3.0)
    probability = (1.0 + sign * math.sqrt(2.0 * K / n)) / (2.0 * K)
    is_one = np.random.default_rng(seed).random(n) < probability
    return np.where(is_one, 1.0, 1.0 / K)[:, None], np.where(is_one, -1.0, 1.0)


class Slope(NamedTuple):
    value: float
    loss: float
    """Cumulative logistic loss."""


def best_slope(X: F64, y: F64, B: float) -> Slope:
    """The w in [-B, B] of least sum log(1 + exp(-y w x)), to rounding. X: (n, 1), y: (n,)."""
    a, counts = np.unique(X[:, 0] * y, return_counts=True)

    def derivative(w: float) -> float:
        return float(-(counts * a) @ expit(-w * a))

    if derivative(-B) >= 0.0:
        w = -B
    elif derivative(B) <= 0.0:
        w = B
    else:
        w = root_scalar(derivative, bracket=(-B, B), xtol=1e-14).root
    return Slope(w, float(counts @ np.logaddexp(0.0, -w * a)))
