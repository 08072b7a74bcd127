"""Checks of what the store holds at the end against what was acknowledged: nothing lost, nothing twice, nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bench.history.attempts import Attempt, Cut, History, Violation
from bench.history.final import FinalState, View
from bench.history.timeline import Fate, Timeline

TOLERANCE = 1e-9


def check_kept(
    history: History, timelines: Mapping[str, Timeline], finals: Mapping[str, FinalState]
) -> Iterator[Violation]:
    by_session: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        by_session[attempt.session].append(attempt)
    for session, final in finals.items():
        if final.problem:
            yield Violation("unreadable", f"session {session}: {final.problem}")
            continue
        attempts, timeline = by_session[session], timelines[session]
        yield from _uniqueness(final)
        yield from _presence(attempts, timeline, final)
        yield from _origin(attempts, timeline, final)
        for cut in timeline.cuts:
            yield from _beginning(cut, attempts, timeline, final)
            yield from _continuation(cut, timeline, final)
        yield from _agreement(final)


def _uniqueness(final: FinalState) -> Iterator[Violation]:
    for serial, count in Counter(final.serials).items():
        if count > 1:
            yield Violation("twice", f"session {final.session} learned round {serial} {count} times")
    if -1 in final.serials:
        at = list(final.serials).index(-1) + 1
        yield Violation("phantom", f"session {final.session} learned at t = {at} an input that nobody sent")


def _presence(attempts: Sequence[Attempt], timeline: Timeline, final: FinalState) -> Iterator[Violation]:
    """What was acknowledged, and nothing took back, is there, at the place that was told."""
    where = {serial: t for t, serial in enumerate(final.serials, 1)}
    reported: set[int] = set()
    for attempt in attempts:
        if not attempt.is_answered or attempt.t is None or timeline.fate(attempt) is not Fate.KEPT:
            continue
        for t, serial in enumerate(attempt.serials, attempt.first_t + 1):
            if where.get(serial) == t or serial in reported:
                continue
            reported.add(serial)
            if serial not in where:
                yield Violation("lost", f"round {serial}, acknowledged at t = {t}, is nowhere: {attempt}")
            else:
                yield Violation("reordered", f"round {serial} was told t = {t}, and is at {where[serial]}: {attempt}")


def _origin(attempts: Sequence[Attempt], timeline: Timeline, final: FinalState) -> Iterator[Violation]:
    """What is there was sent, and came into the times that the session still has."""
    explained: set[tuple[int, int]] = set()
    unanswered: set[int] = set()
    for attempt in attempts:
        if attempt.may_have_run:
            unanswered.update(attempt.serials)
        elif attempt.is_answered and attempt.t is not None and timeline.fate(attempt) is not Fate.GONE:
            explained.update((serial, t) for t, serial in enumerate(attempt.serials, attempt.first_t + 1))
    for t, serial in enumerate(final.serials, 1):
        if serial not in unanswered and (serial, t) not in explained:
            yield Violation("phantom", f"session {final.session} has round {serial} at t = {t}: no request explains it")


def _beginning(cut: Cut, attempts: Sequence[Attempt], timeline: Timeline, final: FinalState) -> Iterator[Violation]:
    """What a cut may have lost, it has lost from some round on: behind a lost one there is none that was kept."""
    first_lost, last_kept = None, None
    for attempt in attempts:
        if (
            not attempt.is_answered
            or attempt.t is None
            or attempt.ended >= cut.start
            or attempt.ended <= cut.kept_until
        ):
            continue
        if timeline.fate(attempt) is not Fate.OPEN or attempt.is_duplicate:
            continue
        for t, serial in enumerate(attempt.serials, attempt.first_t + 1):
            if list(final.serials[t - 1 : t]) == [serial]:
                last_kept = max(last_kept or (0, 0), (t, serial))
            else:
                first_lost = min(first_lost or (t, serial), (t, serial))
    if first_lost and last_kept and first_lost < last_kept:
        detail = (
            f"round {first_lost[1]} at t = {first_lost[0]} is lost, round {last_kept[1]} at t = {last_kept[0]} is kept"
        )
        yield Violation("hole", f"session {final.session}, {cut.kind} at {cut.start:.1f} s: {detail}")


def _continuation(cut: Cut, timeline: Timeline, final: FinalState) -> Iterator[Violation]:
    """The session went on from what a restored backup has, unless a later cut may have come before that was there."""
    if cut.kept is None or any(later.start > cut.start and later.kept_until < cut.end for later in timeline.cuts):
        return
    kept = list(cut.kept.get(final.session, ()))
    if list(final.serials[: len(kept)]) != kept:
        first = next(t for t, serial in enumerate(kept, 1) if list(final.serials[t - 1 : t]) != [serial])
        detail = f"the backup of {cut.kept_until:.1f} s has round {kept[first - 1]} at t = {first}, the session has not"
        yield Violation("lost", f"session {final.session}: {detail}")


def _agreement(final: FinalState) -> Iterator[Violation]:
    """Every worker serves the session, and says what the store says."""
    name = final.session
    if not len(final.serials) == final.t == final.rounds:
        detail = f"{final.t} rounds by its head, {final.rounds} by its metrics, {len(final.serials)} learned"
        yield Violation("disagreement", f"session {name} has {detail}")
    for view in final.views:
        if view.problem:
            yield Violation("unserved", f"worker {view.worker} answers {view.problem} for session {name}")
            continue
        if (view.t, view.etag) != (final.t, final.etag):
            detail = f"worker {view.worker} is at t = {view.t} ({view.etag}), the store at {final.t} ({final.etag})"
            yield Violation("stale", f"session {name}: {detail}")
        yield from _same_metrics(view, final)
        off = max((abs(a - b) for a, b in zip(view.values, final.values, strict=True)), default=0.0)
        if off > TOLERANCE:
            yield Violation("disagreement", f"session {name}: a forecast of worker {view.worker} is off by {off:.2g}")


def _same_metrics(view: View, final: FinalState) -> Iterator[Violation]:
    rounds, loss = view.metrics.get("rounds"), view.metrics.get("loss", 0.0)
    is_same = rounds == final.rounds and abs(loss - final.loss) <= TOLERANCE * max(1.0, abs(final.loss))
    if not is_same:
        detail = f"{rounds} rounds and loss {loss}, the store {final.rounds} and {final.loss}"
        yield Violation("disagreement", f"session {final.session}: worker {view.worker} has {detail}")
