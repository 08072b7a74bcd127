"""Request bodies: their kind by their headers, and bounds on those in flight, on their memory together and on their time."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any, Final, final

from starlette.types import Message, Receive, Scope

from okl.errors import PayloadTooLarge, RequestTimeout, UnsupportedMediaType

BODIES_AT_A_TIME: Final = 4
"""Bodies in flight, small ones aside, may together take this many times the largest body size."""

NDJSON: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
"""Bodies of lines: the size of each line is bounded, that of the whole body is not."""


def content_type(scope: Scope) -> bytes:
    """The header Content-Type; the first one, if it is repeated, for all who ask."""
    return next((value for name, value in scope["headers"] if name == b"content-type"), b"")


def kind_of(scope: Scope) -> str:
    """The media type of a request's body, without parameters and in lower case."""
    return _kind(content_type(scope))


def check_encoding(scope: Scope) -> None:
    """Raises UnsupportedMediaType for a compressed body."""
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnsupportedMediaType(
                f"The body has the Content-Encoding {value.decode('latin-1')[:32]!r}; send it without one."
            )


def too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes; send less at once.", limit=limit)


@lru_cache(256)
def _kind(value: bytes) -> str:
    return value.decode("latin-1").partition(";")[0].strip().lower()


@final
class Bodies:
    """The bodies in flight: the memory that they hold together, and their deadlines.

    Small bodies are not counted, since their number is bounded. One timer checks all deadlines: a timer for each would cost
    4 us per request.
    """

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        self.max_bytes = max_bytes
        self.most = BODIES_AT_A_TIME * max_bytes
        self.held = 0
        self._timeout_s = timeout_s
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.AbstractEventLoop | None = None

    def deadline(self) -> float:
        """The deadline of a body that begins now."""
        loop = asyncio.get_running_loop()
        if self._watching is not loop:
            self._watching = loop
            loop.call_later(self._tick_s, self._look, loop)
        return loop.time() + self._timeout_s

    async def receive(self, receive: Receive, deadline: float) -> Message:
        """Raises RequestTimeout."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = deadline
        try:
            return await receive()
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.discard(task)
            task.uncancel()
            raise RequestTimeout(f"The body did not arrive within {self._timeout_s:g} s.") from None
        finally:
            del self._reading[task]

    @property
    def _tick_s(self) -> float:
        return min(1.0, self._timeout_s / 4)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        late = [task for task, deadline in self._reading.items() if deadline <= now and task not in self._late]
        self._late.update(late)
        for task in late:
            task.cancel()
        if self._reading:
            loop.call_later(self._tick_s, self._look, loop)
        else:
            self._watching = None
