"""Acknowledged updates that are lost or doubled: `python -m bench.lost_updates [--updates N] [--store sqlite|redis|both]`.

The usual ways to serve a model that learns beside ours, on the same stream: rows of MAGIC, from eight clients over HTTP to
two worker processes of one model. A client sends an update to either worker, as a load balancer would, and sends it again
with the same id until it is answered. Four situations:

    two workers      nothing else happens
    sent twice       every update is sent a second time after its answer, as a queue with at-least-once delivery does
    worker killed    one worker is killed with SIGKILL in the middle, and started again
    one bad row      one row in the middle holds NaN

Acknowledged are updates that were answered with 2xx. Which of them the model has learned, and how often, is told by the
pickled model itself, which holds a count for each (of two models in two workers, the one that has learned more counts), and
of ours by the journal in the store. The exit code is 1 where ours lost or doubled one, or predicts no more.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.http_client import BadAnswer, RawClient, Timed, redis_server
from bench.processes import Worker
from service.demo_data import magic
from service.demos.tally import UpdateTally, tally
from service.store.base import Gone
from service.store.opening import open_store

CLIENTS = 8
UPDATES = 1_000
PATIENCE_S = 60.0
STARTS_WITHIN_S = 120.0
LABELS = {1.0: "gamma", -1.0: "hadron"}
SESSION: dict[str, Any] = {"learner": {"kind": "aioli"}, "labels": list(LABELS.values()), "snapshot_every": 10**9}
"""A linear logistic learner, as the others'. Without a snapshot the journal holds every round."""

USUAL = "service.demos.usual_way:app"


@dataclass(frozen=True)
class Situation:
    name: str
    heading: str
    times: int = 1
    is_killed: bool = False
    has_bad_row: bool = False


SITUATIONS = (
    Situation("plain", "two workers"),
    Situation("twice", "every update sent twice", times=2),
    Situation("killed", "a worker killed", is_killed=True),
    Situation("bad", "one row with NaN", has_bad_row=True),
)


@dataclass(frozen=True)
class Way:
    """`store` is where the sessions of ours are; the usual ways are told by the first part of the path."""

    name: str
    path: str = ""
    store: str = ""

    @property
    def is_ours(self) -> bool:
        return bool(self.store)

    def times(self, session: str, workers: Sequence[Worker]) -> Mapping[int, int]:
        """How often the model has learned each update, by its number."""
        if self.is_ours:
            return asyncio.run(_in_journal(self.store, session))
        urls = (f"{worker.url}{self.path}/sessions/{session}" for worker in workers)
        best = max((httpx.get(url, trust_env=False).json()["times"] for url in urls), key=len)
        return {int(number): count for number, count in best.items()}


@dataclass(frozen=True)
class Pair:
    """Two worker processes, and the ways that they serve; `where` is the store of the usual ways."""

    ways: Sequence[Way]
    where: str = ""

    def workers(self, log: Path) -> list[Worker]:
        if self.ways[0].is_ours:
            return [Worker(self.ways[0].store, log=log) for _ in range(2)]
        variables = {"USUAL_STORE": self.where, "USUAL_LABEL": "gamma"}
        return [Worker("", log=log, app=USUAL, environment=variables) for _ in range(2)]


async def _in_journal(url: str, session: str) -> Mapping[int, int]:
    store = open_store(url)
    await store.open()
    try:
        reading = await store.read(session)
    finally:
        await store.close()
    assert not isinstance(reading, Gone)
    assert reading.snapshot is None, "the journal is whole only if there is no snapshot"
    assert reading.head.tip.round == len(reading.entries)
    return Counter(_number(entry.id or "") for entry in reading.entries)


def _number(id: str) -> int:
    return int(id.rpartition("-")[2])


@dataclass(frozen=True)
class Cell:
    """One way in one situation."""

    way: Way
    situation: Situation
    tally: UpdateTally
    refused: int
    predicts: bool

    @property
    def holds(self) -> bool:
        return self.tally.is_exact and self.predicts

    def __str__(self) -> str:
        return str(self.tally) + ("" if self.predicts else ", predicts no more")


