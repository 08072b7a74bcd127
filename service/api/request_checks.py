"""The checks in front of every route: pure ASGI, so that nothing is routed, solved or read before them.

In this order they handle: the request id; the number of requests in flight; the size of the path and of the headers; the
Host header (against DNS rebinding); the origin of the web page that sent the request; the size of the body and the time that
it takes. They answer HEAD for every GET route, and refuse requests with problem documents.

They count every request, continue its trace, and log it if the settings ask for that.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from random import getrandbits
from time import perf_counter
from typing import Final, final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from okl.errors import (
    HeadTooLarge,
    HostNotAllowed,
    OriginNotAllowed,
    Overloaded,
    RequestTimeout,
    RouteNotFound,
    ServiceError,
    UriTooLong,
    stopping,
)

from ..settings import Settings
from ..telemetry.counts import Counts
from ..trace import current, trace_of
from .bodies import NDJSON, Bodies, kind_of, too_large
from .body_ends import length_in
from .hosts import Hosts, is_own_page, shown
from .problems import COUNTS, REQUEST_ID, answer, log_unexpected, request_id, unexpected_problem
from .route_templates import RouteTemplates, method_of
from .slices import BodyLimits

log = logging.getLogger("okl.http")

MAX_URI_BYTES: Final = 8 << 10
MAX_HEADER_BYTES: Final = 16 << 10
MAX_HEADERS: Final = 100
SMALL_BYTES: Final = 64 << 10
"""Bodies up to this size are not counted towards the memory bound, since their number is bounded."""

VALUES_PER_INPUT: Final = 2
"""A new session declares a name and a type for each input; a prediction has one value for each."""

LIMITS: Final = "okl.limits"
"""Key of the request's scope under which the checks leave its BodyLimits."""

REFUSALS: Final[tuple[type[ServiceError], ...]] = (HostNotAllowed, OriginNotAllowed, UriTooLong, HeadTooLarge)
"""Errors that any route may answer, for the OpenAPI document; no other error has their statuses."""

ANSWERED_UNDER_LOAD: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_NOT_STORED: Final = (b"cache-control", b"no-store")
SWITCHING, FAILED = 101, 500


