"""Algorithm 1 of [kuzborskij2017] as it reads: every distance to every centre from M itself, every list kept.

And the same with linear fits in place of means, each solved anew from all of its rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass
class PackingRun:
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


def linear_fit(x: F64, s: F64, X: F64, y: F64, M: F64, slope_regularization: float) -> float:
    """a + <b, x - s>, where (a, b) minimises sum (a + <b, x_t - s> - y_t)^2 + lambda b^T M^{-1} b; within [0, 1]."""
    root = np.linalg.cholesky(np.linalg.inv(M)).T
    penalty = np.hstack((np.zeros((len(s), 1)), np.sqrt(slope_regularization) * root))
    A = np.vstack((np.hstack((np.ones((len(y), 1)), X - s)), penalty))
    a, *b = np.linalg.lstsq(A, np.append(y, np.zeros(len(s))))[0]
    return float(np.clip(a + b @ (x - s), 0.0, 1.0))


def ellipsoid_packing(
    X: F64,
    y: F64,
    M: F64,
    include_center: bool,
    middle: float = 0.5,
    slope_regularization: float | None = None,
) -> PackingRun:
    """M: (d, d), positive definite with largest eigenvalue 1. `include_center`: is t in the list of the ball it opens?

    Means, or with a `slope_regularization` linear fits.
    """
    eigenvalues = np.array(np.linalg.eigvalsh(M)[::-1], dtype=np.float64)
    eigenvalues[0] = 1.0
    run, S, members = PackingRun(), list[F64](), list[list[F64]]()
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        eps = t ** (-1.0 / (1 + rank(eigenvalues, t)))
        if not S:
            S.append(x)
            run.lists.append([])
            members.append([])
        differences = x - np.array(S)
        distances = np.sqrt(((differences @ M) * differences).sum(axis=1))
        s = int(np.argmin(distances))
        run.active.append(s)
        if not run.lists[s]:
            run.values.append(middle)
        elif slope_regularization is None:
            run.values.append(float(np.mean(run.lists[s])))
        else:
            listed = np.array(members[s]), np.array(run.lists[s])
            run.values.append(linear_fit(x, S[s], *listed, M, slope_regularization))
        run.inside.append(bool(distances[s] <= eps))
        if run.inside[-1]:
            run.lists[s].append(truth)
            members[s].append(x)
        else:
            S.append(x)
            run.lists.append([truth] if include_center else [])
            members.append([x] if include_center else [])
    return run
