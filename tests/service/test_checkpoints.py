"""Checkpoints, roll back and rename over HTTP: on every store, at every worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from okl.client import Client
from service.archive.mover import move
from service.demo_data import magic
from service.session.summary import decode_summary
from service.store.base import Head
from service.store.moving import Seal
from service.store.opening import open_store
from tests.service.api import Api, serving, serving_on
from tests.service.definitions import POMDR
from tests.service.worker import Call, Watched

pytestmark = pytest.mark.anyio

X, Y = magic()


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[tuple[Api, Api]]:
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create(POMDR, labels=["no", "yes"])
        yield one, other


async def feed(apis: tuple[Api, ...], first: int, last: int, name: str = "s") -> list[Any]:
    told: list[Any] = []
    for row in range(first, last):
        y = "yes" if Y[row] > 0 else "no"
        told.append(await apis[row % len(apis)].update(y, name, x=X[row].tolist(), id=f"r{row}"))
    return [(one["t"], one["loss"]) for one in told]


async def keep(api: Api, name: str | None = None, **more: Any) -> Any:
    return await api.call("POST", "/sessions/s/checkpoints", {"name": name} if name else {}, **{"status": 201, **more})


async def test_a_session_returns_to_a_checkpoint(workers: tuple[Api, Api]) -> None:
    one, other = workers
    await feed(workers, 0, 10)
    kept = await keep(one)
    assert (kept["name"], kept["t"]) == ("t10", 10)
    first = await other.update("yes", x=X[50].tolist(), id="applied")
    waiting = await other.predict(X[20].tolist(), id="waits")
    etag = (await one.inspect())["etag"]
    told = await other.call("POST", "/sessions/s/rollback", {"checkpoint": "t10"}, headers={"If-Match": etag})
    assert (told["t"], told["waiting"]) == (10, 1)
    for api in workers:
        assert await api.predict(X[20].tolist(), id="waits") == waiting
        assert await api.update("yes", x=X[50].tolist(), id="applied") == first | {"duplicate": True}
    assert (await one.update("no", id="waits"))["t"] == 11
    problem = await one.refused(
        "precondition-failed", "POST", "/sessions/s/rollback", {"checkpoint": "t10"}, headers={"If-Match": etag}
    )
    assert problem["status"] == 412
    await one.refused("precondition-required", "POST", "/sessions/s/rollback", {"checkpoint": "t10"})
    headers = {"If-Match": "*"}
    await one.refused("checkpoint-not-found", "POST", "/sessions/s/rollback", {"checkpoint": "no"}, headers=headers)
    await one.refused("session-not-found", "POST", "/sessions/no/rollback", {"checkpoint": "t10"}, headers=headers)
    once = await feed(workers, 30, 40)
    assert await one.call("POST", "/sessions/s/rollback", {"checkpoint": "t10"}, headers=headers)
    assert [t for t, _ in once] == list(range(12, 22))


async def test_no_worker_lists_rounds_that_were_taken_back(store_url: str) -> None:
    async with serving(store_url) as one:
        await one.create(POMDR, labels=["no", "yes"])
        await feed((one,), 0, 10)
        await keep(one)
        async with serving(store_url) as other:
            await feed((other,), 10, 40)
            await one.call("POST", "/sessions/s/rollback", {"checkpoint": "t10"}, headers={"If-Match": "*"})
            # At its end `other` writes the summary that is due, of the copy that it has.
        [listed] = (await one.call("GET", "/sessions"))["sessions"]
        head = await one.store.head("s")
    assert isinstance(head, Head)
    assert (listed["t"], head.summary_round, decode_summary(head.summary).t) == (10, 10, 10)


async def test_checkpoints_are_listed_and_deleted(workers: tuple[Api, Api]) -> None:
    one, other = workers
    await feed(workers, 0, 3)
    for name in ("b", "a", "b"):
        await keep(one, name)
    listed = (await other.call("GET", "/sessions/s/checkpoints"))["checkpoints"]
    assert [(entry["name"], entry["t"]) for entry in listed] == [("a", 3), ("b", 3)]
    await one.call("DELETE", "/sessions/s/checkpoints/a", status=204)
    await other.refused("checkpoint-not-found", "DELETE", "/sessions/s/checkpoints/a")
    await other.refused("session-not-found", "GET", "/sessions/no/checkpoints")
    await other.refused("session-not-found", "POST", "/sessions/no/checkpoints", {})
    await other.refused("session-not-found", "DELETE", "/sessions/no/checkpoints/a")


async def test_their_number_is_bounded() -> None:
    async with serving("sqlite://", max_checkpoints=2) as api:
        await api.create(POMDR, labels=["no", "yes"])
        for name in ("a", "b", "a"):
            await keep(api, name)
        await api.refused("limit-reached", "POST", "/sessions/s/checkpoints", {"name": "c"})


async def test_a_checkpoint_that_is_deleted_meanwhile_is_told(watched: Watched) -> None:
    async with serving_on(watched.as_store) as api:
        await api.create(POMDR, labels=["no", "yes"])

        async def before(call: Call) -> None:
            if call.method == "kept":
                watched.before = None
                await api.call("DELETE", "/sessions/s/checkpoints/c", status=204)

        watched.before = before
        await api.refused("checkpoint-not-found", "POST", "/sessions/s/checkpoints", {"name": "c"})


async def test_a_renamed_session_goes_on(workers: tuple[Api, Api]) -> None:
    one, other = workers
    await feed(workers, 0, 10)
    await keep(one, "kept")
    waiting = await other.predict(X[20].tolist(), id="waits")
    told = await one.call("POST", "/sessions/s/rename", {"name": "new"})
    assert (told["name"], told["t"], told["waiting"]) == ("new", 10, 1)
    for api in workers:
        await api.refused("session-not-found", "POST", "/sessions/s/predict", {"x": X[0].tolist()})
    assert await other.predict(X[20].tolist(), "new", id="waits") == waiting | {"session": "new"}
    assert (await other.update("yes", "new", x=X[3].tolist(), id="r3"))["duplicate"] is True
    await feed(workers, 10, 13, "new")
    await other.call("POST", "/sessions/new/rollback", {"checkpoint": "kept"}, headers={"If-Match": "*"})
    assert (await one.inspect("new"))["t"] == 10
    await one.create(POMDR, labels=["no", "yes"])
    await one.refused("session-exists", "POST", "/sessions/s/rename", {"name": "new"})
    await one.refused("session-exists", "POST", "/sessions/s/rename", {"name": "s"})
    await one.refused("session-not-found", "POST", "/sessions/no/rename", {"name": "other"})
    assert (await one.inspect())["t"] == 0


async def test_what_a_session_that_moves_answers(workers: tuple[Api, Api], tmp_path: Any) -> None:
    one, other = workers
    await feed(workers, 0, 10)
    held = Seal("held", "x").note()
    assert await one.store.seal("s", held, 60.0)
    for api in workers:
        problem = await api.refused("session-moving", "POST", "/sessions/s/update", {"x": X[0].tolist(), "y": "no"})
        assert problem["status"] == 503
        assert (await api.inspect())["t"] == 10
        await api.refused("session-moving", "DELETE", "/sessions/s")
    assert await one.store.unseal("s", held)
    assert await feed(workers, 10, 12)
    target = open_store(f"sqlite:///{tmp_path / 'target'}")
    await target.open()
    await move(one.store, target, "s", to="https://new.example")
    await target.close()
    for api in workers:
        for method, path, body in (
            ("POST", "/sessions/s/update", {"x": X[0].tolist(), "y": "no"}),
            ("POST", "/sessions/s/predict", {"x": X[0].tolist(), "wait": False}),
            ("GET", "/sessions/s", None),
            ("GET", "/sessions/s/snapshot", None),
            ("POST", "/sessions/s/clone", {"name": "other"}),
        ):
            problem = await api.refused("session-moved", method, path, body)
            assert problem["location"] == "https://new.example", path
    await other.call("DELETE", "/sessions/s", status=204)
    async with serving(f"sqlite:///{tmp_path / 'target'}") as there:
        assert (await there.inspect())["t"] == 12


def test_the_client(client: Client) -> None:
    client.create("s", labels=["no", "yes"])
    for row in range(5):
        client.update("s", "yes", x=X[row])
    assert client.checkpoint("s")["t"] == 5
    client.update("s", "no", x=X[6])
    state = client.snapshot("s")
    assert client.roll_back("s", "t5")["t"] == 5
    assert client.put_snapshot("copy", state)["t"] == 6
    assert client.put_snapshot("s", state, at=client.inspect("s")["etag"])["t"] == 6
    assert client.clone("s", "twin")["t"] == 6
    assert client.rename("twin", "brother")["name"] == "brother"
    assert [one["name"] for one in client.checkpoints("s")] == ["t5"]
    client.delete_checkpoint("s", "t5")
    assert client.checkpoints("s") == []


async def test_no_prediction_that_waits_is_left_without_its_label(memory: Api) -> None:
    """Which had another one been seen would have been told as that. A prediction that was cancelled waits no more."""
    await memory.http.post("/sessions", json={"name": "s"})
    await memory.call("POST", "/sessions/s/checkpoints", {"name": "nothing"}, status=201)
    await memory.update("a", x=[1.0])
    await memory.call("POST", "/sessions/s/checkpoints", {"name": "a"}, status=201)
    frequencies = {"name": "f", "learner": {"kind": "frequencies"}}
    for row in range(10):
        await memory.update("b", x=[float(row)])
    waiting = await memory.predict([1.0], id="waits")
    assert waiting["label"] == "b"
    await memory.call("POST", "/sessions/s/challengers", frequencies, status=201)
    await memory.update("a", x=[1.0])
    anywhere = {"If-Match": "*"}
    for kept in ("nothing", "a"):
        told = await memory.refused(
            "invalid-snapshot", "POST", "/sessions/s/rollback", {"checkpoint": kept}, headers=anywhere
        )
        assert "Settle or cancel them" in told["detail"]
    await memory.refused("cannot-promote", "POST", "/sessions/s/challengers/f/promote")
    assert await memory.predict([1.0], id="waits") == waiting
    await memory.call("DELETE", "/sessions/s/predictions/waits", status=204)
    promoted = await memory.call("POST", "/sessions/s/challengers/f/promote")
    assert promoted["labels"] == ["a"]
    for kept, labels in (("a", ["a"]), ("nothing", None)):
        told = await memory.call("POST", "/sessions/s/rollback", {"checkpoint": kept}, headers=anywhere)
        assert told["labels"] == labels
