"""Calls to a Redis Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, final

from redis.asyncio import RedisCluster
from redis.exceptions import ClusterError, ResponseError

from okl.errors import StoreUnavailable

from .redis_connections import CLOSED_MEANWHILE, DEADLINE_S, Command
from .redis_errors import FAILURES, is_refusal, log_failure, store_error

MOVING_S = 0.05
"""The pause before a call whose slot is being moved is sent again."""

DRIVER_TRIES_S = 0.5
"""Enough for the driver's own attempts at such a call: it gives up after 0.4 seconds."""


@final
class Cluster:
    """The connections to a cluster: the driver's cluster client, which locates slots."""

    def __init__(self, client: RedisCluster, *, server: str, at_once: int, deadline_s: float = DEADLINE_S) -> None:
        self._client = client
        self._server = server
        self._at_once = at_once
        self._deadline_s = deadline_s
        self._free: asyncio.Semaphore | None = None

    @property
    def server(self) -> str:
        """The address of the node in the url; the driver's errors name the node that failed, if they know it."""
        return self._server

    @property
    def is_cluster(self) -> bool:
        return True

    async def open(self) -> None:
        # Initialize here: on a concurrent first use, each task would discover the nodes.
        self._free = asyncio.Semaphore(self._at_once)
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._client.initialize()
        except FAILURES as error:
            log_failure(error, self._server)
            raise store_error(error) from error

    async def close(self) -> None:
        self._free = None
        await self._client.aclose()

    async def call(self, command: Command, *, is_write: bool = False) -> Any:
        return await self._execute(command)

    async def call_all(self, commands: Sequence[Command]) -> Sequence[Any]:
        def send() -> Awaitable[list[Any]]:
            pipeline = self._client.pipeline()
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute(raise_on_error=False)

        replies = await self._served(send) if commands else []
        for number, reply in enumerate(replies):
            # A pipeline that returns errors as replies does not rediscover the nodes; a single command does.
            if isinstance(reply, Exception) and not is_refusal(reply):
                try:
                    replies[number] = await self._execute(commands[number])
                except ResponseError as error:
                    replies[number] = error
        return replies

    async def call_each(self, command: Command) -> Sequence[Any]:
        return [await self._execute(command, target_nodes=node) for node in self._client.get_primaries()]

    async def _execute(self, command: Command, **options: Any) -> Any:
        return await self._served(lambda: self._client.execute_command(*command, **options))

    async def _served(self, send: Callable[[], Awaitable[Any]]) -> Any:
        deadline = asyncio.get_running_loop().time() + self._deadline_s
        try:
            async with asyncio.timeout_at(deadline):
                return await self._until_moved(send, deadline - DRIVER_TRIES_S)
        except (*FAILURES, *CLOSED_MEANWHILE) as error:
            if is_refusal(error):
                raise
            log_failure(error, self._server)
            raise store_error(error) from error

    async def _until_moved(self, send: Callable[[], Awaitable[Any]], last: float) -> Any:
        """Send a call, and again while its slot moves to another node, until the time `last`. Meanwhile no node runs a script
        unless it has all of the keys, and the driver misdirects some of the other calls.
        """
        while self._free is not None:
            try:
                # A node's pool raises instead of waiting, so the semaphore bounds calls by its connections.
                async with self._free:
                    return await self._sent(send)
            except ClusterError:
                if asyncio.get_running_loop().time() >= last:
                    raise
            await asyncio.sleep(MOVING_S)
        raise StoreUnavailable("The store is not open.")

    async def _sent(self, send: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await send()
        except CLOSED_MEANWHILE:
            return await send()
