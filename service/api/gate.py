"""A gate between a connection and the server's protocol: it bounds what comes before an application is asked.

The server hands over a request when its head is complete. Until then nothing of ASGI sees it, so a head of 300 MB, or one
that never ends, is the gate's to refuse. It counts bytes up to the empty line that ends a head, knows from `Announced` when
a request is taken and when it is answered, and closes what takes too much or too long. It parses nothing.
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
"""A server takes a request at once when its head is complete; if it does not, it has dropped it without an answer."""

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 16 << 20
"""A connection that is to be closed is read from for so long, so that the client gets to read why."""

AHEAD_BYTES: Final = 1 << 20
"""What may come behind a request that is not answered yet: the next ones."""

_END_OF_HEAD: Final = b"\r\n\r\n"
_REASONS: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class GateBounds:
    """What one worker takes of its connections."""

    connections: int = 1_000
    head_bytes: int = 32 << 10
    head_timeout_s: float = 10.0
    idle_s: float = 15.0
    body_bytes: int = 8 << 20
    body_timeout_s: float = 30.0


class ServerProtocol(Protocol):
    """How the server makes the protocol of a connection."""

    def __call__(
        self, *, config: Any, server_state: Any, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None
    ) -> asyncio.Protocol: ...


class State(Enum):
    HEAD = auto()  # a head is coming, or the connection is idle
    TAKEN = auto()  # a head is complete; its request is being answered
    REST = auto()  # answered; what is left of its body is still coming
    SOCKET = auto()  # a websocket: no requests any more
    CLOSING = auto()  # what comes is thrown away


@final
class Gatekeeper:
    """Makes the gates of one worker, as the `http` of a `uvicorn.Config`; looks now and then who takes too long."""

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
            return Refusal(Overloaded(f"This worker has {self.bounds.connections} connections already; try again."))
        inner = self._make(config=config, server_state=server_state, app_state=app_state, _loop=_loop)
        return Gate(self, inner)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process begins with no connections."""
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
    """A connection too many: it is told so, and closed."""

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
        """Bytes of the head so far, or behind the head, or of the body that are still to come."""
        self._tail = b""
        self._is_new = False  # a head is complete, and the application does not know of it yet
        self._running = 0
        self._length: int | None = 0  # of the body that belongs to `_count`; None where nobody can tell
        self._is_read = True
        self._is_streamed = False  # the body is read as it comes; the server holds it up
        self._until = self._stalled_until = inf

    @property
    def deadline(self) -> float:
        """When it has taken too long in its present state."""
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
            # The server has put a protocol of websockets in our place.
            self._inner = protocol
            self._transport.set_protocol(self)
            self._writes.reads = SocketReads(self._stream, self._loop, self._inner.data_received)
            self._wait(LOOK_S)

    def _read_head(self, data: bytes) -> bool:
        """Is this to be handed on?"""
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
        # The loop may close the connection now.
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
        """The application has the request. Returns what it shall receive with."""
        self._running += 1
        self._until = inf
        if scope["type"] == "websocket":
            self._state = State.SOCKET
            return receive
        if self._state is not State.CLOSING:
            self._state = State.TAKEN
        length = _length(scope["headers"])
        self._is_streamed = kind_of(scope) in NDJSON
        # Of a request that came before the last one was answered, nobody knows where its head ended.
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
        """The application is done with a request."""
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
            self._refuse(MalformedBody("The server could not make a request of this."))
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
        """Close when the client has read all: a connection that is closed with something unread is reset."""
        self._state = State.CLOSING
        self._count = 0
        self._wait(LINGER_S)
        if self._transport.is_closing():
            return  # the client has left, and uvloop raises
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()


@final
class Announced:
    """ASGI middleware outside of everything: tells the gate of a connection when a request is taken and answered."""

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
    """A stream's transport, as its protocol knows; those of uvloop are so in all but their class."""
    return cast(asyncio.Transport, transport)


def _after_blank_lines(data: bytes) -> int:
    """A head may have empty lines before it."""
    return len(data) - len(data.lstrip(b"\r\n"))


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """Of a request's body; None where it does not say."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
        if name == b"transfer-encoding":
            return None
    return 0


def _answer(error: ServiceError) -> bytes:
    """An answer for a connection that is going to be closed."""
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
