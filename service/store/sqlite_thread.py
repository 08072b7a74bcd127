"""The SQLite store's thread: one connection, one queue, and the clean-up between calls.

Calls that queue up while the thread is busy run in one transaction, so that under load many operations share a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar, final

from okl.errors import StoreTimeout, StoreUnavailable

from . import sqlite_sessions
from .sqlite_checkpoints import Checkpoints
from .sqlite_file import DRIVER_ERRORS, SqliteFile, store_error, transact
from .sqlite_sessions import CLEANED_BYTES

log = logging.getLogger("okl.store")

T = TypeVar("T")
Operation = Callable[[sqlite3.Cursor], T]

RESTS = 2.0
"""The pause between two clean-up steps, in which others can write, as a multiple of the duration of a step."""
CLEANED_AT_CLOSE_S = 1.0
"""The longest clean-up on closing; the rest is deleted after the next opening."""


class _ThreadCall(NamedTuple):
    """A queued operation. `written_bytes` counts its large values; `leaves_garbage` if it leaves rows to clean up."""

    future: asyncio.Future[Any]
    operation: Operation[Any]
    writes: bool
    written_bytes: int
    leaves_garbage: bool


class _Outcome(NamedTuple):
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


@final
class SqliteThread:
    """Runs operations in transactions, in the order of their calls."""

    def __init__(self, file: SqliteFile, checkpoints: Checkpoints) -> None:
        self._file = file
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._opened = self._loop.create_future()
        self._closed = self._loop.create_future()
        threading.Thread(target=self._work, name="sqlite", daemon=True).start()

    async def opened(self) -> None:
        await self._opened

    async def close(self) -> None:
        self._calls.put(None)
        await self._closed

    def call(
        self, operation: Operation[T], *, writes: bool, written_bytes: int = 0, leaves_garbage: bool = False
    ) -> asyncio.Future[T]:
        future = self._loop.create_future()
        self._calls.put(_ThreadCall(future, operation, writes, written_bytes, leaves_garbage))
        return future

    def _work(self) -> None:
        try:
            connection = self._file.prepare()
        except Exception as error:
            known = store_error(error) if isinstance(error, DRIVER_ERRORS) else error
            known.__cause__ = error if known is not error else error.__cause__
            self._report([_Outcome(self._opened, error=known)])
            return
        self._report([_Outcome(self._opened)])
        db = connection.cursor()
        rest_s: float | None = 0.0  # until the next clean-up step; None if there is nothing to clean up
        running = True
        while running:
            taken = self._take(rest_s)
            running = None not in taken
            calls = [call for call in taken if call is not None]
            if calls:
                outcomes = _run(db, self._file, calls)
                self._report(outcomes)
                if any(isinstance(outcome.error, StoreUnavailable) for outcome in outcomes):
                    self._checkpoints.ask()
                if any(call.writes for call in calls):
                    self._checkpoints.count(sum(call.written_bytes for call in calls))
            if rest_s is not None or any(call.leaves_garbage for call in calls):
                rest_s = self._clean(db)
        deadline = time.monotonic() + CLEANED_AT_CLOSE_S
        while rest_s is not None and time.monotonic() < deadline:
            rest_s = self._clean(db)
        connection.close()
        self._report([_Outcome(self._closed)])

    def _take(self, rest_s: float | None) -> list[_ThreadCall | None]:
        try:
            taken = [self._calls.get(timeout=rest_s)]
        except Empty:
            return []
        return taken + [self._calls.get() for _ in range(self._calls.qsize())]

    def _clean(self, db: sqlite3.Cursor) -> float | None:
        """Run one clean-up step. Return the pause after it; None if there was nothing to do."""
        start = time.monotonic()
        try:
            if not transact(db, self._file, sqlite_sessions.has_garbage, writes=False):
                return None
            transact(db, self._file, sqlite_sessions.clean, writes=True)
        except Exception as error:
            log.warning("deleted sessions still take space", extra={"detail": str(error)})
            return None
        self._checkpoints.count(CLEANED_BYTES)
        return RESTS * (time.monotonic() - start)

    def _report(self, outcomes: Sequence[_Outcome]) -> None:
        # If the loop is closed, nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_deliver, outcomes)


def _run(db: sqlite3.Cursor, file: SqliteFile, calls: Sequence[_ThreadCall]) -> list[_Outcome]:
    """Run all calls in one transaction; if one of several fails, run each in its own."""
    writes = any(call.writes for call in calls)
    try:
        results = transact(db, file, lambda db: [call.operation(db) for call in calls], writes=writes)
    except Exception as error:
        if len(calls) == 1 or isinstance(error, StoreTimeout):
            return [_Outcome(call.future, error=error) for call in calls]
        return [outcome for call in calls for outcome in _run(db, file, [call])]
    return [_Outcome(call.future, result) for call, result in zip(calls, results, strict=True)]


def _deliver(outcomes: Sequence[_Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():
            continue  # cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
