"""Session helpers for the tests of the Redis store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

from okl.errors import StoreError
from service.store.base import DIGEST_BYTES, Hold, Limits, Store, Tip
from service.store.opening import open_store
from tests.contract.store_calls import NAME, entry, outcomes_of

T = TypeVar("T")


def port_of(url: str) -> int:
    return urlsplit(url).port or 6379


def key(name: str) -> str:
    """The key of a part of the session."""
    return f"okl:{{{NAME}}}:{name}"


def first_tip() -> Tip:
    return Tip(0, os.urandom(DIGEST_BYTES))


async def append(store: Store, tip: Tip, count: int) -> Tip:
    """Commit `count` entries one by one, with ids e1, e2, ... by round. Returns the tip after them."""
    for _ in range(count):
        next = entry(tip, f"e{tip.round + 1}")
        assert outcomes_of(await store.commit(NAME, tip, [next])) == []
        tip = next.tip
    return tip


@contextlib.asynccontextmanager
async def opened(url: str, limits: Limits | None = None) -> AsyncIterator[Store]:
    """An open store. While a fail-over is under way it is opened again: Sentinel may name the old master once more."""

    async def open() -> Store:
        store = open_store(url, limits)
        try:
            await store.open()
        except StoreError:
            await store.close()
            raise
        return store

    store = await eventually(open)
    try:
        yield store
    finally:
        await store.close()


async def eventually(call: Callable[[], Awaitable[T]], timeout_s: float = 20.0) -> T:
    """Retry the call until it succeeds; return its answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await call()
        except StoreError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


class Storm:
    """300 calls at once on 200 sessions: each session's own commits, and readers, lists and pings."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tips = {f"s{number}": first_tip() for number in range(200)}
        self.slowest_s = 0.0

    async def create(self) -> None:
        await asyncio.gather(*(self.store.create(name, b"", tip) for name, tip in self.tips.items()))

    async def blow(self, mark: str) -> None:
        commits = [self._timed(self._commit(name, mark)) for name in self.tips]
        reads = [self._timed(self.store.find(name, tip, "p")) for name, tip in list(self.tips.items())[:80]]
        others = [self._timed(call()) for call in (self.store.ping, self.store.count) for _ in range(8)]
        lists = [self._timed(self.store.list(None, 20)) for _ in range(4)]
        await asyncio.gather(*commits, *reads, *others, *lists)

    async def _commit(self, name: str, mark: str) -> None:
        tip = self.tips[name]
        new = entry(tip, mark)
        assert outcomes_of(await self.store.commit(name, tip, [new], [Hold(f"p{mark}", b"", 60.0)])) == [None]
        self.tips[name] = new.tip

    async def _timed(self, call: Awaitable[object]) -> None:
        start = time.monotonic()
        await call
        self.slowest_s = max(self.slowest_s, time.monotonic() - start)
