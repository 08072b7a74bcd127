"""One run: a store, workers and clients, faults, and what is there at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.history.allotment import Allotment, shares
from bench.history.attempts import History
from bench.history.caller import Caller
from bench.history.final import FinalState, final_states
from bench.history.injection import Injection, definition, schedule
from bench.history.own_store import STARTED_WITHIN_S, Now, OwnStore
from bench.history.raw_http import Connection
from bench.processes import Worker

SNAPSHOT_MIN_BYTES = 2_000
"""A snapshot every few dozen rounds at first, so that faults hit some of them."""

RIDGES = 1
"""Sessions of a learner whose state soon is larger than what a worker copies; the others have a small one."""

RIDGE_ROUNDS = 1_000
"""At most, of such a session: its state is quadratic in its rounds, and each worker has it."""

ALWAYS = ("kill-worker", "recreate")
"""What can be done to any store."""

REDIS_ALWAYS = {"kill-worker", "upgrade", "kill-redis", "stop-master", "recreate"}
"""With these alone a single Redis with `appendfsync always` may lose nothing."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`faults` are kinds, `each` how often each comes; `appendfsync` None takes what fits them."""

    store: str = "sqlite"
    rounds: int = 20_000
    workers: int = 4
    clients: int = 16
    sessions: int = 10
    seed: int = 0
    faults: Sequence[str] = ()
    each: int = 4
    appendfsync: str | None = None
    wait_replicas: int = 0
    transport: str = "requests"

    @property
    def fsync(self) -> str:
        if self.appendfsync is not None:
            return self.appendfsync
        return "always" if self.store == "redis" and set(self.faults) <= REDIS_ALWAYS else "everysec"


def run(options: RunOptions, folder: Path) -> tuple[History, Mapping[str, FinalState]]:
    """What was acknowledged, and what is there; logs and data stay in the folder."""
    began = time.monotonic()

    def now() -> float:
        return time.monotonic() - began

    names = [f"s{i}" for i in range(options.sessions)]
    kinds = {name: "kernel-ridge" if i < RIDGES else "kernel-ogd" for i, name in enumerate(names)}
    history = History(options.seed, options.store, kinds)
    store = _own_store(
        options.store, folder, now, names, appendfsync=options.fsync, wait_replicas=options.wait_replicas
    )
    streams = options.clients * (options.sessions + 1)
    settings = {"snapshot_min_bytes": SNAPSHOT_MIN_BYTES, "max_streams": streams}
    workers: list[Worker] = []
    try:
        store.start()
        workers += [Worker(store.url, log=folder / f"worker-{i}.log", **settings) for i in range(options.workers)]
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda worker: worker.start(STARTED_WITHIN_S), workers))
        _create(kinds, workers[0], began)
        _play(options, history, store, workers, began)
        history.seconds = now()
        for i, worker in enumerate(workers):
            if worker.process.poll() is not None:
                history.died.append(f"worker {i} ended by itself with {worker.process.returncode}")
        connections = [Connection(worker.port, began, timeout_s=30.0) for worker in workers]
        finals = final_states(store.url, names, connections)
        for connection in connections:
            connection.close()
        store.kept()
    finally:
        for worker in workers:
            worker.kill()
        store.close()
    return history, finals


def _own_store(
    name: str, folder: Path, now: Now, sessions: Sequence[str], *, appendfsync: str, wait_replicas: int
) -> OwnStore:
    """The store of this name, not started. The others are not imported: some need what this machine may lack."""
    if name == "sqlite":
        from bench.history.own_sqlite import OwnSqlite

        return OwnSqlite(folder, now, sessions)
    if name == "redis":
        from bench.history.own_redis import OwnRedis

        return OwnRedis(folder, now, sessions, appendfsync)
    if name == "sentinel":
        from bench.history.own_sentinel import OwnSentinel

        return OwnSentinel(folder, now, sessions, appendfsync, wait_replicas)
    if name == "cluster":
        from bench.history.own_cluster import OwnCluster

        return OwnCluster(folder, now, sessions, appendfsync)
    raise ValueError(f"no store {name!r}")


def _create(kinds: Mapping[str, str], worker: Worker, began: float) -> None:
    connection = Connection(worker.port, began, timeout_s=30.0)
    for name, kind in kinds.items():
        heard = connection.request("POST", "/sessions", definition(name, kind))
        if heard.status != 201:
            raise RuntimeError(f"session {name} could not be created: {heard.status} {heard.body}")
    connection.close()


def _play(options: RunOptions, history: History, store: OwnStore, workers: Sequence[Worker], began: float) -> None:
    """Until all rounds are played and all faults are over."""
    names = list(history.kinds)
    most = {name: RIDGE_ROUNDS if kind == "kernel-ridge" else None for name, kind in history.kinds.items()}
    allotment = Allotment(shares(most, options.rounds))
    ports = [worker.port for worker in workers]
    callers = [
        Caller(i, options.seed, ports, began, allotment, names, options.transport) for i in range(options.clients)
    ]
    plan = schedule(Random(options.seed), options.faults, options.each, options.rounds)
    injection = Injection(plan, store, workers, allotment, history, began, lambda: time.monotonic() - began)
    threads = [threading.Thread(target=one.run, daemon=True) for one in (injection, *callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in (injection, *callers):
        if one.error is not None:
            raise one.error
    history.attempts = sorted((attempt for one in callers for attempt in one.attempts), key=lambda one: one.sent)
    history.abandoned = sum(one.abandoned for one in callers)
