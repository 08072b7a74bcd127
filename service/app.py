"""The composition root: settings, store, sessions, routes. No logic."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from threadpoolctl import threadpool_limits

from okl_core import learner_kinds
from service import __version__, problems
from service.logs import configure
from service.routes import health, rounds, sessions
from service.routes.body import HotPath
from service.schemas import Problem
from service.sessions import SessionService
from service.settings import Settings
from service.store.base import open_store

log = logging.getLogger("okl")


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application. Without arguments (as uvicorn's factory) the settings come from the environment."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        configure(settings)
        store = open_store(settings.store)
        await store.open()
        app.state.sessions = SessionService(store, settings)
        learner_kinds()  # finds and imports the learners now, not in the first request
        log.info("serving", extra={"version": __version__, "store": type(store).__name__})
        try:
            # Several workers on one machine would otherwise each take all its cores for products of small matrices.
            with threadpool_limits(1):
                # What is loaded stays: the collector need not look through it again while a request waits.
                gc.collect()
                gc.freeze()
                yield
        finally:
            await app.state.sessions.close()
            await store.close()
            log.info("stopped")

    app = FastAPIOffline(
        redirect_slashes=False,
        title="okl",
        version=__version__,
        summary="Online kernel learning as a service.",
        lifespan=lifespan,
        telemetry={"metrics": False, "tracing": False, "logs": False},
        responses=problems.responses(problems.ServiceError),
    )
    app.state.settings = settings
    problems.install(app)
    for router in (rounds.router, sessions.bodies, sessions.router, health.router):
        app.include_router(router)
    app.openapi = lambda: _openapi(app)
    app.middleware_stack = HotPath(app.build_middleware_stack(), rounds.router.routes)
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The API's document; the problem that every error refers to is no route's model, so it is added here."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        document["components"]["schemas"]["Problem"] = Problem.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        document["components"]["schemas"] |= document["components"]["schemas"]["Problem"].pop("$defs")
        _drop_validation_errors(document)
        app.openapi_schema = document
    return app.openapi_schema


def _drop_validation_errors(document: dict[str, Any]) -> None:
    """FastAPI announces answers in a form of its own; ours are problems, and each route names them."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for item in document["paths"].values():
        for operation in item.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
