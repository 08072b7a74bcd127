"""Intervals stay in the range of the truths; no set holds a label that nobody knew, and sets cover what they promise."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.service.api import Api

pytestmark = pytest.mark.anyio


async def test_an_interval_stays_in_the_range_of_the_truths(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s", "y_range": [0, 1000], "interval": 0.9}, status=201)
    told = await memory.predict([1.0], wait=False)
    assert (told["low"], told["high"]) == (0.0, 1000.0)
    for i in range(30):
        await memory.update((0.0, 1000.0, 3.0)[i % 3], x=[float(i % 7)])
        told = await memory.predict([float(i)], wait=False)
        assert 0.0 <= told["low"] <= told["high"] <= 1000.0


async def test_a_label_never_seen_is_in_no_set(memory: Api) -> None:
    for name in ("s", "late", "many"):
        await memory.call("POST", "/sessions", {"name": name, "interval": 0.9}, status=201)
    names = [f"label {i}" for i in range(20)]
    for i, name in enumerate(names):
        assert name not in (await memory.predict([1.0], name="late", id=f"{i}")).get("set", [])
        await memory.update(name, name="late", id=f"{i}")
        await memory.update(name, x=[1.0])
    told = await memory.rounds([[1.0]] * 20, names, name="many")
    assert told["labels"][0] is None
    assert [row for row, held in enumerate(told["sets"]) if names[row] in held] == []
    for name in ("s", "late", "many"):
        assert (await memory.inspect(name))["metrics"]["coverage"] == 0.0
    # What is known by now is in a set again.
    assert names[3] in (await memory.predict([1.0], wait=False))["set"]


@pytest.mark.parametrize("learner", [{"kind": "pool", "config": {"experts": [{"kind": "aioli"}]}}, "majority"])
async def test_sets_of_a_learner_whose_loss_has_no_probabilities(memory: Api, learner: Any) -> None:
    settings = {"name": "s", "labels": ["n", "y"], "learner": learner, "interval": 0.9}
    await memory.call("POST", "/sessions", settings, status=201)
    draw = Random(3)
    xs = [[draw.random(), draw.random()] for _ in range(800)]
    await memory.rounds(xs, ["ny"[draw.random() < x] for x, _ in xs])
    assert (await memory.inspect())["metrics"]["coverage"] == pytest.approx(0.9, abs=0.01)


async def test_a_set_has_the_label_of_its_forecast_where_two_are_equally_probable(memory: Api) -> None:
    settings = {
        "name": "s",
        "labels": ["n", "y"],
        "learner": "kernel-aioli",
        "interval": 0.9,
        "scale": {"kind": "none"},
    }
    await memory.call("POST", "/sessions", settings, status=201)
    for _ in range(40):
        await memory.update("n", x=[1.0])
    # Far from all that it has learned.
    told = await memory.predict([1e6], wait=False)
    assert (told["probability"], told["set"]) == (0.5, [told["label"]])


async def test_a_label_that_was_impossible_is_missed(memory: Api) -> None:
    """Inputs so large that the probability of a label is 0."""
    settings = {
        "name": "s",
        "labels": ["n", "y"],
        "learner": "ftrl-logistic",
        "interval": 0.9,
        "scale": {"kind": "none"},
    }
    await memory.call("POST", "/sessions", settings, status=201)
    for _ in range(40):
        await memory.update("n", x=[1e4])
    told = await memory.predict([1e8], id="a")
    assert (told["probability"], told["set"]) == (0.0, ["n"])
    before = (await memory.inspect())["metrics"]["coverage"]
    await memory.update("y", id="a")
    assert (await memory.inspect())["metrics"]["coverage"] == pytest.approx(before * 40 / 41)


async def test_no_sets_without_probabilities(memory: Api) -> None:
    settings = {"name": "s", "labels": ["n", "y"], "learner": "kons", "interval": 0.9}
    problem = await memory.refused("invalid-request", "POST", "/sessions", settings)
    assert "no probabilities" in problem["detail"]
