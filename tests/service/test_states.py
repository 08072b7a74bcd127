"""States that are downloaded, put and cloned: the same as the session that they are of, whatever its learner."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl.errors import InvalidSnapshot, StateCorrupt
from okl_core.contract.state import DIGEST_BYTES, from_bytes, to_bytes
from service.archive.portable import MAGIC, pack_state, unpack_state
from service.demo_data import magic
from service.session.definition import Definition
from service.session.limits import SessionLimits
from service.session.record import encode_record
from service.session.session import Session
from service.session.snapshot import unpack
from service.session.summary import decode_summary, encode_summary, summary_of
from tests.service.api import Api, serving
from tests.service.challenged import attach, caught_up
from tests.service.definitions import GAUSSIAN, POMDR
from tests.service.keyed import make

pytestmark = pytest.mark.anyio

X, Y = magic()
STATE = "application/octet-stream"
LIMITS = SessionLimits(dim=10_000, bytes=256 << 20, waiting_s=60.0, batch=10_000, answer_bytes=8 << 20)
KINDS: list[dict[str, Any]] = [
    {"learner": POMDR, "labels": ["no", "yes"]},
    {"labels": ["no", "yes"], "scale": {"kind": "learned"}, "warmup_rounds": 30, "strict": False},
    {"learner": {"kind": "kernel-ridge", "config": {"kernel": GAUSSIAN}, "lags": 2}, "interval": 0.9},
    {"learner": POMDR, "labels": ["no", "yes"], "reservoir": True},
    {"learner": {"kind": "sketched-kons", "config": {"kernel": GAUSSIAN}}, "labels": ["no", "yes"]},
    {"learner": None, "strict": False, "scale": {"kind": "learned"}},
]
"""What a session may have beside a learner: classes by name, a warm-up, lags and intervals, a reservoir, coins, nothing."""


async def feed(api: Api, first: int, last: int, name: str = "s", *, is_named: bool = True) -> list[Any]:
    told: list[Any] = []
    for row in range(first, last):
        y = ("yes" if Y[row] > 0 else "no") if is_named else float(Y[row])
        told.append(await api.update(y, name, x=X[row].tolist()))
    return [(one["t"], one["loss"]) for one in told]


async def put(api: Api, blob: bytes, name: str = "s", **headers: str) -> httpx.Response:
    kind = {"Content-Type": STATE} | {key.replace("_", "-"): value for key, value in headers.items()}
    return await api.http.put(f"/sessions/{name}/snapshot", content=blob, headers=kind)


async def take(api: Api, name: str = "s") -> tuple[bytes, str]:
    response = await api.http.get(f"/sessions/{name}/snapshot")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == STATE
    return response.content, response.headers["etag"]


def is_named(settings: dict[str, Any]) -> bool:
    return "labels" in settings


@pytest.mark.each
@pytest.mark.parametrize("kind", KINDS, ids=range(len(KINDS)))
async def test_a_state_makes_the_same_session_elsewhere(api: Api, kind: dict[str, Any]) -> None:
    await api.create(**kind)
    await feed(api, 0, 40, is_named=is_named(kind))
    blob, etag = await take(api)
    assert etag == (await api.inspect())["etag"]
    async with serving("sqlite://") as other:
        response = await put(other, blob, "copy", If_None_Match="*")
        assert response.status_code == 201, response.text
        assert response.headers["location"] == "/sessions/copy"
        told, was = response.json(), await api.inspect()
        for field in ("t", "learner", "settings", "labels", "fields", "dim", "metrics", "lags"):
            assert told[field] == was[field], field
        here = await feed(api, 40, 60, is_named=is_named(kind))
        assert await feed(other, 40, 60, "copy", is_named=is_named(kind)) == here
        assert (await take(other, "copy"))[0] != blob


@pytest.mark.each
@pytest.mark.parametrize("kind", KINDS, ids=range(len(KINDS)))
async def test_a_clone_goes_on_as_its_original_and_on_its_own(api: Api, kind: dict[str, Any]) -> None:
    await api.create(**kind)
    await feed(api, 0, 35, is_named=is_named(kind))
    told = await api.call("POST", "/sessions/s/clone", {"name": "twin"}, status=201)
    assert (told["name"], told["t"]) == ("twin", 35)
    alone = await feed(api, 35, 50, "twin", is_named=is_named(kind))
    assert (await api.inspect())["t"] == 35
    assert await feed(api, 35, 50, is_named=is_named(kind)) == alone
    await api.refused("session-exists", "POST", "/sessions/s/clone", {"name": "twin"})
    await api.refused("session-not-found", "POST", "/sessions/nobody/clone", {"name": "third"})


async def test_a_session_is_taken_back_and_what_waits_is_settled(store_url: str) -> None:
    async with serving(store_url) as api, serving(store_url) as other:
        await api.create(POMDR, labels=["no", "yes"])
        await feed(api, 0, 10)
        blob, _ = await take(api)
        first = await api.update("yes", x=X[10].tolist(), id="applied")
        await feed(other, 11, 20)
        waiting = await api.predict(X[20].tolist(), id="waits")
        await other.predict(X[21].tolist(), id="waits-too")
        etag = (await api.inspect())["etag"]
        response = await put(api, blob, If_Match=etag)
        assert response.status_code == 200, response.text
        assert response.json()["t"] == 10
        assert response.headers["etag"] != etag
        assert (await put(api, blob, If_Match=etag)).json()["type"] == "/problems/precondition-failed"
        # Either worker goes on from there, and knows what was before.
        again = await other.update("yes", x=X[10].tolist(), id="applied")
        assert again == first | {"duplicate": True}
        assert await other.predict(X[20].tolist(), id="waits") == waiting
        assert (await other.update("no", id="waits"))["t"] == 11
        assert (await api.update("no", id="waits-too"))["t"] == 12
        assert (await api.inspect())["waiting"] == 0
    async with serving(store_url) as fresh:
        assert (await fresh.inspect())["t"] == 12
        assert (await fresh.call("GET", "/sessions/s/rounds"))["rounds"][0]["t"] == 12


async def test_rounds_after_a_return_are_those_of_the_kept_state(api: Api) -> None:
    await api.create(POMDR, labels=["no", "yes"])
    await feed(api, 0, 20)
    blob, _ = await take(api)
    once = await feed(api, 20, 40)
    for _ in range(2):
        assert (await put(api, blob, If_Match="*")).status_code == 200
        assert await feed(api, 20, 40) == once


async def test_another_learner_takes_over_what_waits(api: Api) -> None:
    await api.create(POMDR, labels=["no", "yes"])
    await api.create({"kind": "kons", "config": {"kernel": GAUSSIAN}}, "better", labels=["no", "yes"])
    await feed(api, 0, 20)
    await feed(api, 0, 15, "better")
    await api.predict(X[20].tolist(), id="waits")
    blob, _ = await take(api, "better")
    told = (await put(api, blob, If_Match="*")).json()
    assert (told["t"], told["learner"]["kind"], told["waiting"]) == (15, "kons", 1)
    assert (await api.update("yes", id="waits"))["t"] == 16
    one = [(await api.predict(x.tolist(), name, wait=False)) for name in ("s", "better") for x in X[30:32]]
    assert one[0]["t"] == 16


async def test_a_stranger_does_not_take_the_place_of_a_session_whose_predictions_wait(memory: Api) -> None:
    await memory.create(POMDR, labels=["no", "yes"])
    await feed(memory, 0, 5)
    await memory.predict(X[20].tolist(), id="waits")
    strangers = {
        "labels": {"labels": ["yes", "no"]},
        "truths": {"labels": None},
        "fields": {"labels": ["no", "yes"], "dim": 10},
    }
    for name, own in strangers.items():
        await memory.create(POMDR, name, **own)
    await memory.call("POST", "/sessions/s/freeze", {"name": "frozen"}, status=201)
    for name in (*strangers, "frozen"):
        blob, _ = await take(memory, name)
        assert (await put(memory, blob, If_Match="*")).json()["type"] == "/problems/invalid-snapshot"
    assert (await memory.update("yes", id="waits"))["t"] == 6


async def test_what_a_put_must_say(memory: Api) -> None:
    await memory.create(POMDR, labels=["no", "yes"])
    await feed(memory, 0, 5)
    blob, etag = await take(memory)

    async def slug(name: str = "s", content: bytes = blob, **headers: str) -> str:
        response = await put(memory, content, name, **headers)
        return response.json()["type"].removeprefix("/problems/")

    assert await slug() == "precondition-required"
    assert await slug(If_Match="7-00") == "invalid-request"
    assert await slug(If_Match='"7-00"') == "precondition-failed"
    assert await slug(If_Match="*", If_None_Match="*") == "invalid-request"
    assert await slug(If_None_Match=etag) == "invalid-request"
    assert await slug(If_None_Match="*") == "session-exists"
    assert await slug("nobody", If_Match="*") == "session-not-found"
    assert await slug(If_Match=f'"5-{"0" * 32}"') == "precondition-failed"
    assert await slug(content=b"", If_Match="*") == "invalid-snapshot"
    assert await slug(If_Match="*", Content_Type="application/json") == "unsupported-media-type"
    assert await slug("-", If_Match="*") == "invalid-name"
    assert (await memory.inspect())["etag"] == etag


async def test_what_made_the_original_does_not_matter(memory: Api) -> None:
    """Not its template, nor that it was a challenger."""
    await memory.call("PUT", "/templates/any", {"prefix": "s", "session": {"learner": POMDR, "labels": ["no", "yes"]}})
    await feed(memory, 0, 20, "s1")
    assert (await memory.inspect("s1"))["template"] == "any"
    await attach(memory, name="s1")
    await feed(memory, 20, 25, "s1")
    await caught_up(memory, name="s1")
    for number, original in enumerate(("s1", "s1~c")):
        blob, _ = await take(memory, original)
        response = await put(memory, blob, f"copy-{number}", If_None_Match="*")
        assert response.status_code == 201, response.text
        assert response.json()["template"] is None
        assert (await put(memory, blob, "s1", If_Match="*")).json()["template"] == "any"
        again = await feed(memory, 25, 30, f"copy-{number}")
        assert await feed(memory, 25, 30, "s1") == again
        assert (await put(memory, blob, "s1~c", If_Match="*")).json()["type"] == "/problems/session-follows"


async def test_a_key_needs_no_right_to_the_original(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path / 'okl.sqlite3'}", tmp_path / "audit.log"
    own = await make(url, prefix="team-")
    async with serving(url, audit_file=str(path)) as api:
        api.http.headers.update(own.headers)
        response = await put(api, GOOD, "team-a", If_None_Match="*")
        assert response.status_code == 201, response.text
        assert (await put(api, GOOD, "other", If_None_Match="*")).json()["type"] == "/problems/forbidden"
    assert [json.loads(line)["session"] for line in path.read_text().splitlines()] == ["team-a", "other"]


async def test_over_the_limits(tmp_path: Any) -> None:
    async with serving("sqlite://") as large:
        await large.create(POMDR, labels=["no", "yes"])
        await feed(large, 0, 30)
        blob, _ = await take(large)
    for limits in ({"max_dim": 4}, {"session_bytes": 4096}):
        async with serving("sqlite://", **limits) as small:
            response = await put(small, blob, If_None_Match="*")
            assert response.json()["type"] == "/problems/invalid-snapshot", limits
            assert (await small.call("GET", "/sessions"))["sessions"] == []
    async with serving("sqlite://", max_body_bytes=1024) as small:
        assert (await put(small, blob, If_None_Match="*")).json()["type"] == "/problems/payload-too-large"


# -- hostile bytes --------------------------------------------------------------------------------------------------


def made(rounds: int = 30) -> bytes:
    session = Session(Definition("s", learner=_spec(), labels=("no", "yes"), dim=10, scale="none", is_strict=True))
    for x, y in zip(X[:rounds], Y[:rounds], strict=True):
        truth, task = session.read_truth("yes" if y > 0 else "no")
        session.learn(session.play(session.read_input(x.tolist()), truth, task))
    return pack_state(session)


def _spec() -> Any:
    from okl_core import LearnerSpec

    return LearnerSpec.model_validate(POMDR)


GOOD = made()


def resealed(body: bytes) -> bytes:
    """With a digest that fits: what a stranger would make."""
    return body + hashlib.blake2b(body, digest_size=16).digest()


def with_state(state: bytes, blob: bytes = GOOD) -> bytes:
    (length,) = struct.unpack_from("<I", blob, len(MAGIC) + 2)
    return resealed(blob[: len(MAGIC) + 6 + length] + state)


def state_of(blob: bytes = GOOD) -> bytes:
    (length,) = struct.unpack_from("<I", blob, len(MAGIC) + 2)
    return blob[len(MAGIC) + 6 + length : -16]


def test_what_is_packed_is_unpacked() -> None:
    assert pack_state(unpack_state("other", GOOD, LIMITS)) == pack_state(
        replace_name(unpack_state("s", GOOD, LIMITS), "other")
    )


def replace_name(session: Session, name: str) -> Session:
    session.definition = replace(session.definition, name=name)
    return session


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, len(GOOD) - 1), value=st.integers(1, 255), is_sealed=st.booleans())
def test_a_flipped_byte_is_refused_or_harmless(place: int, value: int, is_sealed: bool) -> None:
    damaged = bytearray(GOOD)
    damaged[place] ^= value
    if not is_sealed:
        with pytest.raises(InvalidSnapshot):
            unpack_state("s", bytes(damaged), LIMITS)
        return
    with contextlib.suppress(InvalidSnapshot):
        unpack_state("s", resealed(bytes(damaged[:-16])), LIMITS)


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(0, len(GOOD) - 1), is_sealed=st.booleans())
def test_a_cut_snapshot_is_refused(cut: int, is_sealed: bool) -> None:
    with pytest.raises(InvalidSnapshot):
        unpack_state("s", resealed(GOOD[:cut]) if is_sealed else GOOD[:cut], LIMITS)


ARRAYS, META = from_bytes(state_of())
JUNK = [
    np.zeros(0),
    np.zeros((3, 3)),
    np.full(4, np.nan),
    np.full(4, np.inf),
    np.array(-1.0),
    np.array(1e300),
    np.zeros(10, dtype=np.uint8),
    np.array(["text"]),
]


@pytest.mark.parametrize("name", sorted(ARRAYS))
@pytest.mark.parametrize("junk", range(len(JUNK)))
def test_made_up_arrays_are_refused_or_harmless(name: str, junk: int) -> None:
    try:
        session = unpack_state("s", with_state(to_bytes(ARRAYS | {name: JUNK[junk]}, META)), LIMITS)
    except InvalidSnapshot:
        return
    assert np.isfinite(session.forecast(session.read_input(X[50].tolist())).value)
    assert decode_summary(encode_summary(summary_of(session))).t == session.t


WAITS = META["spec"] | {"config": {"kernel": {"kind": "gaussian", "sigma": "median"}}}


@pytest.mark.parametrize(
    ("arrays", "meta"),
    [
        ({"learner.scale": np.array(0.0)}, {}),
        ({"learner.labels": np.array(1.0)}, {}),
        ({"learner.labels": np.ones(15, dtype=complex)}, {}),
        ({}, {"spec": WAITS}),
    ],
    ids=range(4),
)
async def test_made_up_learners_are_refused_by_name(memory: Api, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """A worker that loads a session meets them as a corrupt snapshot, not as an error that nothing explains."""
    state = to_bytes(ARRAYS | arrays, META | meta)
    with pytest.raises(StateCorrupt, match="cannot be read"):
        unpack(unpack_state("s", GOOD, LIMITS).definition, state, META["position"])
    response = await put(memory, with_state(state), If_None_Match="*")
    assert response.json()["type"] == "/problems/invalid-snapshot"


@pytest.mark.parametrize("wrong", [-1.0, 0.5, 1e300, np.nan])
@pytest.mark.parametrize("name", ["card.totals", "history.counts", "history.alarms.counts", "history.spread.counts"])
def test_a_number_of_rounds_that_is_none_is_refused(name: str, wrong: float) -> None:
    counts = ARRAYS[name].copy()
    counts[1 if name == "history.spread.counts" else 0] = wrong
    with pytest.raises(InvalidSnapshot, match="is no count"):
        unpack_state("s", with_state(to_bytes(ARRAYS | {name: counts}, META)), LIMITS)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("name", ["history.spread.delays", "history.spread.reliability"])
def test_a_distribution_that_is_none_is_refused(name: str, wrong: float) -> None:
    rounds = ARRAYS[name].copy()
    rounds.flat[0] = wrong
    with pytest.raises(InvalidSnapshot, match="negative or infinite"):
        unpack_state("s", with_state(to_bytes(ARRAYS | {name: rounds}, META)), LIMITS)


@pytest.mark.parametrize("name", sorted(META))
@pytest.mark.parametrize("junk", [None, 0, -1, 1e300, "text", [], {}, [1, 2, 3], {"a": [1]}, True])
def test_made_up_documents_are_refused_or_harmless(name: str, junk: Any) -> None:
    try:
        session = unpack_state("s", with_state(to_bytes(ARRAYS, META | {name: junk})), LIMITS)
    except InvalidSnapshot:
        return
    session.forecast(session.read_input(X[50].tolist()))


def test_what_unfolds_to_more_than_it_is_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("learner.weights.npy", bytes(64 << 20))
        archive.comment = bytes(DIGEST_BYTES)
    body = buffer.getvalue()[:-DIGEST_BYTES]
    bomb = body + hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
    with pytest.raises(InvalidSnapshot, match="compressed"):
        unpack_state("s", with_state(bomb), LIMITS)


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(InvalidSnapshot, match="version 2"):
        unpack_state("s", resealed(MAGIC + b"\x02\x00" + GOOD[len(MAGIC) + 2 : -16]), LIMITS)


@pytest.mark.parametrize(
    "change",
    [
        {"warmup_rounds": 10**9},
        {"warmup_rounds": 0},
        {"interval": 7.0},
        {"labels": (1, 1)},
        {"dim": 0},
        {"snapshot_every": 0},
        {"expires_s": -1.0},
    ],
)
async def test_a_definition_that_no_session_may_have_is_refused(memory: Api, change: dict[str, Any]) -> None:
    definition = Definition("s", learner=_spec(), dim=10, scale="none", is_strict=True)
    record = encode_record(replace(definition, **change), bytes(16))
    blob = resealed(MAGIC + struct.pack("<HI", 1, len(record)) + record + state_of())
    response = await put(memory, blob, If_None_Match="*")
    assert response.status_code == 422, response.text
    assert (await memory.call("GET", "/sessions"))["sessions"] == []
