"""Intervals stay in the range of the truths, and no set holds a label that nobody knew."""

from __future__ import annotations

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
