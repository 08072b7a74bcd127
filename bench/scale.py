"""Thousands of sessions in one worker, and cold ones: `python -m bench.scale [--sessions N] [--learner NAME ...]`.

One worker, one Redis server, one client. Each session learns rows of MAGIC until it stores about 100 points. Then one after
the other is asked for a forecast, `--asked` of them at random. A line a learner:

    points         stored by a session
    a session kB   memory of the worker a session, as the kernel counts it, over that of a worker without sessions
    worker MB      memory of the worker after all that
    resident       sessions that the worker has in memory at the end; the others it reads again when they are asked
    p50, p99 ms    of a forecast, on the wall clock, the client on the same machine

Then cold loads: sessions of 400 points, each asked for its first forecast by a worker that has just started, and for its
second. The difference is what it takes to read the session from the store, and to play the rounds since its snapshot: none,
or BEHIND.

Exits with 1 if a worker takes more than WORKER_MB with its sessions, or if the median of the cold loads without rounds to
play is above LOAD_MS.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
import numpy as np

from bench.http import EXACT, rows
from bench.http_client import HOST, Process, RawClient, redis_server, start_okl

WORKER_MB = 1000.0
LOAD_MS = 10.0
POINTS, LARGE = 100, 400
KERNEL = {"kind": "gaussian", "sigma": 0.1}
"""So narrow that nearly every row is new to the dictionary."""

LEARNERS: Mapping[str, Any] = {
    "pomdr": {"kind": "pomdr", "config": {"kernel": KERNEL, "budget": 150, "norm_bound": 25.0}},
    "kons": {"kind": "kons", "config": {"kernel": KERNEL, "loss": "squared-hinge"}},
    "nystrom-aioli": {"kind": "nystrom-aioli", "config": {"kernel": KERNEL, "budget": POINTS}},
}
ROUNDS: Mapping[str, int] = {"pomdr": 200, "kons": POINTS, "nystrom-aioli": 140}
COLD = {"kind": "nystrom-aioli", "config": {"kernel": KERNEL, "budget": LARGE}}
COLD_ROUNDS, BEHIND, COLD_SESSIONS = 1000, 500, 10


class Held(NamedTuple):
    """What a worker takes with its sessions."""

    points: float
    """Of its first session."""
    session_kb: float
    worker_mb: float
    resident: int
    ms: list[float]
    """Of each forecast."""


class Service(NamedTuple):
    worker: Process
    client: RawClient

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        status, answer = self.client.send(self.client.prepare(path, json.dumps(body).encode()))
        if not 200 <= status < 300:
            raise RuntimeError(f"POST {path}: {status} {answer.decode(errors='replace')}")
        return json.loads(answer)

    def forecast_ms(self, name: str, x: Sequence[float]) -> float:
        before = time.perf_counter()
        self.post(f"/sessions/{name}/predict", {"x": x, "wait": False})
        return 1e3 * (time.perf_counter() - before)

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.worker.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1e3

    def resident(self) -> int:
        told = httpx.get(f"http://{HOST}:{self.worker.port}/metrics", trust_env=False).raise_for_status().text
        return next(int(float(line.split()[-1])) for line in told.splitlines() if line.startswith("okl_copies{"))


@contextmanager
def service(store: Process) -> Iterator[Service]:
    settings = {"OKL_STORE": f"redis://{HOST}:{store.port}/0", "OKL_MAX_SESSIONS": "1000000"}
    with start_okl(settings) as worker:
        client = RawClient(worker.port)
        yield Service(worker, client)
        client.close()


def teach(at: Service, name: str, learner: Any, rounds: int, seed: int, **more: Any) -> None:
    X, y = rows(seed)
    at.post("/sessions", {"name": name, "learner": learner, "labels": [-1, 1], **EXACT, **more})
    at.post(f"/sessions/{name}/rounds", {"x": X[:rounds].tolist(), "y": y[:rounds].astype(int).tolist()})


def hold(learner: str, sessions: int, asked: int) -> Held:
    """So many sessions in one worker."""
    X, _ = rows()
    with redis_server("--appendonly", "no") as store, service(store) as at:
        teach(at, "first", LEARNERS[learner], ROUNDS[learner], 0)
        found = httpx.get(f"http://{HOST}:{at.worker.port}/sessions/first", trust_env=False).raise_for_status().json()
        before = at.memory_mb()
        for number in range(sessions):
            teach(at, f"s{number}", LEARNERS[learner], ROUNDS[learner], number % 20)
        resident, taken = at.resident(), at.memory_mb()
        chosen = np.random.default_rng(0).integers(sessions, size=asked)
        ms = [at.forecast_ms(f"s{number}", X[number % len(X)].tolist()) for number in chosen.tolist()]
        points = found["describe"]["dictionary"]
        return Held(points, 1e3 * (taken - before) / resident, at.memory_mb(), at.resident(), ms)


def cold_loads(behind: int) -> list[float]:
    """Milliseconds of each load, of sessions with so many rounds since their snapshots."""
    X, y = rows(COLD_SESSIONS)
    x = X[-1].tolist()
    names = [f"s{number}" for number in range(COLD_SESSIONS)]
    with redis_server() as store:
        with service(store) as at:
            for number, name in enumerate(names):
                teach(at, name, COLD, COLD_ROUNDS, number, snapshot_every=COLD_ROUNDS)
                if behind:
                    more = {"x": X[:behind].tolist(), "y": y[:behind].astype(int).tolist()}
                    at.post(f"/sessions/{name}/rounds", more)
        with service(store) as at:
            teach(at, "other", LEARNERS["nystrom-aioli"], 5, 0)
            at.forecast_ms("other", x)
            pairs = [(at.forecast_ms(name, x), at.forecast_ms(name, x)) for name in names]
    return [first - second for first, second in pairs]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--asked", type=int, default=2_000, help="forecasts, each of a session at random")
    parser.add_argument("--learner", choices=LEARNERS, action="append", help="this one alone; repeatable")
    options = parser.parse_args(arguments)
    print(f"{'':<16}{'points':>7}{'a session kB':>13}{'worker MB':>11}{'resident':>10}{'p50 ms':>9}{'p99 ms':>9}")
    holds = True
    for name in options.learner or LEARNERS:
        held = hold(name, options.sessions, options.asked)
        p50, p99 = np.percentile(held.ms, (50, 99))
        print(
            f"{name:<16}{held.points:7.0f}{held.session_kb:13.0f}{held.worker_mb:11.0f}{held.resident:10,d}{p50:9.2f}{p99:9.2f}",
            flush=True,
        )
        holds &= held.worker_mb <= WORKER_MB
    print()
    for behind in (0, BEHIND):
        loads = cold_loads(behind)
        detail = f"median {median(loads):.1f} ms, most {max(loads):.1f} ms"
        print(f"a cold load of {LARGE} points, {behind} rounds behind: {detail}", flush=True)
        holds &= behind > 0 or median(loads) <= LOAD_MS
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
