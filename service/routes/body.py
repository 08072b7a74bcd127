"""Routes with a JSON body: bytes to model in one strict validation, and the answer straight to bytes.

FastAPI's own way (decode, validate, solve dependencies, validate and encode the answer) costs more than a round of
learning; it would also let NaN and Infinity through, which JSON does not have. The routes stay in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import PayloadTooLarge, ServiceError
from service.problems import problem, unexpected_problem, validation_problem

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _Reply(Response):
    """Starlette's own, without the search for headers that nobody gave."""

    media_type = "application/json"

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        length = str(len(self.body)).encode()
        self.raw_headers = [(b"content-length", length), (b"content-type", b"application/json")]


def reply(answer: Any, status: int = 200) -> Response:
    return _Reply(to_json(answer, inf_nan_mode="null"), status)


class BodyRoute(APIRoute):
    """The endpoint takes (request, body, **path parameters); `body` is annotated with its model."""

    def get_route_handler(self) -> Handler:
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
    announced = dict(request.scope["headers"]).get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    body = b""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return body


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes; send less at once.", limit=limit)


class HotPath:
    """Answers predict and update before the framework's middleware and routing, which would take as long as the round.

    The handlers are those of the routes themselves, and every error is answered by the same functions.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        handlers = {route.path: route.get_route_handler() for route in routes if isinstance(route, BodyRoute)}
        self._by_path = {path: handler for path, handler in handlers.items() if "{" not in path}
        self._by_action = {
            path.removeprefix(_IN_PATH): handler for path, handler in handlers.items() if path.startswith(_IN_PATH)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handler(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await handler(request)
        except ClientDisconnect:
            return
        except ServiceError as error:
            response = problem(error, request)
        except Exception as error:
            response = unexpected_problem(error, request)
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body})

    def _handler(self, scope: Scope) -> Handler | None:
        path: str = scope["path"]
        handler = self._by_path.get(path)
        if handler is not None:
            scope["path_params"] = {}
            return handler
        parts = path.split("/")
        if len(parts) != 4 or parts[1] != "sessions":
            return None
        scope["path_params"] = {"session": parts[2]}
        return self._by_action.get(parts[3])


_IN_PATH = "/sessions/{session}/"
