"""What can go wrong in the service, as a tree. Every leaf knows its problem type, status and what to do.

    ServiceError
    ├── SessionNotFound         404  session-not-found
    ├── SessionExists           409  session-exists
    ├── SessionFull             409  session-full
    ├── SessionFailed           409  session-failed
    ├── PredictionNotFound      404  prediction-not-found
    ├── PredictionExpired       410  prediction-expired
    ├── IdConflict              409  id-conflict
    ├── InvalidInput            422  invalid-request
    ├── MalformedBody           400  malformed-body
    ├── PayloadTooLarge         413  payload-too-large
    ├── LimitReached            429  limit-reached
    ├── Overloaded              503  overloaded
    ├── StateCorrupt            500  state-corrupt
    ├── StoreError
    │   ├── StoreUnavailable    503  store-unavailable
    │   ├── StoreTimeout        504  store-timeout
    │   └── StoreCorrupt        500  state-corrupt
    └── ConfigurationError      the process does not start
"""

from __future__ import annotations

from typing import Any, ClassVar


class ServiceError(Exception):
    """`extra` are the members that the problem document carries beside the standard ones."""

    slug: ClassVar[str] = "internal-error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class SessionNotFound(ServiceError):
    slug, status, title = "session-not-found", 404, "Session not found"

    def __init__(self, session: str) -> None:
        super().__init__(f"There is no session {session!r}; create it with POST /sessions.", session=session)


class SessionExists(ServiceError):
    slug, status, title = "session-exists", 409, "Session exists"

    def __init__(self, session: str) -> None:
        super().__init__(f"Session {session!r} exists; choose another name or delete it first.", session=session)


class SessionFull(ServiceError):
    slug, status, title = "session-full", 409, "Session over its memory cap"


class SessionFailed(ServiceError):
    slug, status, title = "session-failed", 409, "Session failed"


class PredictionNotFound(ServiceError):
    slug, status, title = "prediction-not-found", 404, "Prediction not found"


class PredictionExpired(ServiceError):
    slug, status, title = "prediction-expired", 410, "Prediction expired"


class IdConflict(ServiceError):
    slug, status, title = "id-conflict", 409, "Id already used for another input"


class InvalidInput(ServiceError):
    slug, status, title = "invalid-request", 422, "Invalid request"


class MalformedBody(ServiceError):
    slug, status, title = "malformed-body", 400, "Malformed body"


class PayloadTooLarge(ServiceError):
    slug, status, title = "payload-too-large", 413, "Payload too large"


class LimitReached(ServiceError):
    slug, status, title = "limit-reached", 429, "Limit reached"
    retry_after_s = 1


class Overloaded(ServiceError):
    slug, status, title = "overloaded", 503, "Overloaded"
    retry_after_s = 1


class StateCorrupt(ServiceError):
    slug, status, title = "state-corrupt", 500, "Stored state is corrupt"


class StoreError(ServiceError):
    """The store could not do its part."""


class StoreUnavailable(StoreError):
    slug, status, title = "store-unavailable", 503, "Store unavailable"
    retry_after_s = 1


class StoreTimeout(StoreError):
    slug, status, title = "store-timeout", 504, "Store timeout"
    retry_after_s = 1


class StoreCorrupt(StoreError):
    slug, status, title = "state-corrupt", 500, "Stored state is corrupt"


class ConfigurationError(ServiceError):
    """A setting is wrong: raised before anything is served."""
