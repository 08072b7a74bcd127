"""Checks of what the clients were told, without a look at the store: between two cuts a session only grows.

The rounds of an epoch are a sequence, each answer names a place in it, and time runs one way: what was sent after another
request was answered stands behind it. Sent again, a request gets its first answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bench.history.attempts import Attempt, History, Violation
from bench.history.timeline import Timeline

LATE_TRUTH = "prediction-not-found"


def check_told(history: History, timelines: Mapping[str, Timeline]) -> Iterator[Violation]:
    by_session: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        by_session[attempt.session].append(attempt)
    for session, attempts in by_session.items():
        timeline = timelines[session]
        epochs: dict[int, list[Attempt]] = defaultdict(list)
        for attempt in attempts:
            if attempt.is_answered and (number := timeline.epoch(attempt)) is not None:
                epochs[number].append(attempt)
        for answered in epochs.values():
            yield from _in_order(answered)
            yield from _once(answered)
        yield from _duplicates(attempts)
        yield from _lost_predictions(attempts, timeline)


def _in_order(answered: Sequence[Attempt]) -> Iterator[Violation]:
    """What was sent after an answer is behind it."""
    ends = sorted(answered, key=lambda one: one.ended)
    position, latest = 0, None
    furthest = -1
    for attempt in sorted(answered, key=lambda one: one.sent):
        while position < len(ends) and ends[position].ended < attempt.sent:
            told = _furthest(ends[position])
            if told > furthest:
                furthest, latest = told, ends[position]
            position += 1
        nearest = _nearest(attempt)
        if nearest is not None and nearest < furthest:
            yield Violation(
                "stale", f"{attempt} was told t = {nearest}, although t = {furthest} was told before: {latest}"
            )


def _furthest(attempt: Attempt) -> int:
    return max(one for one in (attempt.t, attempt.predicted_t, -1) if one is not None)


def _nearest(attempt: Attempt) -> int | None:
    """The earliest place that the answer says it had when it ran: for rounds the one that they were added to. What was
    sent before may have had its place then."""
    if attempt.is_again:
        return None
    return attempt.first_t if attempt.serials else attempt.predicted_t


def _once(answered: Sequence[Attempt]) -> Iterator[Violation]:
    """Each place of the sequence is one round's, and each round has one place."""
    at: dict[int, tuple[int, Attempt]] = {}
    of: dict[int, tuple[int, Attempt]] = {}
    for attempt in answered:
        if attempt.t is None:
            continue
        for place, serial in enumerate(attempt.serials, attempt.first_t + 1):
            other, first = at.setdefault(place, (serial, attempt))
            if other != serial:
                yield Violation(
                    "twice", f"t = {place} was told of round {serial} and of round {other}: {attempt}; {first}"
                )
            where, first = of.setdefault(serial, (place, attempt))
            if where != place:
                yield Violation("twice", f"round {serial} was told t = {place} and t = {where}: {attempt}; {first}")


def _duplicates(attempts: Sequence[Attempt]) -> Iterator[Violation]:
    """Only what was sent before is answered as sent before, and with the same words.

    The reverse does not hold: a worker that plays what another one has played, at the same tip, makes the same entry, and
    may tell that it was the first (`report` counts those).
    """
    sent: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda one: one.sent):
        if attempt.id is None or not attempt.serials:
            continue
        earlier = sent[attempt.id]
        if attempt.is_duplicate:
            if not any(one.is_answered or one.may_have_run for one in earlier):
                yield Violation("duplicate", f"{attempt} was answered as a duplicate, and was sent once")
            for one in earlier:
                if one.is_answered and one.t == attempt.t and one.loss != attempt.loss:
                    yield Violation(
                        "duplicate", f"{attempt} was told loss {attempt.loss}, and {one.loss} before: {one}"
                    )
        earlier.append(attempt)


def _lost_predictions(attempts: Sequence[Attempt], timeline: Timeline) -> Iterator[Violation]:
    """A prediction that was answered waits until its truth comes, unless a cut took it away."""
    asked = {attempt.asked_id: attempt for attempt in attempts if attempt.is_answered and attempt.asked_id}
    for attempt in attempts:
        if attempt.problem != LATE_TRUTH or attempt.id not in asked:
            continue
        made = asked[attempt.id]
        epoch = timeline.epoch(attempt)
        if epoch is not None and epoch == timeline.epoch(made) and made.ended < attempt.sent:
            yield Violation("lost-prediction", f"{attempt} was told that no such prediction waits; it was made: {made}")
