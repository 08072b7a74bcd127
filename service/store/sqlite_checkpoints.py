"""Checkpoints of the write-ahead log, in a separate thread: they flush the disk, and no commit waits for that."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from typing import final

from okl.errors import StoreUnavailable

from .sqlite_file import DRIVER_ERRORS, MEMORY, PAGE_BYTES, WAL_KEPT_BYTES, SqliteFile

log = logging.getLogger("okl.store")

CHECKPOINT_BYTES = 8 << 20
"""The log is copied into the file after about this much was written to it."""
COMMIT_BYTES = 16 << 10
"""The bytes that a commit writes to the log besides large values: about eight pages."""
RETRY_S = 0.1
"""The pause after a failed checkpoint. The room that becomes free on a full disk is for the file, not for more of the log."""
RESTS = 9.0
"""The same as a multiple of its duration, if that is more: each attempt copies again all that the disk has room for."""


@final
class Checkpoints:
    """Counts the bytes written, and copies the log into the file when there are enough."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._written_bytes = 0
        self._is_wanted = threading.Event()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sqlite-checkpoints", daemon=True)

    def start(self) -> None:
        if self._file.path != MEMORY:
            self._thread.start()

    async def close(self) -> None:
        self._is_closing.set()
        self._is_wanted.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def count(self, written_bytes: int = 0) -> None:
        """Count one commit, with `written_bytes` of large values."""
        self._written_bytes += COMMIT_BYTES + written_bytes
        if self._written_bytes >= CHECKPOINT_BYTES:
            self._written_bytes = 0
            self._is_wanted.set()

    def ask(self) -> None:
        """Want a checkpoint at once: a write failed, perhaps on a disk that the log has filled."""
        self._is_wanted.set()

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        has_failed = False
        while self._is_wanted.wait() and not self._is_closing.is_set():
            self._is_wanted.clear()
            start = time.monotonic()
            try:
                self._file.check()
                connection = connection or self._file.connect(self._file.timeout_s)
                _checkpoint(connection)
                has_failed = False
            except (*DRIVER_ERRORS, StoreUnavailable) as error:
                if not has_failed:
                    log.warning("checkpoint failed", extra={"detail": str(error)})
                has_failed = True
                # One that was opened while the file could not be written would never write it.
                if connection is not None:
                    connection.close()
                connection = None
                self._is_closing.wait(max(RETRY_S, RESTS * (time.monotonic() - start)))
                self._is_wanted.set()
        if connection is not None:
            connection.close()


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the log into the file; if the log stays large because writers leave no gap, make them wait once."""
    _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if frames * PAGE_BYTES > WAL_KEPT_BYTES:
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
