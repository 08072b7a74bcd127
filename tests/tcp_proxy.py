"""A TCP proxy in front of Redis that loses replies, holds them back or cuts connections on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    def __init__(self, target: int) -> None:
        self._target = target
        self._losing: bytes | None = None
        self._doomed: set[asyncio.StreamReader] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.lost = 0
        self.port = 0

    def lose_reply(self, command: bytes) -> None:
        """Let the next request that contains `command` be executed, but break the connection instead of replying."""
        self._losing = command

    def stall(self) -> None:
        """Hold replies back until `flow`."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        await asyncio.sleep(0)  # a connection accepted in this turn of the loop has no task yet
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers, pumps = [writer], []
        try:
            upstream, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
            writers.append(upstream_writer)
            pumps = [
                asyncio.create_task(self._requests(reader, upstream, upstream_writer)),
                asyncio.create_task(self._replies(upstream, writer)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # cut: the error must not reach the server that runs this task
        finally:
            for pump in pumps:
                pump.cancel()
            for each in writers:
                each.close()
            self._tasks.discard(task)

    async def _requests(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while request := await reader.read(1 << 20):
            if self._losing is not None and self._losing in request:
                self._losing = None
                self._doomed.add(upstream)
            writer.write(request)

    async def _replies(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while reply := await upstream.read(1 << 20):
            await self._flowing.wait()
            if upstream in self._doomed:
                self.lost += 1
                return
            writer.write(reply)


@contextlib.asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
