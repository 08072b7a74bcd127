"""Repair of a session that cannot be loaded, by rewinding it to the last request that replays.

A request is taken back as a whole: if some of its rounds were left, its repetition would learn them twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from okl.errors import ServiceError, StateCorrupt
from okl_core.errors import OklError

from ..session.record import decode_record
from ..session.requests import is_earlier_entry
from ..session.session import Session
from ..session.snapshot import unpack
from ..session.turn import Position
from ..store.base import Entry, Reading, Store, Tip, unless_gone


@dataclass(frozen=True, slots=True)
class RepairReport:
    """`rounds` were committed; the requests of the first `kept` replay. `trouble` says why the next does not, None if all do.

    `kept` may be larger: the journal may go on after the session's position, if that is damaged.

    `is_written`: whether the session was rewound to round `kept`.
    """

    session: str
    rounds: int
    kept: int
    trouble: str | None
    is_written: bool = False


async def repair(store: Store, name: str, *, write: bool) -> RepairReport:
    """Find the last request that replays, and with `write` rewind the session to its last round.

    No worker need stop: one with a copy from after that round drops it at its next commit. Raises SessionNotFound,
    StoreError; StateCorrupt if the record or the snapshot cannot be read, or the session changes meanwhile.
    """
    reading = unless_gone(await store.salvage(name), name)
    kept, alarms, trouble = await asyncio.to_thread(_replayed, name, reading)
    head = reading.head.tip
    if trouble is None or not write:
        return RepairReport(name, head.round, kept.round, trouble)
    if not await store.rewind(name, head, kept, alarms):
        raise StateCorrupt(f"Session {name!r} has changed meanwhile; run the repair again.", session=name)
    return RepairReport(name, head.round, kept.round, trouble, is_written=True)


def _replayed(name: str, reading: Reading) -> tuple[Tip, int, str | None]:
    """Return the tip after the last request that replays, the alarms until then, and why the next one does not."""
    definition, identity = decode_record(name, reading.record or b"")
    session = unpack(definition, reading.snapshot, str(Position(identity, reading.start)))
    kept = tip = reading.start
    alarms = session.history.alarm_count
    for entry in reading.entries:
        if (trouble := _trouble(session, entry)) is not None:
            return kept, alarms, trouble
        tip = entry.tip
        if not is_earlier_entry(entry.id):
            kept, alarms = tip, session.history.alarm_count
    head = reading.head.tip
    if tip == head:
        return kept, alarms, None
    if tip.round < head.round:
        return kept, alarms, f"the entry after round {tip.round} was damaged, or is missing"
    return kept, alarms, f"the position of the session, round {head.round}, is not the journal's end"


def _trouble(session: Session, entry: Entry) -> str | None:
    try:
        session.replay(entry.blob)
    except ServiceError as error:
        return error.detail
    except OklError as error:
        return f"round {session.t + 1} cannot be learned: {error}"
    return None
