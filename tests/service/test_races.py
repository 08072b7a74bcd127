"""Two workers on one store at the same time: nothing is lost, nothing is learned twice, both know the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from service.demo_data import magic
from tests.service.api import Api, serving
from tests.service.definitions import MEDIAN, ONE_VS_REST, POMDR
from tests.service.worker import replayed

pytestmark = pytest.mark.anyio

X, Y = magic()
CLIENTS = 6
EACH = 12


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[tuple[Api, Api]]:
    async with serving(store_url) as one, serving(store_url) as other:
        yield one, other


async def assert_one_truth(workers: tuple[Api, Api], t: int) -> None:
    """Both workers and the replay of the journal are at round t, in the same state to the last bit."""
    expected = await replayed(workers[0].store)
    x = X[-1]
    assert expected.t == t
    assert expected.task is not None
    tally, answer = expected.card.tally(), expected.task.truths.answer(expected.forecast(x))
    for worker in workers:
        found = await worker.inspect()
        assert (found["t"], found["waiting"]) == (t, 0)
        assert (found["metrics"]["loss"], found["metrics"]["mistakes"]) == (tally.loss, tally.error)
        assert found["describe"]["dictionary"] == expected.describe()["dictionary"]
        told = await worker.predict(x.tolist(), wait=False)
        assert (told.get("score"), told["label"]) == (answer.score, answer.label)
        assert told.get("probabilities") == (None if answer.probabilities is None else list(answer.probabilities))


@pytest.mark.parametrize(
    ("learner", "snapshot_every"),
    [(POMDR, None), (POMDR, 1), (MEDIAN, None), (MEDIAN, 7), (ONE_VS_REST, 7)],
    ids=["learner", "learner, snapshots", "warm-up", "warm-up, snapshots", "classes, snapshots"],
)
async def test_predictions_here_and_truths_there(
    workers: tuple[Api, Api], learner: dict[str, object], snapshot_every: int | None
) -> None:
    labels = [-1, 0, 1] if learner == ONE_VS_REST else None
    await workers[0].create(learner, labels=labels, snapshot_every=snapshot_every, warmup_rounds=20)

    async def client(number: int) -> None:
        for i in range(EACH):
            row = number * EACH + i
            here, there = workers if (number + i) % 2 else workers[::-1]
            prediction = await here.predict(X[row].tolist(), id=f"p{row}")
            answer = await there.update(int(Y[row]), id=prediction["id"])
            assert not answer["duplicate"]

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    await assert_one_truth(workers, CLIENTS * EACH)


async def test_the_same_update_at_both(workers: tuple[Api, Api]) -> None:
    """A client that sends everything twice, to both workers at once, is answered four times and counted once.

    Two workers that play the same round at the same tip make the same entry: each may tell that it was the first.
    """
    await workers[0].create(POMDR)
    for row in range(30):
        direct = {"x": X[row].tolist()} if row % 2 else {}
        if not direct:
            await workers[row % 4 // 2].predict(X[row].tolist(), id=f"p{row}")
        answers = await asyncio.gather(*(w.update(int(Y[row]), id=f"p{row}", **direct) for w in workers * 2))
        for here in (answers[::2], answers[1::2]):
            assert sum(not answer["duplicate"] for answer in here) <= 1
        assert not all(answer["duplicate"] for answer in answers)
        assert all(answer | {"duplicate": True} == answers[0] | {"duplicate": True} for answer in answers)
    await assert_one_truth(workers, 30)


async def test_the_same_prediction_at_both(workers: tuple[Api, Api]) -> None:
    """One id is one prediction, whoever made it."""
    await workers[0].create(POMDR)
    for row in range(20):
        await workers[row % 2].update(int(Y[row]), x=X[row].tolist())
        answers = await asyncio.gather(*(w.predict(X[50].tolist(), id=f"p{row}") for w in workers * 2))
        assert all(answer == answers[0] for answer in answers)
    assert (await workers[0].inspect())["waiting"] == 20


async def test_a_truth_sent_again_beside_one_that_the_worker_has_to_ask_for(workers: tuple[Api, Api]) -> None:
    """The store's answer about one id brings the rounds in which another one, made here, was settled there."""
    one, other = workers
    await one.create(POMDR)
    await one.predict(X[0].tolist(), id="here")
    await other.predict(X[1].tolist(), id="there")
    first = await other.update(int(Y[0]), id="here")
    answers = await asyncio.gather(one.update(int(Y[1]), id="there"), one.update(int(Y[0]), id="here"))
    assert [answer["t"] for answer in answers] == [2, 1]
    assert answers[1] == first | {"duplicate": True}
    await assert_one_truth(workers, 2)


