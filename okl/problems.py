"""Conversion of problem documents to exceptions."""

from __future__ import annotations

import json
import re
from typing import Final

from okl.errors import PROBLEMS, PayloadTooLarge, ServiceError, SessionNotFound, TooManyRequests, Unreachable

NO_TYPE: Final = "about:blank"
"""Type of a problem that says no more than its status."""

NO_JSON: Final = (ValueError, RecursionError)
"""Errors of `json.loads` for what is not JSON, or nested too deep."""

_SECONDS: Final = re.compile(r"[0-9]{1,9}")

OF_A_BALANCER: Final = {
    413: PayloadTooLarge,
    429: TooManyRequests,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}
"""Exceptions for answers without a problem type of the service, which come from a proxy or load balancer."""


def no_service(answer: object) -> ServiceError:
    """The error for an answer that has the form of none of this service's."""
    return ServiceError(f"This is no okl service, it answers {repr(answer)[:200]}")


def error_of(status: int, content: bytes, retry_after: str | None = None) -> ServiceError:
    """The exception for a problem document: its class follows from the type, `extra` holds the non-standard members.

    `retry_after`: the answer's header of that name.
    """
    try:
        document = json.loads(content)
        where, _, slug = document["type"].rpartition("/")
        detail = document["detail"]
    except (*NO_JSON, KeyError, TypeError, AttributeError):
        document, where, slug, detail = {}, "", NO_TYPE, f"HTTP {status}: {content[:200].decode(errors='replace')}"
    # A type that a newer service has is no proxy's.
    of_status = None if where.endswith("problems") else OF_A_BALANCER.get(status)
    kind = PROBLEMS.get(slug) or of_status or ServiceError
    known = ("type", "title", "status", "detail") if slug in PROBLEMS else ("detail",)
    error = kind.__new__(kind)
    if kind is SessionNotFound:
        detail = f"{detail}{_creation(str(document.get('session', '')))}"
    ServiceError.__init__(error, str(detail), **{str(k): v for k, v in document.items() if k not in known})
    if retry_after is not None and _SECONDS.fullmatch(retry_after):
        error.retry_after_s = int(retry_after)
    return error


def _creation(session: str) -> str:
    """What creates a missing session in Python; the service itself tells the route."""
    champion, _, challenger = session.partition("~")
    call = f"attach({champion!r}, {challenger!r}, ...)" if challenger else f"create({session!r}, ...)"
    return f" In Python: client.{call}." if session else ""
