"""The session's own words: labels, units, named features, scaling. Each against the learner run by hand."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

import okl_core
from okl_core.types import F64
from service.demo_data import magic
from tests.service.api import Api, serving
from tests.service.definitions import GAUSSIAN, MEAN, MEDIAN, POMDR

pytestmark = pytest.mark.anyio

X, Y = magic()
ROUNDS = 40
LEARNED = {"kind": "pomdr", "config": {"kernel": {"kind": "gaussian", "sigma": "median", "metric": "learned"}}}


def ranges(X: F64, low: F64, high: F64) -> F64:
    return (X - low) / (high - low)


LABELS: dict[str, list[Any]] = {
    "texts": ["no", "yes"],
    "integers": [0, 1],
    "turned around": [1, 0],
    "booleans": [False, True],
    "fractions": [0.25, 0.75],
    "mixed": ["0", 0],
    "large": [-1e308, 1e308],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
async def test_labels_are_the_learners_signs(memory: Api, labels: list[Any]) -> None:
    created = await memory.create(POMDR, labels=labels)
    assert [(v, type(v)) for v in created["settings"]["labels"]] == [(v, type(v)) for v in labels]
    learner = okl_core.create(POMDR, 10)
    for row in range(ROUNDS):
        expected = learner.update(X[row], Y[row])
        prediction = await memory.predict(X[row].tolist())
        own = labels[int(expected.forecast.value >= 0.0)]
        assert prediction["score"] == expected.forecast.value
        assert (prediction["label"], type(prediction["label"])) == (own, type(own))
        answer = await memory.update(labels[int(Y[row] > 0)], id=prediction["id"])
        assert answer["mistake"] == (expected.forecast.label != Y[row])


FOREIGN: dict[str, tuple[list[Any], list[Any]]] = {
    "texts": (["no", "yes"], ["maybe", "YES", "", 1, True]),
    "integers": ([0, 1], [2, -1, 0.5, "0", "1", False, True]),
    "booleans": ([False, True], [0, 1, "true"]),
    "fractions": ([0.25, 0.75], [0.5, "0.25"]),
}


@pytest.mark.parametrize(("labels", "others"), FOREIGN.values(), ids=FOREIGN)
async def test_another_label_is_refused(memory: Api, labels: list[Any], others: list[Any]) -> None:
    await memory.create(POMDR, labels=labels)
    for y in others:
        problem = await memory.refused("wrong-truth", "POST", "/sessions/s/update", {"x": [1.0], "y": y})
        assert problem["errors"][0]["pointer"] == "/y"


@pytest.mark.parametrize("y", [1.0, -1])
async def test_without_labels_a_classifier_takes_signs(memory: Api, y: float) -> None:
    await memory.create(POMDR)
    assert (await memory.update(y, x=[1.0]))["t"] == 1
    for other in (0, True, "1", 2):
        await memory.refused("wrong-truth", "POST", "/sessions/s/update", {"x": [1.0], "y": other})


KONS = {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "squared", "clip": 2.0}}


@pytest.mark.parametrize(("learner", "half"), [(KONS, 2.0), (MEAN, 1.0)], ids=["kons", "mean"])
async def test_y_range_is_mapped_there_and_back(memory: Api, learner: dict[str, Any], half: float) -> None:
    """Values, errors and RMSE are in the user's units, the loss in the learner's."""
    low, high = 100.0, 250.0
    truths = np.random.default_rng(1).uniform(low, high, ROUNDS)
    await memory.create(learner, y_range=[low, high])
    by_hand = okl_core.create(learner, 10)
    errors = []
    for row, truth in enumerate(truths.tolist()):
        info = by_hand.update(X[row], ((truth - low) / (high - low) * 2.0 - 1.0) * half)
        value = low + (info.forecast.value / half + 1.0) * 0.5 * (high - low)
        prediction = await memory.predict(X[row].tolist())
        assert prediction["value"] == pytest.approx(value, rel=1e-12)
        answer = await memory.update(truth, id=prediction["id"])
        assert answer["error"] == pytest.approx(value - truth, rel=1e-9, abs=1e-9)
        assert answer["loss"] == pytest.approx(info.loss, rel=1e-12)
        errors.append(value - truth)
    metrics = (await memory.inspect())["metrics"]
    rmse = math.sqrt(np.mean(np.square(errors)))
    assert metrics["rmse"] == pytest.approx(rmse)
    assert metrics["window_rmse"] == pytest.approx(rmse)
    for y in (low - 1e-9, high + 1e-9):
        await memory.refused("wrong-truth", "POST", "/sessions/s/update", {"x": X[0].tolist(), "y": y})
    for y in (low, high):
        await memory.update(y, x=X[0].tolist())


SCHEMA = {
    "width": "number",
    "wet": {"type": "boolean"},
    "colour": {"type": "category", "categories": ["red", "green", "blue"]},
}


async def test_named_features_become_a_vector(memory: Api) -> None:
    """In the order of the schema whatever the order of the keys; a category is one input per value."""
    await memory.create(POMDR, schema=SCHEMA)
    learner = okl_core.create(POMDR, 5)
    rounds = [
        ({"wet": True, "colour": "green", "width": 0.5}, [0.5, 1.0, 0.0, 1.0, 0.0], 1),
        ({"colour": "red", "width": 2, "wet": False}, [2.0, 0.0, 1.0, 0.0, 0.0], -1),
        ({"width": -1.5, "wet": True, "colour": "blue"}, [-1.5, 1.0, 0.0, 0.0, 1.0], 1),
    ]
    for x, vector, y in rounds:
        expected = learner.update(np.array(vector), float(y))
        prediction = await memory.predict(x)
        assert prediction["score"] == expected.forecast.value
        await memory.update(y, id=prediction["id"])
    assert (await memory.inspect())["dim"] == 5


async def test_the_first_round_fixes_the_fields(api: Api) -> None:
    """A prediction alone fixes nothing; the first truth does, for every worker that comes later."""
    await api.create(MEAN)
    for x in ({"a": 1.0, "b": True}, {"z": 3.0}, [1.0, 2.0, 3.0]):
        await api.predict(x)
    await api.predict({"b": False, "a": 1.5}, id="first")
    await api.update(1.0, id="first")
    found = await api.inspect()
    assert [(f["name"], f["type"]) for f in found["fields"]] == [("a", "number"), ("b", "boolean")]
    await api.predict({"b": True, "a": -1.0})
    for x in ({"a": 1.0}, {"a": 1.0, "b": True, "c": 1.0}, {"a": 1.0, "c": True}, [1.0, 0.0]):
        await api.refused("wrong-features", "POST", "/sessions/s/predict", {"x": x})
    for x in ({"a": 1.0, "b": 1.0}, {"a": True, "b": True}, {"a": "1", "b": True}, {"a": None, "b": True}):
        await api.refused("wrong-type", "POST", "/sessions/s/predict", {"x": x})
    assert (await api.inspect())["t"] == 1


async def test_the_first_round_fixes_the_dimension(memory: Api) -> None:
    await memory.create(MEAN)
    await memory.predict([1.0, 2.0])
    await memory.update(1.0, x=[1.0])
    await memory.refused("wrong-dimension", "POST", "/sessions/s/predict", {"x": [1.0, 2.0]})
    await memory.refused("wrong-features", "POST", "/sessions/s/predict", {"x": {"a": 1.0}})


async def test_a_prediction_that_waits_is_settled_whatever_came_first(memory: Api) -> None:
    """Its input was taken when it was sent: its truth is one for good."""
    await memory.create(POMDR)
    await memory.predict({"a": 1.0, "b": True}, id="otherwise")
    await memory.update(1, x=[1.0])
    assert (await memory.update(1, id="otherwise"))["t"] == 2
    assert (await memory.predict([2.0], wait=False))["t"] == 2


ANY: list[Any] = [
    {},
    [1.0, None, 3.0],
    {"a": 1.0},
    {"a": "red", "b": {"c": [1, "x", None]}},
    {"a": None},
    [1.0],
    ["x", True],
    {"a": True, "when": "2026-11-22T10:00:00Z"},
    {"indices": [3, 70_000], "values": [1.0, 2.0]},
    {"": {"": 1}},
    [1.0, 2.0, 3.0, 4.0],
]


@pytest.mark.parametrize("scale", ["learned", "none"])
async def test_a_session_that_is_not_strict_takes_what_comes(api: Api, scale: str) -> None:
    await api.create(POMDR, strict=False, scale={"kind": scale}, warmup_rounds=20)
    for i in range(40):
        prediction = await api.predict(ANY[i % len(ANY)])
        await api.update(1 if i % 3 else -1, id=prediction["id"])
    found = await api.inspect()
    assert (found["t"], found["warming_up"]) == (40, False)
    assert sorted(column for one in found["fields"] for column in one["columns"])[-1] < found["dim"]


async def test_an_exact_session_takes_no_record_but_its_own(memory: Api) -> None:
    """What a session that is not strict takes, this one refuses."""
    await memory.create(POMDR)
    await memory.update(1, x=[1.0, 2.0, 3.0])
    for x in ANY:
        response = await memory.http.post("/sessions/s/predict", json={"x": x})
        assert response.status_code == 422, x
    assert (await memory.inspect())["t"] == 1


async def test_the_answer_says_what_became_of_each_field(memory: Api) -> None:
    await memory.create(
        POMDR, strict=False, scale={"kind": "learned"}, warmup_rounds=8, schema={"size.wide": "boolean"}
    )
    for i in range(8):
        x = {
            "size": {"wide": i % 2 == 0, "long": float(i)},
            "colour": ("red", "blue")[i % 2],
            "at": f"2026-11-{i + 1:02}",
        }
        await memory.update(1, x=x if i else x | {"size": None})
    told = {one["name"]: one for one in (await memory.inspect())["fields"]}
    assert list(told) == ["size.wide", "at", "colour", "size.long"]
    assert (told["size.wide"]["type"], told["size.wide"]["columns"]) == ("boolean", [0, 1])
    assert (told["at"]["type"], len(told["at"]["columns"])) == ("time", 7)
    assert told["colour"] == {
        "name": "colour", "type": "category", "columns": [9, 10, 11], "categories": ["blue", "red"], "has_others": True
    }  # fmt: skip
    assert told["size.long"] == {
        "name": "size.long", "type": "number", "columns": [12, 13], "missing_as": 4.0, "tells_missing": True, "low": 2.0,
        "high": 6.0,
    }  # fmt: skip


async def test_ranges_scale_by_hand(memory: Api) -> None:
    low, high = X.min(axis=0) - 1.0, X.max(axis=0)
    await memory.create(POMDR, scale={"kind": "ranges", "low": low.tolist(), "high": high.tolist()})
    learner = okl_core.create(POMDR, 10)
    for row in range(ROUNDS):
        expected = learner.update(ranges(X[row], low, high), Y[row])
        prediction = await memory.predict(X[row].tolist())
        assert prediction["score"] == expected.forecast.value
        await memory.update(int(Y[row]), id=prediction["id"])


WARMUPS = {
    "scale": (POMDR, {"scale": {"kind": "learned"}}),
    "median": (MEDIAN, {}),
    "scale and median": (MEDIAN, {"scale": {"kind": "learned"}}),
    "learned metric": (LEARNED, {"scale": {"kind": "learned"}}),
    "median of ranges": (MEDIAN, {"scale": {"kind": "ranges", "low": [-1.0] * 10, "high": [2.0] * 10}}),
}


def learned_ranges(X: F64) -> tuple[F64, F64]:
    """From the 5 % to the 95 % quantile, each moved inwards to a value that is there."""
    n = len(X) - 1
    ordered = np.sort(X, axis=0)
    return ordered[math.ceil(0.05 * n)], ordered[math.floor(0.95 * n)]


def scaled(X: F64, low: F64, high: F64) -> F64:
    """To [0, 1]; what is farther than one span beyond goes on as a logarithm."""
    unit = ranges(X, low, high)
    far = np.log1p(np.abs(unit - 0.5) - 1.5, where=np.abs(unit - 0.5) > 1.5, out=np.zeros_like(unit))
    return np.clip(unit, -1.0, 2.0) + np.sign(unit - 0.5) * far


@pytest.mark.each
@pytest.mark.parametrize(("learner", "settings"), WARMUPS.values(), ids=WARMUPS)
async def test_warmup_by_hand(api: Api, learner: dict[str, Any], settings: dict[str, Any]) -> None:
    """The majority answers; then the real learner, made at 8, 12 (the end) of all rounds so far, scaled by what it saw."""
    n = 12
    created = await api.create(learner, warmup_rounds=n, **settings)
    assert created["warming_up"]
    answering = okl_core.create({"kind": "majority"}, 10)
    seen = np.zeros_like(X)
    for row in range(n + 20):
        expected = answering.update(seen[row], Y[row])
        prediction = await api.predict(X[row].tolist())
        assert prediction["score"] == pytest.approx(expected.forecast.value, rel=1e-12)
        assert (await api.inspect())["warming_up"] == (row < n)
        await api.update(int(Y[row]), id=prediction["id"])
        if row + 1 not in (8, n):
            continue
        match settings.get("scale", {}).get("kind"):
            case "learned":
                seen = scaled(X, *learned_ranges(X[: row + 1]))
            case "ranges":
                seen = ranges(X, np.full(10, -1.0), np.full(10, 2.0))
            case _:
                seen = X
        answering = okl_core.create(okl_core.resolve(learner, seen[: row + 1], Y[: row + 1]), 10)
        answering.run(seen[: row + 1], Y[: row + 1])
        found, expected = (await api.inspect())["learner"]["config"]["kernel"], answering.spec.config["kernel"]
        assert found["sigma"] == pytest.approx(expected["sigma"], rel=1e-9)
        if settings and learner is LEARNED:
            np.testing.assert_allclose(found["metric"], expected["metric"], rtol=1e-6, atol=1e-9)
    assert (await api.inspect())["describe"] == pytest.approx(answering.describe(), rel=1e-9)


@pytest.mark.parametrize("is_block", [False, True], ids=["rounds", "block"])
async def test_the_end_of_a_warmup_holds_up_no_other_session(memory: Api, is_block: bool) -> None:
    """It takes long: a metric is learned, and all of the warm-up. Others are answered meanwhile."""
    n = 1_000
    rows, truths = X[:n].tolist(), Y[:n].astype(int).tolist()
    await memory.create(LEARNED, "long", warmup_rounds=n)
    await memory.create(MEAN)
    first = 0 if is_block else n - 1
    if not is_block:
        await memory.rounds(rows[:first], truths[:first], "long")
    ending = asyncio.create_task(memory.rounds(rows[first:], truths[first:], "long"))
    answered = 0
    while not ending.done():
        await memory.predict([1.0], wait=False)
        answered += not ending.done()
    assert (await ending)["t"] == n
    assert not (await memory.inspect("long"))["warming_up"]
    assert answered >= 2


PACKING = {"kind": "packing"}


@pytest.mark.parametrize("kind", ["ranges", "learned"])
async def test_a_scale_goes_into_the_ball_that_a_learner_asks_for(store_url: str, kind: str) -> None:
    """Also for the worker that reads the scale from the store."""
    n = 12
    low, high = learned_ranges(X[:n])
    scale = {"kind": kind} if kind == "learned" else {"kind": kind, "low": low.tolist(), "high": high.tolist()}
    unit = scaled(X, low, high) if kind == "learned" else ranges(X, low, high)
    seen = (2.0 * unit - 1.0) / math.sqrt(10.0)
    truths = ((Y + 1.0) / 2.0).tolist()
    by_hand = okl_core.create(PACKING, 10)
    async with serving(store_url) as api:
        await api.create(PACKING, scale=scale, warmup_rounds=n)
        for row in range(n):
            by_hand.update(seen[row], truths[row])
            await api.update(truths[row], x=X[row].tolist())
    async with serving(store_url) as api:
        for row in range(n, 30):
            expected = by_hand.update(seen[row], truths[row])
            prediction = await api.predict(X[row].tolist())
            assert prediction["value"] == pytest.approx(expected.forecast.value, rel=1e-12)
            await api.update(truths[row], id=prediction["id"])


async def test_a_constant_input_survives_the_warmup(memory: Api) -> None:
    await memory.create(MEDIAN, scale={"kind": "learned"}, warmup_rounds=3)
    for _ in range(5):
        await memory.update(1, x=[7.0, 7.0])
    assert not (await memory.inspect())["warming_up"]


async def test_a_learner_of_one_input_is_given_one(memory: Api) -> None:
    foster = {"kind": "foster-1d", "config": {"nodes": 101}}
    for name, member, pointer in (
        ("dim", {"dim": 2}, "/dim"),
        ("schema", {"schema": {"a": "number", "b": "number"}, "strict": True}, "/schema"),
    ):
        problem = await memory.refused(
            "invalid-request", "POST", "/sessions", {"name": name, "learner": foster} | member
        )
        assert [error["pointer"] for error in problem["errors"]] == [pointer]
    await memory.refused("invalid-config", "POST", "/sessions", {"name": "lags", "learner": foster | {"lags": 1}})
    # A stand-in that takes any inputs answers during the warm-up.
    await memory.create(foster, scale={"kind": "learned"}, warmup_rounds=10)
    await memory.refused("wrong-dimension", "POST", "/sessions/s/predict", {"x": [1.0, 2.0]})
    await memory.refused("wrong-dimension", "POST", "/sessions/s/rounds", {"x": [[1.0, 2.0]], "y": [1.0]})
    for i in range(12):
        await memory.update((-1.0) ** i, x=[float(i)])
    assert (await memory.inspect())["t"] == 12


async def test_a_first_input_of_more_fields_than_are_kept_needs_a_schema(memory: Api) -> None:
    """Their names were hashed, and every later input was answered with 500."""
    many = {f"f{i}": float(i) for i in range(257)}
    await memory.create({"kind": "mean"}, strict=True)
    problem = await memory.refused("wrong-features", "POST", "/sessions/s/update", {"x": many, "y": 1.0})
    assert "more than 256 fields" in problem["detail"]
    await memory.refused("wrong-features", "POST", "/sessions/s/rounds", {"x": [many], "y": [1.0]})
    await memory.update(1.0, x={"f0": 1.0})
    await memory.refused("wrong-features", "POST", "/sessions/s/predict", {"x": many})
    for name, settings in (("declared", {"schema": dict.fromkeys(many, "number")}), ("hashed", {"hashed": 64})):
        await memory.create({"kind": "mean"}, name, strict=True, **settings)
        for _ in range(2):
            await memory.update(1.0, name, x=many)
