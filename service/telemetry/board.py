"""Where the workers of one host leave their numbers for each other, so that any of them can tell those of all."""

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
    """A folder with a file a worker. A worker's number is the lowest that is free when it starts, so that one that is started
    again goes on with the series of the one before it. Whether it lives is told by a lock that ends with its process.

    Without a folder a worker knows of itself alone. Raises OSError.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = Path(folder) if folder else None
        self._lock: int | None = None
        self.worker = "0"

    @property
    def is_shared(self) -> bool:
        return self._folder is not None

    def open(self) -> None:
        """Take a number."""
        if self._folder is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(MOST_WORKERS):
            # Somebody who looks whether a worker lives holds its lock for a moment: then this one gets the next number.
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
        """Tell the others; all of it or nothing, whoever reads meanwhile."""
        path = self._numbers(self.worker)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(samples), encoding="utf-8")
        draft.replace(path)

    def read(self) -> dict[str, list[Sample]]:
        """What the workers that live told last, this one among them, by their numbers."""
        assert self._folder is not None
        found: dict[str, list[Sample]] = {}
        for path in sorted(self._folder.glob("*.json"), key=lambda path: (len(path.name), path.name)):
            try:
                if path.stem == self.worker or _is_locked(path.with_suffix(".lock")):
                    found[path.stem] = [tuple(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]
            except (OSError, ValueError):
                continue  # it has just gone
        return found

    def _numbers(self, worker: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{worker}.json"


def _locked(path: Path) -> int | None:
    """The open file, if nobody else has its lock."""
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
