"""Shared code of first-order learners that play rounds in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, final

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.contract.state import require_lengths
from okl_core.first_order.steps import kernel_sum
from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import Loss, probabilities
from okl_core.types import F64, BlockInfo, LearnerState

BLOCK = 128
"""Rounds per block: enough to hide the call overhead, few enough that kernel values inside a block cost little."""

FEW = 8
"""Rounds below which a block takes longer than playing its rounds one by one."""

S = TypeVar("S", bound=LearnerState)


@dataclasses.dataclass(slots=True)
class KernelSumState(LearnerState):
    """The state of a learner of the function f = sum_i coefficients_i k(points_i, .)."""

    points: Points
    coefficients: GrowingArray

    def __post_init__(self) -> None:
        require_lengths(points=self.points, coefficients=self.coefficients)


def run_in_blocks(
    loss: Loss, state: LearnerState, y: F64, play: Callable[[int], list[float]], rng: RoundRng
) -> BlockInfo:
    """Learn the rounds block by block, and return the result of a learner's `run`.

    `play(i)` learns one block of rounds from row i on, and returns their forecasts.
    """
    values: list[float] = []
    while len(values) < len(y):
        values += play(len(values))
    forecasts = np.array(values)
    return BlockInfo(state.t, forecasts, loss.values(forecasts, y), probabilities(loss, forecasts), rng.finish())


def settle(state: S, played: S) -> None:
    """Copy all fields into the state from the copy on which a block was played."""
    for field in dataclasses.fields(state):
        setattr(state, field.name, getattr(played, field.name))


@final
class KernelSumBlock:
    """A function sum_i a_i k(points_i, .) that changes during a block of rounds with the inputs X, shape (n, d).

    It has at most `capacity` points. The given points and coefficients change only in `settle`.
    """

    __slots__ = ("_K", "_X", "_coefficients", "_data", "_holders", "_joined", "_points", "_rows", "a")

    def __init__(self, kernel: Kernel, points: Points, coefficients: GrowingArray, X: F64, capacity: int) -> None:
        self._points, self._coefficients, self._X = points, coefficients, X
        n = len(X)
        slots = min(len(points) + n, capacity)
        self._K = kernel.block(X, X)
        self._rows = np.empty((n, slots))
        """k(s_j, x_i) in row i, for the point s_j in slot j; correct up to the round that is played."""
        self._rows[:, : len(points)] = kernel.block(points, X).T
        self._data = np.zeros(slots)
        self.a: F64 = self._data[: len(points)]
        """The coefficients, which the caller updates in place."""
        self.a[:] = coefficients.view
        self._joined: list[int] = []
        """Inputs that took a new slot."""
        self._holders: dict[int, int] = {}
        """The last input stored in each slot that was written."""

    def value(self, i: int) -> float:
        """Return the value of the function at input i."""
        return kernel_sum(self.a, self._rows[i, : len(self.a)])

    def store(self, i: int, slot: int) -> None:
        """Store input i in a slot: the next free one, with coefficient 0, or an occupied one, keeping its coefficient."""
        self._rows[i + 1 :, slot] = self._K[i, i + 1 :]
        self._holders[slot] = i
        if slot == len(self.a):
            self._joined.append(i)
            self.a = self._data[: slot + 1]

    def settle(self) -> None:
        """Write the changes of the block back to the points and coefficients."""
        # Extend before replacing: the first point ever stored is the origin, even if the block has replaced it since.
        self._points.extend(self._X[self._joined])
        slots = np.array(list(self._holders), dtype=np.intp)
        self._points.replace_block(slots, self._X[list(self._holders.values())])
        s = len(self._coefficients)
        self._coefficients.view[:] = self.a[:s]
        self._coefficients.extend(self.a[s:])
