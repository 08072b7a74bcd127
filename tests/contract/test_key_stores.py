"""The contract of every key store, on SQLite, Redis and a Redis Cluster."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from redis import Redis

from okl.errors import LimitReached
from service.store import redis_keys, sqlite_keys
from service.store.base import Store
from service.store.key_store import RECORD_BYTES, KeepsKeys, KeyRecords, KeyStore
from tests.contract.stores import ManualClock, Place, on_stores

pytestmark = [pytest.mark.anyio, on_stores(lambda case: case.is_shared)]

ID, OTHER = "abcdefgh", "22222222"


@pytest.fixture
def keys(store: Store) -> KeyStore:
    assert isinstance(store, KeepsKeys)
    return store.keys


async def test_a_new_store_never_had_a_key(keys: KeyStore) -> None:
    assert await keys.read("") is None
    assert not await keys.revoke(ID, "v1")
    assert await keys.read("") is None


async def test_a_key_is_kept_under_its_id_once(keys: KeyStore) -> None:
    assert await keys.add(ID, b"\x00record", "v1")
    assert await keys.add(ID, b"\x00record", "v1")  # the reply was lost
    assert not await keys.add(ID, b"another", "v2")
    assert await keys.read("") == KeyRecords("v1", {ID: b"\x00record"})
    assert await keys.read("v1") is None
    assert await keys.read("v0") == KeyRecords("v1", {ID: b"\x00record"})


async def test_a_revoked_key_is_gone_and_the_store_remembers_that_there_was_one(keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    await keys.add(OTHER, b"b", "v2")
    assert await keys.revoke(ID, "v3")
    assert not await keys.revoke(ID, "v4")
    assert await keys.read("v2") == KeyRecords("v3", {OTHER: b"b"})
    assert await keys.revoke(OTHER, "v5")
    assert await keys.read("") == KeyRecords("v5", {})


async def test_another_store_on_the_same_place_sees_the_keys(place: Place, keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    other = place.make()
    await other.open()
    assert isinstance(other, KeepsKeys)
    assert await other.keys.read("") == KeyRecords("v1", {ID: b"a"})
    await other.close()


async def test_keys_are_no_sessions(store: Store, keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    assert await store.count() == 0
    assert (await store.list(None, 10)).heads == []


async def test_keys_and_their_records_are_bounded(keys: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite_keys, redis_keys):
        monkeypatch.setattr(module, "MOST_KEYS", 2)
    with pytest.raises(ValueError, match="at most"):
        await keys.add(ID, bytes(RECORD_BYTES + 1), "v")
    await keys.add(ID, bytes(RECORD_BYTES), "v1")
    await keys.add(OTHER, b"b", "v2")
    with pytest.raises(LimitReached):
        await keys.add("33333333", b"c", "v3")
    assert await keys.add(OTHER, b"b", "v2")
    await keys.revoke(ID, "v4")
    assert await keys.add("33333333", b"c", "v5")


# -- token buckets ----------------------------------------------------------------------------------------------------


async def test_a_bucket_is_full_at_first_and_gives_what_it_has(keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    first = await keys.take(ID, 0.0, 4.0, 0.001, 10.0)
    assert first == (4.0, 0.0)
    second = await keys.take(ID, 0.0, 100.0, 0.001, 10.0)
    assert second.tokens == pytest.approx(6.0, abs=0.01)
    third = await keys.take(ID, 0.0, 1.0, 0.001, 10.0)
    assert third.tokens == 0.0
    assert third.wait_s == pytest.approx(1_000.0, rel=0.02)


async def test_what_is_owed_is_taken_first_and_may_leave_less_than_nothing(keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    found = await keys.take(ID, 30.0, 1.0, 2.0, 10.0)
    assert found.tokens == 0.0
    assert found.wait_s == pytest.approx(21.0 / 2.0, abs=0.1)


async def test_what_is_given_back_is_there_again_up_to_the_burst(keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    assert (await keys.take(ID, 0.0, 8.0, 0.001, 10.0)).tokens == 8.0
    assert (await keys.take(ID, -5.0, 0.0, 0.001, 10.0)).tokens == 0.0
    assert (await keys.take(ID, 0.0, 100.0, 0.001, 10.0)).tokens == pytest.approx(7.0, abs=0.01)
    await keys.take(ID, -1_000.0, 0.0, 0.001, 10.0)
    assert (await keys.take(ID, 0.0, 100.0, 0.001, 10.0)).tokens == 10.0


async def test_tokens_flow_in_by_the_clock_of_the_store(place: Place, keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    assert (await keys.take(ID, 0.0, 5.0, 20.0, 5.0)).tokens == 5.0
    await place.clock.pass_time(0.2)
    found = await keys.take(ID, 0.0, 5.0, 20.0, 5.0)
    assert 4.0 - 1e-6 <= found.tokens <= 5.0
    await place.clock.pass_time(1.0)
    assert (await keys.take(ID, 0.0, 100.0, 20.0, 5.0)).tokens == 5.0


async def test_a_clock_that_was_ahead_keeps_nobody_out(place: Place, keys: KeyStore) -> None:
    """An hour ahead when the bucket was last used, and put right since."""
    await keys.add(ID, b"a", "v1")
    if isinstance(place.clock, ManualClock):
        place.clock.now += 3600.0
    await keys.take(ID, 0.0, 5.0, 20.0, 5.0)
    if isinstance(place.clock, ManualClock):
        place.clock.now -= 3600.0
    else:
        with Redis(port=urlsplit(place.url).port or 0) as server:
            server.hincrbyfloat(f"okl:bucket:{ID}", "at", 3600.0)
    await keys.take(ID, 0.0, 5.0, 20.0, 5.0)
    await place.clock.pass_time(0.5)
    assert (await keys.take(ID, 0.0, 5.0, 20.0, 5.0)).tokens == 5.0


async def test_a_bucket_of_a_key_is_no_other_keys(keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    await keys.add(OTHER, b"b", "v2")
    assert (await keys.take(ID, 0.0, 3.0, 0.001, 3.0)).tokens == 3.0
    assert (await keys.take(OTHER, 0.0, 3.0, 0.001, 3.0)).tokens == 3.0


async def test_buckets_leave_nothing_behind(place: Place, keys: KeyStore) -> None:
    await keys.add(ID, b"a", "v1")
    await keys.take(ID, 0.0, 1.0, 1_000.0, 1.0)
    before = len(place.residue())
    await keys.revoke(ID, "v2")
    assert len(place.residue()) < before
    # A worker that does not know the change yet.
    await keys.take(ID, 0.0, 1.0, 1_000.0, 1.0)
    await asyncio.sleep(1.1)
    assert len(place.residue()) < before
