"""A stream of server-sent events as a client reads it."""

from __future__ import annotations

import json
from typing import Any, final

from okl.errors import ServiceError

MOST_EVENT_BYTES = 1 << 20


@final
class EventReader:
    """What has come of a server-sent stream. Comments, which keep it open, are left out."""

    def __init__(self) -> None:
        self._left, self._id, self._data = b"", "", b""

    def read(self, part: bytes) -> list[tuple[str, dict[str, Any]]]:
        """The events that end in this part, with their ids. Raises ServiceError."""
        found: list[tuple[str, dict[str, Any]]] = []
        *lines, left = (self._left + part).split(b"\n")
        self._left = _bounded(left)
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b": ")
            if name == b"id":
                self._id = value.decode("utf-8", "replace")
            elif name == b"data":
                self._data = _bounded(self._data + value)
            elif not name and self._data:
                try:
                    found.append((self._id, json.loads(self._data)))
                except ValueError as error:
                    raise ServiceError(f"An event that is not JSON: {self._data[:200]!r}") from error
                self._data = b""
        return found


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_EVENT_BYTES:
        raise ServiceError(f"An event of more than {MOST_EVENT_BYTES} bytes.")
    return data
