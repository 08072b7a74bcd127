"""Behaviour specific to the Redis store: its keys and damage to them, its connections, its url, its warnings."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncIterator, Callable

import pytest
import redis
from redis.asyncio.connection import ConnectionPool

from okl.errors import SessionExists, StoreCorrupt, StoreTimeout, StoreUnavailable
from service.store import redis_scripts as scripts
from service.store.base import (
    Behind,
    Committed,
    Entry,
    Found,
    Head,
    Hold,
    Limits,
    Store,
    Tip,
    Waiting,
)
from service.store.moving import Seal, Whole
from service.store.opening import open_store
from service.store.redis import SWEPT_HERE
from service.store.redis_connections import BATCH_BYTES, Connections, Lanes
from service.store.redis_scripts import Value
from tests.contract.redis_sessions import append, first_tip, key, opened, port_of
from tests.contract.store_calls import NAME, bare, chain, entry, ids_from, outcomes_of, read
from tests.contract.store_calls import append as append_all
from tests.redis_server import wait_until
from tests.tcp_proxy import Proxy, proxy_to

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

FIRST = first_tip()


@pytest.fixture
async def store(redis_url: str, anyio_backend: str) -> AsyncIterator[Store]:
    async with opened(redis_url) as store:
        await store.create(NAME, b"record", FIRST)
        yield store


@pytest.fixture
async def proxy(redis_url: str, anyio_backend: str) -> AsyncIterator[Proxy]:
    async with proxy_to(port_of(redis_url)) as proxy:
        yield proxy


@pytest.fixture
async def proxied(proxy: Proxy) -> AsyncIterator[Store]:
    async with opened(f"redis://127.0.0.1:{proxy.port}/0?deadline_s=2") as store:
        await store.create(NAME, b"record", FIRST)
        # From here on the server has the scripts cached, so that one command is one request.
        await append(store, FIRST, 1)
        yield store


# Damage


def flip(value: bytes, at: int = -1) -> bytes:
    damaged = bytearray(value)
    damaged[at] ^= 4
    return bytes(damaged)


def flip_entry(field: bytes) -> Callable[[redis.Redis], None]:
    def damage(server: redis.Redis) -> None:
        rows = server.xrange(key("journal"))
        server.delete(key("journal"))
        for number, (stream_id, fields) in enumerate(rows):
            server.xadd(key("journal"), fields | ({field: flip(fields[field])} if number == 1 else {}), id=stream_id)

    return damage


def flip_head(field: str, at: int = -1) -> Callable[[redis.Redis], None]:
    def damage(server: redis.Redis) -> None:
        value = server.hget(key("head"), field)
        assert isinstance(value, bytes)
        server.hset(key("head"), field, flip(value, at))

    return damage


DAMAGE: dict[str, Callable[[redis.Redis], object]] = {
    "blob": flip_entry(b"blob"),
    "id": flip_entry(b"id"),
    "digest": flip_entry(b"digest"),
    "count": flip_entry(b"count"),
    "tip": flip_head("tip"),
    "round": flip_head("tip", 0),
    "first": flip_head("first"),
    "snapshot": flip_head("snapshot"),
    "lost summary": lambda server: server.hdel(key("head"), "summary"),
    "lost counters": lambda server: server.hdel(key("head"), "counters"),
    "cut counters": lambda server: server.hset(key("head"), "counters", b"short"),
    "infinite counters": lambda server: server.hset(key("head"), "counters", struct.pack("<9d", *[math.inf] * 9)),
    "NaN counters": lambda server: server.hset(key("head"), "counters", struct.pack("<9d", *[math.nan] * 9)),
    "lost tip": lambda server: server.hdel(key("head"), "tip"),
    "lost record": lambda server: server.hdel(key("head"), "record"),
    "lost snapshot": lambda server: server.delete(key("snap")),
    "cut snapshot": lambda server: server.set(key("snap"), b"st"),
    "lost entry": lambda server: server.xdel(key("journal"), "3-0"),
    "lost journal": lambda server: server.delete(key("journal")),
    "wrong head": lambda server: (server.delete(key("head")), server.set(key("head"), b"")),
    "wrong journal": lambda server: (server.delete(key("journal")), server.set(key("journal"), b"")),
    "foreign entry": lambda server: server.xadd(key("journal"), {"a": "b"}, id="9-0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_corrupt_for_its_session_only(store: Store, server: redis.Redis, damage: str) -> None:
    tip = await append(store, FIRST, 4)
    if "snapshot" in damage:
        # It replaces the first tip as the start of every reading.
        assert await store.snapshot(NAME, (await read(store, None)).entries[0].tip, b"state")
    DAMAGE[damage](server)
    for after in (None, Tip(1, b"another chain...")):
        with pytest.raises(StoreCorrupt) as raised:
            await store.read(NAME, after)
        assert raised.value.extra == {"session": NAME}
    await store.create("other", b"", FIRST)
    names = {head.name for head in (await store.list(None, 10)).heads}
    assert "other" in names
    assert await store.delete(NAME) is True
    await store.create(NAME, b"", FIRST)
    assert (await read(store, tip)).is_whole


async def test_a_damaged_tip_takes_no_commit(store: Store, server: redis.Redis) -> None:
    tip = await append(store, FIRST, 2)
    DAMAGE["tip"](server)
    with pytest.raises(StoreCorrupt):
        await store.commit(NAME, tip, [entry(tip, "x")])
    server.hset(key("head"), "counters", b"short")
    with pytest.raises(StoreCorrupt):
        await store.commit(NAME, tip, [], [Hold("p", b"", 9.0)])


async def test_a_listing_heals_the_index(store: Store, server: redis.Redis) -> None:
    await append(store, FIRST, 1)
    server.delete(key("head"))
    server.zadd("okl:sessions", {"never made": 0})
    assert (await store.list(None, 10)).heads == []
    assert server.keys("*") == []


async def test_a_summary_lists_a_session_again_that_the_server_of_the_index_has_lost(redis_cluster_url: str) -> None:
    async with opened(redis_cluster_url) as store:
        await store.create(NAME, b"", FIRST)
        with redis.RedisCluster.from_url(redis_cluster_url.replace("+cluster", "")) as cluster:
            cluster.delete("okl:sessions")
        assert await store.summarize(NAME, first_tip(), b"of another session") is False
        assert await store.count() == 0
        assert await store.summarize(NAME, FIRST, b"") is True
        assert [head.name for head in (await store.list(None, 10)).heads] == [NAME]


async def test_a_damaged_head_in_a_cluster_is_left_out_of_the_list(redis_cluster_url: str) -> None:
    async with opened(redis_cluster_url) as store:
        for name in (NAME, "other"):
            await store.create(name, b"", FIRST)
        with redis.RedisCluster.from_url(redis_cluster_url.replace("+cluster", "")) as cluster:
            cluster.delete(key("head"))
            cluster.set(key("head"), b"")
            assert [head.name for head in (await store.list(None, 10)).heads] == ["other"]
            cluster.delete(key("head"))
        assert [head.name for head in (await store.list(None, 10)).heads] == ["other"]
        assert await store.count() == 1


async def test_a_seal_for_a_while_is_no_longer_when_the_clock_is_set_back(store: Store, server: redis.Redis) -> None:
    held, other = Seal("held", "one").note(), Seal("held", "two").note()
    for hours, is_in_force in ((0.5, True), (2.0, False)):
        await store.seal(NAME, held, 10.0)
        server.hincrby(key("head"), "sealed_until", int(hours * 3600e6))
        assert await store.seal(NAME, other, 10.0) is not is_in_force
        await store.unseal(NAME, held)
        await store.unseal(NAME, other)
    await store.seal(NAME, held, 10.0)
    server.hincrby(key("head"), "sealed_until", int(7200e6))
    assert outcomes_of(await store.commit(NAME, FIRST, [])) == []
    assert await store.delete(NAME) is True


# Bounds


def age(server: redis.Redis, seconds: float) -> None:
    """Make time pass for the session by moving all its stored times back, independent of the machine's speed."""
    us = seconds * 1e6
    counters = list(struct.unpack("<9d", server.hget(key("head"), "counters") or b""))
    counters[1] -= us  # nothing is due before
    server.hset(key("head"), "counters", struct.pack("<9d", *counters))
    for name, stamps in (("waiting", 2), ("applied", 1)):
        for id, value in server.hgetall(key(name)).items():
            times = (time - us for time in struct.unpack_from(f"<{stamps}d", value))
            server.hset(key(name), id, struct.pack(f"<{stamps}d", *times) + value[8 * stamps :])
    for name in ("expiry", "forget"):
        if scores := dict(server.zrange(key(name), 0, -1, withscores=True)):
            server.zadd(key(name), {id: time - us for id, time in scores.items()})


