"""The parameters and the state of AOGD-ALD, in the letters of the table in `aogd_ald`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from okl_core.contract.state import require_indices, require_lengths, require_positive
from okl_core.errors import StateFormatError
from okl_core.first_order.in_blocks import KernelSumState
from okl_core.learners.ald.ald_dictionary import AldConfig
from okl_core.linalg.cholesky import Factor

PROJECTS, STORES = 1, 2
"""The phases: gradients that nearly lie in the span of the dictionary are projected to it, or every input is stored."""


class AogdAldConfig(AldConfig):
    """Parameters of AOGD-ALD."""

    norm_bound: float = Field(default=2.0, gt=0.0, le=1e50, description="U: largest norm of the function learned.")
    dictionary_size: int | None = Field(
        default=None,
        ge=1,
        description="B0: stored points that end the projections; at most the budget. null: (sqrt(d^2 + 4 d T) - d) / 2.",
    )
    budget: int = Field(
        default=400, ge=1, description="Points at most, an addition of ours; one more drops the oldest."
    )

    def dictionary_at(self, t: int, dim: int) -> int:
        """B0 in round t."""
        if self.dictionary_size is not None:
            return min(self.dictionary_size, self.budget)
        d, T = float(dim), float(self.horizon_at(t))
        return min(max(1, round((math.sqrt(d * d + 4.0 * d * T) - d) / 2.0)), self.budget)


@dataclass(slots=True)
class AogdAldState(KernelSumState):
    """The function f = sum_i coefficients_i k(points_i, .). In phase 2 the points are a ring once the budget is used up."""

    L: Factor
    """Empty in phase 2."""
    phase: int
    oldest: int
    """Index of the point that is dropped next."""
    dropped: int
    norm2: float
    """nu^2."""
    gain: float
    """G."""
    lost: float
    """What projections and dropped points cost: the second term of `bound`."""

    def __post_init__(self) -> None:
        KernelSumState.__post_init__(self)
        require_indices("oldest", np.array(self.oldest), max(0, len(self.points) - 1))
        if self.phase == PROJECTS:
            require_lengths(points=self.points, L=self.L)
        elif self.phase != STORES or len(self.L):
            raise StateFormatError(f"phase {self.phase} with {len(self.L)} rows of L")
        require_positive(gain=self.gain)
