"""Commits that fail, and commits whose reply is lost."""

from __future__ import annotations

import asyncio

import pytest

from okl.errors import (
    StoreTimeout,
    StoreUnavailable,
)
from service.api.dependencies import Worker
from service.replica.tickets import Sender
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
    repeated_result = await asyncio.gather(*(worker.rounds.begin("s", [direct(i, f"a{i}")], again) for i in range(3)))
    assert [answer[0].t for answer in repeated_result] == [2, 3, 4]