async def sweep(store: Store, last: Entry, tip: Tip) -> None:
    """Send an entry again, which only evicts what is due."""
    assert outcomes_of(await store.commit(NAME, tip, [last])) == []


async def test_sweeps_are_bounded_and_what_is_left_goes_with_the_next(store: Store, server: redis.Redis) -> None:
    count = SWEPT_HERE + 50
    before = tip = FIRST
    entries: list[Entry] = []
    for number in range(count):
        entries.append(entry(tip, f"e{number}", answer=b"told"))
        before, tip = tip, entries[-1].tip
    assert outcomes_of(await store.commit(NAME, FIRST, entries)) == []
    await store.commit(NAME, tip, [], [Hold(f"p{number}", b"12", 1000.0) for number in range(count)])
    for passed_s, waiting, remembered in (
        (0, count, count),
        (1001, 50, count),
        (0, 0, count),
        (90_000, 0, 50),
        (0, 0, 0),
    ):
        age(server, passed_s)
        await sweep(store, entries[-1], before)
        head = await store.head(NAME)
        assert isinstance(head, Head)
        assert (head.waiting, head.waiting_bytes) == (waiting, 2 * waiting)
        assert (head.remembered, head.remembered_bytes) == (remembered, remembered * len(b"told"))
    assert not server.exists(*map(key, ("waiting", "expiry", "forget", "applied", "remembered")))


