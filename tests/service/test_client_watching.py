"""What the client tells of a session that is watched."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice

import pandas as pd
import pytest

from okl import errors, events
from okl.client import Client
from tests.service.definitions import EXACT, MEAN


def test_history_and_last_rounds(client: Client) -> None:
    client.create("s", MEAN, **EXACT)
    assert client.history("s")["points"] is None
    assert client.last_rounds("s") == []
    client.rounds("s", [[float(i)] for i in range(60)], [i / 60 for i in range(60)])
    past = client.history("s")
    assert (past["session"], past["t"], past["error_name"]) == ("s", 60, "RMSE")
    assert sum(past["points"]["rounds"]) == 60
    assert [one["t"] for one in client.last_rounds("s")] == list(range(60, 10, -1))
    assert [one["x"] for one in client.last_rounds("s", 2)] == [[59.0], [58.0]]


def test_many_predictions_wait_and_one_is_cancelled(client: Client) -> None:
    client.create("s", MEAN, **EXACT)
    client.update("s", 1.0, x=[1.0])
    told = client.predict_many("s", [[1.0], [2.0], [3.0]], ["a", "b/../..", "..."])
    assert [(one["id"], one["value"], one["t"]) for one in told] == [(id, 1.0, 1) for id in ("a", "b/../..", "...")]
    assert all("id" not in one for one in client.predict_many("s", [[1.0]] * 3, wait=False))
    page = client.waiting("s", limit=2)
    following = client.waiting("s", limit=2, cursor=page["next"])
    assert sorted(one["id"] for one in page["predictions"] + following["predictions"]) == ["...", "a", "b/../.."]
    assert following["next"] is None
    assert page["waiting"] == sum(bin["predictions"] for bin in page["ages"]) == 3
    client.cancel("s", "a")
    assert (client.waiting("s")["waiting"], client.waiting("s")["never_came"]) == (2, 1)
    with pytest.raises(errors.PredictionNotFound):
        client.cancel("s", "a")
    with pytest.raises(errors.WrongType):
        client.predict_many("s", "abc")


def test_predictions_that_have_expired_are_not_counted(client: Client) -> None:
    client.create("s", MEAN, expires_s=0.5, **EXACT)
    client.predict_many("s", [[1.0], [2.0]], ["a", "b"])
    assert client.waiting("s")["waiting"] == 2
    time.sleep(0.6)
    page = client.waiting("s")
    assert (page["predictions"], page["waiting"], sum(bin["predictions"] for bin in page["ages"])) == ([], 0, 0)


@pytest.mark.parametrize("id", ["...", "../..", "a/b", "a?b", "%2e%2e", "{}"])
def test_an_id_leads_to_no_other_path(client: Client, id: str) -> None:
    """Nothing else is deleted: not the session."""
    client.create("s", MEAN, **EXACT)
    client.update("s", 1.0, x=[1.0])
    client.predict_many("s", [[1.0]], [id])
    try:
        client.cancel("s", id)
    except (errors.RouteNotFound, errors.InvalidInput):
        assert "/" in id
    else:
        assert client.waiting("s")["waiting"] == 0
    assert client.inspect("s")["t"] == 1


def test_frames_are_taken(client: Client) -> None:
    client.create("s", MEAN)
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]})
    client.predict_many("s", frame, ["one", "two"])
    assert [one["x"] for one in client.waiting("s")["predictions"]] == [{"a": 1.0, "b": "x"}, {"a": 2.0, "b": None}]


def test_one_that_could_not_be_kept_says_why(client: Client) -> None:
    client.create("s", MEAN, **EXACT)
    client.update("s", 1.0, x=[1.0], id="used")
    told = client.predict_many("s", [[1.0], [2.0]], ["used", "new"])
    assert told[0]["refused"]["type"].endswith("/id-conflict")
    assert told[1]["id"] == "new"


def test_events(client: Client, url: str) -> None:
    client.create("s", MEAN, **EXACT)
    client.update("s", 1.0, x=[1.0])
    with closing(client.events("s")) as events:
        first, told = next(events)
        assert (told["name"], told["t"]) == ("s", 1)
        client.update("s", 0.0, x=[1.0])
        second, told = next(events)
        assert told["t"] == 2
    assert first != second
    with closing(client.events("s", first)) as events:
        again, told = next(events)
        assert (again, told["t"]) == (second, 2)
        client.delete("s")
        assert list(events) == []
    with pytest.raises(errors.SessionNotFound):
        next(client.events("s"))


STREAMS: dict[str, tuple[list[bytes], list[tuple[str, object]]]] = {
    "in pieces": ([b"id: 1\nda", b'ta: {"a": ', b"1}\n", b'\nid: 2\r\ndata: {"a": 2}\r\n\r\n'], [("1", 1), ("2", 2)]),
    "comments": ([b': ping\n\n: ping\n\nid: 1\ndata: {"a": 1}\n\n: ping\n\n'], [("1", 1)]),
    "several lines": ([b'event: x\nid: 1\ndata: {"a":\ndata: 1}\n\n'], [("1", 1)]),
    "one that was cut": ([b'id: 1\ndata: {"a": 1}\n\nid: 2\ndata: {"a": 2}\n'], [("1", 1)]),
}


@pytest.mark.parametrize(("parts", "wanted"), STREAMS.values(), ids=STREAMS)
def test_events_come_as_they_may(parts: list[bytes], wanted: list[tuple[str, object]]) -> None:
    with streaming(parts) as url, Client(url) as client:
        assert [(id, told["a"]) for id, told in client.events("s")] == wanted


def test_events_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (b"{", b"[" * 100_000):
        refused = pytest.raises(errors.ServiceError, match="not JSON")
        with streaming([b"data: " + text + b"\n\n"]) as url, Client(url) as client, refused:
            next(client.events("s"))
    monkeypatch.setattr(events, "MOST_EVENT_BYTES", 1000)
    refused = pytest.raises(errors.ServiceError, match="more than 1000 bytes")
    with streaming([b"data: " + b"1" * 2000]) as url, Client(url) as client, refused:
        next(client.events("s"))
    refused = pytest.raises(errors.ServiceError, match="more than 1000 bytes")
    with streaming([b"data: 1\n" * 2000]) as url, Client(url) as client, refused:
        next(client.events("s"))


def test_a_stream_that_breaks_off_is_unreachable() -> None:
    document = json.dumps({"a": 1}).encode()
    with streaming([b"id: 1\ndata: " + document + b"\n\n"], length=10_000) as url, Client(url) as client:
        events = client.events("s")
        assert list(islice(events, 1)) == [("1", {"a": 1})]
        with pytest.raises(errors.Unreachable):
            next(events)


@contextmanager
def streaming(parts: list[bytes], length: int | None = None) -> Iterator[str]:
    """The url of something that answers one request with this stream, and then closes, whatever length it had told."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                told = "" if length is None else f"content-length: {length}\r\n"
                head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{told}connection: close\r\n\r\n"
                connection.sendall(head.encode())
                for part in parts:
                    connection.sendall(part)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()
