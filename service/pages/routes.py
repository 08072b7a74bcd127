"""The routes of the dashboard: pages, their JSON twins, and the files that the pages load."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Scope

from okl.errors import ServiceError
from okl_core import learner_kinds

from ..api.body_route import reply
from ..api.dependencies import ChallengersDep, PastDep, SessionPath, SessionsDep
from ..api.problems import RouteNotFound, answer, document_for, from_validation, headers_of
from ..api.values import MOST_NAME, KnownName
from . import charts
from .assets import assets, version
from .input_form import input_form
from .listing import PAGE, Asked, Kept, Order
from .rendering import accepts_gzip, page, prefers_html
from .session_views import SessionViews
from .views import Views

MOST_COMPARED = 8

FOREVER = "public, max-age=31536000, immutable"
"""An asset's URL contains a hash of its bytes."""


async def refusal(error: ServiceError, scope: Scope) -> Response:
    """The error page for a browser; a problem document if the dashboard is not installed."""
    request, problem = Request(scope), document_for(error, scope)
    name = request.path_params.get("session") if problem["type"] == "/problems/session-failed" else None
    try:
        response = await page(request, "problem.html", error.status, problem=problem, failed=name)
    except RouteNotFound:
        return answer(error, scope)
    response.headers.update(headers_of(error))
    return response


class PageRoute(APIRoute):
    """A route whose errors are pages for clients that prefer HTML."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except (ServiceError, RequestValidationError) as error:
                if not prefers_html(request.headers.get("accept", "")):
                    raise
                refused = error if isinstance(error, ServiceError) else from_validation(error.errors(), prefix=1)
                return await refusal(refused, request.scope)

        return handler


pages = APIRouter(route_class=PageRoute, include_in_schema=False)
twins = APIRouter(tags=["pages"], include_in_schema=False)
"""The JSON twins: for each page, the document that it shows."""


async def views_of(sessions: SessionsDep, past: PastDep, challengers: ChallengersDep) -> Views:
    """The source of the pages' documents."""
    return SessionViews(sessions, past, challengers)


ViewsDep = Annotated[Views, Depends(views_of)]


async def asked_of(
    q: Annotated[str, Query(max_length=64, description="Part of the name or of the kind.")] = "",
    state: Annotated[Kept, Query()] = "all",
    sort: Annotated[Order, Query()] = "name",
    direction: Annotated[Literal["up", "down"], Query()] = "up",
    cursor: Annotated[str | None, Query(max_length=MOST_NAME, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Sessions per page.")] = PAGE,
) -> Asked:
    return Asked(q.strip(), state, sort, direction == "down", cursor or None, limit)


AskedDep = Annotated[Asked, Depends(asked_of)]
Compared = Annotated[list[KnownName], Query(alias="session", max_length=MOST_COMPARED, min_length=1)]


@pages.get("/")
async def index_page(request: Request, views: ViewsDep, asked: AskedDep) -> Response:
    """All sessions at a glance."""
    document = await asked.of(views)
    return await page(
        request, "index.html", document=document, asked=asked, base=base_of(request), kinds=learner_kinds()
    )


@twins.get("/index.json")
async def index_twin(views: ViewsDep, asked: AskedDep) -> Response:
    return reply(await asked.of(views))


@pages.get("/sessions/{session}/page")
async def session_page(request: Request, session: SessionPath, views: ViewsDep) -> Response:
    """Everything about one session."""
    document = await views.session(session)
    drawn = charts.of_session(document)
    form = input_form(document)
    return await page(request, "session.html", document=document, charts=drawn, form=form, base=base_of(request))


@twins.get("/sessions/{session}/page.json")
async def session_twin(session: SessionPath, views: ViewsDep) -> Response:
    return reply(await views.session(session))


@pages.get("/compare")
async def compare_page(request: Request, session: Compared, views: ViewsDep) -> Response:
    """Several sessions in the same charts."""
    names = list(dict.fromkeys(session))
    document = await views.compare(names)
    drawn = charts.of_several(document["sessions"])
    return await page(request, "compare.html", document=document, charts=drawn, names=names, most=MOST_COMPARED)


@twins.get("/compare.json")
async def compare_twin(session: Compared, views: ViewsDep) -> Response:
    return reply(await views.compare(list(dict.fromkeys(session))))


@twins.get("/static/{of_version}/{name}")
async def asset(
    request: Request, of_version: Annotated[str, Path(max_length=64)], name: Annotated[str, Path(max_length=64)]
) -> Response:
    """A file of the pages. While workers of two versions serve, a worker may get requests for the other version: it sends its
    own file, and forbids caching it."""
    found = assets().get(name)
    if found is None:
        raise RouteNotFound("The dashboard has no file of this name.")
    headers = {"ETag": found.etag, "Vary": "Accept-Encoding"}
    headers["Cache-Control"] = FOREVER if of_version == version() else "no-store"
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(found.gzipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=found.media_type)
    return Response(found.body, headers=headers, media_type=found.media_type)


def base_of(request: Request) -> str:
    """The service's URL as this client sees it, for the curl commands that a page shows."""
    return str(request.base_url).rstrip("/")
