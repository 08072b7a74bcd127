"""What a client makes of a problem document."""

from __future__ import annotations

import json

from okl.errors import PROBLEMS, ServiceError


def error_of(status: int, content: bytes) -> ServiceError:
    """The exception of a problem document: the class by its type, with all members that say more than the class does."""
    try:
        document = json.loads(content)
        slug = document["type"].rpartition("/")[2]
        detail = document["detail"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(f"HTTP {status}: {content[:200].decode(errors='replace')}")
    kind = PROBLEMS.get(slug, ServiceError)
    known = ("type", "title", "status", "detail") if slug in PROBLEMS else ("detail",)
    error = kind.__new__(kind)
    ServiceError.__init__(error, str(detail), **{str(k): v for k, v in document.items() if k not in known})
    return error
