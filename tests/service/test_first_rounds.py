"""What a stand-in would take and the learner would not is refused at once: no later round could be learned with it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.service.api import Api, serving_on

pytestmark = pytest.mark.anyio
ROUNDS = 20


async def lived(api: Api, odd: dict[str, Any], slug: str) -> None:
    """All rounds are learned but the odd one, which is refused."""
    for i in range(ROUNDS):
        if i == 3:
            await api.refused(slug, "POST", "/sessions/s/update", odd)
            many = {"x": [odd["x"], [0.0]], "y": [odd["y"], 1.0]}
            await api.refused(slug, "POST", "/sessions/s/rounds", many)
        await api.update(float(i % 3), x=[1e-300 * (i % 5)])
    assert (await api.inspect())["t"] == ROUNDS


@pytest.mark.parametrize(
    "scale", [{"kind": "none"}, {"kind": "ranges", "low": [0.0], "high": [1e-300]}], ids=["none", "ranges"]
)
async def test_an_input_whose_square_is_not_finite(memory: Api, scale: dict[str, Any]) -> None:
    await memory.call("POST", "/sessions", {"name": "s", "scale": scale}, status=201)
    await lived(memory, {"x": [1e200], "y": 1.0}, "not-finite")


@pytest.mark.parametrize("size", [1e151, 1e-155])
async def test_inputs_beyond_the_numbers_of_a_config(memory: Api, size: float) -> None:
    learner = {"kind": "kons", "config": {"kernel": {"kind": "gaussian", "sigma": "median"}}}
    await memory.call("POST", "/sessions", {"name": "s", "learner": learner, "scale": {"kind": "none"}}, status=201)
    for i in range(ROUNDS):
        await memory.update(float(i % 2), x=[size * (-1) ** i, 0.1 * i * size])
    assert (await memory.inspect())["describe"]["t"] == ROUNDS


async def test_a_new_field_whose_square_is_not_finite(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s", "scale": {"kind": "none"}}, status=201)
    for i in range(ROUNDS):
        if i == 10:
            await memory.refused("not-finite", "POST", "/sessions/s/update", {"x": {"a": 1.0, "b": 1e200}, "y": 1.0})
        await memory.update(float(i % 3), x={"a": float(i), "b": 1.0} if i > 8 else {"a": float(i)})


async def test_a_truth_that_is_too_large(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s"}, status=201)
    await lived(memory, {"x": [1.0], "y": 1e150}, "numerical-failure")


async def test_a_first_record_of_very_many_names(memory: Api) -> None:
    """It is hashed, so it has few columns."""
    await memory.call("POST", "/sessions", {"name": "s"}, status=201)
    for i in range(9):
        await memory.update(1.0, x={f"{i}-{j}": 1.0 for j in range(12_000)})
    told = await memory.inspect()
    assert (told["dim"], told["hashed"], told["fields"]) == (256, 256, [])
    assert "All names are hashed into 256 columns." in (await memory.http.get("/sessions/s/page")).text


async def test_hashed_columns_by_request_are_told_before_the_first_round(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s", "hashed": 64}, status=201)
    for _ in range(2):
        told = await memory.inspect()
        assert (told["dim"], told["hashed"], told["fields"]) == (64, 64, None)
        assert "All names are hashed into 64 columns." in (await memory.http.get("/sessions/s/page")).text
        await memory.update(1.0, x={"a": "b"})


STEEP = {"kind": "kernel-ridge", "config": {"kernel": {"kind": "polynomial", "degree": 8}}}
"""Of an input far outside the scale of the others it could learn nothing more than that one."""


@pytest.mark.parametrize("more", [{}, {"lags": 2}], ids=["plain", "lags"])
async def test_a_round_that_the_learner_refuses_when_it_is_made_is_left_out(memory: Api, more: dict[str, Any]) -> None:
    """A stand-in took it, and all went well. Without it the learner is as one that never saw it."""
    learner = STEEP | more
    for name in ("s", "without"):
        await memory.call("POST", "/sessions", {"name": name, "learner": learner, "y_range": [0, 2]}, status=201)
    inputs = [[math.sin(i)] for i in range(ROUNDS)]
    for i, x in enumerate(inputs):
        await memory.update(float(i % 3), x=[1e9] if i == 3 else x)
    told = await memory.inspect()
    assert told["t"] == ROUNDS
    # At each stage, of 8 and of 16 rounds.
    assert told["describe"]["t"] == ROUNDS - 1
    # The present round is one that is refused, as by a session that has its learner.
    for i, x in enumerate(inputs[:7]):
        await memory.update(float(i % 3), name="without", x=x)
    await memory.refused("numerical-failure", "POST", "/sessions/without/update", {"x": [1e9], "y": 1.0})
    assert (await memory.update(1.0, name="without", x=[0.5]))["t"] == 8
    before = await memory.call("POST", "/sessions/s/predict", {"x": [0.3], "wait": False})
    async with serving_on(memory.store) as fresh:
        assert await fresh.call("POST", "/sessions/s/predict", {"x": [0.3], "wait": False}) == before
        assert (await fresh.inspect())["describe"]["t"] == ROUNDS - 1


async def test_a_learner_that_refuses_every_round_says_so(memory: Api) -> None:
    config = {"regularization": 1e-12}
    learner = {"kind": "kernel-ridge", "config": config}
    await memory.call("POST", "/sessions", {"name": "s", "learner": learner, "y_range": [0, 2]}, status=201)
    for i in range(7):
        await memory.update(float(i % 3), x=[float(i)])
    for i in range(3):
        await memory.refused("numerical-failure", "POST", "/sessions/s/update", {"x": [float(i)], "y": 1.0})


async def test_a_weight_that_the_learner_does_not_take(memory: Api) -> None:
    """A stand-in would ignore it."""
    body = {"name": "s", "learner": {"kind": "pool"}, "labels": ["no", "yes"]}
    await memory.call("POST", "/sessions", body, status=201)
    await memory.refused("invalid-request", "POST", "/sessions/s/update", {"x": [0.5], "y": "no", "weight": 2.0})
    await memory.refused("invalid-request", "POST", "/sessions/s/rounds", {"x": [[0.5]], "y": ["no"], "weight": [2.0]})
    assert (await memory.inspect())["t"] == 0
