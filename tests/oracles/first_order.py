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


def ahpatron(
    X: F64, y: F64, kernel: KernelFunction, *, B: int, slack: float, ridge: float
) -> tuple[list[float], list[tuple[F64, float]]]:
    """The values, and the points with their coefficients after the last round, oldest first."""
    U, weight = math.sqrt(B) / 2.0, 0.25
    stored: list[tuple[F64, float]] = []
    values = []
    for x, truth in zip(X, y.tolist(), strict=True):
        values.append(sum((a * kernel(s, x) for s, a in stored), start=0.0))
        if truth * values[-1] >= 1.0 - slack:
            continue
        if len(stored) == B:
            K = np.array([[kernel(s, z) for z, _ in stored] for s, _ in stored])
            a = np.array([a for _, a in stored])
            kept = [i for i in range(B) if abs(a[i]) >= sorted_median(np.abs(a))][: B // 2]
            gone = [i for i in range(B) if i not in kept]
            K_II = K[np.ix_(kept, kept)]
            # Least squares of what goes by what stays, with the ridge as further rows; the norm is the one before.
            theta = np.linalg.solve(K_II + ridge * np.eye(B // 2), K[np.ix_(kept, gone)] @ a[gone])
            b = a[kept] + theta
            b *= math.sqrt(a @ K @ a) / math.sqrt(b @ K_II @ b)
            stored = [(stored[i][0], float(b_i)) for i, b_i in zip(kept, b, strict=True)]
        stored.append((x, weight * truth))
        norm = math.sqrt(sum(a * c * kernel(s, z) for s, a in stored for z, c in stored))
        if norm > U:
            stored = [(s, a * U / norm) for s, a in stored]
    return values, stored


def sorted_median(numbers: F64) -> float:
    """The mean of the two in the middle of an even count."""
    ordered = sorted(numbers.tolist())
    return 0.5 * (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2])
