"""The state of a learner as its own type."""

from __future__ import annotations

from typing import TypeVar

from okl_core import OnlineLearner
from okl_core.contract.state import DIM, unpack
from okl_core.types import StatePart

S = TypeVar("S", bound=StatePart)


def state_as(state_type: type[S], learner: OnlineLearner) -> S:
    return unpack(state_type, {name: array for name, array in learner.state().items() if name != DIM})
