"""Odd conversations over one connection that must go on, or be answered."""

from __future__ import annotations

import socket
import time

import pytest

from tests.attacks.attacker import SLACK_S, connect, post, talk
from tests.attacks.bad_bodies import MIB

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
ASK = post("/predict", b'{"session": "s", "x": [1, 2], "wait": false}')
NOWHERE = post("/nowhere", b"x" * 70_000)
LARGE = post("/predict", b"x" * (2 * MIB))
CHUNKED = (
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'2\r\n{"\r\n28\r\nsession": "s", "x": [1, 2], "wait": 0   \r\n1\r\n}\r\n0\r\n\r\n'
)


def split(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("parts", "statuses"),
    [
        pytest.param([GET, GET, LAST], [200, 200, 200], id="one after the other"),
        pytest.param([GET + GET + ASK + LAST], [200, 200, 200, 200], id="pipelined"),
        pytest.param(split(GET + ASK + LAST, 1), [200, 200, 200], id="byte by byte"),
        pytest.param(split(ASK + GET + ASK + LAST, 7), [200, 200, 200, 200], id="in pieces"),
        pytest.param([b"\r\n\r\n" + GET + b"\r\n" + LAST], [200, 200], id="empty lines before"),
        pytest.param([b"\r\n", b"\r\n", GET, b"\r\n", LAST], [200, 200], id="empty lines by themselves"),
        pytest.param([NOWHERE + LAST], [404, 200], id="behind a body that nobody read"),
        pytest.param([*split(NOWHERE, 9000), LAST], [404, 200], id="behind pieces that nobody read"),
        pytest.param([*split(LARGE, 60_000), LAST], [413, 200], id="behind a body that is too large"),
        pytest.param([CHUNKED, LAST], [422, 200], id="behind chunks"),
        pytest.param([ASK.replace(b"Length: ", b"Length: " + b"0" * 5_000) + LAST], [200, 200], id="zeros of a length"),
        pytest.param([NOWHERE + ASK * 20 + LAST], [404] + [200] * 21, id="many pipelined"),
    ],
)
def test_a_connection_goes_on(port: int, parts: list[bytes], statuses: list[int]) -> None:
    with connect(port) as connection:
        for part in parts:
            connection.sendall(part)
            if len(parts) < 20:
                time.sleep(0.02)
        data = b""
        while received := connection.recv(1 << 16):
            data += received
    found = [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]
    assert found == statuses, data


@pytest.mark.parametrize("length", [b"-5\n", b"-5\r\n", b"+5\r\n", b"0x5\r\n", b"0_5\r\n"])
@pytest.mark.parametrize("is_split", [False, True])
def test_a_length_of_a_chunk_that_only_python_reads(port: int, length: bytes, is_split: bool) -> None:
    """To go by a negative one would lead back to it, for ever."""
    head, _, _ = CHUNKED.partition(b"2\r\n")
    answer = talk(port, [head, length] if is_split else [head + length])
    assert answer.status == 400, answer.data
    assert talk(port, [LAST]).status == 200


@pytest.mark.parametrize("path", [b"/predict", b"/nowhere"])
def test_chunks_that_turn_out_to_be_malformed_while_the_application_answers(port: int, path: bytes) -> None:
    head = CHUNKED.partition(b"2\r\n")[0].replace(b"/predict", path)
    answer = talk(port, [head + b"no chunk\r\n"], until_closed=True)
    assert answer.status == 400
    assert answer.data.count(b"HTTP/1.1 ") == 1


def test_a_client_that_waits_to_be_asked_for_its_body(port: int) -> None:
    head, _, body = post("/predict", b'{"session": "s", "x": [1, 2]}', "Expect: 100-continue").partition(b"\r\n\r\n")
    with connect(port) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + KEY + b"\r\n", id="a socket"),
        pytest.param(b"GET /predict HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"\r\n", id="without a key"),
        pytest.param(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"Content-Length: 2\r\n\r\n{}", id="a POST"
        ),
        pytest.param(
            b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + KEY + b"\r\n", id="long"
        ),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + UPGRADE + KEY + b"\r\n", id="many headers"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n" + UPGRADE + KEY + b"\r\n", id="a foreign name"),
    ],
)
def test_an_upgrade_is_answered(port: int, request_: bytes) -> None:
    answer = talk(port, [request_])
    assert answer.status in (400, 403, 404, 405, 421, 431), answer.data
    assert answer.seconds < 1.0 + SLACK_S


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_that_sends_no_more_is_answered(port: int, method: str) -> None:
    """It shuts its side of the connection down behind the request."""
    for _ in range(20):
        with connect(port) as connection:
            connection.sendall(f"{method} /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
