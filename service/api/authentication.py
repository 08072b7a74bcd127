"""Authentication and authorization: pure ASGI, behind the request checks, for every route and every websocket.

If keys are required, a request must present one in `Authorization: Bearer okl_...`, or, from a browser, in a cookie; `access`
defines the scope that each route needs. If keys are not required, every request passes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, final
from urllib.parse import quote

from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from okl.errors import (
    Forbidden,
    MethodNotAllowed,
    OriginNotAllowed,
    RouteNotFound,
    ServiceError,
    StoreError,
    Unauthenticated,
)

from ..keys.audit import Audit, facts_of
from ..keys.caller import Caller, current
from ..keys.key import Key, id_in
from ..keys.keyring import SEEN_S, Keyring
from .access import ACCESS_RULES, WEBSOCKET, Accessed, AccessRule, AccessTable
from .hosts import is_own_page
from .patterns import KNOWN_NAME
from .problems import answer, cut, request_id
from .request_checks import count_refusal, refuse_socket
from .route_templates import method_of

COOKIE: Final = "okl_key"
SIGN_IN: Final = "/signin"
MAX_TARGET: Final = 128
"""Letters of what an audited path names that the audit log shows."""
_NO_ORIGINS: Final = frozenset[str]()
_NAME: Final = re.compile(KNOWN_NAME)

ErrorPage = Callable[[ServiceError, Scope], Awaitable[Response]]


@final
class Authentication:
    """ASGI middleware: `app.add_middleware(Authentication, keyring=keyring)`, before `RequestChecks` is added around it.

    `page` renders an error for a browser, in place of a problem document.
    """

    def __init__(
        self,
        app: ASGIApp,
        keyring: Keyring,
        audit: Audit | None = None,
        page: ErrorPage | None = None,
        rules: tuple[AccessRule, ...] = ACCESS_RULES,
    ) -> None:
        self._app = app
        self._page = page
        self._keyring = keyring
        self._audit = audit or Audit()
        self._table = AccessTable(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._app(scope, receive, send)
            return
        method: str = WEBSOCKET if kind == "websocket" else scope["method"]
        accessed = self._table.find(method, scope["path"])
        rule = accessed.rule
        if rule is not None and rule.scope is None:
            await self._app(scope, receive, send)
            return
        keyring, is_away = self._keyring, False
        try:
            if keyring.is_stale:
                await keyring.refresh()
        except StoreError as error:
            is_away = rule is not None and rule.is_without_store and keyring.has_read
            if not is_away:
                await self._answer_refusal(error, Accessed(rule), scope, receive, send)
                return
        if keyring.is_required:
            await self._admit(accessed, scope, receive, send, is_away=is_away)
        elif rule is not None:
            await self._serve(Caller(None, keyring), rule, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _admit(self, accessed: Accessed, scope: Scope, receive: Receive, send: Send, *, is_away: bool) -> None:
        """Let the request in if its key is valid and sufficient; refuse it otherwise.

        While the store `is_away`, the key's rate, of which the store has the tokens, does not count.
        """
        rule, session, _ = accessed
        text, cookie = _credentials(scope)
        key = self._keyring.key_of(text) if cookie is None else self._keyring.key_of_cookie(cookie)
        caller = Caller(key, self._keyring, has_cookie=cookie is not None)
        try:
            if key is None:
                raise Unauthenticated(_wrong(text, cookie))
            if key.rate is not None and not is_away:
                await self._keyring.admit(key)
            if rule is None:
                raise _no_route(accessed.methods)
            self._check(key, rule, caller, scope)
            if session is not None and not rule.is_page:  # pages check the session themselves
                caller.enter(session)
        except ServiceError as error:
            self._note_refusal(error, accessed, key, id_in(cookie or text), scope)
            if isinstance(error, Unauthenticated) and rule is not None and _is_read(rule, scope):
                await _send_to_sign_in(scope, receive, send)
            else:
                await self._answer_refusal(error, accessed, scope, receive, send)
            return
        await self._serve(caller, rule, scope, receive, send)

    async def _answer_refusal(
        self, error: ServiceError, accessed: Accessed, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if accessed.rule is None or self._page is None or not _is_read(accessed.rule, scope):
            await _refuse(error, scope, receive, send, accessed.methods)
            return
        count_refusal(error, scope)
        response = await self._page(error, scope)
        await response(scope, receive, send)

    def _check(self, key: Key, rule: AccessRule, caller: Caller, scope: Scope) -> None:
        assert rule.scope is not None
        if key.scope < rule.scope:
            raise Forbidden(f"This key is for {key.scope.word}; the route needs one for {rule.scope.word}.")
        if rule.is_whole and key.prefix:
            raise Forbidden("This route covers all sessions, but the key is for some of them only.")
        if caller.has_cookie and rule.method != "GET":
            # A browser adds the cookie to a request from any page, so the origin has to be checked.
            headers = dict(scope["headers"])
            origin = headers.get(b"origin")
            if origin is None or not is_own_page(origin, headers.get(b"host", b""), _NO_ORIGINS):
                raise OriginNotAllowed("A browser that is signed in may write only from the pages of this service.")

    async def _serve(self, caller: Caller, rule: AccessRule, scope: Scope, receive: Receive, send: Send) -> None:
        token = current.set(caller)
        try:
            if rule.is_audited:
                await self._serve_audited(caller, rule, scope, receive, send)
            elif rule.is_long:
                await self._serve_long(caller, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        finally:
            current.reset(token)
            if caller.outside is not None:
                facts = facts_of(caller.key_id, _method(scope), rule.path, [caller.outside], request_id(scope))
                self._audit.refused(facts, Forbidden.status, Forbidden.slug)

    async def _serve_audited(
        self, caller: Caller, rule: AccessRule, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request, and record it in the audit log whatever its outcome."""
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except ServiceError as error:
            status = status or error.status
            raise
        finally:
            if caller.outside is None:
                sessions = _names_in(caller.sessions)
                facts = facts_of(caller.key_id, _method(scope), rule.path, sessions, request_id(scope))
                self._audit.done(facts | _target(scope), status)

    async def _serve_long(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a long-lived request, and end it once it would no longer be admitted."""
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        serving = asyncio.ensure_future(self._app(scope, receive, noted))
        try:
            while not serving.done():
                await asyncio.wait({serving}, timeout=SEEN_S)
                error = None if serving.done() else await _refusal_of(caller)
                if error is None or serving.done():
                    continue
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving
                await _end(error, has_begun, scope, receive, send)
                return
            await serving
        finally:
            if not serving.done():
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving

    def _note_refusal(
        self, error: ServiceError, accessed: Accessed, key: Key | None, claimed: str | None, scope: Scope
    ) -> None:
        if error.status >= 500:
            return
        rule, session, _ = accessed
        route = "none" if rule is None else rule.path
        sessions = [] if session is None else _names_in([session])
        who = None if key is None else key.id
        facts = facts_of(who, _method(scope), route, sessions, request_id(scope), claimed if key is None else None)
        self._audit.refused(facts, error.status, error.slug)


def _names_in(sessions: Iterable[str]) -> list[str]:
    """The valid names. The audit log shows no others, which may be long, or look like several because of a comma."""
    return [session for session in sessions if _NAME.fullmatch(session)]


def _target(scope: Scope) -> dict[str, str]:
    """What the path names beside the session: a challenger, a checkpoint, a prediction or a template."""
    others = [str(value) for name, value in scope.get("path_params", {}).items() if name != "session"]
    return {"target": cut(others[0], MAX_TARGET)} if others else {}


async def _refusal_of(caller: Caller) -> Unauthenticated | None:
    """Why the request would no longer be admitted; None if it would."""
    try:
        await caller.check()
    except Unauthenticated as error:
        return error
    except StoreError:
        pass  # a store that is briefly unavailable must not end a stream
    return None


def _method(scope: Scope) -> str:
    """The request's method, or `WEBSOCKET` for a websocket."""
    return WEBSOCKET if scope["type"] == "websocket" else method_of(scope)


def _credentials(scope: Scope) -> tuple[str, str | None]:
    """The bearer token, and the cookie if there is no header Authorization. A repeated header counts as wrong."""
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    headers = dict(raw)
    given, cookies = headers.get(b"authorization"), headers.get(b"cookie")
    if len(headers) < len(raw):
        names = [name for name, _ in raw]
        given = b"" if names.count(b"authorization") > 1 else given
        cookies = b"" if names.count(b"cookie") > 1 else cookies
    if given is not None:
        method, _, text = given.decode("latin-1").partition(" ")
        return (text.strip(" ") if method.lower() == "bearer" else ""), None
    return "", None if cookies is None else cookie_in(cookies.decode("latin-1"))


def cookie_in(header: str) -> str | None:
    """The value of our cookie in a Cookie header."""
    # Unlike http.cookies.SimpleCookie, it reads past a cookie of others that is malformed.
    return cookie_parser(header).get(COOKIE)


def _wrong(text: str, cookie: str | None) -> str:
    """Why the credentials were refused. The text never repeats them: they may be somebody's key."""
    if cookie is not None:
        return "You are no longer signed in; sign in again at /signin."
    if text:
        return "This key is not valid: it is wrong, was revoked, or has expired."
    return "A key is required: send the header `Authorization: Bearer okl_...`. `okl keys create` creates one."


def _no_route(methods: tuple[str, ...]) -> ServiceError:
    if methods:
        return MethodNotAllowed(f"This path takes {', '.join(methods)}.")
    return RouteNotFound("There is nothing at this path.")


def _is_read(rule: AccessRule, scope: Scope) -> bool:
    """Whether the route is a page and the client accepts HTML."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return rule.is_page and b"text/html" in accepted


async def _send_to_sign_in(scope: Scope, receive: Receive, send: Send) -> None:
    back = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    target = SIGN_IN if back == "/" else f"{SIGN_IN}?next={quote(back, safe='')}"
    await RedirectResponse(target, 303)(scope, receive, send)


async def _refuse(
    error: ServiceError, scope: Scope, receive: Receive, send: Send, methods: tuple[str, ...] = ()
) -> None:
    count_refusal(error, scope)
    if scope["type"] == "websocket":
        await receive()
        await refuse_socket(error, scope, send)
        return
    response: Response = answer(error, scope)
    if methods:
        response.headers["Allow"] = ", ".join(methods)
    await response(scope, receive, send)


async def _end(error: ServiceError, has_begun: bool, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": error.title})
    elif has_begun:
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        await _refuse(error, scope, receive, send)
