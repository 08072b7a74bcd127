"""Sessions in one SQLite file that several processes can open at once; nothing to install.

The hot path writes on the event loop's connection: an uncontended commit takes less time than waking up a thread. One thread
with one connection does everything that may take longer: operations that find the file locked, large commits, reads and
snapshots, and every operation if commits flush the disk.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, final
from urllib.parse import parse_qsl, unquote, urlsplit

from okl.errors import ConfigurationError, SessionExists, StoreTimeout, StoreUnavailable

from . import sqlite_moving as moves
from . import sqlite_sessions as sessions
from .base import (
    Applied,
    Behind,
    Committed,
    Entry,
    Found,
    Full,
    Gone,
    Head,
    Hold,
    Limits,
    Page,
    Reading,
    Tip,
    Waiting,
    WaitingPage,
)
from .moving import Checkpoint, Luggage, Whole, check_note, page_place
from .sqlite_checkpoints import Checkpoints
from .sqlite_commit import cancel, commit
from .sqlite_file import DRIVER_ERRORS, MEMORY, SYNCHRONOUS, SqliteFile, store_error, transact
from .sqlite_keys import SqliteKeys
from .sqlite_tables import TooMuchHere
from .sqlite_templates import SqliteTemplates
from .sqlite_thread import Operation, SqliteThread
from .sqlite_waiting import count_waiting, waiting
from .store_checks import check_edges, check_entries, check_limit, check_number, check_summary, split_cursor

T = TypeVar("T")

WRITTEN_HERE = 32
WRITTEN_HERE_BYTES = 64 << 10
"""More entries and holds, or larger ones, would block the event loop, so the thread takes them. 64 kB take 0.3 ms."""
READ_HERE = (32, 64 << 10)
"""The same limits for the rounds that a caller has missed."""
READ_THERE = (sessions.NO_END, sessions.NO_END)
WITHOUT_FLUSH = ("off", "normal")
"""Modes in which a commit does not wait for the disk, so that it may run on the event loop."""


def now_s() -> float:
    """The time to the microsecond, as Redis tells it: a copy of a session in another store has the same times."""
    return round(time.time(), 6)


@final
class SqliteStore:
    def __init__(
        self,
        path: str,
        *,
        synchronous: str = "normal",
        timeout_s: float = 5.0,
        limits: Limits | None = None,
        clock: Callable[[], float] = now_s,
    ) -> None:
        self._file = SqliteFile(path, synchronous, timeout_s)
        self._writes_here = path != MEMORY and synchronous in WITHOUT_FLUSH
        self._limits = limits or Limits()
        self._clock = clock
        self.keys = SqliteKeys(self._run_here, clock)
        self.templates = SqliteTemplates(self._run_here)
        self._checkpoints = Checkpoints(self._file)
        self._thread: SqliteThread | None = None
        self._here: sqlite3.Cursor | None = None

    async def open(self) -> None:
        checkpoints = Checkpoints(self._file)
        thread = SqliteThread(self._file, checkpoints)
        await thread.opened()
        checkpoints.start()
        self._thread, self._checkpoints = thread, checkpoints
        if self._writes_here:
            try:
                self._here = self._file.connect(timeout_s=0.0).cursor()
                self._file.check()
            except (*DRIVER_ERRORS, StoreUnavailable) as error:
                await self.close()
                raise store_error(error) from error

    async def close(self) -> None:
        here, self._here = self._here, None
        if here is not None:
            here.connection.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            await self._checkpoints.close()
            await thread.close()

    async def ping(self) -> None:
        await self._run(sessions.count)

    async def warnings(self) -> Sequence[str]:
        return self._file.warnings()

    async def create(
        self, name: str, record: bytes, tip: Tip, snapshot: bytes | None = None, *, summary: bytes = b"", told: int = 0
    ) -> None:
        check_summary(summary)
        check_number(told)

        def operation(db: sqlite3.Cursor) -> bool:
            return sessions.create(db, self._clock(), name, record, tip, snapshot, summary, told)

        if not await self._run(operation, writes=True, written_bytes=len(snapshot or b"")):
            raise SessionExists(name)

    async def head(self, name: str) -> Head | Gone:
        return await self._run_here(lambda db: sessions.head(db, name))

    async def read(self, name: str, after: Tip | None = None) -> Reading | Gone:
        return await self._run(lambda db: sessions.read(db, name, after))

    async def salvage(self, name: str) -> Reading | Gone:
        return await self._run(lambda db: sessions.salvage(db, name))

    async def find(self, name: str, tip: Tip, id: str) -> Found | Gone:
        def operation(db: sqlite3.Cursor, most: tuple[int, int] = READ_THERE) -> Found | Gone:
            return sessions.find(db, self._limits, self._clock(), name, tip, id, most)

        return await self._run_here(lambda db: operation(db, READ_HERE), operation)

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = (), progress: Applied | None = None
    ) -> Committed | Applied | Waiting | Behind | Gone:
        def operation(
            db: sqlite3.Cursor, most: tuple[int, int] = READ_THERE
        ) -> Committed | Applied | Waiting | Behind | Gone:
            return commit(db, self._limits, self._clock(), name, tip, entries, holds, progress, most)

        size = _size_of(entries, holds)
        if len(entries) + len(holds) > WRITTEN_HERE or size > WRITTEN_HERE_BYTES:

            def checked(db: sqlite3.Cursor) -> Committed | Applied | Waiting | Behind | Gone:
                check_entries(tip, entries)  # takes long, too
                return operation(db)

            return await self._run(checked, writes=True, written_bytes=size)
        check_entries(tip, entries)
        is_question = not entries and not holds
        return await self._run_here(lambda db: operation(db, READ_HERE), operation, writes=not is_question)

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        def operation(db: sqlite3.Cursor) -> bool:
            return sessions.snapshot(db, self._limits, self._clock(), name, tip, blob)

        return await self._run(operation, writes=True, written_bytes=len(blob), leaves_garbage=True)

    async def rewind(self, name: str, tip: Tip, to: Tip, alarms: int = 0) -> bool:
        return await self._run(lambda db: sessions.rewind(db, self._clock(), name, tip, to, alarms), writes=True)

    async def replace(
        self,
        name: str,
        at: Tip,
        record: bytes,
        to: Tip,
        snapshot: bytes,
        *,
        summary: bytes = b"",
        told: int = 0,
        unless_waiting: bool = False,
    ) -> bool:
        check_summary(summary)
        check_number(told)

        def operation(db: sqlite3.Cursor) -> bool:
            arguments = (record, to, snapshot, summary, told)
            return sessions.replace(db, self._clock(), name, at, *arguments, unless_waiting=unless_waiting)

        return await self._run(operation, writes=True, written_bytes=len(snapshot), leaves_garbage=True)

    async def last(self, name: str, rounds: int) -> Sequence[Entry] | Gone:
        return await self._run(lambda db: sessions.last(db, name, rounds))

    async def waiting(self, name: str, after: str | None, limit: int) -> WaitingPage | Gone:
        check_limit(limit)
        start = None if after is None else split_cursor(after)
        return await self._run(lambda db: waiting(db, self._clock(), name, start, limit))

    async def count_waiting(self, name: str, due_before: Sequence[float]) -> Sequence[int] | Gone:
        check_edges(due_before)
        return await self._run(lambda db: count_waiting(db, self._clock(), name, due_before))

    async def cancel(self, name: str, id: str) -> bool:
        return await self._run_here(lambda db: cancel(db, self._limits, self._clock(), name, id), writes=True)

    async def summarize(self, name: str, tip: Tip, summary: bytes) -> bool:
        check_summary(summary)
        return await self._run_here(lambda db: sessions.summarize(db, name, tip, summary), writes=True)

    async def told(self, name: str, tip: Tip, count: int) -> bool:
        check_number(count)
        return await self._run_here(lambda db: sessions.told(db, name, tip, count), writes=True)

    async def list(self, cursor: str | None, limit: int) -> Page:
        return await self._run(lambda db: sessions.list_heads(db, cursor, limit))

    async def count(self, prefix: str = "") -> int:
        return await self._run(lambda db: sessions.count(db, prefix))

    async def delete(
        self, name: str, at: Tip | None = None, *, unless_waiting: bool = False, remains: bytes = b""
    ) -> bool:
        return await self._run(
            lambda db: sessions.delete(db, self._clock(), name, at, unless_waiting=unless_waiting, remains=remains),
            writes=True,
            leaves_garbage=True,
        )

    async def keep(
        self,
        name: str,
        identity: bytes,
        checkpoint: str,
        tip: Tip,
        blob: bytes,
        *,
        at: float | None = None,
        note: bytes = b"",
    ) -> bool | Full:
        def operation(db: sqlite3.Cursor) -> bool | Full:
            now = self._clock()
            state = Checkpoint(checkpoint, tip, now if at is None else at, len(blob))
            return moves.keep_state(db, self._limits, now, name, identity, state, blob, note)

        return await self._run(operation, writes=True, written_bytes=len(blob), leaves_garbage=True)

    async def kept(self, name: str) -> Sequence[Checkpoint] | Gone:
        return await self._run(lambda db: moves.kept(db, name))

    async def kept_state(self, name: str, checkpoint: str) -> bytes | None:
        return await self._run(lambda db: moves.kept_state(db, name, checkpoint))

    async def drop(self, name: str, checkpoint: str) -> bool:
        return await self._run(
            lambda db: moves.drop(db, self._clock(), name, checkpoint), writes=True, leaves_garbage=True
        )

    async def seal(self, name: str, note: bytes, for_s: float, over: bytes | None = None) -> bool:
        check_note(note)
        return await self._run(lambda db: moves.seal(db, self._clock(), name, note, for_s, over), writes=True)

    async def unseal(self, name: str, note: bytes, identity: bytes = b"") -> bool:
        return await self._run(
            lambda db: moves.unseal(db, self._clock(), name, note, identity), writes=True, leaves_garbage=True
        )

    async def whole(self, name: str) -> Whole | Gone:
        return await self._run(lambda db: moves.whole(db, name))

    async def luggage(self, name: str, cursor: str | None = None) -> Luggage | Gone:
        page_place(cursor)
        return await self._run(lambda db: moves.luggage(db, name, cursor))

    async def arrive(self, name: str, whole: Whole, note: bytes) -> None:
        check_note(note)
        size = len(whole.snapshot or b"")

        def operation(db: sqlite3.Cursor) -> bool:
            return moves.arrive(db, self._clock(), name, whole, note)

        if not await self._run(operation, writes=True, written_bytes=size, leaves_garbage=True):
            raise SessionExists(name)

    async def unload(
        self, name: str, note: bytes, entries: Sequence[Entry], luggage: Luggage, then: bytes = b""
    ) -> bool:
        check_note(then)
        size = sum(len(item.blob) for item in (*entries, *luggage.held)) + sum(
            len(item.answer) for item in luggage.remembered
        )
        return await self._run(
            lambda db: moves.unload(db, name, note, entries, luggage, then), writes=True, written_bytes=size
        )

    async def _run(
        self, operation: Operation[T], *, writes: bool = False, written_bytes: int = 0, leaves_garbage: bool = False
    ) -> T:
        return await self._opened().call(
            operation, writes=writes, written_bytes=written_bytes, leaves_garbage=leaves_garbage
        )

    async def _run_here(
        self, operation: Operation[T], otherwise: Operation[T] | None = None, *, writes: bool = False
    ) -> T:
        """Run on the event loop's connection, or `otherwise` in the thread if that takes too long or the file is locked."""
        thread = self._opened()
        if self._here is not None:
            try:
                result = transact(self._here, self._file, operation, writes=writes)
            except (StoreTimeout, TooMuchHere):
                pass
            except StoreUnavailable:
                self._checkpoints.ask()
                raise
            else:
                if writes:
                    self._checkpoints.count()
                return result
        return await thread.call(otherwise or operation, writes=writes)

    def _opened(self) -> SqliteThread:
        if self._thread is None:
            raise StoreUnavailable("The SQLite store is not open.")
        return self._thread


