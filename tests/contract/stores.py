"""The stores that the contract suite runs on. A new store is one row here."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol, final
from urllib.parse import unquote, urlsplit

import pytest

from service.store.base import Limits, Store
from service.store.opening import open_store
from service.store.sqlite import SqliteStore
from tests.oracles.model_store import ModelStore
from tests.redis_server import connect

Make = Callable[[Limits], Awaitable[Store]]
"""Makes a store with these limits."""


class Clock(Protocol):
    """The clock that a store uses, as the tests see it."""

    def __call__(self) -> float: ...

    async def pass_time(self, seconds: float) -> None: ...

    def is_now(self, time: float | None) -> bool:
        """Whether a time recorded by the store may be the present."""
        ...


@final
class ManualClock:
    """A clock that stands still until a test advances it. Sums and differences of its times are exact."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def is_now(self, time: float | None) -> bool:
        return time == self.now


@final
class ServerClock:
    """The clock of a server, which tests cannot move: letting time pass means waiting."""

    def __call__(self) -> float:
        return time.time()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def is_now(self, time: float | None) -> bool:
        return time is not None and math.isclose(time, self(), rel_tol=0.0, abs_tol=60.0)


@dataclass(slots=True)
class Place:
    """The place where the stores of one test keep their sessions. `make` opens nothing and may be called repeatedly."""

    case: StoreCase
    url: str
    clock: Clock
    model: ModelStore = field(default_factory=ModelStore)

    def make(self, limits: Limits | None = None) -> Store:
        return self.case.make(self, limits or Limits())

    def residue(self) -> Collection[object]:
        """Everything stored there."""
        return self.case.residue(self)

    def back_up(self) -> Callable[[], None]:
        """Copy everything stored there. The answer puts the copy back; no store may be open then."""
        return self.case.back_up(self)


@dataclass(frozen=True, slots=True)
class StoreCase:
    """A store under test. `url_fixture` starts its server and returns its url (None: no server). `is_shared`: several
    processes may use it at once. `has_manual_clock`: a test can make a year pass. `is_cluster`: it treats time as another
    store does, so tests of time may skip it."""

    make: Callable[[Place, Limits], Store]
    residue: Callable[[Place], Collection[object]]
    back_up: Callable[[Place], Callable[[], None]]
    url_fixture: str | None = None
    is_shared: bool = True
    has_manual_clock: bool = False
    is_cluster: bool = False
    marks: Collection[pytest.MarkDecorator] = ()


def _sqlite(place: Place, limits: Limits) -> Store:
    return SqliteStore(path_of(place.url), limits=limits, clock=place.clock)


def path_of(url: str) -> str:
    return unquote(urlsplit(url).path[1:])


def _rows(place: Place) -> Collection[object]:
    connection = sqlite3.connect(path_of(place.url))
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    rows = [row for (table,) in found.fetchall() for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    return rows


def _file_copy(place: Place) -> Callable[[], None]:
    copy = sqlite3.connect(":memory:")
    with closing(sqlite3.connect(path_of(place.url))) as file:
        file.backup(copy)

    def put_back() -> None:
        with closing(sqlite3.connect(path_of(place.url))) as file:
            copy.backup(file)

    return put_back


def _redis(place: Place, limits: Limits) -> Store:
    return open_store(place.url, limits)


def _keys(place: Place) -> Collection[object]:
    with connect(urlsplit(place.url).port or 6379) as client:
        return list(client.scan_iter("*"))


def _dumps(place: Place) -> Callable[[], None]:
    client = connect(urlsplit(place.url).port or 6379)
    dumps = {key: client.dump(key) for key in client.scan_iter("*")}

    def put_back() -> None:
        client.flushdb()
        for key, dump in dumps.items():
            client.restore(key, 0, dump)

    return put_back


def _model(place: Place, limits: Limits) -> Store:
    store = ModelStore(limits, place.clock)
    store.sessions = place.model.sessions
    return store


def _fork(place: Place) -> Callable[[], None]:
    sessions = place.model.fork()
    return lambda: place.model.restore(sessions)


STORES = {
    "model": StoreCase(_model, lambda place: place.model.sessions, _fork, is_shared=False, has_manual_clock=True),
    "sqlite": StoreCase(_sqlite, _rows, _file_copy, has_manual_clock=True),
    "redis": StoreCase(_redis, _keys, _dumps, "redis_url", marks=(pytest.mark.redis,)),
    "redis-cluster": StoreCase(_redis, _keys, _dumps, "redis_cluster_url", is_cluster=True, marks=(pytest.mark.redis,)),
}


def on_stores(which: Callable[[StoreCase], bool]) -> pytest.MarkDecorator:
    """Run a test on these stores only."""
    return pytest.mark.parametrize("place", store_names(which), indirect=True)


def store_names(which: Callable[[StoreCase], bool] = lambda case: True) -> list[Any]:
    """The stores' names with their marks, as parameters of the fixture `place`."""
    return [pytest.param(name, marks=case.marks) for name, case in STORES.items() if which(case)]
