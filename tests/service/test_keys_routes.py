"""Every route with every kind of wrong key, and with a right one: from the application's routes and its OpenAPI document."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount, WebSocketRoute

from okl.errors import StoreUnavailable
from service.api.access import ACCESS_RULES, ADMIN, READ, WEBSOCKET, WRITE, AccessRule, AccessTable
from service.app import create_app
from service.settings import Settings
from service.store.sqlite_keys import SqliteKeys
from tests.redis_server import connect, redis_server
from tests.service.api import Api, check_problem, serving
from tests.service.keyed import Made, look_again, make, revoke

pytestmark = pytest.mark.anyio

IN, OUT, NOWHERE = "team-a", "other-a", "other-nobody"
BODIES: dict[str, Any] = {
    "/predict": {"x": [1.0]},
    "/update": {"x": [1.0], "y": 1.0},
    "/step": {"update": {"x": [1.0], "y": 1.0}, "predict": {"x": [1.0]}},
    "/rounds": {"x": [[1.0]], "y": [1.0]},
    "/predictions": {"x": [[1.0]]},
    "/freeze": {"name": "{}-frozen", "rule": "last"},
    "/clone": {"name": "{}-clone"},
    "/rename": {"name": "{}-renamed"},
    "/checkpoints": {"name": "kept"},
    "/rollback": {"checkpoint": "nothing-kept"},
    "/challengers": {"name": "nobody", "learner": {"kind": "mean"}},
}
CLOSED = [rule for rule in ACCESS_RULES if rule.scope is not None]


def label(rule: AccessRule) -> str:
    return f"{rule.method} {rule.path}"


def routes() -> set[tuple[str, str]]:
    """All that the application answers, the OpenAPI document's own among them."""
    app = create_app(Settings(store="sqlite://"))
    found: set[tuple[str, str]] = set()
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, WebSocketRoute) and route.path is not None:
            found.add((WEBSOCKET, route.path))
        for method in route.methods or ():
            if method != "HEAD" and route.path is not None:
                found.add((method, route.path))
        if route.methods is None and isinstance(getattr(route, "original_route", None) or route, Mount):
            found.add(("GET", f"{route.path}/{{path:path}}"))
    found |= {("GET", f"{route.path}/{{path:path}}") for route in app.routes if isinstance(route, Mount)}
    document = app.openapi()["paths"]
    named = {(method.upper(), path) for path, methods in document.items() for method in methods}
    assert {(m, re.sub(r":path\}", "}", p)) for m, p in found} >= named
    return found


def test_every_route_has_a_door_and_every_door_a_route() -> None:
    assert {(rule.method, rule.path) for rule in ACCESS_RULES} == routes()


def test_who_may_take_what_is_as_it_was_decided() -> None:
    assert {label(rule) for rule in ACCESS_RULES if rule.scope is None} == {
        "GET /healthz",
        "GET /readyz",
        "GET /problems/{slug}",
        "GET /static/{of_version}/{name}",
        "GET /signin",
        "POST /signin",
        "POST /signout",
    }
    assert all(rule.scope in (WRITE, ADMIN) for rule in CLOSED if rule.method != "GET")
    assert all(rule.scope is READ for rule in CLOSED if rule.method == "GET")


def test_a_path_that_several_doors_fit_is_that_of_the_router() -> None:
    table = AccessTable()
    found = {
        path: table.find(method, path)[:2]
        for method, path in (("POST", "/sessions/predict"), ("GET", "/sessions/predict"), ("GET", "/nothing"))
    }
    assert found["/sessions/predict"][0] == AccessRule("GET", "/sessions/{session}", READ)
    assert table.find("POST", "/sessions/predict")[0] == AccessRule("POST", "/sessions/predict", WRITE)
    assert found["/nothing"] == (None, None)
    assert table.find("DELETE", "/sessions/s/predictions/a/b")[1] == "s"


def request_for(rule: AccessRule, name: str) -> tuple[str, str, Any]:
    """A request that the route takes, of this session if it is of one."""
    path = rule.path.replace("{session}", name).replace("{id:path}", "nothing-waits").replace("{slug}", "not-found")
    path = (
        path.replace("{path:path}", "swagger-ui.css")
        .replace("{checkpoint}", "nothing-kept")
        .replace("{challenger}", "nobody")
        .replace("{template}", "no-template")
    )
    if rule.path in ("/compare", "/compare.json"):
        path += f"?session={name}"
    if rule.method != "POST":
        return rule.method, path, None
    if rule.path == "/sessions":
        return "POST", path, {"name": f"{name}-new"}
    if rule.path == "/sessions/predict":
        return "POST", path, {"sessions": [name], "x": [1.0]}
    if rule.path == "/sessions/step":
        return "POST", path, {"steps": [{"session": name, **BODIES["/step"]}]}
    if rule.path.endswith(("/stream", "/promote")):
        return "POST", path, None
    if rule.path == "/sessions/update":
        return "POST", path, {"sessions": [{"session": name, "y": 1.0}], "x": [1.0]}
    body = dict(BODIES["/" + rule.path.rpartition("/")[2]])
    if rule.path.count("/") == 1:
        body["session"] = name
    if "name" in body:
        body["name"] = body["name"].format(name)
    return "POST", path, body


