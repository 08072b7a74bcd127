"""Fixtures for all tests: private Redis servers, and a fresh store of each kind."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from okl_core.contract.learner import registered
from okl_core.kernels.kernels import KERNELS
from okl_core.losses import LOSSES
from service.logs import LOGGERS
from service.store.base import Store
from tests.budget import TIMES
from tests.contract.stores import STORES, ManualClock, Place, ServerClock, store_names
from tests.redis_server import flush, free_port, own_all_slots, redis_server
from tests.selection import is_left_out, leave_few, mark_slow
from tests.warm import warm

collect_ignore = ["warm_imports.py"]  # importing it, as for its doctests, sets the variables of OpenBLAS

# Machine speed and load vary, so example deadlines are meaningless.
settings.register_profile(
    "okl", settings.default, max_examples=12 * TIMES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("okl")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return is_left_out(collection_path, config) or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three workers for two cores: tests wait a quarter of their time. Four were measured to be no faster than three."""
    return (3 * len(os.sched_getaffinity(0)) + 1) // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the collected tests from garbage collection: they live to the end, and scanning them takes seconds."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_few(config, items)
    mark_slow(items)


REDIS_FIXTURES = ("redis_url", "redis_cluster_url")
OWN_LOGGERS = [logging.getLogger(name) for name in (*LOGGERS, "okl.audit")]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _tidied(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restore the loggers and empty the Redis servers after each test.

    A command's log stream is closed by then, but service threads still log.
    """
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in OWN_LOGGERS]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        if logger.level != level:  # setting it empties the caches of all loggers
            logger.setLevel(level)
    for fixture in REDIS_FIXTURES:
        if fixture in request.fixturenames:
            flush(urlsplit(request.getfixturevalue(fixture)).port or 6379)


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    """Tests of workers are about what they do after their start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.processes.Popen", warm)
        yield


@pytest.fixture
def own_registry() -> Iterator[None]:
    """Remove the learners, kernels and losses that a test registers."""
    known = (LOSSES, dict(LOSSES)), (KERNELS, dict(KERNELS))
    with registered():
        yield
    for registry, before in known:
        for name in registry.keys() - before.keys():
            del registry[name]


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


@pytest.fixture(params=store_names())
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The empty place where a store of each kind keeps its sessions."""
    case = STORES[request.param]
    url = (
        request.getfixturevalue(case.url_fixture) if case.url_fixture else f"sqlite:///{tmp_path / 'sessions.sqlite3'}"
    )
    return Place(case, url, ManualClock() if case.has_manual_clock else ServerClock())


@pytest.fixture
async def opened(anyio_backend: str) -> AsyncIterator[Callable[[Store], Awaitable[Store]]]:
    """Open a store that is closed after the test."""
    async with AsyncExitStack() as stack:

        async def open(store: Store) -> Store:
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open


@pytest.fixture
async def store(place: Place, opened: Callable[[Store], Awaitable[Store]]) -> Store:
    """An empty store of each kind."""
    return await opened(place.make())
