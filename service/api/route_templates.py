"""The label under which a request is counted: the template of its route, never its path."""

from __future__ import annotations

from typing import Any, Final, final

from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Scope

NO_ROUTE: Final = "none"
"""The label of a request that no route took: an unknown path, a refused request, a browser's CORS preflight."""

OTHER_METHOD: Final = "other"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@final
class RouteTemplates:
    """Finds the template of a request's route. FastAPI leaves its route in the scope, other routes only their endpoint."""

    def __init__(self) -> None:
        self._others: dict[Any, str] | None = None

    def of(self, scope: Scope) -> str:
        """The template of a request that the app has answered."""
        route = scope.get("route")
        if route is not None:
            return getattr(route, "path", NO_ROUTE)
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return NO_ROUTE
        if self._others is None:
            self._others = dict(_templates(scope["app"].routes))
        return self._others.get(endpoint, NO_ROUTE)


def _templates(routes: list[BaseRoute]) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = []
    for route in routes:
        if isinstance(route, Mount):
            found.append((route.app, f"{route.path}/{{path}}"))
        elif isinstance(route, Route):
            found.append((route.endpoint, route.path))
    return found


def method_of(scope: Scope) -> str:
    """The request's method, or `other`, so that clients cannot add labels."""
    method = scope["method"]
    return method if method in METHODS else OTHER_METHOD
