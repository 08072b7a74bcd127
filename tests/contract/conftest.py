"""A session in each store of the contract suite, and a client of the Redis server beside the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import redis

from service.store.base import Limits, Store
from tests.contract.redis_sessions import port_of
from tests.contract.store_calls import FIRST, NAME, RECORD, SUMMARY
from tests.contract.stores import Make, Place
from tests.redis_server import connect


@pytest.fixture
async def session(store: Store) -> Store:
    await store.create(NAME, RECORD, FIRST, summary=SUMMARY)
    return store


@pytest.fixture
async def limited(place: Place, opened: Callable[[Store], Awaitable[Store]]) -> Make:
    """Make a store with other limits that contains the session."""

    async def make(limits: Limits) -> Store:
        store = await opened(place.make(limits))
        await store.create(NAME, RECORD, FIRST, summary=SUMMARY)
        return store

    return make


@pytest.fixture
def server(redis_url: str) -> redis.Redis:
    return connect(port_of(redis_url))
