"""Errors as problem documents (RFC 9457): one shape for every error, and never more than 8 KiB."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Scope

from okl.errors import (
    InvalidInput,
    InvalidName,
    MalformedBody,
    MethodNotAllowed,
    NotFinite,
    RouteNotFound,
    ServiceError,
    WrongDimension,
    WrongType,
    leaves,
    let_go,
)
from okl.values import json_pointer
from okl_core.contract.wrong_fields import in_words, unknown_field

from ..pointers import WrongMember, invalid
from ..telemetry.counts import Counts
from .patterns import REQUIRED

log = logging.getLogger("okl.http")

PROBLEM_JSON = "application/problem+json"
REQUEST_ID = "okl.request_id"
"""Key of the request's scope under which the request checks leave its id."""

COUNTS = "okl.counts"
"""Key under which they leave the worker's counts."""

FIRST_TRY = "<first try>"
"""The tag of the union member that was tried first, in an error's location. The error of another member follows it."""

MAX_BYTES = 8 << 10
MAX_ERRORS = 10
MAX_COUNTED = 100
"""If a body has more errors than this, only their number is reported."""

MAX_TEXT, MAX_POINTER, MAX_DETAIL = 300, 200, 600
LISTED = 3
"""How many of the errors the document's `detail` repeats."""

NEAR = 0.75
"""Least similarity, as difflib computes it, of a path that is suggested in place of an unknown one."""


