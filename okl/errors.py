"""Errors of the service. Every subclass of ServiceError that reaches a client has a problem type and an HTTP status.

Stores raise StoreError; ConfigurationError keeps a process or a request from starting. docs/problems.md lists all types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self


class ServiceError(Exception):
    """An error of the service itself; its log has the details."""

    slug: ClassVar[str] = "internal-error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retry_after_s: int | None = None
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Additional headers of the answer."""

    def __init__(self, detail: str, /, **extra: Any) -> None:
        """`extra` holds the non-standard members of the problem document."""
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class SessionNotFound(ServiceError):
    """There is no session of this name: it was never created, or it was deleted."""

    slug, status, title = "session-not-found", 404, "Session not found"

    def __init__(self, session: str) -> None:
        under = f"/{session.partition('~')[0]}/challengers" if "~" in session else ""
        super().__init__(f"There is no session {session!r}; create it with POST /sessions{under}.", session=session)


class SessionExists(ServiceError):
    """A session of this name exists. Choose another name, or delete it first."""

    slug, status, title = "session-exists", 409, "Session exists"

    def __init__(self, session: str) -> None:
        super().__init__(f"Session {session!r} exists; choose another name or delete it first.", session=session)


class TemplateNotFound(ServiceError):
    """There is no template of this name. GET /templates lists those that there are."""

    slug, status, title = "template-not-found", 404, "Template not found"

    def __init__(self, template: str) -> None:
        super().__init__(f"There is no template {template!r}.", template=template)


class SessionFull(ServiceError):
    """The learner is at its memory cap. It still predicts; a budgeted learner goes on learning."""

    slug, status, title = "session-full", 409, "Session over its memory cap"


class SessionFailed(ServiceError):
    """The learner cannot learn a committed round. The session can be inspected in the log, deleted and made anew."""

    slug, status, title = "session-failed", 409, "Session failed"


class SessionFrozen(ServiceError):
    """The session is frozen: it predicts, and learns nothing. Report truths to the session that it was made from."""

    slug, status, title = "session-frozen", 409, "Session is frozen"


class SessionFollows(ServiceError):
    """The session is a challenger: it answers nobody, and learns what its champion learns. Ask the champion."""

    slug, status, title = "session-follows", 409, "Session is a challenger"


class CannotPromote(ServiceError):
    """The challenger has learned nothing yet, or what waits for its truth could not be settled with it."""

    slug, status, title = "cannot-promote", 409, "Challenger cannot be promoted"


class CannotFreeze(ServiceError):
    """There is nothing to freeze: no round yet, a warm-up, no reservoir to draw from, or a session frozen already."""

    slug, status, title = "cannot-freeze", 409, "Session cannot be frozen"


class PredictionNotFound(ServiceError):
    """No prediction of this id waits in the session. Give the id that POST /predict answered."""

    slug, status, title = "prediction-not-found", 404, "Prediction not found"


class PredictionExpired(ServiceError):
    """The prediction was cancelled, or waited too long for its truth. Report the input `x` with its `y`."""

    slug, status, title = "prediction-expired", 410, "Prediction expired"


class IdConflict(ServiceError):
    """The id was used for another input or another truth. Use a new id for each round."""

    slug, status, title = "id-conflict", 409, "Id already used"


class InvalidInput(ServiceError):
    """The request is wrong; `errors` says where and how, one {pointer, detail} for each place. Nothing changed."""

    slug, status, title = "invalid-request", 422, "Invalid request"

    @classmethod
    def at(cls, pointer: str, detail: str) -> Self:
        """The error at one place of a request; `pointer` is empty for the whole of it."""
        return cls(f"{pointer}: {detail}" if pointer else detail, errors=[{"pointer": pointer, "detail": detail}])

    def under(self, prefix: str, instead_of: str) -> InvalidInput:
        """The same error with its pointers that start with `instead_of` moved to where the part is in the whole body."""
        errors = [
            error | {"pointer": prefix + error["pointer"].removeprefix(instead_of)}
            if error["pointer"].startswith(instead_of)
            else error
            for error in self.extra["errors"]
        ]
        return type(self)("; ".join(f"{error['pointer']}: {error['detail']}" for error in errors), errors=errors)


