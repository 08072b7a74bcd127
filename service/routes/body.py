"""Routes with a JSON body: bytes to model in one strict validation, and the answer straight to bytes.

FastAPI's own way (decode, validate, solve dependencies, validate and encode the answer) costs more than a round of
learning; it would also let NaN and Infinity through, which JSON does not have. The routes stay in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.responses import Response

from service.errors import PayloadTooLarge
from service.problems import validation_problem


def reply(answer: Any, status: int = 200) -> Response:
    return Response(to_json(answer), status, media_type="application/json")


class BodyRoute(APIRoute):
    """The endpoint takes (request, body, **path parameters); `body` is annotated with its model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint
        adapter = TypeAdapter(get_type_hints(endpoint)["body"])
        status = self.status_code or 200

        async def handle(request: Request) -> Response:
            data = await read_body(request, request.app.state.settings.max_body_bytes)
            try:
                body = adapter.validate_json(data)
            except ValidationError as error:
                raise validation_problem(error) from None
            return reply(await endpoint(request, body, **request.path_params), status)

        return handle


async def read_body(request: Request, limit: int) -> bytes:
    """Raises PayloadTooLarge, before the body is read where its length is announced."""
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else 0
    chunks: list[bytes] = []
    if size <= limit:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                break
            chunks.append(chunk)
    if size > limit:
        raise PayloadTooLarge(f"The body is larger than {limit} bytes; send less at once.", limit=limit)
    return b"".join(chunks)
