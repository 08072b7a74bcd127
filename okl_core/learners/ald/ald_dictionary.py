r"""The dictionary of both learners: a point joins if it is far enough from the span of the others.

| symbol | meaning                                                            | shape    | in [li2023b] |
|--------|--------------------------------------------------------------------|----------|--------------|
| S      | the dictionary, oldest first                                       | (k, d)   | S_t          |
| L      | lower Cholesky factor of K_S                                       | (k, k)   |              |
| z      | L^{-1} k_S(x_t): the input in an orthonormal basis of span S       | (k,)     |              |
| kappa  | k(x_t, x_t)                                                        |          |              |
| alpha  | kappa - z^T z, the squared distance of k(x_t, .) to span S         |          | alpha_t      |
| T      | rounds expected                                                    |          | T            |

x_t joins if sqrt(alpha) > threshold sqrt(kappa); the first input that k does not map to 0 always does.

References: [li2023b]; [engel2004].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.first_order.steps import open_horizon
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.kernels.rounding import magnified
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.guards import require_finite
from okl_core.second_order.embedding import INDEPENDENT, lost
from okl_core.types import F64, LearnerConfig

FACTOR = 5.0
"""The threshold of the authors' program is FACTOR / sqrt(T)."""
FIRST_HORIZON = 1024
"""The horizon that an open-ended stream starts with; it doubles from there."""


class AldConfig(LearnerConfig):
    """Parameters of the dictionary."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    threshold: float | None = Field(
        default=None,
        gt=0.0,
        lt=1.0,
        description="A point joins if its distance to the span of the others is a larger share of its norm. "
        "null: 5 / sqrt(T).",
    )
    horizon: int | None = Field(
        default=None,
        ge=1,
        description="T: rounds expected. null: the power of two that holds the rounds so far, 1024 at least.",
    )

    def horizon_at(self, t: int) -> int:
        """T in round t."""
        return self.horizon or open_horizon(t, FIRST_HORIZON)

    def threshold_at(self, t: int) -> float:
        """The threshold in round t."""
        return FACTOR / math.sqrt(self.horizon_at(t)) if self.threshold is None else self.threshold


class Seen(NamedTuple):
    """An input as the dictionary sees it; the letters of the module's table."""

    z: F64
    kappa: float
    alpha: float


def see(L: Factor, t: int, row: F64, kappa: float) -> Seen:
    """An input with the kernel row k_S(x_t), shape (k,), in the basis of the dictionary: O(k^2). Raises DivergedError."""
    z = L.solve(row)
    alpha = lost(kappa, z)
    require_finite(t, kappa, alpha)
    return Seen(z, kappa, alpha)


def is_far(config: AldConfig, t: int, seen: Seen, rng: RoundRng) -> bool:
    """Is the input of round t far enough from the span of the dictionary? The answer is recorded."""
    z, kappa = seen.z, seen.kappa
    if not len(z):
        return rng.decide(kappa > 0.0)
    threshold = config.threshold_at(t)
    # Where less is left it is made of rounding errors.
    return rng.decide(seen.alpha > max(threshold * threshold, INDEPENDENT) * kappa)


def condition(config: AldConfig, points: Points, L: Factor, a: F64) -> float:
    """What rounding may have grown to in f = sum_i a_i k(s_i, .) with a = L^{-T} of something, a of shape (k,)."""
    norms = np.sqrt(config.kernel.diag(points.coordinates()))
    return magnified(max(1.0, L.inverse_norm(norms)), config.kernel.mass(points, a))
