"""The protocol of a socket to one session, without I/O: `Stream` and `AsyncStream` execute its scripts.

A script is a generator. It yields steps and receives the result of each, or its error; a `Tell` step hands out an answer.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from okl.addresses import is_this_machine, tls_mistake
from okl.answers import Prediction, id_of
from okl.errors import NotFinite, PayloadTooLarge, ServiceError, Unreachable, WrongType, passes
from okl.forks import Ids
from okl.masking import shown_url
from okl.problems import NO_JSON, error_of, no_service
from okl.talks import path_of
from okl.values import as_json, row

UNDER_WAY: Final = 256
"""Most unanswered messages in flight; the service accepts as many, which is several of its turns."""

BACK_WITHIN_S: Final = 30.0
AGAIN_AFTER_S: Final = 0.2
MOST_ANSWER_BYTES: Final = 16 << 20
TOO_LARGE: Final = 1009
"""WebSocket close code for a message or an answer that is too large."""

OVER: Final = object()
"""There are no more messages."""

NOT_YET: Final = object()
"""An answer arrived before the next message."""

FAULTS: Final = (OSError, InvalidHandshake, TimeoutError, ConnectionClosed)
"""Errors that are passed to the script."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a new connection in place of the current one."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame."""

    text: str


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive the next frame of answers."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Next:
    """Get the next message, or OVER at the end.

    The result may be NOT_YET if `frame` (others are ready to be sent) and no message is available now, or if `sent` (answers
    are due) and an answer has arrived.
    """

    sent: bool
    frame: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Hand one answer to the caller."""

    answer: dict[str, Any]


Step = Connect | Send | Receive | Pause | Next | Tell
Script = Generator[Step, Any, None]


