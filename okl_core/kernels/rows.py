"""Kernel rows of inputs that are known, against points that change while the rounds are played."""

from __future__ import annotations

from typing import final

import numpy as np

from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.types import F64


@final
class KernelRows:
    """k(s_j, x_i) for the rows x_i of X, shape (n, d), and the point s_j in slot j, from two kernel blocks.

    Slots 0 to len(points) - 1 hold the points; up to `slots` there may be. A row is right as long as every change of a
    slot before it was told by `put`.
    """

    __slots__ = ("_K", "_rows")

    def __init__(self, kernel: Kernel, points: Points, X: F64, slots: int) -> None:
        self._K = kernel.block(X, X)
        self._rows = np.empty((len(X), slots))
        self._rows[:, : len(points)] = kernel.block(points, X).T

    def row(self, i: int, size: int) -> F64:
        """k(s_j, x_i) for the first `size` slots; no copy."""
        return self._rows[i, :size]

    def put(self, i: int, slot: int) -> None:
        """From now on the slot holds x_i: the rows after i know it."""
        self._rows[i + 1 :, slot] = self._K[i, i + 1 :]
