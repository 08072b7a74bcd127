"""Nothing goes around the request checks: no route, no method, no error, no socket."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.routing import iter_route_contexts
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from okl.errors import PROBLEMS, InvalidInput
from service.api import problems, routes
from service.api.problems import MAX_ERRORS
from service.api.request_checks import RequestChecks
from service.app import ROUTERS, create_app
from service.settings import Settings
from tests.service.checked_app import (
    PLAIN,
    Wire,
    ask,
    nothing_to_say,
    problem_of,
    scope_of,
    small_app,
)

pytestmark = pytest.mark.anyio


async def test_head_is_answered_where_get_is() -> None:
    app = small_app()
    for path in ("/thing", "/nowhere", "/store", "/fails?how=401", "/openapi.json"):
        get, head = [await ask(app, method, path, headers={"x-request-id": "a"}) for method in ("GET", "HEAD")]
        assert head.status_code == get.status_code
        assert head.content == b""
        assert head.headers == get.headers
    response = await asyncio.wait_for(ask(app, "HEAD", "/events"), 5)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "methods"), [("/thing", "DELETE, GET, HEAD"), ("/predict", "POST"), ("/sessions/s/predict", "POST")]
)
async def test_another_method_is_told_all_that_there_are(path: str, methods: str) -> None:
    for method in ("PATCH", "OPTIONS", "TRACE"):
        response = await ask(PLAIN, method, path)
        problem_of(response, 405, "method-not-allowed")
        assert response.headers["allow"] == methods


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 429, 499, 503])
async def test_an_error_of_a_dependency_keeps_its_status(status: int) -> None:
    response = await ask(PLAIN, "GET", f"/fails?how={status}")
    document = problem_of(response, status)
    assert document["detail"] == "because of that"
    assert document["status"] == status
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_fault_is_logged_once_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    response = await ask(small_app(), "GET", "/fails?how=500")
    problem_of(response, 500, "internal-error")
    assert "secret" not in response.text
    (record,) = caplog.records
    assert record.name == "okl.http"
    assert record.exc_info
    assert vars(record)["instance"] == response.headers["x-request-id"]


def huge(count: int, text: str) -> InvalidInput:
    errors = [{"pointer": "/" + text, "detail": text} for _ in range(count)]
    return InvalidInput(
        "; ".join(f"{one['pointer']}: {one['detail']}" for one in errors), errors=errors, known=[text] * 9
    )


@pytest.mark.parametrize("text", ["a" * 10_000, "\x00" * 10_000, "é" * 10_000, "\U0001f600" * 10_000, '"\\' * 5000])
async def test_a_problem_has_a_size(text: str) -> None:
    app = small_app()

    @app.get("/huge")
    async def route() -> Response:
        raise huge(50, text)

    document = problem_of(await ask(app, "GET", "/huge"), 422, "invalid-request")
    assert 1 <= len(document["errors"]) <= MAX_ERRORS
    for error in document["errors"]:
        assert len(error["detail"]) <= 300
        assert len(error["pointer"]) <= 200


class Refuses:
    """A middleware of somebody else, added when the app is made."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await Response("no", 401)(scope, receive, send)


def unauthorized() -> None:
    raise HTTPException(401, "no", {"WWW-Authenticate": "Bearer"})


def operations(app: FastAPI) -> list[tuple[str, str]]:
    found = []
    for route in iter_route_contexts(app.routes):
        path = re.sub(r"{[^}]*}", "s", route.path or "")
        found += [(method, path) for method in sorted(route.methods or ())]
    return found


SERVICE = create_app(Settings(store="sqlite://"))
REAL = operations(SERVICE)


def test_there_are_routes() -> None:
    assert {("POST", "/predict"), ("POST", "/sessions/s/rounds"), ("GET", "/sessions"), ("GET", "/")} <= set(REAL)


@pytest.mark.parametrize(("method", "path"), REAL)
async def test_another_guard_is_reached_on_every_route(method: str, path: str) -> None:
    app = create_app(Settings(store="sqlite://"))
    app.add_middleware(Refuses)
    assert (await ask(app, method, path, content=b"{}")).status_code == 401


