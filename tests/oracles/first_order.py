"""First-order learners as they are defined: kernel sums, features by cosine and sine, dense eigenvectors.

Each takes the step size of a round and l'(value, y), and gives the values played.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
KernelFunction = Callable[[F64, F64], float]
Derivative = Callable[[float, float], float]
StepSize = Callable[[int], float]


def fogd(
    X: F64, y: F64, omega: F64, derivative: Derivative, eta: StepSize, C: float = math.inf
) -> tuple[list[float], F64]:
    """`omega`: frequencies (D, d). Values, and the weights at the end for z = (cos, sin) / sqrt(D) around X[0]."""
    D = len(omega)
    w = np.zeros(2 * D)
    values = []
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        angles = [float(row @ (x - X[0])) for row in omega]
        z = np.array([math.cos(a) for a in angles] + [math.sin(a) for a in angles]) / math.sqrt(D)
        value = min(max(float(w @ z), -C), C)
        w = w - eta(t) * derivative(value, truth) * z
        values.append(value)
    return values, w


def nogd(
    X: F64,
    y: F64,
    kernel: KernelFunction,
    derivative: Derivative,
    eta: StepSize,
    *,
    B: int,
    k: int,
    is_first: bool = False,
    C: float = math.inf,
) -> tuple[list[float], list[F64]]:
    """In the second phase the learned function is kept as coefficients a of the stored points alone.

    Its projection on the k leading eigenvectors of K is V V^T a, and a step is a <- a - eta g V Lambda^{-1} V^T k_S.
    """
    S: list[F64] = []
    a = np.empty(0)
    values, V, eigenvalues = [], np.empty((0, 0)), np.empty(0)
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        row = np.array([kernel(s, x) for s in S])
        value = min(max(float(a @ row), -C), C)
        values.append(value)
        if len(S) == B:
            a = a - eta(t) * derivative(value, truth) * (V @ (V.T @ row / eigenvalues))
            continue
        g = derivative(0.0 if is_first else value, truth)
        if g == 0.0:
            continue
        S.append(x)
        a = np.append(a, -eta(t) * g)
        if len(S) == B:
            eigenvalues, V = np.linalg.eigh(np.array([[kernel(s, z) for z in S] for s in S]))
            eigenvalues, V = eigenvalues[-k:], V[:, -k:]
            a = V @ (V.T @ a)
    return values, S


def bogd(
    X: F64,
    y: F64,
    kernel: KernelFunction,
    derivative: Derivative,
    eta: StepSize,
    removed: Callable[[int], int],
    *,
    B: int,
    lambda_: float = 0.0,
    c_max: float = math.inf,
    C: float = math.inf,
) -> tuple[list[float], list[tuple[F64, float]]]:
    """`removed(t)`: index of the point that round t removes, if it does. The new point takes its place."""
    stored: list[tuple[F64, float]] = []
    values = []
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        m = sum((a * kernel(s, x) for s, a in stored), start=0.0)
        value = min(max(m, -C), C)
        values.append(value)
        g = derivative(value, truth)
        stored = [(s, (1.0 - eta(t) * lambda_) * a) for s, a in stored]
        if g != 0.0:
            new = (x, -eta(t) * g)
            if len(stored) == B:
                stored = [(s, a * B / (B - 1)) for s, a in stored]
                stored[removed(t)] = new
            else:
                stored.append(new)
            stored = [(s, min(max(a, -c_max), c_max)) for s, a in stored]
    return values, stored
