"""Streams whose truths come late: which round is learned when, and a learner played so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from okl_core import DelayedLearner, OnlineLearner
from okl_core.types import F64

I64 = NDArray[np.int64]


class Schedule(NamedTuple):
    """When the truths of T rounds come. `order`: the rounds as they are learned; `known`: rounds learned at each forecast."""

    order: I64
    known: I64

    @property
    def lags(self) -> I64:
        """Of each round in `order`: rounds learned between its forecast and its own truth."""
        return np.arange(len(self.order)) - self.known[self.order]


def schedule(delays: I64) -> Schedule:
    """From the delay of each round, in rounds, 0 if its truth is there before the next forecast. Ties in order.

    Examples
    --------
    >>> order, known = schedule(np.array([2, 0, 0, 1]))
    >>> order.tolist(), known.tolist()
    ([1, 0, 2, 3], [0, 0, 1, 3])
    """
    t = np.arange(len(delays))
    arrival = t + delays
    return Schedule(np.lexsort((t, arrival)), np.searchsorted(np.sort(arrival), t, side="left"))


@dataclass(frozen=True, slots=True)
class LatePlay:
    """Values of the forecasts: `issued` at the time, and `fresh`, those of the learner when it learned the round."""

    issued: F64
    fresh: F64


def play_late(learner: OnlineLearner, X: F64, y: F64, times: Schedule) -> LatePlay:
    """Play a stream, each round learned when its truth is there, at the state of that moment."""
    issued, fresh = np.empty(len(y)), np.empty(len(y))
    learned = 0

    def learn_until(count: int) -> None:
        nonlocal learned
        rows = times.order[learned:count]
        # A block is worth its while from a few rounds on.
        if len(rows) == 1:
            fresh[rows] = learner.update(X[rows[0]], y.item(rows[0])).forecast.value
        elif len(rows):
            fresh[rows] = learner.run(X[rows], y[rows]).values
        learned = count

    for t, known in enumerate(times.known.tolist()):
        learn_until(known)
        issued[t] = learner.predict(X[t]).value
    learn_until(len(y))
    return LatePlay(issued, fresh)


def play_delayed(learner: DelayedLearner[Any], X: F64, y: F64, times: Schedule) -> F64:
    """The same of a delayed form: the values that it issued, shape (T,)."""
    issued, ids = np.empty(len(y)), np.empty(len(y), np.int64)
    learned = 0

    def learn_until(count: int) -> None:
        nonlocal learned
        for row in times.order[learned:count].tolist():
            learner.learn(ids.item(row), y.item(row))
        learned = count

    for t, known in enumerate(times.known.tolist()):
        learn_until(known)
        ids[t], issued[t] = learner.issue(X[t])
    learn_until(len(y))
    return issued
