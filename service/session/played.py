"""What a session makes of rounds: one that is played and not learned yet, a block that is; how far a replay may be off."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from okl_core.contract.facade import REPLAY_TOLERANCE, replay_tolerance
from okl_core.contract.frozen import Rule
from okl_core.errors import InputError, NumericalError, ReplayDivergence
from okl_core.linalg.arithmetic import arithmetic
from okl_core.types import F64, Forecast, Round

from .codec import RoundEntry
from .coverage import Promise
from .maker import HostedLearner, Start
from .task import Task

ARITHMETIC = zlib.crc32(arithmetic().encode())
"""Names what computes here, in each journal entry."""


@dataclass(frozen=True, slots=True)
class FrozenFrom:
    """What a frozen session was made from: the session, the rounds that it had observed, and which state was taken."""

    session: str
    t: int
    rule: Rule


class Pending(NamedTuple):
    """A played round that is not learned yet. `entry` is what the journal keeps of it; `task` knows its truth.

    `successor` is what a stage of the warm-up makes: a learner that has learned all rounds so far, this one included.
    """

    entry: RoundEntry
    task: Task
    played: Round
    start: Start
    loss: float
    error: float
    successor: Start | None

    def learned(self) -> HostedLearner:
        """A copy of the learner that has learned the round: its conditioning is that with the round's own input."""
        learner = self.start.learner.copy()
        learner.learn(self.played)
        return learner


class Forecasts(NamedTuple):
    """Those of n rounds in order: `values` and `thresholds` of shape (n,), `probabilities` of shape (n,) or (n, K).

    Thresholds are there where intervals are; `probabilities` where the learner gives some.
    """

    values: F64
    probabilities: F64 | None
    thresholds: F64 | None

    @classmethod
    def of(cls, forecast: Forecast, promise: Promise | None) -> Forecasts:
        """Of one round."""
        given = forecast.probability if forecast.probabilities is None else forecast.probabilities
        return cls(
            np.array([forecast.value]),
            None if given is None else np.array([given], dtype=np.float64),
            None if promise is None else np.array([promise.threshold]),
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """Rounds that were played and learned at once: (count, journal bytes) of each entry, and the forecasts in order."""

    entries: list[tuple[int, bytes]]
    forecasts: list[Forecasts]
    loss: float
    error: float


def divergence_of(values: F64, recorded: F64, computed_by: int, conditioning: float) -> float:
    """By how much a replay is off, relative to max(1, |value|).

    Raises ReplayDivergence beyond 1e-9, or beyond what the learner's conditioning explains on another arithmetic.
    """
    with np.errstate(invalid="ignore"):
        off = np.abs(values - recorded) / np.maximum(1.0, np.abs(recorded))
    # Written so that a NaN on either side is apart.
    if (off <= REPLAY_TOLERANCE).all():
        return 0.0
    i = int(np.argmin(off <= REPLAY_TOLERANCE))
    if computed_by == ARITHMETIC or not (off <= replay_tolerance(conditioning)).all():
        raise ReplayDivergence(f"recorded {float(recorded[i])!r}, replayed {float(values[i])!r}")
    return float(off.max())


@contextmanager
def of_rows(start: int, runs: HostedLearner | None) -> Iterator[None]:
    """What refuses a row names it by its number among all that were sent: the library numbers the rows of a block that a
    learner `runs`, of which the first is the row `start`, and of a round by itself the numbers of its input."""
    before = 0 if runs is None else runs.t
    try:
        yield
    except InputError as error:
        if runs is not None and error.index is not None:
            error.args = (str(error).replace(f"X[{error.index}]", "x"),)
            error.index += start
        elif runs is None:
            error.index = start
        raise
    except NumericalError as error:
        if runs is None:
            error.index = start
        elif error.index is not None:
            error.index += start
        elif error.round is not None:
            error.index = start + error.round - before - 1
        elif runs.t > before:
            # It has learned the rounds before.
            error.index = start + runs.t - before
        raise
