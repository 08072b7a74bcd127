"""Regression on an ALD dictionary as its paper states it: fresh eigenvectors at each new point, dense inverses.

Kernels have k(x, x) = 1. Each gives the values played and the places of the points that are stored at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
KernelFunction = Callable[[F64, F64], float]


def gram_of(X: F64, kernel: KernelFunction) -> Callable[[list[int], list[int]], F64]:
    """The kernel matrix between rounds, by their numbers: each value is computed once."""
    K = np.array([[kernel(a, b) for b in X] for a in X])
    return lambda rows, columns: K[np.ix_(rows, columns)]


def nons_ald(
    X: F64,
    y: F64,
    kernel: KernelFunction,
    *,
    threshold: float,
    C: float,
    mu: float,
    eta: float,
    is_shipped: bool,
    half_life: int | None = None,
) -> tuple[list[float], list[int]]:
    """`threshold`: of the squared distance to the span, alpha."""
    gram = gram_of(X, kernel)
    S, values = [0], [0.0]
    K = gram(S, S)
    U, eigenvalues, _ = np.linalg.svd(K)
    A, v = mu * np.eye(1), np.zeros(1)
    for t in range(1, len(X)):
        k = gram(S, [t])[:, 0]
        alpha = gram([t], [t])[0, 0] - k @ np.linalg.solve(K, k)
        phi = (U.T @ k) / np.sqrt(eigenvalues)
        inverse = np.linalg.inv(A)
        m = float(phi @ v)
        value = min(max(m, -C), C)
        w = v - (m - value) / (phi @ inverse @ phi) * (inverse @ phi)
        values.append(value)
        g = 2.0 * (value - y[t])
        if has_grown := alpha > threshold:
            old = S[:]
            S.append(t)
            K = gram(S, S)
            U_new, eigenvalues_new, _ = np.linalg.svd(K)
            Q = (U_new / np.sqrt(eigenvalues_new)).T @ gram(S, old) @ (U / np.sqrt(eigenvalues))
            w = Q @ w
            A = mu * np.eye(len(S)) + Q @ (A - mu * np.eye(len(S) - 1)) @ Q.T
            U, eigenvalues = U_new, eigenvalues_new
            phi = (U.T @ gram(S, [t])[:, 0]) / np.sqrt(eigenvalues)
        A_new = A + eta * g * g * np.outer(phi, phi)
        v = w - g * np.linalg.solve(A if is_shipped and not has_grown else A_new, phi)
        A = A_new
        if half_life is not None and (t + 1) % (half_life // 4) == 0:
            factor = 0.5 ** (half_life // 4 / half_life)
            s = factor * (A @ v)
            A = factor * A + (1.0 - factor) * mu * np.eye(len(S))
            v = np.linalg.solve(A, s)
    return values, S


def aogd_ald(
    X: F64, y: F64, kernel: KernelFunction, *, threshold: float, U: float, B0: int, B: float = math.inf
) -> tuple[list[float], list[int], F64]:
    """And the coefficients. `threshold`: of the distance to the span; `B`: points at most, of which the oldest goes."""
    gram = gram_of(X, kernel)
    S: list[int] = []
    a = np.zeros(0)
    values, G, is_projecting = [], 1.0, True
    for t in range(len(X)):
        k = gram(S, [t])[:, 0]
        values.append(float(a @ k))
        error = values[-1] - y[t]
        beta = np.linalg.solve(gram(S, S), k) if is_projecting else np.zeros(0)
        alpha = 1.0 - (beta @ k if is_projecting else 0.0)
        if is_projecting and S and math.sqrt(max(alpha, 0.0)) <= threshold:
            # The gradient is 2 error k(x_t, .), here projected to the span of S.
            G += 4.0 * error**2 * float(beta @ k)
            a = a - 2.0 * U / math.sqrt(G) * error * beta
        else:
            G += 4.0 * error**2
            if len(S) == B:
                S, a = S[1:], a[1:]
            S = [*S, t]
            a = np.append(a, -2.0 * U / math.sqrt(G) * error)
            is_projecting = is_projecting and len(S) < B0
        norm = math.sqrt(max(a @ gram(S, S) @ a, 0.0))
        if norm > U:
            a = a * U / norm
    return values, S, a
