"""What the request checks bound: the size of a head and a body, the time that a body takes, and how many there are."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator

import pytest
from fastapi import APIRouter, FastAPI
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.body_route import BodyRoute, reply
from service.api.request_checks import MAX_HEADER_BYTES, MAX_URI_BYTES, RequestChecks
from service.settings import Settings
from tests.service.checked_app import (
    KIB,
    Question,
    Wire,
    ask,
    problem_of,
    scope_of,
    small_app,
)

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize("most", [KIB, 64 * KIB, 80 * KIB])
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
async def test_a_body_may_have_as_many_bytes_as_the_setting_says(most: int, announced: bool) -> None:
    """One more, and the route gets none of them."""
    got: list[int] = []

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        got.append(len((await receive())["body"]))
        await Response()(scope, receive, send)

    checks = RequestChecks(route, Settings(max_body_bytes=most))
    statuses = []
    for size in (most, most + 1):
        wire = Wire({"type": "http.request", "body": bytes(size), "more_body": False})
        headers = {"content_length": str(size)} if announced else {"transfer_encoding": "chunked"}
        await checks(scope_of(**headers), wire.receive, wire.send)
        statuses.append(wire.sent[0]["status"])
    assert (statuses, got) == ([200, 413], [most])


@pytest.mark.parametrize("kinds", list(itertools.permutations(["application/x-ndjson", "application/json"])))
async def test_a_body_of_two_types_has_a_size(kinds: tuple[str, str]) -> None:
    """The size of a body of lines is not bounded, since it is read line by line; it must not be read as JSON."""
    app = small_app(settings=Settings(max_body_bytes=64 * KIB))
    headers = [("content-type", kind) for kind in kinds]
    response = await ask(app, "POST", "/rounds", content=b" " * (70 * KIB) + b"{}", headers=headers)
    assert response.status_code in (413, 415)


async def test_one_row_is_smaller_than_many() -> None:
    app = small_app(settings=Settings(max_row_bytes=KIB))
    x = [1.0] * 500
    response = await ask(app, "POST", "/predict", json={"session": "s", "x": x})
    assert problem_of(response, 413, "payload-too-large")["limit"] == KIB
    response = await ask(app, "POST", "/rounds", json={"x": [x], "y": [1.0]})
    assert response.json() == {"rounds": 1, "sum": 500.0, "id": None}


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
