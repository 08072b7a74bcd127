"""Sessions in one SQLite file that several processes open at once; nothing to install.

The hot path writes on the event loop's own connection: an uncontended commit takes less time than a thread to wake up.
Everything that may take longer is done by one thread with one connection: operations that find the file locked, large
reads and snapshots, the checkpoints of the write-ahead log, and every operation where a commit flushes the disk. What has
queued up while the thread was busy is one transaction, so that under load many operations share a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, NamedTuple, TypeVar, final
from urllib.parse import parse_qsl, unquote, urlsplit

from service.errors import ConfigurationError, SessionExists, StoreCorrupt, StoreTimeout, StoreUnavailable
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
    check_events,
    make_reading,
)

log = logging.getLogger("okl.store")

T = TypeVar("T")

MEMORY = ":memory:"
SYNCHRONOUS = ("off", "normal", "full", "extra")
CHECKPOINT_PAGES = 4_000
"""The write-ahead log goes back into the file after 16 MB: each time flushes the disk, and one commit pays for it."""
WAL_KEPT_BYTES = 64 << 20
"""What a burst of large snapshots leaves of the write-ahead log on disk."""
CHECKPOINT_EVERY = 500
"""Commits of the event loop between two checkpoints by the thread: about 4 MB of log."""
TRIM_APPLIED_EVERY = 100
"""Applied ids between two trims of them: so many more than APPLIED_KEPT may be remembered."""
EVENTS_AT_ONCE = 32
"""More of them in one `append` would hold up the event loop: the thread takes them."""
WITHOUT_FLUSH = ("off", "normal")
"""Where a commit does not wait for the disk, so that it may be made on the event loop."""

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


def _create(db: sqlite3.Cursor, head: Head) -> bool:
    row = db.execute("SELECT uid FROM sessions WHERE name = ?", (head.name,)).fetchone()
    if row is None:
        values = (head.name, head.uid, head.created_at, head.meta)
        db.execute("INSERT INTO sessions (name, uid, created_at, meta) VALUES (?, ?, ?, ?)", values)
    return row is None or row[0] == head.uid


def _head(db: sqlite3.Cursor, name: str) -> Head | Gone:
    row = db.execute(HEAD + "WHERE name = ?", (name,)).fetchone()
    return Gone() if row is None else Head(*row)


def _read(db: sqlite3.Cursor, name: str, uid: str | None, after: int) -> Reading | Gone:
    head = _head(db, name)
    if isinstance(head, Gone) or uid not in (None, head.uid):
        return Gone()
    (key,) = db.execute("SELECT key FROM sessions WHERE name = ?", (name,)).fetchone()
    events = _events(db, key, after)
    snapshot = None
    reaches = events[0].round - events[0].count == after if events else after == head.round
    if not reaches:
        after = max(head.snapshot_round, 0)
        events = _events(db, key, after)
        row = db.execute("SELECT blob FROM snapshots WHERE session = ?", (key,)).fetchone()
        snapshot = None if row is None else row[0]
    return make_reading(head, after, events, snapshot)


def _events(db: sqlite3.Cursor, key: int, after: int) -> Sequence[Event]:
    return [Event(*row) for row in db.execute(FIND_EVENTS, (key, after)).fetchall()]


def _behind(db: sqlite3.Cursor, name: str, expected: int) -> Behind | Gone:
    reading = _read(db, name, None, expected)
    return reading if isinstance(reading, Gone) else Behind(reading)


def _hold(
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


def _append(
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


def _look_up(db: sqlite3.Cursor, name: str, uid: str, id: str) -> Waiting | AlreadyApplied | Gone | None:
    row = db.execute(FIND_ID, (id, name, uid)).fetchone()
    if row is None:
        return Gone()
    _, _, _, answer, blob, expires_at, _ = row
    if answer is not None:
        return AlreadyApplied(id, answer)
    return None if blob is None else Waiting(id, blob, expires_at)


def _snapshot(db: sqlite3.Cursor, name: str, uid: str, round: int, blob: bytes, now: float) -> bool:
    session = db.execute(FIND_SESSION, (name, uid)).fetchone()
    if session is None:
        return False
    key, _, _, snapshot_round = session
    is_end_of_event = round == 0 or db.execute(FIND_EVENT, (key, round)).fetchone() is not None
    if round <= snapshot_round or not is_end_of_event:
        return False
    db.execute("INSERT OR REPLACE INTO snapshots (session, blob) VALUES (?, ?)", (key, blob))
    db.execute(COUNT_SNAPSHOT, (round, now, len(blob), key))
    db.execute(TRIM_JOURNAL, (key, round, TAIL_EVENTS))
    return True


def _list(db: sqlite3.Cursor, cursor: str | None, limit: int) -> Page:
    rows = db.execute(HEAD + "WHERE name > ? ORDER BY name LIMIT ?", (cursor or "", limit + 1)).fetchall()
    heads = [Head(*row) for row in rows[:limit]]
    return Page(heads, heads[-1].name if len(rows) > limit else None)


def _count(db: sqlite3.Cursor) -> int:
    return db.execute("SELECT COUNT(*) FROM sessions").fetchone()[0]


def _delete(db: sqlite3.Cursor, name: str) -> bool:
    row = db.execute("SELECT key FROM sessions WHERE name = ?", (name,)).fetchone()
    if row is not None:
        for table, column in TABLES.items():
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", row)
    return row is not None


class _Call(NamedTuple):
    future: asyncio.Future[Any]
    operation: Callable[..., Any]
    arguments: tuple[Any, ...]
    writes: bool


class _Outcome(NamedTuple):
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


def _commit(db: sqlite3.Cursor, calls: Sequence[_Call]) -> list[_Outcome]:
    """All calls in one transaction; where one of several fails, each in its own."""
    try:
        db.execute("BEGIN IMMEDIATE" if any(call.writes for call in calls) else "BEGIN")
        results = [call.operation(db, *call.arguments) for call in calls]
        db.execute("COMMIT")
    except Exception as error:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        refusal = _store_error(error)
        if len(calls) == 1 or isinstance(refusal, StoreTimeout):
            return [_Outcome(call.future, error=refusal) for call in calls]
        return [outcome for call in calls for outcome in _commit(db, [call])]
    return [_Outcome(call.future, result) for call, result in zip(calls, results, strict=True)]


def _commit_here(db: sqlite3.Cursor, operation: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """One operation in a transaction of its own. Raises StoreTimeout at once if the file is locked."""
    try:
        db.execute("BEGIN IMMEDIATE")
        result = operation(db, *arguments)
        db.execute("COMMIT")
    except Exception as error:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        refusal = _store_error(error)
        raise refusal from refusal.__cause__
    return result


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the log into the file; if writers never leave a gap for that to finish, make them wait for once."""
    try:
        _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if frames * 4096 > WAL_KEPT_BYTES:
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    except sqlite3.Error as error:
        log.warning("checkpoint failed", extra={"detail": str(error)})


