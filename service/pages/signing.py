"""Signing in to the dashboard where keys are required: a page that takes a key, and a cookie that stands for it."""

from __future__ import annotations

import re
import time
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from okl.errors import InvalidInput, PayloadTooLarge, Unauthenticated, UnsupportedMediaType

from ..api.authentication import COOKIE, SIGN_IN
from ..api.problems import request_id
from ..keys.audit import Audit, facts_of
from ..keys.key import cookie_of, id_in
from ..keys.keyring import Keyring
from .rendering import page

MOST_BYTES: Final = 4 << 10
"""The largest form: a key, and the path to continue to."""

_LOCAL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")

signing = APIRouter(include_in_schema=False)


async def keyring_of(request: Request) -> Keyring:
    return request.app.state.keyring


async def audit_of(request: Request) -> Audit:
    return request.app.state.audit


KeyringDep = Annotated[Keyring, Depends(keyring_of)]
AuditDep = Annotated[Audit, Depends(audit_of)]


@signing.get(SIGN_IN)
async def sign_in_page(
    request: Request, keyring: KeyringDep, next: Annotated[str, Query(max_length=2048)] = "/"
) -> Response:
    """The form. If no key is required, redirect: there is nothing to sign in to."""
    if not keyring.is_required:
        return RedirectResponse("/", 303)
    return await page(request, "signin.html", next=local(next), is_wrong=False)


@signing.post(SIGN_IN)
async def sign_in(request: Request, keyring: KeyringDep, audit: AuditDep) -> Response:
    """Exchange the form's key for a cookie. The request checks have already refused those from pages of other origins."""
    form = await _form(request)
    text, onward = form.get("key", "").strip(), local(form.get("next", "/"))
    if keyring.is_stale:
        await keyring.refresh()
    key = keyring.key_of(text)
    who, claimed = (None, id_in(text)) if key is None else (key.id, None)
    facts = facts_of(who, "POST", SIGN_IN, [], request_id(request.scope), claimed)
    if key is None:
        audit.refused(facts, Unauthenticated.status, Unauthenticated.slug)
        return await page(request, "signin.html", Unauthenticated.status, next=onward, is_wrong=True)
    audit.done(facts, 303)
    cookie, seconds = cookie_of(key, time.time())
    answer = RedirectResponse(onward, 303)
    is_tls = request.url.scheme == "https"
    answer.set_cookie(COOKIE, cookie, max_age=seconds, httponly=True, samesite="strict", secure=is_tls)
    return answer


@signing.post("/signout")
async def sign_out() -> Response:
    """Delete the browser's cookie."""
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def local(path: str) -> str:
    """The path, if it stays within this service; otherwise `/`."""
    return path if _LOCAL.fullmatch(path) else "/"


async def _form(request: Request) -> dict[str, str]:
    """Raises UnsupportedMediaType, PayloadTooLarge, InvalidInput."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise UnsupportedMediaType("The form must be sent as application/x-www-form-urlencoded.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise PayloadTooLarge(f"The form is larger than {MOST_BYTES} bytes.", limit=MOST_BYTES)
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=8, errors="strict")
    except ValueError:
        raise InvalidInput("The form is malformed.", errors=[]) from None
    return {name: values[0] for name, values in fields.items()}
