"""Rounds that take long all of a sudden: nobody beside them waits for much more than one turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

import pytest

from okl_core import register
from service.api.dependencies import Worker
from service.app import make_worker
from service.replica.scheduling import THREAD_FROM_S, TURN_S
from service.replica.tickets import Sender
from service.session.requests import Batch, Question, Report, Updated, as_result
from service.settings import Settings
from service.store.sqlite import SqliteStore
from tests.contract.broken import Sleepy
from tests.service.definitions import define
from tests.service.worker import Gate, Steady, Watched, settle, together, told, working

pytestmark = pytest.mark.anyio

SLOW, SLOW_S = 100.0, 0.02
SHORT_S = 0.001
MESSAGES, ROWS = 60, 20


class Weary(Sleepy):
    """Takes long for large inputs."""

    kind: ClassVar[str] = "weary"

    def play(self, config: Any, state: Any, x: Any, y: float, rng: Any) -> Any:
        if x[0] >= SLOW:
            time.sleep(SLOW_S)
        return super().play(config, state, x, y, rng)


class Even(Sleepy):
    """Takes the same short time for every round, and tells in which threads."""

    kind: ClassVar[str] = "even"
    threads: ClassVar[list[threading.Thread]] = []

    def play(self, config: Any, state: Any, x: Any, y: float, rng: Any) -> Any:
        time.sleep(SHORT_S)
        self.threads.append(threading.current_thread())
        return super().play(config, state, x, y, rng)


def report(x: float, id: str | None = None) -> Report:
    return Report(1.0, id, [x])


@asynccontextmanager
async def quick_until_now(store: SqliteStore) -> AsyncIterator[Worker]:
    """The store answers on the event loop and the rounds were quick, so that a turn is taken for work of a moment."""
    register(Weary)
    worker = make_worker(Settings(store="sqlite://"), store)
    await worker.sessions.create(define({"kind": "weary"}))
    for _ in range(200):
        await worker.rounds.update("s", report(1.0))
    yield worker
    await worker.close()


@contextmanager
def bystander() -> Iterator[list[float]]:
    """For how long others had to wait for their turn, each time."""
    waits: list[float] = []

    async def look() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0)
            waits.append(time.perf_counter() - begun)

    watching = asyncio.ensure_future(look())
    try:
        yield waits
    finally:
        watching.cancel()


async def test_rounds_that_turn_slow_hold_up_no_other_session(clocked: SqliteStore, own_registry: None) -> None:
    sender = Sender()
    async with quick_until_now(clocked) as worker:
        with bystander() as waits:
            begun = [worker.rounds.begin("s", [report(SLOW)], sender) for _ in range(MESSAGES)]
            answers = [as_result(Updated, (await one)[0]).t for one in begun]
    assert answers == [*range(201, 201 + MESSAGES)]
    assert max(waits) < TURN_S + MESSAGES * SLOW_S / 2


@pytest.mark.parametrize("sessions", [1, 4])
async def test_turns_of_short_rounds_let_others_have_their_turn(
    clocked: SqliteStore, own_registry: None, sessions: int
) -> None:
    """However many sessions are busy. Rounds in a thread would compete with the event loop for the interpreter."""
    register(Even)
    worker = make_worker(Settings(store="sqlite://"), clocked)
    names = [f"s{number}" for number in range(sessions)]
    for name in names:
        await worker.sessions.create(define({"kind": "even"}, name))
        for _ in range(20):
            await worker.rounds.update(name, report(1.0))
    Even.threads.clear()
    with bystander() as waits:
        begun = [
            worker.rounds.begin(name, [report(1.0)], sender)
            for name in names
            if (sender := Sender())
            for _ in range(MESSAGES)
        ]
        await asyncio.gather(*begun)
    await worker.close()
    assert Even.threads.count(threading.main_thread()) > sessions * MESSAGES / 2
    # Rounds that took SHORT_S each were played in shares of at most THREAD_FROM_S.
    assert sum(wait > SHORT_S for wait in waits) > sessions * MESSAGES * SHORT_S / THREAD_FROM_S / 2


async def test_a_block_that_turns_slow_holds_up_no_other_session(clocked: SqliteStore, own_registry: None) -> None:
    """Nor does the replay of its rounds at a worker that has seen quick ones only."""
    block = Batch([[SLOW]] * ROWS, [1.0] * ROWS)
    other = make_worker(Settings(store="sqlite://"), clocked)
    async with quick_until_now(clocked) as worker:
        assert (await other.sessions.inspect("s")).t == 200
        with bystander() as waits:
            assert (await worker.rounds.rounds("s", block)).t == 200 + ROWS
            assert (await other.sessions.inspect("s")).t == 200 + ROWS
    await other.close()
    assert max(waits) < TURN_S + ROWS * SLOW_S / 2


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_request_overtakes_a_stream_that_was_quicker(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    """But not one that names an id of those in front of it: its prediction is among them."""
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define())
        await worker.rounds.update("s", report(1.0))
        sender, gate = Sender(), Gate(watched)
        begun = [worker.rounds.begin("s", [report(1.0)], sender)]
        await gate.arrived.wait()
        begun += [worker.rounds.begin("s", [report(1.0)], sender) for _ in range(39)]
        begun.append(worker.rounds.begin("s", [Question([1.0], "p")], sender))
        truth = Report(1.0, "p") if is_named else report(1.0)
        asked = together(worker.rounds.update("s", truth))
        await settle()
        monkeypatch.setattr(Steady, "round_s", 0.1)
        gate.open()
        # Of a tenth of a second each, ten fit into the second that a request may wait for a stream.
        assert [answer.t for answer in await told(asked)] == [42 if is_named else 2 + 11 + 1]
        await asyncio.wait(begun)
        ts = [as_result(Updated, (await one)[0]).t for one in begun[:-1]]
        assert ts == sorted(ts)