async def test_expired_predictions_are_bounded_too(redis_url: str, server: redis.Redis) -> None:
    async with opened(redis_url, Limits(waiting=5, waiting_bytes=40)) as store:
        await store.create(NAME, b"", FIRST)
        only = entry(FIRST, "e", answer=None)
        for wait_s in (80_000.0, 10_000.0, 2_000.0, 1_000.0):
            holds = [Hold(f"{wait_s}-{number}", b"12345678", wait_s) for number in range(3)]
            assert outcomes_of(await store.commit(NAME, FIRST, [only], holds)) == [None] * 3
            age(server, wait_s + 1.0)
            await sweep(store, only, FIRST)
            assert server.zcard(key("expiry")) == 0
        # Each is remembered for as long again as it waited: there would be twelve without a bound.
        assert server.zcard(key("forget")) == server.hlen(key("waiting")) == 5


async def test_a_commit_of_nothing_asks_and_writes_nothing(store: Store, server: redis.Redis) -> None:
    tip = await append(store, FIRST, 1)
    before = server.hgetall(key("head"))
    assert outcomes_of(await store.commit(NAME, tip, [])) == []
    assert isinstance(await store.commit(NAME, FIRST, []), Behind)
    assert server.hgetall(key("head")) == before


async def test_a_settled_prediction_leaves_nothing_behind(store: Store, server: redis.Redis) -> None:
    await store.commit(NAME, FIRST, [], [Hold("e1", b"forecast", 100.0)])
    await append(store, FIRST, 1)
    assert not server.exists(key("waiting"), key("expiry"), key("forget"))


@pytest.mark.parametrize("kept", ["all", "as many"])
async def test_a_snapshot_does_not_read_the_tail(redis_url: str, server: redis.Redis, kept: str) -> None:
    limits = Limits(tail=10**6, tail_bytes=10**9) if kept == "all" else Limits(tail=2_000)
    async with opened(redis_url, limits) as store:
        await store.create(NAME, b"record", FIRST)
        entries = chain(FIRST, *ids_from(1, 2_010), answer=None)
        for start in range(0, 2_000, 1_000):
            await append_all(store, entries[start : start + 1_000])
        await store.snapshot(NAME, entries[1_999].tip, b"state")
        await append_all(store, entries[2_000:])
        server.config_resetstat()
        assert await store.snapshot(NAME, entries[-1].tip, b"state")
        calls = server.info("commandstats")
        found = await store.whole(NAME)
    assert isinstance(found, Whole)
    assert len(found.entries) == (2_010 if kept == "all" else 2_000)
    assert sum(calls.get(f"cmdstat_{command}", {"calls": 0})["calls"] for command in ("xrange", "xrevrange")) < 10


