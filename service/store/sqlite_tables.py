"""The tables of the SQLite store, and functions that find and read sessions in them, inside the caller's transaction.

A search compares keys in the rows that it passes, including other sessions'. So rows are small: a value of more than
INLINE_BYTES is stored in the table `large`. There are few B-trees, since each one that a commit changes costs 5 us.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from okl.errors import StoreCorrupt

from .base import DIGEST_BYTES, LAST_BYTES, Applied, Entry, Head, Reading, Tip, Waiting
from .moving import FOR_GOOD, is_in_force, sealed
from .store_checks import check_last, check_reading, follow

INLINE_BYTES = 320
"""SQLite stores rows of up to 488 bytes whole in these tables' pages of 2,048 bytes."""

SCHEMA_VERSION = 5
SCHEMA = """
-- `base` is the tip before the oldest entry kept. `due_next` and `remembered_since` may be too early, never too late.
-- Remembered ids are ordered by their round plus `shift`, since replacing a state may lower the round.
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created_at REAL NOT NULL,
    first_round INTEGER NOT NULL, first_digest BLOB NOT NULL, base_round INTEGER NOT NULL, base_digest BLOB NOT NULL,
    snapshot_round INTEGER, snapshot_digest BLOB, snapshot_at REAL, snapshot_key INTEGER NOT NULL DEFAULT 0,
    snapshot_bytes INTEGER NOT NULL DEFAULT 0, tail_bytes INTEGER NOT NULL DEFAULT 0,
    shift INTEGER NOT NULL DEFAULT 0, sealed_until REAL NOT NULL DEFAULT 0.0,
    round INTEGER NOT NULL, digest BLOB NOT NULL, updated_at REAL, journal_bytes INTEGER NOT NULL DEFAULT 0,
    waiting INTEGER NOT NULL DEFAULT 0, waiting_bytes INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0, expired_bytes INTEGER NOT NULL DEFAULT 0, never_came INTEGER NOT NULL DEFAULT 0,
    due_next REAL NOT NULL DEFAULT 9e999,
    remembered INTEGER NOT NULL DEFAULT 0, remembered_bytes INTEGER NOT NULL DEFAULT 0,
    remembered_since REAL NOT NULL DEFAULT 9e999
);
CREATE TABLE records (session INTEGER PRIMARY KEY, record BLOB NOT NULL);
-- Values that are written independently of commits, in separate rows, since writing a row writes all of it.
CREATE TABLE notes (
    session INTEGER PRIMARY KEY, summary_round INTEGER NOT NULL, told INTEGER NOT NULL DEFAULT 0, summary BLOB NOT NULL,
    seal BLOB NOT NULL DEFAULT x''
);
CREATE TABLE snapshots (key INTEGER PRIMARY KEY, session INTEGER NOT NULL, size INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE INDEX snapshots_session ON snapshots (session, key, size);
CREATE TABLE journal (
    session INTEGER, round INTEGER, count INTEGER NOT NULL, size INTEGER NOT NULL, digest BLOB NOT NULL, id TEXT NOT NULL,
    blob BLOB, large INTEGER, PRIMARY KEY (session, round)
) WITHOUT ROWID;
-- A waiting prediction is due when it expires; then it is expired, and due when it is to be forgotten.
CREATE TABLE waiting (
    session INTEGER, id TEXT, due REAL NOT NULL, forget_at REAL NOT NULL, is_expired INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL, blob BLOB, large INTEGER, PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX waiting_due ON waiting (session, is_expired, due);
CREATE TABLE remembered (
    session INTEGER, id TEXT, round INTEGER NOT NULL, at REAL NOT NULL, size INTEGER NOT NULL, blob BLOB, large INTEGER,
    PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX remembered_round ON remembered (session, round, at, size);
-- Checkpoints, and their states in parts, like snapshots; `owner` is the key of a checkpoint.
CREATE TABLE checkpoints (
    key INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, name TEXT NOT NULL, round INTEGER NOT NULL,
    digest BLOB NOT NULL, at REAL NOT NULL, size INTEGER NOT NULL, UNIQUE (session, name)
);
CREATE TABLE states (key INTEGER PRIMARY KEY, owner INTEGER NOT NULL, size INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE INDEX states_owner ON states (owner, key, size);
CREATE TABLE large (key INTEGER PRIMARY KEY, blob BLOB NOT NULL);
CREATE TRIGGER journal_large AFTER DELETE ON journal WHEN OLD.large IS NOT NULL
BEGIN DELETE FROM large WHERE key = OLD.large; END;
CREATE TRIGGER waiting_large AFTER DELETE ON waiting WHEN OLD.large IS NOT NULL
BEGIN DELETE FROM large WHERE key = OLD.large; END;
CREATE TRIGGER remembered_large AFTER DELETE ON remembered WHEN OLD.large IS NOT NULL
BEGIN DELETE FROM large WHERE key = OLD.large; END;
-- Sessions with rows to clean up: all rows of a deleted session, trimmed rows of an existing one. A deleted checkpoint is
-- listed by its negated key.
CREATE TABLE garbage (session INTEGER PRIMARY KEY);
"""


