"""What is said over a socket to one session, apart from how: `Stream` and `AsyncStream` do what a script here wants.

A script is a generator. It yields what it wants done and is given what came of it, or the error; each answer is a `Tell`.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from okl.addresses import is_this_machine, tls_mistake
from okl.errors import NotFinite, PayloadTooLarge, ServiceError, Unreachable, WrongType, passes
from okl.forks import Ids
from okl.problems import error_of
from okl.talks import path_of
from okl.values import as_json, row

UNDER_WAY: Final = 256
"""Messages that are sent before the first of them is answered: as many as the service takes, several of its turns."""

BACK_WITHIN_S: Final = 30.0
AGAIN_AFTER_S: Final = 0.2
MOST_ANSWER_BYTES: Final = 16 << 20
TOO_LARGE: Final = 1009
"""How a WebSocket is closed for a message, or an answer, that is too large."""

OVER: Final = object()
"""No message will come."""

NOT_YET: Final = object()
"""No message has come before the next answer."""

FAULTS: Final = (OSError, InvalidHandshake, TimeoutError, ConnectionClosed)
"""What a script is told of."""


@dataclass(frozen=True, slots=True)
class Connect:
    """A new connection in place of the one before."""


@dataclass(frozen=True, slots=True)
class Send:
    """A frame."""

    text: str


@dataclass(frozen=True, slots=True)
class Receive:
    """The next frame of answers."""


@dataclass(frozen=True, slots=True)
class Pause:
    """For so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Next:
    """The next message to be sent; OVER at the end. NOT_YET may be said if it is not there now (`frame`: others are ready to
    be sent), or if an answer is (`sent`: answers are due)."""

    sent: bool
    frame: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """One answer, to the caller."""

    answer: dict[str, Any]


Script = Generator[Connect | Send | Receive | Pause | Next | Tell, Any, None]


@final
class Conversation:
    """With one session of the service at `url`: what was sent and not answered yet, and for how long nothing was."""

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
        """How a socket is made, beside the address."""
        made: dict[str, Any] = {"additional_headers": headers, "compression": None, "max_size": MOST_ANSWER_BYTES}
        # No proxy of the environment leads to this machine.
        return made | {"proxy": None} if self._is_near else made

    def open(self) -> None:
        """Scripts may begin."""
        self._is_open, self._process = True, os.getpid()

    @property
    def is_inherited(self) -> bool:
        """Is this a process that was forked from the one that opened it, whose connection it is?"""
        return self._process != os.getpid()

    def close(self) -> None:
        """No script goes on."""
        self._is_open = False

    def enter(self, script: Script) -> None:
        """From here on it is this script's. Raises RuntimeError if it is not open."""
        if self._is_open:
            self._script = script
        self.check(script)

    def check(self, script: Script) -> None:
        """Whatever is sent and received is this script's. Raises RuntimeError if it is not, or is no more."""
        if self.is_inherited:
            raise RuntimeError("The stream is that of another process: a forked one opens its own.")
        if not self._is_open:
            raise RuntimeError("The stream is not open: ask within its `with` block.")
        if self._script is not script:
            raise RuntimeError("These answers are gone: the stream was asked for others meanwhile.")

    def begin(self) -> Script:
        """The first connection. Raises the ServiceError that refuses it, or Unreachable."""
        return self._connected(time.monotonic())

    def ask(self, together: int) -> Script:
        """What `Stream.ask` says. Raises ValueError where nothing is to be sent together."""
        if together < 1:
            raise ValueError(f"One message at least is sent at a time, not {together}.")
        if self._sent:
            # A call before was left: the answers that are still to come on this connection are its own.
            yield from self._connected(time.monotonic())
        sent = self._sent = deque()
        self._failing_since = None
        under_way, is_over = 0, False
        while True:
            while under_way < UNDER_WAY and not is_over:
                frame: deque[str] = deque()
                while len(frame) < together:
                    message = yield Next(bool(sent), bool(frame))
                    is_over = message is OVER
                    if is_over or message is NOT_YET:
                        break
                    frame.append(_text(self._named(message)))
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
                found = json.loads((yield Receive()))
            except ConnectionClosed as error:
                yield from self._send_again(sent, error)
                continue
            answers = found if isinstance(found, list) else [found] * len(sent[0])
            for answer in answers:
                if (refused := refusal(answer)) is not None and passes(refused):
                    # Nothing after it was done.
                    yield from self._send_again(sent, refused)
                    break
                self._failing_since = None
                under_way -= 1
                sent[0].popleft()
                if not sent[0]:
                    sent.popleft()  # before it is told: who asks for no more leaves nothing behind
                yield Tell(answer)

    def _named(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with an id in each of its parts that changes anything. Raises WrongType for what is none."""
        if not isinstance(message, Mapping):
            raise WrongType(
                f'A message is an object such as {{"x": ..., "y": ...}}, not {type(message).__name__}.', errors=[]
            )
        found = dict(message)
        parts = [found[part] for part in ("update", "predict") if part in found]
        if parts:
            return {part: self._named(found[part]) for part in ("update", "predict") if part in found}
        if "id" not in found and found.get("wait", True):
            found["id"] = self._ids.new()
        return found

    def _send_again(self, sent: Iterable[deque[str]], error: ConnectionClosed | ServiceError) -> Script:
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
                refused = error_of(error.response.status_code, bytes(error.response.body or b""))
                is_passing = passes(refused) or error.response.status_code in (502, 503, 504)
                if not is_passing or time.monotonic() - started > BACK_WITHIN_S:
                    raise refused from error
            except (OSError, InvalidHandshake, TimeoutError) as error:
                if (mistake := tls_mistake(self._url, error)) is not None:
                    raise mistake from error
                if time.monotonic() - started > BACK_WITHIN_S:
                    raise Unreachable(f"No service answers at {self._url} ({error}).") from error
            else:
                return
            yield Pause(AGAIN_AFTER_S)


def refusal(answer: Mapping[str, Any]) -> ServiceError | None:
    """What refused a message as a whole."""
    refused = answer.get("refused")
    return None if refused is None or "update" in answer else error_of(refused["status"], json.dumps(refused).encode())


def _text(message: Mapping[str, Any]) -> str:
    """The message as JSON, with inputs as `Client` takes them. Raises WrongType for what JSON has nothing for."""
    try:
        return json.dumps(message, default=as_json, allow_nan=False)
    except (TypeError, ValueError, WrongType):
        pass  # a row of a frame, keys of numpy, a number that is missing or infinite: these take longer
    try:
        return json.dumps(_plain(message))
    except NotFinite:
        return json.dumps(message, default=as_json)  # the service refuses it in its place, and the others go on


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = ("update", "predict")
    return {
        name: row(value) if name == "x" else _plain(value) if name in parts else as_json(value)
        for name, value in message.items()
    }


def _joined(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f"[{','.join(messages)}]"
