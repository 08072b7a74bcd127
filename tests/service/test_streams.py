"""Streams over real sockets: what is told is what single requests are told, in order, exactly once."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from okl.client import Client
from okl.errors import PayloadTooLarge, SessionNotFound
from service.api.conversation import MOST_MESSAGES, MOST_TOGETHER
from tests.service.api import NDJSON, lines, told
from tests.service.definitions import LABELS, POMDR, ROWS, TRUTHS, X


def without_session(answer: dict[str, Any]) -> dict[str, Any]:
    parts = {key: without_session(value) for key, value in answer.items() if isinstance(value, dict)}
    return {key: value for key, value in answer.items() if key != "session"} | parts


def messages(n: int, delay: int) -> Iterator[dict[str, Any]]:
    """Predictions whose truths come `delay` rounds later; every third truth goes with the next prediction."""
    for i in range(n + delay):
        predict = {"x": ROWS[i], "id": f"i{i}"} if i < n else None
        truth = {"id": f"i{i - delay}", "y": TRUTHS[i - delay]} if i >= delay else None
        if predict and truth and i % 3 == 0:
            yield {"update": truth, "predict": predict}
            continue
        yield from [one for one in (predict, truth) if one]


def plain(client: Client, message: dict[str, Any]) -> dict[str, Any]:
    """The same as a request of its own."""
    if "update" in message:
        update, predict = message["update"], message["predict"]
        return client.step("twin", update["y"], id=update["id"], next_x=predict["x"], next_id=predict["id"])
    if "y" in message:
        return client.update("twin", message["y"], id=message.get("id"), x=message.get("x"))
    return client.predict("twin", message["x"], id=message["id"])


@pytest.mark.parametrize("together", [1, 7, 100])
def test_socket_is_told_what_requests_are_told(client: Client, session: str, together: int) -> None:
    client.create("twin", POMDR, labels=LABELS)
    asked = list(messages(30, 5))
    with client.stream(session) as stream:
        answers = list(stream.ask(asked, together=together))
    assert [without_session(one) for one in answers] == [without_session(plain(client, one)) for one in asked]
    assert client.inspect("s")["metrics"] == client.inspect("twin")["metrics"]


def test_lines_are_told_what_requests_are_told(client: Client, url: str, session: str) -> None:
    client.create("twin", POMDR, labels=LABELS)
    asked = list(messages(30, 5))
    answer = httpx.post(f"{url}/sessions/s/stream", content=lines(asked), headers=NDJSON)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [without_session(one) for one in told(answer)] == [without_session(plain(client, one)) for one in asked]


def test_lines_are_answered_while_the_body_is_still_sent(url: str, session: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as found:
        head = "POST /sessions/s/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
        connection.sendall(f"{head}Content-Type: application/x-ndjson\r\n\r\n".encode())
        for i in range(5):
            line = b"\n" + lines([{"x": ROWS[i], "y": TRUTHS[i]}])
            for piece in (line[:9], line[9:]):
                connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            while not i and found.readline() != b"\r\n":
                pass
            answer = json.loads(found.read(int(found.readline(), 16)))
            assert answer["t"] == i + 1
            assert found.readline() == b"\r\n"
        connection.sendall(b"0\r\n\r\n")
        assert found.readline() == b"0\r\n"


def test_what_is_wrong_with_a_message_is_told_in_its_place(url: str, client: Client, session: str) -> None:
    good = {"x": ROWS[0], "y": "yes"}
    bad: list[tuple[Any, str]] = [
        ({"x": [1, 2], "y": "yes", "z": 1}, "invalid-request"),
        ({"id": "nothing", "y": "no"}, "prediction-not-found"),
        ({"y": "no"}, "invalid-request"),
        (3, "invalid-request"),
        ({"update": {"y": "no"}, "predict": {"x": ROWS[0]}}, "invalid-request"),
        ({"x": ROWS[0], "y": "perhaps"}, "invalid-request"),
        ({"update": {"x": ROWS[0], "y": "perhaps"}, "predict": {"x": ROWS[0]}}, "wrong-truth"),
        ({"x": {"page": '\ud800, ["'}, "y": "no"}, "malformed-body"),
    ]
    asked = [one for pair in bad for one in (pair[0], good)]
    with connect(f"ws{url.removeprefix('http')}/sessions/s/stream") as connection:
        connection.send(json.dumps(asked))
        answers = json.loads(connection.recv())
        connection.send("{")
        assert json.loads(connection.recv())["refused"]["type"] == "/problems/malformed-body"
        connection.send(json.dumps([good] * (MOST_MESSAGES + 1)))
        assert json.loads(connection.recv())["refused"]["type"] == "/problems/payload-too-large"
        connection.send(b"[")
        assert json.loads(connection.recv())["refused"]["type"] == "/problems/malformed-body"
    by_line = told(httpx.post(f"{url}/sessions/s/stream", content=lines(asked), headers=NDJSON))
    for found in (answers, by_line):
        assert len(found) == len(asked)
        for (_, slug), answer, after in zip(bad, found[::2], found[1::2], strict=True):
            assert answer["refused"]["type"].endswith(slug) or answer["refused"]["type"].endswith("wrong-truth"), answer
            assert after["loss"] >= 0
        assert found[2]["id"] == "nothing"
        assert found[12]["refused"]["errors"][0]["pointer"] == "/update/y"
    assert client.inspect("s")["t"] == 2 * len(bad)


def test_a_repeated_message_is_learned_once(client: Client, session: str) -> None:
    asked = [{"x": row, "y": y, "id": f"r{i}"} for i, (row, y) in enumerate(zip(ROWS[:50], TRUTHS, strict=False))]
    with client.stream(session) as stream:
        first = list(stream.ask(asked))
        again = list(stream.ask(asked, together=10))
    assert [one | {"duplicate": True} for one in first] == again
    assert client.inspect("s")["t"] == 50


def test_more_than_is_bounded_waits(url: str, client: Client, session: str) -> None:
    """A client that sends 8 times as much as may be under way, and reads only then, is told all."""
    n = 8 * MOST_MESSAGES
    with connect(f"ws{url.removeprefix('http')}/sessions/s/stream", compression=None) as connection:

        def send() -> None:
            for i in range(n):
                connection.send(json.dumps({"x": ROWS[i % 400], "y": TRUTHS[i % 400]}))

        sender = threading.Thread(target=send)
        sender.start()
        for t in range(n):
            assert json.loads(connection.recv(timeout=30))["t"] == t + 1
        sender.join()


# -- large answers --------------------------------------------------------------------------------------------------


@pytest.fixture
def wide(client: Client) -> str:
    """A session whose answers have 280 kB each: 256 of them, 72 MB, are asked for by 7 kB."""
    labels = [f"{i:0256}" for i in range(1000)]
    client.create("s", {"kind": "frequencies"}, labels=labels, interval=0.99)
    return "s"


def test_large_answers_to_one_array_are_several_arrays(url: str, client: Client, wide: str) -> None:
    asked = [{"x": [1.0], "id": f"p{i}"} for i in range(64)]
    with connect(f"ws{url.removeprefix('http')}/sessions/s/stream", max_size=MOST_TOGETHER) as connection:
        connection.send(json.dumps(asked))
        frames = [json.loads(connection.recv(timeout=30))]
        while sum(map(len, frames)) < len(asked):
            frames.append(json.loads(connection.recv(timeout=30)))
    assert [one["id"] for frame in frames for one in frame] == [one["id"] for one in asked]
    assert max(map(len, frames)) > 1
    by_line = told(httpx.post(f"{url}/sessions/s/stream", content=lines(asked), headers=NDJSON))
    assert by_line == [one for frame in frames for one in frame]
    # The client takes frames of 16 MiB.
    with client.stream(wide) as stream:
        assert sum(len(one["set"]) for one in stream.ask(asked, together=64)) == 64_000


def test_no_more_predictions_are_made_than_answers_are_read(url: str, client: Client, wide: str) -> None:
    with connect(f"ws{url.removeprefix('http')}/sessions/s/stream", max_size=None, max_queue=1) as connection:
        connection.send(json.dumps([{"x": [1.0]}] * MOST_MESSAGES))
        time.sleep(1.0)
        # In flight are 4 MiB; the sockets' buffers hold some more.
        made = client.inspect(wide)["waiting"]
        assert made < MOST_MESSAGES / 2
        count = 0
        while count < MOST_MESSAGES:
            count += len(json.loads(connection.recv(timeout=30)))


def test_no_such_session(url: str, client: Client) -> None:
    with pytest.raises(SessionNotFound):
        client.stream("nobody")
    for name, status in (("nobody", 404), ("a b", 422)):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws{url.removeprefix('http')}/sessions/{name.replace(' ', '%20')}/stream")
        assert refused.value.response.status_code == status
        document = json.loads(refused.value.response.body or b"")
        assert document["status"] == status
        headers = [(key.lower(), value) for key, value in refused.value.response.headers.raw_items()]
        assert [value for key, value in headers if key == "x-request-id"] == [document["instance"]]
        assert headers.count(("x-content-type-options", "nosniff")) == headers.count(("cache-control", "no-store")) == 1
        answer = httpx.post(f"{url}/sessions/{name}/stream", content=b"{}\n", headers=NDJSON)
        assert answer.status_code == status


def test_a_socket_takes_no_query(url: str, session: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws{url.removeprefix('http')}/sessions/{session}/stream?wait=false")
    assert json.loads(refused.value.response.body or b"")["errors"][0]["pointer"] == "/wait"


def test_too_large_a_message_ends_the_socket(url: str, session: str) -> None:
    def send(connection: ClientConnection) -> None:
        connection.send("[" + "0," * (1 << 20))
        connection.recv()

    address = f"ws{url.removeprefix('http')}/sessions/s/stream"
    with connect(address, compression=None) as connection, pytest.raises(ConnectionClosed) as closed:
        send(connection)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


MANY = {
    "empty arrays": b'{"x": [' + b"[]," * 340_000 + b"1]}",
    "numbers": b'{"x": [' + b"1," * 500_000 + b"1]}",
    "members": b"{" + b",".join(b'"%x": 1' % i for i in range(100_000)) + b"}",
    "messages": b"[" + b"{}," * 340_000 + b"1]",
    "no messages": b"[" + b"1," * 500_000 + b"1]",
}


@pytest.mark.parametrize("message", MANY.values(), ids=MANY.keys())
def test_what_takes_long_to_read_is_refused_before(url: str, session: str, message: bytes) -> None:
    address = f"ws{url.removeprefix('http')}/sessions/s/stream"
    with connect(address, compression=None, max_size=None) as connection:
        connection.send(message.decode())
        answer = json.loads(connection.recv())
        assert answer["refused"]["status"] == 413
        connection.send(json.dumps({"x": ROWS[0], "wait": False}))
        assert "label" in json.loads(connection.recv())
    for route in ("rounds", "stream"):
        refused = httpx.post(f"{url}/sessions/s/{route}", content=message + b"\n", headers=NDJSON).json()
        assert (refused.get("refused") or refused)["status"] == 413


def test_a_line_of_too_many_values_is_refused_in_its_place(url: str, session: str) -> None:
    """It comes in one piece with those around it."""
    good = lines([{"x": ROWS[0], "y": TRUTHS[0]}])
    many = b'{"x": [' + b"1," * 24_200 + b'1], "y": "no"}\n'
    found = told(httpx.post(f"{url}/sessions/s/stream", content=good * 3 + many + good, headers=NDJSON))
    assert [one.get("t") for one in found] == [1, 2, 3, None, 4]
    assert found[3]["refused"]["status"] == 413
    refused = httpx.post(f"{url}/sessions/s/rounds?block=2", content=good * 3 + many + good, headers=NDJSON)
    block, last = told(refused)
    assert block["applied"] == last["applied"] == 2
    assert last["refused"]["line"] == 4


@pytest.mark.parametrize("others", [0, 3])
def test_a_client_is_told_that_its_message_is_too_large(client: Client, session: str, others: int) -> None:
    messages = [*({"x": [0.5]} for _ in range(others)), {"x": "a" * (2 << 20)}]
    with client.stream(session) as stream:
        with pytest.raises(PayloadTooLarge):
            list(stream.ask(messages))
        assert "label" in stream.one({"x": [0.5], "wait": False})


def test_answers_that_nobody_took_are_no_others_answers(client: Client, session: str) -> None:
    with client.stream(session) as stream:
        left = stream.ask({"x": ROWS[i], "id": f"left-{i}"} for i in range(50))
        assert next(left)["id"] == "left-0"
        while client.inspect(session)["waiting"] < 50:
            time.sleep(0.01)
        # All answers are here and none is read: that keeps no connection from being closed, which is waited for 10 s.
        started = time.monotonic()
        assert stream.one({"x": ROWS[0], "id": "mine"})["id"] == "mine"
        assert time.monotonic() - started < 8.0
        with pytest.raises(RuntimeError):
            next(left)
        assert stream.one({"x": ROWS[1], "id": "mine-too"})["id"] == "mine-too"


# -- a prediction and its truth in one turn -------------------------------------------------------------------------


def test_a_prediction_and_its_truth_are_one_commit(url: str, client: Client, session: str) -> None:
    """All at once in a frame: as few commits as turns, and every answer as if each had been alone."""
    client.create("twin", POMDR, labels=LABELS)
    asked = list(messages(60, 3))

    def commits() -> float:
        told = httpx.get(f"{url}/metrics").text
        return sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith("okl_commits_total"))

    before = commits()
    with client.stream(session) as stream:
        answers = list(stream.ask(asked, together=256))
    assert commits() - before <= 20
    assert [without_session(one) for one in answers] == [without_session(plain(client, one)) for one in asked]
    assert client.inspect("s")["waiting"] == 0


def test_a_prediction_that_waits_already_is_the_one_that_is_settled(client: Client, session: str) -> None:
    """The answer of a prediction got lost; it is sent again in one frame with its truth, after other rounds."""
    for i in range(5):
        client.update(session, TRUTHS[i], x=ROWS[i])
    first = client.predict(session, ROWS[7], id="p")
    for i in range(8, 60):
        client.update(session, TRUTHS[i], x=ROWS[i])
    with client.stream(session) as stream:
        again = list(stream.ask([{"x": ROWS[7], "id": "p"}, {"id": "p", "y": TRUTHS[7]}], together=2))
    assert again[0] == first
    side = 1.0 if TRUTHS[7] == "yes" else -1.0
    assert again[1]["loss"] == pytest.approx(max(0.0, 1.0 - side * first["score"]))
    assert client.predict(session, ROWS[7], wait=False)["score"] != pytest.approx(first["score"])
    with client.stream(session) as stream:
        late = list(stream.ask([{"x": ROWS[7], "id": "p"}, {"id": "p", "y": TRUTHS[7]}], together=2))
    assert late[0]["refused"]["type"] == "/problems/id-conflict"
    assert late[1] == again[1] | {"duplicate": True}


def test_a_truth_behind_a_prediction_that_was_refused(client: Client, session: str) -> None:
    first = client.predict(session, ROWS[0], id="p")
    with client.stream(session) as stream:
        wrong, settled = stream.ask([{"x": [1e999], "id": "p"}, {"id": "p", "y": "yes"}], together=2)
        nothing, missing = stream.ask([{"x": [1e999], "id": "q"}, {"id": "q", "y": "yes"}], together=2)
    assert first["t"] == 0
    assert wrong["refused"]["status"] == nothing["refused"]["status"] == 422
    assert settled["t"] == 1
    assert missing["refused"]["type"] == "/problems/prediction-not-found"


def test_messages_of_numpy(client: Client, session: str) -> None:
    with client.stream(session) as stream:
        assert stream.one({"x": np.array(X[0]), "y": np.array(LABELS)[1], "id": "a"})["id"] == "a"
