"""A key itself, what a worker knows of all keys, and when keys are required."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl.errors import StoreUnavailable
from service.app import create_app
from service.keys import keyring
from service.keys.key import (
    SIGNED_IN_S,
    KeyScope,
    Rate,
    cookie_of,
    decode_key,
    digest_of,
    encode_key,
    id_in,
    is_genuine,
    is_genuine_cookie,
    mint,
)
from service.keys.keyring import SEEN_S, Keyring, is_loopback, is_open_without_keys
from service.settings import Settings
from service.store.key_store import RECORD_BYTES, KeyRecords
from tests.service.api import check_problem, serving
from tests.service.keyed import Shelf, look_again, make, revoke

NOW = 1_700_000_000.0


# -- a key ----------------------------------------------------------------------------------------------------------


def test_a_key_is_written_with_its_id_and_256_random_bits() -> None:
    found = [mint("k", KeyScope.READ, now=NOW) for _ in range(100)]
    for key, text in found:
        assert re.fullmatch(r"okl_[a-z2-7]{8}_[A-Za-z0-9_-]{43}", text)
        assert id_in(text) == key.id
        assert key.digest == digest_of(text)
        assert is_genuine(key, text)
        assert not is_genuine(None, text)
    assert len({text for _, text in found}) == len({key.id for key, _ in found}) == 100


def test_no_trace_of_the_secret_or_its_digest_is_shown() -> None:
    key, text = mint("k", KeyScope.READ, now=NOW)
    secret = text.split("_", 2)[2]
    assert secret.encode() not in encode_key(key)
    for shown in (repr(key), str(key)):
        assert secret not in shown
        assert key.digest.hex() not in shown
        assert repr(key.digest) not in shown


@given(
    name=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=64),
    scope=st.sampled_from(KeyScope),
    prefix=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z") | st.just(""),
    expires_at=st.none() | st.floats(0.0, 1e11),
    rate=st.none() | st.builds(Rate, st.floats(1e-3, 1e6), st.floats(1.0, 1e6)),
)
def test_what_is_stored_is_read_again(
    name: str, scope: KeyScope, prefix: str, expires_at: float | None, rate: Rate | None
) -> None:
    key, _ = mint(name, scope, prefix=prefix, now=NOW, expires_at=expires_at, rate=rate)
    assert decode_key(key.id, encode_key(key)) == key
    assert len(encode_key(key)) <= RECORD_BYTES


@given(st.binary(max_size=64) | st.builds(lambda x: json.dumps(x).encode(), st.dictionaries(st.text(), st.text())))
def test_what_no_program_of_ours_wrote_is_no_key(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_key("abcdefgh", record)


@given(st.text(max_size=80))
def test_whatever_is_given_as_a_key_is_refused_and_breaks_nothing(text: str) -> None:
    ring = Keyring(is_open=False)
    assert ring.key_of(text.encode("utf-8", "replace").decode("latin-1")) is None
    assert ring.key_of_cookie(text) is None


def test_a_cookie_ends_by_itself_and_with_its_key() -> None:
    key, _ = mint("k", KeyScope.READ, now=NOW)
    cookie, seconds = cookie_of(key, NOW)
    assert seconds == SIGNED_IN_S
    assert is_genuine_cookie(key, cookie, NOW + SIGNED_IN_S - 1.0)
    assert not is_genuine_cookie(key, cookie, NOW + SIGNED_IN_S + 1.0)
    other, _ = mint("k", KeyScope.READ, now=NOW)
    assert not is_genuine_cookie(other, cookie, NOW)
    assert not is_genuine_cookie(None, cookie, NOW)
    id, until, signature = cookie.split(".")
    assert not is_genuine_cookie(key, f"{id}.{int(until) + 1}.{signature}", NOW)
    short, _ = mint("k", KeyScope.READ, now=NOW, expires_at=NOW + 60.0)
    assert cookie_of(short, NOW)[1] == 60


def test_a_rate_is_in_bounds() -> None:
    for per_s, burst in ((0.0, 1.0), (-1.0, 1.0), (1.0, 0.5), (1e7, 1.0), (float("nan"), 1.0), (1.0, float("inf"))):
        with pytest.raises(ValueError, match="rate"):
            Rate(per_s, burst)
    assert Rate(1e6, 1.0).burst == 1.0
    assert Rate(1e-3, 1e6).burst == 1e6


# -- what a worker knows ------------------------------------------------------------------------------------------


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.anyio
async def test_many_requests_read_the_store_once_in_a_while() -> None:
    shelf, clock = Shelf(), Time()
    ring = Keyring(is_open=True, clock=clock)
    assert not ring.is_stale
    ring.keep(shelf)
    assert ring.is_stale
    await asyncio.gather(*(ring.refresh() for _ in range(50)))
    assert shelf.reads == 1
    assert not ring.is_stale
    assert not ring.is_required
    key, text = mint("k", KeyScope.READ, now=NOW)
    shelf.put(key)
    clock.now += SEEN_S
    assert ring.is_stale
    await ring.refresh()
    assert ring.is_required
    assert ring.key_of(text) == key
    shelf.put()
    clock.now += SEEN_S
    await ring.refresh()
    assert ring.key_of(text) is None
    assert ring.is_required, "what was closed does not open by itself"
    shelf.put(key)
    clock.now += SEEN_S
    await ring.refresh()
    assert ring.key_of(text) == key
    shelf.now = KeyRecords("", {})
    clock.now += SEEN_S
    await ring.refresh()
    assert ring.key_of(text) is None
    assert ring.is_required, "nor because the store came back with less"


@pytest.mark.anyio
async def test_a_store_that_fails_keeps_nobody_out_who_was_in_and_lets_nobody_in() -> None:
    shelf, clock = Shelf(), Time()
    ring = Keyring(is_open=True, clock=clock)
    ring.keep(shelf)
    shelf.fails = True
    with pytest.raises(StoreUnavailable):
        await ring.refresh()
    assert ring.is_stale, "nobody knows yet whether there are keys"
    assert not ring.has_read
    shelf.fails = False
    await ring.refresh()
    assert ring.has_read
    assert not ring.is_required
    shelf.fails = True
    clock.now += SEEN_S
    await ring.refresh()
    assert not ring.is_required
    assert not ring.is_stale
    shelf.fails = False
    key, _ = mint("k", KeyScope.READ, now=NOW)
    shelf.put(key)
    await ring.refresh()
    shelf.fails = True
    clock.now += SEEN_S
    with pytest.raises(StoreUnavailable):
        await ring.refresh()
    assert ring.is_stale


@pytest.mark.anyio
async def test_a_read_that_fails_when_nobody_waits_any_more_is_no_unhandled_error() -> None:
    unhandled: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    shelf = Shelf()
    ring = Keyring(is_open=False)
    ring.keep(shelf)
    shelf.fails = True
    shelf.answers.clear()
    refreshing = asyncio.ensure_future(ring.refresh())
    for _ in range(3):
        await asyncio.sleep(0)
    assert shelf.reads == 1
    refreshing.cancel()
    await asyncio.wait([refreshing])
    shelf.answers.set()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    loop.set_exception_handler(None)
    assert unhandled == []
    with pytest.raises(StoreUnavailable):
        await ring.refresh()
    assert shelf.reads == 2


@pytest.mark.anyio
async def test_a_damaged_record_is_nobodys_key_and_the_others_are_good() -> None:
    shelf = Shelf()
    key, text = mint("k", KeyScope.READ, now=NOW)
    shelf.now = KeyRecords("v", {key.id: encode_key(key), "22222222": b"{}"})
    ring = Keyring(is_open=False)
    ring.keep(shelf)
    await ring.refresh()
    assert ring.key_of(text) == key


@pytest.mark.anyio
async def test_an_expired_key_is_refused_from_that_moment_on() -> None:
    shelf, wall = Shelf(), Time()
    key, text = mint("k", KeyScope.READ, now=50.0, expires_at=200.0)
    shelf.put(key)
    ring = Keyring(is_open=False, wall_clock=wall)
    ring.keep(shelf)
    await ring.refresh()
    assert ring.key_of(text) == key
    cookie, _ = cookie_of(key, wall.now)
    assert ring.key_of_cookie(cookie) == key
    wall.now = 200.0
    assert ring.key_of(text) is None
    assert ring.key_of_cookie(cookie) is None
    assert not ring.is_still_good(key)


# -- when keys are required -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("example.com", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, is_own: bool) -> None:
    assert is_loopback(host) == is_own
    assert is_open_without_keys(Settings(host=host)) == is_own
    assert is_open_without_keys(Settings(host=host, allow_anonymous=True))
    assert not is_open_without_keys(Settings(host=host, allow_anonymous=True, require_keys=True))


@pytest.mark.anyio
async def test_a_service_opens_and_closes_as_the_settings_and_the_keys_say(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    for settings, is_open in (
        ({}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "0.0.0.0", "allow_anonymous": True}, True),
        ({"require_keys": True}, False),
    ):
        async with serving(url, **settings) as api:
            assert (await api.http.get("/sessions")).status_code == (200 if is_open else 401), settings
            assert (await api.http.get("/healthz")).status_code == 200
    async with serving(url) as api:
        assert (await api.http.get("/sessions")).status_code == 200
        made = await make(url, KeyScope.READ)
        await look_again(api)
        assert (await api.http.get("/sessions")).status_code == 401
        assert (await api.http.get("/sessions", headers=made.headers)).status_code == 200
        await revoke(url, made)
        await look_again(api)
        for headers in ({}, made.headers):
            check_problem(await api.http.get("/sessions", headers=headers), "unauthenticated")
    async with serving(url, host="0.0.0.0", allow_anonymous=True) as api:
        check_problem(await api.http.get("/sessions"), "unauthenticated")


@pytest.mark.anyio
async def test_a_store_that_keeps_no_keys_is_served_to_this_machine_alone() -> None:
    ring = Keyring(is_open=False)
    ring.keep(object())
    await ring.refresh()
    assert ring.is_required
    assert not ring.is_stale


@pytest.mark.anyio
async def test_a_worker_that_cannot_ask_for_the_keys_refuses_and_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "SEEN_S", 0.0)
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    made = await make(url)
    async with serving(url) as api:
        shelf = Shelf()
        shelf.fails = True
        api.app.state.keyring.keep(shelf)
        check_problem(await api.http.get("/sessions", headers=made.headers), "store-unavailable")
        assert (await api.http.get("/healthz")).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize("rate", [None, Rate(1.0, 1.0)])
async def test_metrics_tell_that_the_store_is_away_to_a_key_that_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: Rate | None
) -> None:
    monkeypatch.setattr(keyring, "SEEN_S", 0.0)
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    made = await make(url, KeyScope.READ, rate=rate)
    async with serving(url, require_keys=True) as api:
        shelf = Shelf()
        shelf.fails = True
        api.app.state.keyring.keep(shelf)
        assert (await api.http.get("/metrics", headers=made.headers)).status_code == 200
        check_problem(await api.http.get("/metrics"), "unauthenticated")
        check_problem(await api.http.get("/sessions", headers=made.headers), "store-unavailable")


# -- the comparison ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_comparison_takes_as_long_wherever_the_key_is_wrong() -> None:
    """The fastest of interleaved groups: an early exit at the first byte of 43 would be far beyond the noise of either.

    What is compared is a digest, so that even its timing would tell nothing of the secret; this holds the code to both.
    A busy processor slows any group, but not the same one in each of several trials.
    """
    key, text = mint("k", KeyScope.READ, now=NOW)
    shelf, ring = Shelf(), Keyring(is_open=False)
    shelf.put(key)
    ring.keep(shelf)
    await ring.refresh()
    start = len("okl_") + len(key.id) + 1
    other = {"A": "B"}
    wrong = {
        "first": text[:start] + other.get(text[start], "A") + text[start + 1 :],
        "last": text[:-1] + other.get(text[-1], "A"),
        "unknown": "okl_zzzzzzzz_" + text[start:],
    }
    trials: list[dict[str, float]] = []
    for _ in range(8):
        least = dict.fromkeys(wrong, math.inf)
        for turn in range(60):
            # Each follows the others equally often: what runs first after a pause finds cold caches.
            for name in random.Random(turn).sample(sorted(wrong), len(wrong)):
                began = time.process_time_ns()
                for _ in range(20):
                    ring.key_of(wrong[name])
                least[name] = min(least[name], (time.process_time_ns() - began) / 20)
        # An unknown id skips nothing: it is hashed and compared with 32 bytes too.
        if max(least.values()) < 1.25 * min(least.values()) + 200.0:
            return
        trials.append(least)
    pytest.fail(f"{trials}")


def test_create_app_asks_nothing_of_the_store_before_it_runs() -> None:
    app = create_app(Settings(store="sqlite://"))
    assert not app.state.keyring.is_stale
