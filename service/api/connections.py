"""Bounds on connections: what a client may send before the application is called, and how long it may take.

The server calls the application when the head of a request is complete. Until then ASGI sees nothing of it, so a protocol in
front of the server's own has to refuse a head of 300 MB, or one that never ends. It finds where heads and bodies end, learns
from `ConnectionMiddleware` when a request is taken and answered, and closes connections that send too much or take too long.
The server sees a request only when the one before it is answered: it would begin one behind a body that nobody read, and
could not answer it.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from random import getrandbits
from typing import Any, Final, Protocol, cast, final

from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from okl.errors import HeadTooLarge, MalformedBody, Overloaded, RequestTimeout, ServiceError

from .body_ends import Body, body_of
from .heads import without_offers
from .joined_writes import JoinedWrites
from .problems import PROBLEM_JSON, document_of
from .socket_reads import SocketReads

LOOK_S: Final = 0.25
TAKEN_WITHIN_S: Final = 2.0
"""The server takes a request as soon as its head is complete; otherwise it has dropped the request without an answer."""

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 16 << 20
"""A connection that is about to be closed is read for this long, so that the client can read the error."""

AHEAD_BYTES: Final = 64 << 10
"""With so many bytes behind a request that is not answered yet, or not taken, the connection is read no further."""

_END_OF_HEAD: Final = b"\r\n\r\n"

_REASONS: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Bounds on the connections of one worker."""

    connections: int = 1_000
    head_bytes: int = 32 << 10
    head_timeout_s: float = 10.0
    idle_s: float = 15.0
    body_timeout_s: float = 30.0


class ServerProtocol(Protocol):
    """The server's factory for the protocol of a connection."""

    def __call__(
        self, *, config: Any, server_state: Any, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None
    ) -> asyncio.Protocol: ...


class ConnectionState(Enum):
    HEAD = auto()  # a head is arriving, or the connection is idle
    TAKEN = auto()  # a head is complete; its request is being answered
    REST = auto()  # answered; the rest of its body is still arriving
    SOCKET = auto()  # upgraded to a websocket: no more requests
    CLOSING = auto()  # incoming data is discarded


