"""One socket per session with messages, which are pipelined in order and sent again if the socket breaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, final

from pydantic_core import from_json, to_json
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from okl.conversation import MOST_ANSWER_BYTES, too_large
from okl.errors import (
    InvalidInput,
    ServiceError,
    SessionFailed,
    SessionMoved,
    SessionNotFound,
    StateCorrupt,
)
from okl.masking import shown_url
from okl.problems import error_of

from .entries import Consumed, refusal

UNDER_WAY: Final = 128
"""The most messages of a session in flight; the service takes 256."""

TOGETHER: Final = 16
FRAME_BYTES: Final = 64 << 10
"""The most messages of one frame, and their most bytes if there are several."""

IDLE_S: Final = 5.0
LOOK_S: Final = 0.25
TURN_S: Final = 1.0
"""A socket is closed after this time if other sessions wait for a turn."""

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0

PASSING: Final = (401, 429, 502, 503, 504)
"""Statuses of retryable refusals, independent of the message: an expired key, an exhausted rate, an unavailable service or
store."""

FINAL: Final = (SessionNotFound, InvalidInput, SessionFailed, StateCorrupt)
"""Errors of the session itself. Every other refusal of a socket is retryable."""

log = logging.getLogger("okl.consume")

Answered = Callable[[Consumed, bytes, bool], None]
"""Called with each message, its answer, and whether that is a refusal."""


class Lost(Exception):
    """The socket is unusable. Unanswered messages are sent again on another one, the first `alone` of them singly."""

    def __init__(self, detail: str, alone: int = 0) -> None:
        super().__init__(detail)
        self.alone = alone


def pause_after(failures: int) -> float:
    return min(FIRST_PAUSE_S * 2 ** min(failures, 10), LONGEST_PAUSE_S)


@final
class Turns:
    """A limit on open sockets; `in_line` counts the sessions that wait for one."""

    def __init__(self, most: int) -> None:
        self.in_line = 0
        self._free = asyncio.Semaphore(most)

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncGenerator[None]:
        self.in_line += 1
        try:
            await self._free.acquire()
        finally:
            self.in_line -= 1
        try:
            yield
        finally:
            self._free.release()


@final
class Channels:
    """The channels of all sessions with messages, with at most `most` open sockets."""

    def __init__(self, url: str, answered: Answered, *, most: int) -> None:
        self._url = "ws" + url.rstrip("/").removeprefix("http")
        self._answered = answered
        self._turns = Turns(most)
        self._channels: dict[str, Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, message: Consumed) -> None:
        channel = self._channels.get(message.session)
        if channel is None:
            address = f"{self._url}/sessions/{message.session}/stream"
            channel = self._channels[message.session] = Channel(address, self._turns, self._answered)
            task = asyncio.create_task(self._run(message.session, channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        channel.put(message)

    def written(self, message: Consumed) -> None:
        """Note that the message's answer is in the output."""
        channel = self._channels.get(message.session)
        if channel is not None:
            channel.written(message)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, session: str, channel: Channel) -> None:
        try:
            await channel.run()
        finally:
            del self._channels[session]


