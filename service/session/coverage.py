"""Intervals and prediction sets of a session: what each forecast promised, and how often the promise was kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from okl_core.conformal.conformal import Conformal, ConformalState, class_score, interval, number_score, prediction_set
from okl_core.contract.state import pack
from okl_core.types import F64, Forecast, Stored

from ..pointers import invalid
from .task import Task
from .truths import Answer

BELOW_ONE = math.nextafter(1.0, 0.0)
"""The largest threshold that a score of 1 exceeds, and so misses."""


class Promise(NamedTuple):
    """The outcome of a forecast's interval, once the truth is known.

    `score`: how wrong the forecast was, in the learner's terms; `threshold`: the largest score that the interval covers;
    `lag`: the rounds learned between the forecast and the truth.
    """

    score: float
    threshold: float
    lag: int

    @property
    def is_kept(self) -> bool:
        return self.score <= self.threshold


@final
@dataclass(slots=True)
class Coverage:
    """Thresholds in the learner's terms, for one level."""

    conformal: Conformal
    state: ConformalState

    @classmethod
    def of(cls, level: float) -> Coverage:
        conformal = Conformal(level=level)
        return cls(conformal, conformal.init())

    @property
    def threshold(self) -> float:
        """The threshold of the next forecast; infinite before the first round."""
        return self.conformal.threshold(self.state)

    @property
    def share(self) -> float | None:
        """The share of rounds whose interval held the truth; None before the first round."""
        rounds = self.state.rounds
        return None if not rounds else 1.0 - self.state.misses / rounds

    def promised(self, task: Task, forecast: Forecast, y: float) -> Promise:
        """The promise of a forecast made now, whose truth is known."""
        return promise_of(task, forecast, self.threshold, y)

    def learn_rows(self, task: Task, forecasts: Sequence[Forecast], y: F64, recorded: F64 | None) -> F64:
        """Learn rounds in order, and return their scores and thresholds, shape (2, n).

        Each threshold follows from the rounds before it, unless `recorded` gives scores and thresholds.
        """
        found = np.empty((2, len(y)))
        for i, (forecast, truth) in enumerate(zip(forecasts, y.tolist(), strict=True)):
            if recorded is None:
                found[:, i] = self.promised(task, forecast, truth)[:2]
            else:
                found[:, i] = recorded[:, i]
            self.learn(Promise(found.item(0, i), found.item(1, i), 0))
        return found

    def learn(self, promise: Promise) -> None:
        self.conformal.learn(self.state, promise.score, promise.threshold, promise.lag)

    def copy(self) -> Coverage:
        return Coverage.unpack(self.conformal.level, self.pack())

    def pack(self) -> dict[str, Stored]:
        return pack(self.state)

    @classmethod
    def unpack(cls, level: float, arrays: Mapping[str, Stored]) -> Coverage:
        """Raises StateFormatError."""
        conformal = Conformal(level=level)
        return cls(conformal, conformal.unpack(arrays))


def promise_of(task: Task, forecast: Forecast, threshold: float, y: float, lag: int = 0) -> Promise:
    """The promise of a forecast issued with this threshold. No set holds a label that its forecast did not know."""
    known = forecast.probabilities
    if known is not None and int(y) >= len(known):
        return Promise(1.0, min(threshold, BELOW_ONE), lag)
    return Promise(_score(task, forecast, y), threshold, lag)


def promise_kept(task: Task, forecast: Forecast, threshold: float | None, y: float, lag: int) -> Promise | None:
    """The promise of a prediction that waited; None if it had no interval, or nothing was forecast."""
    if threshold is None or math.isnan(forecast.value):
        return None
    return promise_of(task, forecast, threshold, y, max(0, lag))


def _score(task: Task, forecast: Forecast, y: float) -> float:
    """The score of a forecast: its distance from a number, or 1 minus the probability of the true label."""
    if forecast.probabilities is not None:
        return class_score(forecast.probabilities[int(y)])
    if task.truths.is_classifier:
        positive = forecast.probability or 0.0
        return class_score(positive if y > 0.0 else 1.0 - positive)
    return number_score(forecast.value, y)


def answer_to(task: Task | None, forecast: Forecast, threshold: float | None = None) -> Answer:
    """The forecast in the client's terms, with its interval or set of labels if there is a threshold.

    The answer is empty until it is known whether the truths are labels or numbers.
    """
    if task is None or math.isnan(forecast.value) or forecast.probabilities == ():
        return Answer()
    answer = task.truths.answer(forecast)
    return answer if threshold is None else _promised(task, forecast, threshold, answer)


def _promised(task: Task, forecast: Forecast, threshold: float, answer: Answer) -> Answer:
    truths = task.truths
    if not truths.is_classifier:
        within = (-math.inf, math.inf) if truths.y_range is None else truths.ends
        low, high = interval(forecast.value, threshold, within)
        ends = [truths.from_learner(end) if math.isfinite(end) else None for end in (low, high)]
        return answer._replace(low=ends[0], high=ends[1])
    if forecast.probabilities is not None:
        held = prediction_set(forecast.probabilities, threshold)
    else:
        positive = forecast.probability or 0.0
        held = prediction_set((1.0 - positive, positive), threshold)
        if len(held) == 1:
            # The label of the forecast, also where both are equally probable.
            held = (int(forecast.label > 0),)
    return answer._replace(labels=tuple(truths.names[k] for k in held))


def check_promises(task: Task) -> None:
    """Raises InvalidInput for a classifier that gives no probabilities, which prediction sets need."""
    if task.truths.is_classifier and not task.player.gives_probabilities(task.player_config):
        detail = (
            f"{task.spec.kind} gives no probabilities, so there are no prediction sets; leave `learner` out for them"
        )
        raise invalid("/interval", detail)
