"""Query parameters. One that its route does not have is refused: it is misspelt, or belongs into the body."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, Final, get_type_hints

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from fastapi.params import Header, Path, Query
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from ..pointers import invalid

_SHOWN: Final = 64


def check_query(
    request: HTTPConnection, endpoint: Callable[..., Any], members: Collection[str] = (), note: str = ""
) -> None:
    """Raises InvalidInput for a query parameter that the endpoint does not have.

    `members` are those of the body, `note` says what else the route takes.
    """
    if not request.scope["query_string"]:
        return
    known = _query_names(endpoint)
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        own = f"there is only {', '.join(known)}" if known else "there is none"
        fix = "put it into the body" if unknown in members else f"{own}{note}"
        raise invalid(f"/{unknown[:_SHOWN]}", f"is no query parameter here; {fix}")


@lru_cache(None)
def _query_names(endpoint: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(sorted(_names(endpoint)))


def _names(function: Callable[..., Any]) -> Iterator[str]:
    """The query parameters of a function, and of those that it depends on."""
    hints = get_type_hints(function, include_extras=True)
    for name in inspect.signature(function).parameters:
        hint = hints[name]
        metadata = getattr(hint, "__metadata__", ())
        dependency = next((one.dependency for one in metadata if isinstance(one, Dependency)), None)
        if dependency is not None:
            yield from _names(dependency)
        elif not (_is_read_otherwise(hint) or any(isinstance(one, Header | Path) for one in metadata)):
            yield next((one.alias for one in metadata if isinstance(one, Query) and one.alias), name)


def _is_read_otherwise(hint: Any) -> bool:
    """Whether it is the connection itself, or a body."""
    return inspect.isclass(hint) and issubclass(hint, HTTPConnection | BaseModel)


async def _check_query(request: Request) -> None:
    check_query(request, request.scope["endpoint"])


KNOWN_QUERY: Final = Depends(_check_query)
"""The dependency of routes that refuse unknown query parameters. A `BodyRoute` refuses them by itself."""
