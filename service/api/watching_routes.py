"""The routes that observe a session: its history, its events, its last rounds, its waiting predictions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from okl import errors

from ..keys import caller
from ..watching.event_streams import EventStreams
from . import watching_wire
from .body_route import BodyRoute, reply
from .dependencies import EventStreamsDep, PastDep, RoundsDep, SessionPath, SessionsDep
from .problems import responses
from .queries import KNOWN_QUERY
from .round_schemas import PredictManyBody
from .routes import MOVES, PREDICT, SESSION, STORE
from .values import Id
from .watching_answers import HistoryAnswer, ManyPredictions, PastRounds, WaitingAnswer

router = APIRouter(tags=["watching"], dependencies=[KNOWN_QUERY])
json_bodies = APIRouter(route_class=BodyRoute, tags=["rounds"])

_LOOK = (errors.InvalidInput, *SESSION)
_CSV = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


async def _there_and_room(session: SessionPath, past: PastDep, event_streams: EventStreamsDep) -> EventStreams:
    """Check that the session exists and a stream is free, before the response begins."""
    event_streams.check_room()
    await past.head(session)
    return event_streams


@router.get(
    "/sessions/{session}/history",
    response_model=HistoryAnswer,
    responses=_CSV | responses(*_LOOK),
    summary="History of the session's performance",
)
async def history(
    session: SessionPath,
    past: PastDep,
    format: Annotated[Literal["json", "csv"], Query(description="csv: only the points, one per line.")] = "json",
) -> Response:
    """At most 513 points, finer near the end; the same from every worker, and after every restart."""
    found = await past.history(session)
    if format == "csv":
        return Response(watching_wire.history_csv(found), media_type="text/csv; charset=utf-8")
    return reply(watching_wire.history(session, found))


@router.get(
    "/sessions/{session}/rounds",
    response_model=PastRounds,
    responses=responses(*_LOOK),
    summary="The last rounds",
)
async def last_rounds(
    session: SessionPath,
    past: PastDep,
    last: Annotated[int, Query(ge=1, le=1000, description="Number of rounds.")] = 50,
) -> Response:
    """Inputs, truths and predictions, as far back as the journal is kept."""
    return reply(watching_wire.past_rounds(session, await past.last(session, last)))


@router.get(
    "/sessions/{session}/predictions",
    response_model=WaitingAnswer,
    responses=responses(*_LOOK),
    summary="Predictions that wait for their truth",
)
async def waiting(
    session: SessionPath,
    past: PastDep,
    cursor: Annotated[str | None, Query(max_length=300, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Predictions per page.")] = 100,
) -> Response:
    """Sorted by expiry, the earliest first, with a histogram of how long all of them have waited."""
    return reply(watching_wire.waiting(session, await past.waiting(session, cursor, limit)))


@router.delete(
    "/sessions/{session}/predictions/{id:path}",
    status_code=204,
    responses=responses(
        errors.InvalidInput, errors.SessionNotFound, errors.SessionFollows, errors.PredictionNotFound, *MOVES, *STORE
    ),
    summary="Cancel a prediction",
)
async def cancel(
    session: SessionPath,
    id: Annotated[Id, Path(description="Id of the prediction.")],
    sessions: SessionsDep,
) -> Response:
    """Declare that its truth will never come: the prediction expires now, as do those of the session's challengers."""
    await sessions.cancel(session, id)
    return Response(status_code=204)


@json_bodies.post(
    "/sessions/{session}/predictions",
    response_model=ManyPredictions,
    responses=responses(*PREDICT),
    summary="Ask for many predictions",
)
async def predict_many(body: PredictManyBody, session: SessionPath, rounds: RoundsDep, request: Request) -> Response:
    """All at the session's current round, in one commit. An invalid input refuses the whole request; a prediction that could
    not be kept is answered with a problem in its place."""
    async with caller.spending(len(body.x)):
        predictions = await rounds.predict_many(session, body.x, ids=body.ids, wait=body.wait)
    return reply(watching_wire.many_predictions(session, predictions, request.scope))


@router.get(
    "/sessions/{session}/events",
    response_class=EventSourceResponse,
    responses=responses(*_LOOK),
    summary="Events of the session, as they happen",
)
async def events(
    session: SessionPath,
    event_streams: Annotated[EventStreams, Depends(_there_and_room)],
    last: Annotated[str | None, Header(alias="Last-Event-ID", max_length=128)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events named `session`: a summary of the session, about once a second and only when it has changed.
    A client that reconnects with `Last-Event-ID` gets no event twice. The stream ends when the session is deleted."""
    async for position, listed in event_streams.watch(session, last):
        yield ServerSentEvent(data=watching_wire.line(listed, time.time()), event="session", id=position)
