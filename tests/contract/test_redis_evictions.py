"""What a Redis that evicts keys, or loses them, leaves of a session: nothing counts or is trimmed that should not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import ANY

import pytest
import redis

from okl.errors import StoreCorrupt
from service.store.base import (
    Applied,
    Committed,
    Found,
    Full,
    Gone,
    Head,
    Hold,
    Limits,
    Store,
    Waiting,
    WaitingPage,
)
from service.store.moving import LUGGAGE_ITEMS, Luggage, Whole
from tests.contract.redis_sessions import append, first_tip, key, opened
from tests.contract.store_calls import NAME, bare, chain, entry, ids_from, read
from tests.contract.store_calls import append as append_all

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

FIRST = first_tip()


@pytest.fixture
async def store(redis_url: str, anyio_backend: str) -> AsyncIterator[Store]:
    async with opened(redis_url) as store:
        await store.create(NAME, b"record", FIRST)
        yield store


async def test_what_an_evicted_head_left_is_cleared(store: Store, server: redis.Redis) -> None:
    tip = await append(store, FIRST, 3)
    await store.commit(NAME, tip, [], [Hold("p", b"forecast", 9.0)])
    server.delete(key("head"))
    assert await store.read(NAME) == Gone()
    assert await store.commit(NAME, tip, [entry(tip, "x")]) == Gone()
    again = first_tip()
    await store.create(NAME, b"again", again)
    reading = await read(store, tip)
    assert (reading.start, reading.entries, reading.head.waiting, reading.is_whole) == (again, [], 0, True)
    assert await store.find(NAME, again, "p") == Found(None)


@pytest.mark.parametrize("evicted", ["expiry", "forget", "waiting"])
async def test_counts_are_never_negative_after_an_eviction(store: Store, server: redis.Redis, evicted: str) -> None:
    holds = [Hold(f"p{i}", b"blob", wait_s) for i, wait_s in enumerate((0.01, 60.0, 60.0))]
    assert isinstance(await store.commit(NAME, FIRST, [], holds), Committed)
    tip = FIRST
    for id in ("another", "p0", "p1", "p2"):
        settled = entry(tip, id)
        answer = await store.commit(NAME, tip, [settled])
        assert isinstance(answer, Committed)
        assert min(answer.waiting, answer.never_came) >= 0
        tip = settled.tip
        if id == "another":  # which expires the first prediction
            server.delete(key(evicted))
    head = await store.head(NAME)
    assert isinstance(head, Head)
    assert min(head.waiting, head.waiting_bytes, head.never_came) >= 0


async def test_evicted_predictions_take_up_no_room(redis_url: str, server: redis.Redis) -> None:
    async with opened(redis_url, Limits(waiting=2, waiting_bytes=9)) as store:
        await store.create(NAME, b"record", FIRST)
        for round in range(2):
            holds = [Hold(f"p{round}-{i}", b"blob", 60.0) for i in range(3)]
            answer = await store.commit(NAME, FIRST, [], holds)
            assert answer == Committed([None, None, Full()], 2, 0)
            server.delete(key("waiting"))


async def test_a_prediction_kept_after_an_eviction_waits_as_long_as_it_was_told(
    store: Store, server: redis.Redis
) -> None:
    """Although an expired one with the same id, whose time to be forgotten is left, was evicted."""
    await store.commit(NAME, FIRST, [], [Hold("p", b"first", 0.2), Hold("q", b"another", 0.2)])
    assert await store.cancel(NAME, "p") is True
    assert await store.cancel(NAME, "q") is True
    server.delete(key("waiting"))
    late = [Hold("p", b"a longer blob", 60.0)]
    assert await store.commit(NAME, FIRST, [], late) == Committed([None], 1, 2)
    await asyncio.sleep(0.3)
    await append(store, FIRST, 1)
    assert await store.find(NAME, (await read(store)).head.tip, "p") == Found(Waiting("p", b"a longer blob"))


@pytest.mark.parametrize("evicted", ["applied", "remembered"])
async def test_remembered_bytes_are_never_negative_after_an_eviction(
    redis_url: str, server: redis.Redis, evicted: str
) -> None:
    async with opened(redis_url, Limits(remembered_bytes=20)) as store:
        await store.create(NAME, b"record", FIRST)
        tip = FIRST
        for number, progress in enumerate((Applied("p", bytes(19)), Applied("q", bytes(21)), Applied("p", b""))):
            last = entry(tip, f"e{number}", answer=None)
            assert isinstance(await store.commit(NAME, tip, [last], [], progress), Committed)
            tip = last.tip
            if number == 0:
                server.delete(key(evicted))
        head = (await read(store)).head
    assert (head.remembered, head.remembered_bytes) == (1, 0)


async def test_rounds_taken_back_after_an_eviction_are_learned_again(store: Store, server: redis.Redis) -> None:
    """Although the order of the remembered ids is lost."""
    before = await append(store, FIRST, 1)
    tip = await append(store, before, 2)
    server.delete(key("remembered"))
    assert await store.rewind(NAME, tip, before) is True
    assert (await append(store, before, 2)).round == 3


async def all_luggage(store: Store) -> Luggage:
    """All pages as one."""
    pages: list[Luggage] = []
    while not pages or pages[-1].cursor is not None:
        page = await store.luggage(NAME, pages[-1].cursor if pages else None)
        assert isinstance(page, Luggage)
        pages.append(page)
    held = [item for page in pages for item in page.held]
    return Luggage(held, [item for page in pages for item in page.remembered], None)


async def test_predictions_evicted_without_their_times_are_left_out(store: Store, server: redis.Redis) -> None:
    await append(store, FIRST, 3)
    tip = (await read(store)).head.tip
    early = [Hold(f"evicted {i}", b"blob", 60.0) for i in range(5)]
    assert isinstance(await store.commit(NAME, tip, [], early), Committed)
    server.delete(key("waiting"), key("applied"))
    late = [Hold(f"kept {i}", b"blob", 70.0) for i in range(3)]
    assert isinstance(await store.commit(NAME, tip, [], late), Committed)
    page = await store.waiting(NAME, None, 2)
    assert isinstance(page, WaitingPage)
    assert [item.id for item in page.items] == ["kept 0", "kept 1"]
    rest = await store.waiting(NAME, page.cursor, 2)
    assert isinstance(rest, WaitingPage)
    assert ([item.id for item in rest.items], rest.cursor) == (["kept 2"], None)
    moved = await all_luggage(store)
    assert ([item.id for item in moved.held], moved.remembered) == (["kept 0", "kept 1", "kept 2"], [])
    server.delete(key("waiting"))
    assert await store.waiting(NAME, None, 2) == WaitingPage([], None, ANY)


async def test_a_page_of_luggage_continues_after_evicted_predictions(store: Store, server: redis.Redis) -> None:
    holds = [Hold(f"{i:04}", b"blob", 60.0) for i in range(LUGGAGE_ITEMS + 10)]
    assert isinstance(await store.commit(NAME, FIRST, [], holds), Committed)
    server.hdel(key("waiting"), *(hold.id for hold in holds[5:15]))
    moved = await all_luggage(store)
    assert [item.id for item in moved.held] == [hold.id for hold in (*holds[:5], *holds[15:])]


@pytest.mark.parametrize("lost", [5, 9])
async def test_a_snapshot_after_the_journal_was_evicted_trims_nothing_behind_it(
    redis_url: str, server: redis.Redis, lost: int
) -> None:
    """The bytes that are noted of the tail are then those of entries which are gone."""
    async with opened(redis_url, Limits(tail_bytes=50)) as store:
        await store.create(NAME, b"record", FIRST)
        entries = chain(FIRST, *ids_from(1, lost + 3), blob=b"ten bytes.", answer=None)
        await append_all(store, entries[:lost])
        server.delete(key("journal"))
        await append_all(store, entries[lost:])
        assert await store.snapshot(NAME, entries[lost].tip, b"state")
        reading = await read(store, None)
    assert reading.entries == bare(entries[lost + 1 :])
    assert reading.head.journal_bytes == 20
    assert reading.head.tail_bytes <= 10


async def test_a_whole_session_does_not_count_what_was_evicted(redis_url: str, server: redis.Redis) -> None:
    """An import compares the bytes with the journal's, and would refuse it."""
    async with opened(redis_url, Limits(tail=2)) as store:
        await store.create(NAME, b"record", FIRST)
        entries = chain(FIRST, *ids_from(1, 6), blob=b"ten bytes.", answer=None)
        await append_all(store, entries[:3])
        assert await store.snapshot(NAME, entries[2].tip, b"state")
        server.delete(key("journal"))
        await append_all(store, entries[3:])
        assert await store.snapshot(NAME, entries[5].tip, b"state")
        whole = await store.whole(NAME)
    assert isinstance(whole, Whole)
    assert (whole.base, whole.entries) == (entries[3].tip, bare(entries[4:]))
    assert (whole.head.tail_bytes, whole.head.journal_bytes) == (20, 0)


