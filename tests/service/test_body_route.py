"""A body is read the same way, whoever solves the rest of the request."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from service.app import create_app
from service.settings import Settings
from tests.service.checked_app import (
    PLAIN,
    Wire,
    ask,
    nothing_to_say,
    problem_of,
    scope_of,
    small_app,
)

pytestmark = pytest.mark.anyio

GOOD = b'{"session": "s", "x": [1, 2.5]}'


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/vnd.a+json"],
)
async def test_json_is_taken(kind: str) -> None:
    assert (await ask(PLAIN, "POST", "/predict", content=GOOD, headers={"content-type": kind})).status_code == 201


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "application/json; charset=latin-1",
        "text/json",
        "application/jsonp",
    ],
)
@pytest.mark.parametrize("path", ["/predict", "/rounds"])
async def test_what_a_page_may_send_without_asking_is_no_json(kind: str | None, path: str) -> None:
    headers = {} if kind is None else {"content-type": kind}
    document = problem_of(await ask(PLAIN, "POST", path, content=GOOD, headers=headers), 415, "unsupported-media-type")
    assert "curl --json" in document["detail"]


def _rows(count: int) -> str:
    return json.dumps([[i + 0.5, float(i)] for i in range(count)])


BODIES: dict[str, tuple[str, bytes, dict[str, str]]] = {
    "good": ("/predict", GOOD, {}),
    "good in a path": ("/sessions/s/predict", GOOD, {}),
    "a key": ("/predict", GOOD, {"idempotency-key": "k1"}),
    "a quoted key": ("/predict", GOOD, {"idempotency-key": '"k1"'}),
    "the same key": ("/predict", b'{"session": "s", "x": [1], "id": "k"}', {"idempotency-key": "k"}),
    "another key": ("/predict", b'{"session": "s", "x": [1], "id": "a"}', {"idempotency-key": "b"}),
    "a long key": ("/predict", GOOD, {"idempotency-key": "k" * 129}),
    "an empty key": ("/predict", GOOD, {"idempotency-key": ""}),
    "a key with a space": ("/predict", GOOD, {"idempotency-key": "a b"}),
    "a wrong name": ("/predict", b'{"session": "a b", "x": [1]}', {}),
    "a wrong name in the path": ("/sessions/a_b/predict", GOOD, {}),
    "a long name in the path": ("/sessions/" + "a" * 2000 + "/predict", GOOD, {}),
    "no JSON": ("/predict", b"{", {}),
    "nothing": ("/predict", b"", {}),
    "NaN": ("/predict", b'{"session": "s", "x": [NaN]}', {}),
    "an unknown member": ("/predict", b'{"session": "s", "x": [1], "y": 1}', {}),
    "a boolean": ("/predict", b'{"session": "s", "x": [1, true, true]}', {}),
    "a text for a number": ("/predict", b'{"session": "s", "x": ["1"]}', {}),
    "a list": ("/predict", b"[]", {}),
    "rounds": ("/rounds", b'{"x": [[1]], "y": [1]}', {}),
    "many rounds": ("/rounds", f'{{"x": {_rows(3000)}, "y": {[1.5] * 3000}, "id": "a"}}'.encode(), {}),
    "rounds of different lengths": ("/rounds", b'{"x": [[1]], "y": [1, 2]}', {}),
    "many of different lengths": ("/rounds", f'{{"x": {_rows(3000)}, "y": {[1.5] * 2999}}}'.encode(), {}),
    "a wrong text among many": ("/rounds", f'{{"x": {_rows(3000)}, "y": {[1.5] * 3000}, "id": "abcde"}}'.encode(), {}),
    "nothing of many": ("/rounds", f'{{"x": {_rows(3000)}}}'.encode(), {}),
}


def without_instance(response: httpx.Response) -> tuple[int, Any]:
    document = response.json()
    return response.status_code, {name: value for name, value in document.items() if name not in ("instance", "calls")}


async def nothing_in_the_end() -> AsyncIterator[None]:
    yield


OVERRIDDEN = small_app()
OVERRIDDEN.dependency_overrides[nothing_to_say] = nothing_to_say
TWICE = small_app(nothing_to_say, times=2)
SOLVED_BY_FASTAPI = (small_app(nothing_to_say), small_app(nothing_in_the_end), OVERRIDDEN, TWICE)


@pytest.mark.parametrize("name", BODIES)
async def test_both_ways_give_the_same_answers(name: str) -> None:
    """Ours, and FastAPI's where there is more to solve: a router's dependency, an override, a router that is there twice."""
    path, content, headers = BODIES[name]
    request = {"content": content, "headers": {"content-type": "application/json"} | headers}
    expected = without_instance(await ask(PLAIN, "POST", path, **request))
    for app in SOLVED_BY_FASTAPI:
        assert without_instance(await ask(app, "POST", path, **request)) == expected
    assert without_instance(await ask(TWICE, "POST", "/v1" + path, **request)) == expected


def dependencies_of(dependant: Dependant) -> Iterator[Any]:
    for one in dependant.dependencies:
        yield one.call
        yield from dependencies_of(one)


def test_no_dependency_of_a_route_is_called_in_a_thread() -> None:
    """FastAPI would call a plain function in one, and the way there and back takes longer than a round."""
    contexts = list(iter_route_contexts(create_app(Settings(store="sqlite://")).routes))
    routes = [one.original_route for one in contexts if isinstance(one.original_route, APIRoute)]
    assert len(routes) > 50
    for route in routes:
        for call in dependencies_of(route.dependant):
            of_class = inspect.iscoroutinefunction(type(call).__call__)
            assert of_class or inspect.iscoroutinefunction(call), (route.path, call)


async def test_an_answer_that_is_no_response_is_json() -> None:
    for app in (small_app(), small_app(nothing_to_say)):
        response = await ask(app, "POST", "/sessions/abc/predict", json={"session": "s", "x": [1.0]})
        assert (response.status_code, response.json()) == (200, {"session": "abc", "n": 1})


async def test_what_is_refused_by_its_path_has_its_body_not_read() -> None:
    for app in (small_app(), small_app(nothing_to_say)):
        wire = Wire()
        await asyncio.wait_for(
            app(scope_of(path="/sessions/a_b/predict", content_length="9"), wire.receive, wire.send), 5
        )
        assert wire.sent[0]["status"] == 422
        assert app.state.backend.calls == 0


async def test_a_dependency_that_reads_the_body_leaves_it() -> None:
    """Such as one that checks a signature of it."""
    seen = []

    async def signed(request: Request) -> None:
        seen.append(await request.body())

    response = await ask(
        small_app(signed), "POST", "/predict", content=GOOD, headers={"content-type": "application/json"}
    )
    assert response.status_code == 201
    assert seen == [GOOD]
