"""The guards stand in front of every route; and a body is read the same way, whoever solves the rest of the request."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Request, WebSocket
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api import problems, routes
from service.api.body import BodyRoute, IdempotencyKey, one_id, reply
from service.api.guards import MAX_HEADER_BYTES, MAX_URI_BYTES, Guards
from service.api.problems import MAX_BYTES, MAX_ERRORS, PROBLEM_JSON, PROBLEMS
from service.app import create_app
from service.errors import InvalidInput, StoreUnavailable
from service.settings import Settings

pytestmark = pytest.mark.anyio

KIB = 1 << 10
NAME = r"^[A-Za-z0-9]{1,64}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Row = Annotated[list[Annotated[float, Field(strict=True, allow_inf_nan=False)]], Field(fail_fast=True, min_length=1)]


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    session: Name
    x: Row
    id: str | None = None


class Many(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    in_slices: ClassVar[tuple[str, ...]] = ("x", "y")
    x: list[Row] = Field(min_length=1, fail_fast=True)
    y: list[float] = Field(min_length=1, fail_fast=True)
    id: str | None = Field(default=None, max_length=4)

    @model_validator(mode="after")
    def check(self) -> Many:
        if len(self.x) != len(self.y):
            raise ValueError("`x` and `y` differ in length")
        return self


class Backend:
    calls = 0


def backend_of(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    backend.calls += 1
    return backend


BackendDep = Annotated[Backend, Depends(backend_of)]


def small_app(*dependencies: Callable[..., Any], settings: Settings | None = None, times: int = 1) -> FastAPI:
    """With a route of each kind; `dependencies` are those of a router that includes them."""
    bodies = APIRouter(route_class=BodyRoute)
    plain = APIRouter()

    @bodies.post("/predict", status_code=201)
    async def predict(body: Question, backend: BackendDep, key: IdempotencyKey) -> Response:
        return reply({"id": one_id(body.id, key), "n": len(body.x), "calls": backend.calls}, 201)

    @bodies.post("/sessions/{session}/predict")
    async def predict_in(body: Question, session: Annotated[Name, Path()], backend: BackendDep) -> dict[str, Any]:
        return {"session": session, "n": len(body.x)}

    @bodies.post("/rounds")
    async def rounds(body: Many) -> Response:
        return reply({"rounds": len(body.x), "sum": sum(map(sum, body.x)), "id": body.id})

    @plain.get("/thing", status_code=200)
    async def thing(backend: BackendDep) -> Response:
        return reply({"thing": 1})

    @plain.delete("/thing")
    async def no_thing() -> Response:
        return Response(status_code=204)

    @plain.get("/fails")
    async def fails(how: int) -> Response:
        if how == 500:
            raise RuntimeError("a secret")
        raise HTTPException(how, "because of that", {"WWW-Authenticate": "Bearer"})

    @plain.get("/events")
    async def events() -> Response:
        async def forever() -> AsyncIterator[bytes]:
            while True:
                yield b"event\n"
                await asyncio.sleep(0.01)

        return StreamingResponse(forever(), media_type="text/event-stream")

    @plain.get("/store")
    async def store() -> Response:
        raise StoreUnavailable("The store does not answer.")

    @plain.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        await socket.close()

    @plain.post("/raw")
    async def raw(request: Request) -> Response:
        return reply({"bytes": len(await request.body())})

    app = FastAPI(telemetry={"metrics": False, "tracing": False, "logs": False})
    app.state.backend = Backend()
    problems.install(app)
    for i in range(times):
        for router in (bodies, plain):
            needs = [Depends(one) for one in dependencies] if i == 0 else []
            app.include_router(router, prefix="" if i == 0 else f"/v{i}", dependencies=needs)
    app.add_middleware(Guards, settings=settings or Settings())
    return app


@asynccontextmanager
async def client(app: ASGIApp, base_url: str = "http://localhost:8000") -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base_url) as http:
        yield http


async def ask(app: ASGIApp, method: str, path: str, **request: Any) -> httpx.Response:
    async with client(app) as http:
        return await http.request(method, path, **request)


def problem_of(response: httpx.Response, status: int, slug: str | None = None) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM_JSON
    assert len(response.content) <= MAX_BYTES
    document = response.json()
    assert document["type"] == ("about:blank" if slug is None else f"/problems/{slug}")
    assert document["instance"] == response.headers["x-request-id"]
    return document


# -- every answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["abc-123", "A.b_c-9", "x" * 64, "", "x" * 65, "a b", "a=b", 'a"b', "é", "a\x1b[2J", "a,b"]
)
@pytest.mark.parametrize("path", ["/thing", "/nowhere", "/store", "/fails?how=500", "/fails?how=401"])
async def test_every_answer_has_the_id_of_its_request(given: str, path: str) -> None:
    response = await ask(small_app(), "GET", path, headers={"x-request-id": given.encode("latin-1")})
    told = response.headers.get_list("x-request-id")
    assert len(told) == 1
    if re.fullmatch("[A-Za-z0-9._-]{1,64}", given):
        assert told == [given]
    else:
        assert re.fullmatch("[0-9a-f]{16}", told[0])
    if response.headers["content-type"] == PROBLEM_JSON:
        assert response.json()["instance"] == told[0]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"


# -- names and pages --------------------------------------------------------------------------------------------------

GOOD_HOSTS = """localhost localhost:8000 127.0.0.1 127.0.0.1:8000 [::1]:8000 192.168.1.7:80 [fe80::1] okl okl:8000 LOCALHOST
    api.localhost okl.default.svc okl.default.svc.cluster.local box.local box.lan okl.internal localhost. 8.8.8.8"""
BAD_HOSTS = """evil.example evil.example:8000 127.0.0.1.evil.example localhost.evil.example notlocal.com evil.example.
    user@localhost localhost:port localhost/ 127.0.0.1:8000:1 [::1 a..b.com 0x7f.1"""


@pytest.mark.parametrize("host", GOOD_HOSTS.split())
async def test_a_host_that_no_page_of_elsewhere_can_have(host: str) -> None:
    assert (await ask(small_app(), "GET", "/thing", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", [*BAD_HOSTS.split(), "", " "])
@pytest.mark.parametrize(("method", "path"), [("GET", "/thing"), ("POST", "/predict"), ("GET", "/nowhere")])
async def test_a_foreign_host_is_refused(host: str, method: str, path: str) -> None:
    """A page of evil.example, whose name was made to resolve to this machine."""
    problem_of(await ask(small_app(), method, path, headers={"host": host}), 421, "host-not-allowed")


async def test_hosts_can_be_listed() -> None:
    app = small_app(settings=Settings(allowed_hosts=("api.example.com", "*.example.org"), host="okl.example.net"))
    for host in ("api.example.com", "API.example.com:443", "a.b.example.org", "okl.example.net"):
        assert (await ask(app, "GET", "/thing", headers={"host": host})).status_code == 200, host
    for host in ("example.com", "example.org", "evil-example.org"):
        problem_of(await ask(app, "GET", "/thing", headers={"host": host}), 421, "host-not-allowed")
    open_to_all = small_app(settings=Settings(allowed_hosts=("*",)))
    assert (await ask(open_to_all, "GET", "/thing", headers={"host": "evil.example"})).status_code == 200


async def test_a_request_names_one_host() -> None:
    headers = [("host", "localhost"), ("host", "evil.example")]
    for order in (headers, headers[::-1]):
        problem_of(await ask(small_app(), "GET", "/thing", headers=order), 421, "host-not-allowed")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("https://localhost:8000", "localhost:8000", True),
        ("http://okl", "okl", True),
        ("http://okl:80", "okl", True),
        ("https://okl", "okl:443", True),
        ("http://localhost:3000", "localhost:8000", False),
        ("http://evil.example", "localhost:8000", False),
        ("http://127.0.0.1:8000", "localhost:8000", False),
        ("null", "localhost:8000", False),
        ("", "localhost:8000", False),
        ("file://", "localhost:8000", False),
        ("http://localhost:8000.evil.example", "localhost:8000", False),
    ],
)
async def test_only_our_own_pages_may_ask(method: str, origin: str, host: str, is_own: bool) -> None:
    response = await ask(small_app(), method, "/thing", headers={"origin": origin, "host": host})
    if is_own:
        assert response.status_code != 403
    else:
        problem_of(response, 403, "origin-not-allowed")


async def test_origins_can_be_listed() -> None:
    app = small_app(settings=Settings(allowed_origins=("https://pages.example",)))
    headers = {"origin": "https://pages.example", "sec-fetch-site": "cross-site"}
    assert (await ask(app, "DELETE", "/thing", headers=headers)).status_code == 204
    problem_of(await ask(app, "GET", "/thing", headers={"origin": "http://pages.example"}), 403, "origin-not-allowed")
    twice = [("origin", "http://evil.example"), ("origin", "https://pages.example")]
    problem_of(await ask(app, "GET", "/thing", headers=twice), 403, "origin-not-allowed")


@pytest.mark.parametrize("place", ["route", "router", "include", "app"])
async def test_a_bound_that_fastapi_puts_on_a_body_holds(place: str) -> None:
    bound = {"max_body_size": 50}
    router = APIRouter(route_class=BodyRoute, **(bound if place == "router" else {}))

    @router.post("/predict", **(bound if place == "route" else {}))
    async def predict(body: Question) -> dict[str, int]:
        return {"n": len(body.x)}

    app = FastAPI(**(bound if place == "app" else {}))
    app.include_router(router, **(bound if place == "include" else {}))
    assert (await ask(app, "POST", "/predict", json={"session": "s", "x": [1.0]})).status_code == 200
    assert (await ask(app, "POST", "/predict", json={"session": "s", "x": [1.0] * 100})).status_code == 413


async def test_a_listed_page_may_send_json_and_read_the_answer() -> None:
    """A browser asks first (a preflight), and shows the page only what the answer allows."""
    app = create_app(Settings(store="sqlite://", allowed_origins=("https://pages.example",)))
    headers = {"origin": "https://pages.example"}
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,idempotency-key"}
    preflight = await ask(app, "OPTIONS", "/predict", headers=headers | asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://pages.example"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    for path, status in (("/healthz", 200), ("/nowhere", 404)):
        answer = await ask(app, "GET", path, headers=headers)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == "https://pages.example"
        assert "ETag" in answer.headers["access-control-expose-headers"]
    elsewhere = await ask(app, "OPTIONS", "/predict", headers=asked | {"origin": "https://evil.example"})
    problem_of(elsewhere, 403, "origin-not-allowed")
    assert (
        "access-control-allow-origin"
        not in (await ask(create_app(Settings(store="sqlite://")), "GET", "/healthz")).headers
    )


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_browser_that_says_where_the_page_is_from_is_believed(site: str) -> None:
    headers = {"sec-fetch-site": site}
    problem_of(await ask(small_app(), "DELETE", "/thing", headers=headers), 403, "origin-not-allowed")
    assert (await ask(small_app(), "GET", "/thing", headers=headers)).status_code == 200
    assert (await ask(small_app(), "DELETE", "/thing", headers={"sec-fetch-site": "same-origin"})).status_code == 204


# -- sizes, time, number ----------------------------------------------------------------------------------------------


async def test_a_path_has_a_size() -> None:
    app = small_app()
    for path in ("/" + "a" * MAX_URI_BYTES, "/thing?" + "a" * MAX_URI_BYTES, "/sessions/" + "n" * 60_000):
        problem_of(await ask(app, "GET", path), 414, "uri-too-long")
    assert (await ask(app, "GET", "/thing?" + "a" * 4000)).status_code == 200


async def test_headers_have_a_size() -> None:
    app = small_app()
    for headers in ({"a": "b" * MAX_HEADER_BYTES}, {f"a{i}": "b" for i in range(120)}):
        problem_of(await ask(app, "GET", "/thing", headers=headers), 431, "head-too-large")
    assert (await ask(app, "GET", "/thing", headers={"a": "b" * 8000})).status_code == 200


@pytest.mark.parametrize("path", ["/raw", "/predict", "/rounds", "/nowhere"])
async def test_a_body_has_a_size(path: str) -> None:
    """Announced, it is not read; else no more of it is read than the limit takes. Whatever the route makes of that."""
    app = small_app(settings=Settings(max_body_bytes=64 * KIB))
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield bytes(4 * KIB)

    json_type = {"content-type": "application/json"}
    announced = await ask(app, "POST", path, content=bytes(65 * KIB), headers=json_type)
    assert problem_of(announced, 413, "payload-too-large")["limit"] == 64 * KIB
    response = await ask(app, "POST", path, content=chunks(), headers=json_type)
    if path != "/nowhere":
        assert problem_of(response, 413, "payload-too-large")["limit"] == 64 * KIB
        assert sent <= 18
    for announced_length in ("10", "-1", "x", "9" * 100):
        headers = json_type | {"content-length": announced_length}
        response = await ask(app, "POST", "/raw", content=bytes(70 * KIB), headers=headers)
        problem_of(response, 413, "payload-too-large")


async def test_one_row_is_smaller_than_many() -> None:
    app = small_app(settings=Settings(max_row_bytes=KIB))
    x = [1.0] * 500
    response = await ask(app, "POST", "/predict", json={"session": "s", "x": x})
    assert problem_of(response, 413, "payload-too-large")["limit"] == KIB
    response = await ask(app, "POST", "/rounds", json={"x": [x], "y": [1.0]})
    assert response.json() == {"rounds": 1, "sum": 500.0, "id": None}


def scope_of(method: str = "POST", path: str = "/raw", **headers: str) -> Scope:
    given = {"host": "localhost", "content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8000),
    }


class Wire:
    """The server's side of one request: `received` are its messages, then silence; `sent` are the answer's."""

    def __init__(self, *received: Message) -> None:
        self.sent: list[Message] = []
        self._received = list(received)

    async def receive(self) -> Message:
        if not self._received:
            await asyncio.sleep(3600)
        return self._received.pop(0)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def document(self) -> dict[str, Any]:
        return json.loads(b"".join(message.get("body", b"") for message in self.sent))


@pytest.mark.parametrize("path", ["/raw", "/predict", "/rounds"])
async def test_a_body_has_a_time(path: str) -> None:
    """Half of it comes, then nothing."""
    app = small_app(settings=Settings(body_timeout_s=0.2))
    for headers in ({"content_length": "100"}, {"transfer_encoding": "chunked"}):
        wire = Wire({"type": "http.request", "body": b'{"x"', "more_body": True})
        started = time.monotonic()
        await app(scope_of(path=path, **headers), wire.receive, wire.send)
        assert wire.sent[0]["status"] == 408
        assert wire.document()["type"] == "/problems/request-timeout"
        assert 0.15 < time.monotonic() - started < 2.0


async def test_a_slow_body_that_is_in_time_is_read() -> None:
    app = small_app(settings=Settings(body_timeout_s=5.0))

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            await asyncio.sleep(0.02)
            yield b"abc"

    assert (await ask(app, "POST", "/raw", content=chunks())).json() == {"bytes": 15}


async def test_a_worker_answers_so_many_requests_at_a_time() -> None:
    """The further ones are told to try again, but for those that ask how the worker is."""
    app = small_app(settings=Settings(max_requests=3))

    @app.get("/healthz")
    async def healthz() -> Response:
        return reply({})

    waiting = [Wire({"type": "http.request", "body": b"", "more_body": True}) for _ in range(3)]
    tasks = [asyncio.create_task(app(scope_of(content_length="9"), one.receive, one.send)) for one in waiting]
    await asyncio.sleep(0.05)
    response = await ask(app, "GET", "/thing")
    problem_of(response, 503, "overloaded")
    assert response.headers["retry-after"] == "1"
    assert (await ask(app, "GET", "/healthz")).status_code == 200
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks)
    assert [one.sent[0]["status"] for one in waiting] == [503] * 3
    assert (await ask(app, "GET", "/thing")).status_code == 200


async def test_large_bodies_together_have_a_size() -> None:
    """Four of the largest at a time; what was held is given back."""
    app = small_app(settings=Settings(max_body_bytes=256 * KIB))
    part = {"type": "http.request", "body": bytes(250 * KIB), "more_body": True}
    waiting = [Wire(part.copy()) for _ in range(4)]
    tasks = [asyncio.create_task(app(scope_of(content_length="260000"), one.receive, one.send)) for one in waiting]
    await asyncio.sleep(0.05)
    problem_of(await ask(app, "POST", "/raw", content=bytes(200 * KIB)), 503, "overloaded")
    assert (await ask(app, "POST", "/raw", content=bytes(20 * KIB))).json() == {"bytes": 20 * KIB}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks)
    assert (await ask(app, "POST", "/raw", content=bytes(200 * KIB))).status_code == 200


async def test_a_client_that_hangs_up_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/raw", "/predict", "/rounds"):
        wire = Wire({"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"})
        app = small_app()
        await app(scope_of(path=path, content_length="100"), wire.receive, wire.send)
    assert not caplog.records


# -- methods ----------------------------------------------------------------------------------------------------------


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
        response = await ask(small_app(), method, path)
        problem_of(response, 405, "method-not-allowed")
        assert response.headers["allow"] == methods


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 429, 499, 503])
async def test_an_error_of_a_dependency_keeps_its_status(status: int) -> None:
    response = await ask(small_app(), "GET", f"/fails?how={status}")
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


# -- bodies -----------------------------------------------------------------------------------------------------------

GOOD = b'{"session": "s", "x": [1, 2.5]}'


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/vnd.a+json"],
)
async def test_json_is_taken(kind: str) -> None:
    assert (await ask(small_app(), "POST", "/predict", content=GOOD, headers={"content-type": kind})).status_code == 201


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "application/json; charset=latin-1",
        "text/json",
        "application/jsonp",
    ],
)
@pytest.mark.parametrize("path", ["/predict", "/rounds"])
async def test_what_a_page_may_send_without_asking_is_no_json(kind: str | None, path: str) -> None:
    headers = {} if kind is None else {"content-type": kind}
    document = problem_of(
        await ask(small_app(), "POST", path, content=GOOD, headers=headers), 415, "unsupported-media-type"
    )
    assert "curl --json" in document["detail"]


def _rows(count: int) -> str:
    return json.dumps([[i + 0.5, float(i)] for i in range(count)])


BODIES: dict[str, tuple[str, bytes, dict[str, str]]] = {
    "good": ("/predict", GOOD, {}),
    "good in a path": ("/sessions/s/predict", GOOD, {}),
    "a key": ("/predict", GOOD, {"idempotency-key": "k1"}),
    "a quoted key": ("/predict", GOOD, {"idempotency-key": '"k1"'}),
    "the same key": ("/predict", b'{"session": "s", "x": [1], "id": "k"}', {"idempotency-key": "k"}),
    "another key": ("/predict", b'{"session": "s", "x": [1], "id": "a"}', {"idempotency-key": "b"}),
    "a long key": ("/predict", GOOD, {"idempotency-key": "k" * 129}),
    "an empty key": ("/predict", GOOD, {"idempotency-key": ""}),
    "a key with a space": ("/predict", GOOD, {"idempotency-key": "a b"}),
    "a wrong name": ("/predict", b'{"session": "a b", "x": [1]}', {}),
    "a wrong name in the path": ("/sessions/a_b/predict", GOOD, {}),
    "a long name in the path": ("/sessions/" + "a" * 2000 + "/predict", GOOD, {}),
    "no JSON": ("/predict", b"{", {}),
    "nothing": ("/predict", b"", {}),
    "NaN": ("/predict", b'{"session": "s", "x": [NaN]}', {}),
    "an unknown member": ("/predict", b'{"session": "s", "x": [1], "y": 1}', {}),
    "a boolean": ("/predict", b'{"session": "s", "x": [1, true, true]}', {}),
    "a text for a number": ("/predict", b'{"session": "s", "x": ["1"]}', {}),
    "a list": ("/predict", b"[]", {}),
    "rounds": ("/rounds", b'{"x": [[1]], "y": [1]}', {}),
    "many rounds": ("/rounds", f'{{"x": {_rows(3000)}, "y": {[1.5] * 3000}, "id": "a"}}'.encode(), {}),
    "rounds of different lengths": ("/rounds", b'{"x": [[1]], "y": [1, 2]}', {}),
    "many of different lengths": ("/rounds", f'{{"x": {_rows(3000)}, "y": {[1.5] * 2999}}}'.encode(), {}),
    "a wrong text among many": ("/rounds", f'{{"x": {_rows(3000)}, "y": {[1.5] * 3000}, "id": "abcde"}}'.encode(), {}),
    "nothing of many": ("/rounds", f'{{"x": {_rows(3000)}}}'.encode(), {}),
}


def without_instance(response: httpx.Response) -> tuple[int, Any]:
    document = response.json()
    return response.status_code, {name: value for name, value in document.items() if name not in ("instance", "calls")}


def nothing_to_say() -> None:
    """A dependency of a router that lets all pass."""


async def nothing_in_the_end() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("name", BODIES)
async def test_both_ways_give_the_same_answers(name: str) -> None:
    """Ours, and FastAPI's where there is more to solve: a router's dependency, an override, a router that is there twice."""
    path, content, headers = BODIES[name]
    request = {"content": content, "headers": {"content-type": "application/json"} | headers}
    expected = without_instance(await ask(small_app(), "POST", path, **request))
    overridden = small_app()
    overridden.dependency_overrides[nothing_to_say] = nothing_to_say
    apps = [small_app(nothing_to_say), small_app(nothing_in_the_end), overridden, small_app(nothing_to_say, times=2)]
    for app in apps:
        assert without_instance(await ask(app, "POST", path, **request)) == expected
    assert without_instance(await ask(apps[-1], "POST", "/v1" + path, **request)) == expected


async def test_an_answer_that_is_no_response_is_json() -> None:
    for app in (small_app(), small_app(nothing_to_say)):
        response = await ask(app, "POST", "/sessions/abc/predict", json={"session": "s", "x": [1.0]})
        assert (response.status_code, response.json()) == (200, {"session": "abc", "n": 1})


async def test_what_is_refused_by_its_path_has_its_body_not_read() -> None:
    for app in (small_app(), small_app(nothing_to_say)):
        wire = Wire()
        await asyncio.wait_for(
            app(scope_of(path="/sessions/a_b/predict", content_length="9"), wire.receive, wire.send), 5
        )
        assert wire.sent[0]["status"] == 422
        assert app.state.backend.calls == 0


async def test_a_dependency_that_reads_the_body_leaves_it() -> None:
    """Such as one that checks a signature of it."""
    seen = []

    async def signed(request: Request) -> None:
        seen.append(await request.body())

    response = await ask(
        small_app(signed), "POST", "/predict", content=GOOD, headers={"content-type": "application/json"}
    )
    assert response.status_code == 201
    assert seen == [GOOD]


# -- nothing goes around ----------------------------------------------------------------------------------------------


class Refuses:
    """A guard of somebody else, added when the app is made."""

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


REAL = operations(create_app(Settings(store="sqlite://")))


def test_there_are_routes() -> None:
    assert {("POST", "/predict"), ("POST", "/sessions/s/rounds"), ("GET", "/sessions"), ("GET", "/")} <= set(REAL)


@pytest.mark.parametrize(("method", "path"), REAL)
async def test_another_guard_is_reached_on_every_route(method: str, path: str) -> None:
    app = create_app(Settings(store="sqlite://"))
    app.add_middleware(Refuses)
    assert (await ask(app, method, path, content=b"{}")).status_code == 401


@pytest.mark.parametrize(("method", "path"), REAL)
async def test_our_guards_are_reached_on_every_route(method: str, path: str) -> None:
    app = create_app(Settings(store="sqlite://"))
    for headers, status in (
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"a": "b" * 20_000}, 431),
        ({"content-length": "99999999999"}, 413),
    ):
        response = await ask(app, method, path, headers=headers)
        assert response.status_code == status
        assert response.headers["x-request-id"]


def with_routes(*, app: Sequence[Any] = (), router: Sequence[Any] = ()) -> FastAPI:
    """The service's routes, with dependencies of the app or of the routers."""
    telemetry = {"metrics": False, "tracing": False, "logs": False}
    own = [] if router else routes.hot.routes
    found = FastAPI(dependencies=list(app), routes=own, telemetry=telemetry, docs_url=None, openapi_url=None)
    problems.install(found)
    for one in (routes.bodies, routes.sessions, routes.operations, *([routes.hot] if router else [])):
        found.include_router(one, dependencies=list(router))
    return found


@pytest.mark.parametrize("content", [b"{}", b"{", b"[" * 100_000])
@pytest.mark.parametrize(
    ("method", "path"), [one for one in REAL if not re.search("docs|openapi|redoc|static", one[1])]
)
async def test_a_dependency_is_reached_on_every_route(method: str, path: str, content: bytes) -> None:
    """Of the router or of the app, and an override of one; before anything is said of the body."""
    at_app = with_routes(app=[Depends(unauthorized)])
    at_router = with_routes(router=[Depends(unauthorized)])
    overridden = with_routes(router=[Depends(nothing_to_say)])
    overridden.dependency_overrides[nothing_to_say] = unauthorized
    for one in (at_app, at_router, overridden):
        response = await ask(one, method, path, content=content)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"


async def test_a_websocket_is_guarded_too() -> None:
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

    guarded = Guards(nothing, Settings())
    cost_s = min([await cpu_s(guarded) for _ in range(10)]) - min([await cpu_s(nothing) for _ in range(10)])
    logging.getLogger("okl.tests").info("guards: %.1f us a request", cost_s * 1e6)
    assert cost_s < 40e-6


def test_a_hang_up_is_an_exception_of_the_framework() -> None:
    assert issubclass(ClientDisconnect, Exception)
