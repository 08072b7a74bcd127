"""The requests that queue at each session, and the driver that serves them one turn after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.errors import Overloaded, ServiceError
from service.replica.cache import Replicas
from service.replica.replica import Replica
from service.session.requests import Batch, Part, Told
from service.session.session import Session
from service.store.base import Applied, Head, Waiting

TURN_REQUESTS = 256
TURN_S = 0.05
"""A turn takes so many requests at most, and about so much time, so that the first of them is not kept waiting."""

COPIED_BYTES = 4 << 20
"""A larger session is not copied: while other workers compete for it, a turn takes one request."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A request in the queue: its parts are played one after the other, in one commit.

    `known` is what the store has under the ids that the parts name; `deadline` is when the client is to be answered.
    """

    parts: Sequence[Part]
    deadline: float
    answer: asyncio.Future[list[Told | ServiceError]]
    known: dict[str, Waiting | Applied | None] = field(default_factory=dict)

    @property
    def ids(self) -> set[str]:
        return {part.id for part in self.parts if part.id is not None}

    @property
    def is_alone(self) -> bool:
        """Does it have a turn of its own?"""
        return isinstance(self.parts[0], Batch)

    @property
    def rounds(self) -> int:
        return sum(len(part.y) if isinstance(part, Batch) else 1 for part in self.parts)

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(eq=False, slots=True)
class Look:
    """A request to look at a session at the store's present tip: what `work` makes of it is the answer."""

    work: Callable[[Session, Head], Any]
    deadline: float
    answer: asyncio.Future[Any]
    ids: frozenset[str] = frozenset()
    is_alone: bool = True

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(eq=False, slots=True)
class Line:
    """The requests that queue at one session. `timer` refuses those that have queued for too long."""

    name: str
    queue: deque[Ticket | Look] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None


class Lines:
    """One line a session that has requests, and one driver a line.

    `serve` is given the session's replica and the requests of one turn, and answers each of them. `most` requests may queue
    at one session.
    """

    def __init__(
        self,
        replicas: Replicas,
        serve: Callable[[Replica, Sequence[Ticket | Look]], Awaitable[None]],
        most: int,
    ) -> None:
        self._replicas = replicas
        self._serve = serve
        self._most = most
        self._lines: dict[str, Line] = {}
        self._drivers: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Let the turns under way end."""
        await asyncio.gather(*self._drivers, return_exceptions=True)

    def enter(self, name: str, ticket: Ticket | Look) -> None:
        """Queue up; the first in an empty line starts the driver. Raises Overloaded."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name)
            line.queue.append(ticket)
            driver = asyncio.create_task(self._drive(line))
            self._drivers.add(driver)
            driver.add_done_callback(self._drivers.discard)
            return
        if len(line.queue) >= self._most:
            raise Overloaded(f"{self._most} requests wait at session {name!r}; try again.", session=name)
        line.queue.append(ticket)
        if line.timer is None:
            line.timer = asyncio.get_running_loop().call_at(ticket.deadline, self._refuse_late, line)

    def _refuse_late(self, line: Line) -> None:
        loop = asyncio.get_running_loop()
        line.timer = None
        while line.queue and (line.queue[0].answer.done() or line.queue[0].deadline <= loop.time()):
            line.queue.popleft().refuse(too_late(line.name))
        if line.queue:
            line.timer = loop.call_at(line.queue[0].deadline, self._refuse_late, line)

    async def _drive(self, line: Line) -> None:
        """Serve the line until it is empty."""
        try:
            with self._replicas.using(line.name) as replica:
                while line.queue:
                    taken = _take(line, replica)
                    try:
                        await self._serve(replica, taken)
                    except BaseException as error:
                        # What the copy is now, nobody knows.
                        replica.drop()
                        for ticket in taken:
                            ticket.refuse(error)
                        if not isinstance(error, Exception):
                            raise
        finally:
            del self._lines[line.name]
            if line.timer is not None:
                line.timer.cancel()
            for ticket in line.queue:
                ticket.refuse(Overloaded("The service stops; try again."))


def too_late(name: str) -> Overloaded:
    return Overloaded(f"Session {name!r} was busy for too long; try again.", session=name)


def _take(line: Line, replica: Replica) -> list[Ticket | Look]:
    """The next requests for one turn: what has queued up, up to one that is alone in its turn, or that names an id that an
    earlier one of the turn names too.
    """
    first = line.queue.popleft()
    taken, ids = [first], set(first.ids)
    most = TURN_REQUESTS if replica.round_s == 0.0 else min(TURN_REQUESTS, 1 + int(TURN_S / replica.round_s))
    if first.is_alone or (replica.size > COPIED_BYTES and replica.is_contended):
        most = 1
    while line.queue and len(taken) < most:
        following = line.queue[0]
        if following.is_alone or ids & following.ids:
            break
        taken.append(line.queue.popleft())
        ids |= following.ids
    return taken
