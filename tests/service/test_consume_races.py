"""The consumer where Redis forgets: a group that is gone, and a delivery that was lost while its answer was written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
import redis
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from okl.errors import ConfigurationError
from service.consuming.consumer import Bounds, Consumer
from service.consuming.group import Claimed, Delivered, Group, Written
from tests.redis_server import wait_until

BAD = Delivered("rounds", "1-1", None)
"""An entry that is refused without a service."""


class Forgetful:
    """A group that loses the delivery of an entry, and delivers it again before the reply to its answer's write arrives."""

    def __init__(self) -> None:
        self.is_pending = False
        self.written = asyncio.Event()
        self._reads = 0
        self._is_written_to, self._is_delivered_again = asyncio.Event(), asyncio.Event()

    async def open(self, stream: str, *, create: bool) -> None:
        pass

    async def claim(self, *_: Any) -> Claimed:
        return Claimed("0-0", [], 0)

    async def read(self, streams: Sequence[str], count: int) -> list[Delivered]:
        self._reads += 1
        if self._reads == 1:
            return [BAD]
        if self._reads == 2:
            await self._is_written_to.wait()
            self.is_pending = True
            self._is_delivered_again.set()
            return [BAD]
        await asyncio.sleep(0.01)
        return []

    async def given(self, stream: str, after: str, count: int) -> list[Delivered]:
        return [BAD] if self.is_pending and after == "0" else []

    async def write(self, stream: str, answers: Sequence[Written]) -> int:
        if self.is_pending:
            self.is_pending = False
            self.written.set()
            return 1
        self._is_written_to.set()
        await self._is_delivered_again.wait()
        return 0


def test_an_entry_that_is_delivered_again_while_its_answer_is_written_is_answered() -> None:
    async def run() -> None:
        found = Forgetful()
        consumer = Consumer(cast(Group, found), "http://127.0.0.1:9", ["rounds"], create=False, bounds=Bounds())
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(10.0):
            await found.written.wait()
            consumer.stop()
            await running
        assert (consumer.answered, found.is_pending) == (1, False)

    asyncio.run(run())


class Destroyed:
    """A group that is destroyed while the consumer reads and writes, and of which the given one of the two hears last."""

    def __init__(self, last: str) -> None:
        self.written = asyncio.Event()
        self._last = last
        self._asked = {"read": asyncio.Event(), "write": asyncio.Event()}
        self._refused = {"read": asyncio.Event(), "write": asyncio.Event()}
        self._reads = 0

    async def open(self, stream: str, *, create: bool) -> None:
        pass

    async def read(self, streams: Sequence[str], count: int) -> list[Delivered]:
        self._reads += 1
        if self._reads == 1:
            return [BAD]
        await self._miss("read")
        await asyncio.sleep(0.01)
        return []

    async def given(self, stream: str, after: str, count: int) -> list[Delivered]:
        return []

    async def claim(self, *_: Any) -> Claimed:
        return Claimed("0-0", [], 0)

    async def write(self, stream: str, answers: Sequence[Written]) -> int:
        await self._miss("write")
        self.written.set()
        return 1

    async def _miss(self, what: str) -> None:
        """Refuse the first call of this name, once both have been made, and the last to hear after the other."""
        if self._refused[what].is_set():
            return
        (other,) = self._asked.keys() - {what}
        self._asked[what].set()
        await (self._refused if what == self._last else self._asked)[other].wait()
        await asyncio.sleep(0.0)  # the other task handles its error
        self._refused[what].set()
        raise ConfigurationError("Redis refuses it: NOGROUP")


@pytest.mark.parametrize("last", ["read", "write"])
def test_a_group_that_both_tasks_miss_at_once(last: str) -> None:
    async def run() -> None:
        found = Destroyed(last)
        consumer = Consumer(cast(Group, found), "http://127.0.0.1:9", ["rounds"], create=True, bounds=Bounds())
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(10.0):
            await asyncio.wait(
                [running, written := asyncio.create_task(found.written.wait())], return_when="FIRST_COMPLETED"
            )
            written.cancel()
            consumer.stop()
            await running
        assert consumer.answered == 1

    asyncio.run(run())


@pytest.mark.redis
@pytest.mark.parametrize("create", [True, False])
def test_a_group_that_is_gone_when_an_answer_is_written(redis_url: str, create: bool) -> None:
    """The reader, which has all that may be under way, has not noticed."""

    async def run(client: Any) -> None:
        is_asked, is_gone = asyncio.Event(), asyncio.Event()

        async def serve(connection: ServerConnection) -> None:
            async for _ in connection:
                is_asked.set()
                await is_gone.wait()
                await connection.send('{"t": 1}')

        group = Group(redis_url, group="okl", consumer="one", output="answers", refused="answers", max_length=9)
        client.xgroup_create("rounds", "okl", "0", mkstream=True)
        client.xadd("rounds", {"session": "s", "message": json.dumps({"x": [1], "y": 1})})
        async with serve_sockets(serve, "127.0.0.1", 0) as server, asyncio.timeout(20.0):
            url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
            consumer = Consumer(group, url, ["rounds"], create=create, bounds=Bounds(under_way=1))
            running = asyncio.create_task(consumer.run())
            await is_asked.wait()
            client.xgroup_destroy("rounds", "okl")
            is_gone.set()
            if create:
                await asyncio.to_thread(wait_until, lambda: client.xlen("answers") == 1)
                consumer.stop()
                await running
            else:
                with pytest.raises(ConfigurationError, match="NOGROUP"):
                    await running
        await group.close()

    with redis.Redis.from_url(redis_url) as client:
        asyncio.run(run(client))
