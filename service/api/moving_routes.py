"""The routes of a session's state: download, put, clone, checkpoints, rollback; and rename."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from okl import errors
from okl.errors import InvalidSnapshot, PreconditionRequired, UnsupportedMediaType
from okl_core.contract.wrong_fields import in_words

from ..session.definition import Definition
from ..session.precondition import IfTip
from . import wire
from .answers import CheckpointAnswer, CheckpointList, SessionDetail
from .bodies import check_encoding, kind_of
from .body_route import BodyRoute, reply
from .dependencies import IfMatch, SessionPath, StatesDep, wrong_header
from .problems import responses
from .queries import KNOWN_QUERY
from .routes import BODY, CREATED, MOVES, SESSION, STORE, with_headers
from .schemas import CheckpointBody, CloneBody, RenameBody, RollbackBody, SessionSettings
from .values import OwnName

router = APIRouter(tags=["moving"], dependencies=[KNOWN_QUERY])
json_bodies = APIRouter(route_class=BodyRoute, tags=["moving"])

STATE = "application/octet-stream"
CHUNK_BYTES = 1 << 20
_ANY = "*"

_FILE = {STATE: {"schema": {"type": "string", "format": "binary"}}}
_TAGGED = with_headers(200, "ETag")
_DOWNLOAD = {200: _TAGGED[200] | {"content": _FILE}}

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="`*`: create a new session.")]
CheckpointPath = Annotated[OwnName, Path(description="Name of the checkpoint.")]


@router.get(
    "/sessions/{session}/snapshot",
    response_class=Response,
    responses=_DOWNLOAD | responses(errors.InvalidInput, *SESSION),
    summary="Download a session's state",
)
async def take_snapshot(session: SessionPath, states: StatesDep) -> Response:
    """The session's definition and its state at one tip, which is the `ETag`: bytes to `PUT`, here or at another service."""
    state = await states.take(session)
    headers = {
        "ETag": wire.etag(state.tip),
        "Content-Length": str(len(state.blob)),
        "Content-Disposition": f'attachment; filename="{session}-{state.tip.round}.okl-state"',
    }
    return StreamingResponse(_chunks(state.blob), headers=headers, media_type=STATE)


async def _chunks(blob: bytes) -> AsyncIterator[memoryview]:
    """Yield views, so that the part that a slow client has not read yet is not copied."""
    view = memoryview(blob)
    for start in range(0, len(blob), CHUNK_BYTES):
        yield view[start : start + CHUNK_BYTES]


async def _state_of(request: Request) -> bytes:
    if kind_of(request.scope) != STATE:
        raise UnsupportedMediaType(f"The body must be a snapshot and say so: Content-Type: {STATE}.")
    check_encoding(request.scope)
    return await request.body()


@router.put(
    "/sessions/{session}/snapshot",
    response_model=SessionDetail,
    responses={201: CREATED[201] | {"model": SessionDetail}}
    | _TAGGED
    | responses(
        *BODY,
        *SESSION,
        errors.InvalidSnapshot,
        errors.PreconditionRequired,
        errors.PreconditionFailed,
        errors.SessionFollows,
        errors.SessionExists,
        errors.LimitReached,
    ),
    openapi_extra={"requestBody": {"content": _FILE, "required": True}},
    summary="Replace or create a session from a snapshot",
)
async def put_snapshot(
    session: SessionPath,
    states: StatesDep,
    blob: Annotated[bytes, Depends(_state_of)],
    if_tip: IfMatch,
    unless: IfNoneMatch = None,
) -> Response:
    """With `If-Match`, the session continues from this state: its waiting predictions stay, and ids that were applied are
    still remembered. With `If-None-Match: *`, a new session is created."""
    if unless is not None:
        if unless != _ANY or if_tip is not None:
            raise wrong_header("If-None-Match", "must be *, without If-Match")
        found = await states.create(session, blob, _check)
        return reply(wire.session(found), 201, wire.headers(found) | {"Location": f"/sessions/{session}"})
    if if_tip is None:
        raise PreconditionRequired(
            "Send If-None-Match: * to create a session, or If-Match with the session's ETag (* for any) to replace its state."
        )
    found = await states.put(session, blob, _check, if_tip)
    return reply(wire.session(found), 200, wire.headers(found))