@pytest.mark.parametrize(("method", "path"), REAL)
async def test_our_guards_are_reached_on_every_route(method: str, path: str) -> None:
    for headers, status in (
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"a": "b" * 20_000}, 431),
        ({"content-length": "99999999999"}, 413),
    ):
        response = await ask(SERVICE, method, path, headers=headers)
        assert response.status_code == status
        assert response.headers["x-request-id"]


def with_routes(*, app: Sequence[Any] = (), router: Sequence[Any] = ()) -> FastAPI:
    """The service's routes, with dependencies of the app or of the routers."""
    telemetry = {"metrics": False, "tracing": False, "logs": False}
    own = [] if router else routes.hot.routes
    found = FastAPI(dependencies=list(app), routes=own, telemetry=telemetry, docs_url=None, openapi_url=None)
    problems.install(found)
    for one in (*ROUTERS, *([routes.hot] if router else [])):
        found.include_router(one, dependencies=list(router))
    return found


OVERRIDDEN = with_routes(router=[Depends(nothing_to_say)])
OVERRIDDEN.dependency_overrides[nothing_to_say] = unauthorized
UNAUTHORIZED = (with_routes(app=[Depends(unauthorized)]), with_routes(router=[Depends(unauthorized)]), OVERRIDDEN)


@pytest.mark.parametrize("content", [b"{}", b"{", b"[" * 100_000])
@pytest.mark.parametrize(
    ("method", "path"), [one for one in REAL if not re.search("docs|openapi|redoc|static", one[1])]
)
async def test_a_dependency_is_reached_on_every_route(method: str, path: str, content: bytes) -> None:
    """Of the router or of the app, and an override of one; before anything is said of the body."""
    for one in UNAUTHORIZED:
        response = await ask(one, method, path, content=content)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"


async def test_a_websocket_is_checked_too() -> None:
    """It is refused with an answer of HTTP where the server can give one."""
    app = small_app()
    base = scope_of("GET", "/socket") | {"type": "websocket", "scheme": "ws", "subprotocols": []}
    origin = (b"origin", b"http://evil.example")
    for extensions in ({}, {"websocket.http.response": {}}):
        wire = Wire({"type": "websocket.connect"})
        scope = base | {"headers": [*base["headers"], origin], "extensions": extensions}
        await app(scope, wire.receive, wire.send)
        if extensions:
            assert wire.sent[0]["status"] == 403
            assert wire.document()["type"] == "/problems/origin-not-allowed"
        else:
            assert wire.sent == [{"type": "websocket.close", "code": 1008, "reason": "Origin not allowed"}]
    wire = Wire({"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hello"})
    await app(dict(base), wire.receive, wire.send)
    assert wire.sent[0]["type"] == "websocket.accept"
    assert dict(wire.sent[0]["headers"])[b"x-request-id"]
    assert wire.sent[1]["text"] == "hello"
    wire = Wire({"type": "websocket.connect"})
    await app(base | {"path": "/nowhere", "extensions": {"websocket.http.response": {}}}, wire.receive, wire.send)
    assert wire.document()["type"] == "/problems/not-found"


def test_every_refusal_of_the_guards_has_a_page() -> None:
    assert {"host-not-allowed", "origin-not-allowed", "uri-too-long", "head-too-large", "request-timeout"} <= set(
        PROBLEMS
    )


async def test_the_guards_cost_little() -> None:
    """Measured 7 us; a loaded machine takes longer."""

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    async def cpu_s(app: ASGIApp, count: int = 500) -> float:
        body = {"type": "http.request", "body": b"", "more_body": False}
        wires = [Wire(body.copy()) for _ in range(count)]
        scopes = [scope_of(content_length="0") for _ in range(count)]
        started = time.process_time()
        for wire, scope in zip(wires, scopes, strict=True):
            await app(scope, wire.receive, wire.send)
        return (time.process_time() - started) / count

    checked = RequestChecks(nothing, Settings())
    cost_s = min([await cpu_s(checked) for _ in range(10)]) - min([await cpu_s(nothing) for _ in range(10)])
    logging.getLogger("okl.tests").info("request checks: %.1f us a request", cost_s * 1e6)
    assert cost_s < 40e-6


def test_a_hang_up_is_an_exception_of_the_framework() -> None:
    assert issubclass(ClientDisconnect, Exception)
