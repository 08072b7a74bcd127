"""Moving sessions in SQL, inside the caller's transaction: checkpoints, seals, luggage, arrivals."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from . import sqlite_sessions as sessions
from . import sqlite_tables as tables
from .base import Entry, Full, Gone, Limits, Tip
from .moving import (
    FOR_GOOD,
    LUGGAGE_BYTES,
    LUGGAGE_ITEMS,
    Checkpoint,
    HeldItem,
    Luggage,
    RememberedItem,
    Whole,
    aside,
    is_in_force,
    page_after,
    page_cursor,
    page_place,
)
from .sqlite_tables import SessionRow, check_open, corrupt, find_session, keep, seal_of
from .store_checks import check_last

FIND_CHECKPOINT = "SELECT key, size FROM checkpoints WHERE session = ? AND name = ?"
FIND_CHECKPOINTS = "SELECT CAST(name AS BLOB), round, digest, at, size FROM checkpoints WHERE session = ? ORDER BY name"
SUM_OTHERS = "SELECT COUNT(*), TOTAL(size) FROM checkpoints WHERE session = ? AND name != ?"
DROP_CHECKPOINT = "DELETE FROM checkpoints WHERE session = ? AND name = ? RETURNING key"
ADD_CHECKPOINT = "INSERT INTO checkpoints (session, name, round, digest, at, size) VALUES (?, ?, ?, ?, ?, ?)"
ADD_STATE = "INSERT INTO states (owner, size, blob) VALUES (?, ?, ?)"
FIND_STATE = "SELECT blob FROM states WHERE owner = ? ORDER BY key"
SEAL = "UPDATE sessions SET sealed_until = ? WHERE key = ?"
RENAME = "UPDATE sessions SET name = ? WHERE key = ?"
NOTE_SEAL = "UPDATE notes SET seal = ? WHERE session = ?"
FIND_HELD = """
SELECT CAST(id AS BLOB), COALESCE(blob, (SELECT blob FROM large WHERE key = waiting.large)), due, forget_at, is_expired
FROM waiting WHERE session = ? AND is_expired = ? ORDER BY due, id LIMIT ? OFFSET ?
"""
FIND_REMEMBERED = """
SELECT CAST(id AS BLOB), COALESCE(blob, (SELECT blob FROM large WHERE key = remembered.large)), at
FROM remembered WHERE session = ? ORDER BY round LIMIT ? OFFSET ?
"""
HOLD = """
INSERT INTO waiting (session, id, due, forget_at, is_expired, size, blob, large) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session, id) DO NOTHING
"""
ADD_ENTRY = """
INSERT INTO journal (session, round, count, size, digest, id, blob, large) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session, round) DO NOTHING
"""
HAS_ID = "SELECT 1 FROM remembered WHERE session = ? AND id = ?"
REMEMBER = "INSERT INTO remembered (session, id, round, at, size, blob, large) VALUES (?, ?, ?, ?, ?, ?, ?)"


def keep_state(
    db: sqlite3.Cursor,
    limits: Limits,
    now: float,
    name: str,
    identity: bytes,
    checkpoint: Checkpoint,
    blob: bytes,
    note: bytes,
) -> bool | Full:
    session = find_session(db, name)
    if session is None or session.first_digest != identity:
        return False
    if not (session.is_sealed_for_good and note and seal_of(db, session) == note):
        check_open(db, session, now)
    number, size = db.execute(SUM_OTHERS, (session.key, checkpoint.name)).fetchone()
    if number >= limits.checkpoints or size + len(blob) > limits.checkpoint_bytes:
        return Full()
    _drop(db, session, checkpoint.name)
    row = (session.key, checkpoint.name, *checkpoint.tip, checkpoint.at, len(blob))
    owner = db.execute(ADD_CHECKPOINT, row).lastrowid
    view = memoryview(blob)
    for start in range(0, len(blob), sessions.PART_BYTES):
        part = view[start : start + sessions.PART_BYTES]
        db.execute(ADD_STATE, (owner, len(part), part))
    return True


def kept(db: sqlite3.Cursor, name: str) -> Sequence[Checkpoint] | Gone:
    session = find_session(db, name)
    if session is None:
        return Gone()
    rows = db.execute(FIND_CHECKPOINTS, (session.key,)).fetchall()
    if any(tuple(map(type, row)) != (bytes, int, bytes, float, int) for row in rows):
        raise corrupt(name, "a checkpoint is damaged")
    return [Checkpoint(key.decode(), Tip(round, digest), at, size) for key, round, digest, at, size in rows]


def kept_state(db: sqlite3.Cursor, name: str, checkpoint: str) -> bytes | None:
    session = find_session(db, name)
    found = None if session is None else db.execute(FIND_CHECKPOINT, (session.key, checkpoint)).fetchone()
    if found is None:
        return None
    blob = b"".join([part for (part,) in db.execute(FIND_STATE, found[:1])])
    if len(blob) != found[1]:
        raise corrupt(name, f"the state of checkpoint {checkpoint!r} is not whole")
    return blob


def drop(db: sqlite3.Cursor, now: float, name: str, checkpoint: str) -> bool:
    session = find_session(db, name)
    if session is None:
        return False
    check_open(db, session, now)
    return _drop(db, session, checkpoint)


def _drop(db: sqlite3.Cursor, session: SessionRow, checkpoint: str) -> bool:
    row = db.execute(DROP_CHECKPOINT, (session.key, checkpoint)).fetchone()
    if row is not None:
        db.execute(sessions.ADD_GARBAGE, (-row[0],))
    return row is not None


def seal(db: sqlite3.Cursor, now: float, name: str, note: bytes, for_s: float, over: bytes | None) -> bool:
    session = find_session(db, name)
    if session is None:
        return False
    found = seal_of(db, session) if is_in_force(session.sealed_until, now) else None
    if (found is None and over is not None) or found not in (None, note, over):
        return False
    db.execute(SEAL, (now + for_s, session.key))
    db.execute(NOTE_SEAL, (note, session.key))
    return True


def unseal(db: sqlite3.Cursor, now: float, name: str, note: bytes, identity: bytes) -> bool:
    session, arrived = find_session(db, name), find_session(db, aside(name))
    if arrived is not None and seal_of(db, arrived) == note:
        if session is None or not session.is_sealed_for_good:
            return False
        sessions.remove(db, name)
        db.execute(RENAME, (name, arrived.key))
        session = arrived
    if session is None or (is_in_force(session.sealed_until, now) and seal_of(db, session) != note):
        return False
    if identity not in (b"", session.first_digest):
        return False
    db.execute(SEAL, (0.0, session.key))
    db.execute(NOTE_SEAL, (b"", session.key))
    return True


def whole(db: sqlite3.Cursor, name: str) -> Whole | Gone:
    session = find_session(db, name)
    if session is None:
        return Gone()
    reading = tables.read(db, session, None, sessions.NO_END, sessions.NO_END)
    base = Tip(session.base_round, session.base_digest)
    found = tables.entries_after(db, session, base.round)
    entries = check_last(name, base, found, reading.head.tip)
    first = Tip(session.first_round, session.first_digest)
    return Whole(reading.head, first, base, reading.record or b"", reading.snapshot, entries)


def luggage(db: sqlite3.Cursor, name: str, cursor: str | None) -> Luggage | Gone:
    session = find_session(db, name)
    if session is None:
        return Gone()
    part, offset = page_place(cursor)
    rows: list[tuple] = []
    size = 0
    if part == "remembered":
        found = db.execute(FIND_REMEMBERED, (session.key, LUGGAGE_ITEMS + 1, offset))
    else:
        found = db.execute(FIND_HELD, (session.key, part == "expired", LUGGAGE_ITEMS + 1, offset))
    for row in found:
        if type(row[0]) is not bytes or type(row[1]) is not bytes:
            raise corrupt(name, "what waits or is remembered is damaged")
        size += len(row[1])
        if rows and (len(rows) == LUGGAGE_ITEMS or size > LUGGAGE_BYTES):
            after = page_cursor(part, offset + len(rows))
            break
        rows.append(row)
    else:
        after = page_after(part)
    if part == "remembered":
        return Luggage([], [RememberedItem(id.decode(), answer, at) for id, answer, at in rows], after)
    items = [
        HeldItem(id.decode(), blob, 0.0 if is_expired else round(due, 6), round(forget_at, 6), bool(is_expired))
        for id, blob, due, forget_at, is_expired in rows
    ]
    return Luggage(items, [], after)


def arrive(db: sqlite3.Cursor, now: float, name: str, whole: Whole, note: bytes) -> bool:
    """Create the session; False if the name belongs to one that is not sealed for good."""
    existing = find_session(db, name)
    if existing is not None:
        if not existing.is_sealed_for_good:
            return False
        sessions.delete(db, now, name, None)
    head = whole.head
    sessions.create(db, head.created_at, name, whole.record, whole.first, None, head.summary, head.told)
    session = find_session(db, name)
    assert session is not None
    if whole.snapshot is not None and head.snapshot_tip is not None:
        sessions.keep_snapshot(db, session, head.snapshot_at or now, head.snapshot_tip, whole.snapshot)
    session.base_round, session.base_digest = whole.base
    session.tail_bytes, session.journal_bytes = head.tail_bytes, head.journal_bytes
    session.round, session.digest = head.tip
    session.updated_at, session.never_came = head.updated_at, head.never_came
    session.shift, session.sealed_until = -head.tip.round, FOR_GOOD
    tables.save_snapshot(db, session)
    db.execute(sessions.REPLACE_NOTES, (head.summary_round, head.told, head.summary, session.key))
    db.execute(NOTE_SEAL, (note, session.key))
    return True


def unload(db: sqlite3.Cursor, name: str, note: bytes, entries: Sequence[Entry], luggage: Luggage, then: bytes) -> bool:
    session = find_session(db, name)
    if session is None or not session.is_sealed_for_good or seal_of(db, session) not in (note, then or note):
        return False
    for entry in entries:
        row = (entry.tip.round, entry.count, len(entry.blob), entry.tip.digest, entry.id)
        db.execute(ADD_ENTRY, (session.key, *row, *keep(db, entry.blob)))
    for item in luggage.held:
        _hold(db, session, item)
    for item in luggage.remembered:
        if db.execute(HAS_ID, (session.key, item.id)).fetchone() is None:
            session.shift += 1
            order, size = session.round + session.shift, len(item.answer)
            db.execute(REMEMBER, (session.key, item.id, order, item.at, size, *keep(db, item.answer)))
            session.remembered, session.remembered_bytes = session.remembered + 1, session.remembered_bytes + size
            session.remembered_since = min(session.remembered_since, item.at)
    if then:
        db.execute(NOTE_SEAL, (then, session.key))
    tables.save_snapshot(db, session)
    return True


def _hold(db: sqlite3.Cursor, session: SessionRow, item: HeldItem) -> None:
    due = item.forget_at if item.is_expired else item.expires_at
    size = len(item.blob)
    row = (session.key, item.id, due, item.forget_at, item.is_expired, size, *keep(db, item.blob))
    if db.execute(HOLD, row).rowcount == 0:
        return
    if item.is_expired:
        session.expired, session.expired_bytes = session.expired + 1, session.expired_bytes + size
    else:
        session.waiting, session.waiting_bytes = session.waiting + 1, session.waiting_bytes + size
    session.due_next = min(session.due_next, due)
