"""The parameters and the state of SkeGD, in the letters of the table in `skegd_embedding`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.state import require_indices, require_lengths
from okl_core.errors import StateFormatError
from okl_core.first_order.buffered import BufferedConfig, BufferedState
from okl_core.first_order.in_blocks import KernelSumState
from okl_core.kernels.points import Points
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64, MAX_GRAM_POINTS

CYCLE_SHARE = 0.3
"""Violations between two points that enter the sketch, as a share of the horizon; the programs of [li2023]."""


class SkegdConfig(BufferedConfig):
    """Parameters of SkeGD. What is null is derived from the budget as in [zhang2019]."""

    sketch_size: int | None = Field(
        default=None, ge=1, le=MAX_GRAM_POINTS, description="s_p: columns of the sketch. null: 0.75 budget."
    )
    blocks: int = Field(default=4, ge=1, le=1000, description="c: entries in a row of the sketch.")
    landmarks: int | None = Field(
        default=None,
        ge=1,
        le=MAX_GRAM_POINTS,
        description="s_m: points that an input is compared with. null: 0.2 sketch_size.",
    )
    rank: int | None = Field(
        default=None, ge=1, le=MAX_GRAM_POINTS, description="k: dimensions of the embedding. null: 0.1 budget."
    )
    cycle: int | None = Field(
        default=None,
        ge=1,
        description="Violations after which one enters the sketch, and all is embedded anew. null: 0.3 horizon.",
    )
    carry: Literal["transport", "match"] = Field(
        default="transport",
        description="What a new embedding keeps of the learned function: all that it can express, "
        "or (as first published) its value at one input.",
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        s_p, s_m, k = self.sizes
        if not self.blocks <= s_p:
            raise ValueError(f"blocks is {self.blocks}; it must be at most the sketch_size, {s_p}")
        if not k <= min(s_p, s_m):
            raise ValueError(f"rank is {k}; it must be at most the sketch_size, {s_p}, and the landmarks, {s_m}")
        if not s_m <= self.budget:
            raise ValueError(f"landmarks is {s_m}; it must be at most the budget, {self.budget}")
        return self

    @property
    def sizes(self) -> tuple[int, int, int]:
        """s_p, s_m and k."""
        k = self.rank or max(1, round(0.1 * self.budget))
        s_p = self.sketch_size or max(self.blocks, k, round(0.75 * self.budget))
        return s_p, self.landmarks or min(self.budget, max(k, round(0.2 * s_p))), k

    def cycle_at(self, t: int) -> int:
        """The cycle in round t."""
        return self.cycle or math.ceil(CYCLE_SHARE * self.horizon_at(t))


@dataclass(slots=True)
class SkegdState(BufferedState):
    """The state of gradient descent on an embedding; all below is empty in the first phase."""

    rows: GrowingArray
    """(n, c): S_p as `sketch_rows` gives it."""
    landmarks: Points
    chosen: F64
    """(s_m,): which points the landmarks are."""
    Q: F64
    w: F64
    waited: int
    """Violations since the last embedding."""

    def __post_init__(self) -> None:
        if not len(self.w):
            KernelSumState.__post_init__(self)
            return
        require_lengths(points=self.points, rows=self.rows)
        require_lengths(landmarks=self.landmarks, chosen=self.chosen, Q=self.Q)
        require_indices("chosen", self.chosen, len(self.points) - 1)
        if self.Q.shape[1:] != self.w.shape:
            raise StateFormatError(f"weights of shape {self.w.shape} with Q of shape {self.Q.shape}")

    def require_config(self, config: SkegdConfig) -> None:
        require_indices("rows", np.abs(self.rows.view), config.sizes[0], 1)
        if (len(self.coefficients) == config.budget) != bool(len(self.w)):
            raise StateFormatError(f"{len(self.w)} weights after {len(self.coefficients)} points of the first phase")

    @classmethod
    def empty(cls, config: SkegdConfig, dim: int) -> SkegdState:
        """The state before the first round."""
        return cls(
            t=0,
            points=config.kernel.points(dim),
            coefficients=GrowingArray(),
            rows=GrowingArray(config.blocks),
            landmarks=config.kernel.points(dim),
            chosen=np.empty(0),
            Q=np.empty((0, 0)),
            w=np.empty(0),
            waited=0,
        )
