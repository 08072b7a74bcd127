"""JSON pointers: where in a document something is, or is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from okl.errors import InvalidConfig


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


def invalid_config(learner: dict[str, Any], wrong: Sequence[tuple[Sequence[str | int], str]]) -> InvalidConfig:
    """The error of (path, what is wrong) pairs in the learner of a new session."""
    errors = [{"pointer": "/learner" + place(learner, path), "detail": told} for path, told in wrong]
    return InvalidConfig("; ".join(f"{entry['pointer']}: {entry['detail']}" for entry in errors), errors=errors)
