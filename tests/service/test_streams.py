"""Streams over real sockets: what is told is what single requests are told, in order, exactly once."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from okl.client import Client
from okl.errors import PayloadTooLarge, ServiceError, SessionNotFound
from service.api.conversation import MOST_MESSAGES
from service.api.lines import lines_of
from service.api.messages import read_lines
from service.api.slices import BodyLimits
from service.demo_data import magic
from tests.service.definitions import POMDR

X, Y = magic()
ROWS = X[:400].round(6).tolist()
TRUTHS = ["yes" if y > 0 else "no" for y in Y[:400]]
LABELS = ("no", "yes")
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def session(client: Client) -> str:
    client.create("s", POMDR, labels=LABELS)
    return "s"


def lines(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def told(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


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
    asked = list(messages(60, 5))
    with client.stream(session) as stream:
        answers = list(stream.ask(asked, together=together))
    assert [without_session(one) for one in answers] == [without_session(plain(client, one)) for one in asked]
    assert client.inspect("s")["metrics"] == client.inspect("twin")["metrics"]


def test_lines_are_told_what_requests_are_told(client: Client, url: str, session: str) -> None:
    client.create("twin", POMDR, labels=LABELS)
    asked = list(messages(60, 5))
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
    assert client.inspect("s")["t"] == 2 * len(bad)


def test_a_repeated_message_is_learned_once(client: Client, session: str) -> None:
    asked = [{"x": row, "y": y, "id": f"r{i}"} for i, (row, y) in enumerate(zip(ROWS[:50], TRUTHS, strict=False))]
    with client.stream(session) as stream:
        first = list(stream.ask(asked))
        again = list(stream.ask(asked, together=10))
    assert [one | {"duplicate": True} for one in first] == again
    assert client.inspect("s")["t"] == 50


def test_more_than_is_bounded_waits(url: str, client: Client, session: str) -> None:
    """A client that sends 20 times as much as may be under way, and reads only then, is told all."""
    n = 20 * MOST_MESSAGES
    with connect(f"ws{url.removeprefix('http')}/sessions/s/stream", compression=None) as connection:

        def send() -> None:
            for i in range(n):
                connection.send(json.dumps({"x": ROWS[i % 400], "y": TRUTHS[i % 400]}))

        sender = threading.Thread(target=send)
        sender.start()
        for t in range(n):
            assert json.loads(connection.recv(timeout=30))["t"] == t + 1
        sender.join()


def test_no_such_session(url: str, client: Client) -> None:
    with pytest.raises(SessionNotFound):
        client.stream("nobody")
    for name, status in (("nobody", 404), ("a b", 422)):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws{url.removeprefix('http')}/sessions/{name.replace(' ', '%20')}/stream")
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["status"] == status
        answer = httpx.post(f"{url}/sessions/{name}/stream", content=b"{}\n", headers=NDJSON)
        assert answer.status_code == status


def test_too_large_a_message_ends_the_socket(url: str, session: str) -> None:
    def send(connection: ClientConnection) -> None:
        connection.send("[" + "0," * (1 << 20))
        connection.recv()

    address = f"ws{url.removeprefix('http')}/sessions/s/stream"
    with connect(address, compression=None) as connection, pytest.raises(ConnectionClosed) as closed:
        send(connection)
    # It may be reset while the client still sends.
    assert closed.value.rcvd is None or closed.value.rcvd.code == 1009


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
        assert stream.one({"x": ROWS[0], "id": "mine"})["id"] == "mine"
        with pytest.raises(RuntimeError):
            next(left)
        assert stream.one({"x": ROWS[1], "id": "mine-too"})["id"] == "mine-too"


# -- rounds as lines ------------------------------------------------------------------------------------------------


def rows(n: int) -> list[dict[str, Any]]:
    return [{"x": row, "y": y} for row, y in zip(ROWS[:n], TRUTHS[:n], strict=True)]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_rounds_as_lines_are_rounds(url: str, client: Client, session: str, block: int) -> None:
    client.create("twin", POMDR, labels=LABELS)
    answer = httpx.post(f"{url}/sessions/s/rounds?block={block}", content=lines(rows(90)), headers=NDJSON)
    found = told(answer)
    assert [one["applied"] for one in found] == [*range(block, 90, block), 90]
    scores = np.concatenate([one["scores"] for one in found])
    assert scores == pytest.approx(client.rounds("twin", ROWS[:90], TRUTHS[:90])["scores"], rel=1e-9)
    short = httpx.post(f"{url}/sessions/s/rounds?answers=totals", content=lines(rows(9)), headers=NDJSON)
    assert told(short)[0].keys() == {"session", "t", "rounds", "loss", "mistakes", "duplicate", "applied"}


def test_sent_again_under_its_key(url: str, client: Client, session: str) -> None:
    """The first half, as if the connection had broken there; then all."""
    headers = NDJSON | {"Idempotency-Key": "k"}
    body = lines(rows(100))
    half = body[: len(lines(rows(60)))]
    first = told(httpx.post(f"{url}/sessions/s/rounds?block=20", content=half, headers=headers))
    again = told(httpx.post(f"{url}/sessions/s/rounds?block=20", content=body, headers=headers))
    assert [one["duplicate"] for one in again] == [True] * 3 + [False] * 2
    assert [one["scores"] for one in again[:3]] == [one["scores"] for one in first]
    assert client.inspect("s")["t"] == 100


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [({"x": ROWS[0]}, "/y"), ({"x": [1e999], "y": "yes"}, "/x/0"), ({"x": ROWS[0], "y": 3}, "/y")],
)
def test_a_wrong_line_is_named(url: str, client: Client, session: str, wrong: dict[str, Any], pointer: str) -> None:
    good = rows(60)
    body = lines([*good[:50], wrong, *good[50:]])
    *played, last = told(httpx.post(f"{url}/sessions/s/rounds?block=20", content=body, headers=NDJSON))
    assert [one["applied"] for one in played] == [20, 40]
    assert last["applied"] == 40
    assert last["refused"]["line"] == 51
    assert last["refused"]["errors"][0]["pointer"] == pointer
    assert "Line 51" in last["refused"]["detail"]
    assert client.inspect("s")["t"] == 40
    answer = httpx.post(f"{url}/sessions/s/rounds", content=lines([wrong]), headers=NDJSON)
    assert answer.status_code == 422
    assert answer.json()["line"] == 1


@pytest.mark.parametrize("body", [b"", b"\n\n", b"{}{}\n", b'{"x":[1],\n"y":1}\n', b"[1]\n", b"\xff\n"])
def test_bodies_that_are_no_lines(url: str, session: str, body: bytes) -> None:
    answer = httpx.post(f"{url}/sessions/s/rounds", content=body, headers=NDJSON)
    assert answer.status_code in (400, 422)


JOINED = (b'{"x":[1,2],"y":"yes"},{"x":[2', b'3],"y":"no"}')
"""Two lines that are no JSON objects, and with a comma between them two objects."""


@pytest.mark.parametrize("space", [b"", b" \t\r"])
def test_lines_that_are_objects_only_when_joined(url: str, client: Client, space: bytes) -> None:
    client.create("s")
    good = b'{"x":[0,1],"y":"no"}'
    found = [line.replace(b"},{", b"}" + space + b"," + space + b"{") for line in JOINED]
    body = b"\n".join([good, *found, good])
    answer = httpx.post(f"{url}/sessions/s/rounds", content=body, headers=NDJSON)
    assert answer.status_code == 400
    assert answer.json()["line"] == 2
    by_line = told(httpx.post(f"{url}/sessions/s/stream", content=body, headers=NDJSON))
    assert ["refused" in one for one in by_line] == [False, True, True, False]
    assert client.inspect("s")["t"] == 2


@pytest.mark.parametrize("x", [{"a": [{"b": 1}, {"b": 2}]}, {"a": "},{"}, {"a": {"b": {"c": 1}}, "d": 2}])
def test_what_may_look_like_two_objects_in_a_line_is_one(url: str, client: Client, x: Any) -> None:
    client.create("s")
    body = lines([{"x": x, "y": i % 2} for i in range(3)])
    answer = httpx.post(f"{url}/sessions/s/rounds", content=body.replace(b" ", b""), headers=NDJSON)
    wrong = httpx.post(f"{url}/sessions/s/rounds", json={"x": [x] * 3, "y": [0, 1, 0]})
    assert answer.status_code == wrong.status_code


@given(
    st.lists(
        st.fixed_dictionaries(
            {"x": st.lists(st.integers(0, 9), min_size=1, max_size=3) | st.just({"a": "},{", "b": 1}), "y": st.just(1)}
        ),
        min_size=2,
        max_size=5,
    ),
    st.data(),
)
def test_lines_are_right_if_each_is(objects: list[Any], data: st.DataObject) -> None:
    """Right objects, broken into as many lines at any of the commas."""
    text = json.dumps(objects)[1:-1]
    commas = [i for i, one in enumerate(text) if one == ","]
    cuts = sorted(data.draw(st.lists(st.sampled_from(commas), min_size=len(objects) - 1, unique=True)))
    broken = [text[a:b] for a, b in zip([0, *(c + 1 for c in cuts)], [*cuts, len(text)], strict=True)]

    def is_right(line: str) -> bool:
        try:
            return isinstance(json.loads(line), dict)
        except ValueError:
            return False

    found = read_lines([line.encode() for line in broken], BodyLimits())
    assert [not isinstance(one, ServiceError) for one in found] == [is_right(line) for line in broken]


def test_a_line_has_a_bound_and_the_body_none(url: str, client: Client, session: str) -> None:
    line = lines(rows(1))
    many = httpx.post(
        f"{url}/sessions/s/rounds?answers=totals", content=line * (10_000_000 // len(line)), headers=NDJSON, timeout=120
    )
    assert told(many)[-1]["applied"] == 10_000_000 // len(line)
    long = httpx.post(f"{url}/sessions/s/rounds", content=b"[" + b"0," * (1 << 20), headers=NDJSON)
    assert long.status_code == 413


def test_lines_elsewhere_are_refused(url: str, session: str) -> None:
    answer = httpx.post(f"{url}/sessions/s/predict", content=b"{}\n", headers=NDJSON)
    assert answer.status_code == 415


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=8), st.data())
def test_lines_whatever_the_pieces(found: list[bytes], data: st.DataObject) -> None:
    body = b"\n".join(found) + data.draw(st.sampled_from([b"", b"\n"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    given = iter([{"type": "http.request", "body": p, "more_body": i < len(pieces) - 1} for i, p in enumerate(pieces)])

    async def receive() -> Message:
        return next(given)

    async def collect() -> list[bytes]:
        return [line async for lines in lines_of(receive, BodyLimits(row_bytes=1000)) for line in lines]

    assert asyncio.run(collect()) == [line for line in found if line and not line.isspace()]


def test_a_line_that_never_ends() -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"0" * 100, "more_body": True}

    async def collect() -> None:
        async for _ in lines_of(receive, BodyLimits(row_bytes=1000)):
            raise AssertionError

    with pytest.raises(PayloadTooLarge):
        asyncio.run(collect())


# -- a prediction and its truth in one turn -------------------------------------------------------------------------


def test_a_prediction_and_its_truth_are_one_commit(url: str, client: Client, session: str) -> None:
    """All at once in a frame: as few commits as turns, and every answer as if each had been alone."""
    client.create("twin", POMDR, labels=LABELS)
    asked = list(messages(100, 3))

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
