"""The tables of the SQLite store, and each of its operations as SQL inside a transaction that the caller opens."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from service.store.base import (
    APPLIED_KEPT,
    SWEPT_AT_ONCE,
    TAIL_EVENTS,
    AlreadyApplied,
    AlreadyWaiting,
    Appended,
    Behind,
    Event,
    Gone,
    Head,
    Held,
    Page,
    Reading,
    TooManyWaiting,
    Waiting,
    make_reading,
)

TRIM_APPLIED_EVERY = 100
"""Applied ids between two trims of them: so many more than APPLIED_KEPT may be remembered."""

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, created_at REAL NOT NULL,
    round INTEGER NOT NULL DEFAULT 0, updated_at REAL,
    snapshot_round INTEGER NOT NULL DEFAULT -1, snapshot_at REAL, snapshot_bytes INTEGER NOT NULL DEFAULT 0,
    journal_bytes INTEGER NOT NULL DEFAULT 0, waiting INTEGER NOT NULL DEFAULT 0, applied INTEGER NOT NULL DEFAULT 0,
    meta BLOB NOT NULL
);
CREATE TABLE journal (
    session INTEGER, round INTEGER, count INTEGER NOT NULL, id TEXT, answer BLOB NOT NULL, blob BLOB NOT NULL,
    PRIMARY KEY (session, round)
) WITHOUT ROWID;
CREATE TABLE snapshots (session INTEGER PRIMARY KEY, blob BLOB NOT NULL);
-- A waiting prediction is due when it expires; then it is expired, and due when it is to be forgotten.
CREATE TABLE waiting (
    session INTEGER, id TEXT, blob BLOB NOT NULL, expires_at REAL NOT NULL, forget_at REAL NOT NULL,
    expired INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX waiting_due ON waiting (session, due);
CREATE TABLE applied (
    session INTEGER, id TEXT, serial INTEGER NOT NULL, answer BLOB NOT NULL, PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX applied_serial ON applied (session, serial);
"""
TABLES = {
    "sessions": "key",
    "journal": "session",
    "snapshots": "session",
    "waiting": "session",
    "applied": "session",
}

HEAD = """
SELECT name, uid, meta, created_at, round, updated_at, snapshot_round, snapshot_at, snapshot_bytes,
    round - MAX(snapshot_round, 0), journal_bytes, waiting FROM sessions
"""
ADD_SESSION = "INSERT INTO sessions (name, uid, created_at, meta, round) VALUES (?, ?, ?, ?, ?)"
FIND_ID = """
SELECT s.key, s.round, s.waiting, a.answer, w.blob, w.expires_at, (SELECT MIN(due) FROM waiting WHERE session = s.key)
FROM sessions s
LEFT JOIN applied a ON a.session = s.key AND a.id = ?1
LEFT JOIN waiting w ON w.session = s.key AND w.id = ?1
WHERE s.name = ?2 AND s.uid = ?3
"""
ADD_WAITING = "INSERT INTO waiting (session, id, blob, expires_at, forget_at, due) VALUES (?1, ?2, ?3, ?4, ?5, ?4)"
COUNT_WAITING = "UPDATE sessions SET waiting = waiting + ? WHERE key = ?"
EXPIRE = "UPDATE waiting SET expired = 1, due = forget_at WHERE session = ? AND due <= ? AND NOT expired"
FORGET = """
DELETE FROM waiting WHERE session = ?1 AND id IN (
    SELECT id FROM waiting WHERE session = ?1 AND due <= ?2 AND expired LIMIT ?3)
"""
SETTLE = "DELETE FROM waiting WHERE session = ? AND id = ? RETURNING expired"
FIND_SESSION = "SELECT key, round, applied, snapshot_round FROM sessions WHERE name = ? AND uid = ?"
FIND_APPLIED = "SELECT answer FROM applied WHERE session = ? AND id = ?"
ADD_APPLIED = "INSERT INTO applied (session, id, serial, answer) VALUES (?, ?, ?, ?)"
TRIM_APPLIED = "DELETE FROM applied WHERE session = ? AND serial <= ?"
FIND_EVENT = "SELECT round, blob, id, answer, count FROM journal WHERE session = ? AND round = ?"
FIND_EVENTS = "SELECT round, blob, id, answer, count FROM journal WHERE session = ? AND round > ? ORDER BY round"
ADD_EVENT = "INSERT INTO journal (session, round, blob, id, answer, count) VALUES (?, ?, ?, ?, ?, ?)"
COUNT_EVENTS = """
UPDATE sessions SET round = ?, updated_at = ?, journal_bytes = journal_bytes + ?, applied = ?, waiting = waiting - ?
WHERE key = ?
"""
COUNT_SNAPSHOT = """
UPDATE sessions SET snapshot_round = ?1, snapshot_at = ?2, snapshot_bytes = ?3, journal_bytes =
    (SELECT COALESCE(SUM(LENGTH(blob)), 0) FROM journal WHERE session = ?4 AND round > ?1) WHERE key = ?4
"""
TRIM_JOURNAL = """
DELETE FROM journal WHERE session = ?1 AND round <= (
    SELECT round FROM journal WHERE session = ?1 AND round <= ?2 ORDER BY round DESC LIMIT 1 OFFSET ?3)
"""

