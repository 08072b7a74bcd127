"""The state of `auto`, its rounds, and the forecasts of its mixture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from okl_core.automatic.auto_config import AutoConfig
from okl_core.automatic.class_mixture import ClassForecast, ClassMixture, scaled_forecasts
from okl_core.automatic.number_mixture import NumberForecast, NumberMixture
from okl_core.automatic.regressors import RegressorsRound, RegressorsState
from okl_core.contract.arguments import check_new_classes
from okl_core.errors import DivergedError
from okl_core.losses import log_loss
from okl_core.types import F64, LARGEST_AUTO_TRUTH, Forecast, LearnerState, Round

Made = ClassForecast | NumberForecast | None
"""A mixture's forecast from those of the regressions; None if no class is known yet."""


@final
@dataclass(slots=True)
class AutoState(LearnerState):
    """The regressions and one of the two mixtures; `first` is the first truth, for numbers, `loss` the cumulative loss."""

    regressors: RegressorsState
    classes: ClassMixture | None
    numbers: NumberMixture | None
    first: float
    loss: float


@final
@dataclass(slots=True)
class AutoRound(Round):
    """A played round, with the results of the regressions and of the mixture."""

    turn: RegressorsRound
    made: Made


def made_of(state: AutoState, F: F64) -> Made:
    """The mixture's forecast from the regressions' forecasts of one round, shape (E, k)."""
    return next(made_in_turn(state, F[None, :, :]))


def made_in_turn(state: AutoState, F: F64) -> Iterator[Made]:
    """Yield the mixture's forecasts from those of n rounds, (n, E, k), each from the state at the time it is requested.

    Only the last round may have a new class.
    """
    if state.numbers is not None:
        for values in F[:, :, 0]:
            yield state.numbers.forecast(values)
    elif state.classes is not None:
        if not (K := len(state.classes.counts)):
            yield None
            return
        base = scaled_forecasts(F[:, :, :K])
        for scaled, logs in zip(base, np.log(base), strict=True):
            yield state.classes.forecast(scaled, logs)


def answer(config: AutoConfig, state: AutoState, made: Made) -> Forecast:
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
    return math.log(state.t + 1.0)


def check_truths(config: AutoConfig, state: AutoState, y: F64) -> None:
    """Raise LabelError for a class that skips a number, DivergedError for a number that is too large."""
    if state.classes is None:
        if np.abs(y).max(initial=0.0) > LARGEST_AUTO_TRUTH:
            raise DivergedError(f"a truth is beyond {LARGEST_AUTO_TRUTH:.0e}; scale the truths down")
        return
    check_new_classes(y, len(state.classes.counts))
