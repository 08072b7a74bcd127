"""A gate between a connection and the server's protocol, which bounds what arrives before the application is called.

The server calls the application when the head of a request is complete. Until then ASGI sees nothing of it, so the gate has
to refuse a head of 300 MB, or one that never ends. It counts bytes up to the empty line that ends a head, learns from
`Announced` when a request is taken and when it is answered, and closes connections that send too much or take too long. It
does not parse HTTP.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from random import getrandbits
from typing import Any, Final, Protocol, cast, final

from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from okl.errors import HeadTooLarge, MalformedBody, Overloaded, RequestTimeout, ServiceError

from .bodies import NDJSON, kind_of
from .joined_writes import JoinedWrites
from .problems import PROBLEM_JSON, document_of
from .socket_reads import SocketReads

LOOK_S: Final = 0.25
TAKEN_WITHIN_S: Final = 2.0
"""The server takes a request as soon as its head is complete; otherwise it has dropped the request without an answer."""

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 16 << 20
"""A connection that is about to be closed is read for this long, so that the client can read the error."""

AHEAD_BYTES: Final = 1 << 20
"""Bytes of pipelined requests that may arrive behind one that is not answered yet."""

_END_OF_HEAD: Final = b"\r\n\r\n"
_REASONS: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class GateBounds:
    """Bounds on the connections of one worker."""

    connections: int = 1_000
    head_bytes: int = 32 << 10
    head_timeout_s: float = 10.0
    idle_s: float = 15.0
    body_bytes: int = 8 << 20
    body_timeout_s: float = 30.0


class ServerProtocol(Protocol):
    """The server's factory for the protocol of a connection."""

    def __call__(
        self, *, config: Any, server_state: Any, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None
    ) -> asyncio.Protocol: ...


class State(Enum):
    HEAD = auto()  # a head is arriving, or the connection is idle
    TAKEN = auto()  # a head is complete; its request is being answered
    REST = auto()  # answered; the rest of its body is still arriving
    SOCKET = auto()  # upgraded to a websocket: no more requests
    CLOSING = auto()  # incoming data is discarded