@final
class Conversation:
    """State of the socket to one session of the service at `url`: unanswered messages, and since when it has failed."""

    def __init__(self, url: str, session: str) -> None:
        self._url = "ws" + url.rstrip("/")[len("http") :]
        self.address = f"{self._url}{path_of(session, 'stream')}"
        self._is_near = is_this_machine(url)
        self._ids = Ids()
        self._process = os.getpid()
        self._sent: deque[deque[str]] = deque()
        self._failing_since: float | None = None
        self._script: Script | None = None
        self._is_open = False

    def connection(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Options of the WebSocket library's `connect`."""
        options: dict[str, Any] = {"additional_headers": headers, "compression": None, "max_size": MOST_ANSWER_BYTES}
        # At most UNDER_WAY answers can wait to be read. A bound of the library's would stop its reading, and then closing
        # the connection takes 10 s, because the service's answer to that comes after them.
        options["max_queue"] = None
        # The environment's proxy must not be used for this machine.
        return options | {"proxy": None} if self._is_near else options

    def open(self) -> None:
        """Allow scripts to begin."""
        self._is_open, self._process = True, os.getpid()

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the connection and owns it."""
        return self._process != os.getpid()

    def close(self) -> None:
        """Let no script continue."""
        self._is_open = False

    def enter(self, script: Script) -> None:
        """Give the conversation to this script. Raises RuntimeError if it is not open."""
        if self._is_open:
            self._script = script
        self.check(script)

    def check(self, script: Script) -> None:
        """Raises RuntimeError if the conversation is closed, inherited, or belongs to another script by now."""
        if self.is_inherited:
            raise RuntimeError("The stream is that of another process: a forked one opens its own.")
        if not self._is_open:
            raise RuntimeError("The stream is not open: ask within its `with` block.")
        if self._script is not script:
            raise RuntimeError("These answers are gone: the stream was asked for others meanwhile.")

    def begin(self) -> Script:
        """Open the first connection. Raises the ServiceError that rejects it, or Unreachable."""
        return self._connected(time.monotonic())

    def ask(self, together: int) -> Script:
        """The script of `Stream.ask`. Raises ValueError if `together` is not positive."""
        if together < 1:
            raise ValueError(f"One message at least is sent at a time, not {together}.")
        if self._sent:
            # An earlier call was abandoned, and its answers would still arrive on this connection.
            yield from self._connected(time.monotonic())
        sent = self._sent = deque()
        self._failing_since = None
        under_way, is_over = 0, False
        while True:
            while under_way < UNDER_WAY and not is_over:
                frame, is_over = yield from self._next_frame(together, is_any_sent=bool(sent))
                if not frame:
                    break
                sent.append(frame)
                under_way += len(frame)
                try:
                    yield Send(_joined(frame))
                except ConnectionClosed as error:
                    yield from self._send_again(sent, error)
            if not sent:
                return
            try:
                received = yield Receive()
            except ConnectionClosed as error:
                yield from self._send_again(sent, error)
                continue
            for answer in _answers(received, len(sent[0]), under_way):
                if (refused := refusal(answer)) is not None and passes(refused):
                    # The service processed nothing after this message.
                    yield from self._send_again(sent, refused)
                    break
                self._failing_since = None
                under_way -= 1
                sent[0].popleft()
                if not sent[0]:
                    sent.popleft()  # before the answer is handed out: an abandoned iterator leaves no answered frame behind
                yield Tell(answer)

    def _next_frame(self, most: int, *, is_any_sent: bool) -> Generator[Step, Any, tuple[deque[str], bool]]:
        """The messages that are there to be sent in one frame, at most so many, and whether they are the last."""
        frame: deque[str] = deque()
        while len(frame) < most:
            message = yield Next(is_any_sent, bool(frame))
            if message is OVER or message is NOT_YET:
                return frame, message is OVER
            frame.append(_text(self._named(message)))
        return frame, False

    def _named(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with an id in each part that changes the session. Raises WrongType for anything but an object."""
        if not isinstance(message, Mapping):
            raise WrongType(
                f'A message is an object such as {{"x": ..., "y": ...}}, not {type(message).__name__}.', errors=[]
            )
        named = {part: self._named(message[part]) for part in ("update", "predict") if part in message}
        if not named:
            named = dict(message)
            if isinstance(named.get("id"), Prediction):
                named["id"] = id_of(named["id"])
            elif "id" not in named and named.get("wait", True):
                named["id"] = self._ids.new()
        return named

    def _send_again(self, sent: Iterable[deque[str]], error: ConnectionClosed | ServiceError) -> Script:
        """Resend all unanswered messages on a new connection: at once, then every AGAIN_AFTER_S until an answer arrives."""
        while True:
            if (refused := too_large(error)) is not None:
                raise refused from error
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
            elif now - self._failing_since > BACK_WITHIN_S:
                raise Unreachable(f"No answer comes from {shown_url(self._url)} ({error}).") from error
            else:
                yield Pause(AGAIN_AFTER_S)
            yield from self._connected(self._failing_since)
            try:
                for frame in sent:
                    yield Send(_joined(frame))
            except ConnectionClosed as again:
                error = again
                continue
            return

    def _connected(self, started: float) -> Script:
        while True:
            try:
                yield Connect()
            except InvalidStatus as error:
                answer = error.response
                refused = error_of(answer.status_code, bytes(answer.body or b""), answer.headers.get("Retry-After"))
                is_passing = passes(refused) or answer.status_code in (502, 503, 504)
                if not is_passing or time.monotonic() - started > BACK_WITHIN_S:
                    raise refused from error
            except (OSError, InvalidHandshake, TimeoutError) as error:
                if (mistake := tls_mistake(self._url, error)) is not None:
                    raise mistake from error
                if time.monotonic() - started > BACK_WITHIN_S:
                    raise Unreachable(f"No service answers at {shown_url(self._url)} ({error}).") from error
            else:
                return
            yield Pause(AGAIN_AFTER_S)


def too_large(error: Exception) -> PayloadTooLarge | None:
    """What a closed connection says: that the service found a message too large, or this side an answer. Else None."""
    if not isinstance(error, ConnectionClosed):
        return None
    closed = error.sent if error.rcvd is None or error.rcvd_then_sent is False else error.rcvd
    if closed is None or closed.code != TOO_LARGE:
        return None
    if closed is error.rcvd:
        return PayloadTooLarge("A message is larger than the service takes.")
    return PayloadTooLarge(f"An answer is larger than {MOST_ANSWER_BYTES} bytes; send fewer messages together.")


def _answers(frame: str | bytes, asked: int, most: int) -> list[dict[str, Any]]:
    """The answers in a frame: a list, or one to each of the `asked` messages. Raises ServiceError for any other form."""
    received: Any = None
    with suppress(*NO_JSON):
        received = json.loads(frame)
    answers: list[Any] = received if isinstance(received, list) else [received] * asked
    if len(answers) > most or not all(map(_is_answer, answers)):
        raise no_service(frame)
    return answers


def _is_answer(answer: Any) -> bool:
    if not isinstance(answer, dict):
        return False
    refused = answer.get("refused")
    return refused is None or (isinstance(refused, dict) and isinstance(refused.get("status"), int))


def refusal(answer: Mapping[str, Any]) -> ServiceError | None:
    """The error that rejected a message as a whole, if any."""
    refused = answer.get("refused")
    return None if refused is None or "update" in answer else error_of(refused["status"], json.dumps(refused).encode())


def _text(message: Mapping[str, Any]) -> str:
    """The message as JSON, with inputs as `Client` takes them. Raises WrongType for a value without JSON form."""
    try:
        return json.dumps(message, default=as_json, allow_nan=False)
    except (TypeError, ValueError, WrongType):
        pass  # rows of data frames, NumPy keys, missing and infinite numbers need the slower conversion
    try:
        return json.dumps(_plain(message))
    except NotFinite:
        return json.dumps(message, default=as_json)  # let the service reject this message alone


def _plain(message: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in message.items():
        read = row if name == "x" else _plain if name in ("update", "predict") else as_json
        plain[name] = read(value, f"{at}/{name}")
    return plain


def _joined(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f"[{','.join(messages)}]"
