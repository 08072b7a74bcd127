"""The audit log: who did what, when, and with what outcome. It shows a key's id, never its secret.

It is the logger `okl.audit`, which writes with the other logs, and as lines of JSON to OKL_AUDIT_FILE if that is set.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

log = logging.getLogger("okl.audit")

FILES: Final = 5
"""The number of files kept: `audit.log`, `audit.log.1`, ..."""

REFUSALS_A_SECOND: Final = 20
"""Beyond these, refusals are only counted, so that a flood of them does not rotate the acts of others out of the file."""


@final
class Audit:
    """Writes a worker's audit records. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._told = self._left_out = 0

    def done(self, facts: dict[str, Any], status: int) -> None:
        """Log an act that was permitted, with the status of its answer; 0 if there was none."""
        self._enter_second()
        outcome = "done" if 200 <= status < 400 else "failed"
        log.info("audit", extra=facts | {"outcome": outcome, "status": status})

    def refused(self, facts: dict[str, Any], status: int, problem: str) -> None:
        """Log a request that was not admitted."""
        self._enter_second()
        if self._told >= REFUSALS_A_SECOND:
            self._left_out += 1
            return
        self._told += 1
        log.info("audit", extra=facts | {"outcome": "refused", "status": status, "problem": problem})

    def flush(self) -> None:
        """Log how many refusals were left out since the last time."""
        if self._left_out:
            log.info("audit", extra={"outcome": "refused", "left_out": self._left_out})
            self._left_out = 0

    def _enter_second(self) -> None:
        second = int(self._clock())
        if second != self._second:
            self.flush()
            self._second, self._told = second, 0


def facts_of(
    key: str | None, method: str, route: str, sessions: Sequence[str], instance: str, claimed: str | None = None
) -> dict[str, Any]:
    """The fields of a record; `claimed` is the id of a key that the request named but did not prove."""
    facts: dict[str, Any] = {"key": key or "none", "method": method, "route": route, "instance": instance}
    if claimed is not None:
        facts["claimed"] = claimed
    if sessions:
        facts["session"] = ",".join(sessions)
    return facts


@final
class AuditFile(logging.Handler):
    """Appends to a file that several processes share, and rotates it before it grows beyond `most_bytes`.

    Each line is written under a lock of the file `<path>.lock`, to the file that the path names at that moment.
    """

    def __init__(self, path: str, most_bytes: int) -> None:
        """Raises OSError if the file cannot be written."""
        super().__init__()
        self._path = Path(path)
        self._most_bytes = most_bytes
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._held(self._path):
            pass

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
            with self._held(self._path.with_name(self._path.name + ".lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with self._held(self._path) as file:
                    size = os.fstat(file).st_size
                    if size == 0 or size + len(line) <= self._most_bytes:
                        _append(file, line, size)
                        return
                self._rotate()
                with self._held(self._path) as file:
                    _append(file, line, 0)
        except Exception:
            self.handleError(record)

    def _rotate(self) -> None:
        paths = [self._path, *(self._path.with_name(f"{self._path.name}.{i}") for i in range(1, FILES))]
        for older, newer in zip(paths[:0:-1], paths[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)

    @staticmethod
    @contextmanager
    def _held(path: Path) -> Iterator[int]:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield file
        finally:
            os.close(file)


def _append(file: int, line: bytes, size: int) -> None:
    """Write the line at the end, which is at `size`. Raises OSError; the file then has no part of it."""
    try:
        written = os.write(file, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, "the disk is full")
    except OSError:
        os.ftruncate(file, size)
        raise
