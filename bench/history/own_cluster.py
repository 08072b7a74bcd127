"""A cluster of six nodes of the run's own: three masters, each with a replica."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, final

import redis
from redis.crc import key_slot

from bench.history.attempts import Cut
from bench.history.own_store import EVERYSEC_LOSS_S, REPLICATION_LAG_S, Now, wait_for
from bench.history.redis_backups import RedisBackups
from bench.history.redis_process import RedisProcess, data_options
from bench.http_client import HOST, free_port

NODE_TIMEOUT_MS = 1_500
SHARDS = 3
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS))
OPTIONS += ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


@final
class OwnCluster:
    kinds: Sequence[str] = ("kill-redis", "stop-master", "promote", "take-backup", "restore-backup")

    def __init__(self, folder: Path, now: Now, sessions: Sequence[str], appendfsync: str) -> None:
        self._now = now
        self._sessions = sessions
        self._backups = RedisBackups(folder, sessions)
        self._appendfsync = appendfsync
        buses = [str(free_port()) for _ in range(2 * SHARDS)]
        own = [(*data_options(appendfsync), *OPTIONS, "--cluster-port", bus) for bus in buses]
        self._nodes = [RedisProcess(folder / f"node-{i}", *options) for i, options in enumerate(own)]
        self._buses = {node.port: bus for node, bus in zip(self._nodes, buses, strict=True)}
        self.url = f"redis+cluster://{HOST}:{self._nodes[0].port}"

    def start(self) -> None:
        for node in self._nodes:
            node.start()
        self._join()
        self.settle()

    def _join(self) -> None:
        first, *others = self._nodes
        for i, node in enumerate(self._nodes[:SHARDS]):
            low, high = 16384 * i // SHARDS, 16384 * (i + 1) // SHARDS - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", low, high)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in others:
            first.ask("CLUSTER", "MEET", HOST, node.port, self._buses[node.port])
        wait_for(lambda: all(self._sees_all(node) for node in self._nodes), "every node sees every other")
        for node, master in zip(self._nodes[SHARDS:], self._nodes, strict=False):
            name = _text(master.ask("CLUSTER", "MYID"))
            wait_for(lambda node=node, name=name: _replicates(node, name), "a replica takes its master")

    def _sees_all(self, node: RedisProcess) -> bool:
        return int(_info(node).get("cluster_known_nodes", 0)) == len(self._nodes)

    def close(self) -> None:
        for node in self._nodes:
            node.kill()

    def settle(self) -> None:
        wait_for(self._is_whole, "three masters, each with a replica in step, and every node says that all is well")

    def _is_whole(self) -> bool:
        infos = [node.replication() for node in self._nodes]
        if any(_info(node).get("cluster_state") != "ok" for node in self._nodes):
            return False
        masters = [info for info in infos if info.get("role") == "master"]
        replicas = [info for info in infos if info.get("role") == "slave"]
        in_step = all(info.get("master_link_status") == "up" for info in replicas)
        return in_step and len(masters) == SHARDS and all(info["connected_slaves"] == 1 for info in masters)

    def _pair(self, dice: Random) -> tuple[RedisProcess, RedisProcess]:
        """A master and its replica."""
        infos = {node.port: node.replication() for node in self._nodes}
        by_port = {node.port: node for node in self._nodes}
        port = dice.choice([port for port, info in infos.items() if info["role"] == "master"])
        replica = next(own for own, info in infos.items() if info.get("master_port") == port)
        return by_port[port], by_port[replica]

    def inject(self, kind: str, dice: Random) -> tuple[str, Sequence[Cut]]:
        if kind in ("take-backup", "restore-backup"):
            return self._back_up(kind, dice)
        master, replica = self._pair(dice)
        if kind == "promote":
            return self._promote(replica)
        if kind == "stop-master":
            return self._stop(master, replica, dice.choice((0.0, 2.0)))
        victim = dice.choice((master, master, replica))
        return self._kill(victim, replica if victim is master else None, dice.choice((0.0, 5.0)))

    def _promote(self, replica: RedisProcess) -> tuple[str, Sequence[Cut]]:
        """The two agree on it: the master holds its clients until the replica has all. Nothing may be lost."""
        replica.ask("CLUSTER", "FAILOVER")
        wait_for(lambda: replica.replication().get("role") == "master", "the replica is the master")
        self.settle()
        return "CLUSTER FAILOVER", ()

    def _stop(self, master: RedisProcess, replica: RedisProcess, late_s: float) -> tuple[str, Sequence[Cut]]:
        on_it = self._on(master)
        start = self._now()
        master.freeze()
        stopped = self._now()
        try:
            wait_for(lambda: replica.replication().get("role") == "master", "the replica is the master")
            time.sleep(late_s)
        finally:
            master.thaw()
        wait_for(lambda: master.replication().get("role") == "slave", "the old master is a replica")
        end = self._now()
        self.settle()
        detail = f"SIGSTOP, awake {late_s} s late"
        return detail, [Cut("stop-master", one, start - REPLICATION_LAG_S, stopped, stopped, end) for one in on_it]

    def _kill(self, victim: RedisProcess, replica: RedisProcess | None, down_s: float) -> tuple[str, Sequence[Cut]]:
        on_it = self._on(victim)
        start = self._now()
        victim.kill()
        dead = self._now()
        if replica is not None and down_s:
            wait_for(lambda: replica.replication().get("role") == "master", "the replica is the master")
        else:
            time.sleep(down_s)
        victim.start()
        detail = f"kill -9 of a {'replica' if replica is None else 'master'}, down for {self._now() - dead:.1f} s"
        self.settle()
        if replica is None or (self._appendfsync == "always" and victim.replication().get("role") == "master"):
            return detail, ()
        end = self._now()
        return detail, [Cut("kill-redis", one, start - EVERYSEC_LOSS_S, dead, dead, end) for one in on_it]

    def _on(self, master: RedisProcess) -> Sequence[str]:
        """The sessions that this node has."""
        slots = _slots(_nodes(master))
        return [one for one in self._sessions if key_slot(f"okl:{{{one}}}:head".encode()) in slots]

    def _back_up(self, kind: str, dice: Random) -> tuple[str, Sequence[Cut]]:
        """All nodes are down meanwhile. A shard is told by its first slot, whichever node is its master."""
        masters = {min(_slots(_nodes(one))): one for one in self._nodes if one.replication()["role"] == "master"}
        replicas = [node for node in self._nodes if node not in masters.values()]
        for node in self._nodes:
            node.shut_down() if kind == "take-backup" else node.kill()
        if kind == "take-backup":
            told, cuts = self._backups.take(self._now(), masters), ()
        else:
            told, cuts = self._backups.put_back(dice, self._now(), masters, replicas)
        for node in (*masters.values(), *replicas):
            node.start()
        self.settle()
        return told, cuts

    def kept(self) -> None:
        self._backups.kept()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _nodes(node: RedisProcess) -> str:
    return _text(node.ask("CLUSTER", "NODES"))


def _slots(nodes: str) -> set[int]:
    """Those of the node that was asked for its CLUSTER NODES."""
    mine = next(line for line in nodes.splitlines() if "myself" in line)
    ranges = [part.split("-") for part in mine.split()[8:] if not part.startswith("[")]
    return {slot for ends in ranges for slot in range(int(ends[0]), int(ends[-1]) + 1)}


def _info(node: RedisProcess) -> dict[str, str]:
    """CLUSTER INFO; nothing while the node does not answer."""
    try:
        told = node.ask("CLUSTER", "INFO")
    except redis.RedisError:
        return {}
    if isinstance(told, dict):
        return {_text(name): _text(value) for name, value in told.items()}
    return dict(line.split(":", 1) for line in _text(told).split() if ":" in line)


def _replicates(node: RedisProcess, name: str) -> bool:
    """A node knows its master only when the two have heard of each other."""
    try:
        return bool(node.ask("CLUSTER", "REPLICATE", name))
    except redis.ResponseError:
        return False
