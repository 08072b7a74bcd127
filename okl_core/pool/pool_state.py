"""What a pool keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from okl_core.contract.state import part_of, unpack
from okl_core.errors import StateFormatError
from okl_core.pool.experts import Cells, Experts
from okl_core.types import F64, LearnerState


@dataclass(slots=True)
class PoolNumbers(LearnerState):
    """The experts' weights p, shape (N,), their cumulative losses, (N,), that of the pool, and who plays the next round."""

    weights: F64
    losses: F64
    loss: float
    awake: F64
    """1.0 for a unit that plays, 0.0 for one that rests, shape (units,)."""


@dataclass(slots=True)
class PoolState(PoolNumbers):
    """With the experts' states."""

    cells: Cells

    @classmethod
    def first(cls, experts: Experts, dim: int) -> Self:
        """That before the first round."""
        N = experts.count
        return cls(0, np.full(N, 1.0 / N), np.zeros(N), 0.0, np.ones(len(experts.units)), experts.init(dim))

    @classmethod
    def of(cls, experts: Experts, arrays: Mapping[str, F64]) -> Self:
        """The state that `pack` gave as arrays. Raises StateFormatError."""
        own = {name: array for name, array in arrays.items() if not name.startswith("cells.")}
        kept = unpack(PoolNumbers, own)
        if kept.weights.shape != (experts.count,) or kept.losses.shape != (experts.count,):
            raise StateFormatError(f"the weights or the losses of the pool's {experts.count} experts are missing")
        if kept.awake.shape != (len(experts.units),):
            raise StateFormatError(f"which of the pool's {len(experts.units)} units play is missing")
        cells = Cells.unpack_units(experts.units, part_of(arrays, "cells"), kept.t)
        return cls(kept.t, kept.weights, kept.losses, kept.loss, kept.awake, cells)
