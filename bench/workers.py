"""Two workers, one session, many clients, no affinity: `python -m bench.workers [--rounds N] [--clients N]`.

Every client asks one worker for a prediction and reports the truth to the other, and takes turns. It is the hardest
case: each worker has to replay every round that the other one played, and they compete for every commit.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.http_client import HOST, redis_server
from bench.processes import Worker, workers
from service.client import OklClient
from service.demo_data import magic

LEARNER = {
    "kind": "pomdr",
    "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 400, "norm_bound": 25.0},
}
SESSION = "workers"
ACTIONS = ("predict", "update")


@dataclass(slots=True)
class Stream:
    """What all clients saw together; latencies in seconds by action."""

    seconds: float = 0.0
    latencies: dict[str, list[float]] = field(default_factory=lambda: {action: [] for action in ACTIONS})
    errors: list[Exception] = field(default_factory=list)

    def percentile(self, action: str, q: float) -> float:
        return float(np.percentile(self.latencies[action], q))


def stream(pair: Sequence[Worker], *, rounds: int, clients: int) -> Stream:
    """`rounds` rounds of MAGIC, each by the next client that is free."""
    X, y = magic()
    found = Stream()
    rows = iter(range(rounds))
    lock = threading.Lock()

    def following() -> int | None:
        with lock:
            return next(rows, None)

    def client(number: int) -> None:
        with ExitStack() as stack:
            connections = [stack.enter_context(worker.connection()) for worker in pair]
            try:
                while (row := following()) is not None:
                    here, there = connections[(number + row) % 2], connections[(number + row + 1) % 2]
                    prediction = here.post(f"/sessions/{SESSION}/predict", {"x": X[row].tolist()})
                    there.post(f"/sessions/{SESSION}/update", {"id": prediction["id"], "y": int(y[row])})
            except Exception as error:
                found.errors.append(error)
        with lock:
            for action in ACTIONS:
                for connection in connections:
                    found.latencies[action] += connection.latencies.get(f"/sessions/{SESSION}/{action}", [])

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.seconds = time.perf_counter() - started
    return found


def measure(store: str, *, rounds: int, clients: int) -> Stream:
    with workers(store, 2) as pair, OklClient(pair[0].url) as client:
        client.create(SESSION, LEARNER)
        return stream(pair, rounds=rounds, clients=clients)


def show(found: dict[str, Stream], rounds: int) -> None:
    headings = [f"{action} {name} ms" for action in ACTIONS for name in ("p50", "p99")]
    print(f"{'store':<10}{'rounds/s':>10}" + "".join(f"{heading:>18}" for heading in headings) + f"{'errors':>8}")
    for store, told in found.items():
        times = "".join(f"{told.percentile(action, q) * 1e3:18.1f}" for action in ACTIONS for q in (50, 99))
        print(f"{store:<10}{rounds / told.seconds:10.0f}{times}{len(told.errors):8}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--store", choices=("sqlite", "redis"), action="append", help="default: both")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {}
        for store in options.store or ("sqlite", "redis"):
            if store == "redis":
                urls[store] = f"redis://{HOST}:{stack.enter_context(redis_server()).port}/0"
            else:
                urls[store] = f"sqlite:///{folder / 'workers.sqlite3'}"
        found = {name: measure(url, rounds=options.rounds, clients=options.clients) for name, url in urls.items()}
    show(found, options.rounds)


if __name__ == "__main__":
    main()
