"""Sessions of more than two labels: one-vs-rest over HTTP against the learner run by hand."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import okl_core
from okl.client import Client
from service.cli import app
from service.demo_data import magic
from tests.service.api import Api, serving
from tests.service.definitions import GAUSSIAN, ONE_VS_REST, POMDR

pytestmark = pytest.mark.anyio

X, Y = magic()
CLASSES = ((Y > 0.0) * (1.0 + (X[:, 8] > 0.3))).astype(int)
NAMES = ["hadron", "gamma", "gamma from aside"]
TRUTHS = [NAMES[k] for k in CLASSES.tolist()]
KONS = {
    "kind": "one-vs-rest",
    "config": {"member": {"kind": "kons", "config": {"loss": "logistic", "kernel": GAUSSIAN}}},
}
LEARNED = {"kind": "softmax-aioli", "config": {"half_life": "learned"}}
POOL = {
    "kind": "pool",
    "config": {"truth": "classes", "experts": ["one-vs-rest", {"kind": "softmax-aioli", "half_lives": [16]}]},
}
LEARNERS = {"default": ONE_VS_REST, "kons": KONS, "learned half-life": LEARNED, "pool": POOL}


def by_hand(learner: dict[str, Any], K: int = 3) -> okl_core.OnlineLearner:
    return okl_core.create(learner | {"config": learner.get("config", {}) | {"classes": K}}, 10)


@pytest.mark.each
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
async def test_a_session_of_three_labels(api: Api, learner: dict[str, Any]) -> None:
    created = await api.create(learner, labels=NAMES)
    assert created["labels"] == created["settings"]["labels"] == NAMES
    assert created["learner"]["config"]["classes"] == 3
    expected, losses, mistakes = by_hand(learner), [], []
    for row in range(25):
        info = expected.update(X[row], float(CLASSES[row]))
        prediction = await api.predict(X[row].tolist())
        assert set(prediction) == {"session", "id", "t", "label", "probabilities"}
        assert prediction["probabilities"] == list(info.forecast.probabilities or ())
        assert math.fsum(prediction["probabilities"]) == pytest.approx(1.0, abs=1e-12)
        assert prediction["label"] == NAMES[info.forecast.label]
        answer = await api.update(TRUTHS[row], id=prediction["id"])
        losses.append(-math.log(prediction["probabilities"][CLASSES[row]]))
        mistakes.append(prediction["label"] != TRUTHS[row])
        assert answer["loss"] == pytest.approx(losses[-1], rel=1e-12)
        assert answer["mistake"] == mistakes[-1]
    metrics = (await api.inspect())["metrics"]
    assert metrics["loss"] == pytest.approx(sum(losses))
    assert metrics["mistakes"] == sum(mistakes)
    assert metrics["mistake_rate"] == pytest.approx(np.mean(mistakes))


async def test_a_truth_that_was_all_but_ruled_out_is_scored(memory: Api) -> None:
    """It comes alone, late, or in a block; its probability would underflow."""
    learner = {"kind": "softmax-aioli"}
    rows, truths = (1e6 * X[:30]).tolist(), TRUTHS[:30]
    expected = by_hand(learner)
    infos = [expected.update(x, float(k)) for x, k in zip(np.array(rows), CLASSES[:30], strict=True)]
    assert max(info.loss for info in infos) == pytest.approx(690.8, abs=0.1)
    for name in ("one", "late", "block"):
        await memory.create(learner, labels=NAMES, name=name)
    for i, (x, y, info) in enumerate(zip(rows, truths, infos, strict=True)):
        assert (await memory.update(y, name="one", x=x))["loss"] == pytest.approx(info.loss, rel=1e-9)
        await memory.predict(x, name="late", id=str(i))
        assert (await memory.update(y, name="late", id=str(i)))["loss"] == pytest.approx(info.loss, rel=1e-9)
    told = await memory.rounds(rows, truths, name="block")
    assert told["loss"] == pytest.approx(sum(info.loss for info in infos), rel=1e-9)


async def test_late_truths_are_scored_as_issued(store_url: str) -> None:
    """By a worker that did not make the predictions, after a restart: the store has the probabilities."""
    async with serving(store_url) as api:
        await api.create(KONS, labels=NAMES)
        await api.rounds(X[:30].tolist(), TRUTHS[:30], id="first")
        before = (await api.inspect())["metrics"]
        issued = [await api.predict(X[row].tolist(), id=f"p{row}") for row in range(30, 50)]
    loss, mistakes = before["loss"], before["mistakes"]
    expected = by_hand(KONS)
    expected.run(X[:30], CLASSES[:30].astype(float))
    async with serving(store_url) as api:
        for row in reversed(range(30, 50)):
            told = issued[row - 30]
            assert await api.predict(X[row].tolist(), id=f"p{row}") == told
            answer = await api.update(TRUTHS[row], id=f"p{row}")
            assert answer["loss"] == pytest.approx(-math.log(told["probabilities"][CLASSES[row]]), rel=1e-12)
            assert answer["mistake"] == (told["label"] != TRUTHS[row])
            assert await api.update(TRUTHS[row], id=f"p{row}") == answer | {"duplicate": True}
            loss, mistakes = loss + answer["loss"], mistakes + answer["mistake"]
            expected.update(X[row], float(CLASSES[row]))
    async with serving(store_url) as api:
        found = await api.inspect()
        assert (found["t"], found["waiting"]) == (50, 0)
        assert found["metrics"]["loss"] == pytest.approx(loss)
        assert found["metrics"]["mistakes"] == mistakes
        live = await api.predict(X[60].tolist(), wait=False)
        assert live["probabilities"] == pytest.approx(expected.predict(X[60]).probabilities, abs=1e-9)


@pytest.mark.pairs
@pytest.mark.parametrize("learner", [ONE_VS_REST, LEARNED, POOL], ids=["one-vs-rest", "learned half-life", "pool"])
@pytest.mark.parametrize("snapshot_every", [None, 7])
async def test_another_worker_goes_on(store_url: str, learner: dict[str, Any], snapshot_every: int | None) -> None:
    """From the journal, or from a snapshot."""
    async with serving(store_url) as one:
        await one.create(learner, labels=NAMES, snapshot_every=snapshot_every)
        for row in range(25):
            await one.update(TRUTHS[row], x=X[row].tolist())
        live = await one.predict(X[99].tolist(), wait=False)
        found = await one.inspect()
    async with serving(store_url) as other:
        assert await other.predict(X[99].tolist(), wait=False) == live
        again = await other.inspect()
    assert again | {"storage": None} == found | {"storage": None}
    assert (again["storage"]["snapshot_round"] is None) == (snapshot_every is None)


async def test_the_number_of_labels_is_that_of_a_pool_and_its_experts(memory: Api) -> None:
    other = {
        "kind": "pool",
        "config": {"truth": "classes", "experts": [{"kind": "one-vs-rest", "config": {"classes": 4}}]},
    }
    problem = await memory.refused(
        "invalid-config", "POST", "/sessions", {"name": "s", "learner": other, "labels": NAMES}
    )
    assert "one-vs-rest, is of 4 classes, in a pool of 3: leave its `classes` out" in problem["detail"]
    wrong = {"kind": "softmax-aioli", "config": {"half_life": "learned", "classes": 4}}
    problem = await memory.refused(
        "invalid-config", "POST", "/sessions", {"name": "s", "learner": wrong, "labels": NAMES}
    )
    assert "softmax-aioli has 4 classes, and the session 3 labels; leave `classes` out" in problem["detail"]
    two = {"kind": "pool", "config": {"experts": ["ons"]}}
    problem = await memory.refused(
        "invalid-request", "POST", "/sessions", {"name": "s", "learner": two, "labels": NAMES}
    )
    wrapped = json.dumps({"kind": "one-vs-rest", "config": {"member": two}})
    assert problem["detail"].endswith(f"has 3 labels, and pool takes two; a learner of more: {wrapped}")
    aioli: dict[str, Any] = {"kind": "kernel-aioli", "config": {"half_life": "learned"}}
    more = {"pool": {"kind": "pool", "config": {"truth": "classes"}}}
    more["kernel-aioli"] = {"kind": "one-vs-rest", "config": {"member": aioli}}
    for learner in ({"kind": "pool"}, aioli):
        body = {"name": "s", "learner": learner, "labels": NAMES}
        problem = await memory.refused("invalid-request", "POST", "/sessions", body)
        kind = learner["kind"]
        assert problem["detail"].endswith(f"{kind} takes two; a learner of more: {json.dumps(more[kind])}")
        await memory.create(more[kind], f"more-{kind}", labels=NAMES)
    assert (await memory.create(two, labels=["no", "yes"]))["learner"]["config"] == two["config"]


async def test_a_pool_of_classes_takes_no_lags_and_no_weights(memory: Api) -> None:
    for name, learner in (("learned", LEARNED), ("pool", POOL)):
        body = {"name": name, "learner": learner | {"lags": 1}, "labels": NAMES}
        problem = await memory.refused("invalid-config", "POST", "/sessions", body)
        assert "a learner of classes cannot have lags: leave `lags` out" in problem["detail"]
        await memory.create(learner, name, labels=NAMES)
        body = {"x": X[0].tolist(), "y": NAMES[0], "weight": 2.0}
        assert (
            "weights" in (await memory.refused("invalid-request", "POST", f"/sessions/{name}/update", body))["detail"]
        )


LABELS: dict[str, list[Any]] = {
    "integers": [1, 2, 3],
    "fractions": [0.5, 0.25, -1],
    "mixed": ["1", 1, "a"],
    "equal in Python alone": [1, True, 0, False],
    "booleans among": [True, False, "neither"],
    "only two": ["no", "yes"],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
async def test_labels_keep_their_types(memory: Api, labels: list[Any]) -> None:
    await memory.create(ONE_VS_REST, labels=labels)
    expected = by_hand(ONE_VS_REST, len(labels))
    for row in range(20):
        k = row % len(labels)
        forecast = expected.update(X[row], float(k)).forecast
        prediction = await memory.predict(X[row].tolist())
        own = labels[forecast.label]
        assert (prediction["label"], type(prediction["label"])) == (own, type(own))
        assert prediction["probabilities"] == list(forecast.probabilities or ())
        assert len(prediction["probabilities"]) == len(labels)
        await memory.update(labels[k], id=prediction["id"])


async def test_labels_that_are_collected_keep_their_types(api: Api) -> None:
    """Whole numbers are integers, as those that are declared are."""
    labels = ["a", 1, 2.5, True, 3]
    await api.create({"kind": "auto", "config": {"truth": "classes"}})
    for row in range(2):
        await api.rounds(X[5 * row : 5 * row + 5].tolist(), labels)
    last = await api.call("GET", "/sessions/s/rounds?last=5")
    for found in (await api.inspect())["labels"], [one["y"] for one in last["rounds"]][::-1]:
        assert [(one, type(one)) for one in found] == [(label, type(label)) for label in labels]


@pytest.mark.parametrize("kind", ["one-vs-rest", "softmax-aioli with a learned half-life", "pool"])
async def test_without_labels_classes_are_numbered(memory: Api, kind: str) -> None:
    own = {"pool": POOL["config"], "one-vs-rest": {}}.get(kind, LEARNED["config"])
    created = await memory.create({"kind": kind.split()[0], "config": own | {"classes": 4}})
    assert (created["labels"], created["settings"]["labels"]) == ([0, 1, 2, 3], None)
    assert (await memory.update(3, x=[1.0]))["t"] == 1
    for y in (4, -1, 0.5, "3", True):
        await memory.refused("wrong-truth", "POST", "/sessions/s/update", {"x": [1.0], "y": y})


async def test_a_prediction_before_the_first_label_is_the_same_at_every_worker(store_url: str) -> None:
    async with serving(store_url) as here, serving(store_url) as there:
        await here.call("POST", "/sessions", {"name": "s", "learner": "auto"}, status=201)
        first = [await here.predict([1.0, 2.0], id=id) for id in ("p", "q")]
        assert [await there.predict([1.0, 2.0], id=id) for id in ("p", "q")] == first
        assert "label" not in first[0]
        for y in ("a", "b"):
            await there.update(y, x=[1.0, 2.0])
        told = [await worker.update("a", id=id) for worker, id in ((here, "p"), (there, "q"))]
        assert told[0]["loss"] == told[1]["loss"]
        assert told[0]["mistake"] == told[1]["mistake"]


async def test_labels_of_other_sessions_are_told_too(memory: Api) -> None:
    for name, learner, settings, labels in (
        ("signs", POMDR, {}, [-1, 1]),
        ("own", POMDR, {"labels": ["no", "yes"]}, ["no", "yes"]),
        ("numbers", {"kind": "mean"}, {}, None),
    ):
        assert (await memory.create(learner, name, **settings))["labels"] == labels


async def test_an_error_names_some_of_many_labels(memory: Api) -> None:
    await memory.create(ONE_VS_REST, labels=[f"label {i}" for i in range(200)])
    problem = await memory.refused("wrong-truth", "POST", "/sessions/s/update", {"x": [1.0], "y": "label"})
    assert "'label 8', ..., 'label 199'" in problem["detail"]
    assert "'label 10'" not in problem["detail"]


MEDIAN = {
    "kind": "one-vs-rest",
    "config": {
        "member": {"kind": "kons", "config": {"loss": "logistic", "kernel": {"kind": "gaussian", "sigma": "median"}}}
    },
}
SPLITS = {"all at once": [0, 40], "across the warm-up's end": [0, 15, 30, 40], "one by one": [0, 1, 2, 19, 20, 21, 40]}
WARMUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no warm-up": (ONE_VS_REST, {}),
    "scale": (ONE_VS_REST, {"scale": {"kind": "learned"}, "warmup_rounds": 20}),
    "median": (MEDIAN, {"warmup_rounds": 20}),
    "learned half-life": (LEARNED, {"scale": {"kind": "learned"}, "warmup_rounds": 20}),
    "pool": (POOL, {}),
}


@pytest.mark.parametrize(("learner", "settings"), WARMUPS.values(), ids=WARMUPS)
async def test_rounds_are_updates_one_by_one(memory: Api, learner: dict[str, Any], settings: dict[str, Any]) -> None:
    """However they are split into blocks."""
    await memory.create(learner, "single", labels=NAMES, **settings)
    predictions, answers = [], []
    for row in range(40):
        predictions.append(await memory.predict(X[row].tolist(), "single"))
        answers.append(await memory.update(TRUTHS[row], "single", id=predictions[-1]["id"]))
    single = await memory.inspect("single")
    for name, split in SPLITS.items():
        await memory.create(learner, "block", labels=NAMES, **settings)
        for start, end in pairwise(split):
            told = await memory.rounds(X[start:end].tolist(), TRUTHS[start:end], "block")
            assert "scores" not in told
            assert told["labels"] == [p["label"] for p in predictions[start:end]], name
            expected = np.array([p["probabilities"] for p in predictions[start:end]])
            np.testing.assert_allclose(told["probabilities"], expected, rtol=0.0, atol=1e-9, err_msg=name)
            assert told["loss"] == pytest.approx(sum(a["loss"] for a in answers[start:end]), rel=1e-9), name
            assert told["mistakes"] == sum(a["mistake"] for a in answers[start:end]), name
        block = await memory.inspect("block")
        assert block["metrics"] == pytest.approx(single["metrics"], rel=1e-9), name
        for part in ("t", "learner", "labels", "warming_up"):
            assert block[part] == single[part], name
        await memory.call("DELETE", "/sessions/block", status=204)


async def test_the_warm_up_answers_with_the_shares_of_the_labels(memory: Api) -> None:
    """Those of Krichevsky and Trofimov for each label, scaled, until there are rounds to make the learner of."""
    await memory.create(MEDIAN, labels=NAMES, warmup_rounds=20)
    counts = np.zeros(3)
    for row in range(20):
        shares = (counts + 0.5) / (row + 1.0)
        prediction = await memory.predict(X[row].tolist())
        assert (prediction["probabilities"] == pytest.approx(shares / shares.sum())) == (row < 8)
        await memory.update(TRUTHS[row], id=prediction["id"])
        counts[CLASSES[row]] += 1.0
    found = await memory.inspect()
    assert not found["warming_up"]
    assert isinstance(found["learner"]["config"]["member"]["config"]["kernel"]["sigma"], float)


async def test_frozen(api: Api) -> None:
    await api.create(ONE_VS_REST, labels=NAMES)
    await api.rounds(X[:40].tolist(), TRUTHS[:40])
    live = await api.predict(X[50].tolist(), wait=False)
    await api.call("POST", "/sessions/s/freeze", {"name": "fixed"}, status=201)
    await api.update(TRUTHS[41], x=X[41].tolist())
    fixed = await api.predict(X[50].tolist(), "fixed")
    assert (fixed["label"], fixed["probabilities"]) == (live["label"], live["probabilities"])
    assert (await api.inspect("fixed"))["labels"] == NAMES


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "colours.csv"
    lines = [f"{i % 7 / 7},{i % 3},{('red', 'green', 'blue')[i % 3]}" for i in range(150)]
    path.write_text("\n".join(["a,b,colour", *lines]) + "\n")
    return path


def test_a_file_of_three_labels(url: str, csv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OKL_URL", url)
    arguments = ["replay", str(csv), "--session", "colours", "--label", "colour"]
    refused = CliRunner().invoke(app, [*arguments, "--learner", "pomdr"])
    assert refused.exit_code != 0
    assert "one-vs-rest" in refused.output
    with Client(url) as client:
        try:
            for _ in range(2):
                ran = CliRunner().invoke(app, [*arguments, "--learner", "one-vs-rest"])
                assert ran.exit_code == 0, ran.output
            found = client.inspect("colours")
            assert (found["t"], found["labels"]) == (150, ["blue", "green", "red"])
            # The most frequent label is never the next one: the 100 answers of the warm-up are all but wrong.
            assert found["metrics"]["mistakes"] < 110
            prediction = client.predict("colours", {"a": 0.0, "b": 1.0})
            assert (prediction["label"], len(prediction["probabilities"])) == ("green", 3)
            assert not client.update("colours", "green", id=prediction["id"])["mistake"]
        finally:
            client.delete("colours")