class TooMuchHere(Exception):
    """The operation takes too long for the event loop; nothing was written."""


@dataclass(slots=True)
class SessionRow:
    """A session's row, in the order of its columns."""

    key: int
    name: bytes
    created_at: float
    first_round: int
    first_digest: bytes
    base_round: int
    base_digest: bytes
    snapshot_round: int | None
    snapshot_digest: bytes | None
    snapshot_at: float | None
    snapshot_key: int
    snapshot_bytes: int
    tail_bytes: int
    sealed_until: float
    round: int
    digest: bytes
    updated_at: float | None
    journal_bytes: int
    shift: int
    waiting: int
    waiting_bytes: int
    expired: int
    expired_bytes: int
    never_came: int
    due_next: float
    remembered: int
    remembered_bytes: int
    remembered_since: float

    def is_at(self, tip: Tip) -> bool:
        return self.round == tip.round and self.digest == tip.digest

    @property
    def is_sealed_for_good(self) -> bool:
        return self.sealed_until == FOR_GOOD

    def expire(self, size: int) -> None:
        """Count a prediction of this size as expired instead of waiting."""
        self.waiting, self.waiting_bytes = self.waiting - 1, self.waiting_bytes - size
        self.expired, self.expired_bytes = self.expired + 1, self.expired_bytes + size
        self.never_came += 1

    def start(self) -> Tip:
        """The tip at which a whole reading starts: the snapshot's, or the session's first."""
        if self.snapshot_round is None or self.snapshot_digest is None:
            return Tip(self.first_round, self.first_digest)
        return Tip(self.snapshot_round, self.snapshot_digest)


COLUMNS = [field.name for field in fields(SessionRow)]
OF_COMMITS = COLUMNS[COLUMNS.index("round") :]
OF_SNAPSHOTS = COLUMNS[COLUMNS.index("base_round") :]
_COLUMNS = ", ".join(COLUMNS).replace(" name,", " CAST(name AS BLOB),")
IS_LISTED = "name NOT GLOB '*}'"
"""Excludes sessions aside."""
FIND_SESSION = f"SELECT {_COLUMNS} FROM sessions WHERE name = ?"
FIND_NOTES = "SELECT summary_round, told, summary, seal FROM notes WHERE session = ?"
LIST_SESSIONS = f"""
SELECT summary_round, told, summary, seal, {_COLUMNS} FROM sessions LEFT JOIN notes ON notes.session = sessions.key
WHERE name > ? AND {IS_LISTED} ORDER BY name
"""
SAVE_COMMIT, SAVE_SNAPSHOT = (
    f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in columns)} WHERE key = ?"
    for columns in (OF_COMMITS, OF_SNAPSHOTS)
)
FIND_DIGEST = "SELECT digest FROM journal WHERE session = ? AND round = ?"
FIND_ENTRIES = """
SELECT round, digest, count, CAST(id AS BLOB), COALESCE(blob, (SELECT blob FROM large WHERE key = journal.large))
FROM journal WHERE session = ? AND round > ? ORDER BY round
"""
FIND_LAST = f"{FIND_ENTRIES} DESC"
FIND_SNAPSHOT = "SELECT blob FROM snapshots WHERE session = ? AND key >= ? ORDER BY key"
FIND_REMEMBERED = """
SELECT session, CAST(id AS BLOB), at, COALESCE(blob, (SELECT blob FROM large WHERE key = remembered.large))
FROM remembered WHERE session = ? AND id = ?
"""
FIND_WAITING = """
SELECT session, CAST(id AS BLOB), is_expired, due, forget_at,
    COALESCE(blob, (SELECT blob FROM large WHERE key = waiting.large))
FROM waiting WHERE session = ? AND id = ?
"""

_changes_of_commits = attrgetter(*OF_COMMITS, "key")
_changes_of_snapshots = attrgetter(*OF_SNAPSHOTS, "key")
_KIND = {"i": int, "b": bytes, "f": float, "n": type(None)}
_KINDS = {
    tuple(_KIND[letter] for letter in f"ibfibib{snapshot}iiifib{updated}iiiiiiifiif")
    for snapshot in ("ibf", "nnn")
    for updated in "fn"
}


