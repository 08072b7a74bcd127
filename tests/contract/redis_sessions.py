"""A session in the hands of the tests of the Redis store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from service.store.base import DIGEST_BYTES, Committed, Limits, Store, Tip, open_store
from tests.contract.store_calls import NAME, entry


def first_tip() -> Tip:
    return Tip(0, os.urandom(DIGEST_BYTES))


async def append(store: Store, tip: Tip, count: int) -> Tip:
    """Commits so many entries one by one, with ids e1, e2 and so on by their rounds. The tip after them."""
    for _ in range(count):
        next = entry(tip, f"e{tip.round + 1}")
        assert await store.commit(NAME, tip, [next]) == Committed([])
        tip = next.tip
    return tip


@contextlib.asynccontextmanager
async def opened(url: str, limits: Limits | None = None) -> AsyncIterator[Store]:
    store = open_store(url, limits)
    try:
        await store.open()
        yield store
    finally:
        await store.close()
