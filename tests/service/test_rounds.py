"""The commit loop: who is answered what and when, and what one commit holds."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

import okl_core
from okl.errors import (
    IdConflict,
    InvalidInput,
    NumericalFailure,
    PredictionNotFound,
    WrongDimension,
)
from service.api.dependencies import Worker
from service.session.codec import BlockEntry, decode_entry
from service.session.requests import Batch, Report
from service.session.turn import Turn
from service.store.base import Limits
from tests.oracles.model_store import ModelStore
from tests.service.definitions import RIDGE, define
from tests.service.worker import (
    DATA,
    TRUTHS,
    Call,
    Clock,
    Gate,
    Watched,
    assert_sequential,
    direct,
    opened,
    replayed,
    settle,
    together,
    told,
    working,
)

pytestmark = pytest.mark.anyio

X, Y = DATA.tolist(), TRUTHS.tolist()


async def test_what_queues_up_meanwhile_goes_into_one_commit(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define(RIDGE))
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", direct(0)))
    await gate.arrived.wait()
    tasks += together(*(worker.rounds.update("s", direct(i)) for i in range(1, 100)))
    await settle()
    gate.open()
    assert [answer.t for answer in await told(tasks)] == list(range(1, 101))
    commits = [len(call.entries) for call in watched.of("commit")]
    assert commits[0] == 1
    assert sum(commits) == 100
    assert len(commits) <= 10
    expected = okl_core.create(RIDGE, 10)
    for i in range(100):
        expected.update(DATA[i], Y[i])
    found = await worker.rounds.predict("s", X[200], wait=False)
    assert found.answer.value == expected.predict(DATA[200]).value


@pytest.mark.parametrize("clients", [2, 16])
async def test_clients_that_wait_for_their_answers_share_commits(store_url: str, clients: int) -> None:
    """On each store, as fast as it goes: far fewer commits than rounds, and each round once."""
    store = await opened(store_url)
    watched = Watched(store)
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define(RIDGE))

        async def client(number: int) -> None:
            for i in range(number, 160, clients):
                await worker.rounds.update("s", direct(i))

        await asyncio.gather(*map(client, range(clients)))
    commits = watched.of("commit")
    assert sum(len(call.entries) for call in commits) == 160
    assert len(commits) <= 2 * 160 / min(clients, 8)
    await assert_sequential(store, 160)
    await store.close()


async def test_nobody_is_answered_before_it_is_durable(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define())
    await worker.rounds.predict("s", [1.0], id="p")
    for after in (False, True):
        gate = Gate(watched, after=after)
        tasks = together(
            worker.rounds.update("s", Report(1.0, None, [1.0])),
            worker.rounds.predict("s", [1.0]),
            worker.rounds.predict("s", [1.0], wait=False),
            worker.rounds.rounds("s", Batch([[1.0]], [1.0])),
        )
        await gate.arrived.wait()
        await settle()
        assert not any(task.done() for task in tasks)
        gate.open()
        assert not any(isinstance(answer, Exception) for answer in await told(tasks))


async def test_other_sessions_do_not_wait(worker: Worker, watched: Watched) -> None:
    for name in ("s", "other"):
        await worker.sessions.create(define(name=name))

    async def before(call: Call) -> None:
        if call.method == "commit" and call.arguments[0] == "s":
            await opened_gate.wait()

    opened_gate = asyncio.Event()
    watched.before = before
    tasks = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
    for _ in range(20):
        await worker.rounds.update("other", Report(1.0, None, [1.0]))
    assert not tasks[0].done()
    opened_gate.set()
    assert (await tasks[0]).t == 1


async def test_requests_are_played_in_the_order_they_came(worker: Worker, watched: Watched) -> None:
    """A prediction sees all updates that were asked before it, and none that were asked after."""
    await worker.sessions.create(define())
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", Report(0.0, None, [1.0])))
    await gate.arrived.wait()
    for i in range(1, 20):
        tasks += together(
            worker.rounds.update("s", Report(float(i), None, [1.0])),
            worker.rounds.predict("s", [1.0], id=f"p{i}"),
            worker.rounds.predict("s", [1.0], wait=False),
        )
    await settle()
    gate.open()
    answers = await told(tasks)
    for i in range(1, 20):
        update, waiting, not_waiting = answers[3 * i - 2 : 3 * i + 1]
        assert update.t == waiting.t == not_waiting.t == i + 1
        assert waiting.answer.value == not_waiting.answer.value == pytest.approx(i / 2.0)


async def test_a_batch_is_alone_in_its_turn(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define())
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", Report(0.0, None, [1.0])))
    await gate.arrived.wait()
    tasks += together(
        worker.rounds.update("s", Report(1.0, None, [1.0])),
        worker.rounds.update("s", Report(2.0, None, [1.0])),
        worker.rounds.rounds("s", Batch([[1.0], [1.0]], [3.0, 4.0])),
        worker.rounds.update("s", Report(5.0, None, [1.0])),
        worker.rounds.update("s", Report(6.0, None, [1.0])),
    )
    await settle()
    gate.open()
    assert [answer.t for answer in await told(tasks)] == [1, 2, 3, 5, 6, 7]
    assert [[entry.count for entry in call.entries] for call in watched.of("commit")] == [[1], [1, 1], [2], [1, 1]]
    blocks = [
        isinstance(decode_entry(entry.blob), BlockEntry) for call in watched.of("commit") for entry in call.entries
    ]
    assert blocks == [False, False, False, True, False, False]


async def test_an_id_named_twice_in_one_turn_is_one_round(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define())
    await worker.rounds.predict("s", [1.0], id="p")
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", Report(0.0, None, [1.0])))
    await gate.arrived.wait()
    tasks += together(
        worker.rounds.update("s", Report(1.0, "p")),
        worker.rounds.update("s", Report(1.0, "p")),
        worker.rounds.update("s", Report(2.0, "p")),
        worker.rounds.predict("s", [1.0], id="p"),
        worker.rounds.update("s", Report(3.0, "q", [1.0])),
        worker.rounds.step("s", Report(3.0, "q", [1.0]), [1.0], id="r"),
        worker.rounds.predict("s", [1.0], id="r"),
        worker.rounds.predict("s", [2.0], id="r"),
        worker.rounds.rounds("s", Batch([[1.0]], [3.0], "q")),
        worker.rounds.rounds("s", Batch([[1.0]], [9.0], "batch")),
        worker.rounds.rounds("s", Batch([[1.0]], [9.0], "batch")),
    )
    await settle()
    gate.open()
    _, first, again, other, late, direct, step, predicted, another, block, batch, repeated = await told(tasks)
    assert (first.t, first.is_duplicate, again.t, again.is_duplicate) == (2, False, 2, True)
    assert [type(error) for error in (other, late, another, block)] == [IdConflict] * 4
    assert (direct.t, step.update.t, step.update.is_duplicate) == (3, 3, True)
    assert (step.predict, predicted.t) == (predicted, 3)
    assert (batch.t, batch.is_duplicate, repeated.is_duplicate) == (4, False, True)
    assert repeated.columns == batch.columns
    assert (await worker.sessions.inspect("s")).t == 4


async def test_a_refused_request_leaves_the_others_of_its_turn_alone(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define(dim=1))
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", Report(0.0, None, [1.0])))
    await gate.arrived.wait()
    tasks += together(
        worker.rounds.update("s", Report(1.0, None, [1.0])),
        worker.rounds.update("s", Report(1.0, None, [1.0, 2.0])),
        worker.rounds.update("s", Report("a", None, [1.0])),
        worker.rounds.update("s", Report(1.0, "nobody")),
        worker.rounds.update("s", Report(1e200, None, [1.0])),
        worker.rounds.predict("s", [1.0, 2.0]),
        worker.rounds.step("s", Report(1.0, None, [1.0]), [1.0, 2.0]),
        worker.rounds.update("s", Report(2.0, None, [1.0])),
        worker.rounds.predict("s", [1.0]),
    )
    await settle()
    gate.open()
    _, first, *refused, second, predicted = await told(tasks)
    kinds = [type(error) for error in refused]
    expected = [WrongDimension, InvalidInput, PredictionNotFound, NumericalFailure, WrongDimension, WrongDimension]
    assert all(issubclass(kind, one) for kind, one in zip(kinds, expected, strict=True)), kinds
    assert (first.t, second.t, predicted.t) == (2, 3, 3)
    assert (await worker.sessions.inspect("s")).t == 3
    assert (await replayed(watched.store)).t == 3


async def test_an_answer_that_cannot_be_made_costs_the_others_nothing(
    worker: Worker, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no answer")

    await worker.sessions.create(define(dim=1))
    gate = Gate(watched)
    tasks = together(worker.rounds.update("s", Report(0.0, None, [1.0])))
    await gate.arrived.wait()
    tasks += together(worker.rounds.predict("s", [1.0], id="p"), worker.rounds.update("s", Report(1.0, None, [1.0])))
    await settle()
    monkeypatch.setattr(Turn, "_predicted", fail)
    gate.open()
    _, failed, learned = await told(tasks)
    assert (type(failed), learned.t) == (RuntimeError, 2)


async def test_a_step_is_one_commit(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define(RIDGE))
    await worker.rounds.predict("s", X[0], id="p0")
    watched.calls.clear()
    expected = okl_core.create(RIDGE, 10)
    for i in range(20):
        told = await worker.rounds.step("s", Report(Y[i], f"p{i}"), X[i + 1], id=f"p{i + 1}")
        expected.update(DATA[i], Y[i])
        assert (told.update.t, told.refusal) == (i + 1, None)
        assert told.predict is not None
        assert told.predict.answer.value == expected.predict(DATA[i + 1]).value
    assert [call.method for call in watched.calls] == ["commit"] * 20
    assert all((len(call.entries), len(call.holds)) == (1, 1) for call in watched.calls)


async def test_a_step_whose_prediction_has_no_room_took_the_truth(clock: Clock) -> None:
    store = ModelStore(Limits(waiting=1), clock)
    async with working(store) as worker:
        await worker.sessions.create(define())
        await worker.rounds.predict("s", [1.0], id="first")
        told = await worker.rounds.step("s", Report(1.0, "q", [1.0]), [1.0])
        assert (told.update.t, told.predict) == (1, None)
        assert told.refusal is not None
        assert told.refusal.slug == "limit-reached"
        again = await worker.rounds.step("s", Report(1.0, "q", [1.0]), [1.0])
        assert (again.update.t, again.update.is_duplicate, again.predict) == (1, True, None)
        # The truth of the one that waits makes room for the next.
        told = await worker.rounds.step("s", Report(1.0, "first"), [1.0])
        assert told.predict is not None
        assert (await worker.sessions.inspect("s")).t == 2


async def test_a_step_of_a_duplicate_predicts_all_the_same(worker: Worker) -> None:
    await worker.sessions.create(define())
    await worker.rounds.update("s", Report(4.0, "u", [1.0]))
    told = await worker.rounds.step("s", Report(4.0, "u", [1.0]), [1.0])
    assert told.update.is_duplicate
    assert told.predict is not None
    assert (told.predict.t, told.predict.answer.value) == (1, 4.0)


async def test_nobody_can_guess_the_ids_that_the_service_makes(worker: Worker) -> None:
    """A guessed id, queued behind the request that gets it, would cost all requests of the turn their answers."""
    ids = [worker.rounds.new_id() for _ in range(1000)]
    assert len(set(ids)) == len(ids)
    alike = [sum(one == other for one, other in zip(id[-8:], after[-8:], strict=True)) for id, after in pairwise(ids)]
    assert sum(alike) < len(ids)


async def test_a_bad_step_costs_no_copy(worker: Worker, watched: Watched) -> None:
    """A client that sends nothing but bad ones does not make the worker load the session each time."""
    await worker.sessions.create(define(dim=1))
    await worker.rounds.update("s", Report(4.0, None, [1.0]))
    watched.calls.clear()
    for _ in range(5):
        with pytest.raises(WrongDimension):
            await worker.rounds.step("s", Report(4.0, None, [1.0]), [1.0, 2.0])
    assert not watched.of("read")
    assert (await worker.rounds.update("s", Report(4.0, None, [1.0]))).t == 2