def find_session(db: sqlite3.Cursor, name: str) -> SessionRow | None:
    """The session's row. Raises StoreCorrupt if it is damaged."""
    row = db.execute(FIND_SESSION, (name,)).fetchone()
    if row is None:
        return None
    session = to_session(row)
    if session is None or session.name != name.encode():
        raise corrupt(name, "its row is damaged")
    return session


def check_open(db: sqlite3.Cursor, session: SessionRow, now: float) -> None:
    """Raises SessionMoving or SessionMoved if the session is sealed."""
    if is_in_force(session.sealed_until, now):
        raise sealed(session.name.decode(), seal_of(db, session))


def seal_of(db: sqlite3.Cursor, session: SessionRow) -> bytes:
    """The note of the session's seal. Raises StoreCorrupt if it is damaged."""
    row = db.execute("SELECT seal FROM notes WHERE session = ?", (session.key,)).fetchone()
    if row is None or type(row[0]) is not bytes:
        raise corrupt(session.name.decode(), "its seal is damaged")
    return row[0]


def to_session(row: tuple) -> SessionRow | None:
    """The session of a row; None for a damaged one."""
    return SessionRow(*row) if tuple(map(type, row)) in _KINDS else None


def save_commit(db: sqlite3.Cursor, session: SessionRow) -> None:
    db.execute(SAVE_COMMIT, _changes_of_commits(session))


def save_snapshot(db: sqlite3.Cursor, session: SessionRow) -> None:
    db.execute(SAVE_SNAPSHOT, _changes_of_snapshots(session))


def keep(db: sqlite3.Cursor, value: bytes) -> tuple[bytes | None, int | None]:
    """The value as the columns `blob` and `large` of its row."""
    if len(value) <= INLINE_BYTES:
        return value, None
    return None, db.execute("INSERT INTO large (blob) VALUES (?)", (value,)).lastrowid


def corrupt(name: str, what: str) -> StoreCorrupt:
    return StoreCorrupt(f"Session {name!r} cannot be read from the SQLite file: {what}.", session=name)


def head(db: sqlite3.Cursor, session: SessionRow) -> Head:
    """Raises StoreCorrupt if a row is damaged."""
    return noted_head(session, db.execute(FIND_NOTES, (session.key,)).fetchone())


def noted_head(session: SessionRow, notes: tuple | None) -> Head:
    """Raises StoreCorrupt if a row is damaged."""
    name = session.name.decode()
    start = session.start()
    tips = ((session.base_round, session.base_digest), (session.round, session.digest), (start.round, start.digest))
    is_sound = all(round >= 0 and len(digest) == DIGEST_BYTES for round, digest in tips)
    if notes is None or tuple(map(type, notes)) != (int, int, bytes, bytes) or not is_sound:
        raise corrupt(name, "its head is damaged")
    summary_round, told, summary, seal = notes
    has_snapshot = session.snapshot_round is not None
    return Head(
        name,
        summary,
        Tip(session.round, session.digest),
        created_at=session.created_at,
        updated_at=session.updated_at,
        snapshot_tip=start if has_snapshot else None,
        snapshot_at=session.snapshot_at,
        snapshot_bytes=session.snapshot_bytes,
        journal_rounds=session.round - start.round,
        journal_bytes=session.journal_bytes,
        tail_bytes=session.tail_bytes,
        waiting=session.waiting,
        waiting_bytes=session.waiting_bytes,
        remembered=session.remembered,
        remembered_bytes=session.remembered_bytes,
        never_came=session.never_came,
        summary_round=summary_round,
        told=told,
        seal=seal if session.is_sealed_for_good else b"",
    )


def is_on_chain(db: sqlite3.Cursor, session: SessionRow, tip: Tip) -> bool:
    """Whether the tip is the head's, that of an entry kept, or the one before the oldest entry kept."""
    if tip.round >= session.round:
        return session.is_at(tip)
    if tip.round <= session.base_round:
        return tip == Tip(session.base_round, session.base_digest)
    row = db.execute(FIND_DIGEST, (session.key, tip.round)).fetchone()
    return row is not None and row[0] == tip.digest


