"""Raw connections to a service, and a bystander: another client, in a process of its own, that times its calls meanwhile."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30.0
SLACK_S = 3.0
"""On a loaded machine a clock is looked at late."""

BYSTANDER = """
import socket, sys, time
port, seconds = int(sys.argv[1]), float(sys.argv[2])
body = b'{"session": "s", "x": [0.1, 0.2], "wait": false}'
head = ["POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}"]
request = "\\r\\n".join([*head, "", ""]).encode()
connection = socket.create_connection(("127.0.0.1", port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
end = time.perf_counter() + seconds
while time.perf_counter() < end:
    started = time.perf_counter()
    connection.sendall(request + body)
    answer = b""
    while not answer.endswith(b"}"):
        answer += connection.recv(65536)
    print(time.perf_counter() - started)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    time.sleep(0.002)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """All that came back until the server closed the connection or was silent, and after what time since the last byte."""

    data: bytes
    seconds: float

    @property
    def status(self) -> int | None:
        return int(self.data[9:12]) if self.data.startswith(b"HTTP/1.1 ") else None

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.data.partition(b"\r\n\r\n")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_S)


def post(path: str, body: bytes, *headers: str) -> bytes:
    head = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*head, *headers, "", ""]).encode() + body


def talk(port: int, parts: Iterable[bytes], *, until_closed: bool = False) -> Answer:
    """Sends until the server has enough, then reads one answer, or all there are until the server closes."""
    with connect(port) as connection:
        with suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
        sent = time.monotonic()
        data = b""
        with suppress(ConnectionError):
            while received := connection.recv(1 << 16):
                data += received
                if not until_closed and _is_whole(data):
                    break
        return Answer(data, time.monotonic() - sent)


def _is_whole(data: bytes) -> bool:
    head, separator, body = data.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(separator) and (not lengths or len(body) >= int(lengths[0]))


class Bystander:
    """A client with a connection of its own, started at once."""

    def __init__(self, port: int, seconds: float) -> None:
        command = [sys.executable, "-c", BYSTANDER, str(port), str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def p99_s(self) -> float:
        """When its time is over."""
        told, _ = self._process.communicate(timeout=2 * TIMEOUT_S)
        assert self._process.returncode == 0
        times = sorted(map(float, told.split()))
        return times[int(0.99 * len(times))]


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def forget_peak(pid: int) -> None:
    """From now on VmHWM is the most memory since now."""
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")
