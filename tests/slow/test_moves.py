"""A live session moves from SQLite to Redis and back while a client streams and its movers are killed: no round is lost,
and none is learned twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import okl_core
from bench.processes import Worker
from okl.client import Client
from okl.errors import ServiceError, SessionMoved, SessionMoving, SessionNotFound
from service.demo_data import magic
from tests.budget import TIMES
from tests.warm import warm

X, Y = magic()
LEARNER: dict[str, Any] = {"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 100}}
KILLS = 3 * TIMES
PATIENCE_S = 60.0
LATE = 5
"""So many predictions wait at a time, so that some move while they wait."""


class Streaming(threading.Thread):
    """Predicts and reports rows in order, each truth LATE rows later; follows redirections and retries until answered."""

    def __init__(self, first: str) -> None:
        super().__init__(daemon=True)
        self.urls = [first]
        self.row = 0
        self.scores: dict[int, float] = {}
        self.trouble: str | None = None
        self.is_ending = threading.Event()
        self.longest_s = 0.0
        self.hops = 0
        self._client = Client(first)

    def run(self) -> None:
        try:
            while not (self.is_ending.is_set() and self.row > LATE):
                row = self.row
                told = self.ask(lambda row=row: self._client.predict("s", X[row % len(X)].tolist(), id=f"r{row}"))
                self.scores[row] = told["score"]
                if row >= LATE:
                    due = row - LATE
                    told = self.ask(lambda due=due: self._client.update("s", int(Y[due % len(X)]), id=f"r{due}"))
                    assert told["t"] == due + 1, told
                self.row += 1
        except Exception as error:
            self.trouble = repr(error)
        finally:
            self._client.close()

    def ask(self, call: Any) -> Any:
        begun = time.monotonic()
        while True:
            try:
                answer = call()
            except SessionMoved as error:
                self._client.close()
                self._client = Client(error.extra["location"])
                self.hops += 1
            except (SessionMoving, SessionNotFound):
                time.sleep(0.02)
            else:
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                return answer
            if time.monotonic() - begun > PATIENCE_S:
                raise ServiceError("nobody answers")


def mover(source: str, target: str, tell: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "service.start", "move", "s", "--store", source, "--to", target, "--tell", tell]
    return warm(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_for_rows(client: Streaming, rows: int) -> None:
    until, give_up = client.row + rows, time.monotonic() + PATIENCE_S
    while client.row < until and client.trouble is None and time.monotonic() < give_up:
        time.sleep(0.01)


def test_a_live_session_moves_there_and_back(tmp_path: Path, redis_url: str) -> None:
    dice = random.Random(7)
    stores = f"sqlite:///{tmp_path / 'okl.sqlite3'}", redis_url
    workers = [Worker(store, snapshot_min_bytes=2_000) for store in stores]
    for worker in workers:
        worker.start()
    try:
        with Client(workers[0].url) as client:
            client.create("s", LEARNER, labels=[-1, 1], strict=True, scale={"kind": "none"})
        streaming = Streaming(workers[0].url)
        streaming.start()
        wait_for_rows(streaming, 30)
        took_s: float | None = None
        for source, target in ((0, 1), (1, 0)):
            for _ in range(KILLS):
                process = mover(stores[source], stores[target], workers[target].url)
                time.sleep(dice.uniform(0.0, took_s or 0.2))
                process.kill()
                process.communicate()
            begun = time.monotonic()
            process = mover(stores[source], stores[target], workers[target].url)
            told, _ = process.communicate(timeout=PATIENCE_S)
            took_s = took_s or time.monotonic() - begun
            assert process.returncode == 0, told
            wait_for_rows(streaming, 30)
        streaming.is_ending.set()
        streaming.join(PATIENCE_S)
        assert streaming.trouble is None
        assert streaming.hops >= 2
        with Client(workers[0].url) as client:
            found = client.inspect("s")
        assert (found["t"], found["waiting"]) == (streaming.row - LATE, LATE)
        learner = okl_core.create(LEARNER, X.shape[1])
        for row in range(streaming.row):
            assert abs(streaming.scores[row] - learner.predict(X[row % len(X)]).value) < 1e-9
            if row >= LATE:
                learner.update(X[(row - LATE) % len(X)], Y[(row - LATE) % len(X)])
        print(f"{streaming.row} rows, longest answer {streaming.longest_s:.2f} s")
    finally:
        for worker in workers:
            worker.kill()
