"""A real connection: each request gets its own answer, whatever was sent before it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl.client import Client
from service.api.body_ends import Chunks

JSON = {"Content-Type": "application/json"}
ROUND = json.dumps({"x": [1.0, 2.0], "y": 3.0}).encode()


@pytest.fixture
def means(client: Client) -> Client:
    """A client of a service with the session `s`."""
    client.create("s", {"kind": "mean"})
    return client


def request(method: str, path: str, body: bytes = b"", *more: bytes) -> bytes:
    """A request with its body; a `Transfer-Encoding` header takes the place of the length."""
    length = () if any(line.startswith(b"Transfer") for line in more) else (b"Content-Length: %d" % len(body),)
    first = f"{method} {path} HTTP/1.1".encode()
    return b"\r\n".join((first, b"Host: localhost", b"Content-Type: application/json", *length, *more, b"", body))


def chunked(pieces: Sequence[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def chunked_by(size: int, body: bytes) -> bytes:
    return chunked([body[i : i + size] for i in range(0, len(body), size)])


def answers(url: str, *segments: bytes, count: int, pause_s: float = 0.0) -> list[int]:
    """The statuses of the answers to what is sent, each segment by itself."""
    port = httpx.URL(url).port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for segment in segments:
            connection.sendall(segment)
            time.sleep(pause_s)
        with connection.makefile("rb") as stream:
            return [status_of(stream) for _ in range(count)]


def status_of(stream: object) -> int:
    """Read one answer."""
    read_line, read = stream.readline, stream.read  # type: ignore[attr-defined]
    status, length = int(read_line().split()[1]), 0
    while line := read_line().strip():
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    read(length)
    return status


BEFORE = {
    "a body that nobody reads": request("PUT", "/sessions/s", b"abc"),
    "chunks that nobody reads": request("PUT", "/sessions/s", chunked([b"abc", b"d"]), b"Transfer-Encoding: chunked"),
    "no body": request("PUT", "/sessions/s"),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("is_split", [False, True])
def test_requests_sent_ahead_are_answered(url: str, means: Client, before: bytes, is_split: bool) -> None:
    """But for one behind chunks that are refused while they arrive: the connection is closed, and it is not run."""
    together = request("GET", "/healthz") + before + request("POST", "/sessions/s/update", ROUND)
    segments = [together[i : i + 7] for i in range(0, len(together), 7)] if is_split else [together]
    may_be_closed = is_split and b"chunked" in before
    expected = [200, 405] if may_be_closed else [200, 405, 200]
    assert answers(url, *segments, count=len(expected)) == expected
    assert may_be_closed or means.inspect("s")["t"] == 1


def test_who_waits_for_each_answer_gets_each(url: str, means: Client) -> None:
    """The client has all of a snapshot before the application has ended the request for it."""
    with httpx.Client(base_url=url, trust_env=False) as http:
        for t in range(1, 31):
            assert http.get("/sessions/s/snapshot").status_code == 200
            assert http.put("/sessions/s", content=bytes(5_000)).status_code == 405
            assert http.post("/sessions/s/update", content=ROUND, headers=JSON).json()["t"] == t


LARGE = json.dumps({"x": [[float(i)] * 60 for i in range(9_000)], "y": [0.0] * 9_000}).encode()
"""More than a connection holds behind a request that is not answered yet, or not taken."""


def test_large_bodies_may_follow_each_other(url: str, means: Client) -> None:
    """The second one was cut off: the system passes on megabytes at once, once it has seen as many."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        for i in range(1, 4):
            answer = http.post("/sessions/s/rounds", content=LARGE, headers=JSON)
            assert answer.json()["t"] == i * 9_000


def test_large_bodies_may_be_sent_ahead(url: str, means: Client) -> None:
    large = request("POST", "/sessions/s/rounds", LARGE)
    assert answers(url, large * 3 + request("GET", "/healthz"), count=4) == [200] * 4
    assert means.inspect("s")["t"] == 27_000


@pytest.mark.parametrize("field", [b"Content-Encoding: gzip", b"Idempotency-Key: k", b"Host: evil.example"])
def test_a_trailer_is_no_header(url: str, means: Client, field: bytes) -> None:
    body = chunked([ROUND])[:-2] + field + b"\r\n\r\n"
    sent = request("POST", "/sessions/s/update", body, b"Transfer-Encoding: chunked")
    assert answers(url, sent, sent, count=2) == [200, 200]
    assert means.inspect("s")["t"] == 2


def test_a_body_in_small_chunks_counts_as_its_content(url: str, means: Client) -> None:
    body = json.dumps({"x": [[float(i), 0.5] for i in range(5_000)], "y": [0.0] * 5_000}).encode()
    sent = request("POST", "/sessions/s/rounds", chunked_by(3, body), b"Transfer-Encoding: chunked")
    assert answers(url, sent + request("GET", "/healthz"), count=2) == [200, 200]
    assert means.inspect("s")["t"] == 5_000


