r"""The removal of POMDR: once B points are stored, the newer half of them is merged into the older half.

    a_n(j) <- a_n(j) + a_j  for every j > B/2, with n(j) = arg max_{i <= B/2} k(x_i, x_j)     eq. (9)
    f' <- (U / |f'|) f'                                                                      after eq. (9)

The older half stays the same for ever, so n(j) is found once, when x_j is stored.

References: [li2023] section "OMDR".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from okl_core.contract.rng import RoundRng
from okl_core.kernels.kernels import Kernel
from okl_core.learners.pomdr.pomdr_state import PomdrConfig
from okl_core.types import F64

VANISHED = 1e-14
"""Share of the largest possible |f'|^2 below which a merged function counts as 0: it may be all rounding."""
TIE = 1e-12
"""Kernel values this close, relative to the largest, are equal: the oldest point wins."""
CHUNK = 100
"""Columns of a Gram matrix computed at once, where half of it is enough."""


class Removal(NamedTuple):
    """The function f' after a removal."""

    coefficients: F64
    """Of the B/2 points that are kept."""
    norm2: float
    """|f'|^2."""


def most_similar(k: F64) -> int:
    """The index n(j) of the largest of the kernel values k(x_i, x_j), i <= B/2."""
    # Rounding cannot break the tie of a point that is stored twice.
    largest = k.item(k.argmax())
    return int((k >= largest - TIE * abs(largest)).argmax())


def remove(
    config: PomdrConfig,
    a: F64,  # (B,)
    nearest: NDArray[np.intp],  # (B/2,): n(j) for j > B/2
    kept: F64,  # (B/2, d)
    rng: RoundRng,
) -> Removal:
    """Merge the newer half of the points into the older half. Nothing changes."""
    half, U = config.budget // 2, config.norm_bound
    merged, mass = a[:half].copy(), np.abs(a[:half])
    np.add.at(merged, nearest, a[half:])
    np.add.at(mass, nearest, np.abs(a[half:]))
    norm2 = max(_squared_norm(config.kernel, kept, merged), 0.0)
    largest = float(mass @ np.sqrt(config.kernel.diag(kept)))
    # A function that has vanished cannot be scaled to the norm U.
    if rng.decide(norm2 > VANISHED * largest * largest):
        merged *= U / math.sqrt(norm2)
        norm2 = U * U
    return Removal(merged, norm2)


def _squared_norm(kernel: Kernel, X: F64, a: F64) -> float:  # X: (n, d), a: (n,)
    """a^T K a for K of shape (n, n), of which little more than a triangle is computed."""
    total = 0.0
    for start in range(0, len(a), CHUNK):
        own = slice(start, start + CHUNK)
        weights = 2.0 * a[: start + CHUNK]
        weights[own] *= 0.5
        total += float(weights @ kernel.block(X[: start + CHUNK], X[own]) @ a[own])
    return total
