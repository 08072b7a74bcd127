"""Routes with a JSON body: bytes to model in one strict validation, and the answer straight to bytes.

The endpoint is an ordinary FastAPI endpoint and is documented as such. FastAPI's own call path (decode, solve, validate,
encode) takes 66 us here and lets NaN through; this one takes 27 us. If there are dependencies that the endpoint's signature
does not show, such as a router's dependencies or overrides, FastAPI solves them; the body is still read by this code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, Final, Generic, TypeVar, final, get_type_hints
from weakref import CallableProxyType, WeakKeyDictionary, proxy

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from okl.errors import UnsupportedMediaType

from ..pointers import invalid
from .bodies import check_encoding, content_type, too_large
from .body_ends import length_in
from .calls import Parameter, plan
from .problems import validation_problem
from .queries import check_query
from .request_checks import LIMITS
from .slices import SLICE_BYTES, BodyLimits, SlicedReader
from .values import Id

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_DEFAULT_LIMITS: Final = BodyLimits()


def reply(answer: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(to_json(answer, inf_nan_mode="null"), status, headers, media_type="application/json")


# -- the id of a round, as a header ---------------------------------------------------------------------------------


def _unquoted(value: object) -> object:
    """The key without quotes. The header's draft standard requires quotes, but most clients omit them."""
    is_quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if isinstance(value, str) and is_quoted else value


async def idempotency_key(
    key: Annotated[
        Id | None,
        BeforeValidator(_unquoted),
        Header(
            alias="Idempotency-Key",
            description="An alternative to `id` in the body: a request that is sent again with the same key is applied once.",
        ),
    ] = None,
) -> str | None:
    return key


IdempotencyKey = Annotated[str | None, Depends(idempotency_key)]


def one_id(in_body: str | None, key: str | None) -> str | None:
    """The request's id, from the body or the header. Raises InvalidInput if the two differ."""
    if key is not None and in_body is not None and key != in_body:
        raise invalid("/id", "must be the same as in the header Idempotency-Key")
    return in_body or key


# -- the body -------------------------------------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModel)


@final
class BodyReader(Generic[M]):
    """Reads the bodies of one model. Also a dependency, for FastAPI."""

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self._adapter = TypeAdapter(model)
        in_slices: tuple[str, ...] = getattr(model, "in_slices", ())
        self._sliced = SlicedReader(model, in_slices) if in_slices else None

    async def __call__(self, request: Request) -> M:
        """Read a body that may have been read before: the request caches it."""
        limits = self._admit(request)
        return await self._parse(await request.body(), limits)

    async def read(self, request: Request) -> M:
        """Read a body that has not been read before."""
        limits = self._admit(request)
        receive = request.receive
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message["body"])
            if not message.get("more_body", False):
                return await self._parse(b"".join(parts), limits)
            size += len(parts[-1])
            if self._sliced is None and size > limits.row_bytes:
                raise too_large(limits.row_bytes)

    def _admit(self, request: Request) -> BodyLimits:
        """Refuse a body that, by its headers, is not JSON or is too large."""
        limits: BodyLimits = request.scope.get(LIMITS, _DEFAULT_LIMITS)
        kind = content_type(request.scope)
        if kind != b"application/json" and not _is_json(kind):
            raise UnsupportedMediaType(
                "The body must be JSON in UTF-8 and say so: Content-Type: application/json, as `curl --json` does"
                f"{_also(self._model)}."
            )
        check_encoding(request.scope)
        announced: bytes = dict(request.scope["headers"]).get(b"content-length", b"")
        if self._sliced is None and announced.isdigit() and length_in(announced) > limits.row_bytes:
            raise too_large(limits.row_bytes)
        return limits

    async def _parse(self, data: bytes, limits: BodyLimits) -> M:
        if self._sliced is not None and len(data) > SLICE_BYTES:
            return await self._sliced.read(data, limits)
        if self._sliced is None and len(data) > limits.row_bytes:
            raise too_large(limits.row_bytes)
        limits.check_values(data)
        try:
            return self._adapter.validate_json(data)
        except ValidationError as error:
            raise validation_problem(error, self._model) from None


def _also(model: type[BaseModel]) -> str:
    """What else a route with this body takes, at the end of an error."""
    kinds: str = getattr(model, "other_kinds", "")
    return f"; this route also takes {kinds}" if kinds else ""


@lru_cache(256)
def _is_json(kind: bytes) -> bool:
    name, *parameters = [part.strip() for part in kind.decode("latin-1").lower().split(";")]
    charsets = [value.strip("\"' ") for key, _, value in (one.partition("=") for one in parameters) if key == "charset"]
    is_named = name == "application/json" or (name.startswith("application/") and name.endswith("+json"))
    return is_named and all(charset in ("utf-8", "utf8") for charset in charsets)


# -- the route ------------------------------------------------------------------------------------------------------


