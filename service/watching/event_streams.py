"""Live watching of sessions: each watched session is polled once a second, for all of its watchers together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from okl.errors import Overloaded, ServiceError, SessionNotFound

from ..sessions import Listed
from ..store.base import Head
from .past import PastReader

log = logging.getLogger("okl.sessions")

EVERY_S = 1.0


@dataclass(slots=True)
class _Channel:
    """The present state of one watched session; `position` changes whenever the session does."""

    name: str
    watchers: int = 0
    position: str | None = None
    listed: Listed | None = None
    is_over: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    task: asyncio.Task[None] | None = None


class EventStreams:
    """This worker's streams of events, `most` at a time."""

    def __init__(self, past: PastReader, *, most: int) -> None:
        self._past = past
        self._most = most
        self._channels: dict[str, _Channel] = {}
        self._is_closing = False

    @property
    def count(self) -> int:
        """The number of open streams."""
        return sum(channel.watchers for channel in self._channels.values())

    def check_room(self) -> None:
        """Raises Overloaded if no more streams may open."""
        if self._is_closing or self.count >= self._most:
            raise Overloaded(f"This worker has {self._most} streams of events already; poll instead, or try again.")

    async def watch(self, name: str, position: str | None) -> AsyncGenerator[tuple[str, Listed], None]:
        """Yield the session whenever it has changed since the position that the watcher knows.

        Ends when the session is gone, or at once if no room is left since `check_room`.
        """
        if self._is_closing or self.count >= self._most:
            return
        channel = self._join(name)
        try:
            while True:
                async with channel.changed:
                    while not channel.is_over and channel.position in (None, position):
                        await channel.changed.wait()
                    if channel.is_over or channel.position is None or channel.listed is None:
                        return
                    position, listed = channel.position, channel.listed
                yield position, listed
        finally:
            self._leave(channel)

    def close(self) -> None:
        """End all streams, since the worker stops."""
        self._is_closing = True
        for channel in self._channels.values():
            if channel.task is not None:
                channel.task.cancel()

    def _join(self, name: str) -> _Channel:
        channel = self._channels.setdefault(name, _Channel(name))
        channel.watchers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._look_again(channel))
        return channel

    def _leave(self, channel: _Channel) -> None:
        channel.watchers -= 1
        if not channel.watchers:
            self._forget(channel)
            if channel.task is not None:
                channel.task.cancel()

    def _forget(self, channel: _Channel) -> None:
        # A later watcher may have opened a new channel of this name.
        if self._channels.get(channel.name) is channel:
            del self._channels[channel.name]

    async def _look_again(self, channel: _Channel) -> None:
        try:
            while True:
                try:
                    await self._look(channel)
                except SessionNotFound:
                    return
                except ServiceError as error:
                    # The stream continues: the error may be temporary.
                    log.debug("a session cannot be watched", extra={"session": channel.name, "detail": error.detail})
                await asyncio.sleep(EVERY_S)
        finally:
            channel.is_over = True
            self._forget(channel)
            async with channel.changed:
                channel.changed.notify_all()

    async def _look(self, channel: _Channel) -> None:
        if _position(await self._past.head(channel.name)) == channel.position:
            return
        listed = await self._past.line(channel.name)
        async with channel.changed:
            channel.position, channel.listed = _position(listed.head), listed
            channel.changed.notify_all()


def _position(head: Head) -> str:
    return f"{head.tip.label}.{head.waiting}.{head.never_came}"
