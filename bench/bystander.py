"""What a small session feels of its neighbours: `python -m bench.bystander [--rounds N] [--seconds S]`.

One worker on an SQLite file. A bystander in a process of its own plays rounds of a small session, one after the other, while
a neighbour does what is printed beside its latencies. `calm` is without a neighbour.

    kons            rounds of an exact kernel learner that has seen N inputs: each takes O(N^2)
    embedding       the rounds in which `nogd` and `skegd` go over to an embedding of 2,000 points
    list            GET /sessions, with 60 sessions of 10,000 named inputs
    block           requests of 5,000 rounds
    stream          600 rounds over a socket, many under way
    streams         the same over eight sockets at once, each to a session of its own
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.http_client import BadAnswer, RawClient, Timed
from bench.processes import Worker, workers
from okl.client import Client

DIM = 10
BLOCK = 500
SOCKETS = 8
GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
EXACT = {"strict": True, "scale": {"kind": "none"}}
rng = np.random.default_rng(0)

Step = Callable[[], object]


def rows(n: int) -> tuple[list[list[float]], list[int]]:
    X = rng.uniform(size=(n, DIM))
    return X.tolist(), np.where(X[:, 0] > X[:, 1] * X[:, 2], 1, -1).tolist()


def teach(client: Client, name: str, rounds: int) -> None:
    for _ in range(0, rounds, BLOCK):
        client.rounds(name, *rows(BLOCK))


def kons(client: Client, rounds: int) -> Step:
    client.create("kons", {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "squared"}}, **EXACT)
    teach(client, "kons", rounds)

    def step() -> None:
        (x,), (y,) = rows(1)
        client.update("kons", y, x=x)

    return step


def embedding(client: Client, rounds: int) -> Step:
    """Sessions that are about to go over, again and again."""
    made = 0

    def step() -> None:
        nonlocal made
        made += 1
        kind = ("nogd", "skegd")[made % 2]
        config = {"kernel": GAUSSIAN, "budget": 2_000}
        client.create(f"{kind}-{made}", {"kind": kind, "config": config}, **EXACT)
        teach(client, f"{kind}-{made}", 10_000)
        client.delete(f"{kind}-{made}")

    return step


def listing(client: Client, rounds: int) -> Step:
    features = {f"a named input {i}": "number" for i in range(10_000)}
    for number in range(60):
        client.create(f"wide-{number:02}", {"kind": "mean"}, schema=features, **EXACT)
    return client.sessions


def block(client: Client, rounds: int) -> Step:
    client.create("block", {"kind": "pomdr", "config": {"kernel": GAUSSIAN}}, **EXACT)
    return lambda: client.rounds("block", *rows(5_000))


def stream(client: Client, rounds: int, name: str = "stream") -> Step:
    client.create(name, {"kind": "pomdr", "config": {"kernel": GAUSSIAN}}, **EXACT)

    def step() -> None:
        messages: list[dict[str, Any]] = []
        for x, y in zip(*rows(600), strict=True):
            id = f"m{rng.integers(2**62)}"
            messages += [{"x": x, "id": id}, {"id": id, "y": y}]
        with client.stream(name) as socket:
            for answer in socket.ask(iter(messages), together=64):
                assert "refused" not in answer, answer

    return step


def streams(client: Client, rounds: int) -> Step:
    steps = [stream(client, rounds, f"stream-{number}") for number in range(SOCKETS)]

    def step() -> None:
        with ThreadPoolExecutor(SOCKETS) as pool:
            for done in [pool.submit(one) for one in steps]:
                done.result()

    return step


NEIGHBOURS: dict[str, Callable[[Client, int], Step] | None] = {
    "calm": None,
    "kons": kons,
    "list": listing,
    "block": block,
    "embedding": embedding,
    "stream": stream,
    "streams": streams,
}


def bystander(port: int, seconds: float, told: Any) -> None:
    """Tells the latency of each request, in seconds."""
    connection = Timed(RawClient(port), {})
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        asked = connection.post("/predict", {"session": "small", "x": [0.1, 0.2]})
        connection.post("/update", {"session": "small", "id": asked["id"], "y": 1.0})
        time.sleep(0.002)
    told.send([latency for latencies in connection.latencies.values() for latency in latencies])


def measure(worker: Worker, name: str, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """Latencies of the bystander and of its neighbour's steps."""
    steps: list[float] = []
    is_over = threading.Event()
    with Client(worker.url, timeout_s=120.0) as client, ExitStack() as stack:
        make = NEIGHBOURS[name]
        step = None if make is None else make(client, rounds)

        def work() -> None:
            while step is not None and not is_over.is_set():
                started = time.perf_counter()
                step()
                steps.append(time.perf_counter() - started)

        thread = threading.Thread(target=work)
        thread.start()
        stack.callback(thread.join)
        stack.callback(is_over.set)
        here, there = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=bystander, args=(worker.port, seconds, there))
        process.start()
        try:
            return here.recv(), steps
        except EOFError:
            raise BadAnswer("the bystander was refused") from None
        finally:
            process.join()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7_000, help="inputs that `kons` has seen")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each neighbour")
    options = parser.parse_args(arguments)
    print(f"{'beside':<12}{'requests':>9}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}{'a step of the neighbour, s':>29}")
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'okl.sqlite3'}"
        with workers(store, 1, session_bytes=1 << 30) as (worker,):
            with Client(worker.url) as client:
                client.create("small", {"kind": "mean"}, **EXACT)
            for name in NEIGHBOURS:
                latencies, steps = measure(worker, name, options.rounds, options.seconds)
                cuts = [1e3 * cut for cut in statistics.quantiles(latencies, n=100)]
                took = f"{statistics.median(steps):29.3f}" if steps else ""
                print(f"{name:<12}{len(latencies):9}{cuts[49]:9.1f}{cuts[98]:9.1f}{1e3 * max(latencies):9.1f}{took}")


if __name__ == "__main__":
    main()
