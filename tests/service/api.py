"""An application in this process, and a client that knows what every answer must look like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from service.app import create_app
from service.problems import PROBLEM_JSON, PROBLEMS
from service.sessions import SessionService
from service.settings import Settings

MEMBERS = {"type", "title", "status", "detail", "instance"}
GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
POMDR = {"kind": "pomdr", "config": {"kernel": GAUSSIAN}}
MEAN = {"kind": "mean"}
ONE_VS_REST = {"kind": "one-vs-rest"}


class Api:
    """The calls of the API on one session, `s` unless told otherwise; a refused call fails the test."""

    def __init__(self, app: FastAPI, http: httpx.AsyncClient) -> None:
        self.app = app
        self.http = http

    @property
    def service(self) -> SessionService:
        return self.app.state.sessions

    async def create(self, learner: dict[str, Any] = MEAN, name: str = "s", **settings: Any) -> dict[str, Any]:
        return await self.call("POST", "/sessions", {"name": name, "learner": learner, **settings}, status=201)

    async def predict(self, x: Any, name: str = "s", **more: Any) -> dict[str, Any]:
        return await self.call("POST", f"/sessions/{name}/predict", {"x": x, **more})

    async def update(self, y: Any, name: str = "s", **more: Any) -> dict[str, Any]:
        return await self.call("POST", f"/sessions/{name}/update", {"y": y, **more})

    async def rounds(self, x: list[Any], y: list[Any], name: str = "s", **more: Any) -> dict[str, Any]:
        return await self.call("POST", f"/sessions/{name}/rounds", {"x": x, "y": y, **more})

    async def inspect(self, name: str = "s") -> dict[str, Any]:
        return await self.call("GET", f"/sessions/{name}")

    async def call(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        # Calls that do not have to wait never let another client have its turn.
        await asyncio.sleep(0)
        response = await self.http.request(method, path, json=body)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def refused(self, slug: str, method: str, path: str, body: Any = None, **request: Any) -> dict[str, Any]:
        """The problem document of a call that must be refused with this type."""
        response = await self.http.request(method, path, json=body, **request)
        return check_problem(response, slug)


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


@asynccontextmanager
async def serving(store: str, **settings: Any) -> AsyncIterator[Api]:
    """One worker of the service, started and stopped as a server would."""
    app = create_app(Settings(store=store, log_level="error", **settings))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://okl") as http:
        yield Api(app, http)
