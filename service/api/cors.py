"""CORS on both sides of the request checks: preflights are checked before they are answered; a page may read refusals."""

from __future__ import annotations

from typing import Final, final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

READ_OF_PAGES: Final = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Traceparent",
    "X-Request-Id",
)
TOLD_TO_PAGES: Final = ("ETag", "Location", "Retry-After", "Traceparent", "X-Request-Id")
"""Request headers that a page of a listed origin may send, and response headers that it may read."""


@final
class Cors:
    """ASGI middleware for pages of these origins: behind the request checks for preflights, around them for the rest."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...], *, is_for_preflights: bool) -> None:
        self._app = app
        self._is_for_preflights = is_for_preflights
        self._cors = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=("GET", "HEAD", "POST", "PUT", "DELETE"),
            allow_headers=READ_OF_PAGES,
            expose_headers=TOLD_TO_PAGES,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._cors if _is_preflight(scope) == self._is_for_preflights else self._app
        await app(scope, receive, send)


def _is_preflight(scope: Scope) -> bool:
    return scope.get("method") == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )
