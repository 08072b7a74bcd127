"""KONS as its definitions read: in an explicit feature space, and from the closed form of its moments.

Both are slow. The first works in `longdouble`, since with alpha = 1e-5 the condition of A passes 1e8 and float64 would
make the oracle the inaccurate side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LongF = NDArray[np.longdouble]
F64 = NDArray[np.float64]
Weight = Callable[[int, float, float, float], float]
"""(t, value, g, y) -> w."""
Derivative = Callable[[int, float, float], float]
"""(t, value, y) -> g."""


def features(X: F64, degree: int, offset: float) -> LongF:  # X: (n, d)
    """phi with <phi(x), phi(z)> = (<x, z> + offset)^degree: one feature a monomial, times the root of its multinomial."""
    root = np.sqrt(np.longdouble(offset))
    U = np.column_stack((X.astype(np.longdouble), np.full(len(X), root)))
    columns: list[LongF] = []
    for powers in _powers(U.shape[1], degree):
        multinomial = math.factorial(degree) // math.prod(math.factorial(p) for p in powers)
        columns.append(np.sqrt(np.longdouble(multinomial)) * np.prod(U ** np.array(powers), axis=1))
    return np.stack(columns, axis=1)


def _powers(n: int, degree: int) -> list[tuple[int, ...]]:
    if n == 1:
        return [(degree,)]
    return [(p, *rest) for p in range(degree + 1) for rest in _powers(n - 1, degree - p)]


@dataclass
class Run:
    """Of every round: value, derivative, weight and q; and how far `limit` times the unit roundoff can move the value.

    `limit` sums kappa |h| / (alpha q) over the rounds: one ulp in k(x_t, x_t) moves alpha q, and with it all that a
    projection does, by that much. No method that starts from rounded kernel values can be nearer.
    """

    values: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)


def online_newton(Phi: LongF, y: F64, C: float, alpha: float, derivative: Derivative, weight: Weight) -> Run:
    """Projected online Newton steps on phi_1, ..., phi_T; A^{-1} dense, by Sherman and Morrison."""
    p = len(Phi[0])
    A_inverse = np.eye(p, dtype=np.longdouble) / np.longdouble(alpha)
    w, g = np.zeros(p, np.longdouble), np.zeros(p, np.longdouble)
    run, limit = Run(), 0.0
    for t, (phi, truth) in enumerate(zip(Phi, y.tolist(), strict=True), start=1):
        u = w - A_inverse @ g
        direction = A_inverse @ phi
        m, q = phi @ u, phi @ direction
        value = np.clip(m, -C, C)
        w = u
        if q > 0.0:
            w = u - (m - value) / q * direction
            limit += float(phi @ phi * abs(m - value) / (alpha * q))
        slope = derivative(t, float(value), truth)
        eta_g2 = weight(t, float(value), slope, truth)
        A_inverse = A_inverse - np.outer(direction, direction) * (eta_g2 / (1.0 + eta_g2 * q))
        g = slope * phi
        run.values.append(float(value))
        run.gradients.append(slope)
        run.weights.append(eta_g2)
        run.variances.append(float(q))
        run.limit.append(limit)
    return run


def batch_moments(
    K: F64,  # (t, t)
    k: F64,  # (t,)
    kappa: float,
    w: F64,  # (t,)
    c: F64,  # (t,)
    alpha: float,
) -> tuple[float, float]:
    """m and q of an input from the rounds before it, by the push-through identity; no recursion."""
    J = w > 0.0
    root = np.sqrt(w[J])
    D_KJ = root[:, None] * K[J]
    inner = np.linalg.solve(D_KJ[:, J] * root + alpha * np.eye(len(root)), np.column_stack((D_KJ @ c, root * k[J])))
    m = (k @ c - (root * k[J]) @ inner[:, 0]) / alpha
    q = (kappa - (root * k[J]) @ inner[:, 1]) / alpha
    return float(m), float(q)