def test_chunks_of_single_bytes_are_cut_off(url: str, means: Client) -> None:
    sent = request("POST", "/sessions/s/rounds", chunked_by(1, bytes(100_000)), b"Transfer-Encoding: chunked")
    with pytest.raises(ConnectionError):
        answers(url, sent, count=1)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("status", [400, 404, 413])
def test_who_is_sending_a_body_is_told_before_the_connection_is_closed(
    url: str, means: Client, version: bytes, status: int
) -> None:
    """Closing with unread input would reset the connection."""
    path = "/nowhere" if status == 404 else "/predict"
    if status == 400:
        sent = request(
            "POST", path, b"no chunk\r\n" + bytes(8 << 20), b"Transfer-Encoding: chunked", b"Connection: close"
        )
    else:
        sent = request("POST", path, bytes(8 << 20), b"Connection: close")
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port), timeout=10) as connection:
        connection.sendall(sent.replace(b"HTTP/1.1", b"HTTP/" + version, 1))
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert received.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("is_split", [False, True])
def test_an_offer_of_another_protocol_is_ignored(url: str, means: Client, is_split: bool) -> None:
    head = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    sent = request("POST", "/sessions/s/update", ROUND, *head)
    at = len(sent) - len(ROUND)
    assert answers(url, *((sent[:at], sent[at:]) if is_split else (sent,)), count=1) == [200]
    assert means.inspect("s")["t"] == 1


OFFERS: dict[str, tuple[bytes, ...]] = {
    "HTTP/2": (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"),
    "in capitals": (b"CONNECTION: UPGRADE", b"UPGRADE: H2C"),
    "among others": (b"Connection: keep-alive,\tupgrade ,", b"Upgrade: h2c"),
    "several protocols": (b"Connection: upgrade", b"Upgrade: websocket, h2c"),
    "another at last": (b"Connection: upgrade", b"Upgrade: websocket", b"Upgrade: h2c"),
    "a blank behind": (b"Connection: upgrade", b"Upgrade: websocket "),
    "taken back": (b"Connection: upgrade", b"Connection: keep-alive", b"Upgrade: websocket"),
}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("is_split", [False, True])
def test_a_body_behind_an_offer_is_no_request(
    url: str, means: Client, offer: tuple[bytes, ...], is_split: bool
) -> None:
    inner = request("POST", "/sessions/s/update", ROUND)
    sent = request("POST", "/sessions/s/update", inner, *offer) + request("GET", "/healthz")
    at = sent.lower().index(b"\nupgrade") + 5
    segments = (sent[:at], sent[at:]) if is_split else (sent,)
    assert answers(url, *segments, count=2, pause_s=0.05) == [400, 200]
    assert means.inspect("s")["t"] == 0


@pytest.mark.parametrize("target", ["/sessions/s/update", "localhost:80"])
def test_a_request_to_connect_ends_the_connection(url: str, means: Client, target: str) -> None:
    """The server's parser takes no body of it: what follows would be answered as a request."""
    sent = request("CONNECT", target, request("POST", "/sessions/s/update", ROUND))
    port = httpx.URL(url).port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1
    assert means.inspect("s")["t"] == 0


@pytest.mark.parametrize("length", [b"0 ", b"0\t", b" 00 "])
def test_blanks_around_a_length(url: str, means: Client, length: bytes) -> None:
    sent = request("POST", "/sessions/s/update").replace(b"Length: 0", b"Length: " + length)
    assert answers(url, sent + request("GET", "/healthz"), count=2) == [400, 200]


@given(
    st.lists(st.binary(min_size=1, max_size=20)),
    st.sampled_from([b"", b"a: b\r\n", b"a: b\r\nc: d\r\n"]),
    st.binary(max_size=5),
    st.data(),
)
def test_chunks_end_where_they_end(pieces: list[bytes], trailer: bytes, behind: bytes, data: st.DataObject) -> None:
    whole = chunked(pieces)[:-2] + trailer + b"\r\n"
    received = whole + behind
    cuts = sorted(data.draw(st.sets(st.integers(0, len(received)), max_size=8)) | {0, len(received)})
    body = Chunks()
    for start, end in pairwise(cuts):
        found = body.end_in(received[start:end])
        assert (found is None) == (end < len(whole))
        if found is not None:
            assert (start + found, body.left) == (len(whole), 0)
            return


@pytest.mark.parametrize("length", [b"1a", b"1A", b"001A;a=b", b"1a ;a"])
def test_lengths_of_chunks_are_hexadecimal(length: bytes) -> None:
    whole = length + b"\r\n" + b"\n" * 26 + b"\r\n0\r\n\r\n"
    assert Chunks().end_in(whole + b"0\r\n\r\n") == len(whole)


@pytest.mark.parametrize(
    "malformed",
    [b"x\r\n", b"\r\n", b"1" * 9_000, b"-1\r\n", b"-0\r\n\r\n", b"+1\r\na\r\n", b"0x1\r\na\r\n", b"0_1\r\na\r\n"],
)
def test_malformed_chunks_have_no_end(malformed: bytes) -> None:
    body = Chunks()
    assert body.end_in(malformed) is None
    assert body.end_in(b"0\r\n\r\n") is None
    assert body.left > 0
