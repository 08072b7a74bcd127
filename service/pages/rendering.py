"""Render HTML pages from the documents, and the headers that all pages have."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request
from starlette.responses import Response

from okl.errors import RouteNotFound

from .. import __version__
from ..api.accepted import quality
from ..keys import caller
from ..keys.key import KeyScope
from ..session.names import is_challenger
from .assets import MISSING, version
from .charts import in_page
from .formats import FILTERS
from .sparkline import sparkline

if TYPE_CHECKING:
    from jinja2 import Environment

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Not "no-referrer": a browser would then send the forms for signing in and out with the origin "null".
    "Referrer-Policy": "same-origin",
    "Vary": "Accept, Accept-Encoding",
}
"""Headers of every page, error pages included. The charts are drawn on a canvas and need no inline style."""

GZIP_LEVEL: Final = 1
"""Pages are rendered for each request: level 1 saves most of the bytes in a tenth of the time of level 9."""

GZIP_FROM_BYTES: Final = 1024


@cache
def _environment() -> Environment:
    try:
        from jinja2 import ChainableUndefined, Environment, PackageLoader, select_autoescape
    except ImportError:
        raise RouteNotFound(MISSING) from None
    environment = Environment(
        loader=PackageLoader(__package__ or ""),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= FILTERS | {"in_page": in_page}
    environment.tests["challenger"] = is_challenger
    environment.globals |= {"sparkline": sparkline, "okl_version": __version__}
    return environment


async def page(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """Render a template in a thread, so that rounds of sessions do not wait for a long list."""
    context |= _rights()
    takes_gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
    body, is_gzipped = await asyncio.to_thread(_rendered, template, takes_gzip, context)
    headers = dict(HEADERS) | ({"Content-Encoding": "gzip"} if is_gzipped else {})
    return Response(body, status, headers, media_type="text/html")


def _rights() -> dict[str, bool | str]:
    """The rights of the reader's key. Pages hide everything else, which would be refused anyway."""
    admitted = caller.current.get()
    return {
        "may_write": caller.may(KeyScope.WRITE),
        "may_admin": caller.may(KeyScope.ADMIN),
        "prefix": caller.prefix(),
        "is_keyed": admitted is not None and admitted.key is not None,
        "is_signed_in": admitted is not None and admitted.has_cookie,
    }


def _rendered(template: str, takes_gzip: bool, context: Mapping[str, Any]) -> tuple[bytes, bool]:
    text = _environment().get_template(template).render(context, assets=f"/static/{version()}")
    body = text.encode("utf-8", errors="replace")
    if not takes_gzip or len(body) < GZIP_FROM_BYTES:
        return body, False
    return gzip.compress(body, GZIP_LEVEL, mtime=0), True


def accepts_gzip(accepted: str) -> bool:
    return quality(accepted, "gzip") > 0.0


def prefers_html(accepted: str) -> bool:
    """Whether the client prefers HTML to JSON. A client that accepts anything, such as curl, gets JSON."""
    html = quality(accepted, "text/html")
    return html > 0.0 and html >= max(quality(accepted, f"application/{kind}") for kind in ("json", "problem+json"))
