"""What comes on a socket, handed on for some milliseconds at a time.

Its frames are a client's, and may be without a byte: a quarter of a megabyte of them, which comes at once, takes half a
second to read. And each ping is answered, whether or not the client takes the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

SLICE_BYTES: Final = 4 << 10
TURN_S: Final = 0.005
"""So long at most a socket has its turn, one slice more or less, before others have theirs."""


@final
class SocketReads:
    """Reads of one socket. Nothing is read while some of what has come is not handed on yet, while the server has paused it,
    or while the client takes no answers."""

    def __init__(
        self, stream: asyncio.Transport, loop: asyncio.AbstractEventLoop, hand_on: Callable[[bytes], None]
    ) -> None:
        self._stream = stream
        self._loop = loop
        self._hand_on = hand_on
        self._data = b""
        self._at = 0
        """Up to where the data were handed on."""
        self._is_due = self._is_paused = self._is_stalled = False
        self._is_reading = True

    def take(self, data: bytes) -> None:
        """Hand it on, now or later."""
        self._data, self._at = self._data[self._at :] + data, 0
        if not self._is_due:
            self._go_on()

    def pause_reading(self) -> None:
        """As the server asks its transport."""
        self._is_paused = True
        self._look()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._look()

    def stall(self, *, is_stalled: bool) -> None:
        """The client takes no answers, or takes them again."""
        self._is_stalled = is_stalled
        self._look()

    @property
    def _is_held(self) -> bool:
        return self._is_paused or self._is_stalled

    def _go_on(self) -> None:
        self._is_due = False
        until = self._loop.time() + TURN_S
        while self._at < len(self._data) and not self._is_held and not self._stream.is_closing():
            piece = self._data[self._at : self._at + SLICE_BYTES]
            self._at += len(piece)
            self._hand_on(piece)
            if self._loop.time() >= until:
                break
        self._look()

    def _look(self) -> None:
        """Read on, or hand on later what is left."""
        if self._stream.is_closing():
            self._data, self._at = b"", 0
            return
        has_more = self._at < len(self._data)
        if has_more and not self._is_held and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._go_on)
        shall_read = not (has_more or self._is_held)
        if shall_read is not self._is_reading:
            self._is_reading = shall_read
            (self._stream.resume_reading if shall_read else self._stream.pause_reading)()
