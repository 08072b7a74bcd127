"""AIOLI as its objective reads: every forecast by a numerical minimisation over the whole feature space. Slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

STEPS = 200


@dataclass
class Run:
    """Of every round: the forecast, its loss, the weight of its surrogate, and the term that the regret bound has for it."""

    values: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    terms: list[float] = field(default_factory=list)


Flatness = Callable[[float, float], float]
"""kappa of a forecast a and the largest |u| = B R of its round."""


def least_by_search(a: float, reach: float) -> float:
    """The least kappa with l(a) + l'(a) (u - a) + l''(a) (u - a)^2 / (2 kappa) <= l(u) for the |u| <= reach of a grid."""
    u, b = np.linspace(-reach, reach, 101).astype(np.longdouble), np.longdouble(a)
    u = u[np.abs(u - b) > 1e-4]
    tail = np.exp(-np.abs(b))
    above = np.logaddexp(0, -u) - np.logaddexp(0, -b) + (u - b) / (1 + np.exp(b))
    return float((0.5 * tail / (1 + tail) ** 2 * (u - b) ** 2 / above).max(initial=1.0 if reach < 1e-3 else 0.0))


FLATNESS: dict[str, Flatness] = {
    "paper": lambda a, reach: 1.0 + reach,
    "half": lambda a, reach: 1.0 + 0.5 * reach,
    "exact": least_by_search,
}


def improper(Phi: F64, y: F64, reach: F64, flatness: Flatness, lam: float) -> Run:  # Phi: (n, p); reach: (n,)
    """theta_t minimises the surrogates of the rounds before t, the losses of both truths at x_t, and lambda |theta|^2.

    With g_s = -y_s x_s / (1 + exp(y_s a_s)) and eta_s = exp(y_s a_s) / kappa_s the surrogate of round s is
    l(a_s) + g_s^T (theta - theta_s) + (eta_s / 2) (g_s^T (theta - theta_s))^2.
    """
    n, p = Phi.shape
    run, slopes, eta, thetas = Run(), np.zeros((n, p)), np.zeros(n), np.zeros((n, p))
    A = 2.0 * lam * np.eye(p)
    for t, (x, truth) in enumerate(zip(Phi, y.tolist(), strict=True)):
        theta = _minimum(x, slopes[:t], eta[:t], thetas[:t], lam)
        a = float(x @ theta)
        kappa = flatness(a, float(reach[t]))
        thetas[t], slopes[t] = theta, -truth * x / (1.0 + np.exp(truth * a))
        eta[t] = np.exp(truth * a) / kappa
        A += eta[t] * np.outer(slopes[t], slopes[t])
        probability = 1.0 / (1.0 + np.exp(truth * a))
        run.values.append(a)
        run.losses.append(float(np.logaddexp(0.0, -truth * a)))
        run.weights.append(probability * (1.0 - probability) / kappa)
        run.terms.append(float(probability * (1.0 - probability) * x @ np.linalg.solve(A, x)))
    return run


def _minimum(x: F64, slopes: F64, eta: F64, thetas: F64, lam: float) -> F64:
    """theta_t, by Newton's method with halved steps."""

    def objective(theta: F64) -> float:
        u = np.einsum("ij,ij->i", slopes, theta - thetas)
        a = x @ theta
        return float(u.sum() + 0.5 * eta @ u**2 + np.logaddexp(0.0, -a) + np.logaddexp(0.0, a) + lam * theta @ theta)

    theta = np.zeros(len(x))
    for _ in range(STEPS):
        u, a = np.einsum("ij,ij->i", slopes, theta - thetas), x @ theta
        gradient = slopes.T @ (1.0 + eta * u) + np.tanh(0.5 * a) * x + 2.0 * lam * theta
        curvature = 0.5 / np.cosh(0.5 * min(abs(a), 600.0)) ** 2
        hessian = (slopes.T * eta) @ slopes + curvature * np.outer(x, x) + 2.0 * lam * np.eye(len(x))
        step = np.linalg.solve(hessian, gradient)
        here, size = objective(theta), 1.0
        while objective(theta - size * step) > here + 1e-12 * abs(here) and size > 1e-6:
            size *= 0.5
        theta = theta - size * step
        if np.abs(size * step).max() <= 1e-14 * (1.0 + np.abs(theta).max()):
            break
    return theta


def coordinates(K: F64) -> F64:
    """Features, row by row, whose inner products are K: of the functions that the points span."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))
