"""A SQLite file of the run's own. It has one fault: an older backup comes back underneath the running workers."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import final

from bench.history.attempts import Cut
from bench.history.final import chains
from bench.history.own_store import Now


@final
class OwnSqlite:
    kinds: Sequence[str] = ("take-backup", "restore-backup")

    def __init__(self, folder: Path, now: Now, sessions: Sequence[str]) -> None:
        self._folder = folder
        self._sessions = sessions
        self._file = folder / "okl.sqlite3"
        self._now = now
        self._backups: list[tuple[Path, float, float]] = []
        self._restored: list[tuple[Path, Cut]] = []
        self.url = f"sqlite:///{self._file}"

    def start(self) -> None: ...

    def close(self) -> None: ...

    def settle(self) -> None: ...

    def inject(self, kind: str, dice: Random) -> tuple[str, Sequence[Cut]]:
        if kind == "take-backup":
            return self._take(), ()
        return self._restore(dice)

    def _take(self) -> str:
        """By SQLite's own backup: what was committed when it began."""
        path = self._folder / f"backup-{len(self._backups)}.sqlite3"
        kept_until = self._now()
        _copy(self._file, path)
        self._backups.append((path, kept_until, self._now()))
        return path.name

    def _restore(self, dice: Random) -> tuple[str, Sequence[Cut]]:
        """One transaction writes the whole file anew. To put another file in its place is no fault but a misuse: a worker
        says so, and asks to be started again.
        """
        path, kept_until, gone_from = dice.choice(self._backups[-2:])
        start = self._now()
        _copy(path, self._file)
        cut = Cut("restore-backup", None, kept_until, gone_from, start, self._now())
        self._restored.append((path, cut))
        return f"{path.name} of {kept_until:.1f} s", [cut]

    def kept(self) -> None:
        for path, cut in self._restored:
            copy = path.with_suffix(".read")
            shutil.copyfile(path, copy)
            cut.kept = chains(f"sqlite:///{copy}", self._sessions)


def _copy(source: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(source, timeout=30.0)) as here,
        contextlib.closing(sqlite3.connect(target, timeout=30.0)) as there,
    ):
        here.backup(there)
