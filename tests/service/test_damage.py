"""What is stored is damaged: an error of that session, never a wrong answer, and never another session's state."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from redis import Redis

from okl.errors import ServiceError, StateCorrupt
from okl_core.contract.learner import get_learner, registered
from service.api.dependencies import Worker
from service.demo_data import magic
from service.session.requests import Report
from service.session.snapshot import pack, unpack
from service.session.turn import Position
from service.store.base import Entry, Tip
from tests.budget import TIMES
from tests.oracles.model_store import ModelStore, Session
from tests.service.api import serving, serving_on
from tests.service.challenged import attach
from tests.service.definitions import MEAN, POMDR, define
from tests.service.stored import Change, bits, flipped, rewritten, saying
from tests.service.worker import Watched, read, working

pytestmark = pytest.mark.anyio

X, Y = magic()


async def stored() -> ModelStore:
    """Two sessions that are as like each other as two can be: of each, everything that a store holds."""
    store = ModelStore()
    async with working(store) as worker:
        for name in ("s", "t"):
            await worker.sessions.create(define(MEAN, name, snapshot_every=3))
            for i in range(5):
                await worker.rounds.update(name, Report(float(i), f"u{i}", [1.0]))
            await worker.rounds.predict(name, [1.0], id="waits")
    assert all(session.snapshot and len(session.entries) == 5 for session in store.sessions.values())
    return store


ASKS: dict[str, Callable[[Worker], Any]] = {
    "predict": lambda worker: worker.rounds.predict("s", [1.0], wait=False),
    "settle": lambda worker: worker.rounds.update("s", Report(1.0, "waits")),
    "repeat": lambda worker: worker.rounds.update("s", Report(4.0, "u4", [1.0])),
    "predict again": lambda worker: worker.rounds.predict("s", [1.0], id="waits"),
    "inspect": lambda worker: worker.sessions.inspect("s"),
}


async def assert_corrupt(store: ModelStore, *asks: str, what: object) -> None:
    """Each of these is refused, by a worker that reads the session from the store, and nothing is written."""
    kept = store.fork()
    async with working(store) as worker:
        for name in asks:
            with pytest.raises(ServiceError) as caught:
                pytest.fail(f"{what}: {name} was answered: {await ASKS[name](worker)}")
            assert caught.value.slug == "state-corrupt", (what, name, caught.value.detail)
            assert caught.value.extra.get("session", "s") == "s"
        assert (await worker.rounds.predict("t", [1.0], wait=False)).t == 5
        assert [one.summary.kind for one in (await worker.sessions.list(None, 10)).sessions][1] == "mean"
    assert store.fork() == kept


LOADS = ("predict", "inspect", "settle")


def with_record(session: Session, bit: int) -> None:
    session.record = flipped(session.record, bit)


def with_snapshot(session: Session, bit: int) -> None:
    assert session.snapshot is not None
    session.snapshot = flipped(session.snapshot, bit)


def with_entry(session: Session, bit: int) -> None:
    last = session.entries[-1]
    session.entries[-1] = dataclasses.replace(last, blob=flipped(last.blob, bit))


def with_id(session: Session, bit: int) -> None:
    last = session.entries[-1]
    session.entries[-1] = dataclasses.replace(last, id=flipped(last.id.encode(), bit).decode("latin-1"))


def with_digest(session: Session, bit: int) -> None:
    last = session.entries[-1]
    tip = Tip(last.tip.round, flipped(last.tip.digest, bit))
    session.entries[-1] = dataclasses.replace(last, tip=tip)


def with_tip(session: Session, bit: int) -> None:
    session.tip = Tip(session.tip.round, flipped(session.tip.digest, bit))


def with_waiting(session: Session, bit: int) -> None:
    held = session.held["waits"]
    session.held["waits"] = dataclasses.replace(held, blob=flipped(held.blob, bit))


def with_answer(session: Session, bit: int) -> None:
    remembered = session.remembered["u4"]
    session.remembered["u4"] = dataclasses.replace(remembered, answer=flipped(remembered.answer, bit))


FLIPS: dict[str, tuple[Callable[[Session], bytes], Callable[[Session, int], None], tuple[str, ...]]] = {
    "record": (lambda session: session.record, with_record, LOADS),
    "snapshot": (lambda session: session.snapshot or b"", with_snapshot, LOADS),
    "entry": (lambda session: session.entries[-1].blob, with_entry, LOADS),
    "id of an entry": (lambda session: session.entries[-1].id.encode(), with_id, LOADS),
    "digest of an entry": (lambda session: session.entries[-1].tip.digest, with_digest, LOADS),
    "digest of the tip": (lambda session: session.tip.digest, with_tip, LOADS),
    "waiting": (lambda session: session.held["waits"].blob, with_waiting, ("settle", "predict again")),
    "answer": (lambda session: session.remembered["u4"].answer, with_answer, ("repeat",)),
}


@pytest.mark.parametrize("kind", FLIPS)
async def test_a_flipped_bit_is_an_error_of_that_session(kind: str) -> None:
    store = await stored()
    sound = store.fork()
    blob_of, flip, asks = FLIPS[kind]
    blob = blob_of(sound["s"])
    assert blob
    # Few bits of a blob here, with TIMES more; the tests of the codec, the record and the snapshot have them all.
    for bit in bits(blob, max(1, (37 if len(blob) < 200 else 521) // TIMES)):
        store.restore(sound)
        flip(store.sessions["s"], bit)
        await assert_corrupt(store, *asks, what=(kind, bit))


async def test_every_byte_of_a_snapshot_counts() -> None:
    store = await stored()
    reading = await read(store)
    assert reading.snapshot is not None
    definition = define(MEAN, snapshot_every=3)
    position = str(Position(store.sessions["s"].first.digest, reading.start))
    assert pack(unpack(definition, reading.snapshot, position), position) == reading.snapshot
    # At least one bit of every byte; with TIMES more, all.
    for bit in bits(reading.snapshot, max(1, 5 // TIMES)):
        with pytest.raises(ServiceError, match="'s'"):
            unpack(definition, flipped(reading.snapshot, bit), position)


SWAPS: dict[str, tuple[Callable[[Session, Session], None], tuple[str, ...]]] = {
    "record": (lambda one, other: setattr(one, "record", other.record), LOADS),
    "snapshot": (lambda one, other: setattr(one, "snapshot", other.snapshot), LOADS),
    "journal": (lambda one, other: setattr(one, "entries", other.entries), LOADS),
    "an entry": (lambda one, other: one.entries.__setitem__(-1, other.entries[-1]), LOADS),
    "tip": (lambda one, other: setattr(one, "tip", other.tip), LOADS),
    "journal and tip": (lambda one, other: (setattr(one, "entries", other.entries), setattr(one, "tip", other.tip)), LOADS),
    "waiting": (lambda one, other: setattr(one, "held", other.held), ("settle", "predict again")),
    "answers": (lambda one, other: setattr(one, "remembered", other.remembered), ("repeat",)),
}  # fmt: skip


@pytest.mark.parametrize("what", SWAPS)
async def test_what_belongs_to_another_session_is_refused(what: str) -> None:
    """Bytes that are sound, in the wrong place: rows mixed up, a backup restored under another name."""
    store = await stored()
    swap, asks = SWAPS[what]
    swap(store.sessions["s"], store.sessions["t"])
    await assert_corrupt(store, *asks, what=what)


async def test_an_answer_under_another_id_is_refused() -> None:
    store = await stored()
    session = store.sessions["s"]
    session.remembered["u4"] = session.remembered["u3"]
    session.held["waits"] = dataclasses.replace(session.held["waits"], blob=b"")
    await assert_corrupt(store, "repeat", "settle", what="ids")


@pytest.mark.parametrize("rounds", [0, 5])
async def test_a_session_of_a_learner_that_is_not_imported_here_cannot_be_read(rounds: int) -> None:
    own = type("Own", (type(get_learner("mean")),), {"kind": "own-mean"})()
    store = ModelStore()
    with registered(own):
        async with working(store) as worker:
            await worker.sessions.create(define({"kind": "own-mean"}, "s", snapshot_every=3))
            await worker.sessions.create(define(MEAN, "t"))
            for i in range(rounds):
                await worker.rounds.update("s", Report(float(i), f"u{i}", [1.0]))
    async with working(store) as worker:
        for ask in (ASKS["predict"], ASKS["inspect"]):
            with pytest.raises(StateCorrupt, match="unknown learner kind 'own-mean'"):
                await ask(worker)
        assert [one.summary.kind for one in (await worker.sessions.list(None, 10)).sessions] == ["own-mean", "mean"]


async def test_a_session_whose_record_cannot_be_read_is_listed_all_the_same() -> None:
    """It breaks nothing for the others, and it can be deleted and made again."""
    store = await stored()
    with_record(store.sessions["s"], 100)
    async with serving_on(store) as api:
        listed = (await api.call("GET", "/sessions"))["sessions"]
        assert [(one["name"], one["kind"], one["t"]) for one in listed] == [("s", "mean", 5), ("t", "mean", 5)]
        assert (await api.inspect("t"))["t"] == 5
        await api.refused("state-corrupt", "GET", "/sessions/s")
        await api.call("DELETE", "/sessions/s", status=204)
        assert (await api.create(POMDR))["t"] == 0


async def test_a_challenger_that_cannot_be_loaded_is_listed_with_its_trouble() -> None:
    own = type("Own", (type(get_learner("mean")),), {"kind": "own-mean"})()
    store = ModelStore()
    with registered(own):
        async with serving_on(store) as api:
            await api.create(MEAN)
            for name, learner in (("broken", MEAN), ("foreign", {"kind": "own-mean"}), ("sound", MEAN)):
                await attach(api, learner, name)
            await api.rounds([[0.5]] * 3, [1.0, 2.0, 3.0])
            for name in ("broken", "foreign", "sound"):
                await api.worker.feeder.feed("s", name)
    with_record(store.sessions["s~broken"], 100)
    async with serving_on(store) as api:
        listed = (await api.call("GET", "/sessions/s/challengers"))["challengers"]
        told = {one["name"]: (one["kind"], one["t"], one["behind"], one["trouble"]) for one in listed}
        assert told["sound"] == ("mean", 3, 0, None)
        assert told["broken"][:3] == ("mean", 3, None)
        assert "was damaged" in told["broken"][3]
        assert told["foreign"][:3] == ("own-mean", 3, None)
        assert "unknown learner kind 'own-mean'" in told["foreign"][3]
        page = await api.http.get("/sessions/s/page", headers={"accept": "text/html"})
        assert page.status_code == 200
        assert page.text.count("It cannot be loaded.") == 2
        await api.call("DELETE", "/sessions/s/challengers/broken", status=204)


# -- entries that are well-formed, and say something else -------------------------------------------------------------

SAID: dict[str, tuple[int, Change]] = {
    "another version": (-1, lambda blob: b"\xff" + blob[1:]),
    "cut off": (-1, lambda blob: blob[:-8]),
    "empty": (-1, lambda _: b""),
    "another forecast": (-1, saying(value=0.123)),
    "no number": (-1, saying(value=math.nan)),
    "another input": (0, saying(x=np.full(10, 0.5))),
    "an input of another dimension": (-1, saying(x=np.zeros(9))),
    "another truth": (0, saying(y=-1.0)),
    "no label": (-1, saying(y=0.5)),
    "other choices": (-1, saying(choices=b"\x01\x01\x01\x01\x01")),
    "an input of other names": (-1, saying(x={"a": 0.5})),
    "a label that is known": (-1, saying(discovery=b'{"label": 1}')),
    "numbers for labels": (-1, saying(discovery=b'{"numbers": true}')),
    "a note of nothing": (-1, saying(discovery=b"[]")),
    "no note": (-1, saying(discovery=b"{")),
}


@pytest.fixture
async def watched() -> Watched:
    """Twenty rounds, the last five of them after a snapshot."""
    store = ModelStore()
    async with working(store) as worker:
        await worker.sessions.create(define(POMDR, snapshot_every=15))
        for row in range(20):
            await worker.rounds.update("s", Report(1.0 if row == 15 else float(Y[row]), None, X[row].tolist()))
    return Watched(store)


@pytest.mark.parametrize("what", SAID)
async def test_an_entry_that_says_something_else_does_not_replay(watched: Watched, what: str) -> None:
    place, change = SAID[what]
    store = await rewritten(await read(watched.as_store), {place: change})
    before = store.fork()
    async with serving_on(store) as api:
        for method, path, body in (
            ("GET", "/sessions/s", None),
            ("POST", "/sessions/s/predict", {"x": X[11].tolist()}),
            ("POST", "/sessions/s/update", {"x": X[11].tolist(), "y": 1}),
            ("POST", "/sessions/s/rounds", {"x": X[11:15].tolist(), "y": Y[11:15].tolist()}),
        ):
            problem = await api.refused("state-corrupt", method, path, body)
            assert "'s'" in problem["detail"] or "journal entry" in problem["detail"]
    assert store.fork() == before


MISSING: dict[str, Callable[[list[Entry]], list[Entry]]] = {
    "the last": lambda entries: entries[:-1],
    "the first after the snapshot": lambda entries: entries[:15] + entries[16:],
    "one is there twice": lambda entries: [*entries, entries[-1]],
    "two are exchanged": lambda entries: [*entries[:-2], entries[-1], entries[-2]],
}


@pytest.mark.parametrize("how", MISSING)
async def test_a_journal_that_is_not_whole_is_refused(watched: Watched, how: str) -> None:
    store = watched.store
    assert isinstance(store, ModelStore)
    store.sessions["s"].entries = MISSING[how](store.sessions["s"].entries)
    async with serving_on(store) as api:
        await api.refused("state-corrupt", "GET", "/sessions/s")


# -- the real stores --------------------------------------------------------------------------------------------------

DAMAGES = {
    "record": ("UPDATE records SET record = ? WHERE session = ?", "SELECT record FROM records WHERE session = ?"),
    "snapshot": ("UPDATE snapshots SET blob = ? WHERE session = ?", "SELECT blob FROM snapshots WHERE session = ?"),
    "entry": (
        "UPDATE journal SET blob = ? WHERE session = ? AND round = 12",
        "SELECT blob FROM journal WHERE session = ? AND round = 12",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_damaged_bytes_in_a_file(tmp_path: Any, what: str) -> None:
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    await fill(url)
    write, find = DAMAGES[what]
    connection = sqlite3.connect(urlsplit(url).path[1:])
    with connection:
        (key,) = connection.execute("SELECT key FROM sessions WHERE name = 's'").fetchone()
        (blob,) = connection.execute(find, (key,)).fetchone()
        connection.execute(write, (flipped(blob, 4 * len(blob)), key))
    connection.close()
    await assert_only_that_session_is_lost(url)


@pytest.mark.redis
async def test_damaged_bytes_in_redis(redis_url: str) -> None:
    await fill(redis_url)
    with Redis.from_url(redis_url) as client:
        blob = client.get("okl:{s}:snap")
        assert isinstance(blob, bytes)
        client.set("okl:{s}:snap", flipped(blob, 4 * len(blob)))
    await assert_only_that_session_is_lost(redis_url)


async def fill(url: str) -> None:
    async with serving(url) as api:
        for name in ("s", "sound"):
            await api.create(MEAN, name, snapshot_every=10)
            for row in range(12):
                await api.update(Y[row], name, x=X[row].tolist())


async def assert_only_that_session_is_lost(url: str) -> None:
    async with serving(url) as fresh:
        await fresh.refused("state-corrupt", "GET", "/sessions/s")
        assert (await fresh.inspect("sound"))["t"] == 12
        assert [one["name"] for one in (await fresh.call("GET", "/sessions"))["sessions"]] == ["s", "sound"]
        await fresh.call("DELETE", "/sessions/s", status=204)
        assert (await fresh.create(POMDR))["t"] == 0
