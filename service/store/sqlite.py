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
from service.store import sqlite_tables as tables
from service.store.base import (
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
EVENTS_AT_ONCE = 32
"""More of them in one `append` would hold up the event loop: the thread takes them."""
WITHOUT_FLUSH = ("off", "normal")
"""Where a commit does not wait for the disk, so that it may be made on the event loop."""


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
    if version > tables.SCHEMA_VERSION:
        raise StoreCorrupt(
            f"The SQLite file has schema version {version}, this program knows versions up to {tables.SCHEMA_VERSION}: "
            "upgrade the program, or point it at another file."
        )
    if version == 0:
        for statement in tables.SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {tables.SCHEMA_VERSION}")
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
        await self._read(tables.count)

    async def create(self, head: Head, snapshot: bytes | None = None) -> None:
        if not await self._write(tables.create, head, snapshot):
            raise SessionExists(head.name)

    async def read(self, name: str, uid: str | None = None, after: int = -1) -> Reading | Gone:
        return await self._read(tables.read, name, uid, after)

    async def head(self, name: str) -> Head | Gone:
        return await self._read(tables.head, name)

    async def hold(
        self, name: str, uid: str, expected: int, waiting: Waiting, *, now: float, limit: int
    ) -> Held | Behind | AlreadyWaiting | AlreadyApplied | TooManyWaiting | Gone:
        return await self._write_here(tables.hold, name, uid, expected, waiting, now, limit)

    async def append(
        self, name: str, uid: str, expected: int, events: Sequence[Event], *, now: float
    ) -> Appended | Behind | AlreadyApplied | Gone:
        check_events(expected, events)
        write = self._write_here if len(events) <= EVENTS_AT_ONCE else self._write
        return await write(tables.append, name, uid, expected, events, now)

    async def look_up(self, name: str, uid: str, id: str) -> Waiting | AlreadyApplied | Gone | None:
        return await self._read(tables.look_up, name, uid, id)

    async def snapshot(self, name: str, uid: str, round: int, blob: bytes, *, now: float) -> bool:
        return await self._write(tables.snapshot, name, uid, round, blob, now)

    async def list(self, cursor: str | None, limit: int) -> Page:
        return await self._read(tables.list_heads, cursor, limit)

    async def count(self) -> int:
        return await self._read(tables.count)

    async def delete(self, name: str) -> bool:
        return await self._write(tables.delete, name)

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
