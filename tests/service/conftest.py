"""A store of each kind, empty, and the service on it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvicorn
from redis import Redis

from service.app import create_app
from service.client import OklClient
from service.http_protocol import HttpProtocol
from service.settings import Settings
from tests.service.api import Api, serving


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    url: str = request.getfixturevalue("redis_url")
    with Redis.from_url(url) as redis:
        redis.flushall()
    return url


@pytest.fixture
async def api(store_url: str) -> AsyncIterator[Api]:
    async with serving(store_url) as api:
        yield api


@pytest.fixture
async def memory() -> AsyncIterator[Api]:
    """For tests that are not about the store."""
    async with serving("sqlite://") as api:
        yield api


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A service on a real socket, in a thread of this process; its sessions are all the tests' together."""
    app = create_app(Settings(store="sqlite://", log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, http=HttpProtocol, log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with OklClient(address) as client:
            while not client.is_ready():
                time.sleep(0.01)
        yield address
        server.should_exit = True
        thread.join()
