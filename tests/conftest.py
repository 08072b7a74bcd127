"""Fixtures for all tests: private Redis servers, and a fresh store of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.store.base import Store, open_store
from tests.contract.stores import STORES
from tests.redis_server import flush, free_port, own_all_slots, redis_server

REDIS_FIXTURES = ("redis_url", "redis_cluster_url")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("redis")
    with redis_server(folder, "--appendonly", "yes", "--appendfsync", "everysec") as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def redis_cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node that owns every slot."""
    folder = tmp_path_factory.mktemp("redis-cluster")
    bus = ("--cluster-port", str(free_port()))
    with redis_server(folder, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", *bus) as port:
        own_all_slots(port)
        yield f"redis+cluster://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def _flushed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for fixture in REDIS_FIXTURES:
        if fixture in request.fixturenames:
            flush(urlsplit(request.getfixturevalue(fixture)).port or 6379)


@pytest.fixture(params=[pytest.param(name, marks=case.marks) for name, case in STORES.items()])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    fixture = STORES[request.param].url_fixture
    return request.getfixturevalue(fixture) if fixture else f"sqlite:///{tmp_path / 'sessions.sqlite3'}"


@pytest.fixture
async def store(store_url: str, anyio_backend: str) -> AsyncIterator[Store]:
    store = open_store(store_url)
    await store.open()
    yield store
    await store.close()
