"""The checkpoints of the write-ahead log, in a thread of their own: they flush the disk, and no commit waits for that."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from typing import final

from .sqlite_file import DRIVER_ERRORS, MEMORY, PAGE_BYTES, WAL_KEPT_BYTES, SqliteFile

log = logging.getLogger("okl.store")

CHECKPOINT_BYTES = 8 << 20
"""The log goes back into the file after about so much was written to it."""
COMMIT_BYTES = 16 << 10
"""What a commit writes to the log beside large values: some eight pages."""


@final
class Checkpoints:
    """Counts what is written, and copies the log into the file now and then."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._written_bytes = 0
        self._is_wanted = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="sqlite-checkpoints", daemon=True)

    def start(self) -> None:
        if self._file.path != MEMORY:
            self._thread.start()

    async def close(self) -> None:
        self._is_closing = True
        self._is_wanted.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def count(self, written_bytes: int = 0) -> None:
        """A commit was made, with so many bytes of large values."""
        self._written_bytes += COMMIT_BYTES + written_bytes
        if self._written_bytes >= CHECKPOINT_BYTES:
            self._written_bytes = 0
            self._is_wanted.set()

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while self._is_wanted.wait() and not self._is_closing:
            self._is_wanted.clear()
            try:
                connection = connection or self._file.connect(self._file.timeout_s)
                _checkpoint(connection)
            except DRIVER_ERRORS as error:
                log.warning("checkpoint failed", extra={"detail": str(error)})
        if connection is not None:
            connection.close()


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the log into the file; if writers never leave a gap for that to finish, make them wait for once."""
    _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if frames * PAGE_BYTES > WAL_KEPT_BYTES:
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
