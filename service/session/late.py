"""A prediction that waits for its truth, and the round that it becomes."""

from __future__ import annotations

from okl_core.records.record import Raw

from .codec import WaitingEntry
from .coverage import promise_kept
from .moment import NO_MOMENT, Moment
from .played import Pending
from .session import Session
from .task import Task


def waiting(session: Session, raw: Raw, at: float = 0.0) -> WaitingEntry:
    """The forecast of an input, made at time `at`, with what its round needs when the truth comes."""
    threshold = None if session.coverage is None else session.coverage.threshold
    trivial = session.history.trivial_forecasts(session.task)
    return WaitingEntry(session.t, session.forecast(raw), raw, session.lags, threshold, at, trivial)


def play_waiting(
    session: Session,
    waited: WaitingEntry,
    y: float,
    task: Task,
    *,
    weight: float = 1.0,
    moment: Moment = NO_MOMENT,
) -> Pending:
    """Play the round of a prediction without changing anything. `y` and `task` are what `Session.read_truth` returns."""
    return session.play(
        waited.x,
        y,
        task,
        issued=waited.forecast,
        lags=waited.lags,
        weight=weight,
        promise=promise_kept(task, waited.forecast, waited.threshold, y, session.t - waited.t),
        # The trivial forecasts differ only if rounds came between, or the session was rewound.
        trivial=waited.trivial if waited.t != session.t else None,
        moment=moment,
    )
