"""Commits that fail, and commits whose reply is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from okl.errors import IdConflict, StoreTimeout, StoreUnavailable
from service.api.dependencies import Worker
from service.replica.tickets import Sender
from service.session.requests import Question, Report
from tests.service.definitions import RIDGE, define
from tests.service.worker import (
    DATA,
    Call,
    Gate,
    Watched,
    direct,
    replayed,
    settle,
    together,
    told,
)

pytestmark = pytest.mark.anyio

X = DATA.tolist()


@pytest.mark.parametrize("is_late", [False, True], ids=["never made", "reply lost"])
@pytest.mark.parametrize("count", [1, 5])
async def test_a_commit_that_fails_is_told_to_all_of_its_turn(
    worker: Worker, watched: Watched, count: int, is_late: bool
) -> None:
    """The clients send the same again, and each round is learned once."""
    await worker.sessions.create(define(RIDGE))
    await worker.rounds.update("s", direct(50))
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", direct(51)))
    await gate.arrived.wait()
    tasks += together(*(worker.rounds.update("s", direct(i, f"u{i}")) for i in range(count)))
    await settle()
    gate.open()
    watched.fail(StoreTimeout("Lost."), "commit", is_late=is_late)
    answers = await told(tasks)
    assert [type(answer) for answer in answers[1:]] == [StoreTimeout] * count
    watched.work()
    again = await told(together(*(worker.rounds.update("s", direct(i, f"u{i}")) for i in range(count))))
    first_was_durable = not isinstance(answers[0], Exception) or is_late
    assert first_was_durable or not is_late
    assert [answer.is_duplicate for answer in again] == [is_late] * count
    session = await replayed(watched.store)
    found = await worker.sessions.inspect("s")
    assert session.t == found.t
    issued = await worker.rounds.predict("s", X[300], wait=False)
    assert issued.answer.value == session.forecast(DATA[300]).value


async def test_a_store_that_is_away_is_told_at_once_and_the_copy_stays(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define(RIDGE))
    for i in range(5):
        await worker.rounds.update("s", direct(i))
    watched.fail(StoreUnavailable("It is away."))
    for asked in (worker.rounds.update("s", direct(9)), worker.rounds.predict("s", X[0]), worker.sessions.inspect("s")):
        with pytest.raises(StoreUnavailable):
            await asked
    watched.work()
    watched.calls.clear()
    assert (await worker.rounds.update("s", direct(5))).t == 6
    assert not watched.of("read")


async def test_a_repeated_stream_finds_all_its_ids_at_once(worker: Worker, watched: Watched) -> None:
    """A client whose connection broke sends predictions and truths again. Each refused commit names only one id."""
    await worker.sessions.create(define(RIDGE))
    await worker.rounds.update("s", direct(50))

    async def send() -> list[list[Any]]:
        parts = [part for i in range(40) for part in (Question(X[i], f"p{i}"), Report(float(i % 2), f"p{i}"))]
        begun = [worker.rounds.begin("s", [part]) for part in parts]
        return [await one for one in begun]

    first = await send()
    watched.calls.clear()
    again = await send()
    assert len(watched.of("read")) <= 4
    assert [one[0]._replace(is_duplicate=False) for one in again[1::2]] == [one[0] for one in first[1::2]]
    assert all(isinstance(one[0], IdConflict) for one in again[::2])
    assert (await worker.sessions.inspect("s")).t == 41


async def test_a_summary_waits_for_the_rounds_to_be_durable(worker: Worker, watched: Watched) -> None:
    """A turn of several rounds learns ahead, and its commit may fail."""
    await worker.sessions.create(define(RIDGE))
    await worker.rounds.update("s", direct(50))
    gate = Gate(watched)
    tasks = [worker.rounds.begin("s", [direct(i)]) for i in range(5)]
    await gate.arrived.wait()
    await worker.rounds.summaries.close()
    early = watched.of("summarize")
    gate.open()
    await asyncio.gather(*tasks)
    await worker.rounds.close()
    await worker.rounds.summaries.close()
    assert not early
    assert [call.arguments[1].round for call in watched.of("summarize")] == [6]


async def test_what_a_sender_has_under_way_is_done_in_its_order_or_not_at_all(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define(RIDGE))
    arrived, opened, commits = asyncio.Event(), asyncio.Event(), 0

    async def the_first_fails(call: Call) -> None:
        nonlocal commits
        if call.method == "commit":
            commits += 1
            if commits == 1:
                arrived.set()
                await opened.wait()
                raise StoreTimeout("Lost.")

    watched.before = the_first_fails
    sender = Sender()
    under_way = [worker.rounds.begin("s", [direct(0, "a0")], sender)]
    await arrived.wait()
    under_way += [worker.rounds.begin("s", [direct(i, f"a{i}")], sender) for i in (1, 2)]
    others = worker.rounds.begin("s", [direct(9, "b")], Sender())
    opened.set()
    answers = await asyncio.gather(*under_way, others, return_exceptions=True)
    assert [type(answer) for answer in answers[:3]] == [StoreTimeout] * 3
    assert answers[3][0].t == 1
    again = Sender()
    again_told = await asyncio.gather(*(worker.rounds.begin("s", [direct(i, f"a{i}")], again) for i in range(3)))
    assert [answer[0].t for answer in again_told] == [2, 3, 4]
