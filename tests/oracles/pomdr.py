r"""POMD with ALD, then OMDR with removal, from the definitions: kernel sums, projections by `solve`, norms a^T K a.

References: [li2023] algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from okl_core.types import F64

KernelFunction = Callable[[F64, F64], float]


def pomdr(
    X: F64,
    y: F64,
    kernel: KernelFunction,
    *,
    U: float,
    B: int,
    M: int,
    B0: Callable[[int], int],
    threshold: Callable[[int, float], float],
    c: float,
    D: float = 0.0,
) -> dict[str, F64]:
    """Every round of a stream; B0 is a function of t, the threshold one of t and D. D: a known supremum of kappa."""
    S: list[F64] = []
    a = np.zeros(0)
    G, phase, removed, ald_rounds, t_bar, sum_delta = 0.0, 1, 0, 0, 0, 0.0
    values, norms, sizes = [], [], []

    def f(x: F64) -> float:
        return sum((a_i * kernel(s, x) for a_i, s in zip(a, S, strict=True)), start=0.0)

    def gram(points: list[F64]) -> F64:
        return np.array([[kernel(p, q) for q in points] for p in points]).reshape(len(points), len(points))

    for t in range(1, len(y) + 1):
        x_t, y_t = X[t - 1], y[t - 1]
        kappa = kernel(x_t, x_t)
        D = max(D, kappa)
        past = range(max(1, t - M), t)
        M_t = max(1, len(past))

        def mean(h: Callable[[F64], float], past: range = past, M_t: int = M_t) -> float:
            """<h, (1/M_t) sum_r y_{t-r} k(x_{t-r}, .)>"""
            return sum((y[r - 1] * h(X[r - 1]) for r in past), start=0.0) / M_t

        g = mean(lambda x, x_t=x_t: kernel(x, x_t))
        rate = (c if removed else 1.0) * U / math.sqrt(3.0 * D + G)
        sizes.append(len(S))
        values.append(f(x_t) + rate * g)
        if y_t * values[-1] < 1.0:
            if t > 1:
                sum_delta += max(kappa - 2.0 * y_t * g, 0.0)
            k = np.array([kernel(s, x_t) for s in S])
            K = gram(S)
            beta = np.linalg.solve(K, k) if phase == 1 and S else np.zeros(0)
            distance2 = max(kappa - k @ beta, 0.0) if phase == 1 else math.inf
            if math.sqrt(distance2) <= threshold(t, D):
                ald_rounds += 1
                square = float(beta @ K @ beta)
                inner = y_t * mean(
                    lambda x, S=tuple(S), beta=beta: float(sum(b * kernel(s, x) for b, s in zip(beta, S, strict=True)))
                )
                a = a + rate * y_t * beta
                is_new = False
            else:
                square, inner, is_new = kappa, y_t * g, True
                S.append(x_t)
                a = np.append(a, rate * y_t)
            G += max(square - 2.0 * inner, 0.0)
            K = gram(S)
            norm = math.sqrt(max(a @ K @ a, 0.0))
            if norm > U:
                a = a * (U / norm)
            if phase == 1 and is_new and len(S) >= B0(t):
                phase, t_bar = 2, t + 1
            elif phase == 2 and len(S) == B:
                half = B // 2
                for j in range(half, B):
                    a[int(np.argmax([round(kernel(S[i], S[j]), 11) for i in range(half)]))] += a[j]
                S, a = S[:half], a[:half]
                norm = math.sqrt(max(a @ gram(S) @ a, 0.0))
                if norm > 1e-9:
                    a = a * (U / norm)
                G = 0.0
                removed += 1
        norms.append(math.sqrt(max(a @ gram(S) @ a, 0.0)) if S else 0.0)
    totals = {
        "G": G,
        "phase": phase,
        "removals": removed,
        "ald_rounds": ald_rounds,
        "t_bar": t_bar,
        "sum_delta": sum_delta,
    }
    return {
        "values": np.array(values),
        "norms": np.array(norms),
        "sizes": np.array(sizes),
        "coefficients": a,
        "S": np.array(S),
        **{name: np.array(float(total)) for name, total in totals.items()},
    }
