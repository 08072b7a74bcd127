"""The client: every call of the API as a method, every problem as the exception that the service raised."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from service import errors
from service.client import OklClient
from tests.service.api import MEAN


@pytest.fixture
def client(url: str) -> Iterator[OklClient]:
    with OklClient(url) as client:
        yield client
        for session in client.sessions():
            client.delete(session["name"])


def test_every_call(client: OklClient) -> None:
    assert client.is_ready()
    assert "mean" in [entry["kind"] for entry in client.learners()]
    assert client.create("s", MEAN, y_range=[0.0, 10.0], dim=1)["dim"] == 1
    prediction = client.predict("s", [1.0])
    assert client.update("s", 4.0, id=prediction["id"])["t"] == 1
    assert client.predict("s", [1.0], id="mine")["id"] == "mine"
    assert client.predict("s", [1.0], wait=False)["id"] is None
    assert client.update("s", 4.0, x=[1.0], id="direct")["duplicate"] is False
    assert client.update("s", 4.0, x=[1.0], id="direct")["duplicate"] is True
    assert client.rounds("s", [[1.0], [2.0]], [5.0, 6.0], id="many")["t"] == 4
    assert client.inspect("s")["t"] == 4
    assert client.freeze("s", "fixed")["frozen"] == {"session": "s", "t": 4, "rule": "last"}
    with pytest.raises(errors.CannotFreeze):
        client.freeze("s", "drawn", rule="uniform")
    with pytest.raises(errors.SessionFrozen):
        client.update("fixed", 4.0, x=[1.0])
    client.delete("fixed")
    client.delete("s")
    assert client.sessions() == []


def test_a_false_or_zero_truth_is_sent(client: OklClient) -> None:
    client.create("s", {"kind": "majority"}, labels=[False, True])
    assert client.update("s", False, x=[1.0])["t"] == 1
    client.create("r", MEAN)
    assert client.update("r", 0, x=[1.0])["t"] == 1


def test_all_pages_are_listed(client: OklClient) -> None:
    names = [f"s{i:03}" for i in range(105)]
    for name in names:
        client.create(name, MEAN)
    assert [session["name"] for session in client.sessions()] == names


def test_problems_are_the_services_exceptions(client: OklClient) -> None:
    client.create("s", MEAN)
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
def test_a_name_is_a_name(client: OklClient, name: str) -> None:
    """Whatever it is made of, it leads to no other path."""
    for call in (
        lambda: client.inspect(name),
        lambda: client.delete(name),
        lambda: client.freeze(name, "new-one"),
        lambda: client.predict(name, [1.0]),
        lambda: client.update(name, 1.0, x=[1.0]),
        lambda: client.rounds(name, [[1.0]], [1.0]),
    ):
        with pytest.raises(errors.ServiceError) as caught:
            call()
        assert caught.value.status == 404


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with OklClient(f"http://127.0.0.1:{port}") as client:
        assert not client.is_ready()
        with pytest.raises(errors.Unreachable, match="okl serve"):
            client.sessions()


ANSWERS = {
    "a page of a proxy": b"<html>Bad gateway</html>",
    "a list": b"[]",
    "a document of another kind": b'{"error": "no"}',
    "a type that is no text": b'{"type": 5, "detail": "no"}',
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
def test_what_no_service_of_ours_answers(body: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                head = f"HTTP/1.1 502 Bad Gateway\r\ncontent-length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with OklClient(url) as client, pytest.raises(errors.ServiceError, match="HTTP 502"):
            client.sessions()
        thread.join()
