"""The store goes down and comes back; what it holds is damaged: told, never silently wrong, nothing acknowledged is lost."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from redis import Redis

from service.demo_data import magic
from service.errors import StoreTimeout, StoreUnavailable
from service.journal import RoundEntry, decode_entry, encode_round
from service.store.base import Event, Reading
from tests.redis_server import find_redis, free_port, wait_until_up
from tests.service.api import MEAN, POMDR, Api, serving

pytestmark = pytest.mark.anyio

X, Y = magic()


class Unwilling:
    """A store whose calls fail while `error` is set: before the call is made, or after (its answer is lost)."""

    def __init__(self, store: object) -> None:
        self._store = store
        self.error: Exception | None = None
        self.is_late = False
        self.only: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., object]:
        async def call(*arguments: object, **named: object) -> object:
            fails = self.error is not None and (not self.only or name in self.only)
            if fails and not self.is_late:
                raise self.error
            answer = await getattr(self._store, name)(*arguments, **named)
            if fails:
                raise self.error
            return answer

        return call


@pytest.fixture
async def unwilling(store_url: str) -> AsyncIterator[tuple[Api, Unwilling]]:
    async with serving(store_url) as api:
        store = Unwilling(api.service.store)
        api.service.store = api.service._residents.store = store
        await api.create(POMDR)
        for row in range(10):
            await api.update(int(Y[row]), x=X[row].tolist(), id=f"u{row}")
        await api.predict(X[10].tolist(), id="p")
        yield api, store


CALLS = {
    "predict": ("POST", "/sessions/s/predict", {"x": X[11].tolist(), "id": "q"}),
    "predict, not waiting": ("POST", "/sessions/s/predict", {"x": X[11].tolist(), "wait": False}),
    "update": ("POST", "/sessions/s/update", {"id": "p", "y": 1}),
    "direct update": ("POST", "/sessions/s/update", {"x": X[11].tolist(), "y": 1}),
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
async def test_a_store_that_is_down_is_told(unwilling: tuple[Api, Unwilling], error: Exception, slug: str) -> None:
    api, store = unwilling
    before = await api.inspect()
    store.error = error
    for name, (method, path, body) in CALLS.items():
        assert await api.refused(slug, method, path, body), name
    await api.call("GET", "/healthz")
    store.error = None
    assert await api.inspect() == before
    assert (await api.update(int(Y[10]), id="p"))["t"] == 11


REPEATED = {
    "predict": ("predict", {"x": X[11].tolist(), "id": "q"}, 10),
    "update": ("update", {"id": "p", "y": int(Y[10])}, 11),
    "direct update": ("update", {"x": X[11].tolist(), "y": 1, "id": "q"}, 11),
    "rounds": ("rounds", {"x": X[11:15].tolist(), "y": Y[11:15].tolist(), "id": "q"}, 14),
}


@pytest.mark.parametrize(("action", "body", "t"), REPEATED.values(), ids=REPEATED)
async def test_a_lost_answer_is_sent_again(
    unwilling: tuple[Api, Unwilling], action: str, body: dict[str, object], t: int
) -> None:
    """The store did it, but its answer got lost. The client sends the same again, and it is done once."""
    api, store = unwilling
    store.error, store.is_late, store.only = StoreTimeout("Lost."), True, {"append", "hold"}
    await api.refused("store-timeout", "POST", f"/sessions/s/{action}", body)
    store.error = None
    again = await api.call("POST", f"/sessions/s/{action}", body)
    assert again["t"] == t
    assert again.get("duplicate", True)
    found = await api.inspect()
    assert (found["t"], found["metrics"]["rounds"]) == (t, t)
    assert found["waiting"] == {"predict": 2, "update": 0 if "id" in body and body["id"] == "p" else 1}.get(action, 1)


async def test_a_snapshot_that_fails_loses_nothing(unwilling: tuple[Api, Unwilling]) -> None:
    api, store = unwilling
    api.service.settings.__dict__["snapshot_min_bytes"] = 0
    store.error, store.only = StoreUnavailable("It is away."), {"snapshot"}
    for row in range(11, 80):
        await api.update(int(Y[row]), x=X[row].tolist())
    store.error = None
    assert (await api.inspect())["storage"]["snapshot_round"] is None
    api.service._residents.drop("s")
    assert (await api.inspect())["t"] == 79


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


# -- damage -----------------------------------------------------------------------------------------------------------


class Damaged:
    """A store that gives what it holds of a session changed."""

    def __init__(self, store: object, change: Callable[[Reading], Reading]) -> None:
        self._store = store
        self._change = change

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def read(self, *arguments: object, **named: object) -> object:
        reading = await self._store.read(*arguments, **named)  # type: ignore[attr-defined]
        return self._change(reading) if isinstance(reading, Reading) else reading


def flipped(blob: bytes, at: float) -> bytes:
    place = int(at * (len(blob) - 1))
    return blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]


def of_snapshot(change: Callable[[bytes], bytes]) -> Callable[[Reading], Reading]:
    def changed(reading: Reading) -> Reading:
        assert reading.snapshot is not None
        return dataclasses.replace(reading, snapshot=change(reading.snapshot))

    return changed


def of_event(change: Callable[[bytes], bytes], which: int = -1) -> Callable[[Reading], Reading]:
    def changed(reading: Reading) -> Reading:
        events = list(reading.events)
        old = events[which]
        events[which] = Event(old.round, change(old.blob), old.id, old.answer, old.count)
        return dataclasses.replace(reading, events=events)

    return changed


def of_entry(**values: object) -> Callable[[bytes], bytes]:
    """Well-formed bytes that say something else: what a checksum does not notice."""

    def change(blob: bytes) -> bytes:
        entry = decode_entry(blob)
        assert isinstance(entry, RoundEntry)
        return encode_round(dataclasses.replace(entry, **values))

    return change


DAMAGES: dict[str, Callable[[Reading], Reading]] = {
    **{f"snapshot flipped at {at}": of_snapshot(lambda blob, at=at: flipped(blob, at)) for at in (0.0, 0.3, 0.9, 1.0)},
    "snapshot cut off": of_snapshot(lambda blob: blob[:-1]),
    "snapshot empty": of_snapshot(lambda _: b""),
    "snapshot of an earlier round": lambda reading: dataclasses.replace(reading, events=reading.events[1:]),
    **{f"entry flipped at {at}": of_event(lambda blob, at=at: flipped(blob, at)) for at in (0.0, 0.2, 0.5, 0.9, 1.0)},
    "entry cut off": of_event(lambda blob: blob[:-8]),
    "entry empty": of_event(lambda _: b""),
    "entry of another version": of_event(lambda blob: b"\xff" + blob[1:]),
    "another forecast recorded": of_event(of_entry(value=0.123)),
    "no number recorded": of_event(of_entry(value=math.nan)),
    "another input": of_event(of_entry(x=np.full(10, 0.5)), 0),
    "an input of another dimension": of_event(of_entry(x=np.zeros(9))),
    "another truth": of_event(of_entry(y=-1.0), 0),
    "no label": of_event(of_entry(y=0.5)),
    "other choices": of_event(of_entry(choices=b"\x01\x01\x01\x01\x01")),
    "another layout": of_event(of_entry(note=b'{"dim": 3, "features": null}')),
    "no layout": of_event(of_entry(note=b"{")),
    "an entry is missing": lambda reading: dataclasses.replace(reading, events=reading.events[:-1]),
    "an entry is there twice": lambda reading: dataclasses.replace(
        reading, events=[*reading.events, reading.events[-1]]
    ),
}


@pytest.mark.parametrize("how", DAMAGES)
async def test_damage_is_told(api: Api, how: str) -> None:
    await api.create(POMDR, snapshot_every=15)
    for row in range(20):
        await api.update(1 if row == 15 else int(Y[row]), x=X[row].tolist())
    before = await api.service.store.read("s")
    sound = api.service.store
    api.service._residents.drop("s")
    api.service.store = api.service._residents.store = Damaged(sound, DAMAGES[how])
    for method, path, body in (CALLS["inspect"], CALLS["predict"], CALLS["direct update"], CALLS["rounds"]):
        problem = await api.refused("state-corrupt", method, path, body)
        assert "'s'" in problem["detail"] or "checksum" in problem["detail"] or "journal entry" in problem["detail"]
    assert await sound.read("s") == before
    api.service.store = api.service._residents.store = sound
    assert (await api.inspect())["t"] == 20


async def test_damaged_bytes_in_the_real_store(api: Api, store_url: str) -> None:
    """Not through a double: the snapshot's bytes on disk or in Redis."""
    await api.create(POMDR, snapshot_every=10)
    await api.create(POMDR, "sound", snapshot_every=10)
    for row in range(10):
        for name in ("s", "sound"):
            await api.update(int(Y[row]), name, x=X[row].tolist())
    damage(store_url)
    async with serving(store_url) as fresh:
        await fresh.refused("state-corrupt", "GET", "/sessions/s")
        assert (await fresh.inspect("sound"))["t"] == 10
        assert len((await fresh.call("GET", "/sessions"))["sessions"]) == 2
        await fresh.call("DELETE", "/sessions/s", status=204)
        assert (await fresh.create(POMDR))["t"] == 0


def damage(store_url: str) -> None:
    """Flip a bit of the snapshot of session `s`."""
    parts = urlsplit(store_url)
    if parts.scheme == "redis":
        with Redis.from_url(store_url) as client:
            key = "okl:{s}:snap"
            blob = client.get(key)
            assert isinstance(blob, bytes)
            client.set(key, flipped(blob, 0.5))
        return
    connection = sqlite3.connect(parts.path[1:])
    with connection:
        query = "SELECT s.key, p.blob FROM sessions s JOIN snapshots p ON p.session = s.key WHERE s.name = 's'"
        key, blob = connection.execute(query).fetchone()
        connection.execute("UPDATE snapshots SET blob = ? WHERE session = ?", (flipped(blob, 0.5), key))
    connection.close()
