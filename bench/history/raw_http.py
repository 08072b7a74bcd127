"""One HTTP connection that can break: what was sent, what came back, and how it ended."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any, NamedTuple

from bench.history.attempts import CUT, REFUSED, TIMED_OUT
from bench.http_client import HOST


class Heard(NamedTuple):
    """`status` is None where nobody answered; `problem` says why then, and is the slug of an error's document else."""

    status: int | None
    body: Any
    problem: str
    sent: float
    ended: float


IDLE_S = 2.0
"""The service closes a connection that is idle for a few seconds; a request may just then be on its way."""


class Connection:
    """Keep-alive to one port; connects again when the last request broke, or is long past. Only for one thread."""

    def __init__(self, port: int, began: float, timeout_s: float) -> None:
        self._port = port
        self._began = began
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._used = 0.0

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def request(self, method: str, path: str, body: Any = None) -> Heard:
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n"
        if body is not None:
            head += "Content-Type: application/json\r\n"
        head += f"Content-Length: {len(data)}\r\n\r\n"
        sent = self._now()
        if sent - self._used > IDLE_S:
            self.close()
        try:
            connected = self._connected()
        except OSError:
            return Heard(None, None, REFUSED, sent, self._now())
        try:
            connected.sendall(head.encode() + data)
            status, answer, is_last = _read(connected, time.monotonic() + self._timeout_s)
        except TimeoutError:
            self.close()
            return Heard(None, None, TIMED_OUT, sent, self._now())
        except (OSError, ValueError):
            self.close()
            return Heard(None, None, CUT, sent, self._now())
        self._used = self._now()
        if is_last:
            self.close()
        found, slug = _decoded(status, answer)
        return Heard(status, found, slug, sent, self._now())

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection((HOST, self._port), timeout=self._timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _now(self) -> float:
        return time.monotonic() - self._began


def _decoded(status: int, answer: bytes) -> tuple[Any, str]:
    try:
        found: Any = json.loads(answer) if answer else {}
        return found, "" if status < 300 else found["type"].removeprefix("/problems/")
    except (ValueError, KeyError, TypeError, AttributeError):
        return answer.decode(errors="replace"), "no-problem-document"


def _read(connected: socket.socket, deadline: float) -> tuple[int, bytes, bool]:
    """Status and body of an answer with a Content-Length, and whether the server closes the connection after it."""
    answer = b""
    while (end := answer.find(b"\r\n\r\n")) < 0:
        answer += _received(connected, deadline)
    head = answer[:end].lower()
    start = head.find(b"content-length:")
    length = 0 if start < 0 else int(head[start + 15 :].split(b"\r\n", 1)[0])
    while len(answer) < end + 4 + length:
        answer += _received(connected, deadline)
    return int(answer[9:12]), answer[end + 4 :], b"connection: close" in head


def _received(connected: socket.socket, deadline: float) -> bytes:
    connected.settimeout(max(0.001, deadline - time.monotonic()))
    data = connected.recv(65536)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data
