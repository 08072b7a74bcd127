"""The parameters and the state of POMDR, in the letters of the table in `pomdr_round`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.state import require_indices, require_lengths, require_positive
from okl_core.errors import StateFormatError
from okl_core.first_order.steps import open_horizon
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64, LearnerConfig, LearnerState

ALD_EXPONENT = 2.0 / 3.0
ALD_FACTOR = 10.0
"""The threshold of the experiments in [li2023]."""
FIRST_HORIZON = 1024
"""The horizon that an open-ended stream starts with; it doubles from there."""

POMD, OMDR = 1, 2
"""The phases: projected optimistic mirror descent, then optimistic mirror descent with removing."""


class PomdrConfig(LearnerConfig):
    """Parameters of POMDR. The defaults are those of the experiments in [li2023]."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    norm_bound: float = Field(default=25.0, gt=0.0, description="U: largest norm of the function learned.")
    budget: int = Field(default=400, ge=2, description="B: at this many stored points half are removed; even.")
    pomd_budget: int | None = Field(
        default=None,
        ge=1,
        description="B0: stored points that end the projections; below the budget. "
        "null: 15 ln(horizon), at most half the budget.",
    )
    window: int = Field(default=15, ge=1, le=1000, description="M: past gradients averaged for the optimistic step.")
    ald_threshold: float | None = Field(
        default=None,
        ge=0.0,
        description="A gradient this close to the span of the stored points is projected onto it, and closer than "
        "0.001 sqrt(k(x, x)) always. null: min(1, ald_factor horizon^-ald_exponent) sqrt(D), with D the largest k(x, x).",
    )
    ald_exponent: float = Field(
        default=ALD_EXPONENT, gt=0.0, description="zeta: how fast the threshold falls with the horizon; 1 in theory."
    )
    ald_factor: float = Field(default=ALD_FACTOR, gt=0.0, description="Factor of that threshold; 1 in theory.")
    step_factor: float = Field(
        default=1.0,
        gt=0.0,
        description="c: multiplies the rate after the first removal; 1 in theory, 0.05 to 0.1 is often better.",
    )
    horizon: int | None = Field(
        default=None,
        ge=1,
        description="T: rounds expected. null: the power of two that holds the rounds so far, 1024 at least.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.budget % 2:
            raise ValueError(f"budget is {self.budget}; it must be even, since a removal keeps half of it")
        if self.pomd_budget is not None and self.pomd_budget >= self.budget:
            raise ValueError(f"pomd_budget is {self.pomd_budget}; it must be below the budget, {self.budget}")
        if self.ald_threshold is not None and (self.ald_exponent, self.ald_factor) != (ALD_EXPONENT, ALD_FACTOR):
            raise ValueError("give either ald_threshold, or ald_exponent and ald_factor")
        return self

    def horizon_at(self, t: int) -> int:
        """T in round t."""
        return self.horizon or open_horizon(t, FIRST_HORIZON)

    def pomd_budget_at(self, t: int) -> int:
        """B0 in round t."""
        if self.pomd_budget is not None:
            return self.pomd_budget
        return max(1, min(math.ceil(15.0 * math.log(self.horizon_at(t))), self.budget // 2))

    def ald_threshold_at(self, t: int, D: float) -> float:
        """The threshold of the ALD condition in round t."""
        if self.ald_threshold is not None:
            return self.ald_threshold
        return min(1.0, self.ald_factor * self.horizon_at(t) ** -self.ald_exponent) * math.sqrt(D)


@dataclass(slots=True)
class PomdrState(LearnerState):
    """f' = scale sum_i coefficients_i k(x_i, .) over the points of S, and the last M rounds."""

    points: Points
    """The M slots of the window, then S. Round r is in slot (r - 1) mod M; an unused slot repeats the first point."""
    labels: F64
    """(M,): y of each slot, 0 while it is unused."""
    coefficients: GrowingArray
    """(|S|,): a / scale."""
    nearest: GrowingArray
    """For each point of S after the first B/2: the index of the most similar of those."""
    factor: Factor
    """L; empty in phase 2."""
    ring: GrowingArray
    """(|S|, M): k(x_i, slot); empty in phase 2."""
    scale: float
    norm2: float
    """|f'|^2."""
    gain: float
    """G."""
    kappa: float
    """D; the largest kappa so far where the kernel has no bound."""
    phase: int
    """POMD or OMDR."""
    t_bar: int
    """The first round of phase 2; 0 before."""
    removals: int
    violations: int
    """Rounds with loss."""
    ald_rounds: int
    """Violations whose gradient was projected."""
    sum_delta: float
    """Sum over the violations after round 1 of delta~ without projection: A_T of the paper's tables."""

    def __post_init__(self) -> None:
        size = len(self.coefficients)
        if len(self.points) != (len(self.labels) + size if self.t else 0):
            raise StateFormatError(f"{len(self.points)} points with {len(self.labels)} slots and {size} coefficients")
        if self.phase == POMD:
            require_lengths(coefficients=self.coefficients, factor=self.factor, ring=self.ring)
        elif self.phase != OMDR or len(self.factor) or len(self.ring):
            raise StateFormatError(f"phase {self.phase} with {len(self.factor)} rows of the factor")
        require_positive(scale=self.scale)

    def require_config(self, config: PomdrConfig) -> None:
        half = config.budget // 2
        require_indices("nearest", self.nearest.view, half - 1)
        if len(self.nearest) != max(0, len(self.coefficients) - half):
            raise StateFormatError(f"{len(self.coefficients)} points, and the nearest of {len(self.nearest)}")

    @classmethod
    def empty(cls, config: PomdrConfig, dim: int) -> PomdrState:
        """The state before the first round."""
        return cls(
            t=0,
            points=config.kernel.points(dim),
            labels=np.zeros(config.window),
            coefficients=GrowingArray(),
            nearest=GrowingArray(),
            factor=Factor(),
            ring=GrowingArray(config.window),
            scale=1.0,
            norm2=0.0,
            gain=0.0,
            kappa=1.0 if config.kernel.translation_invariant else 0.0,
            phase=POMD,
            t_bar=0,
            removals=0,
            violations=0,
            ald_rounds=0,
            sum_delta=0.0,
        )

    def of_phase_1(self, config: PomdrConfig) -> slice:
        """Where among `points` those are that joined S in phase 1."""
        B0 = config.pomd_budget_at(self.t if self.phase == POMD else self.t_bar - 1)
        count = min(B0, config.budget // 2) if self.removals else B0
        return slice(config.window, config.window + count)

    def in_window(self, config: PomdrConfig) -> int:
        """M_t of the next round; 1 in the first round, where g_t is 0."""
        return max(1, min(self.t, config.window))