async def test_a_long_journal_is_read_in_pages_while_it_is_trimmed(redis_url: str, server: redis.Redis) -> None:
    async with opened(redis_url, Limits(tail=2_500, tail_bytes=10**9)) as store:
        await store.create(NAME, b"record", FIRST)
        entries = [*chain(FIRST, *ids_from(1, 2_500), answer=None)]
        await append_all(store, entries)
        server.config_resetstat()
        whole = await store.whole(NAME)
        assert isinstance(whole, Whole)
        assert (whole.base, whole.entries) == (FIRST, bare(entries))
        assert server.info("commandstats")["cmdstat_evalsha"]["calls"] > 2

        async def trim() -> None:
            for row in range(40):
                entries.extend(chain(entries[-1].tip, f"later-{row}", answer=None))
                await append_all(store, entries[-1:])
                await store.snapshot(NAME, entries[-1].tip, b"state")

        trimming = asyncio.create_task(trim())
        while not trimming.done():
            found = await store.whole(NAME)
            assert isinstance(found, Whole)
            assert list(found.entries) == bare(entries)[found.base.round : found.head.tip.round]
        await trimming


async def test_a_whole_session_is_read_though_each_page_is_trimmed_before_it(
    redis_url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(redis_url, Limits(tail=2_500, tail_bytes=10**9)) as store:
        await store.create(NAME, b"record", FIRST)
        entries = [*chain(FIRST, *ids_from(1, 2_500), answer=None)]
        await append_all(store, entries)
        read_page = scripts.PAGE.run

        async def trim_first(connections: Connections, *call: Value, is_write: bool = False) -> object:
            entries.extend(chain(entries[-1].tip, *ids_from(len(entries) + 1, len(entries) + 300), answer=None))
            await append_all(store, entries[-300:])
            assert await store.snapshot(NAME, entries[-1].tip, b"state")
            return await read_page(connections, *call, is_write=is_write)

        monkeypatch.setattr(scripts.PAGE, "run", trim_first)
        found = await store.whole(NAME)
    assert isinstance(found, Whole)
    assert (found.base, found.entries) == (FIRST, bare(entries[:2_500]))


async def test_a_session_goes_on_after_a_rewind(store: Store, server: redis.Redis) -> None:
    tip = await append(store, FIRST, 5)
    third = (await read(store, None)).entries[2].tip
    assert await store.rewind(NAME, tip, third) is True
    assert await store.rewind(NAME, tip, third) is False
    assert server.lrange(key("remembered"), 0, -1) == [b"e1", b"e2", b"e3"]
    other = entry(third, "another fourth")
    assert outcomes_of(await store.commit(NAME, third, [other])) == []
    reading = await read(store, tip)
    assert (len(reading.entries), reading.head.tip, reading.is_whole) == (4, other.tip, True)
    assert await store.rewind(NAME, other.tip, FIRST) is True
    assert (await read(store, FIRST)).entries == []
    assert server.exists(key("applied")) == 0


# Lost replies and connections


async def test_an_entry_whose_reply_was_lost_is_appended_once(proxied: Store, proxy: Proxy) -> None:
    tip = (await read(proxied, None)).head.tip
    proxy.lose_reply(b"EVALSHA")
    hold = Hold("p", b"forecast", 9.0)
    assert outcomes_of(await proxied.commit(NAME, tip, [entry(tip, "x")], [hold])) == [None]
    assert proxy.lost == 1
    reading = await read(proxied, None)
    assert [entry.id for entry in reading.entries] == ["e1", "x"]
    assert reading.head.waiting == 1


async def test_a_creation_whose_reply_was_lost_is_done(proxied: Store, proxy: Proxy) -> None:
    proxy.lose_reply(b"EVALSHA")
    await proxied.create("other", b"record", first_tip())
    assert proxy.lost == 1
    with pytest.raises(SessionExists):
        await proxied.create("other", b"record", first_tip())


async def test_a_cut_connection_is_opened_again(proxied: Store, proxy: Proxy) -> None:
    tip = (await read(proxied, None)).head.tip
    for number in range(4):
        proxy.cut()
        assert outcomes_of(await proxied.commit(NAME, tip, [entry(tip, f"x{number}")])) == []
        tip = entry(tip, f"x{number}").tip


async def test_a_late_reply_is_never_taken_for_the_next_one(proxied: Store, proxy: Proxy) -> None:
    tip = (await read(proxied, None)).head.tip
    late = entry(tip, "late")
    proxy.stall()
    with pytest.raises(StoreTimeout):
        await proxied.commit(NAME, tip, [late])
    proxy.flow()
    assert await proxied.count() == 1
    assert outcomes_of(await proxied.commit(NAME, tip, [late])) == []
    assert (await read(proxied, None)).head.tip == late.tip


async def test_every_caller_gets_its_own_reply_whatever_breaks(proxied: Store, proxy: Proxy) -> None:
    """Callers are cancelled at random and connections cut three times, as often as a call is tried again."""
    tip = (await read(proxied, None)).head.tip
    ids = [f"p{number}" for number in range(60)]
    await proxied.commit(NAME, tip, [], [Hold(id, id.encode(), 60.0) for id in ids])
    tip = (await read(proxied, None)).head.tip
    done = 0

    async def find(id: str, turns: int) -> None:
        nonlocal done
        for _ in range(turns):
            assert await proxied.find(NAME, tip, id) == Found(Waiting(id, id.encode()))
            done += 1

    async def disturb() -> None:
        for turn in range(12):
            doomed = [asyncio.ensure_future(find(id, 1000)) for id in ids[:20]]
            await asyncio.sleep(0.02)
            for task in doomed:
                task.cancel()
            if turn % 4 == 3:
                proxy.cut()

    await asyncio.gather(disturb(), *(find(id, 20) for id in ids))
    assert done >= 60 * 20


async def test_few_connections_serve_many_callers_and_are_given_back(redis_url: str, server: redis.Redis) -> None:
    def connections() -> int:
        return sum(client["name"] == "counted" for client in server.client_list())

    async with opened(f"{redis_url}?max_connections=3&client_name=counted") as store:
        tips = {f"s{number}": first_tip() for number in range(200)}
        await asyncio.gather(*(store.create(name, b"", tip) for name, tip in tips.items()))
        calls = [store.commit(name, tip, [entry(tip, "x")]) for name, tip in tips.items()]
        others = [store.list(None, 50), store.ping(), store.count(), *(store.head(name) for name in list(tips)[:97])]
        answers = await asyncio.gather(*calls, *others)
        assert answers[:200] == [Committed([])] * 200
        assert 1 <= connections() <= 3
    await asyncio.to_thread(wait_until, lambda: connections() == 0)


async def test_scripts_that_the_server_forgot_are_sent_again(store: Store, server: redis.Redis) -> None:
    server.script_flush()
    await append(store, FIRST, 2)


async def test_a_store_that_is_not_open_is_unavailable(redis_url: str) -> None:
    store = open_store(redis_url)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await store.open()
        await store.ping()
        await store.close()
    await store.close()


@pytest.mark.parametrize("size", [0, 100, BATCH_BYTES, BATCH_BYTES + 1, 1 << 20])
async def test_a_call_of_any_size_arrives_as_it_is(redis_url: str, server: redis.Redis, size: int) -> None:
    lanes = Lanes(ConnectionPool.from_url(redis_url), server="here")
    await lanes.open()
    data = b"\r\n$7\x00\xff" * size
    assert await lanes.call(("RPUSH", "list", data[:size], "é", 7, 1.5, b""), is_write=True) == 5
    await lanes.close()
    assert server.lrange("list", 0, -1) == [data[:size], "é".encode(), b"7", b"1.5", b""]
