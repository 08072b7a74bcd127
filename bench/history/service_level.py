"""Checks of the service as a service: which errors it answers, when, and how soon it is back after a fault."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.history.attempts import Attempt, Fault, History, Violation
from bench.history.timeline import Timeline

RECOVERY_S = 10.0
"""After the end of a fault: from then on nothing may fail, on any worker, in any session."""

TEMPORARY = frozenset({503, 504})
WHILE_GONE = frozenset({"session-not-found", "prediction-not-found", "session-exists"})
"""What may be answered around a cut: the session is made anew, or a prediction was lost."""

TOLD = 20


@dataclass(frozen=True, slots=True)
class Outage:
    """Of one fault, in seconds: the longest time without any answer of a session, of all sessions and the median one, and
    the first answer after its end, of the last session."""

    fault: Fault
    longest: float
    median: float
    back: float


def outages(history: History) -> Sequence[Outage]:
    ends: dict[str, list[float]] = defaultdict(list)
    for attempt in history.attempts:
        if attempt.is_answered:
            ends[attempt.session].append(attempt.ended)
    for times in ends.values():
        times.sort()
    return [_outage(fault, ends) for fault in history.faults]


def _outage(fault: Fault, ends: Mapping[str, Sequence[float]]) -> Outage:
    gaps, backs = [0.0], [0.0]
    for times in ends.values():
        over = [(a, b) for a, b in pairwise(times) if b > fault.start and a < fault.end]
        gaps.append(max((b - a for a, b in over), default=0.0))
        backs += [next((time - fault.end for time in times if time > fault.end), 0.0)]
    return Outage(fault, max(gaps), statistics.median(gaps), max(backs))


def check_service(history: History, timelines: Mapping[str, Timeline]) -> Iterator[Violation]:
    for process in history.died:
        yield Violation("died", process)
    judged = (_wrong(history, timelines, attempt) for attempt in history.attempts)
    found = [one for one in judged if one is not None]
    yield from found[:TOLD]
    if len(found) > TOLD:
        yield Violation("status", f"and {len(found) - TOLD} more")
    for outage in outages(history):
        if outage.back > RECOVERY_S:
            yield Violation("outage", f"after {outage.fault} a session was not answered for {outage.back:.1f} s")


def _wrong(history: History, timelines: Mapping[str, Timeline], attempt: Attempt) -> Violation | None:
    status = attempt.status
    if attempt.is_answered:
        return None
    detail = f"{attempt}: {status} {attempt.problem} {attempt.detail}"
    if status is not None and status >= 500 and status not in TEMPORARY:
        return Violation("status", detail)
    if status is None or status in TEMPORARY:
        is_excused = any(_overlap(attempt, fault.start, fault.end + RECOVERY_S) for fault in history.faults)
        return None if is_excused else Violation("unexplained", detail)
    cuts = timelines[attempt.session].all_cuts
    if attempt.problem == "prediction-not-found":
        return None  # `told` looks at these
    if attempt.problem in WHILE_GONE and any(_overlap(attempt, cut.start, cut.end) for cut in cuts):
        return None
    return Violation("status", detail)


def _overlap(attempt: Attempt, start: float, end: float) -> bool:
    return attempt.sent <= end and attempt.ended >= start