# The operations: each runs inside a transaction, and answers before its first write or not at all.


def create(db: sqlite3.Cursor, head: Head, blob: bytes | None) -> bool:
    row = db.execute("SELECT uid FROM sessions WHERE name = ?", (head.name,)).fetchone()
    if row is None:
        db.execute(ADD_SESSION, (head.name, head.uid, head.created_at, head.meta, head.round))
        if blob is not None:
            _keep(db, db.lastrowid, head.round, blob, head.created_at)
    return row is None or row[0] == head.uid


def head(db: sqlite3.Cursor, name: str) -> Head | Gone:
    row = db.execute(HEAD + "WHERE name = ?", (name,)).fetchone()
    return Gone() if row is None else Head(*row)


def read(db: sqlite3.Cursor, name: str, uid: str | None, after: int) -> Reading | Gone:
    found = head(db, name)
    if isinstance(found, Gone) or uid not in (None, found.uid):
        return Gone()
    (key,) = db.execute("SELECT key FROM sessions WHERE name = ?", (name,)).fetchone()
    events = _events(db, key, after)
    snapshot = None
    reaches = events[0].round - events[0].count == after if events else after == found.round
    if not reaches:
        after = max(found.snapshot_round, 0)
        events = _events(db, key, after)
        row = db.execute("SELECT blob FROM snapshots WHERE session = ?", (key,)).fetchone()
        snapshot = None if row is None else row[0]
    return make_reading(found, after, events, snapshot)


def _events(db: sqlite3.Cursor, key: int, after: int) -> Sequence[Event]:
    return [Event(*row) for row in db.execute(FIND_EVENTS, (key, after)).fetchall()]


def _behind(db: sqlite3.Cursor, name: str, expected: int) -> Behind | Gone:
    reading = read(db, name, None, expected)
    return reading if isinstance(reading, Gone) else Behind(reading)


def hold(
    db: sqlite3.Cursor, name: str, uid: str, expected: int, waiting: Waiting, now: float, limit: int
) -> Held | Behind | AlreadyWaiting | AlreadyApplied | TooManyWaiting | Gone:
    row = db.execute(FIND_ID, (waiting.id, name, uid)).fetchone()
    if row is not None and row[-1] is not None and row[-1] <= now:
        _sweep(db, row[0], now)
        row = db.execute(FIND_ID, (waiting.id, name, uid)).fetchone()
    if row is None:
        return Gone()
    key, round, held, answer, blob, expires_at, _ = row
    if answer is not None:
        return AlreadyApplied(waiting.id, answer)
    if blob is not None:
        return AlreadyWaiting(Waiting(waiting.id, blob, expires_at))
    if round != expected:
        return _behind(db, name, expected)
    if held >= limit:
        return TooManyWaiting()
    db.execute(ADD_WAITING, (key, waiting.id, waiting.blob, waiting.expires_at, waiting.forget_at(now)))
    db.execute(COUNT_WAITING, (1, key))
    return Held()


