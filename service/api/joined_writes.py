"""The transport that the server sees: it joins the writes of one turn of the event loop, and reads sockets in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, final

from .socket_reads import SocketReads


@final
class JoinedWrites:
    """A transport that sends everything written in one turn of the loop together.

    The server writes the head of a response and then its body; each would be a system call that wakes the client. All other
    methods of `asyncio.Transport` are the stream's.
    """

    def __init__(
        self, stream: asyncio.Transport, loop: asyncio.AbstractEventLoop, linger: Callable[[], bool] = lambda: False
    ) -> None:
        """`linger` is called before an open stream is closed; if it returns true, it closes the stream later itself."""
        self._stream = stream
        self._loop = loop
        self._linger = linger
        self._has_ended = False
        self._held: bytes | bytearray | memoryview = b""
        self.reads: SocketReads | None = None
        """Set for a websocket: the server then pauses and resumes these reads instead of the stream."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._has_ended:
            return  # as if it were closed: a body turned out to be malformed while the application was answering
        if self.reads is not None:
            self.reads.note_write()
        if self._held:
            held, self._held = self._held, b""
            self._stream.writelines([held, data])
        elif data:
            self._held = data
            self._loop.call_soon(self.flush)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        (self.reads or self._stream).pause_reading()

    def resume_reading(self) -> None:
        (self.reads or self._stream).resume_reading()

    def write_eof(self) -> None:
        self.flush()
        self._has_ended = True
        self._stream.write_eof()

    def close(self) -> None:
        self.flush()
        if self._stream.is_closing() or not self._linger():
            self._stream.close()

    def get_write_buffer_size(self) -> int:
        return len(self._held) + self._stream.get_write_buffer_size()

    def flush(self) -> None:
        """Send held data, or drop it if the connection is closing."""
        held, self._held = self._held, b""
        if held and not self._stream.is_closing():
            self._stream.write(held)
