"""Rounds over HTTP, side by side: `python -m bench.http [--rounds N] [--client raw|httpx] [--data PATH]`.

One client, one session, one server process each: a prediction, then its truth, on the rows of MAGIC. The contestants
take turns in short legs, so that a drift of the machine meets all of them. Rounds per second count the time that the
client waits for its two answers; CPU is that of the server process alone, Redis not included.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.http_client import CLIENTS, Process, Timed, redis_server, start_app
from okl_core.types import F64

# What `okl serve` runs on. The floor runs on it too, so that it is the floor of the same server.
OUR_PROTOCOL = "service.http_protocol:HttpProtocol"
LEGS = 10
WARM_UP = 100
LEARNER = {
    "kind": "pomdr",
    "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 400, "norm_bound": 25.0},
}


@dataclass
class Contestant:
    name: str
    app: str
    environment: dict[str, str] = field(default_factory=dict)
    is_ours: bool = False
    protocol: str = OUR_PROTOCOL
    latencies: dict[str, list[float]] = field(default_factory=dict)
    cpu_s: float = 0.0
    mistakes: int = 0
    process: Process | None = None
    client: Timed | None = None

    def start(self, stack: ExitStack, client: str) -> None:
        app = start_app(self.app, self.environment, protocol=self.protocol, is_factory=self.is_ours)
        self.process = stack.enter_context(app)
        raw = CLIENTS[client](self.process.port)
        stack.callback(raw.close)
        self.client = Timed(raw, self.latencies)
        if self.is_ours:
            self.client.post("/sessions", {"name": "bench", "learner": LEARNER}, keep=False)

    def play(self, X: F64, y: F64, *, keep: bool = True) -> None:
        """The rows in order: predict, then update."""
        assert self.client is not None
        assert self.process is not None
        before = self.process.cpu_s()
        for x, truth in zip(X.tolist(), y.astype(int).tolist(), strict=True):
            asked = self.client.post("/predict", {"session": "bench", "x": x}, keep=keep)
            told = {"session": "bench", "id": asked["id"], "y": truth}
            self.mistakes += self.client.post("/update", told, keep=keep)["mistake"] and keep
        self.cpu_s += (self.process.cpu_s() - before) * keep

    @property
    def rounds(self) -> int:
        return len(self.latencies["/update"])

    @property
    def rounds_per_s(self) -> float:
        return self.rounds / sum(map(sum, self.latencies.values()))


def rows(path: str | None, seed: int = 0) -> tuple[F64, F64]:
    """MAGIC in a random order, columns scaled to [0, 1]."""
    if path is None:
        from service.demo_data import magic

        X, y = magic()
    else:
        with np.load(path) as archive:
            X, y = archive["X"].astype(np.float64), archive["y"].astype(np.float64)
    order = np.random.default_rng(seed).permutation(len(y))
    low, high = X.min(axis=0), X.max(axis=0)
    return ((X - low) / np.where(high > low, high - low, 1.0))[order], y[order]


def contestants(folder: Path, redis_port: int, names: Sequence[str] | None) -> list[Contestant]:
    # Two databases of one server: the keys of one contestant are none of the other's.
    ours, river = f"redis://127.0.0.1:{redis_port}/0", f"redis://127.0.0.1:{redis_port}/1"
    ours_app = "service.app:create_app"
    field_ = [
        Contestant("echo", "bench.echo_app:app"),
        Contestant("okl sqlite", ours_app, {"OKL_STORE": f"sqlite:///{folder / 'bench.sqlite3'}"}, is_ours=True),
        Contestant("okl redis", ours_app, {"OKL_STORE": ours}, is_ours=True),
        Contestant("river redis", "bench.river_app:app", {"REDIS_URL": river}, protocol="httptools"),
    ]
    return [contestant for contestant in field_ if not names or contestant.name in names]


def compare(arguments: argparse.Namespace) -> list[Contestant]:
    X, y = rows(arguments.data)
    needed = WARM_UP + arguments.rounds
    if needed > len(y):
        raise SystemExit(f"{needed} rounds are asked for, the data has {len(y)} rows")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(redis_server())
        runners = contestants(folder, redis.port, arguments.only)
        for runner in runners:
            runner.start(stack, arguments.client)
            runner.play(X[:WARM_UP], y[:WARM_UP], keep=False)
        for leg, part in enumerate(np.array_split(np.arange(WARM_UP, needed), LEGS)):
            # Forwards and backwards in turn, so that a steady drift cancels.
            for runner in runners if leg % 2 == 0 else reversed(runners):
                runner.play(X[part], y[part])
    return runners


def show(runners: Sequence[Contestant]) -> None:
    floor = next((runner.rounds_per_s for runner in runners if runner.name == "echo"), float("nan"))
    print(
        f"{'':<13}{'rounds/s':>9}{'predict us':>22}{'update us':>22}{'CPU us':>9}{'of the':>8}{'mis-':>8}\n"
        f"{'':<13}{'':>9}{'p50':>11}{'p99':>11}{'p50':>11}{'p99':>11}{'/request':>9}{'floor':>8}{'takes':>8}"
    )
    for runner in runners:
        quantiles = [q for path in ("/predict", "/update") for q in p50_p99(runner.latencies[path])]
        cpu = runner.cpu_s / (2 * runner.rounds)
        print(
            f"{runner.name:<13}{runner.rounds_per_s:9.0f}"
            + "".join(f"{1e6 * q:11.0f}" for q in quantiles)
            + f"{1e6 * cpu:9.0f}{runner.rounds_per_s / floor:8.2f}{runner.mistakes / runner.rounds:8.1%}"
        )
    print(bars({runner.name: runner.rounds_per_s for runner in runners}))


def bars(speed: dict[str, float]) -> str:
    """Our speed in units of what it is measured against: the floor below any FastAPI service, and the usual way."""
    parts = [
        f"{ours} = {speed[ours] / speed[bar]:.2f} x {bar}"
        for ours in ("okl sqlite", "okl redis")
        for bar in ("echo", "river redis")
        if ours in speed and bar in speed
    ]
    return "bars: " + ("; ".join(parts) or "nothing of ours was measured")


def p50_p99(latencies: Sequence[float]) -> tuple[float, float]:
    cuts: list[Any] = statistics.quantiles(latencies, n=100)
    return cuts[49], cuts[98]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5_000, help="rounds of each contestant, after the warm-up")
    parser.add_argument("--client", choices=CLIENTS, default="raw")
    parser.add_argument("--data", metavar="PATH", help="an .npz with X and y in place of MAGIC")
    parser.add_argument("--only", action="append", metavar="NAME", help="measure this contestant alone; repeatable")
    show(compare(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
