"""What the demonstration and the bench compare ours with does what they say, and no worse."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("river")


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from service.demos import usual_way

    shelf = usual_way.FolderShelf(tmp_path)
    ways = {"memory": 0, "snapshots": 100, "pickled": 1}
    monkeypatch.setattr(usual_way, "ways", {name: usual_way.Models(shelf, saves) for name, saves in ways.items()})
    return usual_way


def learn(usual: ModuleType, way: str, numbers: range, x0: float = 1.0) -> None:
    for number in numbers:
        body = usual.UpdateIn(id=f"u-{number}", x=[x0, number % 3], y="late" if number % 3 else "on time")
        asyncio.run(usual.update(way, "s", body))


@pytest.mark.parametrize("way", ["memory", "snapshots", "pickled"])
def test_one_client_loses_nothing_and_a_repeat_is_learned_again(usual: ModuleType, way: str) -> None:
    learn(usual, way, range(30))
    learn(usual, way, range(10))
    found = asyncio.run(usual.inspect(way, "s"))
    assert found == {"t": 40, "times": {number: 1 + (number < 10) for number in range(30)}}
    told = asyncio.run(usual.predict(way, "s", usual.PredictIn(x=[1.0, 2.0])))
    assert told["label"] == "late"
    assert told["probability"] > 0.5


def test_what_a_snapshot_has_is_what_a_new_worker_has(usual: ModuleType, tmp_path: Path) -> None:
    learn(usual, "snapshots", range(130))
    new = usual.Models(usual.FolderShelf(tmp_path), 100)
    assert sum(asyncio.run(new.get("snapshots-s")).learned) == 100


def test_updates_at_once_overwrite_each_other(usual: ModuleType) -> None:
    """Each reads the model, learns, and writes it back: one of them stays."""

    async def together() -> None:
        bodies = [usual.UpdateIn(id=f"u-{number}", x=[1.0], y=2.0) for number in range(8)]
        await asyncio.gather(*(usual.update("pickled", "s", body) for body in bodies))

    asyncio.run(together())
    assert asyncio.run(usual.inspect("pickled", "s"))["t"] < 8


def test_one_row_with_nan_is_taken_and_spoils_the_model(usual: ModuleType) -> None:
    learn(usual, "pickled", range(10))
    learn(usual, "pickled", range(10, 11), x0=math.nan)
    told = asyncio.run(usual.predict("pickled", "s", usual.PredictIn(x=[1.0, 2.0])))
    assert not math.isfinite(told["probability"])
