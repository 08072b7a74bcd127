"""Reads of a socket, passed to the server for a few milliseconds at a time.

A client may send empty frames: a quarter of a megabyte of them, received at once, takes half a second to parse. Each ping is
answered, too, whether or not the client reads the answers. Frames may even be sent before the handshake is answered: the
server would answer the ping first, and fail at a close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

SLICE_BYTES: Final = 4 << 10
TURN_S: Final = 0.005
"""How long one socket is processed, give or take a slice, before others get their turn."""


@final
class SocketReads:
    """Reads of one socket. Nothing is read while received data is waiting to be passed on, while the server has paused
    reading or has not answered the handshake, or while the client does not read its answers."""

    def __init__(
        self, stream: asyncio.Transport, loop: asyncio.AbstractEventLoop, hand_on: Callable[[bytes], None]
    ) -> None:
        self._stream = stream
        self._loop = loop
        self._hand_on = hand_on
        self._data = b""
        self._at = 0
        """How many bytes of `_data` have been passed on."""
        self._is_due = self._is_early = self._is_paused = self._is_stalled = False
        self._is_reading = True

    def take(self, data: bytes) -> None:
        """Pass the data on, now or later."""
        self._data, self._at = self._data[self._at :] + data, 0
        if not self._is_due:
            self._go_on()

    def await_answer(self) -> None:
        """Pass nothing on until the server has written something, its answer to the handshake."""
        self._is_early = True
        self._look()

    def note_write(self) -> None:
        """Note that the server has written something."""
        if self._is_early:
            self._is_early = False
            self._look()

    def pause_reading(self) -> None:
        """Pause; the server calls this as it would on a transport."""
        self._is_paused = True
        self._look()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._look()

    def stall(self, *, is_stalled: bool) -> None:
        """Note that the client has stopped reading its answers, or reads them again."""
        self._is_stalled = is_stalled
        self._look()

    @property
    def _is_held(self) -> bool:
        return self._is_early or self._is_paused or self._is_stalled

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
        """Resume or pause reading, and schedule what is left to be passed on."""
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
