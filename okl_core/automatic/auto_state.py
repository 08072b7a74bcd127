"""The state of `auto`, a round of it, and what the mixture answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from okl_core.automatic.auto_config import AutoConfig
from okl_core.automatic.class_mixture import ClassForecast, ClassMixture
from okl_core.automatic.number_mixture import NumberForecast, NumberMixture
from okl_core.automatic.regressors import RegressorsRound, RegressorsState
from okl_core.errors import DivergedError, LabelError
from okl_core.losses import log_loss
from okl_core.types import F64, Forecast, LearnerState, Round

LARGEST = 1e100
"""Of a number: its fourth power is none."""


@final
@dataclass(slots=True)
class AutoState(LearnerState):
    """One of the two mixtures; `first` is the first truth, where these are numbers, and `loss` the cumulative loss."""

    regressors: RegressorsState
    classes: ClassMixture | None
    numbers: NumberMixture | None
    first: float
    loss: float


@final
@dataclass(slots=True)
class AutoRound(Round):
    turn: RegressorsRound
    made: ClassForecast | NumberForecast | None
    """None if there was no class yet."""


def made_of(state: AutoState, F: F64) -> ClassForecast | NumberForecast | None:
    """What the mixture makes of the regressions' forecasts, shape (E, k); None if there was no class yet."""
    if state.numbers is not None:
        return state.numbers.forecast(F[:, 0])
    assert state.classes is not None
    K = len(state.classes.counts)
    return state.classes.forecast(F[:, :K]) if K else None


def answer(config: AutoConfig, state: AutoState, made: ClassForecast | NumberForecast | None) -> Forecast:
    if made is None:
        return Forecast(0.0, None, ())
    if isinstance(made, NumberForecast):
        return Forecast(made.value + state.first if state.t else 0.0)
    q = made.q * (state.t / (state.t + 1.0)) if config.growing else made.q
    return Forecast(float(q.max()), None, tuple(q.tolist()))


def loss_of(state: AutoState, forecast: Forecast, y: float) -> float:
    if forecast.probabilities is None:
        return (forecast.value - y) ** 2
    if y < len(forecast.probabilities):
        return log_loss(forecast.probabilities[int(y)])
    return log_loss(1.0 / (state.t + 1.0))


def check_truths(config: AutoConfig, state: AutoState, y: F64) -> None:
    """Raises LabelError for a class that skips one, DivergedError for a number that is too large."""
    if state.classes is None:
        if np.abs(y).max(initial=0.0) > LARGEST:
            raise DivergedError(f"a truth is beyond {LARGEST:.0e}; scale the truths down")
        return
    known = np.maximum.accumulate(np.append(len(state.classes.counts), y[:-1] + 1.0))
    if (y > known).any():
        row = int(np.argmax(y > known))
        raise LabelError(f"y is {y[row]:.0f}, and the next new class is {known[row]:.0f}", "y", row)