def read(db: sqlite3.Cursor, session: SessionRow, after: Tip | None, most_rounds: int, most_bytes: int) -> Reading:
    """Raises StoreCorrupt if the entries do not lead to the head, TooMuchHere above `most_rounds` or `most_bytes`."""
    is_whole = after is None or not is_on_chain(db, session, after)
    start = session.start() if after is None or is_whole else after
    behind = session.snapshot_bytes if is_whole else session.tail_bytes
    if session.round - start.round > most_rounds or session.journal_bytes + behind > most_bytes:
        raise TooMuchHere
    found = head(db, session)
    entries = entries_after(db, session, start.round)
    if not is_whole:
        return check_reading(Reading(found, start, entries))
    return check_reading(Reading(found, start, entries, _snapshot(db, session), _record(db, session)))


def entries_after(db: sqlite3.Cursor, session: SessionRow, round: int) -> list[Entry]:
    """The entries after a round. Raises StoreCorrupt for a damaged one."""
    name = session.name.decode()
    return [_entry(name, *row) for row in db.execute(FIND_ENTRIES, (session.key, round))]


def salvage(db: sqlite3.Cursor, session: SessionRow) -> Reading:
    """The whole session up to the first entry that cannot be read or does not follow from the one before it."""
    found, tip = head(db, session), session.start()
    entries: list[Entry] = []
    for row in db.execute(FIND_ENTRIES, (session.key, tip.round)).fetchall():
        try:
            entry = _entry(found.name, *row)
        except StoreCorrupt:
            break
        if follow(tip, [entry]) is None:
            break
        entries.append(entry)
        tip = entry.tip
    return Reading(found, session.start(), entries, _snapshot(db, session), _record(db, session))


def last(db: sqlite3.Cursor, session: SessionRow, rounds: int) -> Sequence[Entry]:
    """Raises StoreCorrupt if the entries do not lead to the head."""
    name, start = session.name.decode(), Tip(session.base_round, session.base_digest)
    entries: list[Entry] = []
    covered = size = 0
    for row in db.execute(FIND_LAST, (session.key, start.round)):
        entry = _entry(name, *row)
        size += len(entry.blob)
        if covered >= rounds or size > LAST_BYTES:
            start = entry.tip
            break
        entries.append(entry)
        covered += entry.count
    seal = seal_of(db, session) if session.is_sealed_for_good else b""
    return check_last(name, start, entries[::-1], Tip(session.round, session.digest), seal)


def _record(db: sqlite3.Cursor, session: SessionRow) -> bytes:
    row = db.execute("SELECT record FROM records WHERE session = ?", (session.key,)).fetchone()
    if row is None or type(row[0]) is not bytes:
        raise corrupt(session.name.decode(), "its record is damaged")
    return row[0]


def _entry(name: str, round: int, digest: bytes, count: int, id: bytes, blob: bytes) -> Entry:
    if (type(digest), type(count), type(id), type(blob)) != (bytes, int, bytes, bytes):
        raise corrupt(name, f"the entry of round {round} is damaged")
    try:
        return Entry(Tip(round, digest), count, id.decode(), blob)
    except UnicodeDecodeError as error:
        raise corrupt(name, f"the id of the entry of round {round} is damaged") from error


def _snapshot(db: sqlite3.Cursor, session: SessionRow) -> bytes | None:
    if session.snapshot_round is None:
        return None
    parts = [part for (part,) in db.execute(FIND_SNAPSHOT, (session.key, session.snapshot_key))]
    if not parts or sum(map(len, parts)) != session.snapshot_bytes:
        raise corrupt(session.name.decode(), "its snapshot is not whole")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def find_applied(db: sqlite3.Cursor, session: SessionRow, id: str, since: float) -> Applied | None:
    """The id's answer, if it was applied later than `since`."""
    row = db.execute(FIND_REMEMBERED, (session.key, id)).fetchone()
    if row is None:
        return None
    key, found_id, at, answer = row
    if key != session.key or found_id != id.encode() or type(answer) is not bytes or type(at) is not float:
        raise corrupt(session.name.decode(), "a remembered id is damaged")
    return Applied(id, answer) if at > since else None


def find_waiting(db: sqlite3.Cursor, session: SessionRow, id: str, now: float) -> Waiting | None:
    """The prediction that waits under the id, or has expired and is still remembered."""
    row = db.execute(FIND_WAITING, (session.key, id)).fetchone()
    if row is None:
        return None
    key, found_id, is_expired, due, forget_at, blob = row
    is_sound = key == session.key and found_id == id.encode() and type(blob) is bytes
    if not is_sound or type(due) is not float or type(forget_at) is not float:
        raise corrupt(session.name.decode(), "a waiting prediction is damaged")
    return Waiting(id, blob, bool(is_expired) or due <= now) if forget_at > now else None