def responses(*kinds: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries for the errors that a route may answer."""
    by_status: dict[int | str, list[type[ServiceError]]] = {}
    for kind in kinds:
        for leaf in [kind] if kind is ServiceError else leaves(kind):
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
    return _members(kind.slug, kind.title, kind.status, kind.__doc__ or kind.title, "9f86d081884c7d65")


def operation_id(route: APIRoute) -> str:
    """The name of the endpoint's function, as `generate_unique_id_function`; generated clients call it that too."""
    return route.name


def request_id(scope: Scope) -> str:
    """The id of a request, generated now if the request checks have not set it."""
    return scope.get(REQUEST_ID) or scope.setdefault(REQUEST_ID, secrets.token_hex(8))


def answer(error: ServiceError, scope: Scope) -> Response:
    """The response to a request that failed with this error."""
    return _response(document_for(error, scope), error.status, headers_of(error))


def headers_of(error: ServiceError) -> dict[str, str]:
    """The error's additional response headers."""
    retry = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return retry | dict(error.headers)


def document_for(error: ServiceError, scope: Scope) -> dict[str, Any]:
    """The problem document of this error, which is also counted, and logged if it is a server error."""
    instance = request_id(scope)
    _count(error.slug, scope)
    if error.status >= 500:
        level = logging.ERROR if error.retry_after_s is None else logging.WARNING
        log.log(level, error.title, extra={"path": scope["path"], "detail": error.detail, "instance": instance})
    let_go(error)
    return document_of(error, instance)


def _count(slug: str, scope: Scope) -> None:
    counts: Counts | None = scope.get(COUNTS)
    if counts is not None:
        counts.problems[slug] = counts.problems.get(slug, 0) + 1


def document_of(error: ServiceError, instance: str) -> dict[str, Any]:
    """The error's problem document, cut to at most MAX_BYTES."""
    return _bounded(_members(error.slug, error.title, error.status, error.detail, instance) | error.extra)


def _members(slug: str, title: str, status: int, detail: str, instance: str) -> dict[str, Any]:
    return {"type": f"/problems/{slug}", "title": title, "status": status, "detail": detail, "instance": instance}


def _response(document: dict[str, Any], status: int, headers: Mapping[str, str]) -> Response:
    return Response(_json(document), status, dict(headers), media_type=PROBLEM_JSON)


def _json(document: Any) -> bytes:
    return to_json(document, inf_nan_mode="null", fallback=str)


def _bounded(document: dict[str, Any]) -> dict[str, Any]:
    document = document | {"detail": cut(str(document["detail"]), MAX_DETAIL)}
    if "errors" in document:
        document["errors"] = [
            {"pointer": cut(str(error["pointer"]), MAX_POINTER), "detail": cut(str(error["detail"]), MAX_TEXT)}
            for error in document["errors"][:MAX_ERRORS]
        ]
    while len(_json(document)) > MAX_BYTES:
        # A character may take six bytes in JSON. Remove repeated errors first, then the members that the type adds.
        extra = [name for name in document if name not in _STANDARD]
        if len(document.get("errors", ())) > 1:
            document["errors"].pop()
        elif extra:
            del document[max(extra, key=lambda name: len(_json(document[name])))]
        else:
            document["detail"] = cut(document["detail"], MAX_TEXT)
    return document


_STANDARD = frozenset({"type", "title", "status", "detail", "instance"})


def cut(text: str, length: int) -> str:
    """The text, with its middle cut out if it is longer than `length`."""
    if len(text) <= length:
        return text
    end = length // 4
    return f"{text[: length - end - 1]}…{text[-end:]}"


def unexpected_problem(error: Exception, scope: Scope) -> Response:
    """The response to an unexpected error: the client gets no details, the log gets all of them."""
    return _response(unexpected_document(error, scope), ServiceError.status, {})


def unexpected_document(error: Exception, scope: Scope) -> dict[str, Any]:
    instance = log_unexpected(error, scope)
    _count(ServiceError.slug, scope)
    detail = "Something went wrong here; the log of the service has the details."
    return _members(ServiceError.slug, ServiceError.title, ServiceError.status, detail, instance)


def log_unexpected(error: Exception, scope: Scope) -> str:
    """Log an unexpected error. Returns the request's id, under which the log has it."""
    instance = request_id(scope)
    log.error("unexpected error", exc_info=error, extra={"path": scope["path"], "instance": instance})
    return instance


def validation_problem(error: ValidationError, model: type[BaseModel]) -> ServiceError:
    """The service's error for a body that does not validate as this model."""
    count = error.error_count()
    if count > MAX_COUNTED:  # listing them all would take seconds
        detail = f"{count:,} places are wrong, too many to list"
        return InvalidInput(f"In the body {detail}.", errors=[{"pointer": "", "detail": detail}])
    return from_validation(error.errors(include_url=False, include_input=False), model=model)


def from_validation(found: Sequence[Any], prefix: int = 0, model: type[BaseModel] | None = None) -> ServiceError:
    """The service's error for pydantic's errors in a body of `model`; the first `prefix` parts of a location are dropped."""
    for item in found:
        if item["type"] == "json_invalid":
            return not_json(str(item.get("ctx", {}).get("error", item["msg"])))
    found = [item for item in found if item["loc"][-1:] != (FIRST_TRY,)]
    wrong = [{"pointer": _pointer(_place(item)[prefix:]), "detail": _say(item, model)} for item in found[:MAX_COUNTED]]
    kinds = {_kind(item, entry["pointer"]) for item, entry in zip(found[:MAX_COUNTED], wrong, strict=True)}
    # Errors of different types are just an invalid request.
    kind = kinds.pop() if len(kinds) == 1 else InvalidInput
    return kind(_listed(wrong), errors=wrong[:MAX_ERRORS])


def not_json(reason: str, what: str = "body") -> ServiceError:
    """The service's error for a body that the JSON parser could not read; `reason` is the parser's message."""
    if reason.startswith(_TOO_LONG_A_NUMBER):
        return invalid("", reason.replace(_TOO_LONG_A_NUMBER, "has a number too large for a double", 1), NotFinite)
    return MalformedBody(f"The {what} is not JSON: {reason}.")


_TOO_LONG_A_NUMBER = "number out of range"
"""The parser's message for an integer of more than 4,300 digits, which it does not read: that takes quadratic time."""


def _listed(errors: Sequence[Mapping[str, str]]) -> str:
    """The first errors with their places, as one sentence."""
    text = "; ".join(
        f"{cut(error['pointer'], MAX_POINTER) or 'the body'}: {error['detail']}" for error in errors[:LISTED]
    )
    return text if len(errors) <= LISTED else f"{text}; and {len(errors) - LISTED} more"


def _kind(item: Any, pointer: str) -> type[InvalidInput]:
    """The service's error type for one of pydantic's errors."""
    if item["type"] in ("string_pattern_mismatch", "string_type") and _OF_A_NAME.fullmatch(pointer):
        return InvalidName
    if item["type"] == "too_short" and item["loc"][-1] == "<list>":
        return WrongDimension
    return _KINDS.get(item["type"], InvalidInput)


_OF_A_NAME = re.compile(r"/name|/session|/sessions/\d+(/session)?")
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


def _place(item: Any) -> tuple[int | str, ...]:
    """Where one of pydantic's errors is."""
    error = item.get("ctx", {}).get("error")
    return (*item["loc"], error.member) if isinstance(error, WrongMember) else item["loc"]


def _pointer(location: Sequence[int | str]) -> str:
    """The JSON pointer of a location, without the tags of unions, which are not part of the body."""
    return json_pointer(
        [cut(str(part), MAX_POINTER) for part in location if not (isinstance(part, str) and part.startswith("<"))]
    )


def _say(item: Any, model: type[BaseModel] | None) -> str:
    """The message for one of pydantic's errors, to follow the field's pointer."""
    if item["type"] == "extra_forbidden" and model is not None:
        return cut(unknown_field(model, item["loc"]), MAX_TEXT)
    if item["type"] == "string_pattern_mismatch" and (required := REQUIRED.get(item["ctx"]["pattern"])):
        return required
    return cut(in_words(item), MAX_TEXT)


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem document."""

    async def service_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return answer(error, request.scope)

    async def validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(from_validation(error.errors(), prefix=1), request.scope)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _http_problem(error, request)

    async def gone(request: Request, error: Exception) -> Response:
        """Return a placeholder: the client has disconnected and reads no answer."""
        return Response(status_code=400)

    async def unexpected(request: Request, error: Exception) -> Response:
        return unexpected_problem(error, request.scope)

    app.add_exception_handler(ServiceError, service_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, unexpected)


def _http_problem(error: HTTPException, request: Request) -> Response:
    """Map the framework's errors to our types. An error that a dependency raised keeps its status, detail and headers."""
    phrase = _phrase(error.status_code)
    if error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        found = answer(MethodNotAllowed(f"{cut(request.url.path, MAX_POINTER)} takes {allowed}."), request.scope)
        found.headers["Allow"] = allowed
        return found
    if error.status_code == 404 and error.detail == phrase:
        path, near = cut(request.url.path, MAX_POINTER), _near(request)
        fix = f"did you mean {cut(near, MAX_POINTER)}?" if near else "see /docs."
        return answer(RouteNotFound(f"There is nothing at {path}; {fix}"), request.scope)
    instance = request_id(request.scope)
    document = {"type": "about:blank", "title": phrase, "status": error.status_code, "instance": instance}
    return _response(_bounded(document | {"detail": error.detail}), error.status_code, error.headers or {})


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _methods(request: Request) -> set[str]:
    """The methods of all routes at this path; the router reports only those of the first route."""
    path = _path(request)
    found: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        if route.methods and route.path is not None and _regex(route.path).match(path):
            found |= route.methods
    return found | {"HEAD"} if "GET" in found else found


def _near(request: Request) -> str | None:
    """A path like this one at which there is a route: without its last slash, or spelt a little differently."""
    path = _path(request)
    routes = [route.path for route in iter_route_contexts(request.app.routes) if route.path is not None]
    short = path.rstrip("/")
    if short != path and any(_regex(route).match(short) for route in routes):
        return short
    whole = [route for route in routes if "{" not in route]
    return next(iter(get_close_matches(path[:MAX_POINTER], whole, n=1, cutoff=NEAR)), None)


def _path(request: Request) -> str:
    return request.scope["path"].removeprefix(request.scope.get("root_path", ""))


@lru_cache(256)
def _regex(path: str) -> re.Pattern[str]:
    return compile_path(path)[0]