@dataclass
class Stream:
    """The updates of one way in one situation, from all clients together."""

    way: Way
    situation: Situation
    workers: Sequence[Worker]
    updates: int
    acknowledged: set[int] = field(default_factory=set)
    refused: int = 0
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = iter(range(self.updates))
        self._lock = threading.Lock()
        self._X, self._y = magic()
        self._is_back = threading.Event()

    @property
    def path(self) -> str:
        return f"{self.way.path}/sessions/{self.situation.name}"

    def play(self) -> Cell:
        if self.way.is_ours:
            with self.workers[0].connection() as connection:
                connection.post("/sessions", {"name": self.situation.name, **SESSION})
        threads = [threading.Thread(target=self._client, args=(seed,)) for seed in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        times = self.way.times(self.situation.name, self.workers)
        return Cell(self.way, self.situation, tally(self.acknowledged, times), self.refused, self._predicts())

    def _client(self, seed: int) -> None:
        draw = random.Random(seed)
        connections: dict[int, Timed] = {}
        try:
            for number in self._following():
                if self.situation.is_killed:
                    self._kill_or_wait(number)
                for _ in range(self.situation.times):
                    self._send(number, draw, connections)
        except Exception as error:
            self.errors.append(error)
        finally:
            for connection in connections.values():
                connection.client.close()

    def _kill_or_wait(self, number: int) -> None:
        """In the middle the worker is killed; for the last quarter of the updates it is back."""
        if number == self.updates // 2:
            self.workers[0].kill()
            try:
                self.workers[0].start(STARTS_WITHIN_S)
            finally:
                self._is_back.set()
        elif number >= self.updates * 3 // 4:
            self._is_back.wait()

    def _following(self) -> Iterator[int]:
        while not self.errors:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            yield number

    def _send(self, number: int, draw: random.Random, connections: dict[int, Timed]) -> None:
        """To either worker, until one of them answers."""
        x = self._X[number].tolist()
        if self.situation.has_bad_row and number == self.updates // 2:
            x[3] = math.nan
        body = {"id": f"update-{number}", "x": x, "y": LABELS[self._y[number]]}
        give_up = time.monotonic() + PATIENCE_S
        while True:
            port = draw.choice(self.workers).port
            try:
                if port not in connections:
                    connections[port] = Timed(RawClient(port), {})
                connections[port].post(f"{self.path}/update", body, keep=False)
            except BadAnswer:
                with self._lock:
                    self.refused += 1
                return
            except (OSError, ValueError):
                if (broken := connections.pop(port, None)) is not None:
                    broken.client.close()
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
            else:
                with self._lock:
                    self.acknowledged.add(number)
                return

    def _predicts(self) -> bool:
        """Whether each worker gives a finite probability."""
        for worker in self.workers:
            asked = {"x": self._X[-1].tolist(), "wait": False}
            answer = httpx.post(f"{worker.url}{self.path}/predict", json=asked, trust_env=False)
            probability = answer.json().get("probability") if answer.is_success else None
            if probability is None or not math.isfinite(probability):
                return False
        return True


def measure(pair: Pair, situations: Sequence[Situation], updates: int, log: Path) -> Iterator[Cell]:
    workers = pair.workers(log)
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.start(STARTS_WITHIN_S), workers))
        for way in pair.ways:
            for situation in situations:
                yield Stream(way, situation, workers, updates).play()
    finally:
        for worker in workers:
            worker.kill()


@contextmanager
def pairs(store: str, is_alone: bool) -> Iterator[list[Pair]]:
    """The usual ways use Redis where ours does too, else files."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found: list[Pair] = []
        if store == "sqlite":
            redis, kept, where = "", "a file", str(folder)
        else:
            redis = f"redis://127.0.0.1:{stack.enter_context(redis_server()).port}"
            kept, where = "Redis", f"{redis}/1"
        usual = [
            Way("FastAPI + River, in memory of each worker", "/memory"),
            Way(f"FastAPI + River, a snapshot to {kept} every 100 updates", "/snapshots"),
            Way(f"FastAPI + River, pickled to {kept} after each update", "/pickled"),
        ]
        if redis:
            usual.append(Way("the same in a transaction (WATCH)", "/watched"))
        if not is_alone:
            found.append(Pair(usual, where))
        if store != "redis":
            found.append(Pair([Way("**okl on SQLite**", store=f"sqlite:///{folder / 'okl.sqlite3'}")]))
        if store != "sqlite":
            found.append(Pair([Way("**okl on Redis**", store=f"{redis}/0")]))
        yield found


def show(cells: Sequence[Cell], situations: Sequence[Situation]) -> None:
    print("\n| | situation | acknowledged | learned | lost | doubled | refused | predicts |")
    print("|---|---|---|---|---|---|---|---|")
    for cell in cells:
        numbers = " | ".join(f"{number:,}" for number in (*cell.tally, cell.refused))
        print(f"| {cell.way.name} | {cell.situation.heading} | {numbers} | {'yes' if cell.predicts else 'no'} |")
    print(f"\n| | {' | '.join(situation.heading for situation in situations)} |")
    print("|---" * (len(situations) + 1) + "|")
    for way in dict.fromkeys(cell.way for cell in cells):
        print(f"| {way.name} | {' | '.join(str(cell) for cell in cells if cell.way is way)} |")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=UPDATES, help="of each way in each situation")
    parser.add_argument("--store", choices=("sqlite", "redis", "both"), default="both", help="the store of ours")
    parser.add_argument("--alone", action="store_true", help="ours without the usual ways")
    parser.add_argument("--situation", choices=[one.name for one in SITUATIONS], action="append", help="repeatable")
    options = parser.parse_args(arguments)
    situations = [one for one in SITUATIONS if not options.situation or one.name in options.situation]
    cells: list[Cell] = []
    started = time.monotonic()
    with pairs(options.store, options.alone) as contestants, tempfile.TemporaryDirectory() as logs:
        for number, pair in enumerate(contestants):
            for cell in measure(pair, situations, options.updates, Path(logs) / str(number)):
                cells.append(cell)
                print(f"{time.monotonic() - started:4.0f} s  {cell.way.name}: {cell.situation.name}", file=sys.stderr)
    show(cells, situations)
    return int(not all(cell.holds for cell in cells if cell.way.is_ours))


if __name__ == "__main__":
    sys.exit(main())
