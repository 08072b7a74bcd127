"""A small app behind the request checks, with a route of each kind, and the calls of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

import httpx
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Request, WebSocket
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Scope

from okl.errors import StoreUnavailable
from service.api import problems
from service.api.body_route import BodyRoute, IdempotencyKey, one_id, reply
from service.api.problems import MAX_BYTES, PROBLEM_JSON
from service.api.request_checks import RequestChecks
from service.settings import Settings

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


async def backend_of(request: Request) -> Backend:
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
    app.add_middleware(RequestChecks, settings=settings or Settings())
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


def nothing_to_say() -> None:
    """A dependency of a router that lets all pass."""


PLAIN = small_app()
"""For tests that do not care what was asked of it before."""
