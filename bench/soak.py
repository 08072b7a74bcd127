"""Very many rounds through one socket: `python -m bench.soak [--rounds N] [--store sqlite|redis] [--learner KIND]`.

One worker, one session, one client with 128 messages under way; a message is a step. Told in ten parts: rounds a second, the
time from the sending of a frame to its answer, the memory of the worker, the size of the store.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import redis
from websockets.sync.client import ClientConnection, connect

from bench.http_client import HOST, redis_server, start_okl
from bench.transports import LEARNERS, Rows
from okl.client import Client

PARTS: Final = 10
TOGETHER: Final = 16
UNDER_WAY: Final = 8
"""Frames."""


def frames(rows: Rows, n: int) -> Iterator[tuple[str, int]]:
    """Steps as frames, and how many rounds each settles."""
    first, *_ = rows.take(1)
    last, some = first, [json.dumps({"x": first[1], "id": first[0]})]
    rounds = 0
    for _ in range(n):
        (following,) = rows.take(1)
        step = {"update": {"id": last[0], "y": last[2]}, "predict": {"x": following[1], "id": following[0]}}
        some.append(json.dumps(step))
        last, rounds = following, rounds + 1
        if len(some) >= TOGETHER:
            yield f"[{','.join(some)}]", rounds
            some, rounds = [], 0
    if some:
        yield f"[{','.join(some)}]", rounds


def play(connection: ClientConnection, source: Iterator[tuple[str, int]]) -> Iterator[tuple[int, float]]:
    """Rounds that were answered together, and how long that took in seconds."""
    sent: deque[tuple[int, float]] = deque()
    while True:
        for text, rounds in itertools.islice(source, UNDER_WAY - len(sent)):
            sent.append((rounds, time.perf_counter()))
            connection.send(text)
        if not sent:
            return
        answer = connection.recv()
        assert "refused" not in answer, answer
        rounds, began = sent.popleft()
        yield rounds, time.perf_counter() - began


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--store", choices=("sqlite", "redis"), default="sqlite")
    parser.add_argument("--learner", choices=LEARNERS, default="pomdr")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="okl-soak-")))
        url, size = f"sqlite:///{folder}/okl.sqlite3", sqlite_mb(folder)
        if options.store == "redis":
            port = stack.enter_context(redis_server()).port
            url, size = f"redis://{HOST}:{port}/0", redis_mb(port)
        worker = stack.enter_context(start_okl({"OKL_STORE": url}))
        okl = stack.enter_context(Client(f"http://{HOST}:{worker.port}"))
        learner: dict[str, Any] = LEARNERS[options.learner]
        okl.create("soak", learner, labels=[-1, 1], strict=True, scale={"kind": "none"})
        socket = stack.enter_context(connect(f"ws://{HOST}:{worker.port}/sessions/soak/stream", compression=None))
        source = play(socket, frames(Rows(), options.rounds))
        print(
            f"{'rounds':>10}{'rounds/s':>10}{'p50 ms':>8}{'p99 ms':>8}{'p99/p50':>9}{'worker MB':>11}{'store MB':>10}"
        )
        done = 0
        for part in range(1, PARTS + 1):
            began, before, took = time.perf_counter(), done, []
            while done < part * options.rounds // PARTS and (found := next(source, None)) is not None:
                done += found[0]
                took.append(1e3 * found[1])
            rate = (done - before) / (time.perf_counter() - began)
            p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
            memory = resident_mb(worker.pid)
            print(
                f"{done:10,}{rate:10,.0f}{p50:8.1f}{p99:8.1f}{p99 / p50:9.2f}{memory:11.1f}{size():10.2f}", flush=True
            )
        found = okl.inspect("soak")
        assert (found["t"], found["waiting"]) == (options.rounds, 1), found


def sqlite_mb(folder: Path) -> Callable[[], float]:
    return lambda: sum(file.stat().st_size for file in folder.iterdir()) / 2**20


def redis_mb(port: int) -> Callable[[], float]:
    client: Any = redis.Redis(HOST, port)
    return lambda: client.info("memory")["used_memory"] / 2**20


if __name__ == "__main__":
    main()