@final
class ConnectionLimiter:
    """Makes the connections of one worker, as the `http` of a `uvicorn.Config`, and closes those that are overdue."""

    def __init__(self, bounds: ConnectionBounds, make: ServerProtocol) -> None:
        self.bounds = bounds
        self.open: set[BoundedConnection] = set()
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
        if len(self.open) >= self.bounds.connections:
            return RefusedConnection(
                Overloaded(f"This worker already has {self.bounds.connections} connections; try again.")
            )
        inner = self._make(config=config, server_state=server_state, app_state=app_state, _loop=_loop)
        return BoundedConnection(self, inner)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without connections: a worker process starts with no connections."""
        return ConnectionLimiter, (self.bounds, self._make)

    def enter(self, connection: BoundedConnection) -> None:
        self.open.add(connection)
        if not self._is_looking:
            self._is_looking = True
            self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [one for one in self.open if one.deadline <= now]:
            connection.expire()
        self._is_looking = bool(self.open)
        if self._is_looking:
            loop.call_later(LOOK_S, self._look)


@final
class RefusedConnection(asyncio.Protocol):
    """A connection beyond the limit: it gets an error, and is closed."""

    def __init__(self, error: ServiceError) -> None:
        self._error = error

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = _stream(transport)
        stream.write(_answer(self._error))
        stream.close()


_connection: ContextVar[BoundedConnection | None] = ContextVar("connection", default=None)


@final
class BoundedConnection(asyncio.Protocol):
    """One connection. Its requests are served one by one: what arrives behind a request is held until that is answered."""

    def __init__(self, limiter: ConnectionLimiter, inner: asyncio.Protocol) -> None:
        self._limiter = limiter
        self._bounds = limiter.bounds
        self._inner: Any = inner
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._state = ConnectionState.HEAD
        self._head = bytearray()
        self._given = 0
        """The bytes of the head that the server already has: at most its first line, until it is complete."""
        self._discarded = 0
        self._body: Body | None = None  # what is still to come of it, once the application has taken the request
        self._ahead = bytearray()
        self._is_held_up = False
        self._until = self._stalled_until = inf

    @property
    def deadline(self) -> float:
        """When the connection will have been too long in its current state."""
        return min(self._until, self._stalled_until)

    # -- from the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = _stream(transport)
        self._writes = JoinedWrites(self._stream, self._loop, self._linger)
        self._transport = _stream(self._writes)
        self._wait(self._bounds.head_timeout_s)
        self._limiter.enter(self)
        self._inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._writes.reads is not None:
            self._writes.reads.take(data)
        elif self._state is ConnectionState.CLOSING:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self._transport.abort()
        elif self._state is ConnectionState.HEAD:
            self._read_head(self._held() + data if self._ahead else data)
        elif self._body is not None and self._body.left:
            self._read_body(self._body, data)
        else:
            self._hold(data)

    def _read_head(self, data: bytes) -> None:
        if not self._head:
            data = data.lstrip(b"\r\n")  # empty lines may precede a head
            if not data:
                return
            self._wait(self._bounds.head_timeout_s)
        seen = len(self._head)
        self._head += data
        end = self._head.find(_END_OF_HEAD, max(0, seen + 1 - len(_END_OF_HEAD)))
        size = len(self._head) if end < 0 else end + len(_END_OF_HEAD)
        if size > self._bounds.head_bytes:
            limit = self._bounds.head_bytes
            self._refuse(HeadTooLarge(f"The head of the request has more than {limit} bytes.", limit=limit))
        elif end >= 0:
            head, rest = bytes(self._head[:size]), bytes(self._head[size:])
            self._pass_on(head)
            if rest and not self._transport.is_closing():
                self.data_received(rest)
        elif self._given == seen:
            # The first line at once, so that what is no HTTP is refused at once.
            given, self._given = self._given, self._head.find(b"\n") + 1 or size
            self._inner.data_received(bytes(self._head[given : self._given]))

    def _pass_on(self, head: bytes) -> None:
        """Let the server have a complete head."""
        given, self._given = self._given, 0
        self._head.clear()
        if head.startswith(b"CONNECT "):
            # The parser would take a body for the next request.
            self._refuse(MalformedBody("The service is not a proxy: it does not CONNECT."))
            return
        self._state, self._body = ConnectionState.TAKEN, None
        self._wait(TAKEN_WITHIN_S)
        _connection.set(self)
        self._inner.data_received(without_offers(head)[given:])
        protocol = self._transport.get_protocol()
        if protocol is not self:
            # The server has replaced us by a websocket protocol.
            self._inner = protocol
            self._transport.set_protocol(self)
            self._writes.reads = SocketReads(self._stream, self._loop, self._inner.data_received)
            self._writes.reads.await_answer()
            self._wait(LOOK_S)

    def _read_body(self, body: Body, data: bytes) -> None:
        end = body.end_in(data)
        if body.is_wasteful:
            self._transport.abort()
            return
        self._inner.data_received(data[:end])
        if end is None:
            return
        if self._state is ConnectionState.REST:
            self._await_head()
        if end < len(data):
            self.data_received(data[end:])

    def _hold(self, data: bytes) -> None:
        self._ahead += data
        # The server, which knows nothing of this, may have resumed reading.
        if len(self._ahead) > AHEAD_BYTES and self._stream.is_reading():
            self._is_held_up = True
            self._stream.pause_reading()

    def _held(self) -> bytes:
        data = bytes(self._ahead)
        self._ahead.clear()
        if self._is_held_up:
            # Before the server gets the data: it may want no more of them for now.
            self._is_held_up = False
            self._stream.resume_reading()
        return data

    def _go_on(self) -> None:
        """Read what was held."""
        if self._ahead and not self._transport.is_closing():
            self.data_received(self._held())

    def eof_received(self) -> bool | None:
        # Flush now, since the loop may close the connection next.
        self._writes.flush()
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limiter.open.discard(self)
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

    def take(self, scope: Scope) -> None:
        """Note that the application takes the request."""
        self._until = inf
        if scope["type"] == "websocket":
            self._state = ConnectionState.SOCKET
        elif self._state is ConnectionState.TAKEN:
            self._body = body_of(scope["headers"])
            # A copy: the server will add the fields of a trailer to its own, which no proxy has checked.
            scope["headers"] = [*scope["headers"]]
            self._go_on()

    def answered(self) -> None:
        """Note that the application has finished a request."""
        if self._state is not ConnectionState.TAKEN or self._body is None:
            return
        if not self._body.left:
            self._await_head()
            if self._ahead:
                # In the context of the connection, not in that of the request that was answered.
                self._loop.call_soon(self._go_on, context=self._context)
        elif self._body.left > LINGER_BYTES:
            self._close()
        else:
            self._state = ConnectionState.REST
            self._wait(self._bounds.body_timeout_s)

    # -- from the clock

    def expire(self) -> None:
        if self._transport.is_closing() or self._stalled_until < inf or self._state is ConnectionState.CLOSING:
            self._transport.abort()
        elif self._state is ConnectionState.TAKEN:
            self._refuse(MalformedBody("The server could not parse the request."))
        elif self._state is ConnectionState.HEAD and self._head:
            seconds = self._bounds.head_timeout_s
            self._refuse(RequestTimeout(f"The head of the request did not arrive within {seconds:g} s."))
        elif self._state is ConnectionState.HEAD:
            self._transport.close()
        else:
            self._close()

    def _await_head(self) -> None:
        self._state = ConnectionState.HEAD
        self._wait(self._bounds.idle_s)

    def _wait(self, seconds: float) -> None:
        self._until = self._loop.time() + seconds

    def _refuse(self, error: ServiceError) -> None:
        self._transport.write(_answer(error))
        self._close()

    def _linger(self) -> bool:
        """Close in place of the server, behind its answer, if the client is still sending a body; otherwise false."""
        has_more = self._state is ConnectionState.TAKEN and self._body is not None and self._body.left > 0
        if lingers := has_more and self._transport.can_write_eof():
            self._close()
        return lingers

    def _close(self) -> None:
        """Close once the client has read everything: closing with unread input would reset the connection."""
        self._state = ConnectionState.CLOSING
        self._wait(LINGER_S)
        if self._transport.is_closing():
            return  # the client has disconnected; uvloop would raise
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()


@final
class ConnectionMiddleware:
    """The outermost ASGI middleware: tells the connection when a request is taken and answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = _connection.get()
        if connection is None or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        connection.take(scope)
        try:
            await self._app(scope, receive, send)
        finally:
            connection.answered()


def _stream(transport: asyncio.BaseTransport | JoinedWrites) -> asyncio.Transport:
    """Narrow the type: the protocol of a stream gets a stream transport, although uvloop's do not inherit the class."""
    return cast(asyncio.Transport, transport)


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
