"""NDJSON bodies that are read as they arrive, and answers that are written while the body is still arriving."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Final, final

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from okl.errors import PayloadTooLarge

from .bodies import NDJSON, kind_of
from .slices import BodyLimits

MEDIA_TYPE: Final = "application/x-ndjson"

_NEXT: Final = re.compile(rb"\}[ \t\r]*,[ \t\r]*\{")
"""The text between two objects on one line."""

_BLANKS: Final = re.compile(rb"\n\s*\n")
"""Blank lines, and the newline before them."""

SHORT: Final = 8
"""Mean bytes of a line below which most lines are blank: a message has more."""

MOST_BLANK: Final = 65_536
"""Bytes of blank lines in a row. Without a bound a connection could keep the worker busy with what no rate counts."""


class KindRoute(APIRoute):
    """A route for bodies of certain media types; other routes at the same path take the rest."""

    kinds: ClassVar[frozenset[str]]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or kind_of(scope) not in self.kinds:
            return Match.NONE, {}
        return super().matches(scope)


class LinesRoute(KindRoute):
    kinds = NDJSON


@final
class Streamed(Response):
    """An answer in parts. It does not listen for the client's disconnect, since the body may still be being read."""

    def __init__(self, parts: AsyncGenerator[bytes]) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._parts) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def lines_of(receive: Receive, limits: BodyLimits) -> AsyncGenerator[list[bytes]]:
    """Yield lines as soon as they are complete, without blank ones; the last line may lack its newline.

    Raises PayloadTooLarge for a line of more bytes than one input may have, or for more than MOST_BLANK bytes without a line,
    after the lines before it were yielded; ClientDisconnect if the body breaks off, whose incomplete last line is dropped.
    """
    parts: list[bytes] = []
    size = blank = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        data, is_last = message.get("body", b""), not message.get("more_body", False)
        head, end, rest = data.rpartition(b"\n")
        if end or is_last:
            whole = b"".join([*parts, head, end, rest] if is_last else [*parts, head])
            lines, is_too_long = _lines(whole, limits)
            parts, size = [], 0
            blank += len(whole)
            if lines:
                blank = 0
                yield lines
            if blank > MOST_BLANK:
                raise PayloadTooLarge(f"More than {MOST_BLANK} bytes of blank lines in a row.", limit=MOST_BLANK)
            if is_too_long:
                raise _too_long(limits.row_bytes)
        if is_last:
            return
        parts.append(rest)
        size += len(rest)
        if size > limits.row_bytes:
            raise _too_long(limits.row_bytes)


def as_array(lines: Sequence[bytes]) -> bytes | None:
    """The lines as one JSON array, which parses faster than the lines one by one; None if a line may have several objects.

    Malformed lines may join to valid objects: `{"x":[1]},{"x":[2` and `3]}`. But if the array has as many objects as there
    are lines, each object is a line: if a comma inserted here fell inside an object or a string, some line would have a comma
    between two objects.
    """
    array = b"[" + b"\n,".join(lines) + b"]"
    return None if _NEXT.search(array) else array


def _lines(data: bytes, limits: BodyLimits) -> tuple[list[bytes], bool]:
    """The lines before the first one that is too long, and whether there is such a line."""
    if data.count(b"\n") * SHORT > len(data):
        data = _BLANKS.sub(b"\n", data)
    lines = data.split(b"\n")
    is_too_long = max(map(len, lines)) > limits.row_bytes
    if is_too_long:
        lines = lines[: next(i for i, line in enumerate(lines) if len(line) > limits.row_bytes)]
    return [line for line in lines if line and not line.isspace()], is_too_long


def _too_long(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"A line is larger than {limit} bytes.", limit=limit)
