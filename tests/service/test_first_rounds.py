"""What a stand-in would take and the learner would not is refused at once: no later round could be learned with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.api import Api

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
    assert (await memory.inspect())["dim"] == 256
