"""Copies of what Redis servers had on disk while they were down, and what such a copy has of each session."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import final

from bench.history.attempts import Cut
from bench.history.final import chains
from bench.history.redis_process import RedisProcess, data_options
from bench.http_client import HOST

DATA = "appendonlydir"


@dataclass(frozen=True, slots=True)
class Backup:
    """`shards` has the copy of each server, by what tells the servers apart; it is of the instant `taken`."""

    name: str
    taken: float
    shards: Mapping[int, Path]


@final
class RedisBackups:
    """Those of one run, in a folder. `sessions` are the names that may be in them."""

    def __init__(self, folder: Path, sessions: Sequence[str]) -> None:
        self._folder = folder
        self._sessions = sessions
        self._taken: list[Backup] = []
        self._restored: list[tuple[Backup, Cut]] = []

    def take(self, taken: float, servers: Mapping[int, RedisProcess]) -> str:
        """Copy the files of servers that are down."""
        name = f"backup-{len(self._taken)}"
        shards = {key: self._folder / name / str(key) for key in servers}
        for key, server in servers.items():
            shutil.copytree(server.folder / DATA, shards[key] / DATA)
        self._taken.append(Backup(name, taken, shards))
        return name

    def put_back(
        self, dice: Random, dead: float, servers: Mapping[int, RedisProcess], others: Iterable[RedisProcess] = ()
    ) -> tuple[str, Sequence[Cut]]:
        """Give servers that are down since `dead` the files of one of the last two backups; the others lose theirs."""
        backup = dice.choice(self._taken[-2:])
        for server in (*servers.values(), *others):
            shutil.rmtree(server.folder / DATA, ignore_errors=True)
        for key, server in servers.items():
            shutil.copytree(backup.shards[key] / DATA, server.folder / DATA)
        cut = Cut("restore-backup", None, backup.taken, backup.taken, dead, dead)
        self._restored.append((backup, cut))
        return f"{backup.name} of {backup.taken:.1f} s", [cut]

    def kept(self) -> None:
        """Read the backups that were put back, by a server of their own."""
        for backup, cut in self._restored:
            found: dict[str, Sequence[int]] = {}
            for path in backup.shards.values():
                copy = path.with_name(f"{path.name}-read")
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(path, copy)
                server = RedisProcess(copy, *data_options("no"))
                server.start()
                try:
                    found |= chains(f"redis://{HOST}:{server.port}/0", self._sessions)
                finally:
                    server.kill()
            cut.kept = found
