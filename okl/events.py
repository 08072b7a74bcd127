"""A client-side parser of server-sent events."""

from __future__ import annotations

import json
from typing import Any, final

from okl.errors import ServiceError
from okl.problems import NO_JSON

MOST_EVENT_BYTES = 1 << 20

Event = tuple[str, dict[str, Any]]
"""Its id and its data."""


@final
class EventReader:
    """Incremental parser. It skips comments, which only keep the connection open."""

    def __init__(self) -> None:
        self._left, self._id, self._data = b"", "", b""

    def read(self, part: bytes) -> list[tuple[str, dict[str, Any]]]:
        """The events completed by this part, as (id, data). Raises ServiceError for malformed or oversized ones."""
        events: list[tuple[str, dict[str, Any]]] = []
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
                    events.append((self._id, json.loads(self._data)))
                except NO_JSON as error:
                    raise ServiceError(f"An event that is not JSON: {self._data[:200]!r}") from error
                self._data = b""
        return events


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_EVENT_BYTES:
        raise ServiceError(f"An event of more than {MOST_EVENT_BYTES} bytes.")
    return data