@final
class BodyEndpoint:
    """An endpoint: the reader of its body, what is checked before that is read, and the answer as a response."""

    def __init__(self, function: Callable[..., Any], status: int) -> None:
        hints = get_type_hints(function)
        self.function = function
        self.readers = {name: BodyReader(hint) for name, hint in hints.items() if name != "return" and _is_model(hint)}
        self.plan = plan(function, self.readers)
        """How to call it without FastAPI; None if only FastAPI can."""
        self._parameters = () if self.plan is None else tuple(self.plan.call.parameters())
        models = [hints[name] for name in self.readers]
        self._members = [member for model in models for member in model.model_fields]
        self._note = "".join([_also(model) for model in models])
        self._status = status

    def check(self, request: Request) -> dict[Parameter, Any]:
        """The parameters' values. Raises RequestValidationError for the path or a header, InvalidInput for a query."""
        check_query(request, self.function, self._members, self._note)
        errors: list[Any] = []
        values = {parameter: parameter.value(request, errors) for parameter in self._parameters}
        if errors:
            raise RequestValidationError(errors)
        return values

    def finish(self, answer: Any) -> Response:
        return answer if isinstance(answer, Response) else reply(answer, self._status)


@final
class SolvedByFastAPI:
    """The endpoint as FastAPI sees it: the body is one more dependency, so FastAPI does not read it itself."""

    def __init__(self, endpoint: BodyEndpoint) -> None:
        self._endpoint = endpoint
        signature = inspect.signature(endpoint.function)
        hints = get_type_hints(endpoint.function, include_extras=True)
        readers = endpoint.readers
        self.__signature__ = signature.replace(
            parameters=[
                one.replace(
                    annotation=Annotated[Any, Depends(readers[name])] if name in readers else hints.get(name, Any)
                )
                for name, one in signature.parameters.items()
            ],
            return_annotation=Response,
        )

    async def __call__(self, **values: Any) -> Response:
        return self._endpoint.finish(await self._endpoint.function(**values))


@dataclass(frozen=True)
class Way:
    """One mount point of a route in an app: its path, whether it can be called without FastAPI, and FastAPI's handler."""

    path: re.Pattern[str]
    is_direct: bool
    make: Callable[[], Handler]

    @cached_property
    def solved(self) -> Handler:
        """Made when it is first used, which takes milliseconds: where `is_direct`, it hardly ever is."""
        return self.make()


class BodyRoute(APIRoute):
    """A route for `APIRouter(route_class=BodyRoute)`: an async endpoint with one parameter whose type is a model, the body.

    A body whose model has `in_slices` may have `max_body_bytes` bytes, any other body `max_row_bytes`.
    """

    _body_endpoint: BodyEndpoint
    _ways: WeakKeyDictionary[FastAPI, list[Way]]

    def get_route_handler(self) -> Handler:
        """Build the handler; FastAPI calls this while it creates the route."""
        self._body_endpoint = BodyEndpoint(self.endpoint, self.status_code or 200)
        self._ways = WeakKeyDictionary()
        fastapi_handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            way = self._way_in(request.app, request.scope)
            return await (fastapi_handler if way is None else way.solved)(request)

        return handle

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # FastAPI sets up exit stacks for dependencies with `yield` in each request: 20 us. These endpoints have none.
        if scope["method"] not in (self.methods or ()) or not await self._answer(scope, receive, send):
            await super().handle(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer without FastAPI, unless there are dependencies that the endpoint's signature does not show.

        Returns whether the request was answered.
        """
        endpoint = self._body_endpoint
        app: FastAPI | None = scope.get("app")
        if endpoint.plan is None or app is None or app.dependency_overrides:
            return False
        way = self._way_in(app, scope)
        if way is None or not way.is_direct:
            return False
        request = Request(scope, receive, send)
        response = endpoint.finish(await endpoint.plan.run(request, endpoint.check(request)))
        await response(scope, receive, send)
        return True

    def _way_in(self, app: FastAPI, scope: Scope) -> Way | None:
        found = self._ways.get(app)
        if found is None:
            found = self._ways[app] = self._ways_in(app)
        if len(found) == 1:
            return found[0]
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return next((way for way in found if way.path.match(path)), None)

    def _ways_in(self, app: FastAPI) -> list[Way]:
        """The route's mount points in this app. There may be several, since a router may be included twice."""
        endpoint = self._body_endpoint
        found: list[Way] = []
        for context in iter_route_contexts(app.routes):
            if context.original_route is self and context.path is not None:
                # The app's dependencies are missing from the context of a route that was added ready-made.
                needs = [one for one in app.router.dependencies if all(one is not own for own in context.dependencies)]
                needs += context.dependencies
                # FastAPI enforces its own body limit in its own handler only.
                is_direct = endpoint.plan is not None and not needs and context.max_body_size is None
                make = partial(_solved, context, endpoint, needs, proxy(app))
                found.append(Way(compile_path(context.path)[0], is_direct, make))
        return found


def _is_model(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, BaseModel)


def _solved(
    context: RouteContext, endpoint: BodyEndpoint, needs: Sequence[Dependency], app: CallableProxyType[FastAPI]
) -> Handler:
    """FastAPI's handler for the route at this mount point. `app` is a weak proxy: what an app has must not keep it alive."""

    async def checked(request: Request) -> None:
        endpoint.check(request)

    route = APIRoute(
        context.path or "/",
        SolvedByFastAPI(endpoint),
        dependencies=[*needs, Depends(checked)],
        dependency_overrides_provider=app,
        response_model=None,
        name=context.name,
    )
    return route.get_route_handler()