async def test_a_truth_behind_a_refused_step_that_predicts_its_id(workers: tuple[Api, Api]) -> None:
    """The worker leaves it to the step to say what the id holds; a step with a wrong truth says nothing."""
    here, there = workers
    await here.create(MEDIAN)
    await here.predict([1.0, 2.0], id="p")
    step = {"update": {"id": "none", "y": 1.0}, "predict": {"x": [1.0, 2.0], "id": "p"}}
    for is_repeated in (False, True):
        *_, refused, told = await asyncio.gather(
            there.update(1.0, x=[1.0, 2.0]),
            there.refused("prediction-not-found", "POST", "/sessions/s/step", step),
            there.update(1.0, id="p"),
        )
        assert (refused["id"], told["id"], told["duplicate"]) == ("none", "p", is_repeated)


async def test_blocks_race_with_rounds(workers: tuple[Api, Api]) -> None:
    await workers[0].create(MEDIAN, warmup_rounds=20, snapshot_every=40)
    row_of = np.arange(4 * 30).reshape(4, 30)

    async def blocks(worker: Api, rows: np.ndarray) -> None:
        for part in rows.reshape(3, -1):
            await worker.rounds(X[part].tolist(), Y[part].tolist(), id=f"b{part[0]}")

    async def singles(worker: Api, rows: np.ndarray) -> None:
        for row in rows.tolist():
            await worker.update(int(Y[row]), x=X[row].tolist(), id=f"u{row}")

    one, other = workers
    await asyncio.gather(
        blocks(one, row_of[0]), blocks(other, row_of[1]), singles(one, row_of[2]), singles(other, row_of[3])
    )
    await assert_one_truth(workers, 120)


async def test_two_create_one_session(workers: tuple[Api, Api]) -> None:
    body = {"name": "s", "learner": POMDR}
    answers = await asyncio.gather(*(worker.http.post("/sessions", json=body) for worker in workers * 3))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5


async def test_deleting_while_others_work(workers: tuple[Api, Api]) -> None:
    """Whoever is too late is told that the session is gone; nothing comes back to life."""
    one, other = workers
    await one.create(POMDR)
    is_under_way = {one: asyncio.Event(), other: asyncio.Event()}

    async def client(worker: Api) -> list[int]:
        statuses = []
        for row in range(80):
            answer = await worker.http.post("/sessions/s/update", json={"x": X[row].tolist(), "y": int(Y[row])})
            statuses.append(answer.status_code)
            await asyncio.sleep(0)
            if row == 10:
                is_under_way[worker].set()
        return statuses

    async def deleter() -> None:
        for event in is_under_way.values():
            await event.wait()
        await one.call("DELETE", "/sessions/s", status=204)

    *found, _ = await asyncio.gather(client(one), client(other), deleter())
    for statuses in found:
        # One may be through before the other is under way.
        assert statuses[:11] == [200] * 11
        assert set(statuses) <= {200, 404}
        assert statuses == sorted(statuses)
    for worker in workers:
        await worker.refused("session-not-found", "GET", "/sessions/s")
    assert await one.store.count() == 0
