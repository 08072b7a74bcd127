"""Sessions in SQL, inside the caller's transaction: create, read, list, summarize, snapshot, rewind, replace, delete.

Rows that no session has any more are deleted later in small steps (`clean`), so that no other session waits for that.
"""

from __future__ import annotations

import logging
import math
import sqlite3
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from okl.errors import StoreCorrupt

from . import sqlite_tables as tables
from .base import Entry, Found, Gone, Head, Limits, Page, Reading, Tip
from .moving import LONGEST_SEAL_S, aside, sealed
from .sqlite_tables import SessionRow, find_session
from .sqlite_waiting import count_waiting
from .store_checks import after_prefix

log = logging.getLogger("okl.store")

PART_BYTES = 1 << 20
"""A snapshot is stored in parts, so that it can be deleted in steps."""
CLEANED_AT_ONCE = 100
CLEANED_BYTES = 256 << 10
"""The limits of one step, in rows and in bytes per table: about 1 ms."""
NO_END = 1 << 62

COUNT = f"SELECT COUNT(*) FROM sessions WHERE {tables.IS_LISTED}"
ADD_SESSION = """
INSERT INTO sessions (name, created_at, first_round, first_digest, round, digest, base_round, base_digest)
VALUES (?1, ?2, ?3, ?4, ?3, ?4, ?3, ?4)
"""
ADD_RECORD = "INSERT INTO records (session, record) VALUES (?, ?)"
ADD_NOTES = "INSERT INTO notes (session, summary_round, told, summary) VALUES (?, ?, ?, ?)"
SUMMARIZE = "UPDATE notes SET summary_round = ?2, summary = ?3 WHERE session = ?1 AND summary_round <= ?2"
TELL = "UPDATE notes SET told = ?2 WHERE session = ?1 AND told < ?2"
FIND_HELD = """
SELECT seal FROM sessions JOIN notes ON notes.session = sessions.key WHERE name = ? AND sealed_until > ? AND sealed_until <= ?
"""
REPLACE_NOTES = "UPDATE notes SET summary_round = ?, told = ?, summary = ? WHERE session = ?"
ADD_PART = "INSERT INTO snapshots (session, size, blob) VALUES (?, ?, ?)"
ADD_GARBAGE = "INSERT OR IGNORE INTO garbage (session) VALUES (?)"
SUM_JOURNAL = "SELECT TOTAL(size) FROM journal WHERE session = ? AND round > ?"
COUNT_TAIL = "SELECT COUNT(*) FROM journal WHERE session = ? AND round > ? AND round <= ?"
FIND_TAIL = "SELECT round, size, digest FROM journal WHERE session = ? AND round > ? AND round <= ? ORDER BY round"
TAKE_BACK = "DELETE FROM journal WHERE session = ? AND round > ?"
BOUND_NOTES = "UPDATE notes SET summary_round = MIN(summary_round, ?), told = MIN(told, ?) WHERE session = ?"
FORGET = """
WITH taken AS (SELECT id FROM journal WHERE session = ?1 AND round > ?2)
DELETE FROM remembered WHERE session = ?1 AND (
    id IN taken
    OR round >= (SELECT MIN(round) FROM remembered WHERE session = ?1 AND id IN taken)
    AND EXISTS (SELECT 1 FROM remembered AS first WHERE first.session = ?1 AND first.id = remembered.id || '0')
) RETURNING size
"""
FIND_GARBAGE = """
SELECT garbage.session, sessions.base_round, sessions.snapshot_key
FROM garbage LEFT JOIN sessions ON sessions.key = garbage.session LIMIT 1
"""


class _Rows(NamedTuple):
    """Queries that find a table's rows that a session no longer has, and delete one of them."""

    find: str
    delete: str


JOURNAL_ROWS = _Rows(
    "SELECT session, round, size FROM journal WHERE session = ? AND round <= ? ORDER BY round",
    "DELETE FROM journal WHERE session = ? AND round = ?",
)
SNAPSHOT_ROWS = _Rows(
    "SELECT session, key, size FROM snapshots WHERE session = ? AND key < ?",
    "DELETE FROM snapshots WHERE session = ? AND key = ?",
)
WAITING_ROWS = _Rows(
    "SELECT session, id, size FROM waiting WHERE session = ?", "DELETE FROM waiting WHERE session = ? AND id = ?"
)
REMEMBERED_ROWS = _Rows(
    "SELECT session, id, size FROM remembered WHERE session = ?", "DELETE FROM remembered WHERE session = ? AND id = ?"
)


