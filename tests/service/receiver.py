"""A receiver of alarms: a small HTTP server that notes what it is sent and answers as it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

HANG, CLOSE = -1, -2


@dataclass
class Receiver:
    """`answers` are given in turn: statuses, HANG or CLOSE; then 204. `meanwhile` is awaited before each."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[None]] | None = None

    @property
    def url(self) -> str:
        return f"http://user:hidden-password@127.0.0.1:{self.port}/alarms/hidden-path"

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.posts]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """For ten seconds at most."""
        for _ in range(1_000):
            if is_so():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it has not come so far")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = [line.partition(": ") for line in head.splitlines()[1:] if line]
        headers = {name.lower(): value for name, _, value in lines}
        body = await reader.readexactly(int(headers["content-length"]))
        self.posts.append((headers, body))
        if self.meanwhile is not None:
            await self.meanwhile()
        status = self.answers.pop(0) if self.answers else 204
        if status == HANG:
            await asyncio.sleep(60.0)
        if status != CLOSE:
            location = "location: /elsewhere\r\n" if 300 <= status < 400 else ""
            writer.write(f"HTTP/1.1 {status} x\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n".encode())
            await writer.drain()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(lambda _: writer.close())  # one that is cancelled before it begins has no `finally`

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    yield receiver
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
