"""What a store answers when its server or its file fails: the contract's errors, in a bounded time, and no wrong state."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import service.store.redis
from service.errors import ConfigurationError, StoreCorrupt, StoreError, StoreTimeout, StoreUnavailable
from service.store.base import AlreadyWaiting, Appended, Event, Gone, Head, Held, Reading, Store, Waiting, open_store
from tests.redis_server import connect, free_port, redis_server
from tests.tcp_proxy import Proxy, proxy_to

pytestmark = pytest.mark.anyio

HEAD = Head("s", "uid", b"", 0.0)
BOUND_S = 8.0


def port_of(url: str) -> int:
    return urlsplit(url).port or 6379


async def append(store: Store, round: int, id: str | None = None) -> object:
    return await store.append("s", "uid", round - 1, [Event(round, b"event", id, b"answer")], now=1.0)


# Redis


@pytest.fixture
async def proxy(redis_url: str, anyio_backend: str) -> AsyncIterator[Proxy]:
    async with proxy_to(port_of(redis_url)) as proxy:
        yield proxy


@pytest.fixture
async def proxied(proxy: Proxy) -> AsyncIterator[Store]:
    store = open_store(f"redis://127.0.0.1:{proxy.port}/0")
    await store.open()
    await store.create(HEAD)
    # Both scripts are known to the server from here on, so that one command is one request.
    await append(store, 1)
    await store.hold("s", "uid", 1, Waiting("first", b"", 9.0), now=1.0, limit=9)
    yield store
    await store.close()


@pytest.mark.redis
async def test_an_append_whose_reply_was_lost_is_answered_as_done(proxied: Store, proxy: Proxy) -> None:
    proxy.lose_reply(b"EVALSHA")
    assert await append(proxied, 2, "p") == Appended(replayed=True)
    assert proxy.lost == 1
    reading = await proxied.read("s")
    assert isinstance(reading, Reading)
    assert [event.round for event in reading.events] == [1, 2]
    assert await append(proxied, 3) == Appended()


@pytest.mark.redis
async def test_a_hold_whose_reply_was_lost_finds_itself(proxied: Store, proxy: Proxy) -> None:
    prediction = Waiting("p", b"forecast", 100.0)
    proxy.lose_reply(b"EVALSHA")
    assert await proxied.hold("s", "uid", 1, prediction, now=1.0, limit=9) == AlreadyWaiting(prediction)
    assert proxy.lost == 1


@pytest.mark.redis
async def test_a_creation_whose_reply_was_lost_is_done(proxied: Store, proxy: Proxy) -> None:
    proxy.lose_reply(b"EVALSHA")
    await proxied.create(Head("other", "uid-2", b"", 0.0))
    assert proxy.lost == 1
    assert await proxied.count() == 2


@pytest.mark.redis
async def test_a_cut_connection_is_opened_again(proxied: Store, proxy: Proxy) -> None:
    for round in range(2, 6):
        proxy.cut()
        assert await append(proxied, round) == Appended()


@pytest.mark.redis
async def test_a_late_reply_is_never_taken_for_the_next_one(
    proxied: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.store.redis, "DEADLINE_S", 0.2)
    proxy.stall()
    with pytest.raises(StoreTimeout):
        await append(proxied, 2, "p")
    proxy.flow()
    assert await append(proxied, 2, "p") == Appended(replayed=True)
    assert await proxied.count() == 1
    assert await proxied.hold("s", "uid", 2, Waiting("q", b"", 9.0), now=1.0, limit=9) == Held()


@pytest.mark.redis
async def test_scripts_that_the_server_forgot_are_sent_again(store: Store, store_url: str) -> None:
    await store.create(HEAD)
    if not store_url.startswith("sqlite"):
        with connect(port_of(store_url)) as client:
            client.script_flush()
    assert await append(store, 1) == Appended()


@pytest.mark.redis
async def test_many_first_calls_at_once(store_url: str) -> None:
    store = open_store(store_url)
    await store.open()
    await asyncio.gather(*(store.create(Head(f"s{number}", "uid", b"", 0.0)) for number in range(50)))
    assert await store.count() == 50
    await store.close()


@pytest.mark.redis
async def test_a_listing_heals_the_index(redis_url: str) -> None:
    store = open_store(redis_url)
    await store.open()
    for name in "abc":
        await store.create(Head(name, "uid", b"", 0.0))
    with connect(port_of(redis_url)) as client:
        client.delete("okl:{b}:head")
    assert [head.name for head in (await store.list(None, 10)).heads] == ["a", "c"]
    assert await store.count() == 2
    await store.close()


@pytest.mark.redis
async def test_a_settled_prediction_leaves_nothing_behind(redis_url: str) -> None:
    store = open_store(redis_url)
    await store.open()
    await store.create(HEAD)
    await store.hold("s", "uid", 0, Waiting("p", b"forecast", 100.0), now=1.0, limit=9)
    await append(store, 1, "p")
    with connect(port_of(redis_url)) as client:
        assert not client.exists("okl:{s}:waiting", "okl:{s}:expiry", "okl:{s}:forget")
    await store.close()


@pytest.mark.redis
async def test_foreign_data_under_a_key_is_corrupt(redis_url: str) -> None:
    store = open_store(redis_url)
    await store.open()
    await store.create(HEAD)
    with connect(port_of(redis_url)) as client:
        client.set("okl:{s}:journal", b"not a stream")
        client.hset("okl:{t}:head", "uid", "uid")
    with pytest.raises(StoreCorrupt):
        await append(store, 1)
    with pytest.raises(StoreCorrupt):
        await store.head("t")
    await store.close()


@pytest.mark.redis
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_a_server_that_is_not_there_is_unavailable_in_a_bounded_time(scheme: str) -> None:
    store = open_store(f"{scheme}://127.0.0.1:{free_port()}/{'main' if scheme == 'redis+sentinel' else ''}")
    start = time.monotonic()
    with pytest.raises(StoreUnavailable) as raised:
        await store.open()
    assert time.monotonic() - start < BOUND_S
    assert raised.value.__cause__ is not None
    await store.close()


@pytest.mark.redis
async def test_a_server_that_went_away_is_unavailable_in_a_bounded_time(tmp_path: Path) -> None:
    with redis_server(tmp_path) as port:
        store = open_store(f"redis://127.0.0.1:{port}")
        await store.open()
        await store.create(HEAD)
    start = time.monotonic()
    for call in (append(store, 1), store.head("s"), store.ping()):
        with pytest.raises(StoreUnavailable):
            await call
    assert time.monotonic() - start < BOUND_S
    await store.close()


@pytest.mark.redis
@pytest.mark.parametrize("seen_s", [0.0, 0.1])
async def test_a_server_that_is_back_serves_however_many_connections_it_broke(tmp_path: Path, seen_s: float) -> None:
    with redis_server(tmp_path) as port:
        store = open_store(f"redis://127.0.0.1:{port}")
        await store.open()
        await store.create(HEAD)
        await asyncio.gather(*(store.read("s") for _ in range(30)))
    # Without a moment to see them break, the connections look whole.
    await asyncio.sleep(seen_s)
    with redis_server(tmp_path, port=port):
        for _ in range(5):
            assert await store.read("s") == Gone()
        await store.create(HEAD)
        assert await append(store, 1) == Appended()
    await store.close()


@pytest.mark.redis
async def test_the_master_is_found_through_sentinel(redis_url: str, tmp_path: Path) -> None:
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(f"sentinel monitor main 127.0.0.1 {port_of(redis_url)} 1\n")
    with redis_server(tmp_path, str(configuration), "--sentinel") as port:
        store = open_store(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/main")
        await store.open()
        await store.create(HEAD)
        assert await append(store, 1) == Appended()
        await store.close()


@pytest.mark.redis
@pytest.mark.parametrize("url", ["redis+sentinel://127.0.0.1:1", "redis://127.0.0.1:port", "unknown://"])
async def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_store(url)


# SQLite


async def test_a_file_locked_for_too_long_is_a_timeout(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite3"
    store = open_store(f"sqlite:///{path}?timeout=0.2")
    await store.open()
    await store.create(HEAD)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    calls = [asyncio.ensure_future(append(store, round)) for round in (1, 2, 3)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreTimeout] * 3
    assert isinstance(await store.read("s"), Reading)
    other.execute("ROLLBACK")
    other.close()
    assert await append(store, 1) == Appended()
    await store.close()


@pytest.mark.parametrize(
    "content", [b"this is not a database, only a text " * 100, b"SQLite format 3\x00" + bytes(4096)]
)
async def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sessions.sqlite3"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt) as raised:
        await open_store(f"sqlite:///{path}").open()
    assert isinstance(raised.value.__cause__, sqlite3.Error)


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite3"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreCorrupt, match="schema version 99"):
        await open_store(f"sqlite:///{path}").open()


async def test_a_damaged_journal_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite3"
    store = open_store(f"sqlite:///{path}")
    await store.open()
    await store.create(HEAD)
    for round in range(1, 4):
        await append(store, round)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM journal WHERE round = 2")
    connection.close()
    with pytest.raises(StoreCorrupt, match="from round 0 to 3"):
        await store.read("s")
    await store.close()


async def test_a_path_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "sessions.sqlite3"):
        with pytest.raises(StoreUnavailable):
            await open_store(f"sqlite:///{path}").open()


async def test_a_store_that_is_closed_or_not_opened_is_unavailable() -> None:
    store = open_store("sqlite://")
    with pytest.raises(StoreUnavailable):
        await store.ping()
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.count()


async def test_one_failing_call_does_not_take_others_with_it(tmp_path: Path) -> None:
    store = open_store("sqlite://")
    await store.open()
    unbindable = Head("bad", "uid", b"", 0.0, 0)
    object.__setattr__(unbindable, "meta", object())
    good = [store.create(Head(f"s{number}", "uid", b"", 0.0)) for number in range(5)]
    answers = await asyncio.gather(*good[:3], store.create(unbindable), *good[3:], return_exceptions=True)
    assert [answer for answer in answers if answer is not None] == [answers[3]]
    assert isinstance(answers[3], StoreError)
    assert await store.count() == 5
    await store.close()


async def test_a_cancelled_call_leaves_the_store_usable() -> None:
    store = open_store("sqlite://")
    await store.open()
    call = asyncio.ensure_future(store.create(HEAD))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await store.ping()
    await store.close()


@pytest.mark.parametrize(
    "url", ["sqlite://host/path", "sqlite:///x?synchronous=maybe", "sqlite:///x?timeout=-1", "sqlite:///x?a=b"]
)
async def test_a_sqlite_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_store(url)


@pytest.mark.parametrize("synchronous", ["off", "full"])
async def test_the_folder_is_made_and_every_durability_works(tmp_path: Path, synchronous: str) -> None:
    store = open_store(f"sqlite:///{tmp_path}/a%20folder/sessions.sqlite3?synchronous={synchronous}")
    await store.open()
    await store.create(HEAD)
    assert await append(store, 1) == Appended()
    await store.close()
    assert (tmp_path / "a folder" / "sessions.sqlite3").exists()