def _size_of(entries: Sequence[Entry], holds: Sequence[Hold]) -> int:
    size = 0
    for entry in entries:
        size += len(entry.blob) + len(entry.answer or b"")
    for hold in holds:
        size += len(hold.blob)
    return size


LONGEST_TIMEOUT_S = 86_400.0


def from_url(url: str, limits: Limits) -> SqliteStore:
    """`?synchronous=full` survives a power cut at the cost of one disk flush per commit; `?timeout=` is in seconds."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous, timeout = options.pop("synchronous", "normal"), options.pop("timeout", "5")
    path = unquote(parts.path[1:])
    is_file = url.partition(":")[2].startswith("//") and not parts.netloc and "#" not in url and "\0" not in path
    # SQLite counts a longer one in milliseconds of 32 bits, and would not wait at all.
    is_time = timeout.isascii() and timeout.replace(".", "", 1).isdigit() and float(timeout) <= LONGEST_TIMEOUT_S
    if not is_file or options or synchronous not in SYNCHRONOUS or not is_time:
        raise ConfigurationError(
            f"store url {url!r}: expected sqlite:///path[?synchronous={'|'.join(SYNCHRONOUS)}][&timeout=seconds]; "
            "write ?, # and % in the path as %3F, %23 and %25"
        )
    if path == MEMORY or (parts.path and not path):
        # As of a variable that is empty: the store would be lost with the process.
        raise ConfigurationError(f"store url {url!r} names no file; sqlite:// is a store in memory")
    return SqliteStore(path or MEMORY, synchronous=synchronous, timeout_s=float(timeout), limits=limits)
