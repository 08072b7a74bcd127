"""Where the body of a request ends in the bytes of its connection."""

from __future__ import annotations

import re
from math import inf
from typing import Final, Protocol, final

MOST_OF_A_LINE: Final = 8 << 10
"""The longest line between chunks: the server refuses a longer one."""

MOST_FRAMES: Final = 2
"""The frames of chunks may have this many times the bytes of their content, beyond FREE_FRAMES: a chunk takes about 3 us."""

FREE_FRAMES: Final = 64 << 10

_LENGTH: Final = re.compile(rb"[0-9A-Fa-f]+")
"""Python's `int` takes more, such as a sign: a negative length would lead backwards, for ever."""


class Body(Protocol):
    """What is still to come of a body."""

    @property
    def left(self) -> float:
        """The number of bytes, infinite if unknown."""
        ...

    @property
    def is_wasteful(self) -> bool:
        """Whether it takes much more work than its content would."""
        ...

    def end_in(self, data: bytes) -> int | None:
        """The length of the body's part in the data; None if all of them belong to it, and more are to come."""
        ...


def length_in(value: bytes) -> int:
    """The number in a `Content-Length`, which may begin with any number of zeros; Python converts 4,300 digits at most."""
    return int(value.strip(b" \t").lstrip(b"0") or b"0")


def body_of(headers: list[tuple[bytes, bytes]]) -> Body:
    """The body that a request announces."""
    for name, value in headers:
        if name == b"content-length":
            return Counted(length_in(value))
        if name == b"transfer-encoding":
            return Chunks()
    return Counted(0)


@final
class Counted:
    """A body of an announced length."""

    is_wasteful = False

    def __init__(self, length: int) -> None:
        self.left = length

    def end_in(self, data: bytes) -> int | None:
        end = self.left
        self.left = max(0, end - len(data))
        return None if self.left else end


@final
class Chunks:
    """A chunked body (RFC 9112, section 7.1): a line with a length, that many bytes, and so on until a length of 0; then the
    lines of the trailer, of which the last one is empty. The server refuses what is malformed; it has no end here."""

    def __init__(self) -> None:
        self._skip = self._content = self._frames = 0
        self._line = b""
        self._is_trailer = self._is_malformed = self._is_over = False

    @property
    def left(self) -> float:
        return 0 if self._is_over else inf

    @property
    def is_wasteful(self) -> bool:
        return self._frames > MOST_FRAMES * self._content + FREE_FRAMES

    def end_in(self, data: bytes) -> int | None:
        at = 0
        while not (self._is_over or self._is_malformed):
            at, self._skip = min(len(data), at + self._skip), max(0, at + self._skip - len(data))
            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                self._is_malformed = len(self._line) > MOST_OF_A_LINE
                return None
            self._read(self._line + data[at:end])
            self._line, at = b"", end + 1
        return at if self._is_over else None

    def _read(self, line: bytes) -> None:
        self._frames += len(line) + len(b"\n\r\n")
        if self._is_trailer:
            self._is_over = not line.rstrip(b"\r")
            return
        digits = line.partition(b";")[0].strip()
        self._is_malformed = not _LENGTH.fullmatch(digits)
        if self._is_malformed:
            return
        length = int(digits, 16)
        self._is_trailer = length == 0
        self._content += length
        self._skip = length + len(b"\r\n") if length else 0
