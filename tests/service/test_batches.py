"""Many rounds in one request are the same rounds, one by one: answers, metrics, state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.types import Message, Scope

from service.api import arrow
from service.demo_data import magic
from tests.service.api import NDJSON, Api, check_problem, lines, serving
from tests.service.challenged import session_of
from tests.service.definitions import GAUSSIAN, MEAN, MEDIAN, POMDR, RIDGE, SIGMA

pytestmark = pytest.mark.anyio

X, Y = magic()
LABELS = {-1.0: "hadron", 1.0: "gamma"}

SESSIONS: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any]]] = {
    "labels": (POMDR, {"labels": ["hadron", "gamma"]}, [LABELS[y] for y in Y]),
    "signs": (POMDR, {}, Y.tolist()),
    "units": (MEAN, {"y_range": [-3.0, 7.0]}, (X[:, 0] * 4.0).tolist()),
    "warm-up": (MEDIAN, {"scale": {"kind": "learned"}, "warmup_rounds": 30}, Y.tolist()),
}
SPLITS = {
    "all at once": [0, 70],
    "across the warm-up's end": [0, 20, 50, 70],
    "up to the warm-up's end": [0, 30, 70],
    "one to go in the warm-up": [0, 29, 30, 31, 70],
}


@pytest.mark.each
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize(("learner", "settings", "truths"), SESSIONS.values(), ids=SESSIONS)
async def test_rounds_are_updates_one_by_one(
    memory: Api, learner: dict[str, Any], settings: dict[str, Any], truths: list[Any], split: list[int]
) -> None:
    for name in ("single", "block"):
        await memory.create(learner, name, **settings)
    predictions, answers = [], []
    for row in range(split[-1]):
        predictions.append(await memory.predict(X[row].tolist(), "single"))
        answers.append(await memory.update(truths[row], "single", id=predictions[-1]["id"]))
    key = "value" if "value" in predictions[0] else "score"
    for start, end in pairwise(split):
        block = await memory.rounds(X[start:end].tolist(), truths[start:end], "block")
        assert (block["t"], block["rounds"], block["duplicate"]) == (end, end - start, False)
        one_by_one = predictions[start:end]
        assert block[f"{key}s"] == pytest.approx([p[key] for p in one_by_one], rel=1e-9, abs=1e-9)
        assert block["loss"] == pytest.approx(sum(a["loss"] for a in answers[start:end]), rel=1e-9)
        if key == "score":
            assert block["labels"] == [p["label"] for p in one_by_one]
            assert block["mistakes"] == sum(a["mistake"] for a in answers[start:end])
    single, block = await memory.inspect("single"), await memory.inspect("block")
    assert block["metrics"] == pytest.approx(single["metrics"], rel=1e-9)
    # The memory set aside is not the same: a block grows the arrays in larger steps.
    assert block["describe"] == pytest.approx(single["describe"] | {"bytes": block["describe"]["bytes"]}, rel=1e-9)
    for part in ("t", "learner", "dim", "warming_up", "fields"):
        assert block[part] == single[part]
    last = [await memory.predict(X[99].tolist(), name, wait=False) for name in ("single", "block")]
    assert last[0][key] == pytest.approx(last[1][key], rel=1e-9)


W = np.random.default_rng(0).choice([0.25, 1.0, 3.0], 70).tolist()
NAMED = {"labels": ["hadron", "gamma"]}
LEARNED: dict[str, Any] = {"scale": {"kind": "learned"}}
WEIGHTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "numbers": (RIDGE, {}),
    "labels": ({"kind": "aioli"}, NAMED),
    "a dictionary": ({"kind": "nystrom-ridge", "config": {"kernel": GAUSSIAN, "budget": 12}}, {"reservoir": True}),
    "lags": (RIDGE | {"lags": 2}, LEARNED | {"warmup_rounds": 30}),
    "warm-up": ({"kind": "kernel-ridge", "config": {"kernel": SIGMA}}, LEARNED | {"warmup_rounds": 30}),
    "in the warm-up": ({"kind": "kons", "config": {"kernel": SIGMA, "loss": "logistic"}}, LEARNED | NAMED),
}


async def sent(api: Api, form: str, rows: list[dict[str, Any]], name: str) -> None:
    path = f"/sessions/{name}/rounds"
    columns: dict[str, list[Any]] = {member: [row[member] for row in rows] for member in rows[0]}
    if form == "JSON":
        await api.call("POST", path, columns)
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (table := pa.table(columns)).schema) as writer:
        writer.write_table(table)
    body, headers = (
        (lines(rows), NDJSON) if form == "lines" else (bytes(sink.getvalue()), {"Content-Type": arrow.ARROW})
    )
    answer = await api.http.post(path, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert '"refused"' not in answer.text


def same_state(one: Any, other: Any) -> None:
    expected = other.learner.state()
    for array, values in one.learner.state().items():
        np.testing.assert_allclose(values, expected[array], rtol=1e-9, atol=1e-9, err_msg=array)


@pytest.mark.each
@pytest.mark.parametrize("form", ["JSON", "lines", "Arrow"])
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize(("learner", "settings"), WEIGHTED.values(), ids=WEIGHTED)
async def test_weighted_rounds_are_weighted_updates(
    store_url: str, learner: dict[str, Any], settings: dict[str, Any], split: list[int], form: str
) -> None:
    """Here, and where another worker replays the journal."""
    truths = [LABELS[y] for y in Y] if "labels" in settings else Y.tolist()
    rows = [{"x": X[i].tolist(), "y": truths[i], "weight": W[i]} for i in range(split[-1])]
    async with serving(store_url) as api, serving(store_url) as other:
        for name in ("single", "block"):
            await api.create(learner, name, **settings)
        for row in rows:
            await api.update(name="single", **row)
        for start, end in pairwise(split):
            await sent(api, form, rows[start:end], "block")
        single, block = await session_of(api, "single"), await session_of(api, "block")
        same_state(block, single)
        one, two = block.warmup, single.warmup
        assert (None if one is None else one.weights) == (None if two is None else two.weights)
        metrics = [(await api.inspect(name))["metrics"] for name in ("single", "block")]
        assert metrics[1] == pytest.approx(metrics[0], rel=1e-9)
        await api.create(learner, "without", **settings)
        await api.rounds([row["x"] for row in rows], [row["y"] for row in rows], "without")
        last = X[99].tolist()
        found = [await api.predict(last, name, wait=False) for name in ("block", "without")]
        assert found[0] | {"session": ""} != found[1] | {"session": ""}
        assert await other.predict(last, "block", wait=False) == found[0]


async def test_weights_of_one_are_none(memory: Api) -> None:
    """In the journal and in what is remembered, too."""
    x, y, n = X[:20].tolist(), Y[:20].tolist(), 20
    await memory.create(RIDGE, dim=10)
    first = await memory.rounds(x, y, id="batch")
    assert await memory.rounds(x, y, id="batch", weight=[1] * n) == first | {"duplicate": True}
    await memory.rounds(x, y, id="with", weight=[1.0] * n)
    assert (await memory.rounds(x, y, id="with"))["duplicate"]
    await memory.create(MEAN, "any")
    for weight in ([1.0] * n, None):
        await memory.rounds(x, y, "any", weight=weight)


OF_WEIGHTS: dict[str, tuple[str, Any, str, str]] = {
    "0": ("s", [1, 2, 3, 0], "invalid-request", "/weight/3"),
    "negative": ("s", [1, -2, 3, 1], "invalid-request", "/weight/1"),
    "too small": ("s", [1e-7, 1, 1, 1], "invalid-request", "/weight/0"),
    "too large": ("s", [1, 1, 1e6, 2e6], "invalid-request", "/weight/3"),
    "a text": ("s", [1, 1, "2", 1], "wrong-type", "/weight/2"),
    "null": ("s", [1, 1, None, 1], "wrong-type", "/weight/2"),
    "one for all": ("s", 2.0, "invalid-request", "/weight"),
    "too few": ("s", [2.0] * 3, "invalid-request", "/weight"),
    "too many": ("s", [2.0] * 5, "invalid-request", "/weight"),
    "none": ("s", [], "invalid-request", "/weight"),
    "not taken": ("any", [1, 1, 2, 1], "invalid-request", "/weight"),
}


@pytest.mark.parametrize("width", [1, 5_000], ids=["whole", "in slices"])
@pytest.mark.parametrize(("name", "weight", "slug", "pointer"), OF_WEIGHTS.values(), ids=OF_WEIGHTS)
async def test_wrong_weights_change_nothing(
    memory: Api, name: str, weight: Any, slug: str, pointer: str, width: int
) -> None:
    await memory.create(RIDGE)
    await memory.create(MEAN, "any")
    body = {"x": [[float(i)] * width for i in range(4)], "y": [1.0] * 4, "weight": weight}
    problem = await memory.refused(slug, "POST", f"/sessions/{name}/rounds", body)
    assert [one["pointer"] for one in problem["errors"]] == [pointer]
    assert (await memory.inspect(name))["t"] == 0
    if name == "any":
        single = {"x": [0.0], "y": 1.0, "weight": 2}
        assert problem["detail"] == (await memory.refused(slug, "POST", "/sessions/any/update", single))["detail"]


async def test_a_line_with_a_weight_that_is_not_taken_is_named(memory: Api) -> None:
    await memory.create(MEAN)
    rows = [{"x": [1.0], "y": 1.0, "weight": 2.0 if i in (7, 9) else 1.0} for i in range(12)]
    answer = await memory.http.post("/sessions/s/rounds", content=lines(rows), headers=NDJSON)
    problem = check_problem(answer, "invalid-request")
    assert (problem["line"], problem["errors"][0]["pointer"]) == (8, "/weight")
    assert problem["detail"].startswith("Line 8: /weight: mean takes no weights")
    answer = await memory.http.post("/sessions/s/rounds?block=5", content=lines(rows), headers=NDJSON)
    assert '"line":8' in answer.text
    assert (await memory.inspect())["t"] == 5


@pytest.mark.parametrize("declared", [{"dim": 2}, {"schema": {"a": "number", "b": "number"}}], ids=["dim", "schema"])
async def test_rounds_may_be_the_first_of_a_session_whose_inputs_are_declared(
    tmp_path: Path, declared: dict[str, Any]
) -> None:
    rows = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.5]]
    inputs = rows if "dim" in declared else [dict(zip("ab", row, strict=True)) for row in rows]
    store = f"sqlite:///{tmp_path}/okl.sqlite3"
    async with serving(store) as api:
        for name in ("single", "block"):
            await api.create({"kind": "kernel-ridge"}, name, **declared)
        for x in inputs[:3]:
            await api.update(1.0, "single", x=x)
        await api.rounds(inputs[:3], [1.0] * 3, "block")
        single, block = [await api.predict(inputs[3], name, wait=False) for name in ("single", "block")]
        assert block["value"] == pytest.approx(single["value"], rel=1e-9)
        assert single["value"] > 0.5
        assert (await api.inspect("block"))["describe"]["t"] == 3
    async with serving(store) as again:
        assert await again.predict(inputs[3], "block", wait=False) == block


async def test_named_features_in_rounds(memory: Api) -> None:
    rows = [{"b": i % 2 == 0, "a": float(i)} for i in range(5)]
    await memory.create(MEAN)
    await memory.rounds(rows, [1.0] * 5)
    assert [f["name"] for f in (await memory.inspect())["fields"]] == ["a", "b"]
    for x in ([rows[0], {"a": 1.0}], [rows[0], [1.0, 0.0]]):
        await memory.refused("wrong-features", "POST", "/sessions/s/rounds", {"x": x, "y": [1.0, 1.0]})
    assert (await memory.inspect())["t"] == 5


MIXED: dict[str, tuple[list[Any], str, str]] = {
    "other names": ([{"a": 1.0}, {"b": 1.0}], "wrong-features", "/x/1/a"),
    "a list": ([{"a": 1.0}, [1.0]], "wrong-features", "/x/1"),
    "a record": ([[1.0], {"a": 1.0}], "wrong-features", "/x/1"),
    "a longer one": ([[1.0], [1.0, 2.0]], "wrong-dimension", "/x/1"),
}


@pytest.mark.parametrize(("x", "slug", "pointer"), MIXED.values(), ids=MIXED)
async def test_the_first_request_of_a_strict_session_needs_inputs_of_one_kind(
    memory: Api, x: list[Any], slug: str, pointer: str
) -> None:
    await memory.create(MEAN)
    problem = await memory.refused(slug, "POST", "/sessions/s/rounds", {"x": x, "y": [1.0, 1.0]})
    assert problem["errors"][0]["pointer"] == pointer
    found = await memory.inspect()
    assert (found["t"], found["dim"]) == (0, None)
    await memory.create(MEAN, "any", strict=False)
    assert (await memory.rounds(x, [1.0, 1.0], "any"))["t"] == 2


@pytest.mark.parametrize(("scale", "low"), [("none", None), ("learned", None), ("ranges", [0.0])])
async def test_the_first_request_is_checked_as_its_rounds_one_by_one(
    memory: Api, scale: str, low: list[float] | None
) -> None:
    """Only the first input decides how many columns there are: a later one may have others."""
    ranges = {} if low is None else {"low": low, "high": [1.0]}
    learner = {"kind": "foster-1d" if low is None else "aioli"}
    inputs = [{"a": 0.5}, {"a": 0.1, "b": 2.0}, {"b": 1.0}]
    for name in ("single", "block"):
        await memory.create(learner, name, scale={"kind": scale} | ranges, strict=False)
    losses = [(await memory.update(1, "single", x=x))["loss"] for x in inputs]
    block = await memory.rounds(inputs, [1] * 3, "block")
    assert block["loss"] == pytest.approx(sum(losses), rel=1e-9)


@pytest.mark.parametrize("learner", [POMDR, MEDIAN], ids=["learner", "warm-up"])
async def test_repeated_rounds_get_the_first_answer(api: Api, learner: dict[str, Any]) -> None:
    await api.create(learner, warmup_rounds=10)
    x, y = X[:25].tolist(), Y[:25].tolist()
    first = await api.rounds(x, y, id="batch")
    assert await api.rounds(x, y, id="batch") == first | {"duplicate": True}
    found = await api.inspect()
    assert (found["t"], found["metrics"]["rounds"]) == (25, 25)


async def test_if_match_plays_rounds_only_where_the_client_left_off(store_url: str) -> None:
    """Whoever feeds a stream alone finds out that somebody else has fed it too; sent again, a request is no such somebody."""
    path, x, y = "/sessions/s/rounds", X[:5].tolist(), Y[:5].tolist()
    async with serving(store_url) as one, serving(store_url) as other:
        etag = (await one.create(POMDR))["etag"]
        body = {"x": x, "y": y, "id": "batch"}
        first = await one.call("POST", path, body, headers={"If-Match": etag})
        for api in (one, other):
            again = await api.call("POST", path, body, headers={"If-Match": etag})
            assert again == first | {"duplicate": True}
            problem = await api.refused(
                "precondition-failed", "POST", path, body | {"id": "more"}, headers={"If-Match": etag}
            )
            assert problem["session"] == "s"
        now = (await other.inspect())["etag"]
        await one.update(1, x=X[9].tolist())
        await other.refused("precondition-failed", "POST", path, body | {"id": "more"}, headers={"If-Match": now})
        now = (await other.inspect())["etag"]
        assert (await other.call("POST", path, body | {"id": "more"}, headers={"If-Match": now}))["t"] == 11


async def test_many_rounds_of_megabytes(memory: Api) -> None:
    """More than a body of one round may have: it is read in slices."""
    await memory.create(MEAN)
    n = 3_000
    x = [[float(i)] * 50 for i in range(n)]
    told = await memory.rounds(x, [1.0] * n)
    assert (told["t"], len(told["values"])) == (n, n)
    body = {"x": x, "y": [1.0] * (n - 1)}
    problem = await memory.refused("invalid-request", "POST", "/sessions/s/rounds", body)
    assert f"`x` has {n} rows" in problem["detail"]


async def test_a_bad_row_refuses_all(api: Api) -> None:
    await api.create(POMDR)
    await api.update(1, x=X[0].tolist())
    before = await api.inspect(), await api.store.read("s")
    rows = X[:20].tolist()
    rows[17][3] = 1e200
    problem = await api.refused("not-finite", "POST", "/sessions/s/rounds", {"x": rows, "y": Y[:20].tolist()})
    assert problem["errors"][0]["pointer"] == "/x/17"
    assert (await api.inspect(), await api.store.read("s")) == before


async def test_blocks_and_rounds_replay(store_url: str) -> None:
    """Whatever mixture the journal holds, another worker comes to the same state."""
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create(MEDIAN, scale={"kind": "learned"}, warmup_rounds=30)
        await one.rounds(X[:20].tolist(), Y[:20].tolist())
        await other.update(int(Y[20]), x=X[20].tolist())
        await one.rounds(X[21:60].tolist(), Y[21:60].tolist())
        await other.update(int(Y[60]), x=X[60].tolist())
        assert await one.inspect() == await other.inspect()
        answers = [await api.predict(X[70].tolist(), wait=False) for api in (one, other)]
        assert answers[0] == answers[1]


async def test_an_answer_has_a_bound_whatever_labels_a_request_brings(memory: Api) -> None:
    """Each row has the probability of each label so far."""
    await memory.call("POST", "/sessions", {"name": "s"}, status=201)
    body = {"x": [[1.0]] * 2000, "y": [f"label {i % 1000}" for i in range(2000)]}
    await memory.refused("payload-too-large", "POST", "/sessions/s/rounds", body)
    assert (await memory.inspect())["t"] == 0


async def test_a_named_learner_collects_labels_from_rounds(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s", "learner": "auto"}, status=201)
    assert (await memory.rounds([[1.0]] * 3, ["a", "b", "a"]))["labels"] == [None, "a", "a"]


@pytest.mark.parametrize("route", ["rounds?block=10", "stream"])
async def test_lines_that_have_begun_are_answered_though_the_worker_stops(memory: Api, route: str) -> None:
    await memory.create()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"x": [1], "y": 0}\n' * 10
        memory.worker.conversations.close()
        yield b'{"x": [1], "y": 0}\n' * 10

    answer = await memory.http.post(
        f"/sessions/s/{route}", content=body(), headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.status_code == 200
    assert len(answer.text.splitlines()) >= 1
    assert memory.worker.conversations.count == 0


async def test_a_body_of_lines_that_breaks_off_is_no_fault_of_the_service(
    memory: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """What came is learned as far as it made whole blocks; nobody is there to be told."""
    await memory.create()
    came: list[Message] = [{"type": "http.request", "body": b'{"x": [1], "y": 0}\n' * 15, "more_body": True}]
    sent: list[Message] = []

    async def receive() -> Message:
        return came.pop() if came else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/sessions/s/rounds",
        "query_string": b"block=10",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/x-ndjson")],
    }
    await memory.app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert (await memory.inspect())["t"] == 10
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
