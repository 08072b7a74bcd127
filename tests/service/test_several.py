"""Several sessions in one request: each has its own round, exactly once, whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from okl.client import Client
from okl.errors import InvalidInput, PayloadTooLarge
from service.api.dependencies import rounds_of
from service.api.values import Name
from service.demo_data import magic
from service.rounds import Rounds
from tests.service.api import Api, serving
from tests.service.definitions import MEAN, POMDR, RIDGE

pytestmark = pytest.mark.anyio

X, Y = magic()
NAMES = ["one", "two", "three"]


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[tuple[Api, Api]]:
    async with serving(store_url) as one, serving(store_url) as other:
        yield one, other


async def predict(api: Api, x: Any, names: list[str] = NAMES, **more: Any) -> list[dict[str, Any]]:
    answer = await api.call("POST", "/sessions/predict", {"sessions": names, "x": x, **more})
    return answer["predictions"]


async def update(api: Api, truths: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    body = {"sessions": [{"session": name, "y": y} for name, y in truths.items()], **more}
    return (await api.call("POST", "/sessions/update", body))["updates"]


async def make(api: Api) -> None:
    await api.create(POMDR, name="one", labels=["no", "yes"])
    await api.create(RIDGE, name="two")
    await api.create(MEAN, name="three")


def truths(row: int) -> dict[str, Any]:
    return {"one": "yes" if Y[row] > 0 else "no", "two": float(X[row, 0]), "three": float(X[row, 1])}


async def test_as_each_alone(workers: tuple[Api, Api]) -> None:
    """Predictions and late truths through two workers; every answer is that of a twin that is asked alone."""
    await make(workers[0])
    twins = {"one": (POMDR, {"labels": ["no", "yes"]}), "two": (RIDGE, {}), "three": (MEAN, {})}
    for name, (learner, settings) in twins.items():
        await workers[0].create(learner, name=f"{name}-alone", **settings)
    for row in range(12):
        api, other = workers[row % 2], workers[(row + 1) % 2]
        x = X[row].tolist()
        told = await predict(api, x, id=f"r{row}")
        alone = [await api.predict(x, f"{name}-alone", id=f"r{row}") for name in NAMES]
        assert told == [one | {"session": name} for name, one in zip(NAMES, alone, strict=True)]
        if row % 3 == 2:
            for late in (row, row - 2, row - 1):
                told = await update(other, truths(late), id=f"r{late}")
                alone = [await api.update(y, f"{n}-alone", id=f"r{late}") for n, y in truths(late).items()]
                assert told == [one | {"session": name} for name, one in zip(NAMES, alone, strict=True)]
    for name in NAMES:
        pair = [await workers[0].call("GET", f"/sessions/{one}") for one in (name, f"{name}-alone")]
        assert pair[0]["metrics"] == pair[1]["metrics"]
        assert (pair[0]["t"], pair[0]["waiting"]) == (12, 0)


async def test_sent_again(workers: tuple[Api, Api]) -> None:
    await make(workers[0])
    for _ in range(2):
        for api in workers:
            first = await predict(api, X[0].tolist(), id="r")
            assert [one["t"] for one in first] == [0, 0, 0]
    answers = [await update(api, truths(0), id="r") for api in (*workers, *workers)]
    # A worker that did not know of the round plays the very same one; from then on it knows.
    assert [[one["duplicate"] for one in answer] for answer in answers[2:]] == [[True] * 3] * 2
    assert {one["t"] for answer in answers for one in answer} == {1}
    told = await update(workers[0], truths(1) | {"one": "no"}, id="r")
    assert [one.get("refused", {}).get("type") for one in told] == ["/problems/id-conflict"] * 3


async def test_one_id_for_all(workers: tuple[Api, Api]) -> None:
    """Made up if none is given, so that one update reports all truths; it may be the header too."""
    one, other = workers
    await make(one)
    told = await predict(one, X[0].tolist())
    ids = {entry["id"] for entry in told}
    assert len(ids) == 1
    assert [entry["t"] for entry in await update(other, truths(0), id=ids.pop())] == [1, 1, 1]
    header = {"Idempotency-Key": '"key"'}
    body = {"sessions": NAMES, "x": X[1].tolist()}
    asked = await one.call("POST", "/sessions/predict", body, headers=header)
    assert {entry["id"] for entry in asked["predictions"]} == {"key"}
    body = {"sessions": [{"session": name, "y": y} for name, y in truths(1).items()]}
    learned = await one.call("POST", "/sessions/update", body, headers=header)
    assert [entry["t"] for entry in learned["updates"]] == [2, 2, 2]
    told = await predict(one, X[0].tolist(), wait=False)
    assert all("id" not in entry for entry in told)
    assert [entry["t"] for entry in await update(one, truths(2), x=X[2].tolist())] == [3, 3, 3]


async def test_what_one_refuses_undoes_nothing(workers: tuple[Api, Api]) -> None:
    one, other = workers
    await make(one)
    await update(one, truths(0), x=X[0].tolist())
    await one.call("POST", "/sessions/three/freeze", {"name": "frozen"}, status=201)
    await one.create(MEAN, name="small", dim=2)
    names = ["nobody", "small", *NAMES, "frozen"]
    told = await predict(one, X[1].tolist(), names, id="r")
    assert [entry["session"] for entry in told] == names
    assert [entry.get("refused", {}).get("type") for entry in told] == [
        "/problems/session-not-found",
        "/problems/wrong-dimension",
        *[None] * 4,
    ]
    mixed = {"nobody": 1.0, "small": 1.0, **truths(1), "two": "yes", "frozen": 1.0}
    told = await update(other, mixed, id="r")
    slugs = [entry.get("refused", {}).get("type", "").rpartition("/")[2] for entry in told]
    assert slugs == ["session-not-found", "prediction-not-found", "", "wrong-type", "", "session-frozen"]
    assert told[3]["refused"]["errors"][0]["pointer"] == "/sessions/3/y"
    assert [entry["t"] for entry in told if "t" in entry] == [2, 2]
    # Sent again with what was wrong put right: those that have it done say so.
    told = await update(other, truths(1), id="r")
    assert [(entry["t"], entry["duplicate"]) for entry in told] == [(2, True), (2, False), (2, True)]


async def test_all_of_them_at_once(workers: tuple[Api, Api]) -> None:
    """Every round is sent to both workers, several at a time: each session learns each of them once."""
    await make(workers[0])

    async def play(row: int) -> None:
        first = workers[row % 2]
        await predict(first, X[row].tolist(), id=f"r{row}")
        both = await asyncio.gather(*(update(api, truths(row), id=f"r{row}") for api in workers))
        for entries in zip(*both, strict=True):
            assert entries[0] | {"duplicate": True} == entries[1] | {"duplicate": True}

    for start in range(0, 24, 8):
        await asyncio.gather(*(play(row) for row in range(start, start + 8)))
    for name in NAMES:
        found = await workers[1].call("GET", f"/sessions/{name}")
        assert (found["t"], found["waiting"], found["metrics"]["rounds"]) == (24, 0, 24)


async def test_what_nobody_raised_on_purpose(memory: Api, caplog: pytest.LogCaptureFixture) -> None:
    """The client learns nothing of it, the log everything, and the other sessions answer."""
    await make(memory)
    rounds = memory.worker.rounds

    class Broken:
        new_id = staticmethod(rounds.new_id)

        async def predict(self, name: Name, x: Any, **more: Any) -> Any:
            if name == "two":
                raise RuntimeError("secret")
            return await rounds.predict(name, x, **more)

    def broken() -> Rounds:
        return Broken()  # type: ignore[return-value]

    memory.app.dependency_overrides[rounds_of] = broken
    told = await predict(memory, X[0].tolist())
    assert [entry.get("refused", {}).get("type") for entry in told] == [None, "/problems/internal-error", None]
    assert "secret" not in str(told)
    assert "secret" in caplog.text


BAD: list[tuple[str, str, dict[str, Any], str]] = [
    ("invalid-request", "predict", {"sessions": [], "x": [1.0]}, "/sessions"),
    ("invalid-request", "predict", {"sessions": ["a", "b", "a"], "x": [1.0]}, "/sessions/2"),
    ("invalid-name", "predict", {"sessions": ["a", "b/c"], "x": [1.0]}, "/sessions/1"),
    ("invalid-name", "predict", {"sessions": ["a", 5], "x": [1.0]}, "/sessions/1"),
    ("invalid-request", "predict", {"sessions": ["a"], "x": [1.0], "id": "r", "wait": False}, ""),
    ("invalid-request", "predict", {"session": "a", "x": [1.0]}, "/session"),
    ("invalid-request", "update", {"sessions": [{"session": "a", "y": 1.0}]}, ""),
    ("invalid-request", "update", {"sessions": [{"session": "a", "y": 1.0}] * 2, "id": "r"}, "/sessions/1"),
    ("invalid-request", "update", {"sessions": [{"session": "a"}], "id": "r"}, "/sessions/0/y"),
    ("invalid-request", "update", {"sessions": [{"session": "a", "y": 1.0, "id": "q"}], "id": "r"}, "/sessions/0/id"),
    (
        "invalid-request",
        "update",
        {"sessions": [{"session": "a", "y": 1.0, "weight": 0}], "id": "r"},
        "/sessions/0/weight",
    ),
    ("invalid-name", "update", {"sessions": [{"session": "", "y": 1.0}], "id": "r"}, "/sessions/0/session"),
    ("wrong-type", "update", {"sessions": [{"session": "a", "y": [1.0]}], "id": "r"}, "/sessions/0/y"),
]


@pytest.mark.parametrize(("slug", "action", "body", "pointer"), BAD, ids=[f"{b[0]} {b[1]} {b[3]}" for b in BAD])
async def test_bad_requests(memory: Api, slug: str, action: str, body: Any, pointer: str) -> None:
    await memory.create(MEAN, name="a")
    problem = await memory.refused(slug, "POST", f"/sessions/{action}", body)
    assert pointer in [error["pointer"] for error in problem["errors"]]
    found = await memory.call("GET", "/sessions/a")
    assert (found["t"], found["waiting"]) == (0, 0)


async def test_limits(store_url: str) -> None:
    async with serving(store_url, max_together=2, max_row_bytes=2048) as api:
        await make(api)
        assert len(await predict(api, X[0].tolist(), NAMES[:2], id="r")) == 2
        for action, body in (
            ("predict", {"sessions": NAMES, "x": [1.0]}),
            ("update", {"sessions": [{"session": name, "y": 1.0} for name in NAMES], "x": [1.0]}),
        ):
            problem = await api.refused("payload-too-large", "POST", f"/sessions/{action}", body)
            assert problem["limit"] == 2
            many = body | {"x": [0.123456789] * 1000}
            problem = await api.refused("payload-too-large", "POST", f"/sessions/{action}", many)
            assert problem["limit"] == 2048


async def test_sessions_may_be_called_as_the_routes(memory: Api) -> None:
    for name in ("predict", "update"):
        await memory.create(MEAN, name=name)
        assert (await memory.call("GET", f"/sessions/{name}"))["t"] == 0
        await memory.update(1.0, name, x=[1.0])
        await memory.call("DELETE", f"/sessions/{name}", status=204)


def test_the_client(client: Client) -> None:
    for name in NAMES:
        client.create(name, "mean")
    told = client.predict_several(NAMES, np.array([1.0, 2.0]), id="r")
    assert [entry["id"] for entry in told] == ["r"] * 3
    told = client.update_several({"one": np.float32(1.0), "two": 2, "nobody": 3.0}, id="r")
    assert [entry.get("t") for entry in told] == [1, 1, None]
    assert told[2]["refused"]["type"] == "/problems/session-not-found"
    series: Any = pd.Series({"one": 1.0})
    assert client.update_several(series, x=[1.0, 2.0])[0]["t"] == 2
    with pytest.raises(InvalidInput):
        client.predict_several(["one", "one"], [1.0, 2.0])
    with pytest.raises(PayloadTooLarge):
        client.predict_several([f"s{i}" for i in range(65)], [1.0, 2.0])
