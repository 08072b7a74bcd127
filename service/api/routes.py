"""The routes of rounds and sessions. predict, update and step exist with the session in the body or in the path; a load
balancer can route the second form by session."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from okl import errors
from okl.errors import PROBLEMS, RouteNotFound
from okl_core import catalogue, learner_kinds
from okl_core.kernels.kernels import KERNELS
from okl_core.losses import LOSSES

from ..keys import caller
from ..pointers import invalid
from ..rounds import Rounds
from ..session.requests import Report, Stepped
from . import wire
from .answers import (
    CatalogueEntry,
    Prediction,
    ProblemType,
    Readiness,
    SessionDetail,
    SessionPage,
    StepAnswer,
    Update,
)
from .body_route import BodyRoute, IdempotencyKey, one_id, reply
from .dependencies import ExpositionDep, IfMatch, MostTogether, RoundsDep, SessionPath, SessionsDep, StoreDep
from .problems import operation_id, responses
from .queries import KNOWN_QUERY
from .request_checks import REFUSALS
from .round_schemas import (
    NAMES_NO_ROUND,
    PredictBody,
    PredictRequest,
    StepBody,
    StepRequest,
    UpdateBody,
    UpdateRequest,
)
from .schemas import FreezeBody, SessionCreate
from .several import (
    Predictions,
    PredictSeveral,
    Steps,
    StepSeveral,
    Updates,
    UpdateSeveral,
    check_names,
    of_each,
    of_part,
)
from .values import MOST_NAME

_OF_KEYS = (errors.Unauthenticated, errors.Forbidden, errors.TooManyRequests)

ANY = responses(errors.ServiceError, *REFUSALS, *_OF_KEYS)
"""The errors that every route may answer."""

hot = APIRouter(route_class=BodyRoute, tags=["rounds"], responses=ANY, generate_unique_id_function=operation_id)
"""The routes of rounds. They are the app's own routes: an included router costs another 9 to 16 us per request (measured)."""

json_bodies = APIRouter(route_class=BodyRoute, tags=["sessions"])
sessions = APIRouter(tags=["sessions"], dependencies=[KNOWN_QUERY], responses=responses(errors.InvalidInput))
operations = APIRouter(tags=["operations"])

MOVES = (errors.SessionMoving, errors.SessionMoved)
"""The errors of a session that is being moved, or has moved."""

STORE = (errors.StoreUnavailable, errors.StoreTimeout, errors.StateCorrupt)
BODY = (
    errors.MalformedBody,
    errors.InvalidInput,
    errors.PayloadTooLarge,
    errors.UnsupportedMediaType,
    errors.RequestTimeout,
)
SESSION = (errors.SessionNotFound, errors.SessionFailed, errors.Overloaded, *MOVES, *STORE)
"""The errors of a request that loads a session."""

ROUNDS = (
    *BODY,
    *SESSION,
    errors.NumericalFailure,
    errors.IdConflict,
    errors.SessionFollows,
    errors.LimitReached,
)
PREDICT = (*ROUNDS, errors.PredictionExpired, errors.TooManyRequests)
_UPDATE = (
    *ROUNDS,
    errors.PredictionNotFound,
    errors.PredictionExpired,
    errors.SessionFull,
    errors.SessionFrozen,
)


# -- rounds ---------------------------------------------------------------------------------------------------------


async def _predict(rounds: RoundsDep, session: str, body: PredictBody, key: str | None) -> Response:
    predicted = await rounds.predict(session, body.x, id=one_id(body.id, key), wait=body.wait)
    return reply(wire.prediction(predicted))


def _reported_id(body: UpdateBody | UpdateSeveral, key: str | None) -> str | None:
    """The id of the round whose truth is reported. Raises InvalidInput if neither an id nor an input names the round."""
    id = one_id(body.id, key)
    if id is None and body.x is None:
        raise invalid("", NAMES_NO_ROUND)
    return id


async def _update(rounds: RoundsDep, session: str, body: UpdateBody, key: str | None) -> Response:
    return reply(wire.update(await rounds.update(session, wire.report_of(body, _reported_id(body, key)))))


def _stepped(rounds: Rounds, session: str, body: StepBody) -> Awaitable[Stepped]:
    next_ = body.predict
    return rounds.step(session, wire.report_of(body.update, body.update.id), next_.x, id=next_.id, wait=next_.wait)


async def _step(rounds: RoundsDep, session: str, body: StepBody, request: Request) -> Response:
    return reply(wire.step(await _stepped(rounds, session, body), request.scope))


@hot.post("/predict", response_model=Prediction, responses=responses(*PREDICT), summary="Ask for a prediction")
async def predict(body: PredictRequest, rounds: RoundsDep, key: IdempotencyKey) -> Response:
    """Forecast at the session's current round. The prediction waits in the store, with its input, until its truth arrives."""
    return await _predict(rounds, body.session, body, key)


