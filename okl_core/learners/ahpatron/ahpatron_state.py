"""The parameters and the state of Ahpatron, in the letters of the table in `ahpatron`, and the halving of its dictionary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.first_order.in_blocks import KernelSumState
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.types import F64, MAX_GRAM_POINTS, LearnerConfig


class AhpatronConfig(LearnerConfig):
    """Parameters of Ahpatron."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    budget: int = Field(default=400, ge=2, le=MAX_GRAM_POINTS, multiple_of=2, description="B: stored points at most.")
    slack: float = Field(
        default=0.5, ge=0.0, lt=1.0, description="epsilon: rounds whose margin is below 1 - epsilon are learned."
    )
    ridge: float = Field(default=0.0005, ge=1e-8, description="eta: of the projection on the half that stays.")

    @property
    def radius(self) -> float:
        """U."""
        return 0.5 * math.sqrt(self.budget)


@dataclass(slots=True)
class AhpatronState(KernelSumState):
    """The function f = sum_i coefficients_i k(points_i, .), its norm, and how often half of the points were removed."""

    norm: float
    halvings: int
    price: float
    """What the rounds so far add to `bound`."""


class Half(NamedTuple):
    """What stays of a full dictionary."""

    kept: NDArray[np.intp]
    """The places of I, shape (B / 2,)."""
    coefficients: F64
    """Theirs, shape (B / 2,), what those of J gave included."""
    norm: float
    """|f~|, of the function f~ that is left."""
    moved: float
    """|f~ - f|."""


def halved(config: AhpatronConfig, state: AhpatronState, rng: RoundRng) -> Half:
    """Project a full dictionary on its better half: O(d B^2 + B^3).

    Records a choice a point: rounding may tell which is larger. Raises DivergedError.
    """
    a = state.coefficients.view
    large = np.abs(a) >= float(np.median(np.abs(a)))
    kept = np.flatnonzero([rng.decide(is_large) for is_large in large.tolist()])[: config.budget // 2]
    gone = np.setdiff1d(np.arange(len(a)), kept)
    K = config.kernel.gram(state.points.coordinates())
    K_II = K[np.ix_(kept, kept)]
    ridged = K_II + config.ridge * np.eye(len(kept))
    try:
        solver = cho_factor(ridged, lower=True, overwrite_a=True)
    except LinAlgError as error:
        raise DivergedError(f"round {state.t + 1} cannot halve the dictionary; raise the ridge") from error
    b = a[kept] + cho_solve(solver, K[np.ix_(kept, gone)] @ a[gone])
    square = float(b @ K_II @ b)
    norm = state.norm if square > 0.0 else 0.0
    b *= norm / math.sqrt(square) if square > 0.0 else 0.0
    difference = -a
    difference[kept] += b
    return Half(kept, b, norm, math.sqrt(max(float(difference @ K @ difference), 0.0)))
