"""Learners that issue forecasts, and learn each one when its truth arrives."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from okl_core.contract.arguments import checked_input, checked_truth
from okl_core.contract.rng import RoundRng
from okl_core.contract.threads import needs_one_thread, one_thread_if
from okl_core.errors import InputError
from okl_core.kernels.kernels import Kernel
from okl_core.losses import Loss
from okl_core.second_order.kernel_space import KernelSpace
from okl_core.types import F64, Interval

MAX_WAITING = 1000
"""Most forecasts that may wait for their truths; each keeps a few numbers per round."""

W = TypeVar("W")


class IssuedForecast(NamedTuple):
    """A forecast, and the id by which its truth is learned."""

    id: int
    value: float


class DelayedLearner(ABC, Generic[W]):
    """A learner in use whose truths arrive in any order, late or never. W is the record of a waiting forecast.

    It can be pickled and copied. Time and memory are those of an exact kernel learner: they grow with the rounds.
    """

    def __init__(self, space: KernelSpace, loss: Loss, ends: Interval, dim: int) -> None:
        self.dim, self.loss, self._space, self._ends = dim, loss, space, ends
        self._state = space.init(dim)
        self._rng = RoundRng(0)
        self._waiting: dict[int, W] = {}
        self._issued = 0
        self._lost = 0.0
        self._learned = 0

    @property
    def kernel(self) -> Kernel:
        return self._space.kernel

    @property
    def waiting(self) -> tuple[int, ...]:
        """The ids of the forecasts whose truths have not arrived, oldest first."""
        return tuple(self._waiting)

    def issue(self, x: ArrayLike) -> IssuedForecast:
        """The forecast for x, shape (d,). Raises DivergedError, and InputError, also if 1,000 forecasts wait already."""
        with self._one_thread():
            x = checked_input(x, self.dim)
            if len(self._waiting) >= MAX_WAITING:
                message = f"{MAX_WAITING:,} forecasts wait for their truths; learn or drop some of them first"
                raise InputError(message, "x")
            value, waiting = self._issue(x)
        self._issued += 1
        self._waiting[self._issued] = waiting
        return IssuedForecast(self._issued, value)

    def learn(self, id: int, y: float) -> float:
        """Learn the truth of a forecast and return the loss of the forecast as issued.

        Raises InputError, LabelError, DivergedError.
        """
        waiting = self._found(id)
        y = checked_truth(y, self.loss.target, self._ends)
        with self._one_thread():
            loss = self._learn(waiting, y)
        del self._waiting[id]
        self._lost += loss
        self._learned += 1
        return loss

    def drop(self, id: int) -> None:
        """Forget a forecast whose truth will never arrive. Raises InputError."""
        self._found(id)
        del self._waiting[id]

    def copy(self) -> Self:
        """An independent copy in the same state."""
        return copy.deepcopy(self)

    def __copy__(self) -> Self:
        # A shallow copy would share the state.
        return self.copy()

    def describe(self) -> dict[str, float]:
        """Diagnostic numbers; subclasses add the terms of their regret bound."""
        return {
            "issued": self._issued,
            "learned": self._learned,
            "waiting": len(self._waiting),
            "dictionary": len(self._state.J) + len(self._state.N),
            "bytes": self._state.nbytes + sum(map(self._bytes_of, self._waiting.values())),
            "loss": self._lost,
        }

    def _one_thread(self) -> AbstractContextManager[None]:
        return one_thread_if(needs_one_thread(self._state.nbytes))

    def _found(self, id: int) -> W:
        found = self._waiting.get(id) if isinstance(id, int | np.integer) else None
        if found is None:
            raise InputError(f"no forecast {id!r} waits for a truth; give the id that `issue` gave", "id")
        return found

    @abstractmethod
    def _issue(self, x: F64) -> tuple[float, W]:
        """The forecast, and its record while it waits."""

    @abstractmethod
    def _learn(self, waiting: W, y: float) -> float:
        """Learn a truth, and return the loss of the forecast as issued. Raises before anything has changed."""

    @abstractmethod
    def _bytes_of(self, waiting: W) -> int: ...
