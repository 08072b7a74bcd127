"""Routes for streams of rounds (a socket, or lines in both directions) and for blocks of many rounds (JSON, lines, Arrow)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, WebSocket, WebSocketDisconnect
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from okl import errors
from okl.errors import ServiceError, UnsupportedMediaType

from ..keys import caller
from ..pointers import invalid
from ..rounds import Rounds
from ..session.requests import Batch, RoundsPlayed
from . import arrow, wire
from .accepted import quality
from .answers import RoundsAnswer
from .arrow import ARROW
from .blocks import BLOCK_ROWS, READ_AT_ONCE, answers_of, blocks_of
from .bodies import NDJSON, check_encoding, kind_of
from .body_route import BodyRoute, IdempotencyKey, one_id, reply
from .conversation import MOST_MESSAGES, Frame
from .dependencies import (
    ConversationsDep,
    IfMatch,
    RoundsDep,
    SessionPath,
    SettingsDep,
    TemplatesDep,
    worker_of,
)
from .lines import MEDIA_TYPE, KindRoute, LinesRoute, Streamed, lines_of
from .messages import read_array, read_lines, read_one
from .problems import from_validation, responses
from .queries import KNOWN_QUERY, check_query
from .request_checks import LIMITS
from .round_schemas import RoundsBody
from .routes import ROUNDS, STORE
from .slices import BodyLimits
from .values import Name


class ArrowRoute(KindRoute):
    kinds = frozenset({ARROW})


streams = APIRouter(tags=["rounds"])
lines = APIRouter(route_class=LinesRoute, tags=["rounds"], dependencies=[KNOWN_QUERY])
columns = APIRouter(route_class=ArrowRoute, tags=["rounds"], dependencies=[KNOWN_QUERY])
json_bodies = APIRouter(route_class=BodyRoute, tags=["rounds"])
"""`lines`, `columns` and `json_bodies` share a path; the route for JSON must be included last."""

STOPS: Final = 1012
AGAIN: Final = 1013
"""WebSocket close codes "service restart" and "try again later": the client reconnects, and resends what was not answered,
or was refused last."""

_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)
_LINES: Final[dict[str, Any]] = {
    MEDIA_TYPE: {"schema": {"type": "string", "description": "JSON, one object per line."}}
}
_COLUMNS: Final[dict[str, Any]] = {ARROW: {"schema": {"type": "string", "format": "binary"}}}
_TO_LINES: Final[dict[str, Any]] = {"requestBody": {"required": True, "content": _LINES}}


# -- messages in any order ------------------------------------------------------------------------------------------


@streams.websocket("/sessions/{session}/stream")
async def socket(websocket: WebSocket) -> None:
    """predict, update and step as messages, many in flight; each is answered in order, once it is durable."""
    check_query(websocket, socket)
    session = _named(websocket.path_params["session"])
    worker = worker_of(websocket)
    conversations = worker.conversations
    with conversations.room():
        await worker.templates.check(session)
        await websocket.accept()
        try:
            async with aclosing(conversations.answers(session, _frames(websocket), websocket.scope)) as answers:
                async for answer in answers:
                    await websocket.send_text(answer.decode())
            await websocket.close(STOPS if conversations.is_closing else AGAIN)
        except WebSocketDisconnect:
            pass


async def _frames(websocket: WebSocket) -> AsyncGenerator[Frame]:
    """Yield each frame as it arrives: a message, or an array of messages. Ends when the client disconnects."""
    limits: BodyLimits = websocket.scope[LIMITS]
    while True:
        message = await websocket.receive()
        if message["type"] != "websocket.receive":
            return
        text = message.get("text")
        data = message["bytes"] if text is None else text.encode()
        if not data.lstrip().startswith(b"["):
            yield Frame([read_one(data, limits)], len(data), b"".join)
            continue
        try:
            found = read_array(data, MOST_MESSAGES, limits)
        except ServiceError as error:
            yield Frame([error], len(data), b"".join)
        else:
            yield Frame(found, len(data), _array)


def _array(answers: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(answers) + b"]"


def _lines(answers: Sequence[bytes]) -> bytes:
    return b"\n".join(answers) + b"\n"


def _named(name: str) -> str:
    """Raises InvalidName."""
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise from_validation([one | {"loc": ("session",)} for one in error.errors(include_url=False)]) from None


@streams.post(
    "/sessions/{session}/stream",
    response_class=Response,
    responses={200: {"content": _LINES}}
    | responses(
        errors.InvalidInput,
        errors.SessionNotFound,
        errors.Overloaded,
        errors.PayloadTooLarge,
        errors.UnsupportedMediaType,
        *STORE,
    ),
    dependencies=[KNOWN_QUERY],
    openapi_extra=_TO_LINES,
    summary="Rounds as lines, in both directions",
)
async def stream(
    session: SessionPath,
    request: Request,
    templates: TemplatesDep,
    conversations: ConversationsDep,
) -> Response:
    """One message per line: `{"x": ...}`, `{"id": ..., "y": ...}` or `{"update": ..., "predict": ...}`. Each is answered by
    a line, in order, once it is durable. Answers arrive while the body is still being sent."""
    if kind_of(request.scope) not in NDJSON:
        raise UnsupportedMediaType(f"The body must be lines of JSON and say so: Content-Type: {MEDIA_TYPE}.")
    check_encoding(request.scope)
    limits: BodyLimits = request.scope[LIMITS]
    await templates.check(session)
    conversations.check_room()

    async def frames() -> AsyncGenerator[Frame]:
        try:
            async with aclosing(lines_of(request.receive, limits)) as parts:
                async for found in parts:
                    for start in range(0, len(found), READ_AT_ONCE):
                        some = found[start : start + READ_AT_ONCE]
                        yield Frame(read_lines(some, limits), sum(map(len, some)), _lines)
        except ClientDisconnect:
            return

    async def answers() -> AsyncGenerator[bytes]:
        # The response has begun, so a refusal could only break it off.
        with conversations.room(has_begun=True):
            async with aclosing(conversations.answers(session, frames(), request.scope)) as found:
                async for answer in found:
                    yield answer

    return Streamed(answers())


# -- blocks of rounds -----------------------------------------------------------------------------------------------


@lines.post("/sessions/{session}/rounds", include_in_schema=False)
async def play_lines(
    session: SessionPath,
    request: Request,
    rounds: RoundsDep,
    conversations: ConversationsDep,
    settings: SettingsDep,
    key: IdempotencyKey,
    if_tip: IfMatch,
    block: Annotated[int, Query(ge=1, le=10_000)] = BLOCK_ROWS,
    answers: Literal["all", "totals"] = "all",
) -> Response:
    """One round per line, `{"x": ..., "y": ...}` and perhaps `weight`, in blocks; `totals` leaves out the forecasts."""
    check_encoding(request.scope)
    encode = wire.rounds if answers == "all" else wire.totals
    with conversations.room():
        blocks = blocks_of(request.receive, request.scope[LIMITS], min(block, settings.max_batch))
        block_answers = answers_of(rounds, session, blocks, key, if_tip, encode, request.scope)
        first = await anext(block_answers, None)
    if first is None:
        raise invalid("", "must have one line per round")

    async def all_answers() -> AsyncGenerator[bytes]:
        with conversations.room(has_begun=True):
            yield first
            async with aclosing(block_answers):
                async for answer in block_answers:
                    yield answer

    return Streamed(all_answers())


@columns.post("/sessions/{session}/rounds", include_in_schema=False)
async def play_columns(
    session: SessionPath,
    request: Request,
    rounds: RoundsDep,
    key: IdempotencyKey,
    if_tip: IfMatch,
) -> Response:
    """Rounds as an Arrow stream; answered by an Arrow stream if the client accepts one."""
    check_encoding(request.scope)
    limits: BodyLimits = request.scope[LIMITS]
    body = await request.body()
    # A million values take a second; of a few, the way to a thread and back is the longest.
    x, y, weight = (
        arrow.read(body, limits) if arrow.is_quick_to_read(body) else await asyncio.to_thread(arrow.read, body, limits)
    )
    played = await _played(rounds, session, Batch(x, y, key, if_tip, weight=weight))
    accepted = request.headers.get("accept", "")
    if 0.0 < quality(accepted, ARROW) >= quality(accepted, "application/json"):
        # A thread would wait for the interpreter's lock, since the event loop packs a snapshot meanwhile.
        content = arrow.write(played) if arrow.is_quick(played) else await asyncio.to_thread(arrow.write, played)
        return Response(content, media_type=ARROW)
    return reply(wire.rounds(played))


@json_bodies.post(
    "/sessions/{session}/rounds",
    response_model=RoundsAnswer,
    responses={200: {"content": _LINES | _COLUMNS}}
    | responses(*ROUNDS, errors.SessionFull, errors.SessionFrozen, errors.PreconditionFailed),
    openapi_extra={"requestBody": {"content": _LINES | _COLUMNS}},
    summary="Many rounds in order",
)
async def play_rounds(
    body: RoundsBody, session: SessionPath, rounds: RoundsDep, key: IdempotencyKey, if_tip: IfMatch
) -> Response:
    """Each row is predicted, then learned (prequential). The rows are committed together, or not at all."""
    return reply(wire.rounds(await _played(rounds, session, wire.batch_of(body, one_id(body.id, key), if_tip))))


async def _played(rounds: Rounds, session: str, batch: Batch) -> RoundsPlayed:
    async with caller.spending(len(batch.y)) as bill:
        played = await rounds.rounds(session, batch)
        if played.is_duplicate:
            bill.waive(len(batch.y))
        return played
