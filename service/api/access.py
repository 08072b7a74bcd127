"""The scope that a key needs for each route. A route that is missing here is closed to every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, final

from starlette.routing import compile_path

from ..keys.key import KeyScope

READ, WRITE, ADMIN = KeyScope.READ, KeyScope.WRITE, KeyScope.ADMIN

WEBSOCKET: Final = "WEBSOCKET"
"""The `method` of the rule of a websocket."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A route and who may use it.

    `scope` is None if everybody may. `is_whole`: it covers all sessions, so keys for some of them may not use it.
    `is_audited`: the audit log records it. `is_page`: a reader without a key is sent to sign in. `is_long`: its answer may
    never end, so its key is checked again periodically. `is_without_store`: it tells that the store does not answer, so the
    keys that were read last count meanwhile.
    """

    method: str
    path: str
    scope: KeyScope | None
    is_whole: bool = False
    is_audited: bool = False
    is_page: bool = False
    is_long: bool = False
    is_without_store: bool = False


ACCESS_RULES: Final = (
    AccessRule("POST", "/predict", WRITE),
    AccessRule("POST", "/update", WRITE),
    AccessRule("POST", "/step", WRITE),
    AccessRule("POST", "/sessions/predict", WRITE),
    AccessRule("POST", "/sessions/step", WRITE),
    AccessRule("POST", "/sessions/update", WRITE),
    AccessRule("POST", "/sessions/{session}/predict", WRITE),
    AccessRule("POST", "/sessions/{session}/update", WRITE),
    AccessRule("POST", "/sessions/{session}/step", WRITE),
    AccessRule("POST", "/sessions/{session}/rounds", WRITE),
    AccessRule("POST", "/sessions/{session}/stream", WRITE, is_long=True),
    AccessRule(WEBSOCKET, "/sessions/{session}/stream", WRITE, is_long=True),
    AccessRule("POST", "/sessions/{session}/predictions", WRITE),
    AccessRule("DELETE", "/sessions/{session}/predictions/{id:path}", WRITE, is_audited=True),
    AccessRule("POST", "/sessions", ADMIN, is_audited=True),
    AccessRule("POST", "/sessions/{session}/freeze", ADMIN, is_audited=True),
    AccessRule("DELETE", "/sessions/{session}", ADMIN, is_audited=True),
    AccessRule("GET", "/sessions/{session}/snapshot", READ),
    AccessRule("PUT", "/sessions/{session}/snapshot", ADMIN, is_audited=True),
    AccessRule("POST", "/sessions/{session}/clone", ADMIN, is_audited=True),
    AccessRule("POST", "/sessions/{session}/rename", ADMIN, is_audited=True),
    AccessRule("POST", "/sessions/{session}/checkpoints", ADMIN, is_audited=True),
    AccessRule("GET", "/sessions/{session}/checkpoints", READ),
    AccessRule("DELETE", "/sessions/{session}/checkpoints/{checkpoint}", ADMIN, is_audited=True),
    AccessRule("POST", "/sessions/{session}/rollback", ADMIN, is_audited=True),
    AccessRule("POST", "/sessions/{session}/challengers", ADMIN, is_audited=True),
    AccessRule("GET", "/sessions/{session}/challengers", READ),
    AccessRule("GET", "/sessions/{session}/challengers/{challenger}", READ),
    AccessRule("DELETE", "/sessions/{session}/challengers/{challenger}", ADMIN, is_audited=True),
    AccessRule("POST", "/sessions/{session}/challengers/{challenger}/promote", ADMIN, is_audited=True),
    AccessRule("GET", "/templates", READ, is_whole=True),
    AccessRule("GET", "/templates/{template}", READ, is_whole=True),
    AccessRule("PUT", "/templates/{template}", ADMIN, is_whole=True, is_audited=True),
    AccessRule("DELETE", "/templates/{template}", ADMIN, is_whole=True, is_audited=True),
    AccessRule("GET", "/sessions", READ),
    AccessRule("GET", "/sessions/{session}", READ),
    AccessRule("GET", "/sessions/{session}/history", READ),
    AccessRule("GET", "/sessions/{session}/rounds", READ),
    AccessRule("GET", "/sessions/{session}/predictions", READ),
    AccessRule("GET", "/sessions/{session}/events", READ, is_long=True),
    AccessRule("GET", "/learners", READ),
    AccessRule("GET", "/", READ, is_page=True),
    AccessRule("GET", "/compare", READ, is_page=True),
    AccessRule("GET", "/sessions/{session}/page", READ, is_page=True),
    AccessRule("GET", "/index.json", READ),
    AccessRule("GET", "/compare.json", READ),
    AccessRule("GET", "/sessions/{session}/page.json", READ),
    AccessRule("GET", "/docs", READ, is_page=True),
    AccessRule("GET", "/docs/oauth2-redirect", READ, is_page=True),
    AccessRule("GET", "/redoc", READ, is_page=True),
    AccessRule("GET", "/openapi.json", READ),
    AccessRule("GET", "/static-offline-docs/{path:path}", READ),
    AccessRule("GET", "/metrics", READ, is_whole=True, is_without_store=True),
    AccessRule("GET", "/healthz", None),
    AccessRule("GET", "/readyz", None),
    AccessRule("GET", "/problems/{slug}", None),
    AccessRule("GET", "/static/{of_version}/{name}", None),
    AccessRule("GET", "/signin", None),
    AccessRule("POST", "/signin", None),
    AccessRule("POST", "/signout", None),
)


class Accessed(NamedTuple):
    """The rule of a request, and the session in its path; if there is no rule, the methods that the path does have."""

    rule: AccessRule | None
    session: str | None = None
    methods: tuple[str, ...] = ()


@final
class AccessTable:
    """Finds the access rule of a request as the router finds its route: the first match, by the same patterns."""

    def __init__(self, rules: tuple[AccessRule, ...] = ACCESS_RULES) -> None:
        self._rules = [(rule, compile_path(rule.path)[0]) for rule in rules]
        self.find = lru_cache(1024)(self._find)

    def _find(self, method: str, path: str) -> Accessed:
        others: set[str] = set()
        for rule, found in self._matches(path):
            if rule.method == method:
                return Accessed(rule, found.groupdict().get("session"))
            others |= {"GET", "HEAD"} if rule.method == "GET" else {rule.method}
        return Accessed(None, methods=tuple(sorted(others - {WEBSOCKET})))

    def _matches(self, path: str) -> Iterator[tuple[AccessRule, re.Match[str]]]:
        for rule, pattern in self._rules:
            found = pattern.match(path)
            if found is not None:
                yield rule, found
