"""The faults of a run: a schedule that follows from the seed, and one fault after the other as the rounds go on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import NamedTuple, final

from bench.history.allotment import Allotment
from bench.history.attempts import Cut, Fault, History
from bench.history.inputs import DIM, LEARNERS
from bench.history.own_store import EVERYSEC_LOSS_S, STARTED_WITHIN_S, Now, OwnStore
from bench.history.raw_http import Connection
from bench.processes import Worker

FIRST, LAST = 0.04, 0.9
"""The faults come in this share of the rounds."""

BETWEEN_S = (1.0, 3.0)
APART_S = EVERYSEC_LOSS_S + 0.5
"""A fault may lose what is younger than this: a session that was made anew before must be older."""

WORKER_TOO = 0.3
"""How often a fault of the store takes a worker with it."""

TRIES_S = 30.0


class Planned(NamedTuple):
    kind: str
    at: int
    """Rounds that were given out."""


def schedule(dice: Random, kinds: Sequence[str], each: int, rounds: int) -> Sequence[Planned]:
    """`each` faults of each kind in random order; an older backup comes back some faults after it was taken."""
    order = [kind for kind in kinds for _ in range(each)]
    dice.shuffle(order)
    for place in reversed([i for i, kind in enumerate(order) if kind == "restore-backup"]):
        order.insert(max(0, place - dice.randint(0, 2)), "take-backup")
    step = (LAST - FIRST) * rounds / max(1, len(order))
    return [Planned(kind, int(FIRST * rounds + (i + dice.uniform(0.0, 0.8)) * step)) for i, kind in enumerate(order)]


@final
class Injection:
    """Runs in a thread of its own, and writes into the history."""

    def __init__(
        self,
        plan: Sequence[Planned],
        store: OwnStore,
        workers: Sequence[Worker],
        allotment: Allotment,
        history: History,
        began: float,
        now: Now,
    ) -> None:
        self._plan = plan
        self._store = store
        self._workers = workers
        self._allotment = allotment
        self._history = history
        self._began = began
        self._now = now
        self._dice = Random(f"{history.seed}-faults")
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for planned in self._plan:
                while self._allotment.given < planned.at and not self._allotment.is_held:
                    time.sleep(0.01)
                self._have(planned.kind)
                time.sleep(self._dice.uniform(*BETWEEN_S))
        except BaseException as error:
            self.error = error
        finally:
            self._allotment.end_faults()

    def _have(self, kind: str) -> None:
        if kind == "recreate":
            self._recreate()
            return
        latest = max((cut.end for cut in self._history.cuts), default=-math.inf)
        time.sleep(max(0.0, latest + APART_S - self._now()))
        self._store.settle()
        fault = Fault(kind, self._now())
        self._history.faults.append(fault)
        if kind == "kill-worker":
            fault.detail = self._kill_workers(self._dice.choice((1, 1, 1, 2)))
        elif kind == "upgrade":
            fault.detail = self._upgrade()
        else:
            fault.detail = self._strike(kind)
        fault.end = self._now()

    def _kill_workers(self, count: int) -> str:
        victims = self._dice.sample(range(len(self._workers)), count)
        for victim in victims:
            self._kill(victim)
        time.sleep(self._dice.choice((0.0, 0.0, 0.5, 2.0)))
        self._start(victims)
        return f"kill -9 of worker {' and '.join(map(str, victims))}"

    def _upgrade(self) -> str:
        """As a new version is rolled out: one worker after the other is stopped, in its own time, and started."""
        for i, worker in enumerate(self._workers):
            worker.stop()
            self._start([i])
        return "all workers stopped and started, one after the other"

    def _strike(self, kind: str) -> str:
        victims = [self._dice.randrange(len(self._workers))] if self._dice.random() < WORKER_TOO else []
        for victim in victims:
            self._kill(victim)
        told, cuts = self._store.inject(kind, self._dice)
        self._history.cuts.extend(cuts)
        self._start(victims)
        return told + (f", and kill -9 of worker {victims[0]}" if victims else "")

    def _kill(self, victim: int) -> None:
        if self._workers[victim].process.poll() is not None:
            self._history.died.append(f"worker {victim} had ended by itself before {self._now():.1f} s")
        self._workers[victim].kill()

    def _start(self, victims: Sequence[int]) -> None:
        def start(victim: int) -> None:
            try:
                self._workers[victim].start(STARTED_WITHIN_S)
            except RuntimeError:
                self._history.died.append(f"worker {victim} did not start again before {self._now():.1f} s")

        with ThreadPoolExecutor(max(1, len(victims))) as pool:
            list(pool.map(start, victims))

    def _recreate(self) -> None:
        """A session is deleted, and made again under the same name."""
        name = self._dice.choice(list(self._history.kinds))
        start = self._now()
        self._insist("DELETE", f"/sessions/{name}", None, (204, 404))
        self._insist("POST", "/sessions", definition(name, self._history.kinds[name]), (201, 409))
        self._history.cuts.append(Cut("recreate", name, -math.inf, -math.inf, start, self._now()))

    def _insist(self, method: str, path: str, body: object, expected: Sequence[int]) -> None:
        deadline = time.monotonic() + TRIES_S
        while True:
            connection = Connection(self._dice.choice(self._workers).port, self._began, timeout_s=15.0)
            heard = connection.request(method, path, body)
            connection.close()
            if heard.status in expected:
                return
            if heard.status not in (None, 503, 504) or time.monotonic() > deadline:
                raise RuntimeError(f"{method} {path}: {heard.status} {heard.problem} {heard.body}")
            time.sleep(0.1)


def definition(name: str, kind: str) -> dict[str, object]:
    """The body that makes a session."""
    learner = {"kind": kind, "config": dict(LEARNERS[kind])}
    return {"name": name, "learner": learner, "dim": DIM, "strict": True, "scale": {"kind": "none"}}