def is_of_a_session(rule: AccessRule) -> bool:
    """Does a request of it name one? The lists name none; they are of their own test."""
    return (
        "{session}" in rule.path
        or rule.path.startswith("/compare")
        or (rule.method == "POST" and rule.path not in ("/signin", "/signout"))
    )


@dataclass
class Keyed:
    api: Api
    url: str
    keys: dict[str, Made]

    async def ask(self, rule: AccessRule, name: str, headers: dict[str, str]) -> httpx.Response:
        method, path, body = request_for(rule, name)
        if rule.is_long:  # its answer has no end: who is let in is told by its head alone
            return await _head_of(self.api, method, path, headers)
        if rule.path.endswith("/rollback"):
            headers = headers | {"If-Match": "*"}
        return await self.api.http.request(method, path, json=body, headers=headers)


async def _head_of(api: Api, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    sent: list[Any] = []
    has_begun = asyncio.Event()
    asked = 0
    is_socket = method == WEBSOCKET
    if path.endswith("/stream"):
        headers = headers | {"Content-Type": "application/x-ndjson"}

    async def receive() -> Any:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.Event().wait()
        return {"type": "websocket.connect"} if is_socket else {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)
        has_begun.set()

    raw = [(b"host", b"okl"), *((k.lower().encode(), v.encode()) for k, v in headers.items())]
    scope = {
        "type": "websocket" if is_socket else "http",
        **({"extensions": {"websocket.http.response": {}}} if is_socket else {"method": method}),
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": raw,
    }
    task = asyncio.create_task(
        api.app({**scope, "http_version": "1.1", "scheme": "http", "root_path": ""}, receive, send)
    )
    await has_begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    if sent[0]["type"] == "websocket.accept":
        return httpx.Response(200)
    return httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=body)


@pytest.fixture(scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Keyed]:
    folder: Path = tmp_path_factory.mktemp("keyed")
    url = f"sqlite:///{folder / 'okl.sqlite3'}"
    keys = {
        "admin": await make(url),
        "write": await make(url, WRITE),
        "read": await make(url, READ),
        "team": await make(url, prefix="team-"),
        "expired": await make(url, expires_at=time.time() - 1.0),
        "revoked": await make(url),
    }
    await revoke(url, keys["revoked"])
    async with serving(url) as api:
        for name in (IN, OUT):
            made = await api.http.post("/sessions", json={"name": name}, headers=keys["admin"].headers)
            assert made.status_code == 201, made.text
        yield Keyed(api, url, keys)


def wrong_keys(keys: dict[str, Made]) -> dict[str, dict[str, str]]:
    right = keys["admin"]
    flipped = right.text[:-1] + ("A" if right.text[-1] != "A" else "B")
    return {
        "none": {},
        "empty": {"Authorization": ""},
        "no bearer": {"Authorization": right.text},
        "basic": {"Authorization": f"Basic {right.text}"},
        "no key": {"Authorization": "Bearer let-me-in"},
        "wrong secret": {"Authorization": f"Bearer {flipped}"},
        "another's secret": {"Authorization": f"Bearer okl_{right.key.id}_{keys['read'].secret}"},
        "unknown id": {"Authorization": f"Bearer okl_zzzzzzzz_{right.secret}"},
        "digest": {"Authorization": f"Bearer okl_{right.key.id}_{right.key.digest.hex()[:43]}"},
        "expired": keys["expired"].headers,
        "revoked": keys["revoked"].headers,
        "cookie of nothing": {"Cookie": "okl_key=abc"},
        "cookie of a key": {"Cookie": f"okl_key={right.text}"},
        "forged cookie": {"Cookie": f"okl_key={right.key.id}.99999999999.{'0' * 64}"},
    }


@pytest.mark.parametrize("rule", CLOSED, ids=label)
async def test_no_wrong_key_opens_a_route(keyed: Keyed, rule: AccessRule) -> None:
    for what, headers in wrong_keys(keyed.keys).items():
        found = await keyed.ask(rule, IN, headers)
        check_problem(found, "unauthenticated")
        assert found.headers["www-authenticate"] == 'Bearer realm="okl"', what


