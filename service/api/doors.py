"""The scope that a key needs for each route. A route that is missing here is closed to every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from starlette.routing import compile_path

from ..keys.key import KeyScope

READ, WRITE, ADMIN = KeyScope.READ, KeyScope.WRITE, KeyScope.ADMIN

WEBSOCKET: Final = "WEBSOCKET"
"""The `method` of a websocket's door."""


@dataclass(frozen=True, slots=True)
class Door:
    """A route and who may use it.

    `scope` is None if everybody may. `is_whole`: it covers all sessions, so keys for some of them may not use it.
    `is_audited`: the audit log records it. `is_page`: a reader without a key is sent to sign in. `is_long`: its answer may
    never end, so its key is checked again periodically.
    """

    method: str
    path: str
    scope: KeyScope | None
    is_whole: bool = False
    is_audited: bool = False
    is_page: bool = False
    is_long: bool = False


DOORS: Final = (
    Door("POST", "/predict", WRITE),
    Door("POST", "/update", WRITE),
    Door("POST", "/step", WRITE),
    Door("POST", "/sessions/predict", WRITE),
    Door("POST", "/sessions/step", WRITE),
    Door("POST", "/sessions/update", WRITE),
    Door("POST", "/sessions/{session}/predict", WRITE),
    Door("POST", "/sessions/{session}/update", WRITE),
    Door("POST", "/sessions/{session}/step", WRITE),
    Door("POST", "/sessions/{session}/rounds", WRITE),
    Door("POST", "/sessions/{session}/stream", WRITE, is_long=True),
    Door(WEBSOCKET, "/sessions/{session}/stream", WRITE, is_long=True),
    Door("POST", "/sessions/{session}/predictions", WRITE),
    Door("DELETE", "/sessions/{session}/predictions/{id:path}", WRITE, is_audited=True),
    Door("POST", "/sessions", ADMIN, is_audited=True),
    Door("POST", "/sessions/{session}/freeze", ADMIN, is_audited=True),
    Door("DELETE", "/sessions/{session}", ADMIN, is_audited=True),
    Door("GET", "/sessions/{session}/snapshot", READ),
    Door("PUT", "/sessions/{session}/snapshot", ADMIN, is_audited=True),
    Door("POST", "/sessions/{session}/clone", ADMIN, is_audited=True),
    Door("POST", "/sessions/{session}/rename", ADMIN, is_audited=True),
    Door("POST", "/sessions/{session}/checkpoints", ADMIN, is_audited=True),
    Door("GET", "/sessions/{session}/checkpoints", READ),
    Door("DELETE", "/sessions/{session}/checkpoints/{checkpoint}", ADMIN, is_audited=True),
    Door("POST", "/sessions/{session}/rollback", ADMIN, is_audited=True),
    Door("POST", "/sessions/{session}/challengers", ADMIN, is_audited=True),
    Door("GET", "/sessions/{session}/challengers", READ),
    Door("GET", "/sessions/{session}/challengers/{challenger}", READ),
    Door("DELETE", "/sessions/{session}/challengers/{challenger}", ADMIN, is_audited=True),
    Door("POST", "/sessions/{session}/challengers/{challenger}/promote", ADMIN, is_audited=True),
    Door("GET", "/templates", READ, is_whole=True),
    Door("GET", "/templates/{template}", READ, is_whole=True),
    Door("PUT", "/templates/{template}", ADMIN, is_whole=True, is_audited=True),
    Door("DELETE", "/templates/{template}", ADMIN, is_whole=True, is_audited=True),
    Door("GET", "/sessions", READ),
    Door("GET", "/sessions/{session}", READ),
    Door("GET", "/sessions/{session}/history", READ),
    Door("GET", "/sessions/{session}/rounds", READ),
    Door("GET", "/sessions/{session}/predictions", READ),
    Door("GET", "/sessions/{session}/events", READ, is_long=True),
    Door("GET", "/learners", READ),
    Door("GET", "/", READ, is_page=True),
    Door("GET", "/compare", READ, is_page=True),
    Door("GET", "/sessions/{session}/page", READ, is_page=True),
    Door("GET", "/index.json", READ),
    Door("GET", "/compare.json", READ),
    Door("GET", "/sessions/{session}/page.json", READ),
    Door("GET", "/docs", READ, is_page=True),
    Door("GET", "/docs/oauth2-redirect", READ, is_page=True),
    Door("GET", "/redoc", READ, is_page=True),
    Door("GET", "/openapi.json", READ),
    Door("GET", "/static-offline-docs/{path:path}", READ),
    Door("GET", "/metrics", READ, is_whole=True),
    Door("GET", "/healthz", None),
    Door("GET", "/readyz", None),
    Door("GET", "/problems/{slug}", None),
    Door("GET", "/static/{of_version}/{name}", None),
    Door("GET", "/signin", None),
    Door("POST", "/signin", None),
    Door("POST", "/signout", None),
)

Found = tuple[Door | None, str | None, tuple[str, ...]]


@final
class Doors:
    """Finds the door of a request as the router finds its route: the first match, by the same patterns."""

    def __init__(self, doors: tuple[Door, ...] = DOORS) -> None:
        self._doors = [(door, compile_path(door.path)[0]) for door in doors]
        self.find = lru_cache(1024)(self._find)

    def _find(self, method: str, path: str) -> Found:
        """The door, the session in the path, and, if there is no door, the methods that the path does have."""
        others: set[str] = set()
        for door, found in self._matches(path):
            if door.method == method:
                return door, found.groupdict().get("session"), ()
            others |= {"GET", "HEAD"} if door.method == "GET" else {door.method}
        return None, None, tuple(sorted(others - {WEBSOCKET}))

    def _matches(self, path: str) -> Iterator[tuple[Door, re.Match[str]]]:
        for door, pattern in self._doors:
            found = pattern.match(path)
            if found is not None:
                yield door, found
