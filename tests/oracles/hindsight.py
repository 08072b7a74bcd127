r"""The best function in hindsight by the ellipsoid method: slow, without a second derivative, and with a bound on its error.

    minimise  F(f) = sum_t l(<f, phi_t>, y_t) + (alpha / 2) |f|^2   over |f| <= U and |<f, phi_t>| <= C for all t.

The optimum is in the ellipsoid {z : (z - c)^T P^{-1} (z - c) <= 1} from the start on. A subgradient at the centre, of F or of
a bound that the centre breaks, tells in which part of it the optimum is not; the next ellipsoid is the smallest around the
rest. No z in it has F(z) below F(c) - (g^T P g)^(1/2), for a subgradient g.

References: R. Bland, D. Goldfarb, M. Todd. The ellipsoid method: a survey. Operations Research 29, 1981; deep cuts.
"""

from __future__ import annotations

import math

import numpy as np

from okl_core.losses import Loss
from okl_core.types import F64

STEPS = 50_000


def optimum(
    K: F64, y: F64, loss: Loss, alpha: float, U: float, C: float, tolerance: float
) -> tuple[float, float]:  # K: (n, n), rank >= 2
    """Two numbers, at most `tolerance` apart, between which the least F is."""
    eigenvalues, V = np.linalg.eigh(K)
    kept = eigenvalues > len(K) * np.finfo(np.float64).eps * eigenvalues[-1]
    Phi = V[:, kept] * np.sqrt(eigenvalues[kept])
    n = Phi.shape[1]
    at_zero = float(loss.values(np.zeros(len(y)), y).sum())
    radii = [U, C * math.sqrt(len(y) / eigenvalues[kept][0])]
    if alpha > 0.0:
        radii.append(math.sqrt(2.0 * at_zero / alpha))
    c, P, lower, upper = np.zeros(n), min(radii) ** 2 * np.eye(n), -math.inf, at_zero
    for _ in range(STEPS):
        v = Phi @ c
        worst = int(np.abs(v).argmax())
        if abs(v[worst]) > C:
            g, beyond = math.copysign(1.0, v[worst]) * Phi[worst], abs(v[worst]) - C
        elif np.linalg.norm(c) > U:
            g, beyond = c / np.linalg.norm(c), float(np.linalg.norm(c)) - U
        else:
            slopes = np.array([loss.derivative(*pair) for pair in zip(v.tolist(), y.tolist(), strict=True)])
            g, F = Phi.T @ slopes + alpha * c, float(loss.values(v, y).sum() + 0.5 * alpha * c @ c)
            upper = min(upper, F)
            lower = max(lower, F - math.sqrt(g @ P @ g))
            beyond = F - upper
            if upper - lower <= tolerance:
                return lower, upper
        size = math.sqrt(g @ P @ g)
        b, depth = P @ g / size, beyond / size
        c = c - (1.0 + n * depth) / (n + 1.0) * b
        P = (
            n
            * n
            * (1.0 - depth * depth)
            / (n * n - 1.0)
            * (P - 2.0 * (1.0 + n * depth) / ((n + 1.0) * (1.0 + depth)) * np.outer(b, b))
        )
    raise AssertionError(f"after {STEPS} steps the optimum is between {lower} and {upper}")
