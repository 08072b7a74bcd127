"""A worker without any HTTP: on a store that can be watched, held up and made to fail, by a clock that the test moves on."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast
from unittest.mock import patch

import pytest

import okl_core
from service.api.dependencies import Worker
from service.app import make_worker
from service.demo_data import magic
from service.replica.replica import Replica
from service.replica.scheduling import Scheduler, TurnTime
from service.session.codec import BlockEntry, decode_entry
from service.session.record import decode_record
from service.session.requests import Report
from service.session.session import Session
from service.session.snapshot import unpack
from service.session.turn import Position
from service.settings import Settings
from service.store.base import Entry, Hold, Reading, Store
from service.store.opening import open_store
from tests.service.definitions import RIDGE

T = TypeVar("T")

DATA, TRUTHS = magic()


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time, which is the worker's clock, can be moved on; see the fixture `anyio_backend` of its tests."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Clock:
    """A store's clock. To move it on moves that of the workers too."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s

    def skip(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        self.ahead_s += seconds
        loop.ahead_s += seconds


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a store's method."""

    method: str
    arguments: tuple[Any, ...]

    @property
    def entries(self) -> list[Entry]:
        return list(self.arguments[2]) if self.method == "commit" else []

    @property
    def holds(self) -> list[Hold]:
        return list(self.arguments[3]) if self.method == "commit" and len(self.arguments) > 3 else []


class Watched:
    """A store that notes the calls made to it, awaits `before` and `after` each, and gives what `after` makes of an answer.

    An error raised in `before` is that of a call that was never made; one raised in `after` is that of a lost reply.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[Call] = []
        self.before: Callable[[Call], Awaitable[None]] | None = None
        self.after: Callable[[Call, Any], Awaitable[Any]] | None = None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name == "templates":
            # A protocol with attributes asks for it: these stores keep none.
            raise AttributeError(name)
        method = getattr(self.store, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            made = Call(name, arguments)
            self.calls.append(made)
            if self.before is not None:
                await self.before(made)
            answer = await method(*arguments, **named)
            return answer if self.after is None else await self.after(made, answer)

        return call

    def of(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    @property
    def as_store(self) -> Store:
        return cast(Store, self)

    def fail(self, error: Exception, *methods: str, is_late: bool = False) -> None:
        """Every call from now on, of these methods if any are named; `is_late`: it is made, and its reply is lost."""

        async def before(call: Call) -> None:
            if not methods or call.method in methods:
                raise error

        async def after(call: Call, answer: Any) -> Any:
            if not methods or call.method in methods:
                raise error
            return answer

        self.before, self.after = (None, after) if is_late else (before, None)

    def work(self) -> None:
        """As it should, from now on."""
        self.before = self.after = None


class Gate:
    """Holds up the calls of one method until it is opened; `arrived` says that one waits."""

    def __init__(self, store: Watched, method: str = "commit", *, after: bool = False) -> None:
        self.arrived = asyncio.Event()
        self.opened = asyncio.Event()
        self._store, self._method = store, method
        if after:
            store.after = self._after
        else:
            store.before = self._before

    def open(self) -> None:
        self.opened.set()
        self._store.work()

    async def _before(self, call: Call) -> None:
        if call.method == self._method:
            self.arrived.set()
            await self.opened.wait()

    async def _after(self, call: Call, answer: Any) -> Any:
        await self._before(call)
        return answer


async def settle(times: int = 20) -> None:
    """Let everybody who can go on do so."""
    for _ in range(times):
        await asyncio.sleep(0)


def together(*asked: Awaitable[Any]) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(one) for one in asked]


async def told(tasks: Sequence[asyncio.Task[Any]]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def opened(url: str) -> Store:
    store = open_store(url)
    await store.open()
    return store


class Steady(Scheduler):
    """All arithmetic on the loop, in turns that follow from nothing but the requests, however busy the machine is: a round
    takes as long as is said here.
    """

    round_s: ClassVar[float] = 1e-4

    async def rounds(
        self,
        replica: Replica,
        work: Callable[[], T],
        rounds: int,
        *,
        is_long: bool = False,
        whole: int = 1,
        done: Callable[[], int] | None = None,
    ) -> T:
        result, replica.round_s = work(), self.round_s
        return result

    def turn_time(self) -> TurnTime:
        return TurnTime(math.inf)

    async def bytes(self, size: int, work: Callable[[], T]) -> T:
        return work()


@asynccontextmanager
async def working(store: Store, **settings: Any) -> AsyncIterator[Worker]:
    """A worker on a store that is open."""
    with patch("service.app.Scheduler", Steady):
        worker = make_worker(Settings(store="sqlite://", **settings), store)
    yield worker
    await worker.close()


async def read(store: Store, name: str = "s") -> Reading:
    """All that the store holds of a session's rounds."""
    reading = await store.read(name)
    assert isinstance(reading, Reading)
    return reading


def replay(reading: Reading) -> Session:
    """The snapshot, and the journal after it, one entry after the other, by nobody who took part."""
    assert reading.record is not None
    definition, identity = decode_record(reading.head.name, reading.record)
    position = str(Position(identity, reading.start))
    session = Session(definition) if reading.snapshot is None else unpack(definition, reading.snapshot, position)
    for entry in reading.entries:
        session.replay(entry.blob)
    assert session.t == reading.head.tip.round
    return session


async def replayed(store: Store, name: str = "s") -> Session:
    return replay(await read(store, name))


def direct(i: int, id: str | None = None) -> Report:
    """Row i of the data, whose truth comes with it."""
    return Report(float(TRUTHS[i]), id, DATA[i].tolist())


async def assert_sequential(store: Store, rounds: int) -> None:
    """The journal holds each row of the data once, and a learner by itself, fed in its order, is in the same state."""
    session = await replayed(store)
    reading = await read(store)
    learner = okl_core.create(RIDGE, 10)
    rows: list[bytes] = []
    for entry in (decode_entry(entry.blob) for entry in reading.entries):
        if isinstance(entry, BlockEntry):
            inputs, truths = entry.raws, entry.y.tolist()
        else:
            inputs, truths = [entry.x], [entry.y]
        for x, y in zip(inputs, truths, strict=True):
            assert not isinstance(x, dict)
            learner.update(x, y)
            rows.append(x.tobytes())
    assert sorted(rows) == sorted(row.tobytes() for row in DATA[:rounds])
    assert session.t == rounds
    for x in DATA[500:510]:
        assert session.forecast(x).value == pytest.approx(learner.predict(x).value, rel=1e-9, abs=1e-12)
