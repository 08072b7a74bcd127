"""Sessions made on first use: by which requests, of which templates, how many; and how they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from okl.client import Client
from okl.errors import SessionNotFound, TemplateNotFound
from service.api.lines import MEDIA_TYPE
from service.keys.key import KeyScope
from service.store.base import Gone, Head, WaitingPage
from service.store.sqlite import SqliteStore
from service.store.template_store import TEMPLATE_BYTES
from service.templates import expiry, templates
from service.templates.expiry import Expiry
from service.templates.template import Template, decode_template, encode_template
from tests.service.api import Api, serving, serving_on
from tests.service.definitions import EXACT, MEAN, define
from tests.service.keyed import make
from tests.service.worker import Clock

pytestmark = pytest.mark.anyio

OF_MEAN = {"learner": MEAN, **EXACT}
X = [1.0, 2.0]


async def put(api: Api, name: str = "clicks", prefix: str = "clicks.", **more: Any) -> dict[str, Any]:
    return await api.call("PUT", f"/templates/{name}", {"prefix": prefix, "session": OF_MEAN, **more})


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[tuple[Api, Api]]:
    async with serving(store_url) as one, serving(store_url) as other:
        yield one, other


# -- templates --------------------------------------------------------------------------------------------------------


async def test_templates_are_put_listed_looked_at_and_deleted(api: Api) -> None:
    assert await api.call("GET", "/templates") == {"templates": []}
    told = await put(api, most=3, idle_s=60)
    assert (told["name"], told["prefix"], told["most"], told["idle_s"]) == ("clicks", "clicks.", 3, 60.0)
    assert told["session"]["learner"]["kind"] == "mean"
    other = await put(api, "all", "c")
    assert (other["most"], other["idle_s"]) == (1000, None)
    assert await api.call("GET", "/templates") == {"templates": [other, told]}
    assert await api.call("GET", "/templates/clicks") == told
    changed = await put(api, most=4)
    assert await api.call("GET", "/templates/clicks") == changed
    await api.call("DELETE", "/templates/clicks", status=204)
    await api.refused("template-not-found", "GET", "/templates/clicks")
    await api.refused("template-not-found", "DELETE", "/templates/clicks")
    assert await api.call("GET", "/templates") == {"templates": [other]}


async def test_what_a_template_says_of_its_sessions_can_be_said_again(memory: Api) -> None:
    told = await put(memory)
    again = await memory.call("PUT", "/templates/clicks", {key: told[key] for key in told if key != "name"})
    assert again == told


@pytest.mark.parametrize(
    ("slug", "body"),
    [
        ("invalid-request", {"prefix": "clicks/"}),
        ("invalid-request", {"prefix": ""}),
        ("invalid-request", {"prefix": "c" * 64}),
        ("invalid-request", {"prefix": "c", "most": 0}),
        ("invalid-request", {"prefix": "c", "idle_s": 1}),
        ("invalid-request", {"prefix": "c", "session": {"name": "s"}}),
        ("invalid-request", {"prefix": "c", "session": {"dim": 10**9}}),
        ("unknown-learner", {"prefix": "c", "session": {"learner": {"kind": "nothing"}}}),
        ("invalid-config", {"prefix": "c", "session": {"learner": {"kind": "mean", "config": {"a": 1}}}}),
        ("payload-too-large", {"prefix": "c", "session": {"labels": [f"{i:0200d}" for i in range(30)]}}),
        ("invalid-request", {"prefix": "taken"}),
    ],
)
async def test_a_template_that_makes_no_session_is_refused(memory: Api, slug: str, body: dict[str, Any]) -> None:
    await put(memory, "other", "taken")
    await memory.refused(slug, "PUT", "/templates/t", body)
    assert [one["name"] for one in (await memory.call("GET", "/templates"))["templates"]] == ["other"]


def test_a_template_is_stored_whole_and_what_is_none_is_told() -> None:
    made = Template("t", "c.", define(name="c."), 7, 60.0)
    blob = encode_template(made)
    assert decode_template("t", blob) == made
    for wrong in (b"", b"{}", b"[]", blob[:-1], blob.replace(b'"version":1', b'"version":2', 1), bytes(TEMPLATE_BYTES)):
        with pytest.raises(ValueError, match="not the record of a template"):
            decode_template("t", wrong)


# -- first use --------------------------------------------------------------------------------------------------------

_TRUTH = {"x": X, "y": 3.0}
FIRST: dict[str, tuple[str, dict[str, Any]]] = {
    "predict": ("/sessions/clicks.a/predict", {"x": X}),
    "predict alone": ("/predict", {"session": "clicks.a", "x": X}),
    "inference": ("/sessions/clicks.a/predict", {"x": X, "wait": False}),
    "update": ("/sessions/clicks.a/update", _TRUTH),
    "step": ("/sessions/clicks.a/step", {"update": _TRUTH, "predict": {"x": X}}),
    "rounds": ("/sessions/clicks.a/rounds", {"x": [X], "y": [3.0]}),
    "predictions": ("/sessions/clicks.a/predictions", {"x": [X]}),
    "several predictions": ("/sessions/predict", {"sessions": ["clicks.a"], "x": X}),
    "several updates": ("/sessions/update", {"sessions": [{"session": "clicks.a", "y": 3.0}], "x": X}),
    "several steps": ("/sessions/step", {"steps": [{"session": "clicks.a", "update": _TRUTH, "predict": {"x": X}}]}),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
async def test_the_first_use_makes_a_session(memory: Api, first: tuple[str, dict[str, Any]]) -> None:
    await put(memory)
    told = await memory.call("POST", *first)
    assert "refused" not in str(told)
    found = await memory.inspect("clicks.a")
    assert (found["template"], found["kind"]) == ("clicks", "mean")


@pytest.mark.parametrize("path", ["stream", "rounds"])
async def test_lines_make_a_session(memory: Api, path: str) -> None:
    await put(memory)
    answer = await memory.http.post(
        f"/sessions/clicks.a/{path}", content=b'{"x": [1.0], "y": 2.0}\n', headers={"content-type": MEDIA_TYPE}
    )
    assert (answer.status_code, answer.json()["t"]) == (200, 1)
    refused = await memory.http.post(
        f"/sessions/other/{path}", content=b'{"x": [1.0], "y": 2.0}\n', headers={"content-type": MEDIA_TYPE}
    )
    assert "session-not-found" in refused.text


def test_a_socket_makes_a_session_and_the_client_knows_templates(client: Client) -> None:
    made = client.put_template("clicks", "clicks.", session=OF_MEAN, most=2)
    assert client.templates() == [made]
    with client.stream("clicks.a") as stream:
        told = list(stream.ask([{"x": X, "y": 1.0}, {"x": X}]))
    assert [one["t"] for one in told] == [1, 1]
    client.predict("clicks.b", X)
    with client.stream("clicks.c") as stream:
        (told,) = stream.ask([{"x": X}])
    assert told["refused"]["type"] == "/problems/limit-reached"
    client.delete_template("clicks")
    with pytest.raises(TemplateNotFound):
        client.delete_template("clicks")
    with pytest.raises(SessionNotFound), client.stream("clicks.d") as stream:
        list(stream.ask([{"x": X}]))


async def test_what_is_no_use_makes_no_session(memory: Api) -> None:
    await put(memory)
    for method, path, body, headers in (
        ("GET", "/sessions/clicks.a", None, {}),
        ("DELETE", "/sessions/clicks.a", None, {}),
        ("POST", "/sessions/clicks.a/update", {"id": "v1", "y": 1.0}, {}),
        ("POST", "/sessions/clicks.a/rounds", {"x": [X], "y": [1.0]}, {"If-Match": f'"0-{"0" * 32}"'}),
        ("POST", "/sessions/clicks.a/rounds", {"x": [X], "y": [1.0]}, {"If-Match": "*"}),
        ("POST", "/sessions/clicks.~b/predict", {"x": X}, {}),
        ("POST", "/sessions/clicks./predict", {"x": X}, {}),
        ("POST", "/sessions/click/predict", {"x": X}, {}),
    ):
        answer = await memory.http.request(method, path, json=body, headers=headers)
        assert answer.status_code in (404, 422), (path, answer.text)
    assert (await memory.call("GET", "/sessions"))["sessions"] == []


async def test_the_longest_prefix_wins(memory: Api) -> None:
    await put(memory, "a", "c")
    await put(memory, "b", "c.eu.")
    await put(memory, "c", "c.")
    for name, template in (("c.eu.1", "b"), ("c.eu", "c"), ("c.", "a"), ("cx", "a")):
        await memory.predict(X, name)
        assert (await memory.inspect(name))["template"] == template


async def test_a_deleted_session_is_made_anew_and_one_of_a_deleted_template_stays(memory: Api) -> None:
    await put(memory)
    await memory.update(1.0, "clicks.a", x=X)
    await memory.call("DELETE", "/sessions/clicks.a", status=204)
    assert (await memory.update(1.0, "clicks.a", x=X, id="v1"))["t"] == 1
    await memory.call("DELETE", "/templates/clicks", status=204)
    assert (await memory.update(1.0, "clicks.a", x=X))["t"] == 2
    await memory.refused("session-not-found", "POST", "/sessions/clicks.b/predict", {"x": X})


async def test_a_worker_learns_of_a_template_within_two_seconds(
    workers: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert templates.SEEN_S == 2.0
    monkeypatch.setattr(templates, "SEEN_S", 0.0)  # as if two seconds passed between any two requests
    one, other = workers
    await other.refused("session-not-found", "POST", "/sessions/clicks.a/predict", {"x": X})
    await put(one)
    await one.predict(X, "clicks.a")
    await other.predict(X, "clicks.b")


async def test_workers_that_race_make_one_session_and_lose_no_round(workers: tuple[Api, Api]) -> None:
    await put(workers[0])
    await workers[1].call("GET", "/templates")
    for session in ("clicks.a", "clicks.b", "clicks.c"):
        told = await asyncio.gather(
            *(workers[i % 2].update(float(i), session, x=X, id=f"v{i}") for i in range(20)),
        )
        assert sorted(one["t"] for one in told) == list(range(1, 21))
        assert (await workers[0].inspect(session))["t"] == 20


async def test_a_copy_of_a_session_is_of_no_template(memory: Api) -> None:
    await put(memory)
    await memory.update(1.0, "clicks.a", x=X)
    for act, name in (("clone", "clicks.b"), ("freeze", "clicks.c")):
        told = await memory.call("POST", f"/sessions/clicks.a/{act}", {"name": name}, status=201)
        assert told["template"] is None
    await memory.call("POST", "/sessions/clicks.a/checkpoints", {"name": "kept"}, status=201)
    back = await memory.call("POST", "/sessions/clicks.a/rollback", {"checkpoint": "kept"}, headers={"If-Match": "*"})
    assert back["template"] == "clicks"


# -- how many ---------------------------------------------------------------------------------------------------------


async def test_a_template_makes_no_more_sessions_than_it_allows(memory: Api) -> None:
    await put(memory, most=2)
    for name in ("clicks.a", "clicks.b", "clicks.a"):
        await memory.predict(X, name)
    problem = await memory.refused("limit-reached", "POST", "/sessions/clicks.c/predict", {"x": X})
    assert (problem["template"], problem["session"]) == ("clicks", "clicks.c")
    told = await memory.call("POST", "/sessions/predict", {"sessions": ["clicks.a", "clicks.c"], "x": X})
    assert told["predictions"][1]["refused"]["type"] == "/problems/limit-reached"
    await memory.call("DELETE", "/sessions/clicks.a", status=204)
    await memory.predict(X, "clicks.c")


async def test_who_waits_too_long_for_others_is_told(memory: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(memory)
    monkeypatch.setattr(templates, "MADE_WITHIN_S", 0.0)
    told = await asyncio.gather(*(memory.http.post(f"/sessions/clicks.{i}/predict", json={"x": X}) for i in range(5)))
    assert {one.status_code for one in told} == {200, 503}
    await memory.predict(X, "clicks.9")


async def test_workers_that_race_make_at_most_one_more_each(workers: tuple[Api, Api]) -> None:
    await put(workers[0], most=5)
    await workers[1].call("GET", "/templates")
    told = await asyncio.gather(
        *(workers[i % 2].http.post(f"/sessions/clicks.{i}/predict", json={"x": X}) for i in range(30))
    )
    made = sum(one.status_code == 200 for one in told)
    assert {one.status_code for one in told} == {200, 429}
    assert 5 <= made <= 6
    assert await workers[0].store.count("clicks.") == made


# -- the idle ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def timed(clocked: SqliteStore) -> AsyncIterator[Api]:
    """A worker whose store goes by the test's clock, with a template whose sessions may be idle for a minute."""
    async with serving_on(clocked, waiting_expires_s=300.0) as api:
        await put(api, idle_s=60)
        yield api