@final
class RequestChecks:
    """ASGI middleware: `app.add_middleware(RequestChecks, settings=settings)`; `counts` are the worker's."""

    def __init__(self, app: ASGIApp, settings: Settings, counts: Counts | None = None) -> None:
        self._app = app
        self._counts = counts or Counts()
        self._is_logged = settings.log_requests
        self._templates = RouteTemplates()
        self._max_requests = settings.max_requests
        self._limits = BodyLimits(
            body_bytes=settings.max_body_bytes,
            row_bytes=settings.max_row_bytes,
            row_values=VALUES_PER_INPUT * settings.max_dim + 4096,
            values=settings.max_values,
            batch=settings.max_batch,
        )
        self._bodies = Bodies(settings.max_body_bytes, settings.body_timeout_s)
        hosts = Hosts(settings.host, settings.allowed_hosts)
        origins = frozenset(settings.allowed_origins)
        self._host_refusal = lru_cache(1024)(hosts.refusal)
        self._is_own_page = lru_cache(1024)(lambda origin, host: is_own_page(origin, host, origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(raw)
        given = headers.get(b"x-request-id")
        instance = given if given is not None and _REQUEST_ID.fullmatch(given) else b"%016x" % getrandbits(64)
        scope[REQUEST_ID] = instance.decode("ascii")
        scope[LIMITS] = self._limits
        scope[COUNTS] = self._counts
        parent = _traceparent(raw, headers)
        refusal = self._refusal(scope, raw, headers)
        if scope["type"] != "http":
            status = await _converse(self._app, refusal, scope, receive, send)
            self._counts.answered("WEBSOCKET", self._templates.of(scope), status, perf_counter() - started)
            return
        exchange = Exchange(scope, receive, send, instance, parent)
        is_taken = refusal is None
        self._counts.open_requests += is_taken
        try:
            if refusal is not None:
                await exchange.refuse(refusal)
                return
            announced = headers.get(b"content-length", b"0")
            if kind_of(scope) in NDJSON:
                exchange.stream(self._bodies)
                await exchange.run(self._app)
            elif announced.isdigit() and length_in(announced) > self._limits.body_bytes:
                await exchange.refuse(too_large(self._limits.body_bytes))
            else:
                if announced != b"0" or b"transfer-encoding" in headers:
                    exchange.limit(self._bodies)
                await exchange.run(self._app)
        finally:
            self._counts.open_requests -= is_taken
            self._bodies.held -= exchange.held
            self._note(exchange, started)

    def _note(self, exchange: Exchange, started: float) -> None:
        """Count a finished request, and log it."""
        scope, now = exchange.scope, perf_counter()
        began = (exchange.began or now) - started
        self._counts.answered(method_of(scope), self._templates.of(scope), exchange.status, began)
        if self._is_logged:
            path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "backslashreplace")
            facts = {
                "method": scope["method"],
                "path": path,
                "status": exchange.status,
                "ms": round(1e3 * (now - started), 2),
                "bytes": exchange.size,
                "instance": request_id(scope),
            }
            log.info("request", extra=facts)

    def _refusal(
        self, scope: Scope, raw: list[tuple[bytes, bytes]], headers: Mapping[bytes, bytes]
    ) -> ServiceError | None:
        """Why this request is refused, or None."""
        if self._counts.open_requests >= self._max_requests and scope["path"] not in ANSWERED_UNDER_LOAD:
            return Overloaded(f"This worker is already answering {self._max_requests} requests; try again.")
        if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > MAX_URI_BYTES:
            return UriTooLong(f"The path and its query have more than {MAX_URI_BYTES} bytes.")
        if len(raw) > MAX_HEADERS or sum([len(name) + len(value) for name, value in raw]) > MAX_HEADER_BYTES:
            return HeadTooLarge(f"There are more than {MAX_HEADERS} headers, or they exceed {MAX_HEADER_BYTES} bytes.")
        host = headers.get(b"host", b"")
        if len(headers) < len(raw) and _is_repeated(b"host", raw):
            return HostNotAllowed("The request names more than one host.")
        if host or scope.get("http_version") != "1.0":
            refusal = self._host_refusal(host)
            if refusal is not None:
                return HostNotAllowed(refusal)
        origin = headers.get(b"origin")
        if origin is not None:
            if not self._is_own_page(origin, host) or (len(headers) < len(raw) and _is_repeated(b"origin", raw)):
                return OriginNotAllowed(
                    f"A page of {shown(origin)} may not use this service; OKL_ALLOWED_ORIGINS lists the origins that may."
                )
        elif headers.get(b"sec-fetch-site") in _ELSEWHERE and scope.get("method", "GET") not in _SAFE:
            return OriginNotAllowed("A page of another origin may not write here.")
        return None


def _traceparent(raw: list[tuple[bytes, bytes]], headers: Mapping[bytes, bytes]) -> bytes | None:
    """Enter the trace that the request names. Returns the header, or None if it is missing or invalid."""
    given = headers.get(b"traceparent")
    if given is None or (len(headers) < len(raw) and _is_repeated(b"traceparent", raw)):
        return None
    trace = trace_of(given)
    if trace is None:
        return None
    current.set(trace)
    return given


_ELSEWHERE: Final = (b"cross-site", b"same-site")
_SAFE: Final = ("GET", "HEAD")


def _is_repeated(name: bytes, raw: list[tuple[bytes, bytes]]) -> bool:
    return sum(found == name for found, _ in raw) > 1


@final
class Exchange:
    """One request and its answer: bounds the body on its way in, and adds our headers to the answer on its way out."""

    __slots__ = (
        "_instance",
        "_is_head",
        "_is_over",
        "_parent",
        "_receive",
        "_refusal",
        "_routed",
        "_scope",
        "_send",
        "began",
        "held",
        "size",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, instance: bytes, parent: bytes | None) -> None:
        self._scope = self._routed = scope
        self._parent = parent
        self._receive = receive
        self._send = send
        self._instance = instance
        self._is_head = scope["method"] == "HEAD"
        self._is_over = False
        self._refusal: ServiceError | None = None
        self.held = self.size = self.status = 0
        self.began = 0.0

    @property
    def scope(self) -> Scope:
        """The scope as the router has left it, with the original method."""
        return self._scope if self._routed is self._scope else {**self._routed, "method": "HEAD"}

    def limit(self, bodies: Bodies) -> None:
        """Bound the size of the body, and the time to receive it."""
        receive = self._receive
        deadline = bodies.deadline()
        received = 0
        is_whole = False

        async def bounded() -> Message:
            nonlocal received, is_whole
            if is_whole:
                return await receive()
            if self._refusal is not None:
                raise self._refusal
            try:
                message = await bodies.receive(receive, deadline)
            except RequestTimeout as error:
                self._refusal = error
                raise
            is_whole = not message.get("more_body", False)
            size = len(message.get("body", b""))
            received += size
            if received > bodies.max_bytes:
                self._refusal = too_large(bodies.max_bytes)
            elif received > SMALL_BYTES:
                self.held += size
                bodies.held += size
                if bodies.held > bodies.most:
                    self._refusal = Overloaded("Too many large requests at once; try again.")
            if self._refusal is not None:
                raise self._refusal
            return message

        self._receive = bounded

    def stream(self, bodies: Bodies) -> None:
        """Bound the time to receive each piece of a body of lines, which is read as it arrives."""
        receive = self._receive

        async def in_time() -> Message:
            return await bodies.receive(receive, bodies.deadline())

        self._receive = in_time

    async def run(self, app: ASGIApp) -> None:
        # A copy: the server looks at its own scope to see that this is a HEAD.
        if self._is_head:
            self._routed = {**self._scope, "method": "GET"}
        try:
            await app(self._routed, self._receive, self._answer)
        except asyncio.CancelledError:
            # Only the server cancels a request from outside: it is stopping, and the grace period is over.
            if not self.status:
                await self.refuse(stopping())
        except ClientDisconnect:
            pass
        except Exception as error:
            if self.status:
                raise
            if isinstance(error, ServiceError):
                await self.refuse(error)
            else:
                await self._write(unexpected_problem(error, self._scope))

    async def refuse(self, error: ServiceError) -> None:
        count_refusal(error, self._scope)
        await self._write(answer(error, self._scope))

    async def _write(self, response: Response) -> None:
        self._refusal = None
        status, headers = response.status_code, response.raw_headers
        await self._answer({"type": "http.response.start", "status": status, "headers": headers})
        await self._answer({"type": "http.response.body", "body": response.body})

    async def _answer(self, message: Message) -> None:
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            if self._refusal is not None:
                # The application turned the error that reading the body raised into another answer.
                await self.refuse(self._refusal)
                self._is_over = True
                return
            self.status, self.began = message["status"], perf_counter()
            headers = [*message.get("headers", ()), (b"x-request-id", self._instance), _NO_SNIFFING]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(_NOT_STORED)
            if self._parent is not None:
                headers.append((b"traceparent", self._parent))
            message["headers"] = headers
        elif self._is_head:
            self._is_over = True
            message = {"type": "http.response.body", "body": b""}
        else:
            self.size += len(message.get("body", b""))
        await self._send(message)


def count_refusal(error: ServiceError, scope: Scope) -> None:
    refused = scope[COUNTS].refused
    refused[error.slug] = refused.get(error.slug, 0) + 1


async def _converse(app: ASGIApp, refusal: ServiceError | None, scope: Scope, receive: Receive, send: Send) -> int:
    """Serve a websocket, or refuse it with an HTTP response. Returns the status: 101 if it was accepted, 0 if unanswered."""
    is_open = False
    status = 0

    async def answering(message: Message) -> None:
        nonlocal is_open, status
        if message["type"] == "websocket.accept":
            is_open, status = True, SWITCHING
            instance = request_id(scope).encode("ascii")
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", instance)]
        elif message["type"] == "websocket.http.response.start":
            # FastAPI's handlers answer most errors, and know nothing of these headers.
            status, message["headers"] = message["status"], _with_own(message.get("headers", ()), scope)
        elif message["type"] == "websocket.close" and not is_open and message.get("code", 1000) == 1000:
            # This is how the router answers when no route matches.
            missing = RouteNotFound("There is no websocket at this path.")
            status = missing.status
            await refuse_socket(missing, scope, send)
            return
        await send(message)

    if refusal is not None:
        await receive()
        count_refusal(refusal, scope)
        await refuse_socket(refusal, scope, send)
        return refusal.status
    try:
        await app(scope, receive, answering)
    except asyncio.CancelledError:
        pass  # as for any request: the server is stopping
    except ServiceError as error:
        if not is_open:
            status = error.status
            count_refusal(error, scope)
            await refuse_socket(error, scope, send)
    except Exception as error:
        log_unexpected(error, scope)
        status = status or FAILED
        with suppress(Exception):  # the socket may be closed already
            await send({"type": "websocket.close", "code": 1011, "reason": "internal error"})
    return status


async def refuse_socket(error: ServiceError, scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in scope.get("extensions", ()):
        await send({"type": "websocket.close", "code": 1008, "reason": error.title})
        return
    response = answer(error, scope)
    headers = _with_own(response.raw_headers, scope)
    await send({"type": "websocket.http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})


def _with_own(headers: Iterable[tuple[bytes, bytes]], scope: Scope) -> list[tuple[bytes, bytes]]:
    """The headers of an answer to a handshake, and ours, each once."""
    given = [*headers]
    names = {name for name, _ in given}
    own = ((b"x-request-id", request_id(scope).encode("ascii")), _NO_SNIFFING, _NOT_STORED)
    return given + [one for one in own if one[0] not in names]
