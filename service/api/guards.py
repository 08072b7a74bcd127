"""The guards in front of every route: pure ASGI, so that nothing is routed, solved or read before they have looked.

What they hold, in this order: a request id; a bound on the requests that are answered at a time; the size of the path and of
the headers; the name that the request is meant for (against DNS rebinding); the origin of the web page that sent it; the
size of the body and the time it takes. They answer HEAD where there is a GET, and their own refusals are problem documents.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from random import getrandbits
from typing import Any, Final, final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.hosts import Hosts, is_own_page, shown
from service.api.problems import REQUEST_ID, RouteNotFound, answer, log_unexpected, request_id, unexpected_problem
from service.api.slices import BodyLimits
from service.errors import (
    HeadTooLarge,
    HostNotAllowed,
    OriginNotAllowed,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
    ServiceError,
    UriTooLong,
    stopping,
)
from service.settings import Settings

MAX_URI_BYTES: Final = 8 << 10
MAX_HEADER_BYTES: Final = 16 << 10
MAX_HEADERS: Final = 100
SMALL_BYTES: Final = 64 << 10
"""Bodies of this size count for nothing: their number is bounded."""

BODIES_AT_A_TIME: Final = 4
"""The larger ones together may have the size of so many of the largest."""

VALUES_PER_INPUT: Final = 2
"""A new session says a name and a type of each input; a prediction has one value of each."""

LIMITS: Final = "okl.limits"
"""Where the guards leave the settings of a request's body in its scope."""

REFUSALS: Final[tuple[type[ServiceError], ...]] = (HostNotAllowed, OriginNotAllowed, UriTooLong, HeadTooLarge)
"""What any route may answer, for its document; their statuses are nobody else's."""

ANSWERED_UNDER_LOAD: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_NOT_STORED: Final = (b"cache-control", b"no-store")


@final
class Guards:
    """ASGI middleware: `app.add_middleware(Guards, settings=settings)`."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._max_requests = settings.max_requests
        self._limits = BodyLimits(
            body_bytes=settings.max_body_bytes,
            row_bytes=settings.max_row_bytes,
            row_values=VALUES_PER_INPUT * settings.max_dim + 4096,
            values=settings.max_values,
            batch=settings.max_batch,
        )
        self._requests = 0
        self._bodies = Bodies(settings.max_body_bytes, settings.body_timeout_s)
        hosts = Hosts(settings.host, settings.allowed_hosts)
        origins = frozenset(settings.allowed_origins)
        self._host_refusal = lru_cache(1024)(hosts.refusal)
        self._is_own_page = lru_cache(1024)(lambda origin, host: is_own_page(origin, host, origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(raw)
        given = headers.get(b"x-request-id")
        instance = given if given is not None and _REQUEST_ID.fullmatch(given) else b"%016x" % getrandbits(64)
        scope[REQUEST_ID] = instance.decode("ascii")
        scope[LIMITS] = self._limits
        refusal = self._refusal(scope, raw, headers)
        if scope["type"] != "http":
            await _converse(self._app, refusal, scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, instance)
        if refusal is not None:
            await exchange.refuse(refusal)
            return
        self._requests += 1
        try:
            announced = headers.get(b"content-length", b"0")
            if announced.isdigit() and int(announced) > self._limits.body_bytes:
                await exchange.refuse(_too_large(self._limits.body_bytes))
            else:
                if announced != b"0" or b"transfer-encoding" in headers:
                    exchange.limit(self._bodies)
                await exchange.run(self._app)
        finally:
            self._requests -= 1
            self._bodies.held -= exchange.held

    def _refusal(
        self, scope: Scope, raw: list[tuple[bytes, bytes]], headers: Mapping[bytes, bytes]
    ) -> ServiceError | None:
        """Why this request is not let in, or None."""
        if self._requests >= self._max_requests and scope["path"] not in ANSWERED_UNDER_LOAD:
            return Overloaded(f"This worker answers {self._max_requests} requests already; try again.")
        if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > MAX_URI_BYTES:
            return UriTooLong(f"The path and its query have more than {MAX_URI_BYTES} bytes.")
        if len(raw) > MAX_HEADERS or sum([len(name) + len(value) for name, value in raw]) > MAX_HEADER_BYTES:
            return HeadTooLarge(f"The headers are more than {MAX_HEADERS}, or have more than {MAX_HEADER_BYTES} bytes.")
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
                    f"A page of {shown(origin)} may not use this service; OKL_ALLOWED_ORIGINS lists those that may."
                )
        elif headers.get(b"sec-fetch-site") in _ELSEWHERE and scope.get("method", "GET") not in _SAFE:
            return OriginNotAllowed("A page of another origin may not write here.")
        return None


_ELSEWHERE: Final = (b"cross-site", b"same-site")
_SAFE: Final = ("GET", "HEAD")


def _is_repeated(name: bytes, raw: list[tuple[bytes, bytes]]) -> bool:
    return sum(found == name for found, _ in raw) > 1


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes; send less at once.", limit=limit)


@final
class Bodies:
    """The bodies under way: what they hold together, and who of them takes too long.

    Small ones count for nothing, since their number is bounded. One timer looks at all: one each would cost 4 us a request.
    """

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        self.max_bytes = max_bytes
        self.most = BODIES_AT_A_TIME * max_bytes
        self.held = 0
        self._timeout_s = timeout_s
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.AbstractEventLoop | None = None

    def deadline(self) -> float:
        """For a body that begins now."""
        loop = asyncio.get_running_loop()
        if self._watching is not loop:
            self._watching = loop
            loop.call_later(self._tick_s, self._look, loop)
        return loop.time() + self._timeout_s

    async def receive(self, receive: Receive, deadline: float) -> Message:
        """Raises RequestTimeout."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = deadline
        try:
            return await receive()
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.discard(task)
            task.uncancel()
            raise RequestTimeout(f"The body did not arrive within {self._timeout_s:g} s.") from None
        finally:
            del self._reading[task]

    @property
    def _tick_s(self) -> float:
        return min(1.0, self._timeout_s / 4)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        late = [task for task, deadline in self._reading.items() if deadline <= now and task not in self._late]
        self._late.update(late)
        for task in late:
            task.cancel()
        if self._reading:
            loop.call_later(self._tick_s, self._look, loop)
        else:
            self._watching = None


