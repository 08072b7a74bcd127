"""SkeGD as it is defined: dense sketches, pseudo-inverses, and the learned function as coefficients of the landmarks.

References: [zhang2019].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.oracles.first_order import F64, Derivative, KernelFunction, StepSize


def skegd(
    X: F64,
    y: F64,
    kernel: KernelFunction,
    derivative: Derivative,
    eta: StepSize,
    S_p: F64,  # (at least the points stored at the end, s_p)
    landmarks: list[int],
    *,
    B: int,
    k: int,
    cycle: Callable[[int], int],
    is_match: bool = False,
    is_first: bool = False,
    C: float = math.inf,
) -> tuple[list[float], list[F64]]:
    """`cycle`: of the round. Values, and the points stored at the end.

    With f = sum_i b_i k(m_i, .) over the landmarks, w^T z(x) = b^T k_m(x) for b = Q w, and a step is
    b <- b - eta g Q Q^T k_m(x_t): neither depends on the basis that Q is written in.
    """
    K = np.array([[kernel(x, z) for z in X] for x in X])
    S: list[int] = []
    a, b, Q = np.empty(0), np.empty(0), np.empty((0, 0))
    waited, values = 0, []

    def gram(rows: list[int], columns: list[int]) -> F64:
        return K[np.ix_(rows, columns)]

    def embedding() -> F64:
        sketch, m = S_p[: len(S)], [S[i] for i in landmarks]
        eigenvalues, V = np.linalg.eigh(sketch.T @ gram(S, S) @ sketch)
        root = np.diag(np.sqrt(eigenvalues[-k:]))
        return np.asarray(np.linalg.pinv(sketch.T @ gram(S, m)) @ V[:, -k:] @ root, dtype=np.float64)

    for t, truth in enumerate(y.tolist(), start=1):
        if len(S) >= B:
            k_m = K[[S[i] for i in landmarks], t - 1]
            value = min(max(float(b @ k_m), -C), C)
            g = derivative(value, truth)
            b = b - eta(t) * g * (Q @ Q.T @ k_m)
            waited += g != 0.0
            if g != 0.0 and waited >= cycle(t):
                S.append(t - 1)
                Q, waited = embedding(), 0
                P = Q @ Q.T
                # The projection on the span of Q's columns; or P k_m, scaled to the value that b has at x.
                b = float(b @ k_m) / float(k_m @ P @ k_m) * (P @ k_m) if is_match else Q @ np.linalg.pinv(Q) @ b
        else:
            value = min(max(float(a @ K[S, t - 1]), -C), C)
            g = derivative(0.0 if is_first else value, truth)
            if g != 0.0:
                S.append(t - 1)
                a = np.append(a, -eta(t) * g)
            if len(S) == B:
                Q, m = embedding(), [S[i] for i in landmarks]
                b = Q @ np.linalg.lstsq(gram(m, m) @ Q, gram(m, S) @ a, rcond=None)[0]
        values.append(value)
    return values, [X[s] for s in S]
