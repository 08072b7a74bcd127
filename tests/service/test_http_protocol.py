"""Our HTTP protocol answers as uvicorn's own does, byte for byte; only in fewer writes."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http_protocol import HttpProtocol

TIMEOUT_S = 10.0
REQUEST = b"GET %b HTTP/1.1\r\nHost: okl\r\n%b\r\n"
CLOSE = b"Connection: close\r\n"

WHOLE = [(b"content-length", b"5"), (b"X-Kind", b"whole")]
ANSWERS: dict[str, tuple[int, list[tuple[bytes, bytes]], list[bytes]]] = {
    "/whole": (200, WHOLE, [b"hello"]),
    "/empty": (200, [(b"content-length", b"0")], [b""]),
    "/missing": (404, WHOLE, [b"hello"]),
    "/parts": (200, WHOLE, [b"hel", b"lo"]),
    "/chunked": (200, [], [b"hel", b"", b"lo"]),
    "/chunked-whole": (200, [], [b"hello"]),
    "/chunked-in-spite": (200, [*WHOLE, (b"transfer-encoding", b"chunked")], [b"hello"]),
    "/no-content": (204, [], [b""]),
    "/closing": (200, [*WHOLE, (b"Connection", b"close")], [b"hello"]),
}
BROKEN = {
    "/too-long": (200, WHOLE, [b"hello you"]),
    "/too-short": (200, WHOLE, [b"hell"]),
    "/bad-name": (200, [*WHOLE, (b"a b", b"c")], [b"hello"]),
    "/bad-value": (200, [*WHOLE, (b"a", b"b\r\nc: d")], [b"hello"]),
    "/raises-in-a-stream": (200, [], []),
}


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """`/body` tells what it was sent; the others answer from the table."""
    status, headers, bodies = (ANSWERS | BROKEN).get(scope["path"], (200, WHOLE, []))
    if scope["path"] == "/body":
        received, more = b"", True
        while more:
            message = await receive()
            received, more = received + message["body"], message["more_body"]
        headers, bodies = [(b"content-length", b"%d" % len(received))], [received]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["path"].startswith("/raises"):
        raise RuntimeError("on purpose")
    for i, body in enumerate(bodies):
        await send({"type": "http.response.body", "body": body, "more_body": i < len(bodies) - 1})


@contextmanager
def server(app: Any, protocol: type[asyncio.Protocol], **settings: Any) -> Iterator[int]:
    """The port of a server in a thread of this process."""
    config = uvicorn.Config(app, http=protocol, log_config=None, lifespan="off", **settings)
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join()


def talk(port: int, *sent: bytes) -> bytes:
    """All that the server says until it closes the connection, without the times."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        for data in sent:
            connection.sendall(data)
        said = b""
        while data := connection.recv(65536):
            said += data
    return re.sub(rb"date: [^\r]*\r\n", b"", said)


@pytest.fixture(scope="module", params=[False, True], ids=["no access log", "access log"])
def ports(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Our protocol, and uvicorn's own, with the same application."""
    log = request.param
    with server(answer, HttpProtocol, access_log=log) as ours, server(answer, HttpToolsProtocol, access_log=log) as own:
        yield ours, own


@pytest.mark.parametrize("path", ANSWERS)
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST"])
def test_a_request_is_answered_as_uvicorn_does(ports: tuple[int, int], path: str, method: bytes) -> None:
    kept = REQUEST.replace(b"GET", method) % (path.encode(), b"")
    # The second request shows that the connection is as usable as after uvicorn's answer. One that the server has closed
    # resets it, and what was said before may be lost.
    second = [] if path == "/closing" else [REQUEST % (b"/whole", CLOSE)]
    ours, own = (talk(port, kept, *second) for port in ports)
    assert ours == own
    assert ours.startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([REQUEST % (b"/whole", b"") * 3 + REQUEST % (b"/parts", CLOSE)], id="pipelined"),
        pytest.param([REQUEST % (b"/chunked", b"") + REQUEST % (b"/whole", CLOSE)], id="pipelined behind a stream"),
        pytest.param([b"GET /whole HTTP/1.0\r\n\r\n"], id="HTTP 1.0"),
        pytest.param([b"nonsense\r\n\r\n"], id="no HTTP"),
        pytest.param(
            [
                REQUEST % (b"/body", b"Expect: 100-continue\r\nContent-Length: 2\r\n"),
                b"hi",
                REQUEST % (b"/whole", CLOSE),
            ],
            id="100-continue",
        ),
        pytest.param(
            [
                REQUEST % (b"/whole", b"Expect: 100-continue\r\nContent-Length: 2\r\n"),
                b"hi",
                REQUEST % (b"/parts", CLOSE),
            ],
            id="100-continue, but the body is not wanted",
        ),
        pytest.param([REQUEST % (b"/body", CLOSE + b"Content-Length: 4\r\n"), b"a", b"bcd"], id="body in parts"),
    ],
)
def test_a_conversation_goes_as_with_uvicorn(ports: tuple[int, int], sent: list[bytes]) -> None:
    ours, own = (talk(port, *sent) for port in ports)
    assert ours == own
    assert ours


