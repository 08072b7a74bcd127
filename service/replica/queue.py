"""The queue of requests at each session, served one turn after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, final

from okl.errors import Overloaded, stopping

from .cache import Replicas
from .replica import Replica
from .scheduling import TURN_S
from .tickets import Look, Ticket, too_late

log = logging.getLogger("okl.sessions")

TURN_REQUESTS = 64
"""The most requests in one turn, which also has a time limit. With most learners this many rounds stay on the event loop, and
a stream sends its next messages while they are played."""

FREE_OF_STREAMS = 4
STREAMS_S = 1.0
"""Backpressure: a stream with messages under way adds to a queue only while one part in FREE_OF_STREAMS of it stays free, and
all of it takes at most about STREAMS_S. A stream can wait, whereas a request would be refused, or delayed behind it. Requests
overtake messages beyond STREAMS_S, which were queued when rounds took less time."""


@final
class Line:
    """The queue of one session. `timer` refuses requests that have queued for too long."""

    __slots__ = ("queue", "replica", "timer")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.queue: deque[Ticket | Look] = deque()
        self.timer: asyncio.TimerHandle | None = None


@final
class Lines:
    """One line for each session with requests. A caller that finds no line serves itself; a task serves those that queue.

    `serve` takes the session's replica and the requests of one turn, and answers each of them; `finish` does the work left
    after that. `most` requests may queue at one session.
    """

    def __init__(
        self,
        replicas: Replicas,
        serve: Callable[[Replica, Sequence[Ticket | Look]], Awaitable[None]],
        finish: Callable[[Replica], Awaitable[None]],
        most: int,
    ) -> None:
        self._replicas = replicas
        self._serve = serve
        self._finish = finish
        self._most = most
        self._lines: dict[str, Line] = {}
        self._drivers: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] | None = None

    @property
    def queued(self) -> int:
        """The number of requests that wait for their turn."""
        return sum([len(line.queue) for line in self._lines.values()])

    async def close(self) -> None:
        """Wait for the turns under way."""
        if self._lines:
            self._closing = self._closing or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._closing)

    async def ask(self, name: str, ticket: Ticket | Look) -> Any:
        """Serve a request in its turn, and return its answer. Raises Overloaded."""
        line = self._lines.get(name)
        if line is not None:
            self._queue_up(name, line, ticket)
            return await ticket.answer
        line = self._lines[name] = Line(self._replicas.enter(name))
        try:
            await self._safely(line, self._serve(line.replica, [ticket]), [ticket])
        finally:
            if line.queue or line.replica.unfinished is not None:
                self._start(name, line)
            else:
                self._end(name, line)
        return await ticket.answer

    def put(self, name: str, ticket: Ticket) -> None:
        """Queue a request without waiting for its answer; requests put together go into one turn. Raises Overloaded."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(self._replicas.enter(name))
            self._start(name, line)
        self._queue_up(name, line, ticket)
        if ticket.sender is not None:
            ticket.sender.latest = ticket.answer

    def _start(self, name: str, line: Line) -> None:
        driver = asyncio.create_task(self._drive(name, line))
        self._drivers.add(driver)
        driver.add_done_callback(self._drivers.discard)

    def _queue_up(self, name: str, line: Line, ticket: Ticket | Look) -> None:
        most = self._most
        if isinstance(ticket, Ticket) and ticket.sender is not None and ticket.sender.is_waiting:
            most = min(most - most // FREE_OF_STREAMS, _fitting(STREAMS_S, line.replica))
        if len(line.queue) >= most:
            raise Overloaded(f"{self._most} requests wait at session {name!r}; try again.", session=name)
        line.queue.append(ticket)
        if line.timer is None:
            line.timer = asyncio.get_running_loop().call_at(ticket.deadline, self._refuse_late, name, line)

    def _refuse_late(self, name: str, line: Line) -> None:
        loop = asyncio.get_running_loop()
        line.timer = None
        while line.queue and (line.queue[0].answer.done() or line.queue[0].deadline <= loop.time()):
            line.queue.popleft().refuse(too_late(name))
        if line.queue:
            line.timer = loop.call_at(line.queue[0].deadline, self._refuse_late, name, line)

    async def _drive(self, name: str, line: Line) -> None:
        """Serve the line until it is empty."""
        try:
            while True:
                await self._safely(line, self._finish(line.replica), ())
                if not line.queue:
                    break
                _overtake(line)
                taken = _take(line)
                await self._safely(line, self._serve(line.replica, taken), taken)
        finally:
            for ticket in line.queue:
                ticket.refuse(stopping())
            self._end(name, line)

    async def _safely(self, line: Line, work: Awaitable[None], taken: Sequence[Ticket | Look]) -> None:
        """Work on the line's copy for the requests taken; if that fails, drop the copy and refuse them."""
        try:
            await work
        except BaseException as error:
            # The copy may be half changed.
            line.replica.drop()
            if not isinstance(error, Exception):
                for ticket in taken:
                    ticket.answer.cancel()
                raise
            for ticket in taken:
                ticket.refuse(error)
            if not taken:
                log.exception("unexpected error", extra={"session": line.replica.name})

    def _end(self, name: str, line: Line) -> None:
        del self._lines[name]
        self._replicas.leave(line.replica)
        if line.timer is not None:
            line.timer.cancel()
        if self._closing is not None and not self._lines and not self._closing.done():
            self._closing.set_result(None)


def _overtake(line: Line) -> None:
    """Move requests ahead of stream messages that would delay them for too long, unless both name the same id."""
    queue, most = line.queue, _fitting(STREAMS_S, line.replica)
    if len(queue) <= most:
        return
    before: list[Ticket | Look] = []
    behind: list[Ticket | Look] = []
    named: set[str] = set()
    streamed = 0
    for ticket in queue:
        is_streamed = isinstance(ticket, Ticket) and ticket.sender is not None
        streamed += is_streamed
        if named.isdisjoint(ticket.ids) and (streamed <= most or not is_streamed):
            before.append(ticket)
        else:
            behind.append(ticket)
            named |= ticket.ids
    queue.clear()
    queue.extend(before + behind)


def _take(line: Line) -> list[Ticket | Look]:
    """Take the next requests for one turn, up to one that needs its own turn, or reuses an id of an earlier one in the turn.

    The truth of a prediction in the turn may follow in the same turn.
    """
    queue, replica = line.queue, line.replica
    first = queue.popleft()
    taken, asked, settled = [first], set(first.asked), set(first.settled)
    most = 1 if first.is_alone else min(TURN_REQUESTS, _fitting(TURN_S, replica))
    while queue and len(taken) < most:
        following = queue[0]
        if following.is_alone or not (settled.isdisjoint(following.ids) and asked.isdisjoint(following.asked)):
            break
        taken.append(queue.popleft())
        asked |= following.asked
        settled |= following.settled
    return taken


def _fitting(seconds: float, replica: Replica) -> int:
    """About how many requests fit into this time; 1 before any round was timed, since several slow ones may take a minute."""
    return 1 if replica.round_s == 0.0 else 1 + int(seconds / replica.round_s)
