"""predict, update, rounds: the hot path. Each exists with the session in the body, or in the path."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from service import errors
from service.problems import responses
from service.routes.body import BodyRoute
from service.schemas import (
    PredictBody,
    Prediction,
    PredictRequest,
    Rounds,
    RoundsBody,
    Update,
    UpdateBody,
    UpdateRequest,
)

router = APIRouter(route_class=BodyRoute, tags=["rounds"])

SessionPath = Annotated[str, Path(description="Name of the session.")]

_COMMON = (
    errors.MalformedBody,
    errors.InvalidInput,
    errors.PayloadTooLarge,
    errors.SessionNotFound,
    errors.SessionFailed,
    errors.NumericalFailure,
    errors.Overloaded,
    errors.StoreUnavailable,
    errors.StoreTimeout,
    errors.StateCorrupt,
)
_PREDICT = responses(*_COMMON, errors.IdConflict, errors.PredictionExpired, errors.LimitReached)
_UPDATE = responses(
    *_COMMON,
    errors.IdConflict,
    errors.PredictionNotFound,
    errors.PredictionExpired,
    errors.SessionFull,
    errors.SessionFrozen,
)


@router.post("/predict", response_model=Prediction, responses=_PREDICT, summary="Ask for a prediction")
async def predict(request: Request, body: PredictRequest) -> Any:
    """The forecast at the session's present round. It waits in the store, input included, until its truth comes."""
    return await request.app.state.sessions.predict(body.session, body)


@router.post("/update", response_model=Update, responses=_UPDATE, summary="Report a truth")
async def update(request: Request, body: UpdateRequest) -> Any:
    """One round of learning, exactly once: sent again it returns the first answer, marked `duplicate`."""
    return await request.app.state.sessions.update(body.session, body)


@router.post(
    "/sessions/{session}/predict", response_model=Prediction, responses=_PREDICT, summary="Ask for a prediction"
)
async def predict_in_path(request: Request, body: PredictBody, session: SessionPath) -> Any:
    """As `POST /predict`, in the form that a load balancer can route by session."""
    return await request.app.state.sessions.predict(session, body)


@router.post("/sessions/{session}/update", response_model=Update, responses=_UPDATE, summary="Report a truth")
async def update_in_path(request: Request, body: UpdateBody, session: SessionPath) -> Any:
    """As `POST /update`, in the form that a load balancer can route by session."""
    return await request.app.state.sessions.update(session, body)


@router.post(
    "/sessions/{session}/rounds",
    response_model=Rounds,
    responses=responses(*_COMMON, errors.IdConflict, errors.SessionFull, errors.SessionFrozen),
    summary="Many rounds in order",
)
async def rounds(request: Request, body: RoundsBody, session: SessionPath) -> Any:
    """Each row is predicted, then learned (prequential); all of them are committed together, or none."""
    return await request.app.state.sessions.rounds(session, body)
