"""The fast way of `body_route`: endpoints called without FastAPI, if they need only the request, its path, headers, body.

Only FastAPI can solve a signature with anything else, such as a query parameter or a dependency with a `yield`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, get_type_hints

from fastapi import Request
from fastapi.params import Depends as Dependency
from fastapi.params import Header as HeaderField
from fastapi.params import Path as PathField
from pydantic import TypeAdapter, ValidationError

from okl_core.contract.wrong_fields import MISSING


class Reader(Protocol):
    """Reads the body of a request that has not been read yet."""

    async def read(self, request: Request) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """A path parameter or a header, according to `location`, validated by its annotation; `key` is the header's name."""

    location: str
    alias: str
    key: bytes
    adapter: TypeAdapter[Any]
    default: Any

    def value(self, request: Request, errors: list[Any]) -> Any:
        raw = self._raw(request)
        if raw is None:
            if self.default is inspect.Parameter.empty:
                errors.append({"type": "missing", "loc": (self.location, self.alias), "msg": MISSING})
            return self.default
        try:
            return self.adapter.validate_python(raw)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            errors += [one | {"loc": (self.location, self.alias, *one["loc"])} for one in found]
            return None

    def _raw(self, request: Request) -> str | None:
        if self.location == "path":
            return request.path_params.get(self.alias)
        for name, value in request.scope["headers"]:
            if name == self.key:
                return value.decode("latin-1")
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A coroutine function, and where its arguments come from: the request (None), a parameter, another call."""

    function: Callable[..., Any]
    arguments: tuple[tuple[str, Source], ...]

    def parameters(self) -> Iterator[Parameter]:
        for _, source in self.arguments:
            if isinstance(source, Parameter):
                yield source
            elif isinstance(source, Call):
                yield from source.parameters()

    def functions(self) -> Iterator[Callable[..., Any]]:
        yield self.function
        for _, source in self.arguments:
            if isinstance(source, Call):
                yield from source.functions()

    async def values(self, request: Request, given: Mapping[Parameter, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, source in self.arguments:
            if source is None:
                values[name] = request
            elif isinstance(source, Parameter):
                values[name] = given[source]
            else:
                values[name] = await source.function(**await source.values(request, given))
        return values


Source = Parameter | Call | None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How to call an endpoint: the argument `body` is the request's body, the others are those of `call`."""

    call: Call
    body: str
    reader: Reader

    async def run(self, request: Request, given: Mapping[Parameter, Any]) -> Any:
        values = await self.call.values(request, given)
        values[self.body] = await self.reader.read(request)
        return await self.call.function(**values)


class NeedsFastAPI(Exception):
    """The signature has something that only FastAPI can solve."""


def _call_of(function: Callable[..., Any], body: str = "") -> Call:
    """Raises NeedsFastAPI."""
    # FastAPI would call a plain function in a thread.
    if not inspect.iscoroutinefunction(function):
        raise NeedsFastAPI
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    arguments = tuple((name, _source(one, hints.get(name))) for name, one in parameters.items() if name != body)
    return Call(function, arguments)


def _source(parameter: inspect.Parameter, hint: Any) -> Source:
    if hint is Request:
        return None
    metadata = getattr(hint, "__metadata__", ())
    dependency = next((one for one in metadata if isinstance(one, Dependency)), None)
    field = next((one for one in metadata if isinstance(one, HeaderField | PathField)), None)
    if dependency is not None:
        is_ordinary = type(dependency) is Dependency and dependency.scope is None and field is None
        if not is_ordinary or dependency.dependency is None:
            raise NeedsFastAPI
        return _call_of(dependency.dependency)
    if field is None:
        raise NeedsFastAPI
    location = "path" if isinstance(field, PathField) else "header"
    alias = field.alias or (parameter.name if location == "path" else parameter.name.replace("_", "-"))
    return Parameter(location, alias, alias.lower().encode(), TypeAdapter(hint), parameter.default)


def plan(endpoint: Callable[..., Any], readers: Mapping[str, Reader]) -> Plan | None:
    """None for an endpoint that only FastAPI can call."""
    if len(readers) != 1:
        return None
    (body, reader), *_ = readers.items()
    try:
        call = _call_of(endpoint, body)
    except NeedsFastAPI:
        return None
    functions = list(call.functions())
    # FastAPI would call a shared dependency only once.
    return Plan(call, body, reader) if len(set(functions)) == len(functions) else None
