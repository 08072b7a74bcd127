"""The state of `auto`, a round of it, and what the mixture answers."""

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
from okl_core.contract.checked import check_new_classes
from okl_core.errors import DivergedError
from okl_core.losses import log_loss
from okl_core.types import F64, LARGEST_AUTO_TRUTH, Forecast, LearnerState, Round

Made = ClassForecast | NumberForecast | None
"""What a mixture makes of the regressions' forecasts; None if there was no class yet."""


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
    """What the regressions and the mixture make of a round."""

    turn: RegressorsRound
    made: Made


def made_of(state: AutoState, F: F64) -> Made:
    """From the forecasts of one round, shape (E, k)."""
    return next(made_in_turn(state, F[None, :, :]))


def made_in_turn(state: AutoState, F: F64) -> Iterator[Made]:
    """From those of n rounds, (n, E, k), no class being new but in the last: each as the state is when it is asked for."""
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
    """Raises LabelError for a class that skips one, DivergedError for a number that is too large."""
    if state.classes is None:
        if np.abs(y).max(initial=0.0) > LARGEST_AUTO_TRUTH:
            raise DivergedError(f"a truth is beyond {LARGEST_AUTO_TRUTH:.0e}; scale the truths down")
        return
    check_new_classes(y, len(state.classes.counts))