@pytest.fixture
def sweeper(timed: Api, clock: Clock) -> Expiry:
    return Expiry(timed.worker.templates, timed.worker.sessions, clock=clock)


async def names(api: Api) -> list[str]:
    return [one["name"] for one in (await api.call("GET", "/sessions"))["sessions"]]


async def test_an_idle_session_is_deleted_and_others_stay(timed: Api, sweeper: Expiry, clock: Clock) -> None:
    await timed.update(1.0, "clicks.a", x=X)
    await timed.create(name="clicks.own")
    await timed.create(name="other")
    clock.skip(59.0)
    assert await sweeper.sweep() == 0
    await timed.update(1.0, "clicks.b", x=X)
    clock.skip(1.0)
    assert await sweeper.sweep() == 1
    assert await names(timed) == ["clicks.b", "clicks.own", "other"]
    assert await sweeper.sweep() == 0
    assert (await timed.update(1.0, "clicks.a", x=X))["t"] == 1


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_sweep_stops_when_its_template_is_deleted_or_replaced(
    timed: Api, sweeper: Expiry, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    monkeypatch.setattr(expiry, "LISTED_AT_ONCE", 1)
    for name in ("clicks.a", "clicks.b"):
        await timed.update(1.0, name, x=X)
    clock.skip(60.0)
    delete = timed.worker.sessions.delete_unused

    async def delete_with_template(head: Head, not_before: float) -> bool:
        if is_replaced:
            await put(timed, idle_s=600)
        else:
            await timed.call("DELETE", "/templates/clicks", status=204)
        return await delete(head, not_before)

    monkeypatch.setattr(timed.worker.sessions, "delete_unused", delete_with_template)
    assert await sweeper.sweep() == 1
    assert await names(timed) == ["clicks.b"]


async def test_what_waits_keeps_a_session_and_so_does_a_prediction_of_late(
    timed: Api, sweeper: Expiry, clock: Clock
) -> None:
    await timed.predict(X, "clicks.waits")
    await timed.update(1.0, "clicks.asked", x=X)
    clock.skip(50.0)
    await timed.predict(X, "clicks.asked", wait=False)
    await timed.worker.rounds.summaries.close()
    clock.skip(50.0)
    assert await sweeper.sweep() == 0
    clock.skip(10.0)
    assert await sweeper.sweep() == 1
    assert await names(timed) == ["clicks.waits"]
    clock.skip(300.0)
    assert await sweeper.sweep() == 1


async def test_what_learns_nothing_is_no_use(timed: Api, sweeper: Expiry, clock: Clock) -> None:
    await timed.update(1.0, "clicks.again", x=X, id="r1")
    await timed.update(1.0, "clicks.refused", x=X)
    clock.skip(50.0)
    assert (await timed.update(1.0, "clicks.again", x=X, id="r1"))["duplicate"]
    await timed.refused("prediction-not-found", "POST", "/sessions/clicks.refused/update", {"id": "unknown", "y": 1.0})
    await timed.worker.rounds.summaries.close()
    clock.skip(10.0)
    assert await sweeper.sweep() == 2


async def test_a_session_used_between_the_look_and_the_deletion_stays(timed: Api, clock: Clock) -> None:
    await timed.update(1.0, "clicks.a", x=X)
    await timed.update(1.0, "clicks.b", x=X)
    sessions = timed.worker.sessions
    seen = (await sessions.list(None, 10)).sessions
    await timed.update(1.0, "clicks.a", x=X)
    await timed.predict(X, "clicks.b")
    assert [await sessions.delete_unused(one.head, 0.0) for one in seen] == [False, False]


async def test_a_worker_whose_clock_is_ahead_deletes_nothing(timed: Api, clock: Clock) -> None:
    await timed.update(1.0, "clicks.a", x=X)
    ahead = Expiry(timed.worker.templates, timed.worker.sessions, clock=lambda: clock() + 1e7)
    assert await ahead.sweep() == 0
    assert await names(timed) == ["clicks.a"]


async def test_a_session_that_is_asked_through_a_worker_whose_clock_is_behind_stays(
    timed: Api, sweeper: Expiry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed.worker.rounds, "_clock", lambda: clock() - 7200.0)
    await timed.update(1.0, "clicks.a", x=X)
    clock.skip(70.0)
    await timed.predict(X, "clicks.a", wait=False)
    await timed.worker.rounds.summaries.close()
    assert await sweeper.sweep() == 0
    clock.skip(60.0)
    assert await sweeper.sweep() == 1


async def test_when_the_clock_of_the_machine_is_set_no_session_becomes_idle(
    timed: Api, sweeper: Expiry, clock: Clock
) -> None:
    await timed.update(1.0, "clicks.a", x=X)
    assert await sweeper.sweep() == 0
    clock.ahead_s += 7200.0
    assert await sweeper.sweep() == 0
    clock.skip(59.0)
    assert await sweeper.sweep() == 0
    clock.ahead_s -= 3600.0
    assert await sweeper.sweep() == 0
    await timed.update(1.0, "clicks.b", x=X)
    clock.skip(7200.0)
    assert await sweeper.sweep() == 2


async def test_a_sweep_is_bounded_and_the_next_goes_on_behind_it(
    timed: Api, sweeper: Expiry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LISTED_AT_ONCE", 2)
    monkeypatch.setattr(expiry, "MOST_LOOKED_AT", 4)
    for i in range(10):
        await timed.update(1.0, f"clicks.{i}", x=X)
    clock.skip(60.0)
    assert [await sweeper.sweep() for _ in range(4)] == [4, 4, 2, 0]


async def test_several_sweepers_delete_a_session_once(timed: Api, clock: Clock) -> None:
    for i in range(5):
        await timed.update(1.0, f"clicks.{i}", x=X)
    clock.skip(60.0)
    made = [Expiry(timed.worker.templates, timed.worker.sessions, clock=clock) for _ in range(3)]
    assert sum(await asyncio.gather(*(one.sweep() for one in made))) == 5


async def test_idle_sessions_go_on_every_store(workers: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = workers
    waiting = type(one.worker.store).waiting

    async def waiting_later(store: Any, name: str, after: str | None, limit: int) -> WaitingPage | Gone:
        page = await waiting(store, name, after, limit)
        return page if isinstance(page, Gone) else replace(page, now=page.now + 70.0)

    monkeypatch.setattr(type(one.worker.store), "waiting", waiting_later)
    await put(one, idle_s=60)
    await one.update(1.0, "clicks.a", x=X)
    await other.predict(X, "clicks.waits")
    made = [
        Expiry(api.worker.templates, api.worker.sessions, clock=lambda ahead=ahead: time.time() + ahead)
        for api, ahead in ((one, 50.0), (other, 70.0), (one, 70.0))
    ]
    assert [await sweeper.sweep() for sweeper in made] == [0, 1, 0]
    assert await names(one) == ["clicks.waits"]
    assert (await one.update(1.0, "clicks.a", x=X))["t"] == 1


async def test_challengers_go_with_an_idle_champion_and_not_before(timed: Api, sweeper: Expiry, clock: Clock) -> None:
    await timed.update(1.0, "clicks.a", x=X)
    await timed.call("POST", "/sessions/clicks.a/challengers", {"name": "b", "learner": MEAN}, status=201)
    clock.skip(30.0)
    await timed.update(1.0, "clicks.a", x=X)
    clock.skip(40.0)
    assert await sweeper.sweep() == 0
    clock.skip(20.0)
    assert await sweeper.sweep() == 1
    assert await names(timed) == []


# -- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_for_some_sessions_makes_those_and_sees_no_templates(store_url: str) -> None:
    admin, few = await make(store_url), await make(store_url, KeyScope.WRITE, prefix="clicks.a")
    limited = await make(store_url, KeyScope.ADMIN, prefix="clicks.")
    reader = await make(store_url, KeyScope.READ)
    async with serving(store_url) as api:
        body = {"prefix": "clicks.", "session": OF_MEAN}
        for headers in (few.headers, limited.headers, reader.headers):
            await api.refused("forbidden", "PUT", "/templates/clicks", body, headers=headers)
        await api.call("PUT", "/templates/clicks", body, headers=admin.headers)
        await api.refused("forbidden", "GET", "/templates", headers=limited.headers)
        await api.call("GET", "/templates", headers=reader.headers)
        await api.call("POST", "/sessions/clicks.a1/predict", {"x": X}, headers=few.headers)
        for headers in (few.headers, reader.headers):
            await api.refused("forbidden", "POST", "/sessions/clicks.b/predict", {"x": X}, headers=headers)
        told = await api.call("GET", "/sessions", headers=admin.headers)
        assert [one["name"] for one in told["sessions"]] == ["clicks.a1"]
