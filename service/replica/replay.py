"""Loading a session from the store: restore a snapshot, replay the journal after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from okl.errors import SessionFailed, StateCorrupt
from okl_core.errors import OklError

from ..session.record import decode_record
from ..session.session import Session
from ..session.snapshot import unpack
from ..session.turn import Position
from ..store.base import Entry, Reading
from ..telemetry.counts import Counts
from .replica import Replica
from .scheduling import Scheduler

log = logging.getLogger("okl.sessions")


async def catch_up(replica: Replica, reading: Reading, scheduler: Scheduler, counts: Counts) -> Session:
    """Bring the copy to the head of a reading that is whole or starts at its tip. Raises StateCorrupt, SessionFailed; the
    caller then drops the copy."""
    session, position, head = replica.session, replica.position, reading.head
    started = time.perf_counter()
    if reading.is_whole:
        replica.drop()
        position, session = await _load(reading, scheduler)
        seconds = round(time.perf_counter() - started, 3)
        log.info("session loaded", extra={"session": head.name, "t": head.tip.round, "seconds": seconds})
    assert session is not None
    assert position is not None
    # A session must not be used while a replay changes it, or after one has failed half-way.
    replica.session = None
    replica.journal.see(head)
    await _replay(replica, session, reading.entries, scheduler)
    if session.t != head.tip.round:
        detail = f"The snapshot and journal of {head.name!r} lead to round {session.t}, not {head.tip.round}."
        raise StateCorrupt(detail, session=head.name)
    replica.session, replica.position = session, Position(position.identity, head.tip)
    replica.measure(session)
    replica.store_waiting, replica.never_came = head.waiting, head.never_came
    replica.alarms = session.history.alarm_count
    if reading.is_whole or reading.entries:
        counts.replays += 1
        counts.replayed_rounds += sum([entry.count for entry in reading.entries])
        counts.replay_s += time.perf_counter() - started
    return session


async def _load(reading: Reading, scheduler: Scheduler) -> tuple[Position, Session]:
    head = reading.head
    definition, identity = decode_record(head.name, reading.record or b"")
    position, blob = Position(identity, reading.start), reading.snapshot
    if blob is None and reading.start.digest != identity:
        raise StateCorrupt(f"The journal of session {head.name!r} starts at another session's tip.", session=head.name)
    return position, await scheduler.bytes(len(blob or b""), lambda: unpack(definition, blob, str(position)))


async def _replay(replica: Replica, session: Session, entries: Sequence[Entry], scheduler: Scheduler) -> None:
    """Learn the entries, in one piece of work."""
    rounds = sum(entry.count for entry in entries)
    if not rounds:
        return

    def work() -> None:
        for entry in entries:
            session.replay(entry.blob)

    before = session.divergence
    try:
        await scheduler.rounds(replica, work, rounds, is_long=session.has_long_round(rounds), whole=rounds)
    except StateCorrupt as error:
        log.error("replay diverged", extra={"session": replica.name, "detail": error.detail})
        raise
    except OklError as error:
        raise failed(replica.name, session, error) from error
    replica.forget(entry.id for entry in entries)
    replica.journal.seconds += rounds * replica.round_s
    if session.divergence > before:
        replica.wants_snapshot = True
        extra = {"session": replica.name, "t": session.t, "divergence": session.divergence}
        log.warning("replay on another arithmetic differs within the learner's conditioning", extra=extra)


def failed(name: str, session: Session, error: OklError) -> SessionFailed:
    """Log that the session cannot learn its next round, and return the error that tells clients."""
    log.error("session failed", extra={"session": name, "t": session.t, "detail": str(error)})
    return SessionFailed(
        f"Session {name!r} cannot learn round {session.t + 1}: {error}. "
        "`okl repair` takes it back to the last round that it can.",
        session=name,
    )