@pytest.mark.parametrize("later", [0, 1, 3])
async def test_a_journal_evicted_behind_the_snapshot_is_not_missed(
    store: Store, server: redis.Redis, later: int
) -> None:
    """Of the entries since, the session has all; a copy from before loads it anew."""
    entries = chain(FIRST, *ids_from(1, 4 + later), blob=b"ten bytes.", answer=None)
    await append_all(store, entries[:4])
    assert await store.snapshot(NAME, entries[3].tip, b"state")
    server.delete(key("journal"))
    if later:
        await append_all(store, entries[4:])
    whole = await store.whole(NAME)
    assert isinstance(whole, Whole)
    assert (whole.base, whole.entries, whole.head.tail_bytes) == (entries[3].tip, bare(entries[4:]), 0)
    for behind in (FIRST, entries[1].tip):
        reading = await read(store, behind)
        assert (reading.start, reading.entries, reading.is_whole) == (entries[3].tip, bare(entries[4:]), True)
    newest = bare(entries[5:])
    assert await store.last(NAME, 9) == newest
    assert await store.last(NAME, 1) == newest[-1:]


async def test_a_journal_evicted_and_then_covered_by_a_snapshot(store: Store, server: redis.Redis) -> None:
    entries = chain(FIRST, *ids_from(1, 6), blob=b"ten bytes.", answer=None)
    await append_all(store, entries[:2])
    server.delete(key("journal"))
    await append_all(store, entries[2:])
    assert await store.snapshot(NAME, entries[4].tip, b"state")
    whole = await store.whole(NAME)
    assert isinstance(whole, Whole)
    assert (whole.base, whole.entries, whole.head.tail_bytes) == (entries[2].tip, bare(entries[3:]), 20)
    assert await store.last(NAME, 9) == bare(entries[3:])


async def test_an_entry_evicted_that_no_snapshot_covers_is_told(store: Store, server: redis.Redis) -> None:
    entries = chain(FIRST, *ids_from(1, 3))
    await append_all(store, entries[:2])
    server.delete(key("journal"))
    await append_all(store, entries[2:])
    for asked in (store.whole(NAME), store.read(NAME)):
        with pytest.raises(StoreCorrupt):
            await asked


async def test_an_evicted_head_has_no_checkpoints(store: Store, server: redis.Redis) -> None:
    assert await store.keep(NAME, FIRST.digest, "before", FIRST, b"state")
    server.delete(key("head"))
    assert await store.kept(NAME) == Gone()
