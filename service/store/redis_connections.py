"""Calls to Redis over a few connections of the driver's pool. The calls of one turn of the event loop leave in one write.

A *lane* is a held connection. If no other call is in flight, the caller sends its call itself, at once. Otherwise calls wait
for the end of the turn: a task sends them as a batch and reads their replies in order. A connection with a reply missing is
closed, never reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, final

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from okl.errors import StoreUnavailable

from .redis_errors import (
    FAILURES,
    MOVED_ON,
    NotReplicatedError,
    is_passing,
    is_refusal,
    log_failure,
    store_error,
)
from .redis_lane import Lane, LaneCall

DEADLINE_S = 5.0
"""The time limit of an operation with all its retries."""

ATTEMPTS_IN_DEADLINE = 2.5
"""A connection that does not answer is dropped after this share of the deadline, which leaves time for another attempt."""

RETRIES = 3
BACKOFF = ExponentialWithJitterBackoff(base=0.02, cap=0.25)
TICK_S = 0.05
WATCH_S = 1.0
"""The interval at which the Sentinels are asked for the master."""
BATCH_CALLS = 128
BATCH_BYTES = 64 << 10
"""A larger call is sent alone, so that no other call waits behind it."""

CLOSED_MEANWHILE = (AttributeError, TypeError, RuntimeError)
"""What the driver's cluster client raises (8.1; redis-py issue 4287) if one call closes the connection that another call
is about to write to: RuntimeError under uvloop, the others under asyncio."""

Command = Sequence[bytes | str | int | float]


class Connections(Protocol):
    """Errors: StoreUnavailable, StoreTimeout, and the driver's ResponseError if the server refused the command itself."""

    @property
    def server(self) -> str:
        """The address of the server or servers, for the log."""
        ...

    @property
    def is_cluster(self) -> bool:
        """Whether one server may come back with less while the others have kept what they had."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def call(self, command: Command, *, is_write: bool = False) -> Any: ...

    async def call_all(self, commands: Sequence[Command]) -> Sequence[Any]:
        """The replies to read-only commands, in order; the reply to a refused command is its error."""
        ...

    async def call_each(self, command: Command) -> Sequence[Any]:
        """The replies of all servers that take writes."""
        ...


@final
class Lanes:
    """The connections to a single server, or to the master that Sentinel names."""

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        server: str,
        deadline_s: float = DEADLINE_S,
        wait_replicas: int = 0,
        wait_ms: int = 0,
        sentinels: Sequence[Redis] = (),
        find_master: Callable[[], Awaitable[tuple[str, int]]] | None = None,
    ) -> None:
        self._pool = pool
        self._server = server
        self._sentinels = sentinels
        self._find_master = find_master
        self._watcher: asyncio.Task[None] | None = None
        self._deadline_s = deadline_s
        self._attempt_s = deadline_s / ATTEMPTS_IN_DEADLINE + wait_ms / 1000
        self._wait_replicas = wait_replicas
        self._wait = _pack(("WAIT", wait_replicas, wait_ms)) if wait_replicas else b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: deque[LaneCall] = deque()
        self._lanes: list[Lane] = []
        self._free: list[Lane] = []
        self._is_gathering = False
        self._carriers: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None
        self._epoch = 0

    @property
    def server(self) -> str:
        """The address of the server; under Sentinel those of the Sentinels until they have named the master."""
        return self._server

    @property
    def is_cluster(self) -> bool:
        return False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._find_master is not None:
            self._watcher = self._loop.create_task(self._watch(self._find_master))

    async def close(self) -> None:
        self._loop = None
        if self._ticker is not None:
            self._ticker.cancel()
        if self._watcher is not None:
            await _end(self._watcher)
        while self._pending:
            self._pending.popleft().answer(ConnectionError("the store is closed"))
        while len(self._free) < len(self._lanes):
            for lane in self._lanes:
                if lane.due < math.inf:
                    lane.break_off(ConnectionError("the store is closed"))
            await asyncio.sleep(TICK_S)
        for lane in self._lanes:
            await self._drop(lane)
        self._lanes, self._free, self._ticker, self._watcher = [], [], None, None
        await self._pool.disconnect()
        for sentinel in self._sentinels:
            await sentinel.aclose()

    async def _watch(self, find_master: Callable[[], Awaitable[tuple[str, int]]]) -> None:
        """Leave a demoted master. If it still runs, it takes writes for ten seconds after another one was promoted, until the
        Sentinels make it a replica; then these writes are lost.
        """
        known: tuple[str, int] | None = None
        while True:
            with contextlib.suppress(*FAILURES, *CLOSED_MEANWHILE):
                master = await find_master()
                if known not in (None, master):
                    self._epoch += 1
                known = master
                self._server = "{}:{}".format(*master)
            await asyncio.sleep(WATCH_S)

    async def call_each(self, command: Command) -> Sequence[Any]:
        return [await self.call(command)]

    async def call_all(self, commands: Sequence[Command]) -> Sequence[Any]:
        return await self._call(b"".join(map(_pack, commands)), commands=len(commands)) if commands else ()

    async def call(self, command: Command, *, is_write: bool = False) -> Any:
        """The reply to a command. A command whose connection broke is retried at once, then with back-off."""
        return await self._call(_pack(command), is_write=is_write)

    async def _call(self, packed: bytes, *, is_write: bool = False, commands: int | None = None) -> Any:
        loop = self._loop
        if loop is None:
            raise StoreUnavailable("The store is not open.")
        deadline = loop.time() + self._deadline_s
        failures = 0
        while True:
            reply = await self._ask(LaneCall(packed, deadline, is_write, loop.create_future(), commands), loop)
            if not isinstance(reply, Exception):
                return reply
            if is_refusal(reply):
                raise reply
            failures += 1
            if failures > RETRIES or not is_passing(reply) or loop.time() >= deadline or self._loop is None:
                if isinstance(reply, ResponseError):  # a broken connection is logged once for all its calls
                    log_failure(reply, self._server)
                raise store_error(reply) from reply
            if failures > 1:
                await asyncio.sleep(min(BACKOFF.compute(failures), deadline - loop.time()))
                if self._loop is None:
                    raise store_error(reply) from reply

    async def _ask(self, call: LaneCall, loop: asyncio.AbstractEventLoop) -> Any:
        self._pending.append(call)
        if self._ticker is None:
            # One timer runs while there is work, instead of one per call.
            self._ticker = loop.call_later(TICK_S, self._tick, loop)
        if not self._is_gathering and (lane := self._take_lane()) is not None:
            if len(self._free) + 1 < len(self._lanes):
                self._start(lane, loop)
            else:
                lane.taken_by(asyncio.current_task())
                try:
                    await self._carry(lane, loop)
                finally:
                    self._release(lane)
        return await call.reply

    def _take_lane(self) -> Lane | None:
        if self._free:
            return self._free.pop()
        if len(self._lanes) >= self._pool.max_connections:
            return None
        lane = Lane()
        self._lanes.append(lane)
        return lane

    def _start(self, lane: Lane, loop: asyncio.AbstractEventLoop) -> None:
        """Send the calls of this turn of the loop together, as others are in flight."""
        self._is_gathering = True
        task = loop.create_task(self._carry_on(lane, loop))
        lane.taken_by(task)
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)

    async def _carry_on(self, lane: Lane, loop: asyncio.AbstractEventLoop) -> None:
        self._is_gathering = False
        try:
            await self._carry(lane, loop)
        finally:
            self._release(lane)

    def _release(self, lane: Lane) -> None:
        lane.carrier = None
        if self._pending and not self._is_gathering and self._loop is not None:
            self._start(lane, self._loop)
        else:
            self._free.append(lane)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticker = None
        now = loop.time()
        for call in self._pending:
            if call.deadline <= now:
                call.answer(RedisTimeoutError("no connection was free"))
        busy = [lane for lane in self._lanes if lane.due < math.inf]
        for lane in busy:
            if lane.due <= now:
                lane.due = now + TICK_S
                lane.break_off(RedisTimeoutError("no reply in time"))
        if busy or self._pending:
            self._ticker = loop.call_later(TICK_S, self._tick, loop)

    async def _carry(self, lane: Lane, loop: asyncio.AbstractEventLoop) -> None:
        """Run one exchange for pending calls. Afterwards each of them has an answer, whatever happened."""
        batch = self._take()
        if self._pending and (another := self._take_lane()) is not None:
            self._release(another)
        error: Exception | None = None
        try:
            if batch:
                await self._exchange(lane, batch, loop)
        except asyncio.CancelledError:
            error = lane.broken_by or ConnectionError("the call was broken off")
        except Exception as failure:
            error = failure
        is_cancelled = lane.settle()
        if error is not None:
            for call in batch:
                call.answer(error)
            if is_cancelled:
                await self._drop(lane)
            else:
                await self._give_up(lane, error)
        if is_cancelled:
            raise asyncio.CancelledError

    async def _give_up(self, lane: Lane, error: Exception) -> None:
        """Drop a lane's connection, and retire all others: what broke one (a server restart) broke them too."""
        log_failure(error, self._server if lane.connection is None else server_of(lane.connection))
        if lane.connection is not None and lane.epoch == self._epoch:
            self._epoch += 1
        await self._drop(lane)

    def _take(self) -> list[LaneCall]:
        """The next batch: one large call, or many small ones."""
        batch: list[LaneCall] = []
        size = 0
        while self._pending and len(batch) < BATCH_CALLS and size < BATCH_BYTES:
            size += len(self._pending[0].packed)
            if size > BATCH_BYTES and batch:
                break
            call = self._pending.popleft()
            if not call.reply.done():
                batch.append(call)
        return batch

    async def _exchange(self, lane: Lane, batch: list[LaneCall], loop: asyncio.AbstractEventLoop) -> None:
        packed = [call.packed for call in batch]
        lane.due = min([call.deadline for call in batch])
        if len(packed[0]) < BATCH_BYTES:  # a large call may need its whole deadline
            lane.due = min(lane.due, loop.time() + self._attempt_s)
        connection = lane.connection
        if connection is None or lane.epoch != self._epoch or await connection.can_read():
            connection = await self._connect(lane)
        awaited = [call for call in batch if call.is_write] if self._wait else ()
        if awaited:
            packed.append(self._wait)
        await connection.send_packed_command(packed, check_health=False)
        held: list[Any] = []
        for call in batch:
            reply = await (_read(connection) if call.commands is None else _read_all(connection, call.commands))
            if isinstance(reply, MOVED_ON) and lane.epoch == self._epoch:
                self._epoch += 1
            if awaited and call.is_write:
                held.append(reply)
            else:
                call.answer(reply)
        if awaited:
            acknowledged = await _read(connection)
            is_replicated = isinstance(acknowledged, int) and acknowledged >= self._wait_replicas
            for call, reply in zip(awaited, held, strict=True):
                is_error = isinstance(reply, Exception)
                call.answer(reply if is_error or is_replicated else NotReplicatedError(f"{acknowledged} acknowledged"))

    async def _connect(self, lane: Lane) -> AbstractConnection:
        """Replace the lane's connection, which the server has closed or which belongs to an earlier epoch."""
        await self._drop(lane)
        lane.epoch = self._epoch
        lane.connection = await self._pool.get_connection()
        return lane.connection

    async def _drop(self, lane: Lane) -> None:
        connection, lane.connection = lane.connection, None
        if connection is not None:
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel the task until it ends, as the driver may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=TICK_S)


