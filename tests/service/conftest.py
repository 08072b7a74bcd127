"""A store of each kind, empty, and the service on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis import Redis

from tests.service.api import Api, serving


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
