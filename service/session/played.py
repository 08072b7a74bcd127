"""Rounds that a session has played, learned or not, and how far a replay may deviate from the record."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from okl_core import LearnerSpec
from okl_core.contract.facade import REPLAY_TOLERANCE, replay_tolerance
from okl_core.contract.frozen import FreezeRule
from okl_core.errors import InputError, NumericalError, ReplayDivergence
from okl_core.linalg.arithmetic import arithmetic
from okl_core.types import F64, Forecast, Round

from .codec import Pair, RoundEntry
from .coverage import Promise
from .maker import HostedLearner, PreparedLearner
from .scorecard import Issued
from .task import Task

ARITHMETIC = zlib.crc32(arithmetic().encode())
"""Identifies this process's arithmetic in each journal entry."""


@dataclass(frozen=True, slots=True)
class FrozenFrom:
    """The origin of a frozen session: the session, the rounds that it had observed, and which state was taken."""

    session: str
    t: int
    rule: FreezeRule


class Fixed(NamedTuple):
    """What of a round is fixed before it is played: by the prediction that waited, or on a replay by the journal.

    `issued` is what the client was given, `promise` the outcome of its interval; `lags` and `trivial` are the lags and the
    trivial forecasts made with it. None stands for the present ones. Only a replay fixes the `choices`, and the spec that was
    `found` at this stage of the warm-up.
    """

    issued: Issued | None = None
    lags: F64 | None = None
    promise: Promise | None = None
    trivial: Pair | None = None
    choices: bytes | None = None
    found: LearnerSpec | None = None


NOTHING_FIXED = Fixed()


class Pending(NamedTuple):
    """A round that is played but not learned yet. `entry` is its journal entry; `task` knows its truth.

    `answering` is the learner that forecast it. `successor` is made by a stage of the warm-up: a learner that has learned all
    rounds so far, this one included.
    """

    entry: RoundEntry
    task: Task
    played: Round
    answering: PreparedLearner
    loss: float
    error: float
    successor: PreparedLearner | None

    def learned(self) -> HostedLearner:
        """A copy of the learner that has learned the round, so that its conditioning includes the round's input."""
        learner = self.answering.learner.copy()
        learner.learn(self.played)
        return learner


class Forecasts(NamedTuple):
    """Forecasts of n rounds in order: `values` and `thresholds` of shape (n,), `probabilities` of shape (n,) or (n, K).

    `thresholds` is None without intervals, `probabilities` if the learner gives none.
    """

    values: F64
    probabilities: F64 | None
    thresholds: F64 | None

    @classmethod
    def of(cls, forecast: Forecast, promise: Promise | None) -> Forecasts:
        """The forecast of one round."""
        probability = forecast.probability if forecast.probabilities is None else forecast.probabilities
        return cls(
            np.array([forecast.value]),
            None if probability is None else np.array([probability], dtype=np.float64),
            None if promise is None else np.array([promise.threshold]),
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """Rounds that were played and learned at once: each entry as (count, journal bytes), and the forecasts in order."""

    entries: list[tuple[int, bytes]]
    forecasts: list[Forecasts]
    loss: float
    error: float


def divergence_of(values: F64, recorded: F64, computed_by: int, after: HostedLearner) -> float:
    """The error of a replay, relative to max(1, |value|); 0 up to 1e-9.

    Raises ReplayDivergence for more: on the same arithmetic always, on another if the conditioning of the learner that
    learned the rounds does not explain it.
    """
    with np.errstate(invalid="ignore"):
        off = np.abs(values - recorded) / np.maximum(1.0, np.abs(recorded))
    # Written so that a NaN on either side counts as a difference.
    if (off <= REPLAY_TOLERANCE).all():
        return 0.0
    i = int(np.argmin(off <= REPLAY_TOLERANCE))
    if computed_by == ARITHMETIC or not (off <= replay_tolerance(after.conditioning)).all():
        raise ReplayDivergence(f"recorded {float(recorded[i])!r}, replayed {float(values[i])!r}")
    return float(off.max())


@contextmanager
def of_rows(start: int, runs: HostedLearner | None) -> Iterator[None]:
    """Make errors name a row by its index among all rows sent.

    The library counts rows from the start of the block that a learner `runs`, whose first row is `start`. For a single round
    (None) it counts the numbers of the input instead.
    """
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
            # The learner has learned the rounds before the refused one.
            error.index = start + runs.t - before
        raise
