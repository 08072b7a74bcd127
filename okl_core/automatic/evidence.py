r"""The parameters of the relevance kernel by the evidence of the first rounds: those under which the truths are most likely.

| symbol | meaning                                                              | shape  |
|--------|----------------------------------------------------------------------|--------|
| X, Y   | rows, and truths centred, a column for each class                    |        |
| C      | K + linear X X^T + I: variance of a truth, in units of the noise     | (n, n) |
| theta  | logarithms of rho, w, p, the smooth amount and the linear one        |        |

Minimised is, with k columns and the variance of the noise profiled out,

    k/2 log det C + n k / 2 log tr(Y^T C^{-1} Y) + sum (theta - theta_0)^2 / (2 SPREAD^2)

References: [rasmussen2006] section 5.4.1 (equation 5.9), section 5.1 for relevance determination.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue]
from scipy.optimize import minimize

from okl_core.automatic.relevance_kernel import RelevanceKernel, cauchy, step_values
from okl_core.types import F64

ROWS = 256
"""Rounds that the evidence is taken of at most, evenly spaced: a step costs O(ROWS^3)."""

ROUGH = 10
"""Coordinates with steps, at most."""

STEPS = 10
"""Of the optimiser."""

SPREAD = 0.5
AMOUNT, STEP_WEIGHT, PAIR_WEIGHT, LINEAR = 10.0, 1.0, 1.0, 1.0
"""Where the search begins, in units of the noise's variance."""
NEGLIGIBLE = 1e-3
"""Weights below are 0."""


def fit(X: F64, Y: F64) -> RelevanceKernel:
    """The kernel for rows X, shape (n, d), and truths Y, shape (n, k)."""
    if len(X) > ROWS:
        kept = np.linspace(0, len(X) - 1, ROWS).astype(int)
        X, Y = X[kept], Y[kept]
    Y = Y - Y.mean(axis=0)
    Y = Y[:, np.abs(Y).max(axis=0) > 0.0]
    d = X.shape[1]
    rough = rough_coordinates(X, Y)
    evidence = Evidence(X, Y, rough)
    theta = evidence.start
    if Y.size and len(X) > 2:
        found = minimize(evidence.value, theta, jac=True, method="L-BFGS-B", options={"maxfun": STEPS, "maxiter": STEPS})
        if np.isfinite(found.fun):
            theta = found.x
    m = len(rough)
    values = np.exp(np.clip(theta, -12.0, 12.0))
    steps, pairs = np.zeros(d), np.zeros(d)
    steps[rough], pairs[rough] = values[d : d + m], values[d + m : d + 2 * m]
    steps[steps < NEGLIGIBLE] = 0.0
    pairs[pairs < NEGLIGIBLE] = 0.0
    return RelevanceKernel(
        amount=float(values[-2]),
        linear=float(values[-1]) / evidence.linear_scale,
        smooth=values[:d].tolist(),
        steps=steps.tolist(),
        pairs=pairs.tolist(),
    )


def rough_coordinates(X: F64, Y: F64) -> list[int]:
    """Those of more than two values that tell the truths apart best, by the means in quarters of the rounds."""
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


class Evidence:
    def __init__(self, X: F64, Y: F64, rough: list[int]) -> None:
        self.X, self.Y, self.rough = X, Y, rough
        self.E = [step_values(X[:, j], X[:, j]) for j in rough]
        n, d = X.shape
        m = len(rough)
        self.linear = (X - 0.5) @ (X - 0.5).T
        moved = X.var(axis=0).sum()
        rho = 1.0 / max(2 * moved, 1e-3)
        self.linear_scale = max(moved, 1e-3)
        self.linear /= self.linear_scale
        self.start = np.log(
            np.concatenate(
                (
                    np.full(d, rho),
                    np.full(m, STEP_WEIGHT / max(m, 1)),
                    np.full(m, PAIR_WEIGHT / max(m, 1)),
                    [AMOUNT, LINEAR],
                )
            )
        )

    def value(self, theta: F64) -> tuple[float, F64]:
        X, Y = self.X, self.Y
        (n, d), m, k = X.shape, len(self.rough), Y.shape[1]
        v = np.exp(np.clip(theta, -20.0, 20.0))
        rho, w, p, amount, linear = v[:d], v[d : d + m], v[d + m : d + 2 * m], v[-2], v[-1]
        Z = X * np.sqrt(rho)
        R = cauchy(Z, Z)
        C = amount * R + linear * self.linear
        F = np.zeros_like(C)
        for j in range(m):
            C += w[j] * self.E[j]
            F += p[j] * self.E[j]
        pair = F * F
        for j in range(m):
            pair -= (p[j] * self.E[j]) ** 2
        C += 0.5 * pair
        C[np.diag_indices(n)] += 1.0
        L, info = dpotrf(C, lower=1, overwrite_a=0)
        if info:
            return 1e300, np.zeros_like(theta)
        inverse, _ = dpotri(L, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        B = inverse @ Y
        fit = float((B * Y).sum())
        away = theta - self.start
        value = (
            k * np.log(np.diag(L)).sum() + 0.5 * n * k * np.log(max(fit, 1e-300)) + 0.5 * (away @ away) / SPREAD**2
        )
        G = 0.5 * (k * inverse - (n * k / max(fit, 1e-300)) * (B @ B.T))
        gradient = np.empty_like(theta)
        # d R / d log rho_j = -R^2 rho_j (x_j - z_j)^2 / 2
        W = G * R * R
        gradient[:d] = -amount * rho * (W.sum(axis=1) @ (X * X) - (X * (W @ X)).sum(axis=0))
        for j in range(m):
            GE = G * self.E[j]
            gradient[d + j] = w[j] * GE.sum()
            gradient[d + m + j] = p[j] * ((GE * F).sum() - p[j] * (GE * self.E[j]).sum())
        gradient[-2] = amount * (G * R).sum()
        gradient[-1] = linear * (G * self.linear).sum()
        return value, gradient + away / SPREAD**2