@final
class Gatekeeper:
    """Makes the gates of one worker, as the `http` of a `uvicorn.Config`, and periodically expires overdue connections."""

    def __init__(self, bounds: GateBounds, make: ServerProtocol) -> None:
        self.bounds = bounds
        self.gates: set[Gate] = set()
        self._make = make
        self._is_looking = False

    def __call__(
        self,
        *,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        if len(self.gates) >= self.bounds.connections:
            return Refusal(Overloaded(f"This worker already has {self.bounds.connections} connections; try again."))
        inner = self._make(config=config, server_state=server_state, app_state=app_state, _loop=_loop)
        return Gate(self, inner)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without gates: a worker process starts with no connections."""
        return Gatekeeper, (self.bounds, self._make)

    def enter(self, gate: Gate) -> None:
        self.gates.add(gate)
        if not self._is_looking:
            self._is_looking = True
            self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for gate in [gate for gate in self.gates if gate.deadline <= now]:
            gate.expire()
        self._is_looking = bool(self.gates)
        if self._is_looking:
            loop.call_later(LOOK_S, self._look)


@final
class Refusal(asyncio.Protocol):
    """A connection beyond the limit: it gets an error, and is closed."""

    def __init__(self, error: ServiceError) -> None:
        self._error = error

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = _stream(transport)
        stream.write(_answer(self._error))
        stream.close()


_gate: ContextVar[Gate | None] = ContextVar("gate", default=None)


@final
class Gate(asyncio.Protocol):
    """One connection."""

    def __init__(self, keeper: Gatekeeper, inner: asyncio.Protocol) -> None:
        self._keeper = keeper
        self._bounds = keeper.bounds
        self._inner: Any = inner
        self._loop = asyncio.get_running_loop()
        self._state = State.HEAD
        self._count = 0
        """Bytes: in HEAD of the head so far, in TAKEN behind the head, in REST still to come, in CLOSING discarded."""
        self._tail = b""
        self._is_new = False  # a head is complete, and the application has not taken the request yet
        self._running = 0
        self._length: int | None = 0  # of the body that `_count` belongs to; None if unknown
        self._is_read = True
        self._is_streamed = False  # the body is read as it arrives, under the server's flow control
        self._until = self._stalled_until = inf

    @property
    def deadline(self) -> float:
        """When the connection will have been too long in its current state."""
        return min(self._until, self._stalled_until)

    # -- from the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = _stream(transport)
        self._writes = JoinedWrites(self._stream, self._loop)
        self._transport = _stream(self._writes)
        self._wait(self._bounds.head_timeout_s)
        self._keeper.enter(self)
        self._inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._state is State.HEAD:
            if not self._read_head(data):
                return
        elif self._state is State.TAKEN:
            self._count += len(data)
            if self._count > self._bounds.body_bytes + AHEAD_BYTES and not self._is_streamed:
                self._transport.abort()
                return
        elif self._state is State.REST:
            ahead = data[self._count :]
            self._count -= len(data)
            if self._count <= 0:
                self._await_head(ahead=0)
                if ahead and not self._read_head(ahead):
                    return
        elif self._state is State.CLOSING:
            self._count += len(data)
            if self._count > LINGER_BYTES:
                self._transport.abort()
            return
        _gate.set(self)
        if self._writes.reads is not None:
            self._writes.reads.take(data)
            return
        self._inner.data_received(data)
        protocol = self._transport.get_protocol()
        if protocol is not self:
            # The server has replaced us by a websocket protocol.
            self._inner = protocol
            self._transport.set_protocol(self)
            self._writes.reads = SocketReads(self._stream, self._loop, self._inner.data_received)
            self._wait(LOOK_S)

    def _read_head(self, data: bytes) -> bool:
        """Whether to pass the data on to the server."""
        if not self._count:
            if not data.strip(b"\r\n"):
                return True
            self._wait(self._bounds.head_timeout_s)
        end = self._end_of_head(data)
        behind = 0 if end is None else len(data) - end
        size = self._count + len(data) - behind
        if size > self._bounds.head_bytes:
            limit = self._bounds.head_bytes
            self._refuse(HeadTooLarge(f"The head of the request has more than {limit} bytes.", limit=limit))
            return False
        if end is not None:
            self._state = State.TAKEN
            self._count, self._tail, self._is_new = behind, b"", True
            self._wait(TAKEN_WITHIN_S)
        else:
            self._count, self._tail = size, (self._tail + data)[1 - len(_END_OF_HEAD) :]
        return True

    def _end_of_head(self, data: bytes) -> int | None:
        if self._tail:
            found = (self._tail + data[: len(_END_OF_HEAD) - 1]).find(_END_OF_HEAD)
            if found >= 0:
                return found + len(_END_OF_HEAD) - len(self._tail)
        found = data.find(_END_OF_HEAD, 0 if self._count else _after_blank_lines(data))
        return None if found < 0 else found + len(_END_OF_HEAD)

    def eof_received(self) -> bool | None:
        # Flush now, since the loop may close the connection next.
        self._writes.flush()
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeper.gates.discard(self)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._stalled_until = self._loop.time() + self._bounds.body_timeout_s
        self._inner.pause_writing()
        if self._writes.reads is not None:
            self._writes.reads.stall(is_stalled=True)

    def resume_writing(self) -> None:
        self._stalled_until = inf
        self._inner.resume_writing()
        if self._writes.reads is not None:
            self._writes.reads.stall(is_stalled=False)

    # -- from the application

    def take(self, scope: Scope, receive: Receive) -> Receive:
        """Note that the application takes the request. Returns the `receive` that it must use."""
        self._running += 1
        self._until = inf
        if scope["type"] == "websocket":
            self._state = State.SOCKET
            return receive
        if self._state is not State.CLOSING:
            self._state = State.TAKEN
        length = _length(scope["headers"])
        self._is_streamed = kind_of(scope) in NDJSON
        # It is unknown where the head ended of a request that arrived before the last one was answered.
        self._length = length if self._is_new or length == 0 else None
        self._is_read = length == 0
        if not self._is_new:
            self._count = 0
        self._is_new = False
        if self._length is not None:
            return receive

        async def noting() -> Message:
            message = await receive()
            self._is_read = not message.get("more_body", False)
            return message

        return noting

    def answered(self) -> None:
        """Note that the application has finished a request."""
        self._running -= 1
        if self._running or self._state is not State.TAKEN:
            return
        if self._is_new:  # the next one is complete already
            self._wait(TAKEN_WITHIN_S)
        elif self._length is None:
            if self._is_read:
                self._await_head(ahead=0)
            else:
                self._close()
        elif self._length <= self._count:
            self._await_head(ahead=self._count - self._length)
        elif self._length - self._count > LINGER_BYTES:
            self._close()
        else:
            self._state = State.REST
            self._count = self._length - self._count
            self._wait(self._bounds.body_timeout_s)

    # -- from the clock

    def expire(self) -> None:
        if self._transport.is_closing() or self._stalled_until < inf or self._state is State.CLOSING:
            self._transport.abort()
        elif self._state is State.TAKEN:
            self._refuse(MalformedBody("The server could not parse the request."))
        elif self._state is State.HEAD and self._count:
            seconds = self._bounds.head_timeout_s
            self._refuse(RequestTimeout(f"The head of the request did not arrive within {seconds:g} s."))
        elif self._state is State.HEAD:
            self._transport.close()
        else:
            self._close()

    def _await_head(self, *, ahead: int) -> None:
        self._state = State.HEAD
        self._count, self._tail = min(ahead, 1), b""
        self._wait(self._bounds.head_timeout_s if ahead else self._bounds.idle_s)

    def _wait(self, seconds: float) -> None:
        self._until = self._loop.time() + seconds

    def _refuse(self, error: ServiceError) -> None:
        self._transport.write(_answer(error))
        self._close()

    def _close(self) -> None:
        """Close once the client has read everything: closing with unread input would reset the connection."""
        self._state = State.CLOSING
        self._count = 0
        self._wait(LINGER_S)
        if self._transport.is_closing():
            return  # the client has disconnected; uvloop would raise
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()


@final
class Announced:
    """The outermost ASGI middleware: tells the connection's gate when a request is taken and answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = _gate.get()
        if gate is None or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        receive = gate.take(scope, receive)
        try:
            await self._app(scope, receive, send)
        finally:
            gate.answered()


def _stream(transport: asyncio.BaseTransport | JoinedWrites) -> asyncio.Transport:
    """Narrow the type: the protocol of a stream gets a stream transport, although uvloop's do not inherit the class."""
    return cast(asyncio.Transport, transport)


def _after_blank_lines(data: bytes) -> int:
    """Where the head begins: empty lines may precede it."""
    return len(data) - len(data.lstrip(b"\r\n"))


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The length of a request's body; None if it is not declared."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
        if name == b"transfer-encoding":
            return None
    return 0


def _answer(error: ServiceError) -> bytes:
    """The response for a connection that is about to be closed."""
    instance = f"{getrandbits(64):016x}"
    body = to_json(document_of(error, instance))
    lines = [
        f"HTTP/1.1 {error.status} {_REASONS[error.status]}",
        f"content-type: {PROBLEM_JSON}",
        f"content-length: {len(body)}",
        f"x-request-id: {instance}",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "connection: close",
    ]
    if error.retry_after_s is not None:
        lines.append(f"retry-after: {error.retry_after_s}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