def _pack(command: Command) -> bytes:
    """The command in Redis' protocol."""
    if sum(len(part) for part in command if isinstance(part, bytes)) > BATCH_BYTES:
        # hiredis copies a large argument three times, each time to memory that is new to the process: 50 times as slow.
        pieces = [b"*%d\r\n" % len(command)]
        for part in command:
            data = part if isinstance(part, bytes) else str(part).encode()
            pieces += (b"$%d\r\n" % len(data), data, b"\r\n")
        return b"".join(pieces)
    return hiredis.pack_command(tuple(command))  # pyright: ignore[reportArgumentType]  # the stub takes one value only


async def _read(connection: AbstractConnection) -> Any:
    # Without the driver's timeout: with one, it returns None when the network gives up (ETIMEDOUT).
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def _read_all(connection: AbstractConnection, count: int) -> Any:
    """The replies in order, or the first error which says that the server cannot serve."""
    replies = [await _read(connection) for _ in range(count)]
    failures = (reply for reply in replies if isinstance(reply, Exception) and not is_refusal(reply))
    return next(failures, replies)


def server_of(connection: AbstractConnection) -> str:
    """The address of the connection's server: host and port, or the path of a socket."""
    pieces: Any = connection.repr_pieces()
    return ":".join(str(value) for name, value in pieces if name in ("host", "port", "path"))
