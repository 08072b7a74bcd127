"""JSON pointers: where in a document something is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def json_pointer(parts: Sequence[str | int]) -> str:
    """RFC 6901."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def place(document: Any, location: Sequence[str | int]) -> str:
    """The pointer to a location of pydantic's, whose tags of unions are no part of the document."""
    parts: list[int | str] = []
    for i, part in enumerate(location):
        if isinstance(document, dict) and (part in document or i == len(location) - 1):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int):
            document = document[part]
        else:
            continue
        parts.append(part)
    return json_pointer(parts)
