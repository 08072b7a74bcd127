"""A prediction that waits for its truth, and the round that it becomes."""

from __future__ import annotations

import math

from okl_core.records.record import Raw

from .codec import WaitingEntry
from .coverage import promise_kept
from .moment import NO_MOMENT, Moment
from .played import Fixed, Pending
from .scorecard import Issued
from .session import Session
from .task import Task


def waiting(session: Session, raw: Raw, at: float = 0.0) -> WaitingEntry:
    """The forecast of an input, made at time `at`, with what its round needs when the truth comes."""
    threshold = None if session.coverage is None else session.coverage.threshold
    trivial = session.history.trivial_forecasts(session.task)
    return WaitingEntry(session.t, session.forecast(raw), raw, session.lags, threshold, at, trivial)


def play_round(
    session: Session,
    source: WaitingEntry | Raw,
    y: float,
    task: Task,
    *,
    weight: float = 1.0,
    moment: Moment = NO_MOMENT,
) -> Pending:
    """Play the round of a prediction, or of an input without one, without changing anything. `y` and `task` are what
    `Session.read_truth` returns."""
    if not isinstance(source, WaitingEntry):
        return session.play(source, y, task, weight=weight, moment=moment)
    forecast = source.forecast
    fixed = Fixed(
        None if math.isnan(forecast.value) else Issued.of(forecast, y),
        source.lags,
        promise_kept(task, forecast, source.threshold, y, session.t - source.t),
        # The trivial forecasts differ only if rounds came between, or the session was rewound.
        source.trivial if source.t != session.t else None,
    )
    return session.play(source.x, y, task, weight=weight, moment=moment, fixed=fixed)