class InvalidName(InvalidInput):
    """A session's name has letters, digits, dot, underscore and dash; 64 at most, the first a letter or digit."""

    slug, title = "invalid-name", "Invalid session name"


class NotFinite(InvalidInput):
    """NaN, Infinity, or a number too large for a double, where a finite number belongs. Nothing changed."""

    slug, title = "not-finite", "Number is not finite"


class WrongType(InvalidInput):
    """A boolean or a string where a number belongs, or the like. Nothing changed."""

    slug, title = "wrong-type", "Wrong type"


class WrongDimension(InvalidInput):
    """The input has another number of values than the session takes. Nothing changed."""

    slug, title = "wrong-dimension", "Wrong dimension"


class WrongFeatures(InvalidInput):
    """A named feature is missing, unknown, or has a category that the session's schema does not declare. Nothing changed."""

    slug, title = "wrong-features", "Wrong features"


class WrongTruth(InvalidInput):
    """The truth is none of the session's labels, or outside its range. Nothing changed."""

    slug, title = "wrong-truth", "Wrong truth"


class InvalidConfig(ServiceError):
    """The learner's config does not validate; `errors` says where. GET /learners has the schema of each kind."""

    slug, status, title = "invalid-config", 422, "Invalid learner config"


class UnknownLearner(InvalidConfig):
    """No learner of this kind; `known` lists those there are."""

    slug, title = "unknown-learner", "Unknown learner"


class NumericalFailure(ServiceError):
    """The arithmetic of the round left the range of floating point. Nothing changed; scale the inputs."""

    slug, status, title = "numerical-failure", 422, "Numerical failure"


class MalformedBody(ServiceError):
    """The body is not JSON."""

    slug, status, title = "malformed-body", 400, "Malformed body"


class PreconditionFailed(ServiceError):
    """The session is not where `If-Match` says: others have written to it. Inspect it and decide again."""

    slug, status, title = "precondition-failed", 412, "Precondition failed"


class PreconditionRequired(ServiceError):
    """The request would replace what others may have written. Say `If-Match` with the session's ETag, or `*`."""

    slug, status, title = "precondition-required", 428, "Precondition required"


class InvalidSnapshot(ServiceError):
    """The bytes are no snapshot that this service takes: damaged, of another version, or over its limits. Nothing changed."""

    slug, status, title = "invalid-snapshot", 422, "Invalid snapshot"


class CheckpointNotFound(ServiceError):
    """The session has no checkpoint of this name. GET /sessions/{session}/checkpoints lists those that it has."""

    slug, status, title = "checkpoint-not-found", 404, "Checkpoint not found"


class SessionMoving(ServiceError):
    """The session is being copied to another place. Nothing was done; try again in a moment, with the same id."""

    slug, status, title = "session-moving", 503, "Session is moving"
    retry_after_s = 1


class SessionMoved(ServiceError):
    """The session goes on elsewhere; `location` says where, if that is known. Nothing was done; send the same there."""

    slug, status, title = "session-moved", 410, "Session has moved"


class PayloadTooLarge(ServiceError):
    """The body, or the number of rounds in it, is over the limit. Send less at once."""

    slug, status, title = "payload-too-large", 413, "Payload too large"


class UnsupportedMediaType(ServiceError):
    """The body must be of a type that the route takes, and say so: mostly application/json, as `curl --json` does."""

    slug, status, title = "unsupported-media-type", 415, "Unsupported media type"


class HostNotAllowed(ServiceError):
    """The request is meant for a name that this service does not answer to. List the name in OKL_ALLOWED_HOSTS."""

    slug, status, title = "host-not-allowed", 421, "Host not allowed"


class OriginNotAllowed(ServiceError):
    """A web page of another origin sent the request. List the origin in OKL_ALLOWED_ORIGINS if it may."""

    slug, status, title = "origin-not-allowed", 403, "Origin not allowed"


class Unauthenticated(ServiceError):
    """The request has no key, or none that is valid: `Authorization: Bearer okl_...`. `okl keys create` makes one."""

    slug, status, title = "unauthenticated", 401, "Unauthenticated"
    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="okl"'})


