"""What each setting of durability costs: `python -m bench.durability [--count N]`.

The store alone, one commit at a time: a prediction that waits, its round, and a step (both at once), as in bench.store. A
line a setting of SQLite and of Redis, by what it loses when the power is cut. Wall time is what a client waits; on a disk
that syncs at once, as many virtual ones do, settings that sync cost too little here.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from bench.http_client import HOST, redis_server
from bench.store import Cost, bench, show
from service.store.opening import open_store

SYNCHRONOUS = ("off", "normal", "full")
APPENDING = {
    "redis, no file": ("--appendonly", "no"),
    "redis, everysec": (),
    "redis, always": ("--appendfsync", "always"),
}


def measure(url: str, count: int) -> dict[str, Cost]:
    return asyncio.run(bench(open_store(url), count))


def wait_for_replica(port: int) -> None:
    with redis.Redis(HOST, port) as server:
        while True:
            told: Any = server.info("replication")
            if told["connected_slaves"] and told["slave0"]["state"] == "online":
                return
            time.sleep(0.05)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000, help="commits of each kind")
    count = parser.parse_args(arguments).count
    found: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for level in SYNCHRONOUS:
            url = f"sqlite:///{Path(folder) / level}.sqlite3?synchronous={level}"
            found[f"sqlite, {level}"] = measure(url, count)
    for name, options in APPENDING.items():
        with redis_server(*options) as server:
            found[name] = measure(f"redis://{HOST}:{server.port}/0", count)
    with ExitStack() as servers:
        first = servers.enter_context(redis_server("--repl-diskless-sync-delay", "0"))
        servers.enter_context(redis_server("--replicaof", f"{HOST} {first.port}"))
        wait_for_replica(first.port)
        found["redis, 1 replica"] = measure(f"redis://{HOST}:{first.port}/0?wait_replicas=1", count)
    show(found)


if __name__ == "__main__":
    main()
