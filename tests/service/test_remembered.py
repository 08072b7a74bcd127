"""What is remembered of rounds, and how large an answer may be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from okl.errors import (
    IdConflict,
    PayloadTooLarge,
    ServiceError,
)
from service.api.dependencies import Worker
from service.session.requests import Batch, BodyBlock, Report
from service.store.base import Limits
from tests.oracles.model_store import ModelStore
from tests.service.api import NDJSON, Api, check_problem, lines, serving, serving_on, told
from tests.service.definitions import MEAN, POMDR, RIDGE, define
from tests.service.worker import (
    DATA,
    TRUTHS,
    Clock,
    Watched,
    working,
)

pytestmark = pytest.mark.anyio

X, Y = DATA.tolist(), TRUTHS.tolist()


async def test_ids_are_remembered_for_a_time(clock: Clock) -> None:
    async with working(ModelStore(Limits(remembered_s=100.0), clock)) as worker:
        await worker.sessions.create(define())
        await worker.rounds.update("s", Report(1.0, "u", [1.0]))
        clock.skip(99.0)
        assert (await worker.rounds.update("s", Report(1.0, "u", [1.0]))).is_duplicate
        clock.skip(2.0)
        again = await worker.rounds.update("s", Report(1.0, "u", [1.0]))
        assert (again.t, again.is_duplicate) == (2, False)


@pytest.mark.parametrize("kept", [0, 1])
async def test_a_body_of_lines_does_not_go_on_over_those_that_the_store_lost(kept: int) -> None:
    """Between two of its blocks the store came back with less: with one block, or with none."""

    def block(i: int) -> Batch:
        body_block = BodyBlock("k", i, 2 * i)
        return Batch(X[2 * i : 2 * i + 2], [1.0, 2.0], body_block.block_id, body_block=body_block)

    async with working(ModelStore()) as worker:
        await worker.sessions.create(define())
        for i in range(3):
            await worker.rounds.rounds("s", block(i))
        await worker.sessions.delete("s")
        await worker.sessions.create(define())
        for i in range(kept):
            await worker.rounds.rounds("s", block(i))
        with pytest.raises(IdConflict, match="lost lines") as refused:
            await worker.rounds.rounds("s", block(3))
        assert refused.value.extra["applied"] == 2 * kept
        again = [await worker.rounds.rounds("s", block(i)) for i in range(4)]
        assert [one.is_duplicate for one in again] == [i < kept for i in range(4)]
        assert again[-1].t == 8


async def test_so_many_ids_are_remembered(clock: Clock) -> None:
    async with working(ModelStore(Limits(remembered=10), clock)) as worker:
        await worker.sessions.create(define())
        for i in range(15):
            await worker.rounds.update("s", Report(1.0, f"u{i}", [1.0]))
        assert (await worker.rounds.update("s", Report(1.0, "u14", [1.0]))).is_duplicate
        assert not (await worker.rounds.update("s", Report(1.0, "u0", [1.0]))).is_duplicate
        assert (await worker.sessions.inspect("s")).head.remembered == 10


async def test_the_settings_say_what_is_remembered(store_url: str) -> None:
    async with serving(store_url, remembered=2, max_waiting_bytes=4096) as api:
        await api.create()
        for i in range(4):
            await api.update(1.0, x=[1.0], id=f"u{i}")
        assert (await api.update(1.0, x=[1.0], id="u3"))["duplicate"]
        assert not (await api.update(1.0, x=[1.0], id="u0"))["duplicate"]
        assert (await api.inspect())["storage"]["remembered"] == 2
        refused = 0
        for i in range(100):
            response = await api.http.post("/sessions/s/predict", json={"x": [1.0], "id": f"p{i}"})
            refused += response.status_code == 429
        assert 0 < refused < 100
        assert (await api.inspect())["storage"]["waiting_bytes"] <= 4096


async def test_a_large_answer_is_remembered_without_its_lists(worker: Worker, watched: Watched) -> None:
    await worker.sessions.create(define())
    small, large = [[float(i)] for i in range(20)], [[float(i)] for i in range(2_000)]
    for id, rows in (("small", small), ("large", large)):
        first = await worker.rounds.rounds("s", Batch(rows, [1.0] * len(rows), id))
        again = await worker.rounds.rounds("s", Batch(rows, [1.0] * len(rows), id))
        assert first.columns.values is not None
        assert (again.t, again.rounds, again.loss, again.is_duplicate) == (first.t, first.rounds, first.loss, True)
        assert again.columns.values == (first.columns.values if id == "small" else None)
    answers = [entry.answer for call in watched.of("commit") for entry in call.entries]
    assert all(answer is None or len(answer) <= 4_200 for answer in answers)
    assert [len(json.loads(answer[:-4]).get("values", ())) for answer in answers if answer] == [20, 0]


async def test_rounds_whose_answer_would_be_too_large_are_refused(watched: Watched) -> None:
    """Before anything is learned; and the limit that is told is one that passes."""
    async with working(watched.as_store, max_answer_bytes=4096) as worker:
        await worker.sessions.create(define())
        with pytest.raises(PayloadTooLarge) as caught:
            await worker.rounds.rounds("s", Batch([[1.0]] * 1_000, [1.0] * 1_000))
        assert (await worker.sessions.inspect("s")).t == 0
        most = caught.value.extra["limit"]
        assert (await worker.rounds.rounds("s", Batch([[1.0]] * most, [1 / 3] * most))).rounds == most


LONG = ["\u0001" * 40, "é" * 200]
ANSWERED: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any]]] = {
    "numbers": (MEAN, {}, np.random.default_rng(0).normal(size=400).tolist()),
    "signs": ({"kind": "kons", "config": {"loss": "logistic"}}, {}, Y[:400]),
    "long labels": (POMDR, {"labels": LONG}, [LONG[int(y > 0.0)] for y in Y[:400]]),
    "classes": ({"kind": "one-vs-rest"}, {"labels": list(range(7))}, [i % 7 for i in range(400)]),
    "intervals": (MEAN, {"interval": 0.9}, np.random.default_rng(0).normal(size=400).tolist()),
    "sets of labels": (
        {"kind": "one-vs-rest"},
        {"labels": [*LONG, "é" * 150], "interval": 0.99},
        [LONG[int(y > 0.0)] for y in Y[:400]],
    ),
}


@pytest.mark.parametrize(("learner", "settings", "truths"), ANSWERED.values(), ids=ANSWERED)
async def test_the_answer_to_as_many_rounds_as_are_allowed_is_no_larger(
    learner: dict[str, Any], settings: dict[str, Any], truths: list[Any]
) -> None:
    bound = 8_000
    async with serving_on(ModelStore(), max_answer_bytes=bound) as api:
        await api.create(learner, **settings)
        body = {"x": X[:400], "y": truths}
        most = (await api.refused("payload-too-large", "POST", "/sessions/s/rounds", body))["limit"]
        answer = await api.http.post("/sessions/s/rounds", json={"x": X[:most], "y": truths[:most]})
        assert answer.status_code == 200
        assert bound / 4 < len(answer.content) <= bound + 300


@pytest.mark.parametrize(("learner", "settings", "truths"), ANSWERED.values(), ids=ANSWERED)
async def test_the_answer_to_as_many_predictions_as_are_allowed_is_no_larger(
    learner: dict[str, Any], settings: dict[str, Any], truths: list[Any]
) -> None:
    bound, path = 40_000, "/sessions/s/predictions"
    async with serving_on(ModelStore(), max_answer_bytes=bound) as api:
        await api.create(learner, **settings)
        await api.rounds(X[:10], truths[:10])
        problem = await api.refused("payload-too-large", "POST", path, {"x": X[:400]})
        most = problem["limit"]
        assert problem["detail"] == f"`x` has 400 inputs; send at most {most} in one request to this session."
        assert (await api.inspect())["waiting"] == 0
        ids = [f"{i:03}" + '"' * 125 for i in range(most)]
        answer = await api.http.post(path, json={"x": X[:most], "ids": ids})
        assert answer.status_code == 200
        assert bound / 2 < len(answer.content) <= bound
        await api.refused("payload-too-large", "POST", path, {"x": X[: most + 1]})


async def test_rounds_are_told_again_when_an_answer_to_as_many_would_be_too_large_by_now() -> None:
    async with serving_on(ModelStore(), max_answer_bytes=4096) as api:
        await api.http.post("/sessions", json={"name": "s"})
        first = await api.rounds(X[:40], ["a", "b"] * 20, id="first")
        for i in range(20):
            await api.update(f"label {i}", x=X[i])
        again = await api.rounds(X[:40], ["a", "b"] * 20, id="first")
        assert again["t"] == first["t"]
        assert again["duplicate"]
        await api.refused("payload-too-large", "POST", "/sessions/s/rounds", {"x": X[:40], "y": ["a"] * 40})


async def test_every_error_is_one_of_the_service(worker: Worker) -> None:
    with pytest.raises(ServiceError):
        await worker.rounds.update("nobody", Report(1.0, "p"))


async def test_the_same_round_with_another_weight_is_another_request() -> None:
    async with working(ModelStore()) as worker:
        await worker.sessions.create(define({"kind": "ons"}))
        first = await worker.rounds.update("s", Report(1.0, "u", [1.0], weight=2.0))
        again = await worker.rounds.update("s", Report(1.0, "u", [1.0], weight=2.0))
        assert again == first._replace(is_duplicate=True)
        for weight in (1.0, 3.0):
            with pytest.raises(IdConflict):
                await worker.rounds.update("s", Report(1.0, "u", [1.0], weight=weight))


async def test_the_same_rounds_with_other_weights_are_another_request() -> None:
    weights = [None, np.array([2.0, 1.0]), np.array([1.0, 2.0])]
    async with working(ModelStore()) as worker:
        await worker.sessions.create(define(RIDGE))
        for i in range(len(weights)):
            sent = [Batch([[1.0], [0.5]], [1.0, -1.0], f"b{i}", weight=one) for one in weights]
            first = await worker.rounds.rounds("s", sent[i])
            for other, batch in enumerate(sent):
                if other == i:
                    again = await worker.rounds.rounds("s", batch)
                    assert (again.t, again.loss, again.is_duplicate) == (first.t, first.loss, True)
                else:
                    with pytest.raises(IdConflict):
                        await worker.rounds.rounds("s", batch)
            # Weights are no truths of more rounds.
            with pytest.raises(IdConflict):
                await worker.rounds.rounds("s", Batch([[1.0], [0.5]] * 2, [1.0, -1.0, 2.0, 1.0], f"b{i}"))


@pytest.mark.parametrize("first", [0, 3, 5, 6])
async def test_a_body_with_weights_that_has_grown_is_learned_from_where_it_ended(memory: Api, first: int) -> None:
    """Whether its first weight is in what was learned before or not; with another weight, input or truth it is another."""
    path, headers = "/sessions/s/rounds", NDJSON | {"Idempotency-Key": "k"}
    rows = [{"x": X[i], "y": Y[i], "weight": 1.0 if i < first else 2.0} for i in range(9)]
    await memory.create({"kind": "ons"}, dim=10)
    query = {"block": 4}
    for length, duplicates in ((6, [False] * 2), (9, [True, True, False, False])):
        answer = told(await memory.http.post(path, content=lines(rows[:length]), headers=headers, params=query))
        assert [one["duplicate"] for one in answer[: len(duplicates)]] == duplicates
        assert (await memory.inspect())["t"] == length
    for change in ({"weight": 3.0}, {"x": X[0]}, {"y": -Y[5]}):
        others = [*rows[:5], rows[5] | change, *rows[6:]]
        *_, last = told(await memory.http.post(path, content=lines(others), headers=headers, params=query))
        assert last["refused"]["type"] == "/problems/id-conflict"


def lines_from(start: int, stop: int) -> bytes:
    return lines([{"x": X[i], "y": Y[i]} for i in range(start, stop)])


async def test_no_block_of_a_long_body_is_learned_twice(store_url: str) -> None:
    """Its first blocks are remembered no more, pushed out by those after them, or by the updates of others."""
    path, query = "/sessions/s/rounds", {"block": 2, "answers": "totals"}
    headers = NDJSON | {"Idempotency-Key": "k"}
    async with serving(store_url, remembered=5) as api:
        await api.create()
        answer = await api.http.post(path, content=lines_from(0, 20), headers=headers, params=query)
        assert [one["applied"] for one in told(answer)] == [*range(2, 21, 2)]
        for body in (lines_from(0, 20), lines_from(0, 40)):
            found = check_problem(await api.http.post(path, content=body, headers=headers, params=query), "id-conflict")
            assert found["applied"] == 20
        assert (await api.inspect())["t"] == 20
        # What is left is sent under another key, and may be sent again as long as its blocks are remembered.
        for is_again in (False, True):
            rest = headers | {"Idempotency-Key": "rest"}
            answer = await api.http.post(path, content=lines_from(20, 24), headers=rest, params=query)
            assert [one["duplicate"] for one in told(answer)] == [is_again] * 2
        for i in range(3):
            await api.update(1.0, x=X[0], id=f"u{i}")
        check_problem(await api.http.post(path, content=lines_from(20, 24), headers=rest, params=query), "id-conflict")
        assert (await api.inspect())["t"] == 27


async def test_a_body_that_has_grown_is_learned_from_where_it_ended(store_url: str) -> None:
    """Whatever the length of the block in which it ended, and again when it has grown again."""
    path, query = "/sessions/s/rounds", {"block": 4, "answers": "totals"}
    headers = NDJSON | {"Idempotency-Key": "k"}
    async with serving(store_url) as api:
        await api.create()
        for length, known, applied in (
            (6, 0, [4, 6]),
            (11, 6, [4, 6, 8, 11]),
            (11, 11, [4, 6, 8, 11]),
            (17, 11, [4, 6, 8, 11, 12, 16, 17]),
            (17, 17, [4, 6, 8, 11, 12, 16, 17]),
        ):
            answer = told(await api.http.post(path, content=lines_from(0, length), headers=headers, params=query))
            assert [one["applied"] for one in answer] == applied
            assert [one["duplicate"] for one in answer] == [rows <= known for rows in applied]
            assert (await api.inspect())["t"] == length
        *_, last = told(await api.http.post(path, content=lines_from(0, 5), headers=headers, params=query))
        assert last["refused"]["type"] == "/problems/id-conflict"
        assert (await api.inspect())["t"] == 17


async def test_the_place_of_a_body_is_no_answer(memory: Api) -> None:
    headers = NDJSON | {"Idempotency-Key": "k"}
    await memory.create()
    assert told(await memory.http.post("/sessions/s/rounds", content=lines_from(0, 3), headers=headers))
    for id in ("k-", "k-0"):
        await memory.refused("id-conflict", "POST", "/sessions/s/update", {"x": X[0], "y": 1.0, "id": id})
        await memory.refused("id-conflict", "POST", "/sessions/s/predict", {"x": X[0], "id": id})
    await memory.predict(X[0], id="other-")
    headers["Idempotency-Key"] = "other"
    check_problem(
        await memory.http.post("/sessions/s/rounds", content=lines_from(0, 3), headers=headers), "id-conflict"
    )


async def test_lines_are_refused_under_the_id_of_a_waiting_prediction(memory: Api) -> None:
    """Its truth, reported between two blocks, would keep the rest of the lines from being learned."""
    path, headers, query = "/sessions/s/rounds", NDJSON | {"Idempotency-Key": "k"}, {"block": 2}
    await memory.create()
    await memory.predict(X[0], id="k")
    for told_of in ("waits for the truth of a prediction", "was used for another kind of request"):
        answer = await memory.http.post(path, content=lines_from(0, 4), headers=headers, params=query)
        assert f"'k' {told_of}" in check_problem(answer, "id-conflict")["detail"]
        await memory.update(1.0, id="k")
        assert (await memory.inspect())["t"] == 1