class Forbidden(ServiceError):
    """The key is for less than this: for a lesser scope, or for other sessions, whether or not there are any."""

    slug, status, title = "forbidden", 403, "Forbidden"


class TooManyRequests(ServiceError):
    """The key has used up its rate. Wait as long as `Retry-After` says. Nothing changed."""

    slug, status, title = "too-many-requests", 429, "Too many requests"

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"The rate of this key is used up; try again in {wait_s:.3g} s.")
        self.wait_s = wait_s
        self.retry_after_s = max(1, math.ceil(wait_s))


class UriTooLong(ServiceError):
    """The path with its query is over the limit."""

    slug, status, title = "uri-too-long", 414, "URI too long"


class HeadTooLarge(ServiceError):
    """The headers of the request are over the limit, together or in number."""

    slug, status, title = "head-too-large", 431, "Request head too large"


class RequestTimeout(ServiceError):
    """The request did not arrive in time. Nothing changed; send it again."""

    slug, status, title = "request-timeout", 408, "Request timeout"


class LimitReached(ServiceError):
    """A limit is reached, on sessions, templates, keys, or on a session's waiting predictions, checkpoints or challengers."""

    slug, status, title = "limit-reached", 429, "Limit reached"


class Overloaded(ServiceError):
    """More is asked of this worker, or of this session, than it can take, or it stops. Try again, with the same id."""

    slug, status, title = "overloaded", 503, "Overloaded"
    retry_after_s = 1


class StateCorrupt(ServiceError):
    """What the store holds of this session cannot be read, or does not replay. The log has the details."""

    slug, status, title = "state-corrupt", 500, "Stored state is corrupt"


class StoreError(ServiceError):
    """The store could not do its part."""


class StoreUnavailable(StoreError):
    """The store cannot be reached. Nothing was acknowledged; try again, with the same id."""

    slug, status, title = "store-unavailable", 503, "Store unavailable"
    retry_after_s = 1


class StoreRefused(StoreUnavailable):
    """The store refuses the user or the password of this service. Nothing was acknowledged."""


class StoreTimeout(StoreError):
    """The store did not answer in time. The update may have been applied: send it again, with the same id."""

    slug, status, title = "store-timeout", 504, "Store timeout"
    retry_after_s = 1


class StoreCorrupt(StoreError):
    """What the store holds cannot be read. The log has the details."""

    slug, status, title = "state-corrupt", 500, "Stored state is corrupt"


class RouteNotFound(ServiceError):
    """There is nothing at this path; /docs lists what there is."""

    slug, status, title = "not-found", 404, "No such resource"


class MethodNotAllowed(ServiceError):
    """The path takes other methods."""

    slug, status, title = "method-not-allowed", 405, "Method not allowed"


class Unreachable(ServiceError):
    """Raised by the client: no service answers at this address, or not in time."""

    title = "Unreachable"


class DamagedArchive(ServiceError):
    """Raised by the commands that read archives: a file is none, or was damaged, or is of another version."""

    title = "Damaged archive"


class ConfigurationError(ServiceError):
    """A setting, a file or an option is wrong: raised before anything is served or sent."""

    title = "Cannot do that"


def leaves(cls: type[ServiceError]) -> list[type[ServiceError]]:
    """The class itself, if it has a type of its own, and all below it."""
    children = [leaf for child in cls.__subclasses__() for leaf in leaves(child)]
    return ([cls] if "slug" in vars(cls) and cls is not ServiceError else []) + children


def passes(error: BaseException) -> bool:
    """Whether the same request may succeed in a moment."""
    is_asked_to_wait = isinstance(error, ServiceError) and error.retry_after_s is not None
    return is_asked_to_wait or isinstance(error, Unreachable | TooManyRequests)


def stopping() -> Overloaded:
    """The error of a request that is still unanswered when the service stops."""
    return Overloaded("The service stops. It may have done this: send it again, with the same id.")


def let_go(error: BaseException | None) -> None:
    """Drop the error's tracebacks. Frames and error refer to each other, and the frames may hold a session; all of it would
    stay in memory until the garbage collector runs, which is rare."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


PROBLEMS: dict[str, type[ServiceError]] = {cls.slug: cls for cls in reversed([ServiceError, *leaves(ServiceError)])}
"""Every problem type of the service by its slug."""
