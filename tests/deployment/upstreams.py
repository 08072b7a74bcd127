"""Servers that stand in for workers behind the balancer and tell which of them was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Upstream(ThreadingHTTPServer):
    """Answers every request with its own address; with `breaks` it reads a request and closes without an answer."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _Handler)
        self.asked: list[str] = []
        self.heads: list[Message] = []
        self.breaks = False

    @property
    def name(self) -> str:
        return f"{self.server_address[0]}:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One write an answer.
    wbufsize = 64 << 10
    server: Upstream

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.heads.append(self.headers)
        if self.server.breaks:
            self.close_connection = True
            return
        body = self.server.name.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Instance", self.headers.get("x-request-id", ""))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def upstreams(count: int, host: str = "127.0.0.1", port: int = 0) -> Iterator[list[Upstream]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(Upstream(host, port)) for _ in range(count)]
        for server in servers:
            # The loop polls for the end: a tenth of the default.
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            stack.callback(server.shutdown)
        yield servers
