"""Kernel OGD as it is defined: kernel sums, norms a^T K a, every coefficient scaled in every round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
KernelFunction = Callable[[F64, F64], float]
StepSize = Callable[[int, float], float]
"""(t, D) -> eta."""


@dataclass
class Run:
    """Of every round: value, step size and |f| after it. At the end: the points, oldest first, and coefficients."""

    values: list[float] = field(default_factory=list)
    etas: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    points: list[F64] = field(default_factory=list)
    a: list[float] = field(default_factory=list)
    bound_gradient: float = 0.0


def kernel_ogd(
    X: F64,
    y: F64,
    kernel: KernelFunction,
    derivative: Callable[[float, float], float],
    eta: StepSize,
    *,
    lambda_: float = 0.0,
    U: float = math.inf,
    B: float = math.inf,
    C: float = math.inf,
    D: float = 0.0,
) -> Run:
    """`derivative` is l'(value, y). D: a known supremum of k(x, x)."""
    run = Run()
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        D = max(D, kernel(x, x))
        step = eta(t, D)
        m = sum((a * kernel(s, x) for a, s in zip(run.a, run.points, strict=True)), start=0.0)
        value = min(max(m, -C), C)
        g = derivative(value, truth)
        gradient = np.array([*(lambda_ * a for a in run.a), g])
        run.bound_gradient += 0.5 * step * norm2(kernel, gradient, [*run.points, x])
        run.a = [(1.0 - step * lambda_) * a for a in run.a]
        if g != 0.0 and kernel(x, x) > 0.0:
            run.points.append(x)
            run.a.append(-step * g)
            if len(run.points) > B:
                run.points.pop(0)
                run.a.pop(0)
        norm = math.sqrt(max(norm2(kernel, np.array(run.a), run.points), 0.0))
        if norm > U:
            run.a = [a * U / norm for a in run.a]
        run.values.append(value)
        run.etas.append(step)
        run.norms.append(min(norm, U))
        run.sizes.append(len(run.points))
    return run


def norm2(kernel: KernelFunction, a: F64, points: list[F64]) -> float:
    """a^T K a."""
    K = np.array([[kernel(s, z) for z in points] for s in points]).reshape(len(points), len(points))
    return float(a @ K @ a)