@hot.post("/update", response_model=Update, responses=responses(*_UPDATE), summary="Report a truth")
async def update(body: UpdateRequest, rounds: RoundsDep, key: IdempotencyKey) -> Response:
    """One round of learning, applied exactly once: a repeated request gets the first answer again, marked `duplicate`."""
    return await _update(rounds, body.session, body, key)


@hot.post("/step", response_model=StepAnswer, responses=responses(*_UPDATE), summary="Report a truth, ask for the next")
async def step(body: StepRequest, rounds: RoundsDep, request: Request) -> Response:
    """`update`, then `predict`, in one request and one commit."""
    return await _step(rounds, body.session, body, request)


@hot.post(
    "/sessions/{session}/predict",
    response_model=Prediction,
    responses=responses(*PREDICT),
    summary="Ask for a prediction",
)
async def predict_in_session(
    body: PredictBody, session: SessionPath, rounds: RoundsDep, key: IdempotencyKey
) -> Response:
    """As `POST /predict`, in the form that a load balancer can route by session."""
    return await _predict(rounds, session, body, key)


@hot.post("/sessions/{session}/update", response_model=Update, responses=responses(*_UPDATE), summary="Report a truth")
async def update_in_session(body: UpdateBody, session: SessionPath, rounds: RoundsDep, key: IdempotencyKey) -> Response:
    """As `POST /update`, in the form that a load balancer can route by session."""
    return await _update(rounds, session, body, key)


@hot.post(
    "/sessions/{session}/step",
    response_model=StepAnswer,
    responses=responses(*_UPDATE),
    summary="Report a truth, ask for the next",
)
async def step_in_session(body: StepBody, session: SessionPath, rounds: RoundsDep, request: Request) -> Response:
    """As `POST /step`, in the form that a load balancer can route by session."""
    return await _step(rounds, session, body, request)


@hot.post(
    "/sessions/predict",
    response_model=Predictions,
    responses=responses(*BODY),
    summary="Ask several sessions for a prediction",
)
async def predict_several(
    body: PredictSeveral, rounds: RoundsDep, most: MostTogether, request: Request, key: IdempotencyKey
) -> Response:
    """As `POST /predict`, for one input in several sessions at once. If a session refuses, its entry is the problem."""
    names = body.sessions
    check_names(names, most)
    id = one_id(body.id, key) or (rounds.new_id() if body.wait else None)
    calls = [rounds.predict(name, body.x, id=id, wait=body.wait) for name in names]
    return reply({"predictions": await of_each(names, calls, wire.prediction, request.scope)})


@hot.post(
    "/sessions/step",
    response_model=Steps,
    responses=responses(*BODY),
    summary="Report truths to several sessions, ask for the next",
)
async def step_several(body: StepSeveral, rounds: RoundsDep, most: MostTogether, request: Request) -> Response:
    """As `POST /step`, in several sessions at once, each with its own truth and its own next input. If a session refuses, its
    entry is the problem; the others are not affected."""
    names = [one.session for one in body.steps]
    check_names(names, most, "steps")
    calls = [of_part(_stepped(rounds, one.session, one), {"": f"/steps/{i}"}) for i, one in enumerate(body.steps)]
    return reply({"steps": await of_each(names, calls, lambda result: wire.step(result, request.scope), request.scope)})


@hot.post(
    "/sessions/update",
    response_model=Updates,
    responses=responses(*BODY),
    summary="Report truths to several sessions",
)
async def update_several(
    body: UpdateSeveral, rounds: RoundsDep, most: MostTogether, request: Request, key: IdempotencyKey
) -> Response:
    """As `POST /update`, for one input in several sessions: one round each, each applied exactly once under the same `id`.
    If a session refuses, its entry is the problem; the others are not affected."""
    id = _reported_id(body, key)
    names = [truth.session for truth in body.sessions]
    check_names(names, most)
    calls = [
        of_part(
            rounds.update(truth.session, Report(truth.y, id, body.x, truth.weight)),
            {of_one: f"/sessions/{i}{of_one}" for of_one in ("/y", "/weight")},
        )
        for i, truth in enumerate(body.sessions)
    ]
    return reply({"updates": await of_each(names, calls, wire.update, request.scope)})


# -- sessions -------------------------------------------------------------------------------------------------------


