"""Algorithm 1 of [kuzborskij2017] as it reads: every distance to every centre from M itself, every list kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass
class Run:
    """Of every round: the forecast, the place of the active centre in S, and whether the round is inside its ball."""

    values: list[float] = field(default_factory=list)
    active: list[int] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    lists: list[list[float]] = field(default_factory=list)
    """The truths of T_s, for every s of S."""


def rank(eigenvalues: F64, t: int) -> int:
    """Equations (5) and (6); eigenvalues descending from 1."""
    d = len(eigenvalues)

    def kappa(r: int) -> int:
        return max(m for m in range(1, d + 1) if eigenvalues[m - 1] >= t ** (-2.0 / (1 + r)))

    return min(r for r in range(1, d + 1) if kappa(r) <= r)


def ellipsoid_packing(X: F64, y: F64, M: F64, include_center: bool, middle: float = 0.5) -> Run:
    """M: (d, d), positive definite with largest eigenvalue 1. `include_center`: is t in the list of the ball it opens?"""
    eigenvalues = np.array(np.linalg.eigvalsh(M)[::-1], dtype=np.float64)
    eigenvalues[0] = 1.0
    run, S = Run(), list[F64]()
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        eps = t ** (-1.0 / (1 + rank(eigenvalues, t)))
        if not S:
            S.append(x)
            run.lists.append([])
        differences = x - np.array(S)
        distances = np.sqrt(((differences @ M) * differences).sum(axis=1))
        s = int(np.argmin(distances))
        run.active.append(s)
        run.values.append(float(np.mean(run.lists[s])) if run.lists[s] else middle)
        run.inside.append(bool(distances[s] <= eps))
        if run.inside[-1]:
            run.lists[s].append(truth)
        else:
            S.append(x)
            run.lists.append([truth] if include_center else [])
    return run
