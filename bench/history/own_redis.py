"""One Redis server of the run's own. With `appendfsync always` it loses nothing that it acknowledged, unless a backup comes
back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import final

from bench.history.attempts import Cut
from bench.history.own_store import EVERYSEC_LOSS_S, Now
from bench.history.redis_backups import RedisBackups
from bench.history.redis_process import RedisProcess, data_options
from bench.http_client import HOST


@final
class OwnRedis:
    kinds: Sequence[str] = ("kill-redis", "stop-master", "take-backup", "restore-backup")

    def __init__(self, folder: Path, now: Now, sessions: Sequence[str], appendfsync: str) -> None:
        self._now = now
        self._appendfsync = appendfsync
        self._server = RedisProcess(folder / "redis", *data_options(appendfsync))
        self._backups = RedisBackups(folder, sessions)
        self.url = f"redis://{HOST}:{self._server.port}/0"

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.kill()

    def settle(self) -> None: ...

    def inject(self, kind: str, dice: Random) -> tuple[str, Sequence[Cut]]:
        if kind == "kill-redis":
            return self._kill(dice.choice((0.0, 0.5, 4.0)))
        if kind == "stop-master":
            return self._freeze(dice.choice((0.5, 3.0, 7.0))), ()
        return (self._take(), ()) if kind == "take-backup" else self._restore(dice)

    def _kill(self, down_s: float) -> tuple[str, Sequence[Cut]]:
        before = self._now()
        self._server.kill()
        dead = self._now()
        time.sleep(down_s)
        self._server.start()
        detail = f"kill -9, down for {down_s} s"
        if self._appendfsync == "always":
            return detail, ()
        return detail, [Cut("kill-redis", None, before - EVERYSEC_LOSS_S, dead, dead, dead)]

    def _freeze(self, seconds: float) -> str:
        """There is nobody to take over: it only does not answer."""
        self._server.freeze()
        time.sleep(seconds)
        self._server.thaw()
        return f"SIGSTOP for {seconds} s"

    def _take(self) -> str:
        """As an operator would: stop it, copy its files, start it."""
        self._server.shut_down()
        name = self._backups.take(self._now(), {0: self._server})
        self._server.start()
        return name

    def _restore(self, dice: Random) -> tuple[str, Sequence[Cut]]:
        self._server.kill()
        told = self._backups.put_back(dice, self._now(), {0: self._server})
        self._server.start()
        return told

    def kept(self) -> None:
        self._backups.kept()