STATE_ROWS = _Rows(
    "SELECT owner, key, size FROM states WHERE owner = ?", "DELETE FROM states WHERE owner = ? AND key = ?"
)


def create(
    db: sqlite3.Cursor,
    now: float,
    name: str,
    record: bytes,
    tip: Tip,
    snapshot: bytes | None,
    summary: bytes,
    told: int,
) -> bool:
    """Create a session; False if the name is taken by one that began at another tip."""
    found = find_session(db, name)
    if found is not None:
        return tip == Tip(found.first_round, found.first_digest)
    db.execute(ADD_SESSION, (name, now, tip.round, tip.digest))
    key = db.lastrowid
    db.execute(ADD_RECORD, (key, record))
    db.execute(ADD_NOTES, (key, tip.round, told, summary))
    if snapshot is not None and (session := find_session(db, name)):
        keep_snapshot(db, session, now, tip, snapshot)
        tables.save_snapshot(db, session)
    return True


def head(db: sqlite3.Cursor, name: str) -> Head | Gone:
    session = find_session(db, name)
    return Gone() if session is None else tables.head(db, session)


def read(db: sqlite3.Cursor, name: str, after: Tip | None) -> Reading | Gone:
    session = find_session(db, name)
    return Gone() if session is None else tables.read(db, session, after, NO_END, NO_END)


def salvage(db: sqlite3.Cursor, name: str) -> Reading | Gone:
    session = find_session(db, name)
    return Gone() if session is None else tables.salvage(db, session)


def last(db: sqlite3.Cursor, name: str, rounds: int) -> Sequence[Entry] | Gone:
    session = find_session(db, name)
    return Gone() if session is None else tables.last(db, session, rounds)


def find(
    db: sqlite3.Cursor, limits: Limits, now: float, name: str, tip: Tip, id: str, most: tuple[int, int]
) -> Found | Gone:
    session = find_session(db, name)
    if session is None:
        return Gone()
    what = tables.find_applied(db, session, id, now - limits.remembered_s) or tables.find_waiting(db, session, id, now)
    return Found(what, None if session.is_at(tip) else tables.read(db, session, tip, *most))


def list_heads(db: sqlite3.Cursor, cursor: str | None, limit: int) -> Page:
    """A page of heads, without sessions whose rows are damaged."""
    rows = db.execute(tables.LIST_SESSIONS, (cursor or "",))
    heads = list(islice((found for row in rows if (found := _listed(row)) is not None), limit + 1))
    return Page(heads[:limit], heads[limit - 1].name if len(heads) > limit else None)


def _listed(row: tuple) -> Head | None:
    notes, columns = row[:4], row[4:]
    session = tables.to_session(columns)
    try:
        if session is None:
            raise tables.corrupt(str(columns[1]), "its row is damaged")
        return tables.noted_head(session, notes)
    except (StoreCorrupt, UnicodeDecodeError) as error:
        log.warning("a session is left out of the list", extra={"detail": str(error)})
        return None


def count(db: sqlite3.Cursor, prefix: str = "") -> int:
    if not prefix:
        return db.execute(COUNT).fetchone()[0]
    bounds = (prefix, after_prefix(prefix))
    return db.execute(f"{COUNT} AND name >= ? AND name < ?", bounds).fetchone()[0]


def snapshot(db: sqlite3.Cursor, limits: Limits, now: float, name: str, tip: Tip, blob: bytes) -> bool:
    session = find_session(db, name)
    if session is None or not tables.is_on_chain(db, session, tip):
        return False
    if session.snapshot_round is not None and tip.round <= session.snapshot_round:
        return False
    kept_bytes = session.tail_bytes + session.journal_bytes
    keep_snapshot(db, session, now, tip, blob)
    session.tail_bytes = kept_bytes - session.journal_bytes
    _trim(db, session, limits)
    tables.save_snapshot(db, session)
    return True


