"""The routes of challengers: attach, list, inspect, detach, promote."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from okl import errors

from . import wire
from .answers import ChallengerAnswer, ChallengerList, SessionDetail
from .body_route import BodyRoute, reply
from .dependencies import ChallengersDep, IfMatch, SessionPath
from .problems import responses
from .queries import KNOWN_QUERY
from .routes import BODY, SESSION, STORE, with_headers
from .schemas import ChallengerBody
from .values import OwnName

router = APIRouter(tags=["challengers"], dependencies=[KNOWN_QUERY])
json_bodies = APIRouter(route_class=BodyRoute, tags=["challengers"])

ChallengerPath = Annotated[OwnName, Path(description="Name of the challenger.")]


@json_bodies.post(
    "/sessions/{session}/challengers",
    response_model=ChallengerAnswer,
    status_code=201,
    responses=with_headers(201, "Location")
    | responses(
        *BODY,
        *SESSION,
        errors.InvalidConfig,
        errors.UnknownLearner,
        errors.SessionExists,
        errors.SessionFollows,
        errors.SessionFrozen,
        errors.LimitReached,
    ),
    summary="Attach a challenger",
)
async def attach(body: ChallengerBody, session: SessionPath, challengers: ChallengersDep) -> Response:
    """Attach a session with another learner, which gets the same rounds, in the same order, with the same delays of the
    truths. It answers no requests."""
    found = await challengers.attach(session, body.name, body.learner, body.begin)
    return reply(wire.challenger(session, found), 201, {"Location": f"/sessions/{session}/challengers/{body.name}"})


@router.get(
    "/sessions/{session}/challengers",
    response_model=ChallengerList,
    responses=responses(errors.InvalidInput, *SESSION),
    summary="List a session's challengers",
)
async def list_challengers(session: SessionPath, challengers: ChallengersDep) -> Response:
    """Sorted by name, each with how it compares to the session."""
    return reply({"challengers": [wire.challenger(session, one) for one in await challengers.list(session)]})


@router.get(
    "/sessions/{session}/challengers/{challenger}",
    response_model=ChallengerAnswer,
    responses=responses(errors.InvalidInput, *SESSION),
    summary="Inspect a challenger",
)
async def inspect_challenger(session: SessionPath, challenger: ChallengerPath, challengers: ChallengersDep) -> Response:
    """Its progress, and how it compares to the session."""
    return reply(wire.challenger(session, await challengers.inspect(session, challenger)))


@router.delete(
    "/sessions/{session}/challengers/{challenger}",
    status_code=204,
    responses=responses(errors.InvalidInput, errors.SessionNotFound, errors.SessionMoving, *STORE),
    summary="Detach a challenger",
)
async def detach(session: SessionPath, challenger: ChallengerPath, challengers: ChallengersDep) -> Response:
    """Delete the challenger with everything that it has learned. This cannot be undone."""
    await challengers.detach(session, challenger)
    return Response(status_code=204)


@router.post(
    "/sessions/{session}/challengers/{challenger}/promote",
    response_model=SessionDetail,
    responses=responses(
        errors.InvalidInput, *SESSION, errors.CannotPromote, errors.PreconditionFailed, errors.LimitReached
    ),
    summary="Promote a challenger",
)
async def promote(
    session: SessionPath, challenger: ChallengerPath, challengers: ChallengersDep, if_tip: IfMatch
) -> Response:
    """The session continues with the challenger's learner and state. Waiting predictions keep the forecasts that were issued,
    ids that were applied are still remembered, and the session's previous state is kept as a checkpoint."""
    found = await challengers.promote(session, challenger, if_tip)
    return reply(wire.session(found), 200, wire.headers(found))
