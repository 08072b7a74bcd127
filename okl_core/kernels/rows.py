"""Kernel rows of a block of inputs, against points that change while the rounds are played."""

from __future__ import annotations

from typing import final

import numpy as np

from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.types import F64


@final
class KernelRows:
    """k(s_j, x_i) for the rows x_i of X, shape (n, d), and the point s_j in slot j, from two kernel blocks.

    At first slots 0 to len(points) - 1 hold the points; there may be up to `slots` slots. Row i is correct only if every
    change of a slot in earlier rounds was reported by `put`.
    """

    __slots__ = ("_K", "_rows")

    def __init__(self, kernel: Kernel, points: Points, X: F64, slots: int) -> None:
        self._K = kernel.block(X, X)
        self._rows = np.empty((len(X), slots))
        self._rows[:, : len(points)] = kernel.block(points, X).T

    def row(self, i: int, size: int) -> F64:
        """Return k(s_j, x_i) for the first `size` slots, without a copy."""
        return self._rows[i, :size]

    def put(self, i: int, slot: int) -> None:
        """Store x_i in the slot, updating the rows after i."""
        self._rows[i + 1 :, slot] = self._K[i, i + 1 :]
