"""Frames of a socket, as many as a client likes: others are answered meanwhile, and no memory is taken."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from bench.processes import Worker
from tests.attacks.attacker import Bystander, connect
from tests.attacks.test_bystanders import ATTACK_S, MAX_P99_S, load

UPGRADE = (
    b"GET /sessions/s/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PING, PART, TEXT, CLOSE, UNKNOWN = 0x89, 0x00, 0x81, 0x88, 0x83
MOST_BYTES = 16 << 20
"""More than is on the way between two sockets of one machine, and in the server."""


def frame(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind, 0x80 | len(data)]) + bytes(4) + data


ASK = frame(TEXT, b'{"x": [1, 2], "wait": false}')
EARLY: dict[str, tuple[bytes, bytes]] = {
    "a ping": (frame(PING, b"hi"), b"\x8a\x02hi"),
    "a close": (frame(CLOSE, b"\x03\xe8"), b"\x88\x02\x03\xe8"),
    "an unknown frame": (frame(UNKNOWN), b"\x88\x10\x03\xeainvalid opcode"),
    "a text that is not UTF-8": (frame(TEXT, b"\xff"), b"\x88\x15\x03\xefa text is not UTF-8"),
    "such a text, and more": (frame(TEXT, b"\xff") + ASK * 3, b"\x88\x15\x03\xefa text is not UTF-8"),
    "such a text, and a close": (frame(TEXT, b"\xff") + frame(CLOSE, b"\x03\xe8"), b"\x88\x02\x03\xe8"),
    "a good text": (ASK, b'\x810{"session":"s",'),
}
"""Frames, and how the first answer to them begins."""


@pytest.mark.parametrize("name", EARLY)
def test_frames_sent_with_the_handshake_are_answered_behind_it(port: int, name: str) -> None:
    frames, expected = EARLY[name]
    with connect(port) as connection:
        connection.sendall(UPGRADE + frames)
        data = b""
        while expected not in data and (received := connection.recv(1 << 12)):
            data += received
    head, _, answer = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert answer.startswith(expected)


@pytest.mark.parametrize("name", EARLY)
def test_frames_sent_with_a_handshake_that_is_refused(port: int, name: str) -> None:
    with connect(port) as connection:
        connection.sendall(UPGRADE.replace(b"/s/", b"/nosuch/") + EARLY[name][0])
        assert connection.recv(1 << 12).startswith(b"HTTP/1.1 404 ")


@contextmanager
def opened(port: int) -> Iterator[socket.socket]:
    with connect(port) as connection:
        connection.sendall(UPGRADE)
        assert connection.recv(1 << 12).startswith(b"HTTP/1.1 101")
        yield connection


@pytest.mark.parametrize("kind", [PING, PART], ids=["pings", "parts of a message"])
def test_a_bystander_does_not_notice_frames_of_nothing(worker: Worker, kind: int) -> None:
    def flood(connection: socket.socket) -> None:
        frames = frame(kind) * 10_000
        with suppress(OSError):
            connection.sendall(frame(0x01, b" ") if kind == PART else b"")
            while time.monotonic() < until:
                connection.sendall(frames)

    def take(connection: socket.socket) -> None:
        with suppress(OSError):
            while connection.recv(1 << 16):
                pass

    until = time.monotonic() + 2 * ATTACK_S
    with opened(worker.port) as one, opened(worker.port) as other:
        threads = [threading.Thread(target=work, args=(to,)) for to in (one, other) for work in (flood, take)]
        for thread in threads:
            thread.start()
        bystander = Bystander(worker.port, ATTACK_S)
        p99_s = bystander.p99_s()
        until = 0.0
        for connection in (one, other):
            connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
    assert p99_s < 4 * MAX_P99_S * load() ** 2


def test_who_takes_no_answers_to_pings_is_read_from_no_more(worker: Worker) -> None:
    pings = frame(PING, b"p" * 125) * 1_000
    with opened(worker.port) as connection:
        connection.settimeout(1.0)
        sent = 0
        with suppress(TimeoutError):
            while sent < MOST_BYTES:
                connection.sendall(pings)
                sent += len(pings)
        assert sent < MOST_BYTES
        # What was held up goes on when the answers are taken.
        connection.settimeout(10.0)
        got = 0
        while got < sent // 2:
            got += len(connection.recv(1 << 16))
