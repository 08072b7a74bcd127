"""The store contract between processes: they race, and they are killed at any instant."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from service.store.base import TAIL_EVENTS, Head, Reading, Store, end_of, open_store
from tests.contract.store_writer import append_all

pytestmark = pytest.mark.anyio

NEVER = 10**9


@pytest.fixture
async def raced(store: Store) -> Store:
    await store.create(Head("raced", "uid", b"", 0.0))
    return store


async def start_writer(url: str, writer: str, *, events: int, snapshot_every: int) -> asyncio.subprocess.Process:
    arguments = ("-m", "tests.contract.store_writer", url, writer, str(events), str(snapshot_every))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    return process


async def read(store: Store, after: int = -1) -> Reading:
    reading = await store.read("raced", "uid", after)
    assert isinstance(reading, Reading)
    return reading


async def test_racing_processes_lose_and_repeat_no_event(raced: Store, store_url: str) -> None:
    each = 150
    writers = [await start_writer(store_url, name, events=each, snapshot_every=NEVER) for name in ("a", "b")]
    assert [await writer.wait() for writer in writers] == [0, 0]
    reading = await read(raced)
    assert [event.round for event in reading.events] == list(range(1, 2 * each + 1))
    assert sorted(event.id or "" for event in reading.events) == sorted(f"{w}-{n}" for w in "ab" for n in range(each))
    assert [event.blob.decode() for event in reading.events] == [f"{e.id} at {e.round}" for e in reading.events]
    assert reading.head.waiting == 0


async def test_racing_tasks_lose_and_repeat_no_event(raced: Store) -> None:
    await asyncio.gather(*(append_all(raced, writer, 30, NEVER) for writer in "abcd"))
    reading = await read(raced)
    assert [event.round for event in reading.events] == list(range(1, 121))
    assert len({event.id for event in reading.events}) == 120


async def test_a_killed_process_leaves_a_consistent_session(raced: Store, store_url: str) -> None:
    chance = random.Random(7)
    for life in range(5):
        writer = await start_writer(store_url, str(life), events=NEVER, snapshot_every=7)
        await asyncio.sleep(chance.uniform(0.02, 0.3))
        writer.kill()
        await writer.wait()
        await check_consistent(store_url)


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    await store.open()
    yield store
    await store.close()


async def check_consistent(url: str) -> None:
    async with opened(url) as store:
        latest = await read(store)
        head = latest.head
        assert latest.snapshot == (str(head.snapshot_round).encode() if head.snapshot_round >= 0 else None)
        assert head.snapshot_bytes == len(latest.snapshot or b"")
        assert end_of(max(head.snapshot_round, 0), latest.events) == head.round
        assert head.journal_rounds == len(latest.events)
        assert head.journal_bytes == sum(len(event.blob) for event in latest.events)
        assert head.waiting <= 5
        tail = await read(store, max(0, head.snapshot_round - TAIL_EVENTS))
        assert tail.snapshot is None
        assert len(tail.events) == head.journal_rounds + min(TAIL_EVENTS, max(head.snapshot_round, 0))
        for event in latest.events:
            assert await store.look_up("raced", "uid", event.id or "") is not None