def _sweep(db: sqlite3.Cursor, key: int, now: float) -> None:
    expired = db.execute(EXPIRE, (key, now)).rowcount
    db.execute(FORGET, (key, now, SWEPT_AT_ONCE))
    db.execute(COUNT_WAITING, (-expired, key))


def append(
    db: sqlite3.Cursor, name: str, uid: str, expected: int, events: Sequence[Event], now: float
) -> Appended | Behind | AlreadyApplied | Gone:
    session = db.execute(FIND_SESSION, (name, uid)).fetchone()
    if session is None:
        return Gone()
    key, round, serial, _ = session
    if events[-1].round <= round and all(_is_in_journal(db, key, event) for event in events):
        return Appended(replayed=True)
    for event in events:
        if event.id and (row := db.execute(FIND_APPLIED, (key, event.id)).fetchone()):
            return AlreadyApplied(event.id, row[0])
    if round != expected:
        return _behind(db, name, expected)
    settled = 0
    for event in events:
        db.execute(ADD_EVENT, (key, event.round, event.blob, event.id or None, event.answer, event.count))
        if event.id:
            serial += 1
            row = db.execute(SETTLE, (key, event.id)).fetchone()
            settled += row is not None and not row[0]
            db.execute(ADD_APPLIED, (key, event.id, serial, event.answer))
    if serial % TRIM_APPLIED_EVERY < len(events):
        db.execute(TRIM_APPLIED, (key, serial - APPLIED_KEPT))
    size = sum(len(event.blob) for event in events)
    db.execute(COUNT_EVENTS, (events[-1].round, now, size, serial, settled, key))
    return Appended()


def _is_in_journal(db: sqlite3.Cursor, key: int, event: Event) -> bool:
    row = db.execute(FIND_EVENT, (key, event.round)).fetchone()
    return row == (event.round, event.blob, event.id or None, event.answer, event.count)


def look_up(db: sqlite3.Cursor, name: str, uid: str, id: str) -> Waiting | AlreadyApplied | Gone | None:
    row = db.execute(FIND_ID, (id, name, uid)).fetchone()
    if row is None:
        return Gone()
    _, _, _, answer, blob, expires_at, _ = row
    if answer is not None:
        return AlreadyApplied(id, answer)
    return None if blob is None else Waiting(id, blob, expires_at)


def snapshot(db: sqlite3.Cursor, name: str, uid: str, round: int, blob: bytes, now: float) -> bool:
    session = db.execute(FIND_SESSION, (name, uid)).fetchone()
    if session is None:
        return False
    key, _, _, snapshot_round = session
    is_end_of_event = round == 0 or db.execute(FIND_EVENT, (key, round)).fetchone() is not None
    if round <= snapshot_round or not is_end_of_event:
        return False
    _keep(db, key, round, blob, now)
    db.execute(TRIM_JOURNAL, (key, round, TAIL_EVENTS))
    return True


def _keep(db: sqlite3.Cursor, key: int | None, round: int, blob: bytes, now: float) -> None:
    db.execute("INSERT OR REPLACE INTO snapshots (session, blob) VALUES (?, ?)", (key, blob))
    db.execute(COUNT_SNAPSHOT, (round, now, len(blob), key))


def list_heads(db: sqlite3.Cursor, cursor: str | None, limit: int) -> Page:
    rows = db.execute(HEAD + "WHERE name > ? ORDER BY name LIMIT ?", (cursor or "", limit + 1)).fetchall()
    heads = [Head(*row) for row in rows[:limit]]
    return Page(heads, heads[-1].name if len(rows) > limit else None)


def count(db: sqlite3.Cursor) -> int:
    return db.execute("SELECT COUNT(*) FROM sessions").fetchone()[0]


def delete(db: sqlite3.Cursor, name: str) -> bool:
    row = db.execute("SELECT key FROM sessions WHERE name = ?", (name,)).fetchone()
    if row is not None:
        for table, column in TABLES.items():
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", row)
    return row is not None