@final
class Exchange:
    """One request and its answer: the body is bounded on its way in, every answer gets our headers on its way out."""

    __slots__ = ("_instance", "_is_head", "_is_over", "_is_started", "_receive", "_refusal", "_scope", "_send", "held")

    def __init__(self, scope: Scope, receive: Receive, send: Send, instance: bytes) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._instance = instance
        self._is_head = scope["method"] == "HEAD"
        self._is_started = self._is_over = False
        self._refusal: ServiceError | None = None
        self.held = 0

    def limit(self, bodies: Bodies) -> None:
        """Bound the body that the application is going to read."""
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
            if received > SMALL_BYTES:
                self.held += size
                bodies.held += size
                if received > bodies.max_bytes:
                    self._refusal = _too_large(bodies.max_bytes)
                elif bodies.held > bodies.most:
                    self._refusal = Overloaded("Too many large requests at once; try again.")
                if self._refusal is not None:
                    raise self._refusal
            return message

        self._receive = bounded

    async def run(self, app: ASGIApp) -> None:
        # The server looks at its own scope to know that it is a HEAD.
        scope = {**self._scope, "method": "GET"} if self._is_head else self._scope
        try:
            await app(scope, self._receive, self._answer)
        except asyncio.CancelledError:
            # Only the server cancels a request from outside: it stops, and the grace is over.
            if not self._is_started:
                await self.refuse(stopping())
        except ClientDisconnect:
            pass
        except Exception as error:
            if self._is_started:
                raise
            if isinstance(error, ServiceError):
                await self.refuse(error)
            else:
                await self._write(unexpected_problem(error, self._scope))

    async def refuse(self, error: ServiceError) -> None:
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
                # The application made something else of the error that it got for its body.
                await self.refuse(self._refusal)
                self._is_over = True
                return
            self._is_started = True
            headers = [*message.get("headers", ()), (b"x-request-id", self._instance), _NO_SNIFFING]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(_NOT_STORED)
            message["headers"] = headers
        elif self._is_head:
            self._is_over = True
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)


async def _converse(app: ASGIApp, refusal: ServiceError | None, scope: Scope, receive: Receive, send: Send) -> None:
    """A websocket: let in, or refused with an answer of HTTP."""
    is_open = False

    async def answering(message: Message) -> None:
        nonlocal is_open
        if message["type"] == "websocket.accept":
            is_open = True
            instance = request_id(scope).encode("ascii")
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", instance)]
        elif message["type"] == "websocket.close" and not is_open and message.get("code", 1000) == 1000:
            # So the router answers where no route is.
            await _refuse_socket(RouteNotFound("There is no websocket at this path."), scope, send)
            return
        await send(message)

    if refusal is not None:
        await receive()
        await _refuse_socket(refusal, scope, send)
        return
    try:
        await app(scope, receive, answering)
    except asyncio.CancelledError:
        pass  # as for any request: the server stops
    except Exception as error:
        log_unexpected(error, scope)
        with suppress(Exception):  # the socket may be closed already
            await send({"type": "websocket.close", "code": 1011, "reason": "internal error"})


async def _refuse_socket(error: ServiceError, scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in scope.get("extensions", ()):
        await send({"type": "websocket.close", "code": 1008, "reason": error.title})
        return
    response = answer(error, scope)
    headers = [*response.raw_headers, (b"x-request-id", request_id(scope).encode("ascii")), _NO_SNIFFING, _NOT_STORED]
    await send({"type": "websocket.http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})
