"""Nothing that a client sends is a fault of the service, and nothing that is refused changes anything."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from okl.errors import ServiceError
from okl_core.errors import OklError
from service.api.patterns import REQUIRED
from service.settings import Settings
from service.store.sqlite import SqliteStore
from tests.docs.pages import section, table_rows
from tests.service import bad_requests
from tests.service.api import Api, check_problem, openapi, serving, serving_on
from tests.service.definitions import MEAN, POMDR
from tests.service.test_states import put, take
from tests.service.worker import Clock

pytestmark = pytest.mark.anyio

NAMES = ("s", "r", "f", "new")
JSON = {"content-type": "application/json"}
TOGETHER = 20
"""How many bad requests are sent before all is looked at again."""


@pytest.fixture
async def seeded(store_url: str) -> AsyncIterator[Api]:
    async with serving(store_url) as api:
        await bad_requests.sessions(api)
        await api.worker.rounds.summaries.close()
        yield api


async def everything(api: Api) -> dict[str, Any]:
    """All that a client and the store can say of every session, and of the list of them."""
    told = {name: (await api.http.get(f"/sessions/{name}")).content for name in NAMES}
    kept = {name: await api.store.read(name) for name in NAMES}
    return {"told": told, "kept": kept, "list": (await api.http.get("/sessions")).content}


def assert_refused(response: httpx.Response, bad: bad_requests.Bad) -> None:
    problem = check_problem(response, bad.slug)
    assert response.status_code < 500
    assert "Infinity" not in response.text
    assert "NaN" not in response.text
    if bad.pointer is not None:
        assert bad.pointer in [error["pointer"] for error in problem.get("errors", [])], problem


async def test_everything_bad_is_told_and_changes_nothing(seeded: Api) -> None:
    """One service for the whole table: what a row leaves behind stays, so it shows after the next few rows, too."""
    before = await everything(seeded)
    failures = {}
    rows = list(bad_requests.TABLE.items())
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        for name, bad in some:
            response = await seeded.http.request(bad.method, bad.path, content=bad.content, headers=JSON)
            try:
                assert_refused(response, bad)
            except AssertionError as error:
                failures[name] = f"{response.status_code} {response.text[:300]}\n{str(error)[:600]}"
        if await everything(seeded) != before:
            failures[" | ".join(name for name, _ in some)] = "one of them changed something"
            before = await everything(seeded)
    assert not failures, "\n\n".join(f"{name}: {told}" for name, told in failures.items())
    assert (await seeded.update("yes", id="waits"))["t"] == 2
    assert (await seeded.update("yes", x=[0.0, 1.0], id="settled"))["duplicate"]


async def test_a_session_is_as_good_as_one_that_never_saw_bad_input(memory: Api) -> None:
    """Refused rounds in between leave no trace in later predictions."""
    rows = [([0.1 * i, 0.5], "yes" if i % 3 else "no") for i in range(5)]
    bad = [
        row for row in bad_requests.TABLE.values() if row.path.startswith("/sessions/s/") and row.slug != "id-conflict"
    ]
    for name in ("s", "clean"):
        await memory.create({"kind": "pomdr"}, name, dim=2, labels=["no", "yes"])
        for x, y in rows:
            for row in bad if name == "s" else []:
                response = await memory.http.request(row.method, row.path, content=row.content, headers=JSON)
                assert response.status_code >= 400, row
            await memory.update(y, name, x=x)
    assert (await memory.inspect())["metrics"] == (await memory.inspect("clean"))["metrics"]
    answers = [await memory.predict([0.3, 0.4], name, wait=False) for name in ("s", "clean")]
    assert answers[0]["score"] == answers[1]["score"]


def patterns_in(document: Any) -> set[str]:
    """All patterns of an OpenAPI document."""
    if isinstance(document, dict):
        own = {document["pattern"]} if isinstance(document.get("pattern"), str) else set()
        return own.union(*map(patterns_in, document.values()))
    return set().union(*map(patterns_in, document)) if isinstance(document, list) else set()


async def test_what_a_pattern_requires_is_told_in_words(memory: Api) -> None:
    assert patterns_in(openapi()) == REQUIRED.keys()
    await memory.create(MEAN)
    for problem, path, body, more, words in (
        ("invalid-request", "/sessions/s/predict", {"x": [1.0], "id": "a b"}, {}, "without spaces"),
        ("invalid-request", "/sessions/s/predict", {"x": [1.0], "id": "."}, {}, "and not be `.` or `..`"),
        ("invalid-name", "/sessions/a b/predict", {"x": [1.0]}, {}, "start with a letter or a digit"),
    ):
        assert words in (await memory.refused(problem, "POST", path, body, **more))["detail"]


@pytest.mark.parametrize(("count", "told"), [(0, "must have at least 1 item"), (1001, "must have at most 1000 items")])
async def test_a_list_of_a_wrong_length_is_told_in_plain_words(memory: Api, count: int, told: str) -> None:
    await memory.create(MEAN)
    body = {"x": [[1.0]] * count, "wait": False}
    answer = await memory.refused("invalid-request", "POST", "/sessions/s/predictions", body)
    assert answer["errors"] == [{"pointer": "/x", "detail": told}]


async def test_a_body_without_a_length_is_cut_off(seeded: Api) -> None:
    """No more of it is read than the limit takes."""
    before = await everything(seeded)
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(50):
            sent += 1
            yield bytes(bad_requests.MEGABYTE)

    limits = Settings(store="sqlite://")
    for path, limit in (
        ("/sessions/s/predict", limits.max_row_bytes),
        ("/sessions", limits.max_row_bytes),
        ("/sessions/s/rounds", limits.max_body_bytes),
    ):
        sent = 0
        response = await seeded.http.post(path, content=body(), headers=JSON)
        assert check_problem(response, "payload-too-large")["limit"] == limit
        assert sent <= limit // bad_requests.MEGABYTE + 2
    assert await everything(seeded) == before


async def test_an_announced_length_is_no_way_around_the_limit(memory: Api) -> None:
    await memory.create(MEAN)
    for announced in ("10", "-1", "x", "9" * 100):
        response = await memory.http.post(
            "/sessions/s/predict", content=bytes(9 << 20), headers=JSON | {"content-length": announced}
        )
        check_problem(response, "payload-too-large")


async def test_an_expired_id_changes_nothing(clocked: SqliteStore, clock: Clock) -> None:
    async with serving_on(clocked) as api:
        await api.create(MEAN, expires_s=1.0)
        await api.predict([1.0], id="p")
        before = await api.store.read("s")
        clock.skip(1.5)
        await api.refused("prediction-expired", "POST", "/sessions/s/update", {"id": "p", "y": 1.0})
        assert await api.store.read("s") == before


async def test_large_values_that_fit_are_learned(memory: Api) -> None:
    await memory.create(MEAN, y_range=[0.0, 1e145])
    await memory.update(1e145, x=[1e150])
    await memory.update(5e144, x=[-1e150])
    assert (await memory.predict([0.0], wait=False))["value"] == pytest.approx(7.5e144)
    found = await memory.http.get("/sessions/s")
    json.loads(found.content, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


@pytest.mark.parametrize("kind", ["mean", "kernel-ridge"])
async def test_a_session_survives_errors_whose_squares_overflow_in_sum(memory: Api, kind: str) -> None:
    await memory.create({"kind": kind})
    for i in range(40):
        answer = await memory.http.post(
            "/sessions/s/update", json={"x": [i / 40.0], "y": (0.0, 1.3e154, 0.0, 1e145)[i % 4]}
        )
        assert answer.status_code in (200, 422), answer.text
    snapshot, _ = await take(memory)
    copied = await put(memory, snapshot, "copy", If_None_Match="*")
    assert copied.status_code == 201, copied.text
    expected = await memory.predict([0.5], wait=False) | {"session": "copy"}
    assert await memory.predict([0.5], "copy", wait=False) == expected
    for path in ("", "/history"):
        found = await memory.http.get(f"/sessions/copy{path}")
        json.loads(found.content, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


@pytest.mark.parametrize("wanted", ["abc-123", None])
async def test_the_instance_is_the_request_id(memory: Api, wanted: str | None) -> None:
    headers = {} if wanted is None else {"x-request-id": wanted}
    found = {(await memory.refused("not-found", "GET", "/nowhere", headers=headers))["instance"] for _ in range(2)}
    assert found == {wanted} if wanted else len(found) == 2


async def test_a_pointer_to_what_is_not_in_the_body_is_its_name(memory: Api) -> None:
    """As docs/http-api.md says."""
    row = next(row for row in table_rows(section("http-api.md", "## Errors")) if row[0] == "`errors`")
    for path, headers, pointer in (("?limit=0", {}, "/limit"), ("/s", {"If-Match": "x"}, "/If-Match")):
        method = "DELETE" if headers else "GET"
        problem = await memory.refused("invalid-request", method, f"/sessions{path}", headers=headers)
        assert [error["pointer"] for error in problem["errors"]] == [pointer]
        assert f"`{pointer}`" in row[1]


@pytest.mark.parametrize("x", [[0.5, 1e308], [1.0]], ids=["the learner refuses it", "the session refuses it"])
async def test_what_was_refused_leaves_nothing_behind(memory: Api, x: list[float]) -> None:
    """Not even until the collector comes: with an error its frames would stay, and with these a copy of the session."""
    await memory.create(POMDR, labels=["no", "yes"])
    await memory.update("yes", x=[0.0, 1.0])
    line = json.dumps({"x": x}).encode() + b"\n"
    lines = {"content": 5 * line, "headers": {"Content-Type": "application/x-ndjson"}}
    gc.collect()
    gc.disable()
    try:
        requests: dict[str, Any] = {
            "predict": {"json": {"x": x}},
            "rounds": {"json": {"x": [x], "y": ["no"]}},
            "stream": lines,
        }
        for path, request in requests.items():
            for _ in range(5):
                assert "/problems/" in (await memory.http.post(f"/sessions/s/{path}", **request)).text
            for _ in range(1000):
                left = [one for one in gc.get_objects() if isinstance(one, ServiceError | OklError)]
                if not left:
                    break
                del left
                # A thread that learned a batch may still be on its way out.
                await asyncio.sleep(0.01)
            else:
                pytest.fail(f"errors of {path} are still there")
    finally:
        gc.enable()
