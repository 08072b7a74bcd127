"""The small types that everything shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

F64 = NDArray[np.float64]

Target = Literal["binary", "real", "any"]
"""What a learner takes as truth: a label in {-1, +1}, a real number, or either."""


class Forecast(NamedTuple):
    """What a learner says before it sees the truth.

    `value` is the real-valued output: the score of a classifier (its sign is the label, with sign(0) = +1) or the
    predicted value of a regressor. `probability` is that of the label +1, where the loss defines one.
    """

    value: float
    probability: float | None = None

    @property
    def label(self) -> int:
        return 1 if self.value >= 0.0 else -1


@dataclass(slots=True)
class Round:
    """One played round that has not been learned yet: `learn` carries it into the state.

    A learner subclasses it with the numbers it needs to do so. `t` is the round's number (1-based), `choices` the
    outcomes of its coins and thresholds.
    """

    t: int
    x: F64
    y: float
    forecast: Forecast
    loss: float
    choices: bytes


class RoundInfo(NamedTuple):
    """What a caller sees of one round: its number, the forecast made before the truth, and the loss of it."""

    t: int
    forecast: Forecast
    loss: float


class BlockInfo(NamedTuple):
    """What a caller sees of n rounds in order: `t` is the number of the last one."""

    t: int
    values: F64
    """Shape (n,): the forecasts' values."""
    losses: F64
    """Shape (n,)."""
    probabilities: F64 | None
    """Shape (n,), where the loss defines a probability."""
    choices: bytes


class LearnerConfig(BaseModel):
    """Base of every learner's parameters: frozen, finite, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(slots=True)
class LearnerState:
    """Base of every learner's state: numbers, float64 arrays, objects with `pack` and `unpack`. `t` counts rounds."""

    t: int
