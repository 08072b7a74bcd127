"""The store goes down and comes back: told, and nothing acknowledged is lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from okl.errors import StoreTimeout, StoreUnavailable
from service.demo_data import magic
from service.store.opening import open_store
from tests.redis_server import find_redis, free_port, wait_until_up
from tests.service.api import Api, serving, serving_on
from tests.service.definitions import MEAN, POMDR
from tests.service.worker import Call, Watched

pytestmark = pytest.mark.anyio

X, Y = magic()


@pytest.fixture
def patience_s() -> float:
    return 10.0


@pytest.fixture
async def unwilling(store_url: str, patience_s: float) -> AsyncIterator[tuple[Api, Watched]]:
    store = open_store(store_url)
    await store.open()
    watched = Watched(store)
    async with serving_on(watched.as_store, snapshot_min_bytes=0, patience_s=patience_s) as api:
        await api.create(POMDR)
        for row in range(10):
            await api.update(int(Y[row]), x=X[row].tolist(), id=f"u{row}")
        await api.predict(X[10].tolist(), id="p")
        yield api, watched
    await store.close()


CALLS = {
    "predict": ("POST", "/sessions/s/predict", {"x": X[11].tolist(), "id": "q"}),
    "predict, not waiting": ("POST", "/sessions/s/predict", {"x": X[11].tolist(), "wait": False}),
    "update": ("POST", "/sessions/s/update", {"id": "p", "y": 1}),
    "direct update": ("POST", "/sessions/s/update", {"x": X[11].tolist(), "y": 1}),
    "step": ("POST", "/sessions/s/step", {"update": {"id": "p", "y": 1}, "predict": {"x": X[11].tolist()}}),
    "freeze": ("POST", "/sessions/s/freeze", {"name": "frozen"}),
    "rounds": ("POST", "/sessions/s/rounds", {"x": X[11:15].tolist(), "y": Y[11:15].tolist()}),
    "inspect": ("GET", "/sessions/s", None),
    "list": ("GET", "/sessions", None),
    "delete": ("DELETE", "/sessions/s", None),
    "create": ("POST", "/sessions", {"name": "t", "learner": MEAN}),
    "ready?": ("GET", "/readyz", None),
}


@pytest.mark.parametrize(
    ("error", "slug"),
    [(StoreUnavailable("It is away."), "store-unavailable"), (StoreTimeout("It is slow."), "store-timeout")],
    ids=["unavailable", "timeout"],
)
async def test_a_store_that_is_down_is_told(unwilling: tuple[Api, Watched], error: Exception, slug: str) -> None:
    api, store = unwilling
    before = await api.inspect()
    store.fail(error)
    for name, (method, path, body) in CALLS.items():
        assert await api.refused(slug, method, path, body), name
    await api.call("GET", "/healthz")
    store.work()
    assert await api.inspect() == before
    assert (await api.update(int(Y[10]), id="p"))["t"] == 11


REPEATED = {
    "predict": ("predict", {"x": X[11].tolist(), "id": "q"}, 10),
    "update": ("update", {"id": "p", "y": int(Y[10])}, 11),
    "direct update": ("update", {"x": X[11].tolist(), "y": 1, "id": "q"}, 11),
    "rounds": ("rounds", {"x": X[11:15].tolist(), "y": Y[11:15].tolist(), "id": "q"}, 14),
    "step": ("step", {"update": {"id": "p", "y": int(Y[10])}, "predict": {"x": X[11].tolist(), "id": "q"}}, 11),
}


@pytest.mark.parametrize(("action", "body", "t"), REPEATED.values(), ids=REPEATED)
async def test_a_lost_answer_is_sent_again(
    unwilling: tuple[Api, Watched], action: str, body: dict[str, object], t: int
) -> None:
    """The store did it, but its answer got lost. The client sends the same again, and it is done once.

    A worker that still has the prediction makes the very same entry again, and the store takes that for a command sent
    twice: to the client it is the first answer.
    """
    api, store = unwilling
    store.fail(StoreTimeout("Lost."), "commit", is_late=True)
    await api.refused("store-timeout", "POST", f"/sessions/s/{action}", body)
    store.work()
    again = await api.call("POST", f"/sessions/s/{action}", body)
    update = again.get("update", again)
    assert update["t"] == t
    assert update.get("duplicate", True) or body.get("id") == "p"
    found = await api.inspect()
    assert (found["t"], found["metrics"]["rounds"]) == (t, t)
    assert found["waiting"] == {"predict": 2, "update": 0 if body.get("id") == "p" else 1}.get(action, 1)


@pytest.mark.parametrize("name", ["create", "delete"])
async def test_a_session_whose_making_or_end_was_not_told(unwilling: tuple[Api, Watched], name: str) -> None:
    api, store = unwilling
    method, path, body = CALLS[name]
    store.fail(StoreTimeout("Lost."), name, is_late=True)
    await api.refused("store-timeout", method, path, body)
    store.work()
    await api.refused({"create": "session-exists", "delete": "session-not-found"}[name], method, path, body)


@pytest.mark.parametrize("patience_s", [1.0])
async def test_a_session_that_is_written_to_all_the_while_is_not_put_back(unwilling: tuple[Api, Watched]) -> None:
    """It is tried for as long as a request may take. The refusal names the session, as each that is about one does."""
    api, store = unwilling
    await api.call("POST", "/sessions/s/checkpoints", {"name": "kept"}, status=201)

    async def overtaken(call: Call, answer: Any) -> Any:
        return False if call.method == "replace" else answer

    store.after = overtaken
    headers = {"If-Match": "*"}
    began = time.monotonic()
    told = await api.refused("overloaded", "POST", "/sessions/s/rollback", {"checkpoint": "kept"}, headers=headers)
    assert told["session"] == "s"
    assert time.monotonic() - began >= 1.0


async def test_a_session_that_others_write_to_for_a_while_is_put_back(unwilling: tuple[Api, Watched]) -> None:
    api, store = unwilling
    await api.call("POST", "/sessions/s/checkpoints", {"name": "kept"}, status=201)

    async def overtaken(call: Call, answer: Any) -> Any:
        return False if call.method == "replace" and len(store.of("replace")) < 20 else answer

    store.after = overtaken
    await api.call("POST", "/sessions/s/rollback", {"checkpoint": "kept"}, headers={"If-Match": "*"})
    assert len(store.of("replace")) == 20


@pytest.mark.parametrize("snapshot_every", [None, 5])
async def test_a_snapshot_that_fails_loses_nothing(unwilling: tuple[Api, Watched], snapshot_every: int | None) -> None:
    """Not the round that it would have followed, which is acknowledged, and not the next snapshot."""
    api, store = unwilling
    await api.create(MEAN, "m", snapshot_every=snapshot_every)
    store.fail(StoreUnavailable("It is away."), "snapshot")
    rounds = 30 if snapshot_every else 150
    for row in range(rounds):
        await api.update(Y[row], "m", x=X[row].tolist())
    assert store.of("snapshot")
    found = await api.inspect("m")
    assert (found["t"], found["storage"]["snapshot_round"]) == (rounds, None)
    store.work()
    for row in range(rounds, rounds + 70):
        await api.update(Y[row], "m", x=X[row].tolist())
    assert (await api.inspect("m"))["storage"]["snapshot_round"] > rounds
    async with serving_on(store.as_store) as fresh:
        assert (await fresh.inspect("m"))["metrics"] == (await api.inspect("m"))["metrics"]


@pytest.mark.redis
async def test_redis_is_killed_and_started_again(tmp_path: Path) -> None:
    """503 while it is away; every acknowledged round is there when it returns."""
    port = free_port()
    server = start_redis(tmp_path, port)
    async with serving(f"redis://127.0.0.1:{port}/0") as api:
        await api.create(POMDR)
        for row in range(20):
            await api.update(int(Y[row]), x=X[row].tolist())
        await api.predict(X[20].tolist(), id="p")
        before = await api.inspect()
        stop(server)
        for name in ("update", "predict", "inspect", "ready?"):
            await api.refused("store-unavailable", *CALLS[name])
        await api.call("GET", "/healthz")
        server = start_redis(tmp_path, port)
        await api.call("GET", "/readyz")
        assert await api.inspect() == before
        assert (await api.update(int(Y[20]), id="p"))["t"] == 21
    stop(server)


def start_redis(folder: Path, port: int) -> subprocess.Popen[bytes]:
    path, environment = find_redis()
    command = [path, "--port", str(port), "--dir", str(folder), "--appendonly", "yes", "--appendfsync", "always"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    wait_until_up(port, server)
    return server


def stop(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()