async def test_what_is_wrong_with_the_credentials_is_told(keyed: Keyed) -> None:
    wrong = wrong_keys(keyed.keys)
    told = {
        "A key is required": ("none", "basic"),
        "This key is not valid": ("wrong secret", "expired"),
        "You are no longer signed in": ("forged cookie",),
    }
    for detail, names in told.items():
        for name in names:
            found = await keyed.api.http.get("/sessions", headers=wrong[name])
            assert check_problem(found, "unauthenticated")["detail"].startswith(detail), name


async def test_two_keys_are_none(keyed: Keyed) -> None:
    given = [("Authorization", f"Bearer {keyed.keys['admin'].text}")] * 2
    found = await keyed.api.http.get("/sessions", headers=given)
    check_problem(found, "unauthenticated")


@pytest.mark.parametrize("rule", [rule for rule in CLOSED if rule.scope is not READ], ids=label)
async def test_a_lesser_scope_is_refused(keyed: Keyed, rule: AccessRule) -> None:
    lesser = ["read"] if rule.scope is WRITE else ["read", "write"]
    for scope in lesser:
        for name in (IN, NOWHERE):
            check_problem(await keyed.ask(rule, name, keyed.keys[scope].headers), "forbidden")


@pytest.mark.parametrize("rule", [rule for rule in CLOSED if is_of_a_session(rule)], ids=label)
async def test_a_session_outside_the_prefix_is_refused_whether_it_exists_or_not(keyed: Keyed, rule: AccessRule) -> None:
    told = [await keyed.ask(rule, name, keyed.keys["team"].headers) for name in (OUT, NOWHERE)]
    documents = [check_problem(found, "forbidden") | {"instance": ""} for found in told]
    assert documents[0] == documents[1]


@pytest.mark.parametrize("rule", [rule for rule in CLOSED if not is_of_a_session(rule)], ids=label)
async def test_a_route_of_no_session_tells_of_no_other(keyed: Keyed, rule: AccessRule) -> None:
    found = await keyed.ask(rule, IN, keyed.keys["team"].headers)
    if rule.is_whole:
        check_problem(found, "forbidden")
    else:
        assert found.status_code == 200
        assert OUT not in found.text


async def test_one_foreign_session_of_several_refuses_them_all(keyed: Keyed) -> None:
    headers, http = keyed.keys["team"].headers, keyed.api.http
    several = {"sessions": [IN, OUT], "x": [1.0]}
    check_problem(await http.post("/sessions/predict", json=several, headers=headers), "forbidden")
    truths = {"sessions": [{"session": IN, "y": 1.0}, {"session": OUT, "y": 1.0}], "x": [1.0]}
    before = (await http.get(f"/sessions/{IN}", headers=headers)).json()["t"]
    check_problem(await http.post("/sessions/update", json=truths, headers=headers), "forbidden")
    assert (await http.get(f"/sessions/{IN}", headers=headers)).json()["t"] == before
    frozen = {"name": "other-frozen", "rule": "last"}
    check_problem(await http.post(f"/sessions/{IN}/freeze", json=frozen, headers=headers), "forbidden")
    compared = await http.get("/compare.json", params={"session": [IN, OUT]}, headers=headers)
    check_problem(compared, "forbidden")


@pytest.mark.parametrize("rule", CLOSED, ids=label)
async def test_a_good_key_passes(keyed: Keyed, rule: AccessRule) -> None:
    """What the route itself says then is its own: there may be nothing to freeze or to cancel."""
    assert rule.scope is not None
    headers = keyed.keys[rule.scope.word].headers
    name = "team-passing"
    await keyed.api.http.post("/sessions", json={"name": name}, headers=keyed.keys["admin"].headers)
    found = await keyed.ask(rule, name, headers)
    if rule.method == "PUT":  # there is no state in the request
        check_problem(found, "unsupported-media-type")
        return
    if rule.path.endswith("/challengers") and rule.method == "POST":  # it has learned nothing that one could follow
        check_problem(found, "invalid-request")
        return
    assert found.status_code in (200, 201, 204, 404, 409), found.text
    if found.status_code in (404, 409):
        own = (
            "prediction-not-found",
            "cannot-freeze",
            "checkpoint-not-found",
            "session-not-found",
            "template-not-found",
        )
        assert found.json()["type"].removeprefix("/problems/") in own
    for made in (name, f"{name}-new", f"{name}-clone", f"{name}-renamed"):
        await keyed.api.http.delete(f"/sessions/{made}", headers=keyed.keys["admin"].headers)


