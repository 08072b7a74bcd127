r"""Parameters of the relevance kernel, fitted by maximising the evidence of the first rounds.

| symbol | meaning                                                              | shape  |
|--------|----------------------------------------------------------------------|--------|
| X, Y   | rows, and centred truths, one column per class                       |        |
| C      | K + linear X X^T + I: covariance of a truth, in units of the noise   | (n, n) |
| theta  | logarithms of rho, w, p, the smooth amount and the linear one        |        |

The objective to be minimised, for k columns and with the noise variance profiled out, is

    k/2 log det C + n k / 2 log tr(Y^T C^{-1} Y) + sum (theta - theta_0)^2 / (2 SPREAD^2)

References: [rasmussen2006] section 5.4.1 (equation 5.9), section 5.1 for relevance determination.
"""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.automatic.relevance_kernel import CENTRE, RelevanceKernel, cauchy, step_values
from okl_core.types import F64

ROWS = 160
"""Most rounds used for the evidence, evenly spaced: a step costs O(ROWS^3)."""

ROUGH = 10
"""Most coordinates with steps."""

STEPS = 10
"""Evaluations: the optimiser is stopped early, and SPREAD is narrow, since the first rounds may not be typical."""

SPREAD = 0.5

AMOUNT, LINEAR = 10.0, 1.0
"""Start of the search, in units of the noise variance. The weights of steps start with sum 1, as do those of pairs."""

LEAST_VARIANCE = 1e-3
"""Lower limit on the variance of the rows, if they hardly differ."""

LARGEST = 12.0
"""Largest absolute logarithm of a parameter."""


def fit(X: F64, Y: F64) -> RelevanceKernel:
    """The kernel for rows X, shape (n, d), and truths Y, shape (n, k)."""
    if len(X) > ROWS:
        kept = np.linspace(0, len(X) - 1, ROWS).astype(int)
        X, Y = X[kept], Y[kept]
    Y = Y - Y.mean(axis=0)
    evidence = Evidence(X, Y, rough_coordinates(X, Y))
    theta = evidence.start
    if np.abs(Y).max(initial=0.0) > 0.0:
        from scipy.optimize import minimize  # imported here, as it would add a fifth to a service's start-up time

        options = {"maxfun": STEPS, "maxiter": STEPS}
        result = minimize(evidence.value, theta, jac=True, method="L-BFGS-B", options=options)
        theta = result.x if np.isfinite(result.fun) and np.isfinite(result.x).all() else theta
    return evidence.kernel(theta)


def rough_coordinates(X: F64, Y: F64) -> list[int]:
    """The coordinates that best separate the truths, by the mean truths within the quarters of their distinct values.

    Coordinates with fewer than three distinct values are left out.
    """
    scores: dict[int, float] = {}
    for j in range(X.shape[1]):
        values = np.unique(X[:, j])
        if len(values) < 3:
            continue
        cells = np.searchsorted(np.quantile(values, (0.25, 0.5, 0.75)), X[:, j])
        scores[j] = sum(
            float((Y[cells == c].mean(axis=0) ** 2).sum()) * (cells == c).sum() for c in range(4) if (cells == c).any()
        )
    return sorted(sorted(scores, key=lambda j: -scores[j])[:ROUGH])


@final
class Evidence:
    """The objective for rows X, shape (n, d), and centred truths Y, (n, k), with steps along the coordinates `rough`."""

    def __init__(self, X: F64, Y: F64, rough: list[int]) -> None:
        self.X, self.Y, self.rough = X, Y, rough
        steps = [step_values(X[:, j], X[:, j]).ravel() for j in rough]
        self._E = np.array(steps).reshape(len(rough), len(X) ** 2)
        self._squares = self._E * self._E
        moved = max(float(X.var(axis=0).sum()), LEAST_VARIANCE)
        self._products = (X - CENTRE) @ (X - CENTRE).T
        weights = np.full(2 * len(rough), 1.0 / max(len(rough), 1))
        first = np.concatenate((np.full(X.shape[1], 0.5 / moved), weights, [AMOUNT, LINEAR / moved]))
        self.start = np.log(first)

    def kernel(self, theta: F64) -> RelevanceKernel:
        """The kernel with the parameters theta."""
        d, m = self.X.shape[1], len(self.rough)
        values = np.exp(np.clip(theta, -LARGEST, LARGEST))
        steps, pairs = np.zeros(d), np.zeros(d)
        steps[self.rough], pairs[self.rough] = values[d : d + m], values[d + m : d + 2 * m]
        return RelevanceKernel(
            amount=float(values[-2]),
            linear=float(values[-1]),
            smooth=values[:d].tolist(),
            steps=steps.tolist(),
            pairs=pairs.tolist(),
        )

    def value(self, theta: F64) -> tuple[float, F64]:
        """The objective and its gradient."""
        X, Y = self.X, self.Y
        (n, d), m, k = X.shape, len(self.rough), Y.shape[1]
        v = np.exp(np.clip(theta, -LARGEST, LARGEST))
        rho, w, p, amount, linear = v[:d], v[d : d + m], v[d + m : d + 2 * m], v[-2], v[-1]
        Z = X * np.sqrt(rho)
        R = cauchy(Z, Z)
        C = amount * R + linear * self._products
        F = p @ self._E
        C += (w @ self._E + 0.5 * (F * F - (p * p) @ self._squares)).reshape(n, n)
        C.ravel()[:: n + 1] += 1.0
        L, info = dpotrf(C, lower=1, overwrite_a=0)
        if info:
            return 1e300, np.zeros_like(theta)
        inverse, _ = dpotri(L, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        B = inverse @ Y
        fit = float((B * Y).sum())
        away = theta - self.start
        value = k * np.log(np.diag(L)).sum() + 0.5 * n * k * np.log(max(fit, 1e-300)) + 0.5 * (away @ away) / SPREAD**2
        G = 0.5 * (k * inverse - (n * k / max(fit, 1e-300)) * (B @ B.T))
        gradient = np.empty_like(theta)
        # d R / d log rho_j = -R^2 rho_j (x_j - z_j)^2 / 2
        W = G * R * R
        gradient[:d] = -amount * rho * (W.sum(axis=1) @ (X * X) - (X * (W @ X)).sum(axis=0))
        g = G.ravel()
        gradient[d : d + m] = w * (self._E @ g)
        gradient[d + m : d + 2 * m] = p * (self._E @ (g * F) - p * (self._squares @ g))
        gradient[-2] = amount * (G * R).sum()
        gradient[-1] = linear * (G * self._products).sum()
        return value, gradient + away / SPREAD**2
