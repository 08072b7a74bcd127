"""Errors as problem documents (RFC 9457): one shape for every error, whoever raised it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.errors import (
    InvalidInput,
    InvalidName,
    MalformedBody,
    NotFinite,
    ServiceError,
    WrongDimension,
    WrongFeatures,
    WrongType,
)

log = logging.getLogger("okl.http")

PROBLEM_JSON = "application/problem+json"


def _leaves(cls: type[ServiceError]) -> list[type[ServiceError]]:
    children = [leaf for child in cls.__subclasses__() for leaf in _leaves(child)]
    return ([cls] if cls.slug != ServiceError.slug else []) + children


class RouteNotFound(ServiceError):
    """There is nothing at this path; /docs lists what there is."""

    slug, status, title = "not-found", 404, "No such resource"


class MethodNotAllowed(ServiceError):
    """The path takes other methods."""

    slug, status, title = "method-not-allowed", 405, "Method not allowed"


PROBLEMS: dict[str, type[ServiceError]] = {cls.slug: cls for cls in reversed([ServiceError, *_leaves(ServiceError)])}
"""Every problem type of the service by its slug."""


def responses(*kinds: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of the errors that a route may answer."""
    by_status: dict[int | str, list[type[ServiceError]]] = {}
    for kind in kinds:
        for leaf in [kind] if kind is ServiceError else _leaves(kind):
            by_status.setdefault(leaf.status, []).append(leaf)
    return {
        status: {
            "description": "; ".join(f"{kind.title} (`/problems/{kind.slug}`)" for kind in group),
            "content": {
                PROBLEM_JSON: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": {kind.slug: {"value": _example(kind)} for kind in group},
                }
            },
        }
        for status, group in by_status.items()
    }


def _example(kind: type[ServiceError]) -> dict[str, Any]:
    return {
        "type": f"/problems/{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": kind.__doc__,
        "instance": "9f86d081884c7d65",
    }


def problem(error: ServiceError, request: Request) -> Response:
    """The answer that tells a client of this error."""
    document = {
        "type": f"/problems/{error.slug}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "instance": request.headers.get("x-request-id") or secrets.token_hex(8),
        **error.extra,
    }
    if error.status >= 500:
        level = logging.ERROR if error.retry_after_s is None else logging.WARNING
        log.log(
            level,
            error.title,
            extra={"path": request.url.path, "detail": error.detail, "instance": document["instance"]},
        )
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return Response(to_json(document), error.status, headers, media_type=PROBLEM_JSON)


def unexpected_problem(error: Exception, request: Request) -> Response:
    """The answer to an error that nobody raised on purpose: the client learns nothing of it, the log everything."""
    log.error("unexpected error", exc_info=error, extra={"path": request.url.path})
    return problem(ServiceError("Something went wrong here; the log of the service has the details."), request)


def from_validation(found: Sequence[Any], prefix: int = 0) -> ServiceError:
    """The service's error for pydantic's; `prefix` parts of each location are not in the body."""
    for item in found:
        if item["type"] == "json_invalid":
            return MalformedBody(f"The body is not JSON: {item.get('ctx', {}).get('error', item['msg'])}.")
    wrong = [{"pointer": _pointer(item["loc"][prefix:]), "detail": _say(item)} for item in found]
    listed = "; ".join(f"{entry['pointer'] or 'the body'}: {entry['detail']}" for entry in wrong)
    kinds = {_kind(item, entry["pointer"]) for item, entry in zip(found, wrong, strict=True)}
    kind = kinds.pop() if len(kinds) == 1 else InvalidInput
    return kind(listed, errors=wrong)


def _kind(item: Any, pointer: str) -> type[InvalidInput]:
    """The type of one of pydantic's errors; several of one type keep it, different ones are just an invalid request."""
    if item["type"] in ("string_pattern_mismatch", "string_type") and pointer in ("/name", "/session"):
        return InvalidName
    if item["type"] == "too_short" and (kind := _EMPTY.get(item["loc"][-1])):
        return kind
    return _KINDS.get(item["type"], InvalidInput)


_EMPTY: dict[str | int, type[InvalidInput]] = {"<list>": WrongDimension, "<object>": WrongFeatures}
_KINDS: dict[str, type[InvalidInput]] = {
    "finite_number": NotFinite,
    "float_type": WrongType,
    "float_parsing": WrongType,
    "int_type": WrongType,
    "string_type": WrongType,
    "bool_type": WrongType,
    "scalar": WrongType,
    "input": WrongType,
}


def _pointer(location: Sequence[int | str]) -> str:
    """A JSON pointer; the tags of unions are no part of the body."""
    parts = [str(part) for part in location if not (isinstance(part, str) and part.startswith("<"))]
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def place(document: Any, location: Sequence[int | str]) -> str:
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
    return _pointer(parts)


def _say(item: Any) -> str:
    """pydantic's sentence, as one about the field."""
    message = item["msg"].removeprefix("Value error, ")
    for prefix in ("Input ", "String ", "List ", "Dictionary "):
        message = message.removeprefix(prefix)
    return message.replace("should", "must").removesuffix(" after validation, not 0")


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem document."""

    async def service_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return problem(error, request)

    async def validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(from_validation(error.errors(), prefix=1), request)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "other methods")
            answer = problem(MethodNotAllowed(f"{request.url.path} takes {allowed}."), request)
            answer.headers["Allow"] = allowed
            return answer
        return problem(RouteNotFound(f"There is nothing at {request.url.path}; see /docs."), request)

    async def unexpected(request: Request, error: Exception) -> Response:
        return unexpected_problem(error, request)

    app.add_exception_handler(ServiceError, service_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected)


def validation_problem(error: ValidationError) -> ServiceError:
    """The service's error for a body that does not validate."""
    return from_validation(error.errors(include_url=False, include_input=False))
