"""The state of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from okl_core.contract.lags import first_lags, kept_lags
from okl_core.contract.state import part_of, unpack
from okl_core.errors import StateFormatError
from okl_core.pool.experts import Cells, Experts
from okl_core.pool.resting import UsualLoss
from okl_core.types import F64, LearnerState, Stored

SUM_TOLERANCE = 1e-9
"""Tolerance for the sum of the weights, which rounding leaves far nearer to 1."""


@dataclass(slots=True)
class PoolNumbers(LearnerState):
    """The numbers of a pool: the experts' weights p, shape (N,), their cumulative losses, (N,), and the pool's loss."""

    weights: F64
    losses: F64
    loss: float
    usual: UsualLoss
    awake: F64
    """1.0 for an expert that plays, 0.0 for one that rests, shape (N,)."""
    truths: F64
    """The last truths, newest first, as many as any expert takes as lags."""


@dataclass(slots=True)
class PoolState(PoolNumbers):
    """`PoolNumbers` with the experts' states."""

    cells: Cells

    @classmethod
    def first(cls, experts: Experts, dim: int) -> Self:
        """Return the state before the first round."""
        N = experts.count
        return cls(
            0,
            np.full(N, 1.0 / N),
            np.zeros(N),
            0.0,
            UsualLoss(0.0, 0.0, 0.0),
            np.ones(N),
            first_lags(experts.lags),
            experts.init(dim),
        )

    @classmethod
    def of(cls, experts: Experts, arrays: Mapping[str, Stored]) -> Self:
        """Restore the state from the arrays that `pack` returned. Raise StateFormatError."""
        numbers = {name: array for name, array in arrays.items() if not name.startswith("cells.")}
        kept = unpack(PoolNumbers, numbers)
        if not kept.weights.shape == kept.losses.shape == kept.awake.shape == (experts.count,):
            raise StateFormatError(
                f"the weights, losses or resting flags of the pool's {experts.count} experts are missing"
            )
        if not np.isin(kept.awake, (0.0, 1.0)).all():
            raise StateFormatError("the resting flags of the pool's experts are not all 0 or 1")
        if not kept.awake.any():
            raise StateFormatError("all experts of the pool rest")
        # Written so that NaN fails the check.
        if not ((kept.weights >= 0.0).all() and abs(kept.weights.sum() - 1.0) < SUM_TOLERANCE):
            raise StateFormatError("the weights of the pool's experts are negative, or do not sum to 1")
        if not (kept.weights @ kept.awake > 0.0 and (kept.losses >= 0.0).all() and np.isfinite(kept.losses).all()):
            raise StateFormatError(
                "all awake experts of the pool have weight 0, or some losses are negative or not finite"
            )
        if kept.truths.shape != (experts.lags,):
            raise StateFormatError(f"the last {experts.lags} truths of the pool are missing")
        cells = Cells.unpack_units(experts.units, part_of(arrays, "cells"), kept.t)
        return cls(kept.t, kept.weights, kept.losses, kept.loss, kept.usual, kept.awake, kept_lags(kept.truths), cells)