def with_headers(status: int, *names: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entry for headers of an answer."""
    return {status: {"headers": {name: {"schema": {"type": "string"}} for name in names}}}


CREATED = with_headers(201, "Location", "ETag")


@json_bodies.post(
    "/sessions",
    response_model=SessionDetail,
    status_code=201,
    responses=CREATED
    | responses(
        *BODY,
        *STORE,
        errors.InvalidConfig,
        errors.UnknownLearner,
        errors.SessionExists,
        errors.LimitReached,
        errors.TooManyRequests,
    ),
    summary="Create a session",
)
async def create(body: SessionCreate, sessions: SessionsDep) -> Response:
    """Create a named learner, with the mapping of its inputs and truths."""
    found = await sessions.create(wire.definition_of(body))
    return reply(wire.session(found), 201, wire.headers(found) | {"Location": f"/sessions/{body.name}"})


@json_bodies.post(
    "/sessions/{session}/freeze",
    response_model=SessionDetail,
    status_code=201,
    responses=CREATED
    | responses(
        *BODY,
        *SESSION,
        errors.CannotFreeze,
        errors.SessionExists,
        errors.LimitReached,
        errors.TooManyRequests,
    ),
    summary="Freeze a session",
)
async def freeze(body: FreezeBody, session: SessionPath, sessions: SessionsDep) -> Response:
    """Create a new session that predicts as this one does, and learns nothing. This session continues to learn."""
    found = await sessions.freeze(session, body.name, body.rule)
    return reply(wire.session(found), 201, wire.headers(found) | {"Location": f"/sessions/{body.name}"})


@sessions.get(
    "/sessions",
    response_model=SessionPage,
    responses=responses(errors.InvalidInput, *STORE),
    summary="List sessions",
)
async def list_sessions(
    sessions: SessionsDep,
    cursor: Annotated[str | None, Query(max_length=MOST_NAME, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Sessions per page.")] = 100,
) -> Response:
    """Sorted by name."""
    return reply(wire.page(await sessions.list(cursor, limit, caller.prefix())))


@sessions.get(
    "/sessions/{session}",
    response_model=SessionDetail,
    responses=with_headers(200, "ETag") | responses(errors.InvalidInput, *SESSION),
    summary="Inspect a session",
)
async def inspect(session: SessionPath, sessions: SessionsDep) -> Response:
    """Its settings and metrics, its learner's description of itself, and its use of the store."""
    found = await sessions.inspect(session)
    return reply(wire.session(found), 200, wire.headers(found))


@sessions.delete(
    "/sessions/{session}",
    status_code=204,
    responses=responses(
        errors.InvalidInput, errors.SessionNotFound, errors.PreconditionFailed, errors.SessionMoving, *STORE
    ),
    summary="Delete a session",
)
async def delete(session: SessionPath, sessions: SessionsDep, if_tip: IfMatch) -> Response:
    """Delete the session with everything it holds. This cannot be undone."""
    await sessions.delete(session, if_tip)
    return Response(status_code=204)


@sessions.get("/learners", response_model=list[CatalogueEntry], summary="The catalogue of learners")
def learners() -> Response:
    """Each kind of learner with the JSON schema of its config, its defaults and its references."""
    # Not a coroutine, so that a thread derives the schemas while others are answered.
    return Response(_catalogue((*learner_kinds(), *KERNELS, *LOSSES)), media_type="application/json")


@cache
def _catalogue(registered: tuple[str, ...]) -> bytes:
    """The catalogue as JSON; `registered` are the names on which its schemas depend.

    Deriving the schemas takes a quarter of a second.
    """
    return bytes(reply(catalogue()).body)


# -- operations -----------------------------------------------------------------------------------------------------

_OPENMETRICS = "application/openmetrics-text"


@operations.get("/healthz", response_model=Readiness, summary="Liveness probe")
async def healthz() -> Response:
    """Does not contact the store: a store that is down is no reason to restart the worker."""
    return reply({"status": "alive", "warnings": []})


@operations.get("/readyz", response_model=Readiness, responses=responses(*STORE), summary="Readiness probe")
async def readyz(store: StoreDep) -> Response:
    """Pings the store, and reports what is wrong with its configuration."""
    await store.ping()
    return reply({"status": "ready", "warnings": list(await store.warnings())})


@operations.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {kind: {"schema": {"type": "string"}} for kind in ("text/plain", _OPENMETRICS)}}},
    summary="Metrics for Prometheus",
)
async def metrics(exposition: ExpositionDep, request: Request) -> Response:
    """Metrics of all workers on this machine, and of the sessions in the store: the same whichever worker answers."""
    content, kind = await exposition.answer(request.headers.get("accept", ""))
    return Response(content, headers={"content-type": kind})


@operations.get(
    "/problems/{slug}",
    response_model=ProblemType,
    responses=responses(RouteNotFound),
    summary="What a problem type means",
)
async def problem_type(slug: str) -> Response:
    """The target of a problem document's `type`."""
    kind = PROBLEMS.get(slug)
    if kind is None:
        raise RouteNotFound(f"There is no problem type {slug[:64]!r}.")
    return reply({"type": f"/problems/{slug}", "title": kind.title, "status": kind.status, "detail": kind.__doc__})