def _deliver(outcomes: Sequence[_Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():
            continue  # cancelled: nobody waits for it any more
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _store_error(error: Exception) -> Exception:
    """The contract's word for a driver's exception; any other exception as it is."""
    if not isinstance(error, sqlite3.Error | OSError):
        return error
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CANTOPEN) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        refusal = StoreTimeout(f"The SQLite file stayed locked by another process: {error}.")
    elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        refusal = StoreCorrupt(f"The SQLite file is not a store that this version can read: {error}.")
    else:
        refusal = StoreUnavailable(f"The SQLite file cannot be used: {error}.")
    refusal.__cause__ = error
    return refusal


def _connect(path: str, synchronous: str, timeout_s: float, checkpoint_pages: int = 0) -> sqlite3.Connection:
    # None of these takes a lock, so that a connection opens at once even while others write.
    connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
    return connection


def _prepare(path: str, synchronous: str, timeout_s: float) -> sqlite3.Connection:
    """The worker's connection: the file is there, writes ahead and has the tables."""
    if path != MEMORY:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    connection = _connect(path, synchronous, timeout_s, CHECKPOINT_PAGES)
    try:
        _use_wal(connection, time.monotonic() + timeout_s)
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    # Several processes that open a new file together lock each other out here, and SQLite does not wait by itself.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not isinstance(_store_error(error), StoreTimeout) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreCorrupt(
            f"The SQLite file has schema version {version}, this program knows versions up to {SCHEMA_VERSION}: "
            "upgrade the program, or point it at another file."
        )
    if version == 0:
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


