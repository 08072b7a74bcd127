"""The same requests as messages of streams: over a socket to each session, or as lines."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any, final

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from bench.history.attempts import CUT, REFUSED, TIMED_OUT
from bench.history.raw_http import Connection, Heard
from bench.http_client import HOST

BLOCK = 1_000
LINES = {"Content-Type": "application/x-ndjson"}


@final
class StreamedConnection(Connection):
    """predict, update and step go over a socket, or as a line of a stream; rounds as lines; all else as ever."""

    def __init__(self, port: int, began: float, timeout_s: float, *, has_sockets: bool) -> None:
        super().__init__(port, began, timeout_s)
        self._has_sockets = has_sockets
        self._sockets: dict[str, tuple[ExitStack, ClientConnection]] = {}
        self._http = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=timeout_s, trust_env=False)

    def close(self) -> None:
        super().close()
        self._http.close()
        for session in list(self._sockets):
            self._hang_up(session)

    def request(self, method: str, path: str, body: Any = None) -> Heard:
        action = path.rpartition("/")[2]
        if method != "POST" or action not in ("predict", "update", "step", "rounds"):
            return super().request(method, path, body)
        session = body.get("session") or path.split("/")[2]
        message = {name: value for name, value in body.items() if name != "session"}
        sent = self._now()
        try:
            if action == "rounds":
                found = self._rounds(session, message)
            else:
                found = self._said(session, json.dumps(message)) if self._has_sockets else self._line(session, message)
        except (httpx.ConnectError, ConnectionRefusedError):
            return Heard(None, None, REFUSED, sent, self._now())
        except (httpx.TimeoutException, TimeoutError):
            return Heard(None, None, TIMED_OUT, sent, self._now())
        except (httpx.TransportError, OSError, ConnectionClosed, InvalidHandshake):
            return Heard(None, None, CUT, sent, self._now())
        refused = found.get("refused") if "update" not in found else None
        if refused is None and "type" in found:
            refused = found
        if refused is not None:
            return Heard(refused["status"], refused, refused["type"].removeprefix("/problems/"), sent, self._now())
        return Heard(200, found, "", sent, self._now())

    def _said(self, session: str, message: str) -> dict[str, Any]:
        if session in self._sockets and self._sockets[session][1].state is not State.OPEN:
            self._hang_up(session)  # closed long since, and nothing is under way: that is no failure of this message
        if session not in self._sockets:
            stack = ExitStack()
            try:
                address = f"ws://{HOST}:{self._port}/sessions/{session}/stream"
                opened = stack.enter_context(connect(address, compression=None, open_timeout=self._timeout_s))
            except InvalidStatus as error:
                if not error.response.body:
                    raise  # the worker was killed before it had sent all of its refusal
                return json.loads(error.response.body)
            self._sockets[session] = stack, opened
        try:
            self._sockets[session][1].send(message)
            return json.loads(self._sockets[session][1].recv(timeout=self._timeout_s))
        except BaseException:
            self._hang_up(session)
            raise

    def _hang_up(self, session: str) -> None:
        stack, _ = self._sockets.pop(session)
        stack.close()

    def _line(self, session: str, message: dict[str, Any]) -> dict[str, Any]:
        return self._answer(f"/sessions/{session}/stream", [message], {})

    def _rounds(self, session: str, body: dict[str, Any]) -> dict[str, Any]:
        """One block, whose id is that of the body but for its number."""
        rows = [{"x": x, "y": y} for x, y in zip(body["x"], body["y"], strict=True)]
        id = body.get("id")
        found = self._answer(
            f"/sessions/{session}/rounds?block={BLOCK}", rows, {} if id is None else {"Idempotency-Key": id}
        )
        found.pop("applied", None)
        return found if id is None or "id" not in found else found | {"id": id}

    def _answer(self, path: str, rows: list[Any], headers: dict[str, str]) -> dict[str, Any]:
        content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        answer = self._http.post(path, content=content, headers=LINES | headers)
        if not answer.text.endswith("}\n") and answer.status_code == 200:
            raise ConnectionResetError
        return json.loads(answer.text)


def connection(port: int, began: float, timeout_s: float, transport: str, number: int) -> Connection:
    """That of a client by its number; `mixed` gives each transport to a third of them."""
    if transport == "mixed":
        transport = ("requests", "socket", "lines")[number % 3]
    if transport == "requests":
        return Connection(port, began, timeout_s)
    return StreamedConnection(port, began, timeout_s, has_sockets=transport == "socket")
