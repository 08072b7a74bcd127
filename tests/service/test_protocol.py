"""The round protocol: predict, then update, each exactly once, in any order, early or late."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import okl_core
from service.demo_data import magic
from tests.service.api import MEAN, POMDR, Api, serving

pytestmark = pytest.mark.anyio

X, Y = magic()


def x(row: int) -> list[float]:
    return X[row].tolist()


async def test_predict_then_update_is_the_learner_itself(api: Api) -> None:
    await api.create(POMDR)
    learner = okl_core.create(POMDR, 10)
    for row in range(60):
        played = learner.update(X[row], Y[row])
        prediction = await api.predict(x(row))
        assert prediction["t"] == row
        assert prediction["score"] == played.forecast.value
        assert prediction["label"] == played.forecast.label
        answer = await api.update(int(Y[row]), id=prediction["id"])
        assert answer == {
            "session": "s",
            "id": prediction["id"],
            "t": row + 1,
            "loss": played.loss,
            "mistake": played.forecast.label != Y[row],
            "duplicate": False,
        }
    assert (await api.inspect())["describe"] == learner.describe()


async def test_late_truths_are_scored_as_issued_and_learned_on_arrival(api: Api) -> None:
    """All predictions first, then the truths in another order: the metrics are those of the untaught learner."""
    await api.create(POMDR)
    order = np.random.default_rng(0).permutation(30)
    issued = {row: (await api.predict(x(row), id=f"p{row}"))["score"] for row in range(30)}
    assert (await api.inspect())["waiting"] == 30
    learner = okl_core.create(POMDR, 10)
    losses = {row: learner.loss.value(issued[row], Y[row]) for row in range(30)}
    for row in order.tolist():
        answer = await api.update(int(Y[row]), id=f"p{row}")
        assert answer["loss"] == losses[row]
        learner.update(X[row], Y[row])
    found = await api.inspect()
    assert found["waiting"] == 0
    assert found["describe"] == learner.describe()
    assert found["metrics"]["loss"] == pytest.approx(sum(losses.values()))
    assert found["metrics"]["mistakes"] == sum((issued[row] >= 0) != (Y[row] > 0) for row in range(30))
    assert (await api.predict(x(40), wait=False))["score"] == learner.predict(X[40]).value


async def test_without_waiting_nothing_is_stored(api: Api) -> None:
    await api.create(POMDR)
    before = await api.inspect()
    prediction = await api.predict(x(0), wait=False)
    assert prediction["id"] is None
    assert await api.inspect() == before


async def test_the_session_may_be_in_the_body(api: Api) -> None:
    await api.create(POMDR)
    prediction = await api.call("POST", "/predict", {"session": "s", "x": x(0), "id": "mine"})
    assert prediction["id"] == "mine"
    answer = await api.call("POST", "/update", {"session": "s", "id": "mine", "y": 1})
    assert (answer["t"], answer["duplicate"]) == (1, False)


async def test_a_repeated_predict_is_the_first_prediction(api: Api) -> None:
    await api.create(MEAN)
    first = await api.predict([1.0], id="p")
    await api.update(5.0, x=[2.0])
    assert await api.predict([1.0], id="p") == first
    assert (await api.predict([1.0], id="q"))["value"] == 5.0
    assert (await api.inspect())["waiting"] == 2


async def test_a_repeated_update_gets_the_first_answer(api: Api) -> None:
    await api.create(MEAN)
    await api.predict([1.0], id="p")
    rounds: list[dict[str, Any]] = [{"y": 3.0, "id": "p"}, {"y": 4.0, "x": [1.0], "id": "direct"}]
    first = [await api.update(**body) for body in rounds]
    await api.update(9.0, x=[1.0])
    again = [await api.update(**body) for body in rounds]
    assert [answer | {"duplicate": True} for answer in first] == again
    assert (await api.update(3.0, id="p", x=[1.0]))["duplicate"]
    assert (await api.inspect())["t"] == 3


async def test_a_direct_update_without_an_id_is_a_round_each_time(api: Api) -> None:
    await api.create(MEAN)
    answers = [await api.update(1.0, x=[1.0]) for _ in range(3)]
    assert [answer["t"] for answer in answers] == [1, 2, 3]
    assert [answer["id"] for answer in answers] == [None] * 3


CONFLICTS: dict[str, tuple[str, dict[str, Any]]] = {
    "predict another input under a waiting id": ("predict", {"x": [2.0], "id": "waits"}),
    "predict under an id that was settled": ("predict", {"x": [1.0], "id": "settled"}),
    "predict under the id of a direct update": ("predict", {"x": [1.0], "id": "direct"}),
    "settle with another truth": ("update", {"y": 2.0, "id": "settled"}),
    "settle a direct update's id with another truth": ("update", {"y": 2.0, "id": "direct"}),
    "settle a direct update's id with another input": ("update", {"y": 1.0, "x": [2.0], "id": "direct"}),
    "a waiting id with another input": ("update", {"y": 1.0, "x": [2.0], "id": "waits"}),
    "many rounds under an id that was settled": ("rounds", {"y": [1.0], "x": [[1.0]], "id": "settled"}),
    "many rounds under a waiting id": ("rounds", {"y": [1.0], "x": [[1.0]], "id": "waits"}),
    "other rounds under the id of many rounds": ("rounds", {"y": [1.0, 2.0], "x": [[1.0], [3.0]], "id": "many"}),
    "other truths under the id of many rounds": ("rounds", {"y": [1.0, 3.0], "x": [[1.0], [2.0]], "id": "many"}),
    "a truth under the id of many rounds": ("update", {"y": 1.0, "id": "many"}),
}


@pytest.mark.parametrize("how", CONFLICTS)
async def test_an_id_names_one_round_for_ever(api: Api, how: str) -> None:
    await api.create(MEAN)
    for id in ("waits", "settled"):
        await api.predict([1.0], id=id)
    await api.update(1.0, id="settled")
    await api.update(1.0, x=[1.0], id="direct")
    await api.rounds([[1.0], [2.0]], [1.0, 2.0], id="many")
    before = await api.inspect()
    action, body = CONFLICTS[how]
    problem = await api.refused("id-conflict", "POST", f"/sessions/s/{action}", body)
    assert (problem["session"], problem["id"]) == ("s", body["id"])
    assert await api.inspect() == before


async def test_a_prediction_expires(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.create(MEAN, expires_s=5.0)
    await api.predict([1.0], id="p")
    now = time.time()
    monkeypatch.setattr("service.sessions.time.time", lambda: now + 6.0)
    for action, body in {"update": {"id": "p", "y": 1.0}, "predict": {"id": "p", "x": [1.0]}}.items():
        problem = await api.refused("prediction-expired", "POST", f"/sessions/s/{action}", body)
        assert (problem["session"], problem["id"]) == ("s", "p")
    await api.predict([1.0], id="q")
    found = await api.inspect()
    assert (found["t"], found["waiting"]) == (0, 1)
    assert (await api.update(1.0, x=[1.0]))["t"] == 1


async def test_a_settled_prediction_never_expires(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that only knows the prediction must ask the store before it calls it expired."""
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create(MEAN, expires_s=5.0)
        await one.predict([1.0], id="p")
        first = await other.update(1.0, id="p")
        now = time.time()
        monkeypatch.setattr("service.sessions.time.time", lambda: now + 6.0)
        assert await one.update(1.0, id="p") == first | {"duplicate": True}


async def test_what_was_never_predicted_cannot_be_settled(api: Api) -> None:
    await api.create(MEAN)
    problem = await api.refused("prediction-not-found", "POST", "/sessions/s/update", {"id": "nobody", "y": 1.0})
    assert (problem["session"], problem["id"]) == ("s", "nobody")


async def test_a_restarted_service_goes_on(store_url: str) -> None:
    async with serving(store_url) as before:
        await before.create(POMDR)
        for row in range(20):
            await before.update(int(Y[row]), x=x(row))
        await before.predict(x(20), id="p")
        found = await before.inspect()
    async with serving(store_url) as after:
        assert await after.inspect() == found
        assert (await after.update(int(Y[20]), id="p"))["t"] == 21
        learner = okl_core.create(POMDR, 10)
        for row in range(21):
            learner.update(X[row], Y[row])
        assert (await after.predict(x(30), wait=False))["score"] == learner.predict(X[30]).value
