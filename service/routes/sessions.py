"""Create, list, inspect and delete sessions; the catalogue of learners."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from okl_core import catalogue
from service import errors
from service.problems import responses
from service.routes.body import BodyRoute, reply
from service.routes.rounds import SessionPath
from service.schemas import CatalogueEntry, FreezeBody, SessionCreate, SessionDetail, SessionPage

router = APIRouter(tags=["sessions"])
bodies = APIRouter(tags=["sessions"], route_class=BodyRoute)

_STORE = (errors.StoreUnavailable, errors.StoreTimeout)


@bodies.post(
    "/sessions",
    response_model=SessionDetail,
    status_code=201,
    responses=responses(
        errors.MalformedBody,
        errors.InvalidInput,
        errors.InvalidConfig,
        errors.UnknownLearner,
        errors.SessionExists,
        errors.PayloadTooLarge,
        errors.LimitReached,
        *_STORE,
    ),
    summary="Create a session",
)
async def create(request: Request, body: SessionCreate) -> Any:
    """A named learner, with how its inputs and truths are mapped."""
    return await request.app.state.sessions.create(body)


@bodies.post(
    "/sessions/{session}/freeze",
    response_model=SessionDetail,
    status_code=201,
    responses=responses(
        errors.MalformedBody,
        errors.InvalidInput,
        errors.SessionNotFound,
        errors.CannotFreeze,
        errors.SessionExists,
        errors.SessionFailed,
        errors.PayloadTooLarge,
        errors.LimitReached,
        errors.StateCorrupt,
        *_STORE,
    ),
    summary="Freeze a session",
)
async def freeze(request: Request, body: FreezeBody, session: SessionPath) -> Any:
    """A new session that predicts as this one, and learns nothing; this one goes on."""
    return await request.app.state.sessions.freeze(session, body)


@router.get(
    "/sessions", response_model=SessionPage, responses=responses(errors.InvalidInput, *_STORE), summary="List sessions"
)
async def list_sessions(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Sessions in a page.")] = 100,
) -> Response:
    """In the order of their names."""
    return reply(await request.app.state.sessions.list(cursor, limit))


@router.get(
    "/sessions/{session}",
    response_model=SessionDetail,
    responses=responses(errors.SessionNotFound, errors.SessionFailed, errors.StateCorrupt, *_STORE),
    summary="Inspect a session",
)
async def inspect(request: Request, session: SessionPath) -> Response:
    """Its settings, metrics, what its learner says of itself, and what the store keeps of it."""
    return reply(await request.app.state.sessions.inspect(session))


@router.delete(
    "/sessions/{session}",
    status_code=204,
    responses=responses(errors.SessionNotFound, *_STORE),
    summary="Delete a session",
)
async def delete(request: Request, session: SessionPath) -> Response:
    """The session with all it holds; there is no way back."""
    await request.app.state.sessions.delete(session)
    return Response(status_code=204)


@router.get("/learners", response_model=list[CatalogueEntry], summary="The catalogue of learners")
async def learners() -> Response:
    """Each kind with the JSON schema of its config, its defaults and its references."""
    return reply(catalogue())
