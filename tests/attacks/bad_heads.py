"""Heads, and bodies behind them, that have no end: what is sent, and the statuses of an answer that may come."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.attacks.attacker import post

MIB = 1 << 20


def stuffed(before: bytes, piece: bytes, count: int) -> Iterator[bytes]:
    yield before
    for _ in range(count):
        yield piece


HEADS: dict[str, tuple[Callable[[], Iterator[bytes]], set[int | None]]] = {
    "a header of 300 MB": (lambda: stuffed(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ", b"a" * MIB, 300), {431, None}),
    "a URL of 100 MB": (lambda: stuffed(b"GET /", b"a" * MIB, 100), {431, None}),
    "a URL that is too long": (
        lambda: stuffed(b"GET /", b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
        {414},
    ),
    "headers without end": (lambda: stuffed(b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10_000, 1000), {431, None}),
    "headers that are too large": (
        lambda: stuffed(b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"a: " + b"b" * 20_000 + b"\r\n\r\n", 1),
        {431},
    ),
    "empty lines without end": (lambda: stuffed(b"", b"\r\n" * 10_000, 500), {408, None}),
    "no HTTP": (lambda: stuffed(b"\x16\x03\x01\x02\x00" * 100, b"", 0), {400}),
    "a body of 1 GB in chunks": (
        lambda: stuffed(
            b"POST /sessions/s/rounds HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n" % MIB + b"[" * MIB + b"\r\n",
            1000,
        ),
        {413, 408, None},
    ),
    "a body of 1 GB, announced": (
        lambda: stuffed(post("/predict", b"", "Content-Length: 1000000000"), b"a" * MIB, 1000),
        {400, 413, None},
    ),
    "a session of 50 MB in chunks": (
        lambda: stuffed(
            b"POST /sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n" % MIB + b"[" * MIB + b"\r\n",
            50,
        ),
        {413, 408, None},
    ),
    "a second head of 300 MB": (
        lambda: stuffed(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nA: ", b"a" * MIB, 300),
        {200},
    ),
}
