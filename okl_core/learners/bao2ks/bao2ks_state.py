"""The parameters and the state of B(AO)2KS, in the letters of the table in `bao2ks_round`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.state import require_lengths, require_positive
from okl_core.errors import StateFormatError
from okl_core.first_order.steps import StepConfig
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64, LearnerState


class Bao2ksConfig(StepConfig):
    """Parameters of B(AO)2KS. The defaults are those of the experiments in [li2023]."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    norm_bound: float = Field(default=30.0, gt=0.0, description="U: largest norm of the function learned.")
    budget: int = Field(
        default=400, ge=2, description="B: with more stored points than this the function starts again from 0."
    )
    reservoir: int = Field(
        default=10,
        ge=1,
        description="M: past gradients whose mean is the guess of the next one; ln(horizon) in theory.",
    )
    thinning: float = Field(
        default=6.0, ge=1.0, description="beta: a gradient is asked for with a probability of at most 1 / beta."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.budget <= self.reservoir:
            raise ValueError(
                f"budget is {self.budget}; it must be above the reservoir, {self.reservoir}, which is stored"
            )
        return self


@dataclass(slots=True)
class Bao2ksState(LearnerState):
    """f' = scale (sum_i coefficients_i k(points_i, .) + pull g), with g the guess."""

    points: Points
    """The M slots of V, then the points of S that are not in V. An unused slot repeats the first point."""
    labels: F64
    """(M,): y of each slot, 0 while it is unused."""
    members: F64
    """(M,): is the slot's point in S?"""
    coefficients: GrowingArray
    scale: float
    pull: float
    """The part of f' / scale that is a multiple of g."""
    norm2: float
    """|f'|^2."""
    inner: float
    """<f', g>."""
    guess2: float
    """|g|^2."""
    violations: int
    """Rounds with loss."""
    sampled: int
    """Violations whose own gradient was asked for."""
    restarts: int

    def __post_init__(self) -> None:
        if self.t:
            require_lengths(points=self.points, coefficients=self.coefficients)
        if len(self.coefficients) < len(self.labels) or not np.isin(self.members, (0.0, 1.0)).all():
            raise StateFormatError("the slots of the reservoir are not those of stored points")
        require_positive(scale=self.scale)

    @classmethod
    def empty(cls, config: Bao2ksConfig, dim: int) -> Bao2ksState:
        """The state before the first round."""
        M = config.reservoir
        return cls(
            t=0,
            points=config.kernel.points(dim),
            labels=np.zeros(M),
            members=np.zeros(M),
            coefficients=GrowingArray.unpack(np.zeros(M)),
            scale=1.0,
            pull=0.0,
            norm2=0.0,
            inner=0.0,
            guess2=0.0,
            violations=0,
            sampled=0,
            restarts=0,
        )

    @property
    def size(self) -> int:
        """|S|."""
        return int(self.members.sum()) + len(self.coefficients) - len(self.members)

    def guess_weights(self) -> F64:
        """The coefficients of g over the slots of V, (M,): y / |V|."""
        return self.labels / max(1, min(self.t, len(self.labels)))
