"""The store contract between processes: they race, and they are killed at any instant."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from service.store.base import Applied, Found, Limits, Store, Tip
from service.store.store_checks import follow
from tests.contract.store_calls import RECORD, read
from tests.contract.store_writer import FIRST, NAME, write_all
from tests.contract.stores import Place, on_stores

pytestmark = pytest.mark.anyio

NEVER = 10**9


@pytest.fixture
async def raced(store: Store) -> Store:
    await store.create(NAME, RECORD, FIRST)
    return store


between_processes = on_stores(lambda case: case.is_shared)


async def start_writer(url: str, writer: str, *, rounds: int, snapshot_every: int) -> asyncio.subprocess.Process:
    arguments = ("-m", "tests.contract.store_writer", url, writer, str(rounds), str(snapshot_every))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    return process


async def check_every_round_once(store: Store, writers: str, each: int) -> None:
    reading = await read(store, FIRST, NAME)
    assert [entry.tip.round for entry in reading.entries] == list(range(1, len(writers) * each + 1))
    assert sorted(entry.id for entry in reading.entries) == sorted(f"{w}-{n}" for w in writers for n in range(each))
    assert [entry.blob.decode() for entry in reading.entries] == [f"{e.id} at {e.tip.round}" for e in reading.entries]
    assert (reading.head.waiting, reading.head.remembered) == (0, len(writers) * each)


@between_processes
async def test_racing_processes_lose_and_repeat_no_round(place: Place, raced: Store) -> None:
    each = 100
    writers = [await start_writer(place.url, name, rounds=each, snapshot_every=NEVER) for name in "ab"]
    assert [await writer.wait() for writer in writers] == [0, 0]
    await check_every_round_once(raced, "ab", each)


async def test_racing_tasks_lose_and_repeat_no_round(raced: Store) -> None:
    """There are many more tasks than the store has connections."""
    await asyncio.gather(*(write_all(raced, writer, 6, NEVER) for writer in "abcdefghijklmnopqrstuvwxyz"))
    await check_every_round_once(raced, "abcdefghijklmnopqrstuvwxyz", 6)


async def test_racing_stores_lose_and_repeat_no_round(
    raced: Store, place: Place, opened: Callable[[Store], Awaitable[Store]]
) -> None:
    stores = [raced, await opened(place.make()), await opened(place.make())]
    await asyncio.gather(*(write_all(store, writer, 30, NEVER) for store, writer in zip(stores, "abc", strict=True)))
    await check_every_round_once(raced, "abc", 30)


@between_processes
async def test_a_killed_process_leaves_a_consistent_session(place: Place, raced: Store) -> None:
    """The session is consistent whatever the process was writing, acknowledged or not."""
    chance = random.Random(7)
    for life in range(3):
        writer = await start_writer(place.url, str(life), rounds=NEVER, snapshot_every=7)
        await asyncio.sleep(chance.uniform(0.02, 0.3))
        writer.kill()
        await writer.wait()
        async with fresh(place) as store:
            await check_consistent(store)


@between_processes
async def test_a_process_killed_before_it_heard_the_answer_finds_its_commit(place: Place, raced: Store) -> None:
    """Its commit is stored, and a retry of it by another process adds nothing."""
    writer = await start_writer(place.url, "w", rounds=NEVER, snapshot_every=NEVER)
    while (await raced.head(NAME)).tip.round < 2:  # noqa: ASYNC110 (it happens in another process)
        await asyncio.sleep(0.01)
    writer.kill()
    await writer.wait()
    async with fresh(place) as store:
        before = await read(store, FIRST, NAME)
        last = before.entries[-1]
        assert getattr(await store.commit(NAME, before.entries[-2].tip, [last]), "holds", None) == []
        found = await store.find(NAME, last.tip, last.id)
        assert found == Found(Applied(last.id, f"answer to {last.id}".encode()))
        assert await read(store, FIRST, NAME) == before


@contextlib.asynccontextmanager
async def fresh(place: Place) -> AsyncIterator[Store]:
    store = place.make()
    await store.open()
    yield store
    await store.close()


async def check_consistent(store: Store) -> None:
    latest = await read(store, None, NAME)
    head, snapshot_tip = latest.head, latest.head.snapshot_tip
    assert latest.snapshot == (None if snapshot_tip is None else str(snapshot_tip.round).encode())
    assert latest.start == (snapshot_tip or FIRST)
    assert head.snapshot_bytes == len(latest.snapshot or b"")
    assert follow(latest.start, latest.entries) == head.tip
    assert head.journal_rounds == len(latest.entries)
    assert head.journal_bytes == sum(len(entry.blob) for entry in latest.entries)
    assert head.waiting <= 5
    for entry in latest.entries:
        assert isinstance((await store.find(NAME, head.tip, entry.id)), Found)
    await check_tail(store, latest.start, head.tail_bytes)


async def check_tail(store: Store, snapshot_tip: Tip, tail_bytes: int) -> None:
    """Check that all entries before the snapshot are there, up to the limit."""
    whole = await read(store, FIRST, NAME)
    if whole.is_whole:
        assert snapshot_tip.round > Limits().tail
    else:
        assert sum(len(e.blob) for e in whole.entries if e.tip.round <= snapshot_tip.round) == tail_bytes