def required(if_tip: IfTip) -> frozenset[str]:
    """The tips that `If-Match` names. Raises PreconditionRequired without it."""
    if if_tip is None:
        raise PreconditionRequired("Send If-Match with the session's ETag, or * to replace whatever is there.")
    return if_tip


def _check(definition: Definition) -> None:
    """Raises InvalidSnapshot for a definition that POST /sessions would not accept under the name of the path.

    The name and the template in a snapshot are those of the session that it was taken of, and are not used.
    """
    try:
        body = SessionSettings.model_validate_json(to_json(wire.settings_of(definition)))
    except ValidationError as error:
        detail = "; ".join(f"{'/'.join(map(str, one['loc']))}: {in_words(one)}" for one in error.errors()[:3])
        raise InvalidSnapshot(f"This service does not accept the snapshot's definition: {detail}") from error
    if wire.definition_named(definition.name, body) != replace(definition, template=None):
        raise InvalidSnapshot("This service does not accept the snapshot's definition.")


@json_bodies.post(
    "/sessions/{session}/clone",
    response_model=SessionDetail,
    status_code=201,
    responses=CREATED | responses(*BODY, *SESSION, errors.SessionExists, errors.LimitReached),
    summary="Clone a session",
)
async def clone(body: CloneBody, session: SessionPath, states: StatesDep) -> Response:
    """Create a new session with the same state, which then learns independently."""
    found = await states.clone(session, body.name)
    return reply(wire.session(found), 201, wire.headers(found) | {"Location": f"/sessions/{body.name}"})


@json_bodies.post(
    "/sessions/{session}/checkpoints",
    response_model=CheckpointAnswer,
    status_code=201,
    responses=responses(*BODY, *SESSION, errors.LimitReached, errors.CheckpointNotFound),
    summary="Keep a session's state as a checkpoint",
)
async def keep_checkpoint(body: CheckpointBody, session: SessionPath, states: StatesDep) -> Response:
    """Keep the current state, replacing a checkpoint of the same name. It is deleted with the session."""
    return reply(wire.checkpoint(await states.keep(session, body.name)), 201)


@router.get(
    "/sessions/{session}/checkpoints",
    response_model=CheckpointList,
    responses=responses(errors.InvalidInput, errors.SessionNotFound, *STORE),
    summary="List a session's checkpoints",
)
async def list_checkpoints(session: SessionPath, states: StatesDep) -> Response:
    """Sorted by name."""
    return reply({"checkpoints": [wire.checkpoint(one) for one in await states.kept(session)]})


@router.delete(
    "/sessions/{session}/checkpoints/{checkpoint}",
    status_code=204,
    responses=responses(errors.InvalidInput, errors.SessionNotFound, errors.CheckpointNotFound, *MOVES, *STORE),
    summary="Delete a checkpoint",
)
async def delete_checkpoint(session: SessionPath, checkpoint: CheckpointPath, states: StatesDep) -> Response:
    """The session is not affected."""
    await states.drop(session, checkpoint)
    return Response(status_code=204)


@json_bodies.post(
    "/sessions/{session}/rollback",
    response_model=SessionDetail,
    responses=_TAGGED
    | responses(
        *BODY,
        *SESSION,
        errors.CheckpointNotFound,
        errors.InvalidSnapshot,
        errors.PreconditionRequired,
        errors.PreconditionFailed,
        errors.SessionFollows,
    ),
    summary="Return to a checkpoint",
)
async def roll_back(body: RollbackBody, session: SessionPath, states: StatesDep, if_tip: IfMatch) -> Response:
    """The session continues from the checkpoint. Its waiting predictions stay, and an update that was applied before is not
    learned again when it is repeated."""
    found = await states.roll_back(session, body.checkpoint, required(if_tip))
    return reply(wire.session(found), 200, wire.headers(found))


@json_bodies.post(
    "/sessions/{session}/rename",
    response_model=SessionDetail,
    responses=with_headers(200, "Location", "ETag")
    | responses(*BODY, *SESSION, errors.SessionExists, errors.SessionFollows),
    summary="Rename a session",
)
async def rename(body: RenameBody, session: SessionPath, states: StatesDep) -> Response:
    """Its waiting predictions, remembered ids and checkpoints move too. Meanwhile its requests get a retryable error, or
    the path of the new name."""
    found = await states.rename(session, body.name)
    return reply(wire.session(found), 200, wire.headers(found) | {"Location": f"/sessions/{body.name}"})
