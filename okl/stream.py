"""Rounds over one socket: many messages under way, each learned exactly once, whatever becomes of the connection."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from okl.errors import PayloadTooLarge, ServiceError, Unreachable, passes
from okl.problems import error_of

UNDER_WAY: Final = 128
"""Messages that are sent before the first of them is answered."""

BACK_WITHIN_S: Final = 30.0
AGAIN_AFTER_S: Final = 0.2
MOST_ANSWER_BYTES: Final = 16 << 20
TOO_LARGE: Final = 1009
"""How a WebSocket is closed for a message, or an answer, that is too large."""


class Stream:
    """A socket to one session; not for use from several threads at once. Made by `Client.stream`.

    A message is what the service takes: `{"x": ...}`, `{"id": ..., "y": ...}`, `{"x": ..., "y": ...}` or
    `{"update": ..., "predict": ...}`. One that names no id is given one, so that it can be sent again: where the
    connection breaks, or a message is refused in a way that passes, a new connection is made and all that was not answered
    is sent again, in its order. Raises Unreachable if none can be made, or none brings an answer, for 30 s;
    PayloadTooLarge for a message that the service does not take.
    """

    def __init__(self, url: str, session: str, headers: Mapping[str, str] | None = None) -> None:
        self._url = "ws" + url.removeprefix("http")
        self._session = session
        self._headers = dict(headers or {})
        self._prefix = secrets.token_urlsafe(9)
        self._count = itertools.count()
        self._stack = ExitStack()
        self._sent: deque[deque[str]] = deque()
        self._failing_since: float | None = None
        self._socket = self._connected(time.monotonic())

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def ask(self, messages: Iterable[Mapping[str, Any]], *, together: int = 1) -> Iterator[dict[str, Any]]:
        """The answers, in the order of the messages, as they come; `together` messages are sent as one.

        An answer is that of `predict`, `update` or `step`, or {"id": ..., "refused": a problem}. Raises RuntimeError if it is
        asked for more after another call of `ask` has begun.
        """
        frames = self._frames(iter(messages), together)
        if self._sent:
            # A call before was left: the answers that are still to come on this connection are its own.
            self._socket = self._connected(time.monotonic())
        sent = self._sent = deque()
        self._failing_since = None
        under_way = 0
        while True:
            if self._sent is not sent:
                raise RuntimeError("These answers are gone: the stream was asked for others meanwhile.")
            while under_way < UNDER_WAY and (frame := next(frames, None)) is not None:
                sent.append(frame)
                under_way += len(frame)
                try:
                    self._socket.send(_joined(frame))
                except ConnectionClosed as error:
                    self._send_again(sent, error)
            if not sent:
                return
            try:
                found = json.loads(self._socket.recv())
            except ConnectionClosed as error:
                self._send_again(sent, error)
                continue
            answers = found if isinstance(found, list) else [found] * len(sent[0])
            for answer in answers:
                if (refusal := _refusal(answer)) is not None and passes(refusal):
                    # Nothing after it was done.
                    self._send_again(sent, refusal)
                    break
                self._failing_since = None
                sent[0].popleft()
                under_way -= 1
                yield answer
            else:
                sent.popleft()

    def one(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of one message. Raises the ServiceError that refused it."""
        answer = next(self.ask([message]))
        if (refusal := _refusal(answer)) is not None:
            raise refusal
        return answer

    def _frames(self, messages: Iterator[Mapping[str, Any]], together: int) -> Iterator[deque[str]]:
        while some := [self._named(one) for one in itertools.islice(messages, together)]:
            yield deque(json.dumps(one) for one in some)

    def _named(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with an id in each of its parts that changes anything."""
        found = dict(message)
        parts = [found[part] for part in ("update", "predict") if part in found]
        if parts:
            return {part: self._named(found[part]) for part in ("update", "predict") if part in found}
        if "id" not in found and found.get("wait", True):
            found["id"] = f"{self._prefix}-{next(self._count):x}"
        return found

    def _send_again(self, sent: Iterable[deque[str]], error: ConnectionClosed | ServiceError) -> None:
        """All that was not answered, on a new connection: at once, then every AGAIN_AFTER_S until there is an answer."""
        while True:
            if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code == TOO_LARGE:
                raise PayloadTooLarge("A message is larger than the service takes.") from error
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
            elif now - self._failing_since > BACK_WITHIN_S:
                raise Unreachable(f"No answer comes from {self._url} ({error}).") from error
            else:
                time.sleep(AGAIN_AFTER_S)
            self._socket = self._connected(self._failing_since)
            try:
                for frame in sent:
                    self._socket.send(_joined(frame))
            except ConnectionClosed as again:
                error = again
                continue
            return

    def _connected(self, started: float) -> ClientConnection:
        self.close()
        address = f"{self._url}/sessions/{self._session}/stream"
        while True:
            try:
                connection = connect(
                    address, additional_headers=self._headers, compression=None, max_size=MOST_ANSWER_BYTES
                )
                return self._stack.enter_context(connection)
            except InvalidStatus as error:
                refusal = error_of(error.response.status_code, bytes(error.response.body or b""))
                if refusal.status not in (502, 503, 504) or time.monotonic() - started > BACK_WITHIN_S:
                    raise refusal from error
            except (OSError, InvalidHandshake, TimeoutError) as error:
                if time.monotonic() - started > BACK_WITHIN_S:
                    raise Unreachable(f"No service answers at {self._url} ({error}).") from error
            time.sleep(AGAIN_AFTER_S)


def _joined(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f"[{','.join(messages)}]"


def _refusal(answer: Mapping[str, Any]) -> ServiceError | None:
    """What refused a message as a whole."""
    refused = answer.get("refused")
    return None if refused is None or "update" in answer else error_of(refused["status"], json.dumps(refused).encode())
