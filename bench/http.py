"""Rounds over HTTP, side by side: `python -m bench.http [--rounds N] [--leg NAME] [--beside CHECKOUT]`.

Every contestant is an application behind stock uvicorn, one process a worker, durable in one Redis with its append-only file
(ours on SQLite as well). Ours is started by `okl serve`, which bounds the connections in front of uvicorn. A round is a
prediction and then its truth, on rows of MAGIC; the line `step` reports a truth and asks for the next prediction in one
request. The legs:

    one          one client, one session, one worker
    sessions     eight clients, each on a session of its own, one worker
    session      eight clients on one session, one worker
    workers      eight clients on one session, two workers; the truth goes to the other worker than the question

The contestants of a leg take turns in short bursts, so that a drift of the machine meets all of them. Rounds per second are
those of all clients together, on the wall clock; CPU is that of the workers alone, Redis not included.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.http_client import Process, RawClient, Timed, redis_server, start_app, start_okl
from okl_core.types import F64

BURSTS = 8
WARM_UP = 200
LEARNER = {
    "kind": "pomdr",
    "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 400, "norm_bound": 25.0},
}
EXACT = {"strict": True, "scale": {"kind": "none"}}
BARS = {"echo": "x echo", "river redis": "x river", "river watch": "x watch", "before redis": "x before"}
"""What the others are measured by, and the heading of the ratio."""
OURS, RIVER = "service.app:create_app", "bench.river_app:app"


@dataclass(frozen=True)
class Leg:
    """`clients` on `sessions`, served by `workers`."""

    name: str
    clients: int
    sessions: int
    workers: int


LEGS = {
    leg.name: leg
    for leg in (Leg("one", 1, 1, 1), Leg("sessions", 8, 8, 1), Leg("session", 8, 1, 1), Leg("workers", 8, 1, 2))
}


@dataclass
class Contestant:
    """An application in its processes, and what was measured of it."""

    name: str
    app: str
    environment: dict[str, str] = field(default_factory=dict)
    steps: bool = False
    checkout: str | None = None
    learner: Mapping[str, Any] = field(default_factory=lambda: LEARNER)
    most_workers: int = 2
    latencies: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    processes: list[Process] = field(default_factory=list)
    clients: list[Player] = field(default_factory=list)

    @property
    def is_ours(self) -> bool:
        return self.app == OURS

    def start(self, stack: ExitStack, leg: Leg) -> None:
        for _ in range(leg.workers):
            if self.is_ours:
                process = start_okl(self.environment, checkout=self.checkout)
            else:
                process = start_app(self.app, self.environment, is_factory=False)
            self.processes.append(stack.enter_context(process))
        ports = [process.port for process in self.processes]
        if self.is_ours:
            first = Timed(RawClient(ports[0]), {})
            for number in range(leg.sessions):
                first.post("/sessions", {"name": f"bench-{number}", "learner": self.learner} | EXACT, keep=False)
            first.client.close()
        for number in range(leg.clients):
            own = (ports[number % len(ports)], ports[(number + 1) % len(ports)])
            sessions = range(number % leg.sessions, leg.sessions, leg.clients)
            names = itertools.cycle([f"bench-{session}" for session in sessions])
            self.clients.append(Player(names, own, self.latencies, self.steps))

    def burst(self, X: F64, y: F64, *, keep: bool = True) -> None:
        """The rows in order, each by the next client that is free."""
        rows = iter(zip(X.tolist(), y.astype(int).tolist(), strict=True))
        lock = threading.Lock()

        def following() -> Iterator[tuple[list[float], int]]:
            while True:
                with lock:
                    row = next(rows, None)
                if row is None:
                    return
                yield row

        errors: list[Exception] = []
        threads = [threading.Thread(target=player.play, args=(following(), errors, keep)) for player in self.clients]
        for player in self.clients:
            player.connect()
        before, started = sum(process.cpu_s() for process in self.processes), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        for player in self.clients:
            player.disconnect()
        if errors:
            raise errors[0]
        if keep:
            self.seconds += seconds
            self.cpu_s += sum(process.cpu_s() for process in self.processes) - before
            self.rounds += len(y)

    @property
    def mistakes(self) -> int:
        return sum(player.mistakes for player in self.clients)

    @property
    def rounds_per_s(self) -> float:
        return self.rounds / self.seconds


@dataclass
class Player:
    """One client: it asks one worker and reports to the other, and changes over each round."""

    sessions: Iterator[str]
    """Of each round; with steps, of each burst."""
    ports: tuple[int, int]
    latencies: dict[str, list[float]]
    steps: bool
    mistakes: int = 0
    turn: int = 0
    open_id: str | None = None
    connections: list[Timed] = field(default_factory=list)

    def connect(self) -> None:
        """For one burst: the servers close what is idle while the others have their turns."""
        self.connections = [Timed(RawClient(port), self.latencies) for port in self.ports]

    def disconnect(self) -> None:
        for connection in self.connections:
            connection.client.close()

    def play(self, rows: Iterator[tuple[list[float], int]], errors: list[Exception], keep: bool) -> None:
        try:
            if self.steps:
                self._step_through(rows, keep)
            else:
                for x, y in rows:
                    self._round(x, y, keep)
        except Exception as error:
            errors.append(error)

    def _round(self, x: list[float], y: int, keep: bool) -> None:
        here, there = self._pair()
        session = next(self.sessions)
        asked = here.post("/predict", {"session": session, "x": x}, keep=keep)
        told = there.post("/update", {"session": session, "id": asked["id"], "y": y}, keep=keep)
        self.mistakes += bool(told["mistake"] and keep)

    def _step_through(self, rows: Iterator[tuple[list[float], int]], keep: bool) -> None:
        """The truth of each row with the question of the next; the last truth of a burst goes alone."""
        truth: int | None = None
        session = next(self.sessions)
        for x, y in rows:
            here, _ = self._pair()
            if truth is None:
                self.open_id = here.post("/predict", {"session": session, "x": x}, keep=False)["id"]
            else:
                body = {"session": session, "update": {"id": self.open_id, "y": truth}, "predict": {"x": x}}
                told = here.post("/step", body, keep=keep)
                self.mistakes += bool(told["update"]["mistake"] and keep)
                self.open_id = told["predict"]["id"]
            truth = y
        if truth is not None:
            told = self.connections[0].post("/update", {"session": session, "id": self.open_id, "y": truth}, keep=False)
            self.mistakes += bool(told["mistake"] and keep)

    def _pair(self) -> tuple[Timed, Timed]:
        self.turn += 1
        return self.connections[self.turn % 2], self.connections[(self.turn + 1) % 2]


def rows(seed: int = 0) -> tuple[F64, F64]:
    """MAGIC in a random order, columns scaled to [0, 1]."""
    from service.demo_data import magic

    X, y = magic()
    order = np.random.default_rng(seed).permutation(len(y))
    low, high = X.min(axis=0), X.max(axis=0)
    return ((X - low) / np.where(high > low, high - low, 1.0))[order], y[order]


def contestants(leg: Leg, folder: Path, redis_port: int, beside: str | None) -> list[Contestant]:
    # A database of the server for each: the keys of one contestant are none of another's.
    numbers = itertools.count()

    def redis() -> str:
        return f"redis://127.0.0.1:{redis_port}/{next(numbers)}"

    found = [
        Contestant("echo", "bench.echo_app:app"),
        Contestant("okl sqlite", OURS, {"OKL_STORE": f"sqlite:///{folder / f'{leg.name}.sqlite3'}"}),
        Contestant("okl redis", OURS, {"OKL_STORE": redis()}),
        Contestant("okl redis step", OURS, {"OKL_STORE": redis()}, steps=True),
        Contestant("river redis", RIVER, {"REDIS_URL": redis()}, most_workers=1),
        Contestant("river watch", RIVER, {"REDIS_URL": redis(), "REDIS_WATCH": "1"}),
    ]
    if find_spec("vowpalwabbit"):
        model = {"MODEL": "vw"}
        found += [
            Contestant("vw redis", RIVER, {"REDIS_URL": redis()} | model, most_workers=1),
        ]
    if beside is not None:
        found.append(Contestant("before redis", OURS, {"OKL_STORE": redis()}, checkout=beside))
    return [one for one in found if leg.workers <= one.most_workers]


def compare(leg: Leg, rounds: int, beside: str | None) -> list[Contestant]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(redis_server())
        runners = contestants(leg, folder, redis.port, beside)
        take_turns(stack, [(runner, leg) for runner in runners], rounds)
    return runners


def take_turns(stack: ExitStack, runners: Sequence[tuple[Contestant, Leg]], rounds: int) -> None:
    """Measure the contestants, which stop with the stack."""
    X, y = rows()
    for runner, leg in runners:
        runner.start(stack, leg)
        warm = max(WARM_UP, leg.sessions)
        runner.burst(X[:warm], y[:warm], keep=False)
    for number, part in enumerate(np.array_split(np.arange(WARM_UP, WARM_UP + rounds), BURSTS)):
        # Forwards and backwards in turn, so that a steady drift cancels.
        for runner, _ in runners if number % 2 == 0 else reversed(runners):
            runner.burst(X[part], y[part])


def show(leg: Leg, runners: Sequence[Contestant]) -> None:
    by_name = {runner.name: runner.rounds_per_s for runner in runners}
    print(f"\n{leg.name}: {leg.clients} client(s), {leg.sessions} session(s), {leg.workers} worker(s)")
    headings = "".join(
        f"{heading:>9}" for heading in ("rounds/s", "p50 us", "p99 us", "CPU us", *BARS.values(), "mistakes")
    )
    print(f"{'':<16}{headings}")
    for runner in runners:
        p50, p99 = p50_p99([latency for several in runner.latencies.values() for latency in several])
        ratios = [f"{runner.rounds_per_s / by_name[bar]:9.2f}" if bar in by_name else f"{'':>9}" for bar in BARS]
        print(
            f"{runner.name:<16}{runner.rounds_per_s:9.0f}{1e6 * p50:9.0f}{1e6 * p99:9.0f}"
            f"{1e6 * runner.cpu_s / runner.rounds:9.0f}{''.join(ratios)}{runner.mistakes / runner.rounds:9.1%}"
        )


def p50_p99(latencies: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(latencies, n=100)
    return cuts[49], cuts[98]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=4_000, help="rounds of each contestant and leg, after the warm-up"
    )
    parser.add_argument("--leg", choices=LEGS, action="append", help="this leg alone; repeatable")
    parser.add_argument("--beside", metavar="CHECKOUT", help="another checkout of this repository, measured too")
    options = parser.parse_args(arguments)
    for name in options.leg or LEGS:
        show(LEGS[name], compare(LEGS[name], options.rounds, options.beside))


if __name__ == "__main__":
    main()
