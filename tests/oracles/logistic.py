"""The rivals of improper logistic regression as they are defined: a root finder, a loop, and adaptive quadrature."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import root
from scipy.special import expit

F64 = NDArray[np.float64]


def leader(Phi: F64, y: F64, regularization: float, start: F64) -> F64:
    """argmin sum log(1 + exp(-y phi^T theta)) + lambda |theta|^2, where the gradient vanishes."""

    def gradient(theta: F64) -> F64:
        return -(y * expit(-y * (Phi @ theta))) @ Phi + 2.0 * regularization * theta

    def hessian(theta: F64) -> F64:
        a = Phi @ theta
        return (Phi.T * (expit(a) * expit(-a))) @ Phi + 2.0 * regularization * np.eye(len(theta))

    found = root(gradient, start, jac=hessian, method="hybr", options={"xtol": 1e-14})
    assert np.abs(gradient(found.x)).max() < 1e-11 * (1.0 + np.abs(Phi).sum())
    return found.x


def gradient_descent(Phi: F64, y: F64, B: float, R: float | None) -> tuple[list[float], F64]:
    """The values of projected gradient descent with the steps B / (R sqrt(t)), and the weights at the end."""
    theta = np.zeros(Phi.shape[1])
    values = []
    for t, (phi, truth) in enumerate(zip(Phi, y.tolist(), strict=True), start=1):
        values.append(float(theta @ phi))
        size = max(np.linalg.norm(row) for row in Phi[:t]) if R is None else R
        gradient = -truth / (1.0 + math.exp(truth * values[-1])) * phi
        if size > 0.0:
            theta = theta - B / (size * math.sqrt(t)) * gradient
        if np.linalg.norm(theta) > B:
            theta = B / np.linalg.norm(theta) * theta
    return values, theta


def mean_sigmoid(x: F64, y: F64, now: float, B: float) -> float:
    """E 1 / (1 + exp(-w now)), w from the uniform prior on [-B, B] after the rounds x, y, shape (n,)."""

    def log_density(w: float) -> float:
        return -float(np.logaddexp(0.0, -y * w * x).sum())

    grid = np.linspace(-B, B, 401)
    peak = grid[int(np.argmax([log_density(w) for w in grid]))]
    highest = log_density(peak)

    def integral(f: Callable[[float], float]) -> float:
        pieces = [-B, *(p for p in (peak - 0.1 * B, peak, peak + 0.1 * B) if -B < p < B), B]
        return sum(
            quad(lambda w: f(w) * math.exp(log_density(w) - highest), a, b, epsabs=1e-13, epsrel=1e-12)[0]
            for a, b in itertools.pairwise(pieces)
        )

    return integral(lambda w: float(expit(w * now))) / integral(lambda w: 1.0)