@pytest.mark.parametrize("path", BROKEN)
def test_a_broken_answer_is_cut_off_where_uvicorn_cuts_it_off(ports: tuple[int, int], path: str) -> None:
    ours, own = (talk(port, REQUEST % (path.encode(), b"")) for port in ports)
    assert ours == own


def test_an_application_that_fails_before_its_body_is_answered_for(ports: tuple[int, int]) -> None:
    ours, own = (talk(port, REQUEST % (b"/raises", b"")) for port in ports)
    assert ours.startswith(b"HTTP/1.1 500 ")
    assert ours.endswith(b"Internal Server Error")
    # uvicorn has announced an answer by then, which never comes.
    assert own.startswith(b"HTTP/1.1 200 ")


def test_a_head_without_a_length_does_not_wait_for_the_first_event() -> None:
    event = threading.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-kind", b"stream")]})
        await asyncio.to_thread(event.wait, TIMEOUT_S)
        await send({"type": "http.response.body", "body": b"event"})

    with server(stream, HttpProtocol) as port, socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(REQUEST % (b"/", b""))
        try:
            assert connection.recv(65536).endswith(b"x-kind: stream\r\ntransfer-encoding: chunked\r\n\r\n")
        finally:
            event.set()
        assert connection.recv(65536) == b"5\r\nevent\r\n0\r\n\r\n"


def test_a_server_that_stops_finishes_the_answer_and_says_that_it_closes() -> None:
    asked, event = threading.Event(), threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await asyncio.to_thread(event.wait, TIMEOUT_S)
        await answer(scope | {"path": "/whole"}, receive, send)

    config = uvicorn.Config(slow, http=HttpProtocol, log_config=None, lifespan="off")
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(REQUEST % (b"/", b""))
            assert asked.wait(TIMEOUT_S)
            running.should_exit = True
            while running.servers[0].is_serving():
                time.sleep(0.01)
            event.set()
            said = b""
            while data := connection.recv(65536):
                said += data
        thread.join()
    assert said.endswith(b"connection: close\r\n\r\nhello")


@final
class Wire(asyncio.Transport):
    """Keeps what is written to it, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "count"), [("/whole", 1), ("/missing", 1), ("/parts", 3), ("/chunked", 4)])
async def test_an_answer_of_one_piece_is_one_write(path: str, count: int) -> None:
    config = uvicorn.Config(answer, http=HttpProtocol, log_config=None, access_log=False, lifespan="off")
    config.load()
    state = ServerState()
    protocol = HttpProtocol(config, state, {})
    wire = Wire()
    protocol.connection_made(wire)
    protocol.data_received(REQUEST % (path.encode(), b""))
    await asyncio.gather(*state.tasks)
    assert len(wire.writes) == count
    assert wire.writes[0].startswith(b"HTTP/1.1 ")
    protocol._unset_keepalive_if_required()