@final
class Channel:
    """The messages to one session. It ends when there are none for a while."""

    def __init__(self, address: str, turns: Turns, answered: Answered) -> None:
        self._address = address
        self._shown = shown_url(address)
        self._turns = turns
        self._answered = answered
        self._waiting: deque[Consumed] = deque()
        self._sent: deque[list[Consumed]] = deque()
        self._count = 0
        # A prediction that is sent again after its truth was learned is refused. So the truth is held back until the
        # prediction's answer is in the output; no crash causes a retry of the prediction then.
        self._asking: dict[str, Consumed] = {}
        self._alone = 0
        self._failures = 0
        self._wake = asyncio.Event()

    def put(self, message: Consumed) -> None:
        self._waiting.append(message)
        self._wake.set()

    def written(self, message: Consumed) -> None:
        for id in message.asks:
            if self._asking.get(id) is message:
                del self._asking[id]
        self._wake.set()

    async def run(self) -> None:
        while self._waiting or self._asking:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                async with self._turns.take(), self._socket() as socket:
                    await self._talk(socket)
            except InvalidStatus as error:
                answer = error.response
                found = error_of(answer.status_code, bytes(answer.body or b""), answer.headers.get("Retry-After"))
                if isinstance(found, FINAL):
                    while self._waiting:
                        self._refuse(self._waiting.popleft(), found)
                else:
                    await self._pause(found.detail)
            except (Lost, ConnectionClosed, InvalidHandshake, OSError, TimeoutError) as error:
                self._again(error)
                await self._pause(str(error) or type(error).__name__)
            except Exception as error:
                # The peer may not be okl. If this task ended, its messages would never be answered.
                log.exception("the service answers what cannot be read", extra={"address": self._shown})
                self._again(error)
                await self._pause(type(error).__name__)

    def _socket(self) -> connect:
        key = os.environ.get("OKL_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else None
        return connect(
            self._address,
            additional_headers=headers,
            compression=None,
            max_size=MOST_ANSWER_BYTES,
            close_timeout=1.0,
        )

    async def _pause(self, detail: str) -> None:
        self._failures += 1
        pause_s = pause_after(self._failures - 1)
        if self._failures > 1:
            log.warning("the service does not answer", extra={"address": self._shown, "detail": detail})
        await asyncio.sleep(pause_s)

    # -- one socket -----------------------------------------------------------------------------------------------------

    async def _talk(self, socket: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        began = busy = loop.time()
        reader = asyncio.create_task(self._read(socket))
        reader.add_done_callback(lambda _: self._wake.set())
        try:
            while not reader.done():
                now = loop.time()
                is_over = self._turns.in_line > 0 and now > began + TURN_S
                if not is_over and (frame := self._next()):
                    busy = now
                    await socket.send(_joined(frame))
                    continue
                if not self._sent:
                    is_idle = not self._waiting and (self._turns.in_line > 0 or now > busy + IDLE_S)
                    if is_over or is_idle:
                        return
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._wake.wait()
            await reader
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Lost, ConnectionClosed):
                await reader

    def _next(self) -> list[Consumed]:
        """The messages of the next frame, which are now in flight; none if they have to wait."""
        frame: list[Consumed] = []
        size, room = 0, min(TOGETHER, UNDER_WAY - self._count)
        if self._alone:
            room = 1 - self._count
        while self._waiting and len(frame) < room:
            message = self._waiting[0]
            is_large = message.is_nested or size + message.size > FRAME_BYTES
            if message.settles in self._asking or (frame and (is_large or frame[0].is_nested)):
                break
            frame.append(self._waiting.popleft())
            size += message.size
            for id in message.asks:
                self._asking[id] = message
        if frame:
            self._sent.append(frame)
            self._count += len(frame)
        return frame

    async def _read(self, socket: ClientConnection) -> None:
        """Read answers until the socket fails. Raises Lost, ConnectionClosed."""
        async for data in socket:
            if not self._sent:
                raise Lost("The service answers what it was not asked.")
            frame = self._sent[0]
            for answer in _split(data, len(frame)):
                found = from_json(answer)
                refused = found.get("refused")
                if refused is not None and _is_retryable(refused):
                    raise Lost(refused["detail"])
                self._count -= 1
                self._alone = max(0, self._alone - 1)
                self._answered(frame.pop(0), answer, refused is not None)
            if not frame:
                self._sent.popleft()
            self._failures = 0
            self._wake.set()
        raise Lost("The service closed the socket.")

    def _again(self, error: Exception) -> None:
        """Queue all unanswered messages again, in order."""
        unanswered = [message for frame in self._sent for message in frame]
        self._sent.clear()
        self._count = 0
        for message in unanswered:
            self.written(message)
        self._waiting.extendleft(reversed(unanswered))
        if isinstance(error, Lost):
            self._alone = max(self._alone, error.alone)
        elif (refused := too_large(error)) is not None:
            # Send each alone to find the message that is too large, or has too large an answer.
            if not self._alone:
                self._alone = len(unanswered)
            elif unanswered:
                self._refuse(self._waiting.popleft(), refused)
                self._alone -= 1

    def _refuse(self, message: Consumed, error: ServiceError) -> None:
        self._answered(message, refusal(error), True)


def _is_retryable(refused: dict[str, Any]) -> bool:
    """Whether the message waits. A session that has moved goes on elsewhere; expired predictions have the same status."""
    status = refused["status"]
    return status in PASSING or isinstance(error_of(status, to_json(refused)), SessionMoved)


def _joined(frame: list[Consumed]) -> bytes:
    return frame[0].data if len(frame) == 1 else b"[" + b",".join(message.data for message in frame) + b"]"


def _split(data: str | bytes, count: int) -> list[bytes]:
    """The answers to a frame of `count` messages, or to the first ones, if they are large. Raises Lost."""
    text = data.encode() if isinstance(data, str) else data
    if count == 1 and not text.startswith(b"["):
        return [text]
    answers: Any = json.loads(text)
    if isinstance(answers, dict) and "refused" in answers:
        # The whole frame is refused: send each message alone to find the cause.
        is_passing = answers["refused"]["status"] in PASSING
        raise Lost(answers["refused"]["detail"], alone=0 if is_passing else count)
    if not isinstance(answers, list) or not 0 < len(answers) <= count:
        raise Lost("The service answers another number of messages than it was sent.")
    return [to_json(answer) for answer in answers]
