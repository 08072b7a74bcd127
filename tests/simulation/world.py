"""A small world: three workers on one store, clients with unique inputs that send again what was not answered, and faults.

At the end the history is checked: the session's chain has every acknowledged round once, at the round that was told, save
for what a rollback of the store took; and every worker predicts as a sequential replay of the chain does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np
import uvloop

from okl.errors import IdConflict, Overloaded, PredictionNotFound, ServiceError, StoreTimeout
from okl_core.records.fields import number_of
from okl_core.records.record import as_record
from okl_core.types import F64
from service.replica.cache import Replicas
from service.replica.replica import Replica
from service.replica.snapshots import Snapshots
from service.replica.summaries import Summaries
from service.rounds import Rounds
from service.session.codec import RoundEntry, decode_entry
from service.session.limits import SessionLimits
from service.session.requests import Batch, Predicted, Report, RoundsPlayed, Stepped, Updated
from service.session.session import Session
from service.sessions import Sessions
from service.store.base import Entry, Gone, Limits
from tests.oracles.model_store import ModelStore
from tests.service.definitions import MEAN, RIDGE, define
from tests.service.worker import Steady
from tests.simulation.schedule import Crashed, Link, Schedule

NAME = "s"
WORKERS, CLIENTS, REQUESTS, TRIES = 3, 4, 3, 12
FOREVER_S = 1e9

Told = Predicted | Updated | RoundsPlayed | Stepped


def simulate(seed: int, lies: float = 0.0) -> World:
    """One run, in a loop of its own."""
    world = World(seed, lies)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(world.run())
    return world


class Silent(Summaries):
    """Nobody lists sessions here, and a schedule knows no timers but its own."""

    def note(self, replica: Replica) -> None: ...


@dataclass
class Worker:
    link: Link
    rounds: Rounds
    sessions: Sessions


@dataclass
class Acknowledged:
    """A round that a client was told of: its input, its id if the client knows one, the round, and when."""

    x: float
    id: str | None
    t: int
    epoch: int


@dataclass
class World:
    """`epoch` counts the rollbacks; `kept` has the round to which each of them took the session back."""

    seed: int
    lies: float = 0.0
    schedule: Schedule = field(init=False)
    store: ModelStore = field(init=False)
    workers: list[Worker] = field(init=False)
    told: list[Acknowledged] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    inputs: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.seed)
        random = self.schedule.random
        self.faults = random.choice((0.0, 0.02, 0.1))
        self.kills, self.rollbacks = random.choice((0.0, 0.01)), random.choice((0.0, 0.0, 0.01))
        # The journal is never trimmed, so that the whole history can be read at the end.
        self.store = ModelStore(Limits(tail=1 << 30, tail_bytes=1 << 40))
        self.backup = self.store.fork()
        self.workers = [self._worker() for _ in range(WORKERS)]

    def _worker(self) -> Worker:
        link = Link(self.store, self.schedule, self.faults, self.lies)
        limits = SessionLimits(dim=100, bytes=1 << 30, waiting_s=FOREVER_S, batch=100, answer_bytes=1 << 20)
        scheduler = Steady()
        snapshots = Snapshots(link, scheduler, least_bytes=300, replay_s=FOREVER_S)
        rounds = Rounds(
            link, Replicas(1 << 30), scheduler, snapshots, Silent(link), limits, patience_s=FOREVER_S, queue=1_000
        )
        return Worker(link, rounds, Sessions(link, rounds, limits, most=10))

    async def run(self) -> None:
        learner = RIDGE if self.schedule.random.random() < 0.2 else MEAN
        definition = define(learner, NAME)
        await self.schedule.drain(self._calm().sessions.create(definition))
        self.backup = self.store.fork()
        clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
        await self.schedule.run(clients, self._harm)
        for worker in self.workers:
            worker.link.faults = 0.0
        await self._check()

    def _calm(self) -> Worker:
        worker = self._worker()
        worker.link.faults = 0.0
        return worker

    # -- harm -------------------------------------------------------------------------------------------------------

    def _harm(self) -> None:
        """Perhaps kill a worker and start another, take a backup, or restore the last one under the running workers."""
        random = self.schedule.random
        if random.random() < self.kills:
            place = random.randrange(WORKERS)
            self.workers[place].link.is_cut = True
            self.workers[place] = self._worker()
        if random.random() < self.rollbacks:
            self.backup = self.store.fork()
        elif random.random() < self.rollbacks:
            self.store.restore(self.backup)
            self.epoch += 1
            self.kept.append(self.store.sessions[NAME].tip.round)

    # -- clients ----------------------------------------------------------------------------------------------------

    async def _client(self, number: int) -> None:
        for request in range(REQUESTS):
            id = f"{number}-{request}"
            kind = self.schedule.random.choice((self._late, self._direct, self._step, self._batch))
            await kind(id)
            if self.schedule.random.random() < 0.2:
                await self._ask(lambda worker: worker.rounds.predict(NAME, [0.5], wait=False))

    def _input(self) -> float:
        self.inputs += 1
        return float(self.inputs)

    async def _late(self, id: str) -> None:
        """A prediction, and its truth to any worker."""
        x = self._input()
        if await self._ask(lambda worker: worker.rounds.predict(NAME, [x], id=id)) is not None:
            told = await self._ask(lambda worker: worker.rounds.update(NAME, Report(-x, id)))
            self._note(x, id, told)

    async def _direct(self, id: str) -> None:
        x = self._input()
        send = lambda worker: worker.rounds.update(NAME, Report(-x, id, [x]))  # noqa: E731
        told = await self._ask(send)
        self._note(x, id, told)
        if self.schedule.random.random() < 0.3 and isinstance(told, Updated):
            again, epoch = await self._ask(send), self.epoch
            if isinstance(again, Updated):
                self._note(x, id, again)
                if not self.kept and not (again.is_duplicate and again.t == told.t):
                    self.trouble.append(f"{id} sent again was told {again} after {told} (epoch {epoch})")

    async def _step(self, id: str) -> None:
        """The truth of one input, and the question about the next, whose truth follows alone."""
        x, following = self._input(), self._input()
        told = await self._ask(
            lambda worker: worker.rounds.step(NAME, Report(-x, id, [x]), [following], id=f"{id}-next")
        )
        if isinstance(told, Stepped):
            self._note(x, id, told.update)
            if told.predict is not None:
                answer = await self._ask(lambda worker: worker.rounds.update(NAME, Report(-following, f"{id}-next")))
                self._note(following, f"{id}-next", answer)

    async def _batch(self, id: str) -> None:
        xs = [self._input(), self._input()]
        batch = Batch([[x] for x in xs], [-x for x in xs], id)
        told = await self._ask(lambda worker: worker.rounds.rounds(NAME, batch))
        if isinstance(told, RoundsPlayed):
            for place, x in enumerate(xs):
                self.told.append(Acknowledged(x, id, told.t - len(xs) + place + 1, self.epoch))

    def _note(self, x: float, id: str, told: Told | None) -> None:
        if isinstance(told, Updated):
            self.told.append(Acknowledged(x, id, told.t, self.epoch))

    async def _ask(self, send: Callable[[Worker], Awaitable[Told]]) -> Told | None:
        """The answer; a request that failed is sent again, mostly to another worker. None if it is refused."""
        for _ in range(TRIES):
            try:
                return await send(self.schedule.random.choice(self.workers))
            except (StoreTimeout, Overloaded, Crashed):
                continue
            except (PredictionNotFound, IdConflict) as error:
                # A rollback takes the predictions that wait, and the ids that are remembered, too.
                if not self.kept:
                    self.trouble.append(repr(error))
                return None
            except ServiceError as error:
                self.trouble.append(repr(error))
                return None
        return None

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        assert not self.trouble, self.trouble
        reading = await self.schedule.drain(self.store.read(NAME))
        assert not isinstance(reading, Gone)
        chain = list(self.store.sessions[NAME].entries)
        assert len({entry.id for entry in chain}) == len(chain), "an id is on the chain twice"
        learned = [x for entry in chain for x in _inputs(entry)]
        assert len(set(learned)) == len(learned), "an input was learned twice"
        self._check_told(learned)
        await self._check_copies(chain)

    def _check_told(self, learned: list[float]) -> None:
        latest = {one.x: one for one in self.told}
        for one in latest.values():
            # What a later rollback took back, past the round to which the session went, is gone.
            is_lost = any(one.t > kept for kept in self.kept[max(one.epoch - 1, 0) :])
            if is_lost and (one.x not in learned or learned.index(one.x) + 1 != one.t):
                continue
            assert one.x in learned, f"{one} was acknowledged, and is lost (rollbacks to {self.kept})"
            assert learned[one.t - 1] == one.x, f"{one}: round {one.t} is that of {learned[one.t - 1]}"

    async def _check_copies(self, chain: list[Entry]) -> None:
        """Every worker's copy is what a sequential replay of the chain gives."""
        for worker in self.workers:
            alone = await self.schedule.drain(
                worker.rounds.with_session(NAME, lambda session, *_: session.forecast(_probe()))
            )
            definition = await self.schedule.drain(
                worker.rounds.with_session(NAME, lambda session, *_: session.definition)
            )
            replayed = Session(definition)
            for entry in chain:
                replayed.replay(entry.blob)
            expected = replayed.forecast(_probe()) if chain else alone
            assert abs(alone.value - expected.value) <= 1e-9 * max(1.0, abs(expected.value)), (alone, expected)


def _inputs(entry: Entry) -> list[float]:
    found = decode_entry(entry.blob)
    raws = [found.x] if isinstance(found, RoundEntry) else found.raws
    return [number_of(as_record(raw)["0"]) or 0.0 for raw in raws]


def _probe() -> F64:
    return np.array([0.5])
