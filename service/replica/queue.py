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
from .tickets import Queued, Ticket, too_late

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
class SessionQueue:
    """The queue of one session. `timer` refuses requests that have queued for too long."""

    __slots__ = ("replica", "requests", "timer")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.requests: deque[Queued] = deque()
        self.timer: asyncio.TimerHandle | None = None


@final
class Queues:
    """One queue for each session with requests. A caller that finds no queue serves itself; a task serves those that queue.

    `serve` takes the session's replica and the requests of one turn, and answers each of them; `finish` does the work left
    after that. `most` requests may queue at one session.
    """

    def __init__(
        self,
        replicas: Replicas,
        serve: Callable[[Replica, Sequence[Queued]], Awaitable[None]],
        finish: Callable[[Replica], Awaitable[None]],
        most: int,
    ) -> None:
        self._replicas = replicas
        self._serve = serve
        self._finish = finish
        self._most = most
        self._queues: dict[str, SessionQueue] = {}
        self._drivers: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] | None = None

    @property
    def queued(self) -> int:
        """The number of requests that wait for their turn."""
        return sum([len(queue.requests) for queue in self._queues.values()])

    async def close(self) -> None:
        """Wait for the turns under way."""
        if self._queues:
            self._closing = self._closing or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._closing)

    async def ask(self, name: str, ticket: Queued) -> Any:
        """Serve a request in its turn, and return its answer. Raises Overloaded."""
        queue = self._queues.get(name)
        if queue is not None:
            self._add(queue, ticket)
            return await ticket.answer
        queue = self._queues[name] = SessionQueue(self._replicas.enter(name))
        try:
            await self._safely(queue, self._serve(queue.replica, [ticket]), [ticket])
        finally:
            if queue.requests or queue.replica.unfinished is not None:
                self._start(queue)
            else:
                self._end(queue)
        return await ticket.answer

    def put(self, name: str, ticket: Ticket) -> None:
        """Queue a request without waiting for its answer; requests put together go into one turn. Raises Overloaded."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = SessionQueue(self._replicas.enter(name))
            self._start(queue)
        self._add(queue, ticket)
        if ticket.sender is not None:
            ticket.sender.latest = ticket.answer

    def _start(self, queue: SessionQueue) -> None:
        driver = asyncio.create_task(self._drive(queue))
        self._drivers.add(driver)
        driver.add_done_callback(self._drivers.discard)

    def _add(self, queue: SessionQueue, ticket: Queued) -> None:
        most = self._most
        if isinstance(ticket, Ticket) and ticket.sender is not None and ticket.sender.is_waiting:
            most = min(most - most // FREE_OF_STREAMS, _fitting(STREAMS_S, queue.replica))
        if len(queue.requests) >= most:
            name = queue.replica.name
            raise Overloaded(f"{self._most} requests wait at session {name!r}; try again.", session=name)
        queue.requests.append(ticket)
        if queue.timer is None:
            queue.timer = asyncio.get_running_loop().call_at(ticket.deadline, self._refuse_late, queue)

    def _refuse_late(self, queue: SessionQueue) -> None:
        loop = asyncio.get_running_loop()
        queue.timer = None
        while queue.requests and (queue.requests[0].answer.done() or queue.requests[0].deadline <= loop.time()):
            queue.requests.popleft().refuse(too_late(queue.replica.name))
        if queue.requests:
            queue.timer = loop.call_at(queue.requests[0].deadline, self._refuse_late, queue)

    async def _drive(self, queue: SessionQueue) -> None:
        """Serve the queue until it is empty."""
        try:
            # An answer that was just given leaves before its round is learned.
            await asyncio.sleep(0)
            while True:
                await self._safely(queue, self._finish(queue.replica), ())
                if not queue.requests:
                    break
                _overtake(queue)
                taken = _take(queue)
                await self._safely(queue, self._serve(queue.replica, taken), taken)
        finally:
            for ticket in queue.requests:
                ticket.refuse(stopping())
            self._end(queue)

    async def _safely(self, queue: SessionQueue, work: Awaitable[None], taken: Sequence[Queued]) -> None:
        """Work on the queue's copy for the requests taken; if that fails, drop the copy and refuse them."""
        try:
            await work
        except BaseException as error:
            # The copy may be half changed.
            queue.replica.drop()
            if not isinstance(error, Exception):
                for ticket in taken:
                    ticket.answer.cancel()
                raise
            for ticket in taken:
                ticket.refuse(error)
            if not taken:
                log.exception("unexpected error", extra={"session": queue.replica.name})

    def _end(self, queue: SessionQueue) -> None:
        del self._queues[queue.replica.name]
        self._replicas.leave(queue.replica)
        if queue.timer is not None:
            queue.timer.cancel()
        if self._closing is not None and not self._queues and not self._closing.done():
            self._closing.set_result(None)


def _overtake(queue: SessionQueue) -> None:
    """Move requests ahead of stream messages that would delay them for too long, unless both name the same id."""
    requests, most = queue.requests, _fitting(STREAMS_S, queue.replica)
    if len(requests) <= most:
        return
    before: list[Queued] = []
    behind: list[Queued] = []
    named: set[str] = set()
    streamed = 0
    for ticket in requests:
        is_streamed = isinstance(ticket, Ticket) and ticket.sender is not None
        streamed += is_streamed
        if named.isdisjoint(ticket.ids) and (streamed <= most or not is_streamed):
            before.append(ticket)
        else:
            behind.append(ticket)
            named |= ticket.ids
    requests.clear()
    requests.extend(before + behind)


def _take(queue: SessionQueue) -> list[Queued]:
    """Take the next requests for one turn, up to one that needs its own turn, or reuses an id of an earlier one in the turn.

    The truth of a prediction in the turn may follow in the same turn.
    """
    requests, replica = queue.requests, queue.replica
    first = requests.popleft()
    taken, asked, settled = [first], set(first.asked), set(first.settled)
    most = 1 if first.is_alone else min(TURN_REQUESTS, _fitting(TURN_S, replica))
    while requests and len(taken) < most:
        following = requests[0]
        if following.is_alone or not (settled.isdisjoint(following.ids) and asked.isdisjoint(following.asked)):
            break
        taken.append(requests.popleft())
        asked |= following.asked
        settled |= following.settled
    return taken


def _fitting(seconds: float, replica: Replica) -> int:
    """About how many requests fit into this time; 1 before any round was timed, since several slow ones may take a minute."""
    return 1 if replica.round_s == 0.0 else 1 + int(seconds / replica.round_s)
