"""What a benchmark over HTTP needs: server processes, the CPU that they use, and clients that add as little as can be."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import httpx

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[1]
HEALTHY_WITHIN_S = 30.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BadAnswer(RuntimeError):
    """A server answered with something else than 2xx."""


class Client(Protocol):
    """One connection. `prepare` is outside the clock, `send` inside."""

    def prepare(self, path: str, body: bytes) -> Any: ...

    def send(self, prepared: Any) -> tuple[int, bytes]: ...

    def close(self) -> None: ...


class RawClient:
    """HTTP/1.1 keep-alive on one blocking socket, for answers with a Content-Length. Requests are bytes made before."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def prepare(self, path: str, body: bytes, kind: str = "application/json") -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {kind}\r\nAccept: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def send(self, prepared: bytes) -> tuple[int, bytes]:
        self._socket.sendall(prepared)
        answer = self._receive(b"")
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer = self._receive(answer)
        length = _content_length(answer[:end])
        while len(answer) < end + 4 + length:
            answer = self._receive(answer)
        return int(answer[9:12]), answer[end + 4 :]

    def _receive(self, before: bytes) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        return before + data

    def close(self) -> None:
        self._socket.close()


def _content_length(head: bytes) -> int:
    lower = head.lower()
    start = lower.index(b"content-length:") + len(b"content-length:")
    return int(lower[start:].split(b"\r\n", 1)[0])


class HttpxClient:
    """The client that most users have."""

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False)

    def prepare(self, path: str, body: bytes) -> tuple[str, bytes]:
        return path, body

    def send(self, prepared: tuple[str, bytes]) -> tuple[int, bytes]:
        path, body = prepared
        answer = self._client.post(path, content=body, headers={"Content-Type": "application/json"})
        return answer.status_code, answer.content

    def close(self) -> None:
        self._client.close()


CLIENTS: dict[str, type[RawClient] | type[HttpxClient]] = {"raw": RawClient, "httpx": HttpxClient}


@dataclass
class Timed:
    """A client that keeps the latency of each request, in seconds, by path."""

    client: Client
    latencies: dict[str, list[float]]

    def post(self, path: str, body: Mapping[str, Any], *, keep: bool = True) -> dict[str, Any]:
        prepared = self.client.prepare(path, json.dumps(body, separators=(",", ":")).encode())
        start = time.perf_counter()
        status, answer = self.client.send(prepared)
        elapsed = time.perf_counter() - start
        if not 200 <= status < 300:
            raise BadAnswer(f"POST {path}: {status} {answer.decode(errors='replace')}")
        if keep:
            self.latencies.setdefault(path, []).append(elapsed)
        return json.loads(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


class Process:
    """A server process on a free port; a context manager that waits until it answers, and stops it at the end."""

    def __init__(
        self, command: list[str], port: int, environment: Mapping[str, str] | None = None, folder: str | None = None
    ) -> None:
        self.port = port
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self._process = subprocess.Popen(
            command, env={**os.environ, **(environment or {})}, stdout=self._log, stderr=subprocess.STDOUT, cwd=folder
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU seconds that the process has used, of all its threads, in user and kernel mode."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        # The name in parentheses may hold spaces; utime and stime are fields 14 and 15 of the line.
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def wait_until(self, is_healthy: Any) -> Self:
        deadline = time.monotonic() + HEALTHY_WITHIN_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if is_healthy():
                    return self
            except (OSError, httpx.TransportError):
                pass
            time.sleep(0.02)
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        self.__exit__(None, None, None)
        raise RuntimeError(f"the server did not become healthy:\n{log}")


def start_app(
    app: str,
    environment: Mapping[str, str],
    *,
    is_factory: bool,
    health: str = "/healthz",
    checkout: str | None = None,
) -> Process:
    """Serve an ASGI application behind stock uvicorn, and wait until it is healthy; `checkout`: code from elsewhere."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--host", HOST, "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    command += ["--factory"] if is_factory else []
    if checkout is not None:
        command += ["--app-dir", checkout]
    process = Process(command, port, {"OPENBLAS_NUM_THREADS": "1", **environment}, folder=checkout)
    return _healthy(process, health)


def start_okl(environment: Mapping[str, str], *, checkout: str | None = None) -> Process:
    """`okl serve`, as its users run it: uvicorn behind its connection limits; `checkout`: code from elsewhere."""
    port = free_port()
    module = tomllib.loads((Path(checkout or ROOT) / "pyproject.toml").read_text())["project"]["scripts"]["okl"]
    name, _, function = module.partition(":")
    code = f"import sys; sys.argv[0] = 'okl'; from {name} import {function}; {function}()"
    command = [sys.executable, "-c", code, "serve", "--port", str(port)]
    environment = {"OPENBLAS_NUM_THREADS": "1", "OKL_LOG_LEVEL": "warning", **environment}
    return _healthy(Process(command, port, environment, folder=checkout), "/healthz")


def _healthy(process: Process, health: str) -> Process:
    url = f"http://{HOST}:{process.port}{health}"
    return process.wait_until(lambda: httpx.get(url, trust_env=False).is_success)


@contextmanager
def redis_server(*more: str) -> Iterator[Process]:
    """A Redis server of our own that keeps what it acknowledged, up to a second; `more` are options that win."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("redis-server is not on the PATH")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--bind", HOST, "--port", str(port), "--dir", folder, "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "everysec", *more]
        with Process([binary, *options], port) as process:
            yield process.wait_until(lambda: _answers_ping(port))


def _answers_ping(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=1.0) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
