"""An application in this process, and a client that knows what every answer must look like."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, TypeAdapter
from starlette.routing import BaseRoute, compile_path

from okl.errors import PROBLEMS
from okl_core import LearnerSpec
from service.api.answers import Metrics
from service.api.dependencies import Worker
from service.api.problems import PROBLEM_JSON
from service.app import create_app, make_worker
from service.settings import Settings
from service.store.base import Store
from tests.service.definitions import EXACT, MEAN

if importlib.util.find_spec("sniffio") is None:
    # httpx looks for it anew with every request to an app, all along the path.
    sys.modules["sniffio"] = None  # type: ignore[assignment]

MEMBERS = {"type", "title", "status", "detail", "instance"}
NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def told(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


class Api:
    """The calls of the API on one session, `s` unless told otherwise; a refused call fails the test."""

    def __init__(self, app: FastAPI, http: httpx.AsyncClient, worker: Worker) -> None:
        self.app = app
        self.http = http
        self.worker = worker

    @property
    def store(self) -> Store:
        return self.worker.store

    async def create(self, learner: dict[str, Any] = MEAN, name: str = "s", **settings: Any) -> dict[str, Any]:
        """An exact session, unless told otherwise."""
        body = {"name": name, "learner": learner, **EXACT, **settings}
        return await self.call("POST", "/sessions", body, status=201)

    async def predict(self, x: Any, name: str = "s", **more: Any) -> dict[str, Any]:
        return await self.call("POST", f"/sessions/{name}/predict", {"x": x, **more})

    async def update(self, y: Any, name: str = "s", **more: Any) -> dict[str, Any]:
        return await self.call("POST", f"/sessions/{name}/update", {"y": y, **more})

    async def step(self, update: dict[str, Any], predict: dict[str, Any], name: str = "s") -> dict[str, Any]:
        return await self.call("POST", f"/sessions/{name}/step", {"update": update, "predict": predict})

    async def rounds(self, x: list[Any], y: list[Any], name: str = "s", **more: Any) -> dict[str, Any]:
        return await self.call("POST", f"/sessions/{name}/rounds", {"x": x, "y": y, **more})

    async def inspect(self, name: str = "s") -> dict[str, Any]:
        return await self.call("GET", f"/sessions/{name}")

    async def call(self, method: str, path: str, body: Any = None, *, status: int = 200, **request: Any) -> Any:
        # Calls that do not have to wait never let another client have its turn.
        await asyncio.sleep(0)
        response = await self.http.request(method, path, json=body, **request)
        assert response.status_code == status, response.text
        return check_answer(self.app, response)

    async def refused(self, slug: str, method: str, path: str, body: Any = None, **request: Any) -> dict[str, Any]:
        """The problem document of a call that must be refused with this type."""
        response = await self.http.request(method, path, json=body, **request)
        return check_problem(response, slug)


def check_answer(app: FastAPI, response: httpx.Response) -> Any:
    """What a call was told, which must be what its route declares: no member more, and none that does not apply."""
    declared, status = _declared(app, response.request.method, response.request.url.path)
    assert response.status_code == status, response.text
    if declared is None:
        assert response.content == b""
        return None
    assert response.headers["content-type"] == "application/json"
    told = response.json(parse_constant=_no_json)
    found = declared.validate_json(response.content, strict=True)
    for path, model in _models(found):
        for name in model.model_fields_set:
            does_apply = getattr(model, name) is not None or type(model).model_fields[name].is_required()
            assert does_apply, f"{path}: {name} does not apply, and is told"
    return told


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _models(found: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], BaseModel]]:
    """All models in an answer that leave out what does not apply, and where they are. Metrics say null before there are
    any; a spec says what the client said."""
    if isinstance(found, BaseModel):
        own = [] if isinstance(found, Metrics | LearnerSpec) else [(path, found)]
        names = type(found).model_fields
        return own + [one for name in names for one in _models(getattr(found, name), (*path, name))]
    if isinstance(found, list):
        return [one for i, value in enumerate(found) for one in _models(value, (*path, i))]
    return []


@cache
def _table(app: FastAPI) -> list[tuple[Any, set[str], TypeAdapter[Any] | None, int]]:
    """(pattern of the path, methods, what the answer is, status) of each route."""
    found = []
    for route in iter_route_contexts(app.routes):
        if route.path is not None and hasattr(route, "response_model") and route.include_in_schema:
            pattern = compile_path(route.path)[0]
            found.append((pattern, route.methods or set(), _adapter(route.response_model), route.status_code or 200))
    return found


@cache
def _adapter(model: Any) -> TypeAdapter[Any] | None:
    return None if model is None else TypeAdapter(model)


def _declared(app: FastAPI, method: str, path: str) -> tuple[TypeAdapter[Any] | None, int]:
    for pattern, methods, model, status in _table(app):
        if method in methods and pattern.match(path):
            return model, status
    raise AssertionError(f"{method} {path} is no route that declares its answer")


def check_problem(response: httpx.Response, slug: str) -> dict[str, Any]:
    assert response.headers["content-type"] == PROBLEM_JSON, response.text
    document = response.json()
    kind = PROBLEMS[slug]
    told = {name: document[name] for name in ("type", "title", "status")}
    assert told == {"type": f"/problems/{slug}", "title": kind.title, "status": kind.status}, document
    assert response.status_code == kind.status
    assert document.keys() >= MEMBERS
    assert document["detail"]
    assert document["instance"]
    assert response.headers.get("retry-after") == (None if kind.retry_after_s is None else str(kind.retry_after_s))
    return document


def app_with(settings: Settings) -> FastAPI:
    """An app with these settings. It shares its routes with the others: what FastAPI works out about them at the first
    request of each app is the same for all, and takes longer than most tests.
    """
    app = create_app(settings)
    routes = _routes()
    assert len(app.router.routes) == len(routes)
    app.router.routes[:] = routes
    return app


@cache
def _routes() -> list[BaseRoute]:
    return create_app(Settings(store="sqlite://")).router.routes


def openapi() -> dict[str, Any]:
    """The OpenAPI document, which is the same for all settings; the caller's own."""
    return json.loads(_document())


@cache
def _document() -> str:
    return json.dumps(app_with(Settings(store="sqlite://")).openapi())


@asynccontextmanager
async def serving(store: str, **settings: Any) -> AsyncIterator[Api]:
    """One worker of the service, started and stopped as a server would."""
    app = app_with(Settings(store=store, log_level="error", **settings))
    async with app.router.lifespan_context(app), _client(app) as http:
        yield Api(app, http, app.state.worker)


@asynccontextmanager
async def serving_on(store: Store, **settings: Any) -> AsyncIterator[Api]:
    """One worker on a store that the test has opened."""
    worker = make_worker(Settings(store="sqlite://", log_level="error", **settings), store)
    app = app_with(worker.settings)
    app.state.worker = worker
    async with _client(app) as http:
        yield Api(app, http, worker)
    await worker.close()


def _client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://okl")
