"""The requests that queue at a session: how many, for how long, and what becomes of them."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from starlette.types import Scope

from okl.errors import (
    Overloaded,
)
from service.api.conversation import Frame
from service.api.dependencies import Worker
from service.api.round_schemas import UpdateBody
from service.replica.tickets import Sender
from service.session.requests import Report
from tests.oracles.model_store import ModelStore
from tests.service.api import serving_on
from tests.service.definitions import define
from tests.service.worker import (
    Call,
    Clock,
    Gate,
    Watched,
    settle,
    together,
    told,
    working,
)

pytestmark = pytest.mark.anyio


async def test_a_full_queue_is_told(watched: Watched) -> None:
    async with working(watched.as_store, max_queue=5) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched)
        tasks = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await gate.arrived.wait()
        tasks += together(*(worker.rounds.update("s", Report(1.0, None, [1.0])) for _ in range(8)))
        await settle()
        # Those that find the queue full are told so at once.
        assert [task.done() for task in tasks] == [False] * 6 + [True] * 3
        gate.open()
        answers = await told(tasks)
        assert [type(answer) for answer in answers[6:]] == [Overloaded] * 3
        assert [answer.t for answer in answers[:6]] == [1, 2, 3, 4, 5, 6]


async def test_streams_leave_room_in_a_queue_for_requests(watched: Watched) -> None:
    """Their messages can wait; and each stream may have one there, so that it goes on."""
    async with working(watched.as_store, max_queue=8) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched)
        tasks = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await gate.arrived.wait()
        senders = [Sender(), Sender()]
        message = [Report(1.0, None, [1.0])]
        begun = [worker.rounds.begin("s", message, senders[0]) for _ in range(6)]
        with pytest.raises(Overloaded):
            worker.rounds.begin("s", message, senders[0])
        begun.append(worker.rounds.begin("s", message, senders[1]))
        with pytest.raises(Overloaded):
            worker.rounds.begin("s", message, senders[1])
        tasks += together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await settle()
        gate.open()
        assert [answer.t for answer in await told(tasks)] == [1, 9]
        await asyncio.wait(begun)
        assert (await worker.rounds.begin("s", message, senders[0]))[0]


async def test_streams_leave_a_queue_short_where_rounds_take_long(watched: Watched) -> None:
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define())
        await worker.rounds.update("s", Report(1.0, None, [1.0]))
        sender, message = Sender(), [Report(1.0, None, [1.0])]
        gate = Gate(watched)
        begun = [worker.rounds.begin("s", message, sender)]
        await gate.arrived.wait()

        worker.rounds.replicas.enter("s").round_s = 0.1
        begun += [worker.rounds.begin("s", message, sender) for _ in range(11)]
        with pytest.raises(Overloaded):
            worker.rounds.begin("s", message, sender)
        asked = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await settle()
        gate.open()
        assert [answer.t for answer in await told(asked)] == [14]
        await asyncio.wait(begun)


async def test_one_request_shows_first_how_long_a_round_takes(watched: Watched) -> None:
    """Until then a stream has one message in the queue, so that a request beside it waits for few rounds, however slow."""
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define())
        message = [Report(1.0, None, [1.0])]
        senders = [Sender() for _ in range(8)]
        begun = [worker.rounds.begin("s", message, sender) for sender in senders]
        with pytest.raises(Overloaded):
            worker.rounds.begin("s", message, senders[0])
        await asyncio.wait(begun)
        assert [len(call.entries) for call in watched.of("commit")] == [1, 7]
        begun = [worker.rounds.begin("s", message, senders[0]) for _ in range(20)]
        await asyncio.wait(begun)
        assert len(watched.of("commit")) == 3


async def test_nobody_is_missed_where_a_stream_ends_in_a_full_queue(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """What its last messages were told is no error that was overlooked."""

    async def frames() -> AsyncGenerator[Frame]:
        yield Frame([UpdateBody(id="nothing", y=1.0)] * 8, 100, b"".join)

    async with working(watched.as_store, max_queue=4) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched)
        asked = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await gate.arrived.wait()
        scope: Scope = {"type": "websocket", "path": "/"}
        async with aclosing(worker.conversations.answers("s", frames(), scope)) as answers:
            waiting = asyncio.ensure_future(anext(answers))
            await settle()
            worker.conversations.close()
            await settle()
            gate.open()
            with pytest.raises(StopAsyncIteration):
                await waiting
        await told(asked)
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_a_message_is_answered_though_the_worker_stops_while_it_loads_the_session(watched: Watched) -> None:
    """Those after it in the frame, which wait to know how large an answer is, are refused."""

    async def frames() -> AsyncGenerator[Frame]:
        yield Frame([UpdateBody(x=[1.0], y=1.0)] * 3, 100, lambda answers: b"[" + b",".join(answers) + b"]")

    async with working(watched.as_store) as worker:
        await worker.sessions.make(define())
        gate = Gate(watched, "read")
        async with aclosing(worker.conversations.answers("s", frames(), {"type": "websocket", "path": "/"})) as answers:
            waiting = asyncio.ensure_future(anext(answers))
            await gate.arrived.wait()
            worker.conversations.close()
            gate.open()
            first, *rest = json.loads(await waiting)
        assert first["t"] == 1
        assert [one["refused"]["status"] for one in rest] == [503, 503]


async def test_a_conversation_that_begins_while_the_worker_stops_ends_at_once(watched: Watched) -> None:
    """It was let in just before; nothing would end its reading."""

    async def frames() -> AsyncGenerator[Frame]:
        await asyncio.Event().wait()
        yield Frame([], 0, b"".join)

    async with working(watched.as_store) as worker:
        worker.conversations.close()
        async with asyncio.timeout(10.0), aclosing(worker.conversations.answers("s", frames(), {})) as answers:
            assert [answer async for answer in answers] == []


async def test_a_full_queue_says_when_to_try_again(watched: Watched) -> None:
    async with serving_on(watched.as_store, max_queue=1) as api:
        await api.create()
        gate = Gate(watched)
        tasks = together(*(api.http.post("/sessions/s/update", json={"x": [1.0], "y": 1.0}) for _ in range(4)))
        await gate.arrived.wait()
        refused = asyncio.as_completed(tasks, timeout=30)
        assert {(await next(refused)).status_code for _ in range(2)} == {503}
        gate.open()
        answers = await told(tasks)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
        for answer in answers:
            if answer.status_code == 503:
                assert answer.headers["retry-after"] == "1"
                assert answer.json()["type"] == "/problems/overloaded"


async def test_who_is_gone_from_the_queue_is_not_served(watched: Watched) -> None:
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched)
        tasks = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await gate.arrived.wait()
        gone = together(*(worker.rounds.update("s", Report(1.0, None, [1.0])) for _ in range(3)))
        await settle()
        for task in gone:
            task.cancel()
        await settle()
        gate.open()
        assert [answer.t for answer in await told(tasks)] == [1]
        assert (await worker.rounds.update("s", Report(1.0, None, [1.0]))).t == 2


async def test_the_deadline_includes_the_wait_in_the_queue(watched: Watched, clock: Clock) -> None:
    """Behind one slow turn all are refused when their time is over, not one after the other."""
    async with working(watched.as_store, patience_s=10.0) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched)
        tasks = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await gate.arrived.wait()
        tasks += together(*(worker.rounds.update("s", Report(1.0, None, [1.0])) for _ in range(50)))
        await settle()
        clock.skip(5.0)
        tasks += together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in tasks)
        clock.skip(5.1)
        await asyncio.sleep(0.01)
        assert [task.done() for task in tasks] == [False] + [True] * 50 + [False]
        gate.open()
        answers = await told(tasks)
        assert [type(answer) for answer in answers[1:51]] == [Overloaded] * 50
        # The first was being committed: it is answered however long that takes.
        assert (answers[0].t, answers[51].t) == (1, 2)
        assert (await worker.sessions.inspect("s")).t == 2


async def test_a_worker_that_is_never_first_gives_up_in_time(clock: Clock) -> None:
    store = ModelStore(clock=clock)
    watched = Watched(store)
    async with working(watched.as_store, patience_s=10.0) as second, working(store) as first:
        await first.sessions.create(define())

        async def before(call: Call) -> None:
            if call.method == "commit":
                clock.skip(1.0)
                await first.rounds.update("s", Report(1.0, None, [1.0]))

        watched.before = before
        with pytest.raises(Overloaded):
            await second.rounds.update("s", Report(2.0, None, [1.0]))
        assert 5 <= len(watched.of("commit")) <= 15


async def test_a_request_whose_client_has_gone_is_not_played(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define())
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
    await gate.arrived.wait()
    tasks += together(*(worker.rounds.update("s", Report(1.0, None, [1.0])) for _ in range(3)))
    await settle()
    tasks[2].cancel()
    await settle()
    gate.open()
    answers = await told(tasks)
    assert [answer.t for answer in answers if not isinstance(answer, BaseException)] == [1, 2, 3]
    assert (await worker.sessions.inspect("s")).t == 3


async def test_those_who_wait_are_answered_when_the_worker_stops(watched: Watched) -> None:
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched)
        tasks = together(*(worker.rounds.update("s", Report(1.0, None, [1.0])) for _ in range(5)))
        await gate.arrived.wait()
        closing = asyncio.ensure_future(worker.rounds.close())
        await settle()
        assert not closing.done()
        gate.open()
        await closing
        assert all(task.done() for task in tasks)
