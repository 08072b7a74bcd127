"""Files whose digests fit and whose sessions are made up: nothing of them is imported, and what is wrong is named."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from okl_core import LearnerSpec
from okl_core.contract.state import DIGEST_BYTES, from_bytes, to_bytes
from service.archive.examination import Examination
from service.archive.file import ArchiveReader, ArchiveWriter
from service.archive.mover import move
from service.archive.parts import Kept, Load, Part
from service.archive.transport import Carried, export, import_file
from service.session.limits import SessionLimits
from service.session.record import decode_record, encode_record
from service.session.snapshot import PAIRING
from service.session.turn import Position
from service.store.base import SUMMARY_BYTES, Entry, Gone, Store
from service.store.moving import Whole
from tests.contract.store_calls import head
from tests.service.api import NDJSON, Api, lines, serving_on
from tests.service.api import told as told_by
from tests.service.definitions import POMDR, RIDGE
from tests.service.stored import flipped, saying, told
from tests.service.test_states import KINDS, LIMITS, feed, is_named
from tests.service.worker import opened

pytestmark = pytest.mark.anyio

Parts = list[Part]
LABELS = {"labels": ["no", "yes"]}


async def exported(store: Store, path: Path, name: str = "s") -> Parts:
    await export(store, [name], path, lambda _: None)
    with path.open("rb") as file:
        reader = ArchiveReader(file, str(path))
        return [reader.part(frame) for frame in reader.frames() if frame.kind != b"DONE"]


async def imported(store: Store, parts: Sequence[Part], path: Path, limits: SessionLimits = LIMITS) -> Carried:
    with path.open("wb") as file:
        writer = ArchiveWriter(file)
        for part in parts:
            writer.add(part)
        writer.done("s")
    found: list[Carried] = []
    await import_file(store, path, found.append, lambda: Examination(limits))
    [carried] = found
    return carried


async def lived(api: Api, rounds: int = 35) -> None:
    """Rounds before and after a snapshot, a checkpoint, predictions that wait, and ids."""
    await api.create(POMDR, **LABELS, snapshot_every=20)
    await feed(api, 0, rounds)
    await api.call("POST", "/sessions/s/checkpoints", {"name": "kept"}, status=201)
    await api.update("yes", x=[0.0] * 10, id="told")
    await api.rounds([[0.5] * 10, [1.0] * 10], ["no", "yes"], id="block")
    await api.predict([1.0] * 10, id="waits")


@pytest.mark.each
@pytest.mark.parametrize("kind", KINDS, ids=range(len(KINDS)))
async def test_whatever_a_session_has_is_imported(store: Store, tmp_path: Path, kind: dict[str, Any]) -> None:
    async with serving_on(store) as api:
        await api.create(**kind, snapshot_every=20)
        await feed(api, 0, 45, is_named=is_named(kind))
        await api.predict([1.0] * 10, id="waits")
        await api.call("POST", "/sessions/s/checkpoints", {"name": "kept"}, status=201)
        if kind.get("reservoir"):
            other, path, body = "frozen", "freeze", {"name": "frozen"}
        else:
            other, path, body = "s~c", "challengers", {"name": "c", "learner": {"kind": "kernel-ridge"}}
        await api.call("POST", f"/sessions/s/{path}", body, status=201)
    # What a worker writes of a session now and then would make it another one.
    for name in ("s", other):
        parts = await exported(store, tmp_path / "good", name)
        before = await told(store, name)
        await store.delete(name)
        assert (await imported(store, parts, tmp_path / "again")).trouble is None
        assert await told(store, name) == before


async def test_how_far_a_body_of_lines_has_come_is_imported(memory: Api, tmp_path: Path) -> None:
    await memory.create(RIDGE)
    headers = NDJSON | {"Idempotency-Key": "k"}
    body = lines({"x": [row / 9], "y": 1.0} for row in range(9))
    assert (await memory.http.post("/sessions/s/rounds?block=4", content=body, headers=headers)).status_code == 200
    parts = await exported(memory.store, tmp_path / "good")
    await memory.store.delete("s")
    assert (await imported(memory.store, parts, tmp_path / "again")).trouble is None
    again = told_by(await memory.http.post("/sessions/s/rounds?block=4", content=body, headers=headers))
    assert [one["duplicate"] for one in again] == [True] * 3


def of(parts: Parts, kind: type[Any], place: int = 0) -> int:
    return [i for i, part in enumerate(parts) if isinstance(part, kind)][place]


def with_whole(change: Callable[[Whole], Whole]) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        assert isinstance(parts[0], Whole)
        return [change(parts[0]), *parts[1:]]

    return changed


def with_snapshot(change: Callable[[bytes], bytes]) -> Callable[[Parts], Parts]:
    return with_whole(lambda whole: replace(whole, snapshot=change(whole.snapshot or b"")))


def with_state(**given: Any) -> Callable[[Parts], Parts]:
    """Arrays of the snapshot, by names with _ for the point, are these."""

    def change(blob: bytes) -> bytes:
        arrays, meta = from_bytes(blob)
        for name, array in given.items():
            assert name.replace("_", ".", 1) in arrays, sorted(arrays)
            arrays[name.replace("_", ".", 1)] = np.asarray(array)
        return to_bytes(arrays, meta)

    return with_snapshot(change)


def of_another_learner(parts: Parts) -> Parts:
    def change(whole: Whole) -> Whole:
        definition, identity = decode_record("s", whole.record)
        spec = LearnerSpec.model_validate({"kind": "kernel-ridge", "config": {"kernel": {"kind": "gaussian"}}})
        return replace(whole, record=encode_record(replace(definition, learner=spec), identity))

    return with_whole(change)(parts)


def unfolding(_: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("learner.weights.npy", bytes(64 << 20))
        archive.comment = bytes(DIGEST_BYTES)
    body = buffer.getvalue()[:-DIGEST_BYTES]
    return body + hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


def with_entry(place: int, change: Callable[[bytes], bytes]) -> Callable[[Parts], Parts]:
    """The chain of the journal computed anew behind it."""

    def changed(parts: Parts) -> Parts:
        whole, at = parts[0], of(parts, Load)
        load = parts[at]
        assert isinstance(whole, Whole)
        assert isinstance(load, Load)
        entries: list[Entry] = []
        tip = whole.base
        for i, old in enumerate(load.entries):
            blob = change(old.blob) if i == place % len(load.entries) else old.blob
            entries.append(replace(old, tip=(tip := tip.then(old.count, old.id, blob)), blob=blob))
        head = whole.head
        start = next(one.tip for one in entries if head.snapshot_tip and one.tip.round == head.snapshot_tip.round)
        arrays, meta = from_bytes(whole.snapshot or b"")
        position = str(Position(whole.first.digest, start))
        made_up = replace(
            whole,
            head=replace(head, tip=tip, snapshot_tip=start),
            snapshot=to_bytes(arrays, meta | {"position": position}),
        )
        return [made_up, *parts[1:at], load._replace(entries=entries), *parts[at + 1 :]]

    return changed


def of_another_id(parts: Parts) -> Parts:
    """The last entry has another id, and the chain is not computed anew."""
    load = parts[at := of(parts, Load)]
    assert isinstance(load, Load)
    entries = [*load.entries[:-1], replace(load.entries[-1], id="another")]
    return [*parts[:at], load._replace(entries=entries), *parts[at + 1 :]]


def with_luggage(part: str, change: Callable[[Any], Any]) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        found: Parts = []
        for one in parts:
            if isinstance(one, Load) and (items := getattr(one.luggage, part)):
                one = one._replace(luggage=replace(one.luggage, **{part: [change(items[0]), *items[1:]]}))
            found.append(one)
        return found

    return changed


def with_checkpoint(change: Callable[[bytes], bytes]) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        return [Kept(one.checkpoint, change(one.state)) if isinstance(one, Kept) else one for one in parts]

    return changed


def made_up(blob: bytes) -> bytes:
    return b"made up"


MADE_UP: dict[str, tuple[str, Callable[[Parts], Parts]]] = {
    "snapshot": ("The snapshot", with_snapshot(made_up)),
    "no snapshot": ("The snapshot", with_whole(lambda whole: replace(whole, snapshot=b""))),
    "unfolding": ("The snapshot", with_snapshot(unfolding)),
    "weights": ("The snapshot", with_state(learner_t=np.zeros((3, 3)))),
    "not finite": ("The snapshot", with_state(card_totals=np.array(["text"]))),
    "learner": ("The snapshot", of_another_learner),
    "record": ("The record", with_whole(lambda whole: replace(whole, record=b"made up"))),
    "summary": (
        "The summary",
        with_whole(lambda whole: replace(whole, head=replace(whole.head, summary=bytes(SUMMARY_BYTES + 1)))),
    ),
    "checkpoint": ("Checkpoint 'kept'", with_checkpoint(made_up)),
    "checkpoint's state": ("Checkpoint 'kept'", with_checkpoint(lambda blob: blob[:-200])),
    "entry": ("The entry of round 38 of the journal", with_entry(-1, made_up)),
    "entry's number": ("The entry of round 36 of the journal", with_entry(-2, saying(value=0.25))),
    "entry behind the snapshot": ("The entry of round 1 of the journal", with_entry(0, made_up)),
    "entry's id": ("The entry of round 38 of the journal", of_another_id),
    "missing entries": ("The journal", lambda parts: [*parts[: of(parts, Load)], *parts[of(parts, Load) + 1 :]]),
    "rounds": ("The journal", with_state(card_totals=np.array([21.0, 31.5, 6.0]))),
    "bytes of the tail": (
        "The journal",
        with_whole(lambda whole: replace(whole, head=replace(whole.head, tail_bytes=0))),
    ),
    "bytes of the journal": (
        "The journal",
        with_whole(lambda whole: replace(whole, head=replace(whole.head, journal_bytes=whole.head.journal_bytes + 1))),
    ),
    "waiting": (
        "The prediction that waits under 'waits'",
        with_luggage("held", lambda one: one._replace(blob=flipped(one.blob, 100))),
    ),
    "answer": (
        "The answer that is remembered under",
        with_luggage("remembered", lambda one: one._replace(answer=b"made up")),
    ),
}


@pytest.mark.parametrize("name", MADE_UP)
async def test_what_is_made_up_is_refused_by_name(tmp_path: Path, name: str) -> None:
    part, change = MADE_UP[name]
    store = await opened(f"sqlite:///{tmp_path / 'okl.sqlite3'}")
    target = await opened("sqlite://")
    async with serving_on(store) as api:
        await lived(api)
        parts = await exported(store, tmp_path / "good")
    carried = await imported(target, change(parts), tmp_path / "made up")
    assert (carried.trouble or "").startswith(f"Invalid snapshot: {part}"), carried.trouble
    assert (carried.trouble or "").endswith("Nothing was imported; export the session again.")
    assert len(carried.trouble or "") < 500
    assert await target.head("s") == Gone()
    assert (await imported(target, parts, tmp_path / "made up")).trouble is None
    await target.close()
    await store.close()


NO_TIP = "does not say how far the challenger has come"
PAIRINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no tip": ({"tip": None}, NO_TIP),
    "round below 0": ({"tip": [-(2**70), "00" * 16]}, "is no count"),
    "round above all": ({"tip": [2**63, "00" * 16]}, "is no count"),
    "short digest": ({"tip": [5, "00"]}, "has 1 bytes"),
    "learner": ({"learner": -1}, "-1 is no count"),
    "missed": ({"missed": 1.5}, "1.5 is no count"),
    "skipped": ({"skipped": 10**30}, "is no count"),
}


@pytest.mark.parametrize("name", PAIRINGS)
async def test_a_challenger_that_has_followed_nobody_is_refused(memory: Api, tmp_path: Path, name: str) -> None:
    """Else it would never be fed, and a promotion would fail again and again."""
    changed, why = PAIRINGS[name]
    await memory.create(RIDGE)
    await feed(memory, 0, 3, is_named=False)
    await memory.call("POST", "/sessions/s/challengers", {"name": "c"}, status=201)
    parts = await exported(memory.store, tmp_path / "good", "s~c")
    await memory.store.delete("s~c")

    def change(blob: bytes) -> bytes:
        arrays, meta = from_bytes(blob)
        return to_bytes(arrays, meta | {PAIRING: meta[PAIRING] | changed})

    trouble = (await imported(memory.store, with_snapshot(change)(parts), tmp_path / "made up")).trouble or ""
    assert trouble.startswith("Invalid snapshot: The snapshot")
    assert why in trouble
    assert (await imported(memory.store, parts, tmp_path / "good")).trouble is None


async def test_what_has_moved_away_stays_where_another_is_made_up(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, other = stores
    async with serving_on(store) as api:
        await lived(api)
    # What a worker writes of a session now and then would make it another one.
    parts = await exported(store, tmp_path / "good")
    await move(store, other, "s", to="https://new.example")
    before = await told(store)
    for _, change in MADE_UP.values():
        assert (await imported(store, change(parts), tmp_path / "made up")).trouble is not None
        assert await told(store) == before
    assert (await imported(store, parts, tmp_path / "good")).trouble is None
    async with serving_on(store) as api:
        assert (await api.update("yes", id="waits"))["t"] == 39
    await other.delete("s")


async def test_a_learner_of_too_many_bytes_is_never_made(memory: Api, tmp_path: Path) -> None:
    """Sizes are the spec's, and take no room in the file."""
    learner = {"kind": "fogd", "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "frequencies": 500}}
    await memory.create(learner, "t", **LABELS, snapshot_every=5)
    await feed(memory, 0, 12, "t")
    parts = await exported(memory.store, tmp_path / "good", "t")
    await memory.store.delete("t")
    small = replace(LIMITS, bytes=10_000)
    carried = await imported(memory.store, parts, tmp_path / "again", small)
    assert "takes" in (carried.trouble or "")
    assert "OKL_SESSION_BYTES" in (carried.trouble or "")
    assert "OKL_MAX_DIM" in (
        (await imported(memory.store, parts, tmp_path / "again", replace(LIMITS, dim=9))).trouble or ""
    )
    assert (await imported(memory.store, parts, tmp_path / "again")).trouble is None


async def test_a_session_that_has_grown_beyond_the_limit_is_imported(memory: Api, tmp_path: Path) -> None:
    await memory.create(RIDGE, snapshot_every=5)
    await feed(memory, 0, 60, is_named=False)
    parts = await exported(memory.store, tmp_path / "good")
    await memory.store.delete("s")
    assert (await imported(memory.store, parts, tmp_path / "again", replace(LIMITS, bytes=4_000))).trouble is None
    assert (await head(memory.store, "s")).tip.round == 60
