"""The state of a learner as its own type, and a factor as a matrix."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from okl_core import OnlineLearner
from okl_core.contract.state import DIM, unpack
from okl_core.linalg.cholesky import Factor
from okl_core.types import F64, StatePart

S = TypeVar("S", bound=StatePart)


def state_as(state_type: type[S], learner: OnlineLearner) -> S:
    return unpack(state_type, {name: array for name, array in learner.state().items() if name != DIM})


def dense(factor: Factor) -> F64:
    """L, shape (n, n)."""
    L = np.zeros((len(factor), len(factor)))
    L[np.tril_indices(len(factor))] = factor.pack()
    return L
