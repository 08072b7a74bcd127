"""A folder in which the workers of one host share their metrics, so that each can report those of all."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import final

from .counts import Sample

MOST_WORKERS = 1_024


@final
class Board:
    """A folder with one file per worker. A worker takes the lowest free number when it starts, so that a restarted worker
    continues the series of its predecessor. It is alive while it holds a lock, which ends with its process.

    Without a folder a worker knows only itself. Raises OSError.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = Path(folder) if folder else None
        self._lock: int | None = None
        self.worker = "0"

    @property
    def is_shared(self) -> bool:
        return self._folder is not None

    def open(self) -> None:
        """Take a worker number."""
        if self._folder is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(MOST_WORKERS):
            # A worker that checks whether another is alive holds its lock for a moment; then this one takes the next number.
            if (lock := _locked(self._folder / f"{number}.lock")) is not None:
                self._lock, self.worker = lock, str(number)
                self._numbers(self.worker).unlink(missing_ok=True)
                return
        raise OSError(f"{self._folder} has the numbers of {MOST_WORKERS} workers already")

    def close(self) -> None:
        if self._folder is not None and self._lock is not None:
            self._numbers(self.worker).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def publish(self, samples: Sequence[Sample]) -> None:
        """Publish the samples to the other workers, atomically."""
        path = self._numbers(self.worker)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(samples), encoding="utf-8")
        draft.replace(path)

    def read(self) -> dict[str, list[Sample]]:
        """The latest samples of all living workers, including this one, by worker number."""
        assert self._folder is not None
        found: dict[str, list[Sample]] = {}
        for path in sorted(self._folder.glob("*.json"), key=lambda path: (len(path.name), path.name)):
            try:
                if path.stem == self.worker or _is_locked(path.with_suffix(".lock")):
                    found[path.stem] = [tuple(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]
            except (OSError, ValueError):
                continue  # the worker has just ended
        return found

    def _numbers(self, worker: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{worker}.json"


def _locked(path: Path) -> int | None:
    """The opened and locked file; None if another process has its lock."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _is_locked(path: Path) -> bool:
    file = _locked(path)
    if file is not None:
        os.close(file)
    return file is None
