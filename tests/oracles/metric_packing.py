"""The phased algorithm of [kuzborskij2017], section 4 and appendix A, as it reads: dense loops, whole runs repeated."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tests.oracles.packing import ellipsoid_packing

F64 = NDArray[np.float64]


def estimate(distances: list[float], y: F64, eps: float) -> float:
    """fhat at a point with these distances from the inputs."""
    weights = [max(0.0, 1.0 - distance / eps) for distance in distances]
    total = math.fsum(weights)
    if total == 0.0:
        return float(np.mean(y))
    return math.fsum(w * truth for w, truth in zip(weights, y, strict=True)) / total


def gradients(X: F64, y: F64, eps: float, tau: float, n_min: float, points: F64) -> F64:
    """v at each point, shape (m, d)."""
    d, inputs = X.shape[1], X.tolist()
    V = np.zeros((len(points), d))
    for p, x in enumerate(points):
        for i in range(d):
            step = np.zeros(d)
            step[i] = tau
            sides = [[math.dist(side, s) for s in inputs] for side in ((x + step).tolist(), (x - step).tolist())]
            if all(sum(distance <= eps / 2.0 for distance in side) >= n_min for side in sides):
                V[p, i] = (estimate(sides[0], y, eps) - estimate(sides[1], y, eps)) / (2.0 * tau)
    return V


def gradient_outer_product(X: F64, y: F64, eps: float, tau: float, n_min: float, every: int = 1) -> F64:
    G = np.zeros((X.shape[1], X.shape[1]))
    V = gradients(X, y, eps, tau, n_min, X[::every])
    for v in V:
        G += np.outer(v, v) / len(V)
    return G


def learned_metric(X: F64, y: F64, points: int, c_eps: float = 1.5, c_tau: float = 0.25, alpha: float = 1.0) -> F64:
    """M of all rounds so far, divided by its largest eigenvalue."""
    n, d = X.shape
    eps = c_eps * n ** (-1.0 / (2.0 * (d + 1)))
    G = gradient_outer_product(X, y, eps, c_tau * eps**0.25, 1.0, math.ceil(n / points))
    largest = np.linalg.eigvalsh(G)[-1]
    if largest == 0.0:
        return np.eye(d)
    M = G + largest * n**-alpha * np.eye(d)
    return M / np.linalg.eigvalsh(M)[-1]


def delay(n: int, d: int, points: int, refeed: bool) -> int:
    """Rounds from the end of a phase, n, until the packing under the new metric takes over, the work being spread.

    A sixteenth of the next phase is for the slopes, with more than 16 inputs half of it; then every round plays 18 of those
    before it, or itself, again.
    """
    slopes = math.ceil(n / math.ceil(n / points)) * d
    a_round = math.ceil(slopes / max(1, (n + 2) // (16 if d <= 16 else 2)))
    rounds = math.ceil(slopes / a_round)
    played = 0
    while refeed and played < n + rounds:
        rounds += 1
        played = min(n + rounds, played + 18)
    return rounds


def phased_packing(
    X: F64,
    y: F64,
    points: int,
    refeed: bool,
    late: Callable[[int], int],
    last: int,
    alpha: float,
    slope_regularization: float | None = None,
) -> list[float]:
    """The forecasts. late(n): rounds by which the change after round n is late; no metric is learned after round `last`."""
    d = X.shape[1]
    values: list[float] = []
    M, start, phase = np.eye(d), 0, 1
    while len(values) < len(y):
        end = 2 ** (phase + 1) - 2
        at = min(len(y), end + late(end)) if end <= last else len(y)
        # All that this packing has seen, the rounds before `start` excepted; new is what it forecasts since the change.
        run = ellipsoid_packing(X[start:at], y[start:at], M, True, slope_regularization=slope_regularization)
        values += run.values[len(values) - start :]
        if at < len(y):
            M = learned_metric(X[:end], y[:end], points, alpha=alpha)
        start = 0 if refeed else at
        phase += 1
    return values
