"""The round protocol: predict, then update, each exactly once, in any order, early or late."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import okl_core
from service.demo_data import magic
from service.store.sqlite import SqliteStore
from tests.service.api import Api, serving, serving_on
from tests.service.definitions import MEAN, POMDR
from tests.service.worker import Clock

pytestmark = pytest.mark.anyio

X, Y = magic()
JSON = {"Content-Type": "application/json"}


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
    assert prediction.keys() == {"session", "t", "score", "label"}
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
    assert not any("id" in answer for answer in answers)


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


@pytest.mark.parametrize("is_known", [True, False], ids=["at its worker", "at another one"])
async def test_a_prediction_expires(clocked: SqliteStore, clock: Clock, is_known: bool) -> None:
    async with serving_on(clocked) as one, serving_on(clocked) as other:
        api = one if is_known else other
        await one.create(MEAN, expires_s=5.0)
        await one.predict([1.0], id="p")
        clock.skip(6.0)
        for action, body in {"update": {"id": "p", "y": 1.0}, "predict": {"id": "p", "x": [1.0]}}.items():
            problem = await api.refused("prediction-expired", "POST", f"/sessions/s/{action}", body)
            assert (problem["session"], problem["id"]) == ("s", "p")
        await api.predict([1.0], id="q")
        found = await api.inspect()
        assert (found["t"], found["waiting"]) == (0, 1)
        assert (await api.update(1.0, x=[1.0]))["t"] == 1
        # What the problem tells to do: the input with its truth, under the same id.
        first = await api.update(2.0, x=[1.0], id="p")
        assert (first["t"], first["duplicate"]) == (2, False)
        assert await api.update(2.0, x=[1.0], id="p") == first | {"duplicate": True}


async def test_an_expired_id_is_forgotten_in_the_end(clocked: SqliteStore, clock: Clock) -> None:
    """It names nothing then, and may name another prediction."""
    async with serving_on(clocked) as api:
        await api.create(MEAN, expires_s=5.0)
        await api.predict([1.0], id="p")
        clock.skip(11.0)
        await api.refused("prediction-not-found", "POST", "/sessions/s/update", {"id": "p", "y": 1.0})
        assert (await api.predict([2.0], id="p"))["t"] == 0
        assert (await api.update(1.0, id="p"))["t"] == 1


async def test_the_service_says_how_long_a_prediction_waits(clocked: SqliteStore, clock: Clock) -> None:
    async with serving_on(clocked, waiting_expires_s=100.0) as api:
        await api.create(MEAN, "own", expires_s=5.0)
        await api.create(MEAN, "default")
        for name in ("own", "default"):
            await api.predict([1.0], name, id="p")
        clock.skip(50.0)
        await api.refused("prediction-not-found", "POST", "/sessions/own/update", {"id": "p", "y": 1.0})
        assert (await api.update(1.0, "default", id="p"))["t"] == 1


async def test_a_settled_prediction_never_expires(clocked: SqliteStore, clock: Clock) -> None:
    """A worker that only knows the prediction must ask the store before it calls it expired."""
    async with serving_on(clocked) as one, serving_on(clocked) as other:
        await one.create(MEAN, expires_s=5.0)
        await one.predict([1.0], id="p")
        first = await other.update(1.0, id="p")
        clock.skip(6.0)
        assert await one.update(1.0, id="p") == first | {"duplicate": True}


async def test_what_was_never_predicted_cannot_be_settled(api: Api) -> None:
    await api.create(MEAN)
    problem = await api.refused("prediction-not-found", "POST", "/sessions/s/update", {"id": "nobody", "y": 1.0})
    assert (problem["session"], problem["id"]) == ("s", "nobody")


async def test_a_step_is_an_update_and_a_predict(api: Api) -> None:
    for name in ("two", "one"):
        await api.create(POMDR, name)
        await api.predict(x(0), name, id="p0")
    for row in range(30):
        update, predict = {"id": f"p{row}", "y": int(Y[row])}, {"x": x(row + 1), "id": f"p{row + 1}"}
        expected = {
            "update": await api.update(**update, name="two"),
            "predict": await api.predict(**predict, name="two"),
        }
        told = await api.step(update, predict, "one")
        assert told.keys() == {"update", "predict"}
        for half, answer in expected.items():
            assert told[half] == answer | {"session": "one"}
    two, one = await api.inspect("two"), await api.inspect("one")
    for part in ("t", "waiting", "metrics", "describe", "lags", "bytes"):
        assert one[part] == two[part]


async def test_a_step_in_the_body_and_without_waiting(memory: Api) -> None:
    await memory.create(MEAN)
    body = {"session": "s", "update": {"x": [1.0], "y": 4.0}, "predict": {"x": [2.0], "wait": False}}
    told = await memory.call("POST", "/step", body)
    assert told["update"].keys() == {"session", "t", "loss", "error", "duplicate"}
    assert told["predict"] == {"session": "s", "t": 1, "value": 4.0}
    assert (await memory.inspect())["waiting"] == 0


async def test_a_step_sent_again_is_the_first_one(api: Api) -> None:
    await api.create(MEAN)
    await api.predict([1.0], id="p0")
    first = await api.step({"id": "p0", "y": 4.0}, {"x": [2.0], "id": "p1"})
    await api.update(9.0, x=[3.0])
    again = await api.step({"id": "p0", "y": 4.0}, {"x": [2.0], "id": "p1"})
    assert again == {"update": first["update"] | {"duplicate": True}, "predict": first["predict"]}
    found = await api.inspect()
    assert (found["t"], found["waiting"]) == (2, 1)


async def test_a_step_whose_truth_is_refused_changes_nothing(api: Api) -> None:
    await api.create(MEAN, dim=1)
    await api.predict([1.0], id="p0")
    before = await api.inspect()
    for slug, update, predict in (
        ("prediction-not-found", {"id": "nobody", "y": 1.0}, {"x": [1.0]}),
        ("numerical-failure", {"id": "p0", "y": 1e200}, {"x": [1.0]}),
        ("id-conflict", {"id": "p0", "x": [5.0], "y": 1.0}, {"x": [1.0]}),
        ("wrong-dimension", {"x": [5.0, 1.0], "y": 1.0}, {"x": [1.0]}),
        ("wrong-dimension", {"id": "p0", "y": 1.0}, {"x": [1.0, 2.0]}),
    ):
        await api.refused(slug, "POST", "/sessions/s/step", {"update": update, "predict": predict})
        assert await api.inspect() == before, slug


GOOD, LONG, NAN = [1.0, 1.0], [1.0, 1.0, 1.0], [1.0, float("nan")]
WRONG_STEPS: list[tuple[str, str, dict[str, Any], list[float]]] = [
    ("wrong-truth", "/update/y", {"x": GOOD, "y": 7}, GOOD),
    ("wrong-dimension", "/update/x", {"x": LONG, "y": 1}, GOOD),
    ("not-finite", "/update/x/1", {"x": NAN, "y": 1}, GOOD),
    ("wrong-dimension", "/predict/x", {"x": GOOD, "y": 1}, LONG),
    ("not-finite", "/predict/x/1", {"x": GOOD, "y": 1}, NAN),
]


@pytest.mark.parametrize(
    ("slug", "pointer", "truth", "following"), WRONG_STEPS, ids=[f"{w[0]} {w[1]}" for w in WRONG_STEPS]
)
async def test_a_wrong_step_is_told_by_its_place_in_the_body(
    memory: Api, slug: str, pointer: str, truth: dict[str, Any], following: list[float]
) -> None:
    await memory.create(POMDR, dim=2)
    step = {"update": truth, "predict": {"x": following}}
    named = {"session": "s", **step}
    several = {"steps": [named | {"session": "none"}, named]}
    for t in range(2):  # before the first round, the next input is read after the truth is learned
        for path, body in (("/step", named), ("/sessions/s/step", step)):
            problem = await memory.refused(slug, "POST", path, content=json.dumps(body), headers=JSON)
            assert [error["pointer"] for error in problem["errors"]] == [pointer]
            assert problem["detail"].startswith(f"{pointer}: ")
        told = await memory.call("POST", "/sessions/step", content=json.dumps(several), headers=JSON)
        assert [error["pointer"] for error in told["steps"][1]["refused"]["errors"]] == [f"/steps/1{pointer}"]
        assert (await memory.update(1, x=GOOD))["t"] == t + 1


async def test_a_prediction_refused_after_its_truth_was_taken_is_told_as_such(api: Api) -> None:
    """Whether its id is free, only the store knows: the truth is taken by then."""
    await api.create(MEAN)
    await api.predict([1.0], id="waits")
    await api.predict([1.0], id="p0")
    told = await api.step({"id": "p0", "y": 4.0}, {"x": [2.0], "id": "waits"})
    assert told.keys() == {"update", "refused"}
    assert (told["update"]["t"], told["update"]["duplicate"]) == (1, False)
    refused = told["refused"]
    assert (refused["type"], refused["status"], refused["id"]) == ("/problems/id-conflict", 409, "waits")
    assert refused.keys() >= {"title", "detail", "instance", "session"}
    assert (await api.inspect())["t"] == 1


async def test_a_step_of_one_id_twice_is_refused(memory: Api) -> None:
    await memory.create(MEAN)
    body = {"update": {"id": "p", "x": [1.0], "y": 1.0}, "predict": {"x": [1.0], "id": "p"}}
    await memory.refused("invalid-request", "POST", "/sessions/s/step", body)


async def test_an_id_may_come_in_a_header(api: Api) -> None:
    await api.create(MEAN)
    headers = {"Idempotency-Key": "key"}
    path, body = "/sessions/s/update", {"x": [1.0], "y": 2.0}
    first = await api.call("POST", path, body, headers=headers)
    assert first["id"] == "key"
    assert await api.call("POST", path, body, headers={"Idempotency-Key": '"key"'}) == first | {"duplicate": True}
    assert await api.call("POST", path, body | {"id": "key"}, headers=headers) == first | {"duplicate": True}
    await api.refused("invalid-request", "POST", path, body | {"id": "other"}, headers=headers)
    for key, detail in (("k" * 129, "must have at most 128 characters"), ('""', "must have at least 1 character")):
        problem = await api.refused("invalid-request", "POST", path, body, headers={"Idempotency-Key": key})
        assert problem["detail"] == f"/Idempotency-Key: {detail}"
    assert (await api.call("POST", "/sessions/s/predict", {"x": [1.0]}, headers={"Idempotency-Key": "p"}))["id"] == "p"
    block = await api.call("POST", "/sessions/s/rounds", {"x": [[1.0]], "y": [2.0]}, headers={"Idempotency-Key": "b"})
    assert block["id"] == "b"
    assert (await api.call("POST", path, {"y": 2.0}, headers={"Idempotency-Key": "p"}))["t"] == 3
    problem = await api.refused("invalid-request", "POST", path, {"y": 2.0})
    assert "give the `id`" in problem["detail"]


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
