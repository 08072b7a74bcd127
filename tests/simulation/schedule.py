"""Who goes on next is drawn from a seed: each call to the store waits here before it is carried out, and before its reply."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from okl.errors import StoreTimeout
from service.store.base import Committed
from tests.oracles.model_store import ModelStore

T = TypeVar("T")

QUIET_TURNS = 8
"""When so many turns of the loop bring no new call, all tasks wait for the store, or are done."""

METHODS = ("create", "head", "read", "find", "commit", "snapshot", "delete")


class Crashed(Exception):
    """The worker was killed: its client has no answer."""


class Schedule:
    """The calls that wait, and the coins of one run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._waiting: list[asyncio.Future[None]] = []
        self._calls = 0

    async def pause(self) -> None:
        """Wait until it is this call's turn."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._calls += 1
        await future

    async def run(self, tasks: list[asyncio.Task[None]], event: Callable[[], None]) -> None:
        """Let one call after the other go on until all tasks are done; `event` may do harm in between."""
        while True:
            await self._settle()
            if all(task.done() for task in tasks):
                break
            event()
            if self._waiting:
                self._waiting.pop(self.random.randrange(len(self._waiting))).set_result(None)
        for task in tasks:
            task.result()

    async def _settle(self) -> None:
        quiet, calls = 0, self._calls
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            quiet, calls = (quiet + 1, calls) if calls == self._calls else (0, self._calls)

    async def drain(self, work: Awaitable[T]) -> T:
        """Do some work to its end, with nobody else's call between its own."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            while self._waiting:
                self._waiting.pop(0).set_result(None)
        return task.result()


class Link:
    """One worker's connection to the store, which loses requests and replies, and sends commands twice. With `lies` it also
    says of commits that they were made, which it never does otherwise.
    """

    def __init__(self, store: ModelStore, schedule: Schedule, faults: float, lies: float = 0.0) -> None:
        self._store = store
        self._schedule = schedule
        self.faults = faults
        self._lies = lies
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return self._carried(method) if name in METHODS else method

    def _carried(self, method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def call(*arguments: Any, **named: Any) -> T:
            coin = self._schedule.random.random()
            await self._pause()
            if coin < self.faults:
                raise StoreTimeout("The request was lost.")
            if method.__name__ == "commit" and self._schedule.random.random() < self._lies:
                return cast(T, Committed([None for _ in arguments[3]]))
            answer = await method(*arguments, **named)
            if coin > 1.0 - self.faults:
                # The driver sends a command again whose reply was lost.
                answer = await method(*arguments, **named)
            await self._pause()
            if self.faults <= coin < 2 * self.faults:
                raise StoreTimeout("The reply was lost.")
            return answer

        return call

    async def _pause(self) -> None:
        if self.is_cut:
            raise Crashed
        await self._schedule.pause()
        if self.is_cut:
            raise Crashed
