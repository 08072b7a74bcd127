"""uvicorn's HTTP protocol, but an answer that is complete with its first body leaves in one write.

uvicorn writes the head at `http.response.start`; for a short answer that is a second system call, and a second packet
that wakes the client. ASGI has a server wait for the first body. Where the length is announced that is not long in
coming; a head without a length begins a stream and is written at once, since its first event may be a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, final

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

_ENDS = (b"connection", b"transfer-encoding")
"""Headers that say how an answer ends."""


@final
class _Cycle(RequestResponseCycle):
    """`_start` is the head that waits for the first body."""

    _start: Any = None

    async def send(self, message: Any) -> None:
        start = self._start
        if start is not None and message["type"] == "http.response.body":
            self._start = None
            whole = self._whole(start, message)
            if whole is None:
                await super().send(start)
                await super().send(message)
                return
            self.transport.write(whole)
            self.response_started = self.response_complete = True
            self.message_event.set()
            self.on_response()
        elif not self.response_started and _announces_length(message):
            # Not started yet: if the application fails now, uvicorn can still answer with an error.
            self._start = message
            self.waiting_for_100_continue = False
        else:
            await super().send(message)

    def _whole(self, start: Any, message: Any) -> bytes | None:
        """The bytes of the answer, or None where there is more to do than to write them."""
        if (
            message.get("more_body", False)
            or self.scope["method"] == "HEAD"
            or not self.keep_alive
            or self.access_log
            or self.disconnected
            or self.flow.write_paused
        ):
            return None
        body = message.get("body", b"")
        head = _head(start["status"], (*self.default_headers, *start["headers"]), b"%d" % len(body))
        return None if head is None else head + body


def _announces_length(message: Any) -> bool:
    if message["type"] == "http.response.start":
        for name, _ in message.get("headers", ()):
            if name == b"content-length":
                return True
    return False


def _head(status: int, headers: Iterable[tuple[bytes, bytes]], length: bytes) -> bytes | None:
    """None for a head that uvicorn would refuse, or has to understand."""
    lines = [STATUS_LINE[status]]
    for name, value in headers:
        line = _line(name, value)
        if line is None or (name == b"content-length" and value != length):
            return None
        lines.append(line)
    lines.append(b"\r\n")
    return b"".join(lines)


@lru_cache(1024)
def _line(name: bytes, value: bytes) -> bytes | None:
    lower = name.lower()
    if lower in _ENDS or HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        return None
    return lower + b": " + value + b"\r\n"


@final
class HttpProtocol(HttpToolsProtocol):
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # uvicorn names the class of its cycles in the middle of the method that reads a request's head.
        cycle.__class__ = _Cycle
        super()._start_asgi_task(cycle, app)