def keep_snapshot(db: sqlite3.Cursor, session: SessionRow, now: float, tip: Tip, blob: bytes) -> None:
    view = memoryview(blob)
    for start in range(0, max(len(blob), 1), PART_BYTES):
        part = view[start : start + PART_BYTES]
        db.execute(ADD_PART, (session.key, len(part), part))
        if start == 0:
            session.snapshot_key = db.lastrowid or 0
    session.snapshot_round, session.snapshot_digest = tip.round, tip.digest
    session.snapshot_at, session.snapshot_bytes = now, len(blob)
    session.journal_bytes = int(db.execute(SUM_JOURNAL, (session.key, tip.round)).fetchone()[0])
    db.execute(ADD_GARBAGE, (session.key,))


def _trim(db: sqlite3.Cursor, session: SessionRow, limits: Limits) -> None:
    """Drop the entries behind the snapshot, except the tail, from the session; `clean` deletes their rows.

    The tail begins where the limits say. It is sought from the end that is nearer, since it may have a million entries.
    """
    assert session.snapshot_round is not None
    behind = (session.key, session.base_round, session.snapshot_round)
    # An entry has a round or more.
    number = session.snapshot_round - session.base_round
    if number > limits.tail:
        number = db.execute(COUNT_TAIL, behind).fetchone()[0]
    if number > 2 * limits.tail or session.tail_bytes > 2 * limits.tail_bytes:
        session.tail_bytes = 0
        for index, (round, size, digest) in enumerate(db.execute(f"{FIND_TAIL} DESC", behind)):
            if index == limits.tail or session.tail_bytes + size > limits.tail_bytes:
                session.base_round, session.base_digest = round, digest
                break
            session.tail_bytes += size
    elif number > limits.tail or session.tail_bytes > limits.tail_bytes:
        for round, size, digest in db.execute(FIND_TAIL, behind):
            session.base_round, session.base_digest = round, digest
            number, session.tail_bytes = number - 1, session.tail_bytes - size
            if number <= limits.tail and session.tail_bytes <= limits.tail_bytes:
                break


def rewind(db: sqlite3.Cursor, now: float, name: str, tip: Tip, to: Tip, alarms: int) -> bool:
    session = find_session(db, name)
    if session is None or not session.is_at(tip):
        return False
    tables.check_open(db, session, now)
    # The head's tip itself may be damaged, so it cannot tell whether `to` is on the chain.
    found = (
        db.execute(tables.FIND_DIGEST, (session.key, to.round)).fetchone() if to.round > session.start().round else None
    )
    if to != session.start() and found != (to.digest,):
        return False
    for (size,) in db.execute(FORGET, (session.key, to.round)).fetchall():
        session.remembered -= 1
        session.remembered_bytes -= size
    db.execute(TAKE_BACK, (session.key, to.round))
    db.execute(BOUND_NOTES, (to.round, alarms, session.key))
    session.shift += session.round - to.round
    session.round, session.digest = to.round, to.digest
    session.journal_bytes = int(db.execute(SUM_JOURNAL, (session.key, session.start().round)).fetchone()[0])
    tables.save_snapshot(db, session)
    return True


def replace(
    db: sqlite3.Cursor,
    now: float,
    name: str,
    at: Tip,
    record: bytes,
    to: Tip,
    snapshot: bytes,
    summary: bytes,
    told: int,
    *,
    unless_waiting: bool = False,
) -> bool:
    session = find_session(db, name)
    if session is None:
        return False
    tables.check_open(db, session, now)
    if not session.is_at(at):
        return tables.is_on_chain(db, session, to)
    if unless_waiting and _has_waiting(db, now, name):
        return False
    db.execute(TAKE_BACK, (session.key, -1))
    db.execute("UPDATE records SET record = ? WHERE session = ?", (record, session.key))
    db.execute(REPLACE_NOTES, (to.round, told, summary, session.key))
    session.shift += session.round - to.round
    session.round, session.digest = session.base_round, session.base_digest = to
    session.tail_bytes = 0
    keep_snapshot(db, session, now, to, snapshot)
    tables.save_snapshot(db, session)
    return True


