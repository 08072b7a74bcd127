"""A store of each kind, empty, and the service on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from okl.client import Client
from okl.errors import SessionNotFound
from service.api.dependencies import Worker
from service.store.base import Store
from service.store.opening import open_store
from service.store.sqlite import SqliteStore
from tests.oracles.model_store import ModelStore
from tests.service.api import Api, serving
from tests.service.definitions import LABELS, POMDR
from tests.service.listening import listening
from tests.service.worker import Clock, Loop, Watched, working

# Schemathesis imports it, in a process of its own; here its import would take a second.
collect_ignore = ["schemathesis_hooks.py"]


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": Loop}


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    return request.getfixturevalue("redis_url")


@pytest.fixture
async def stores(tmp_path: Path, redis_url: str) -> AsyncIterator[tuple[Store, Store]]:
    """SQLite and Redis."""
    found = open_store(f"sqlite:///{tmp_path / 'moves.sqlite3'}"), open_store(redis_url)
    for store in found:
        await store.open()
    yield found
    for store in found:
        await store.close()


@pytest.fixture
async def api(store_url: str) -> AsyncIterator[Api]:
    async with serving(store_url) as api:
        yield api


@pytest.fixture
async def memory() -> AsyncIterator[Api]:
    """For tests that are not about the store."""
    async with serving("sqlite://") as api:
        yield api


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def clocked(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    """A store whose clock the test moves on."""
    store = SqliteStore(str(tmp_path / "clocked.sqlite3"), clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def watched(clock: Clock) -> Watched:
    """A model store whose calls are noted, and may be held up or fail."""
    return Watched(ModelStore(clock=clock))


@pytest.fixture
async def worker(watched: Watched) -> AsyncIterator[Worker]:
    async with working(watched.as_store) as worker:
        yield worker


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A service on a real socket, in a thread of this process; its sessions are all the tests' together."""
    with listening("sqlite://") as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """Of that service, which has no session before the test and none after it."""
    with Client(url) as client:
        yield client
        for template in client.templates():
            client.delete_template(template["name"])
        for session in client.sessions():
            with suppress(SessionNotFound):  # challengers go with their champion
                client.delete(session["name"])


@pytest.fixture
def session(client: Client) -> str:
    client.create("s", POMDR, labels=LABELS)
    return "s"
