"""All checks of a history, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.history.attempts import History, Violation
from bench.history.final import FinalState
from bench.history.forecasts import check_forecasts
from bench.history.kept import check_kept
from bench.history.service_level import check_service
from bench.history.timeline import Timeline
from bench.history.told import check_told


def check(history: History, finals: Mapping[str, FinalState]) -> Sequence[Violation]:
    """What must not be; nothing if all is well."""
    timelines = timelines_of(history)
    return [
        *check_kept(history, timelines, finals),
        *check_told(history, timelines),
        *check_forecasts(history, timelines, finals),
        *check_service(history, timelines),
    ]


def timelines_of(history: History) -> Mapping[str, Timeline]:
    return {session: Timeline.of(session, history.cuts) for session in history.kinds}
