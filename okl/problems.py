"""Conversion of problem documents to exceptions."""

from __future__ import annotations

import json
from typing import Final

from okl.errors import PROBLEMS, PayloadTooLarge, ServiceError, TooManyRequests, Unreachable

NO_TYPE: Final = "about:blank"
"""Type of a problem that says no more than its status."""

OF_A_BALANCER: Final = {
    413: PayloadTooLarge,
    429: TooManyRequests,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}
"""Exceptions for answers without a problem type, which come from a proxy or load balancer."""


def error_of(status: int, content: bytes) -> ServiceError:
    """The exception for a problem document: its class follows from the type, `extra` holds the non-standard members."""
    try:
        document = json.loads(content)
        slug = document["type"].rpartition("/")[2]
        detail = document["detail"]
    except (ValueError, KeyError, TypeError, AttributeError):
        document, slug, detail = {}, NO_TYPE, f"HTTP {status}: {content[:200].decode(errors='replace')}"
    kind = (OF_A_BALANCER.get(status) if slug == NO_TYPE else PROBLEMS.get(slug)) or ServiceError
    known = ("type", "title", "status", "detail") if slug in PROBLEMS else ("detail",)
    error = kind.__new__(kind)
    ServiceError.__init__(error, str(detail), **{str(k): v for k, v in document.items() if k not in known})
    return error
