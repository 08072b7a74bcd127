"""A stream of server-sent events as a client reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from okl.errors import ServiceError

MOST_EVENT_BYTES = 1 << 20


def events_in(parts: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those of a server-sent stream, with their ids; comments, which keep it open, are left out."""
    left, id, data = b"", "", b""
    for part in parts:
        *lines, left = (left + part).split(b"\n")
        left = _bounded(left)
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b": ")
            if name == b"id":
                id = value.decode("utf-8", "replace")
            elif name == b"data":
                data = _bounded(data + value)
            elif not name and data:
                try:
                    yield id, json.loads(data)
                except ValueError as error:
                    raise ServiceError(f"An event that is not JSON: {data[:200]!r}") from error
                data = b""


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_EVENT_BYTES:
        raise ServiceError(f"An event of more than {MOST_EVENT_BYTES} bytes.")
    return data