class _Worker:
    """The thread, its connection and its queue."""

    def __init__(self, path: str, synchronous: str, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._commits_elsewhere = 0
        self._opened = self._loop.create_future()
        self._closed = self._loop.create_future()
        thread = threading.Thread(target=self._work, args=(path, synchronous, timeout_s), name="sqlite", daemon=True)
        thread.start()

    async def opened(self) -> None:
        await self._opened

    async def close(self) -> None:
        self._calls.put(None)
        await self._closed

    def call(self, operation: Callable[..., Any], arguments: tuple[Any, ...], writes: bool) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._calls.put(_Call(future, operation, arguments, writes))
        return future

    def count_commit(self) -> None:
        """The event loop has committed; now and then its log wants a checkpoint."""
        self._commits_elsewhere += 1
        if self._commits_elsewhere % CHECKPOINT_EVERY == 0:
            self._calls.put(_Call(self._loop.create_future(), _checkpoint, (), False))

    def _work(self, path: str, synchronous: str, timeout_s: float) -> None:
        try:
            connection = _prepare(path, synchronous, timeout_s)
        except Exception as error:
            self._report([_Outcome(self._opened, error=_store_error(error))])
            return
        self._report([_Outcome(self._opened)])
        db = connection.cursor()
        running = True
        while running:
            taken = [self._calls.get()]
            taken += [self._calls.get() for _ in range(self._calls.qsize())]
            running = None not in taken
            calls = [call for call in taken if call is not None and call.operation is not _checkpoint]
            if calls:
                self._report(_commit(db, calls))
            if any(call is not None and call.operation is _checkpoint for call in taken):
                _checkpoint(connection)
        connection.close()
        self._report([_Outcome(self._closed)])

    def _report(self, outcomes: Sequence[_Outcome]) -> None:
        # A loop that is closed already has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_deliver, outcomes)


@final
class SqliteStore:
    schemes: ClassVar[tuple[str, ...]] = ("sqlite",)

    def __init__(self, path: str, *, synchronous: str = "normal", timeout_s: float = 5.0) -> None:
        self._options = (path, synchronous, timeout_s)
        self._worker: _Worker | None = None
        self._here: sqlite3.Cursor | None = None

    async def open(self) -> None:
        worker = _Worker(*self._options)
        await worker.opened()
        self._worker = worker
        path, synchronous, _ = self._options
        if path != MEMORY and synchronous in WITHOUT_FLUSH:
            try:
                self._here = _connect(path, synchronous, timeout_s=0.0).cursor()
            except sqlite3.Error as error:
                await self.close()
                raise _store_error(error) from error

    async def close(self) -> None:
        here, self._here = self._here, None
        if here is not None:
            here.connection.close()
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()

    async def ping(self) -> None:
        await self._read(_count)

    async def create(self, head: Head) -> None:
        if not await self._write(_create, head):
            raise SessionExists(head.name)

    async def read(self, name: str, uid: str | None = None, after: int = -1) -> Reading | Gone:
        return await self._read(_read, name, uid, after)

    async def head(self, name: str) -> Head | Gone:
        return await self._read(_head, name)

    async def hold(
        self, name: str, uid: str, expected: int, waiting: Waiting, *, now: float, limit: int
    ) -> Held | Behind | AlreadyWaiting | AlreadyApplied | TooManyWaiting | Gone:
        return await self._write_here(_hold, name, uid, expected, waiting, now, limit)

    async def append(
        self, name: str, uid: str, expected: int, events: Sequence[Event], *, now: float
    ) -> Appended | Behind | AlreadyApplied | Gone:
        check_events(expected, events)
        write = self._write_here if len(events) <= EVENTS_AT_ONCE else self._write
        return await write(_append, name, uid, expected, events, now)

    async def look_up(self, name: str, uid: str, id: str) -> Waiting | AlreadyApplied | Gone | None:
        return await self._read(_look_up, name, uid, id)

    async def snapshot(self, name: str, uid: str, round: int, blob: bytes, *, now: float) -> bool:
        return await self._write(_snapshot, name, uid, round, blob, now)

    async def list(self, cursor: str | None, limit: int) -> Page:
        return await self._read(_list, cursor, limit)

    async def count(self) -> int:
        return await self._read(_count)

    async def delete(self, name: str) -> bool:
        return await self._write(_delete, name)

    def _read(self, operation: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return self._opened().call(operation, arguments, False)

    def _write(self, operation: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return self._opened().call(operation, arguments, True)

    async def _write_here(self, operation: Callable[..., T], *arguments: Any) -> T:
        worker = self._opened()
        if self._here is not None:
            try:
                result = _commit_here(self._here, operation, arguments)
            except StoreTimeout:
                pass  # somebody else writes: the thread can wait
            else:
                worker.count_commit()
                return result
        return await worker.call(operation, arguments, True)

    def _opened(self) -> _Worker:
        if self._worker is None:
            raise StoreUnavailable("The SQLite store is not open.")
        return self._worker


def from_url(url: str) -> SqliteStore:
    """`?synchronous=full` survives a power cut at the price of one disk flush a commit; `?timeout=` is in seconds."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    synchronous, timeout = options.pop("synchronous", "normal"), options.pop("timeout", "5")
    is_valid = not parts.netloc and not options and synchronous in SYNCHRONOUS and timeout.replace(".", "", 1).isdigit()
    if not is_valid:
        raise ConfigurationError(
            f"store url {url!r}: expected sqlite:///path[?synchronous={'|'.join(SYNCHRONOUS)}][&timeout=seconds]"
        )
    return SqliteStore(unquote(parts.path[1:]) or MEMORY, synchronous=synchronous, timeout_s=float(timeout))
