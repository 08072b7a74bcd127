"""The client: every call of the API as a method, every problem as the exception that the service raised."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from okl import errors
from okl.client import Client
from okl.problems import error_of
from tests.service.definitions import EXACT, MEAN


def test_every_call(client: Client) -> None:
    assert client.is_ready()
    assert "mean" in [entry["kind"] for entry in client.learners()]
    assert client.create("s", MEAN, y_range=[0.0, 10.0], dim=1)["settings"]["dim"] == 1
    prediction = client.predict("s", [1.0])
    assert client.update("s", 4.0, id=prediction["id"])["t"] == 1
    assert client.predict("s", [1.0], id="mine")["id"] == "mine"
    assert "id" not in client.predict("s", [1.0], wait=False)
    assert client.update("s", 4.0, x=[1.0], id="direct")["duplicate"] is False
    assert client.update("s", 4.0, x=[1.0], id="direct")["duplicate"] is True
    assert client.rounds("s", [[1.0], [2.0]], [5.0, 6.0], id="many")["t"] == 4
    assert client.inspect("s")["t"] == 4
    client.delete("s")
    assert client.sessions() == []


def test_a_step_is_an_update_and_a_prediction(client: Client) -> None:
    client.create("s", MEAN)
    first = client.predict("s", [1.0])
    told = client.step("s", 4.0, id=first["id"], next_x=[2.0], next_id="second")
    assert (told["update"]["id"], told["update"]["t"]) == (first["id"], 1)
    assert (told["predict"]["id"], told["predict"]["t"], told["predict"]["value"]) == ("second", 1, 4.0)
    told = client.step("s", 0, x=[2.0], next_x=[3.0], wait=False)
    assert (told["update"]["t"], told["predict"]["t"]) == (2, 2)
    assert "id" not in told["predict"]
    with pytest.raises(errors.PredictionNotFound):
        client.step("s", 1.0, id="nobody", next_x=[1.0])


def test_freezing(client: Client) -> None:
    client.create("s", MEAN, **EXACT)
    client.rounds("s", [[1.0]] * 4, [5.0] * 4)
    assert client.freeze("s", "fixed")["frozen"] == {"session": "s", "t": 4, "rule": "last"}
    with pytest.raises(errors.CannotFreeze):
        client.freeze("s", "drawn", rule="uniform")
    with pytest.raises(errors.SessionFrozen):
        client.update("fixed", 4.0, x=[1.0])


def test_a_false_or_zero_truth_is_sent(client: Client) -> None:
    client.create("s", {"kind": "majority"}, labels=[False, True])
    assert client.update("s", False, x=[1.0])["t"] == 1
    client.create("r", MEAN)
    assert client.update("r", 0, x=[1.0])["t"] == 1


def test_all_pages_are_listed(client: Client) -> None:
    names = [f"s{i:03}" for i in range(105)]
    for name in names:
        client.create(name, MEAN)
    assert [session["name"] for session in client.sessions()] == names


def test_problems_are_the_services_exceptions(client: Client) -> None:
    client.create("s", MEAN, **EXACT)
    with pytest.raises(errors.SessionExists) as caught:
        client.create("s", MEAN)
    assert caught.value.extra["session"] == "s"
    with pytest.raises(errors.UnknownLearner) as unknown:
        client.create("t", {"kind": "oracle"})
    assert "mean" in unknown.value.extra["known"]
    with pytest.raises(errors.NotFinite) as refused:
        client.predict("s", [1e200])
    assert refused.value.extra["errors"][0]["pointer"] == "/x/0"
    with pytest.raises(errors.PredictionNotFound):
        client.update("s", 1.0, id="nobody")
    with pytest.raises(errors.InvalidConfig):
        client.create("t", {"kind": "pomdr", "config": {"budget": -2}})


@pytest.mark.parametrize("name", ["nobody", "a/b", "../learners", "a?limit=1", "a#b", "é", "a b", "%2e", "{}"])
def test_a_name_is_a_name(client: Client, name: str) -> None:
    """Whatever it is made of, it leads to no other path."""
    for call in (
        lambda: client.inspect(name),
        lambda: client.delete(name),
        lambda: client.freeze(name, "new-one"),
        lambda: client.predict(name, [1.0]),
        lambda: client.update(name, 1.0, x=[1.0]),
        lambda: client.rounds(name, [[1.0]], [1.0]),
    ):
        with pytest.raises((errors.SessionNotFound, errors.InvalidName, errors.RouteNotFound)):
            call()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client:
        assert not client.is_ready()
        with pytest.raises(errors.Unreachable, match="okl serve"):
            client.sessions()


ANSWERS = {
    "a page of a proxy": b"<html>Bad gateway</html>",
    "a list": b"[]",
    "a document of another kind": b'{"error": "no"}',
    "a type that is no text": b'{"type": 5, "detail": "no"}',
    "a document in a document": b'{"type": "/problems/overloaded"}',
    "a list of lists without end": b"[" * 100_000,
}


PROBLEMS = {
    "of this service": ("/problems/overloaded", errors.Overloaded, {"hint": [1]}),
    "behind a proxy that writes whole addresses": (
        "https://okl.example/problems/overloaded",
        errors.Overloaded,
        {"hint": [1]},
    ),
    "of a gateway": (
        "https://gateway.example/errors/upstream-down",
        errors.Unreachable,
        {"hint": [1], "type": "https://gateway.example/errors/upstream-down", "status": 502},
    ),
    "of a newer service": ("/problems/new", errors.ServiceError, {"hint": [1], "type": "/problems/new", "status": 502}),
}


@pytest.mark.parametrize(("type_", "kind", "extra"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_keeps_what_it_says(type_: str, kind: type[errors.ServiceError], extra: dict[str, object]) -> None:
    document = {"type": type_, "status": 502, "detail": "It is so.", "hint": [1], "self": "/here"}
    refused = pytest.raises(errors.ServiceError)
    with answering(json.dumps(document).encode()) as url, Client(url) as client, refused as caught:
        client.sessions()
    assert (type(caught.value), caught.value.detail, caught.value.extra) == (
        kind,
        "It is so.",
        extra | {"self": "/here"},
    )


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
def test_what_no_service_of_ours_answers(body: bytes) -> None:
    with answering(body) as url, Client(url) as client, pytest.raises(errors.ServiceError, match="HTTP 502"):
        client.sessions()


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("7", 7), (None, None), ("soon", None), ("9" * 5000, None)],
    ids=["seconds", "none", "a word", "beyond all numbers"],
)
def test_an_error_says_how_long_to_wait(header: str | None, wait_s: int | None) -> None:
    told = b'{"type":"/problems/too-many-requests","title":"Too many requests","detail":"Later."}'
    assert error_of(429, told, header).retry_after_s == wait_s


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_a_balancer_refuses_passes(status: int) -> None:
    """As docker/nginx/nginx.conf has it, and another one."""
    told = b'{"type":"about:blank","title":"No worker answered","detail":"Send it again."}'
    for body, detail in ((told, "Send it again."), (b"<html>", f"HTTP {status}: <html>")):
        error = error_of(status, body)
        assert (errors.passes(error), str(error)) == (True, detail)
    assert not errors.passes(error_of(500, told))


ASKS: dict[str, Callable[[Client], Any]] = {
    "sessions": lambda client: client.sessions(),
    "a forecast": lambda client: client.session("s").predict({"n": 1.0}),
    "a step": lambda client: client.session("s").step("a", 1.0, {"n": 1.0}),
}


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"s"', b"{}", b'{"session":"s"}', b"[" * 100_000])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_an_answer_of_another_service(ask: Callable[[Client], Any], body: bytes) -> None:
    no_okl = pytest.raises(errors.ServiceError, match="This is no okl service")
    with answering(body, "200 OK") as url, Client(url) as client, no_okl:
        ask(client)


NO_JSON: dict[str, Any] = {
    "an int of 5,000 digits": 10**5_000,
    "a signaling NaN": Decimal("sNaN"),
    "a fraction beyond floats": Fraction(10**400),
}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
def test_a_number_without_a_json_form(value: Any) -> None:
    with Client() as client, pytest.raises(errors.WrongType, match="JSON"):
        client.predict("s", {"n": value})


def test_text_that_is_no_unicode_is_refused(client: Client) -> None:
    client.create("s", MEAN)
    with pytest.raises(errors.ServiceError, match="hex escape"):
        client.predict("s", {"a": "\ud800"})


@contextmanager
def answering(body: bytes, status: str = "502 Bad Gateway") -> Iterator[str]:
    """The url of something that answers one request with this."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_a_request_that_is_answered_before_its_body_costs_no_connection(url: str) -> None:
    """The rest of a body that nobody wanted may come in one piece with the next request."""
    host, _, port = url.removeprefix("http://").partition(":")
    head = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as answers:
        connection.sendall(head)
        for last in (False, False, False, True):
            assert answers.readline().startswith(b"HTTP/1.1 404")
            length = next(int(line.split()[1]) for line in answers if line.startswith(b"content-length"))
            assert b"connection: close" not in list(iter(answers.readline, b"\r\n"))
            answers.read(length)
            connection.sendall(b"{}" if last else b"{}" + head)
