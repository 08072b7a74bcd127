"""What a round costs and a session holds, and what many of them need: `python -m bench.costs [--rounds N]`.

One worker, one Redis server with its append-only file, one client that waits for each answer; sessions on rows of MAGIC (10
inputs). A line a learner and a way to ask:

    worker us    CPU of the worker a round, in microseconds
    Redis us     CPU of Redis a round
    wire B       bytes of HTTP a round, both ways, heads included
    store B      bytes between worker and Redis a round, both ways
    file B       bytes that the append-only file grows a round, before it is written anew

and a line a learner for its sessions: what they take in the worker and in Redis, and the CPU to load one that the worker does
not have. CPU is dearer while other work shares the machine: what 1,000 numbers as JSON cost says how dear. Then what 10^3,
10^5 and 10^7 rounds a second need by the costs of the way `--plan` names, each core used to `--use` of what it can.
docs/capacity.md says what to make of it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import redis

from bench.http import LEARNER, rows
from bench.http_client import HOST, Process, RawClient, redis_server, start_okl
from okl_core.types import F64

WARM_UP = 600
"""More than the rounds from which a session finds its scale."""

SESSIONS = 8
BLOCK = 100
LEARNERS: Mapping[str, Any] = {"auto": "auto", "aioli": "aioli", "pomdr 400": LEARNER}
WAYS = ("predict, update", "step", f"rounds of {BLOCK}")
TARGETS = (1e3, 1e5, 1e7)
GIGABIT_BYTES = 125e6


@dataclass(frozen=True)
class RoundCosts:
    worker_us: float
    redis_us: float
    wire_bytes: float
    store_bytes: float
    file_bytes: float


@dataclass(frozen=True)
class SessionCosts:
    learner_bytes: float
    redis_bytes: float
    load_ms: float


@dataclass
class Meter:
    """Counts what a worker, a Redis server and the requests between take."""

    worker: Process
    store: Process
    server: redis.Redis
    client: RawClient
    wire: int = 0

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        prepared = self.client.prepare(path, json.dumps(body, separators=(",", ":")).encode())
        status, answer = self.client.send(prepared)
        if not 200 <= status < 300:
            raise RuntimeError(f"POST {path}: {status} {answer.decode(errors='replace')}")
        # The head of an answer has 200 bytes, give or take ten.
        self.wire += len(prepared) + len(answer) + 200
        return json.loads(answer)

    def costs(self, rounds: int, play: Callable[[], None]) -> RoundCosts:
        before = self._taken()
        play()
        return RoundCosts(*((after - start) / rounds for after, start in zip(self._taken(), before, strict=True)))

    def _taken(self) -> tuple[float, ...]:
        info: Any = self.server.info()
        store = info["total_net_input_bytes"] + info["total_net_output_bytes"]
        file = info["aof_current_size"]
        return 1e6 * self.worker.cpu_s(), 1e6 * self.store.cpu_s(), self.wire, store, file


def play(meter: Meter, way: str, X: F64, y: F64) -> None:
    """The rows in turn over the sessions."""
    if way.startswith("rounds"):
        for number, part in enumerate(np.array_split(np.arange(len(y)), len(y) // BLOCK)):
            meter.post(f"/sessions/s{number % SESSIONS}/rounds", {"x": X[part].tolist(), "y": y[part].tolist()})
        return
    open_ids: dict[int, tuple[str, int]] = {}
    for number, (x, truth) in enumerate(zip(X.tolist(), y.astype(int).tolist(), strict=True)):
        place = number % SESSIONS
        path = f"/sessions/s{place}"
        if way == "step" and place in open_ids:
            id, earlier = open_ids[place]
            told = meter.post(f"{path}/step", {"update": {"id": id, "y": earlier}, "predict": {"x": x}})
            open_ids[place] = told["predict"]["id"], truth
        elif way == "step":
            open_ids[place] = meter.post(f"{path}/predict", {"x": x})["id"], truth
        else:
            meter.post(f"{path}/update", {"id": meter.post(f"{path}/predict", {"x": x})["id"], "y": truth})
    for place, (id, truth) in open_ids.items():
        meter.post(f"/sessions/s{place}/update", {"id": id, "y": truth})


@contextmanager
def service(store: Process) -> Iterator[Meter]:
    url = f"redis://{HOST}:{store.port}/0"
    with start_okl({"OKL_STORE": url}) as worker, redis.Redis(HOST, store.port) as server:
        client = RawClient(worker.port)
        yield Meter(worker, store, server, client)
        client.close()


def measure(learner: Any, rounds: int) -> tuple[dict[str, RoundCosts], SessionCosts]:
    X, y = rows()
    found: dict[str, RoundCosts] = {}
    with redis_server() as store:
        with service(store) as meter:
            for number in range(SESSIONS):
                meter.post("/sessions", {"name": f"s{number}", "learner": learner, "labels": [-1, 1]})
            play(meter, WAYS[-1], X[: WARM_UP * SESSIONS], y[: WARM_UP * SESSIONS])
            for number, way in enumerate(WAYS):
                part = slice(WARM_UP * SESSIONS + number * rounds, WARM_UP * SESSIONS + (number + 1) * rounds)
                found[way] = meter.costs(rounds, lambda way=way, part=part: play(meter, way, X[part], y[part]))
            info: Any = meter.server.info("memory")
            in_redis = (info["used_memory"] - info["used_memory_startup"]) / SESSIONS
        with service(store) as meter:
            meter.post("/sessions", {"name": "other", "learner": "mean"})
            meter.post("/sessions/other/predict", {"x": [0.0]})
            before = meter.worker.cpu_s()
            for number in range(SESSIONS):
                meter.post(f"/sessions/s{number}/predict", {"x": X[0].tolist(), "wait": False})
            load_ms = 1e3 * (meter.worker.cpu_s() - before) / SESSIONS
            sizes = [inspected(meter.worker.port, f"s{number}")["bytes"] for number in range(SESSIONS)]
    return found, SessionCosts(float(np.mean(sizes)), in_redis, load_ms)


def inspected(port: int, session: str) -> dict[str, Any]:
    return httpx.get(f"http://{HOST}:{port}/sessions/{session}", trust_env=False).raise_for_status().json()


def worker_bytes() -> float:
    """What a worker takes before it has a session."""
    with redis_server() as store, service(store) as meter:
        meter.post("/sessions", {"name": "other", "learner": "mean"})
        status = Path(f"/proc/{meter.worker.pid}/status").read_text()
        return 1024.0 * int(status.partition("VmRSS:")[2].split()[0])


def unit_us() -> float:
    """CPU to write and read 1,000 numbers as JSON: what this machine, with what else runs on it, is worth."""
    numbers = np.random.default_rng(0).normal(size=1000).tolist()
    before = time.process_time()
    for _ in range(1000):
        json.loads(json.dumps(numbers))
    return 1e3 * (time.process_time() - before)


def plan(costs: RoundCosts, use: float) -> Iterator[str]:
    yield f"{'rounds/s':>10}{'workers':>9}{'Redis':>7}{'Gbit/s clients':>16}{'Gbit/s store':>14}{'file MB/s':>11}"
    for rate in TARGETS:
        workers = math.ceil(rate * costs.worker_us / 1e6 / use)
        shards = math.ceil(rate * costs.redis_us / 1e6 / use)
        wire, store = (rate * size / GIGABIT_BYTES for size in (costs.wire_bytes, costs.store_bytes))
        yield f"{rate:10.0e}{workers:9d}{shards:7d}{wire:16.2f}{store:14.2f}{rate * costs.file_bytes / 1e6:11.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3_000, help="rounds of each learner and way")
    parser.add_argument("--learner", choices=LEARNERS, action="append", help="this learner alone; repeatable")
    parser.add_argument("--plan", choices=WAYS, default="step", help="the way to ask that machines are counted for")
    parser.add_argument("--use", type=float, default=0.6, help="the share of a core that is to be used")
    options = parser.parse_args(arguments)
    print(f"a worker without sessions takes {worker_bytes() / 1e6:.0f} MB\n")
    before = unit_us()
    units = (f"{name:>11}" for name in ("worker us", "Redis us", "wire B", "store B", "file B"))
    print(f"{'':<28}" + "".join(units))
    measured = {name: measure(LEARNERS[name], options.rounds) for name in options.learner or LEARNERS}
    for name, (found, _) in measured.items():
        for way, costs in found.items():
            numbers = "".join(f"{getattr(costs, field.name):11.0f}" for field in fields(costs))
            print(f"{name:<11}{way:<17}{numbers}")
    print(
        f"\n1,000 numbers as JSON, written and read, took {before:.0f} us before this and {unit_us():.0f} us after it"
    )
    print(f"\n{'a session':<28}{'learner kB':>11}{'Redis kB':>11}{'load ms':>11}")
    for name, (_, session) in measured.items():
        print(f"{name:<28}{session.learner_bytes / 1e3:11.0f}{session.redis_bytes / 1e3:11.0f}{session.load_ms:11.1f}")
    for name, (found, _) in measured.items():
        print(f"\n{name}, {options.plan}, cores used to {options.use:.0%}")
        print("\n".join(plan(found[options.plan], options.use)))


if __name__ == "__main__":
    main()
