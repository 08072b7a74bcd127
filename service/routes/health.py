"""Is the process alive, can it serve, and what does a problem type mean."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from service import errors
from service.problems import PROBLEMS, RouteNotFound, responses
from service.routes.body import reply

router = APIRouter(tags=["operations"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Response:
    return reply({"status": "alive"})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", summary="Can it serve?", responses=responses(errors.StoreUnavailable, errors.StoreTimeout))
async def readyz(request: Request) -> Response:
    """Asks the store."""
    await request.app.state.sessions.store.ping()
    return reply({"status": "ready"})


@router.get("/problems/{slug}", summary="What a problem type means", responses=responses(RouteNotFound))
async def problem_type(slug: str) -> Response:
    kind = PROBLEMS.get(slug)
    if kind is None:
        raise RouteNotFound(f"There is no problem type {slug!r}.")
    return reply({"type": f"/problems/{slug}", "title": kind.title, "status": kind.status, "detail": kind.__doc__})


@router.get("/", include_in_schema=False)
async def index() -> Response:
    return RedirectResponse("/docs")