def delete(
    db: sqlite3.Cursor,
    now: float,
    name: str,
    at: Tip | None,
    *,
    unless_waiting: bool = False,
    remains: bytes = b"",
) -> bool:
    """Delete a session; its name is free at once. Damaged sessions and those sealed for good can be deleted, too."""
    if unless_waiting and _has_waiting(db, now, name):
        return False
    if at is not None:
        session = find_session(db, name)
        if session is None or not session.is_at(at):
            return False
    if remains and not _are_alone(db, name, remains):
        return False
    held = db.execute(FIND_HELD, (name, now, now + LONGEST_SEAL_S)).fetchone()
    if held is not None:
        raise sealed(name, held[0])
    remove(db, aside(name))
    return remove(db, name)


def _are_alone(db: sqlite3.Cursor, name: str, remains: bytes) -> bool:
    """Whether the session is sealed for good with this note, and none is aside."""
    session = find_session(db, name)
    if session is None or not session.is_sealed_for_good or tables.seal_of(db, session) != remains:
        return False
    return find_session(db, aside(name)) is None


def _has_waiting(db: sqlite3.Cursor, now: float, name: str) -> bool:
    return count_waiting(db, now, name, [math.inf]) not in ([0], Gone())


def remove(db: sqlite3.Cursor, name: str) -> bool:
    """Remove the session without any check."""
    row = db.execute("DELETE FROM sessions WHERE name = ? RETURNING key", (name,)).fetchone()
    if row is not None:
        db.execute("DELETE FROM records WHERE session = ?", row)
        db.execute("DELETE FROM notes WHERE session = ?", row)
        db.execute(ADD_GARBAGE, row)
        for (owner,) in db.execute("DELETE FROM checkpoints WHERE session = ? RETURNING key", row).fetchall():
            db.execute(ADD_GARBAGE, (-owner,))
    return row is not None


def summarize(db: sqlite3.Cursor, name: str, tip: Tip, summary: bytes) -> bool:
    session = _found_on_chain(db, name, tip)
    return session is not None and db.execute(SUMMARIZE, (session.key, tip.round, summary)).rowcount == 1


def told(db: sqlite3.Cursor, name: str, tip: Tip, count: int) -> bool:
    session = _found_on_chain(db, name, tip)
    return session is not None and db.execute(TELL, (session.key, count)).rowcount == 1


def _found_on_chain(db: sqlite3.Cursor, name: str, tip: Tip) -> SessionRow | None:
    session = find_session(db, name)
    return session if session is not None and tables.is_on_chain(db, session, tip) else None


def has_garbage(db: sqlite3.Cursor) -> bool:
    return db.execute("SELECT 1 FROM garbage LIMIT 1").fetchone() is not None


def clean(db: sqlite3.Cursor) -> None:
    """Delete some rows that no session has any more."""
    row = db.execute(FIND_GARBAGE).fetchone()
    if row is None:
        return
    key, base_round, snapshot_key = row
    if key < 0:
        if _clean(db, STATE_ROWS, -key):
            db.execute("DELETE FROM garbage WHERE session = ?", (key,))
        return
    is_gone = base_round is None
    is_clean = _clean(db, JOURNAL_ROWS, key, NO_END if is_gone else base_round)
    is_clean &= _clean(db, SNAPSHOT_ROWS, key, NO_END if is_gone else snapshot_key)
    if is_gone:
        is_clean &= _clean(db, WAITING_ROWS, key)
        is_clean &= _clean(db, REMEMBERED_ROWS, key)
    if is_clean:
        db.execute("DELETE FROM garbage WHERE session = ?", (key,))


def _clean(db: sqlite3.Cursor, rows: _Rows, *arguments: int) -> bool:
    """Delete some rows; False if more are left."""
    found: list[tuple[int, int | str]] = []
    deleted_bytes = 0
    for session, row, size in db.execute(rows.find, arguments):
        if len(found) == CLEANED_AT_ONCE or deleted_bytes >= CLEANED_BYTES:
            break
        found.append((session, row))
        deleted_bytes += size
    else:
        db.executemany(rows.delete, found)
        return True
    db.executemany(rows.delete, found)
    return False
