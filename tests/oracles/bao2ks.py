r"""B(AO)2KS from the definitions: every function is a vector of coefficients over all rounds, every norm is sqrt(c^T K c).

References: [liao2021] with one kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from okl_core.types import F64


@dataclass
class Run:
    values: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    """|f'| after each round."""
    sizes: list[int] = field(default_factory=list)
    """|S| after each round, before the restart that may follow."""
    V: list[int] = field(default_factory=list)
    """The rounds in the reservoir at the end."""
    f: F64 = field(default_factory=lambda: np.zeros(0))
    """Coefficients of f' at the end."""
    violations: int = 0
    sampled: int = 0
    restarts: int = 0


def bao2ks(
    K: F64,  # (T, T)
    y: F64,
    draws: F64,  # (T, 2): the coin, and the place in the reservoir
    rates: F64,  # (T,)
    *,
    U: float,
    B: int,
    M: int,
    beta: float,
) -> Run:
    """Every round of a stream."""
    T = len(y)
    unit = np.eye(T)
    f, S, run = np.zeros(T), set[int](), Run()

    def norm(c: F64) -> float:
        return math.sqrt(max(c @ K @ c, 0.0))

    def project(c: F64) -> F64:
        return c * min(1.0, U / norm(c)) if norm(c) > 0.0 else c

    for t in range(T):
        if len(S) > B:
            f, S = np.zeros(T), set()
            run.restarts += 1
        guess = -sum((y[i] * unit[i] for i in run.V), start=np.zeros(T)) / max(1, len(run.V))
        value = float(project(f - rates[t] * guess) @ K[t])
        if y[t] * value < 1.0:
            gradient = -y[t] * unit[t]
            error, size = norm(gradient - guess), norm(guess)
            p = error / (beta * (error + size)) if error > 1e-5 else 0.0
            is_sampled = draws[t, 0] < p
            estimate = guess + (gradient - guess) / p if is_sampled else guess
            f = project(f - rates[t] * estimate)
            S |= set(run.V) | ({t} if is_sampled else set())
            run.violations += 1
            run.sampled += is_sampled
        if t < M:
            run.V.append(t)
        elif (slot := math.floor(draws[t, 1] * (t + 1))) < M:
            run.V[slot] = t
        run.values.append(value)
        run.norms.append(norm(f))
        run.sizes.append(len(S))
    run.f = f
    return run
