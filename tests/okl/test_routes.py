"""The client has a method for each route, and so has the async one; challengers from the client."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import okl
from okl import errors
from okl.client import AsyncClient, Client
from okl.routes import Routes
from okl.session import AsyncSession, Session
from tests.docs.test_docs import routes

GIVEN: dict[str, Any] = {
    "session": "s1",
    "sessions": ["s1"],
    "x": [1.0],
    "next_x": [1.0],
    "xs": [[1.0]],
    "y": [1.0],
    "truths": {"s1": 1.0},
    "steps": [],
    "state": b"",
}
"""What a method is called with; all other parameters are names."""

OWN = {"GET /sessions/{session}/events": "events", "WS /sessions/{session}/stream": "stream"}
"""Methods of the client that are no talk."""

NOT_OFFERED = {
    "GET /": "a page",
    "GET /healthz": "for supervisors",
    "GET /metrics": "for Prometheus",
    "GET /problems/{slug}": "a page; the client raises its exceptions",
    "POST /predict": "the same as in its session",
    "POST /update": "the same as in its session",
    "POST /step": "the same as in its session",
    "POST /sessions/{session}/stream": "the socket does it",
}


ROUTES = frozenset(routes())


def talks() -> list[str]:
    return [name for name, _ in inspect.getmembers(Routes, inspect.isfunction)]


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def route_of(name: str) -> str:
    """The first request of the talk as "METHOD /path"."""
    talk = getattr(Routes, name)
    needed = [
        p for p in inspect.signature(talk).parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD
    ]
    call = next(talk(Routes(), **{p.name: GIVEN.get(p.name, "other") for p in needed[1:]}))
    templates = [route.partition(" ")[2] for route in ROUTES if route.startswith(f"{call.method} ")]
    fitting = [one for one in templates if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), call.path)]
    return f"{call.method} {min(fitting, key=lambda one: one.count('{'))}"


def test_each_route_has_a_method() -> None:
    found = {route_of(name) for name in talks()}
    assert found & set(NOT_OFFERED) == set()
    assert found | set(OWN) | set(NOT_OFFERED) == ROUTES
    assert len(found) == len(talks())


def test_each_client_has_each_method() -> None:
    assert methods(Client) == {*talks(), *OWN.values(), "session", "send", "close"}
    assert methods(AsyncClient) == methods(Client)
    assert methods(AsyncSession) - {"made", "parts"} == methods(Session)
    for sync, other in ((Client, AsyncClient), (Session, AsyncSession)):
        for name in methods(sync) - {"again_for_s"}:
            assert getattr(sync, name).__doc__, name
            assert getattr(other, name).__doc__, name
            if name not in ("play", "session", "stream", "delete", "close", "events"):
                said, asked = (inspect.signature(getattr(kind, name)) for kind in (sync, other))
                assert said == asked, name
                assert inspect.iscoroutinefunction(getattr(other, name)), name


OTHERWISE = {"inspect": "describe", "rounds": "play", "rename": "the object keeps its name"}
"""Routes of one session that the object has under another name, or not."""


def test_a_session_has_each_route_of_one_session() -> None:
    of_one = {name for name in talks() if "session" in inspect.signature(getattr(Routes, name)).parameters}
    assert of_one - methods(Session) == set(OTHERWISE)
    assert "(self, name: 'str', *, rule: " in str(inspect.signature(Session.freeze))


def test_routes_of_one_session(client: Client) -> None:
    session = client.session("s", "mean")
    session.play([[1.0]] * 3, [2.0] * 3)
    session.checkpoint("three")
    session.learn([1.0], 2.0)
    assert session.clone("t")["t"] == 4
    assert session.roll_back("three")["t"] == 3
    assert [one["name"] for one in session.checkpoints()] == ["three"]
    client.put_snapshot("u", session.snapshot())
    session.attach("other", "last-label")
    assert session.challenger("other")["name"] == "other"
    session.delete(at=session.describe()["etag"])
    assert {one["name"] for one in client.sessions()} == {"t", "u"}


def test_challengers(client: Client) -> None:
    client.create("spam", "majority", labels=["no", "yes"])
    made = client.attach("spam", "pomdr", "pomdr", begin="journal")
    assert (made["name"], made["session"]) == ("pomdr", "spam~pomdr")
    client.attach("spam", "other", {"kind": "aioli"})
    client.rounds("spam", [[1.0, 0.5]] * 4, ["yes", "no"] * 2)
    assert [one["name"] for one in client.challengers("spam")] == ["other", "pomdr"]
    client.detach("spam", "other")
    with pytest.raises(errors.SessionNotFound):
        client.challenger("spam", "other")
    with pytest.raises(errors.PreconditionFailed):
        client.promote("spam", "pomdr", at='"0-00000000000000000000000000000000"')
    assert client.promote("spam", "pomdr")["kind"] == "pomdr"
    assert client.challengers("spam") == []
    assert client.checkpoints("spam")[0]["name"] == "before-pomdr"


def test_a_template_and_a_deletion_at_an_etag(client: Client) -> None:
    client.put_template("tenants", "tenant-", session={"learner": {"kind": "mean"}})
    assert client.template("tenants")["prefix"] == "tenant-"
    at = client.create("s", "mean")["etag"]
    client.update("s", 1.0, x=[1.0])
    with pytest.raises(errors.PreconditionFailed):
        client.delete("s", at=at)
    client.delete("s", at=client.inspect("s")["etag"])


def test_help_tells_a_method() -> None:
    assert str(inspect.signature(okl.Client.predict)).startswith("(self, session: ")
    assert "-> 'list[Json]'" in str(inspect.signature(okl.Client.learners))
