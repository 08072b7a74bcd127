"""One master, two replicas and three Sentinels of the run's own. What was not replicated yet is lost with its master."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import final

import redis

from bench.history.attempts import Cut
from bench.history.own_store import EVERYSEC_LOSS_S, REPLICATION_LAG_S, Now, wait_for
from bench.history.redis_backups import RedisBackups
from bench.history.redis_process import RedisProcess, data_options
from bench.http_client import HOST

SERVICE = "okl"
DOWN_AFTER_MS = 1_000
FAILOVER_TIMEOUT_MS = 2_000
"""Sentinel tries no second fail-over before twice this time."""


@final
class OwnSentinel:
    kinds: Sequence[str] = ("kill-redis", "stop-master", "promote", "take-backup", "restore-backup")

    def __init__(self, folder: Path, now: Now, sessions: Sequence[str], appendfsync: str, wait_replicas: int) -> None:
        self._now = now
        self._backups = RedisBackups(folder, sessions)
        self._appendfsync = appendfsync
        self._waits = wait_replicas > 0
        options = (*data_options(appendfsync), "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        self._servers = [RedisProcess(folder / f"redis-{i}", *options) for i in range(3)]
        self._sentinels = [self._sentinel(folder / f"sentinel-{i}") for i in range(3)]
        addresses = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self._sentinels)
        query = f"?wait_replicas={wait_replicas}" if wait_replicas else ""
        self.url = f"redis+sentinel://{addresses}/{SERVICE}{query}"

    def _sentinel(self, folder: Path) -> RedisProcess:
        folder.mkdir(parents=True)
        config = folder / "sentinel.conf"
        config.write_text(
            f"sentinel monitor {SERVICE} {HOST} {self._servers[0].port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}\n"
            f"sentinel parallel-syncs {SERVICE} 2\n"
        )
        return RedisProcess(folder, str(config), "--sentinel")

    def start(self) -> None:
        for server in self._servers:
            server.start()
        for replica in self._servers[1:]:
            replica.ask("REPLICAOF", HOST, self._servers[0].port)
        for sentinel in self._sentinels:
            sentinel.start()
        wait_for(self._know_each_other, "the Sentinels know each other and the replicas")
        self.settle()

    def close(self) -> None:
        for process in (*self._sentinels, *self._servers):
            process.kill()

    def _know_each_other(self) -> bool:
        for sentinel in self._sentinels:
            told = [sentinel.ask("SENTINEL", what, SERVICE) for what in ("SENTINELS", "SLAVES")]
            if [len(listed) for listed in told] != [2, 2]:
                return False
        return True

    def settle(self) -> None:
        wait_for(self._is_whole, "one master with two replicas in step, and all Sentinels say so")

    def _named(self) -> set[int]:
        """The ports of the masters that the Sentinels name."""
        found = set()
        for sentinel in self._sentinels:
            try:
                found.add(int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]))
            except redis.RedisError:
                found.add(0)
        return found

    def _is_whole(self) -> bool:
        named = self._named()
        infos = {server.port: server.replication() for server in self._servers}
        masters = [port for port, info in infos.items() if info.get("role") == "master"]
        if len(masters) != 1 or named != set(masters):
            return False
        links = [info.get("master_link_status") for port, info in infos.items() if port != masters[0]]
        return links == ["up", "up"] and infos[masters[0]].get("connected_slaves") == 2

    def _master(self) -> RedisProcess:
        (port,) = self._named()
        return next(server for server in self._servers if server.port == port)

    def inject(self, kind: str, dice: Random) -> tuple[str, Sequence[Cut]]:
        master = self._master()
        if kind == "promote":
            return self._promote(master)
        if kind in ("take-backup", "restore-backup"):
            return self._back_up(kind, dice, master)
        if kind == "stop-master":
            return self._stop(master, dice.choice((0.0, 0.0, 2.0)))
        victim = dice.choice((master, master, *(one for one in self._servers if one is not master)))
        return self._kill(victim, victim is master, dice.choice((0.0, 4.0)))

    def _promote(self, master: RedisProcess) -> tuple[str, Sequence[Cut]]:
        start = self._now()

        def is_taken() -> bool:
            try:
                return bool(self._sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE))
            except redis.ResponseError:
                return False  # one is in progress, or no replica is good yet

        wait_for(is_taken, "a Sentinel takes the order to fail over")
        return self._failed_over("promote", "SENTINEL FAILOVER", master, start - REPLICATION_LAG_S, start)

    def _stop(self, master: RedisProcess, late_s: float) -> tuple[str, Sequence[Cut]]:
        """The old master wakes up after the fail-over, and may answer what it was asked before it hears of it."""
        start = self._now()
        master.freeze()
        stopped = self._now()
        try:
            self._wait_for_another(master)
            time.sleep(late_s)
        finally:
            master.thaw()
        kept_until = stopped if self._waits else start - REPLICATION_LAG_S
        return self._failed_over("stop-master", f"SIGSTOP, awake {late_s} s late", master, kept_until, stopped)

    def _kill(self, victim: RedisProcess, is_master: bool, down_s: float) -> tuple[str, Sequence[Cut]]:
        start = self._now()
        victim.kill()
        dead = self._now()
        if is_master and down_s:
            self._wait_for_another(victim)
        else:
            time.sleep(down_s)
        victim.start()
        detail = f"kill -9 of {'the master' if is_master else 'a replica'}, down for {self._now() - dead:.1f} s"
        self.settle()
        if not is_master or (self._appendfsync == "always" and victim is self._master()):
            return detail, ()
        return detail, [Cut("kill-redis", None, start - EVERYSEC_LOSS_S, dead, dead, self._now())]

    def _wait_for_another(self, old: RedisProcess) -> None:
        def is_another() -> bool:
            named = self._named()
            if len(named) != 1 or old.port in named or 0 in named:
                return False
            new = self._master()
            return new.replication().get("role") == "master"

        wait_for(is_another, "another master is there")

    def _failed_over(
        self, kind: str, told: str, old: RedisProcess, kept_until: float, start: float
    ) -> tuple[str, Sequence[Cut]]:
        wait_for(lambda: old.replication().get("role") == "slave", "the old master is a replica")
        end = self._now()
        self.settle()
        return told, [Cut(kind, None, kept_until, start, start, end)]

    def _back_up(self, kind: str, dice: Random, master: RedisProcess) -> tuple[str, Sequence[Cut]]:
        """Without the Sentinels, who would see a failure. The replicas take everything from the master anew."""
        replicas = [server for server in self._servers if server is not master]
        for sentinel in self._sentinels:
            sentinel.kill()
        if kind == "take-backup":
            master.shut_down()
            told, cuts = self._backups.take(self._now(), {0: master}), ()
        else:
            for server in self._servers:
                server.kill()
            told, cuts = self._backups.put_back(dice, self._now(), {0: master}, replicas)
        master.start()
        for replica in replicas:
            if not replica.is_running():
                replica.start()
            replica.ask("REPLICAOF", HOST, master.port)
        for sentinel in self._sentinels:
            sentinel.start()
        self.settle()
        return told, cuts

    def kept(self) -> None:
        self._backups.kept()