@pytest.mark.parametrize("rule", [rule for rule in ACCESS_RULES if rule.scope is None], ids=label)
async def test_an_open_route_asks_for_nothing(keyed: Keyed, rule: AccessRule) -> None:
    path = rule.path.replace("{slug}", "forbidden").replace("{of_version}", "x").replace("{name}", "style.css")
    form = {"content": "key=x", "headers": {"content-type": "application/x-www-form-urlencoded"}}
    found = await keyed.api.http.request(rule.method, path, **(form if rule.path == "/signin" else {}))
    assert found.status_code in ((200, 303) if rule.method == "GET" or rule.path == "/signout" else (401,))


async def test_what_has_no_door_is_told_to_those_with_a_key_alone(keyed: Keyed) -> None:
    http, headers = keyed.api.http, keyed.keys["admin"].headers
    for method, path in (
        ("GET", "/nothing"),
        ("PATCH", f"/sessions/{IN}"),
        ("OPTIONS", "/sessions"),
        ("GET", "//sessions"),
    ):
        check_problem(await http.request(method, path), "unauthenticated")
    check_problem(await http.get("/nothing", headers=headers), "not-found")
    found = await http.patch(f"/sessions/{IN}", headers=headers)
    assert check_problem(found, "method-not-allowed")["detail"] == "This path takes DELETE, GET, HEAD."
    assert found.headers["allow"] == "DELETE, GET, HEAD"


async def test_a_route_that_nobody_has_decided_on_is_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    made = await make(url)
    async with serving(url) as api:
        api.app.add_api_route("/new-route", lambda: {"secret": 1}, methods=["GET"])
        check_problem(await api.http.get("/new-route"), "unauthenticated")
        check_problem(await api.http.get("/new-route", headers=made.headers), "not-found")


async def test_lists_have_the_sessions_of_the_prefix_alone_page_by_page(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    admin = await make(url)
    names = [
        "team",
        "team-",
        "team--",
        "team-0",
        "team-A",
        "team-a",
        "team-zz",
        "team.",
        "teamA",
        "a",
        "z",
        "tea",
        "Team-a",
    ]
    async with serving(url) as api:
        for name in names:
            await api.http.post("/sessions", json={"name": name}, headers=admin.headers)
        for prefix in ("team-", "team", "a", "z", "T", "nobody", ""):
            key = await make(url, READ, prefix=prefix)
            await look_again(api)
            expected = sorted(name for name in names if name.startswith(prefix))
            for limit in (1, 2, 3, 100):
                found: list[str] = []
                query: dict[str, Any] = {"limit": limit}
                while True:
                    page = (await api.http.get("/sessions", params=query, headers=key.headers)).json()
                    found += [one["name"] for one in page["sessions"]]
                    if page["next"] is None:
                        break
                    query["cursor"] = page["next"]
                assert found == expected, (prefix, limit)
            twin = (await api.http.get("/index.json", params={"sort": "t"}, headers=key.headers)).json()
            assert sorted(one["name"] for one in twin["sessions"]) == expected
            cursor = (await api.http.get("/sessions", params={"cursor": "tea"}, headers=key.headers)).json()
            assert [one["name"] for one in cursor["sessions"]] == [name for name in expected if name > "tea"]


@pytest.mark.redis
async def test_a_page_that_ends_at_a_damaged_session_of_others_does_not_name_it(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as port:
        url = f"redis://127.0.0.1:{port}"
        admin, team = await make(url), await make(url, READ, prefix="team-")
        async with serving(url) as api:
            for name in ("team-a", "zulu", "zulu-2"):
                await api.call("POST", "/sessions", {"name": name}, status=201, headers=admin.headers)
            with connect(port) as server:
                server.hset("okl:{zulu}:head", "counters", b"damaged")
            for query in ({"limit": 2}, {"limit": 1, "cursor": "team-a"}):
                page = await api.call("GET", "/sessions", headers=team.headers, params=query)
                assert page["next"] is None
                page = await api.call("GET", "/sessions", headers=admin.headers, params=query)
                assert page["next"] == "zulu"


async def test_who_could_not_read_the_keys_lets_nobody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on this machine's own address starts while its store answers everything but that."""
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    made = await make(url)
    with monkeypatch.context() as patch:

        async def read(keys: SqliteKeys, version: str) -> None:
            raise StoreUnavailable("The store does not answer.")

        patch.setattr(SqliteKeys, "read", read)
        async with serving(url) as api:
            for headers in ({}, made.headers):
                await api.refused("store-unavailable", "GET", "/sessions", headers=headers)
            patch.undo()
            await api.refused("unauthenticated", "GET", "/sessions")
            assert (await api.call("GET", "/sessions", headers=made.headers))["sessions"] == []
