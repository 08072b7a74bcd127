"""Rounds over one socket: many messages in flight, each learned exactly once even if the connection breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack, aclosing
from typing import Any, final

from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from okl.conversation import (
    FAULTS,
    NOT_YET,
    OVER,
    Connect,
    Conversation,
    Next,
    Pause,
    Receive,
    Script,
    Send,
    Tell,
    refusal,
)

Message = Mapping[str, Any]


@final
class Stream:
    """A socket to one session, created by `Client.stream`. It must not be used by several threads at once.

    A message is `{"x": ...}`, `{"id": ..., "y": ...}`, `{"x": ..., "y": ...}` or `{"update": ..., "predict": ...}`, with
    inputs, truths and ids as `Client` takes them. A message without an id gets one. If the connection breaks or a refusal is
    retryable, the stream reconnects and resends all unanswered messages in order. Raises Unreachable after 30 s without a
    connection or an answer, and PayloadTooLarge for a message over the service's limit, or answers too large for one frame.
    """

    def __init__(self, url: str, session: str, headers: Mapping[str, str] | None = None) -> None:
        """Raises the ServiceError that rejects the connection."""
        self._conversation = Conversation(url, session)
        self._headers = dict(headers or {})
        self._stack = ExitStack()
        self._socket: ClientConnection | None = None
        self._conversation.open()
        for _ in self._done(self._conversation.begin(), iter(())):
            pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Unanswered messages may or may not have been processed."""
        self._conversation.close()
        if not self._conversation.is_inherited:
            self._stack.close()

    def ask(self, messages: Iterable[Message], *, together: int = 1) -> Iterator[dict[str, Any]]:
        """Yield the answers as they arrive, in the order of the messages; `together` messages are sent in one frame.

        An answer is that of `predict`, `update` or `step`, or {"id": ..., "refused": a problem}. Raises RuntimeError if
        iterated after another call of `ask` has begun or the stream was closed.
        """
        return self._done(self._conversation.ask(together), iter(messages))

    def one(self, message: Message) -> dict[str, Any]:
        """Send one message and return its answer. Raises the ServiceError that rejected it."""
        answer = next(self.ask([message]))
        if (refused := refusal(answer)) is not None:
            raise refused
        return answer

    def _done(self, script: Script, messages: Iterator[Message]) -> Iterator[dict[str, Any]]:
        """Execute the script's steps, and yield the answers."""
        self._conversation.enter(script)
        wanted = next(script, None)
        while wanted is not None:
            if isinstance(wanted, Tell):
                yield wanted.answer
            try:
                found = self._do(wanted, messages)
            except FAULTS as error:
                found = error
            self._conversation.check(script)
            wanted = _after(script, found)

    def _do(self, wanted: Any, messages: Iterator[Message]) -> Any:
        match wanted:
            case Connect():
                self._stack.close()
                made = connect(self._conversation.address, **self._conversation.connection(self._headers))
                self._socket = self._stack.enter_context(made)
            case Send(text):
                assert self._socket is not None
                self._socket.send(text)
            case Receive():
                assert self._socket is not None
                return self._socket.recv()
            case Pause(seconds):
                time.sleep(seconds)
            case Next():
                return next(messages, OVER)
        return None


@final
class AsyncStream:
    """`Stream` for asyncio, created by `AsyncClient.stream`. It connects on entering the `async with` block.

    Only one task may ask at a time: a call of `ask` or `one` ends an earlier `ask`, while calls of `one` queue. Concurrent
    tasks should share an AsyncSession, or use a stream each. Messages may come from an async iterator; answers are yielded
    while the next message is awaited.
    """

    def __init__(self, url: str, session: str, headers: Mapping[str, str] | None = None) -> None:
        self._conversation = Conversation(url, session)
        self._headers = dict(headers or {})
        self._socket: AsyncConnection | None = None
        self._ones = asyncio.Lock()

    async def __aenter__(self) -> AsyncStream:
        """Raises the ServiceError that rejects the connection."""
        self._conversation.open()
        async for _ in self._done(self._conversation.begin(), _Messages(())):
            pass
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Unanswered messages may or may not have been processed."""
        self._conversation.close()
        if not self._conversation.is_inherited:
            await self._drop()

    async def _drop(self) -> None:
        socket, self._socket = self._socket, None
        # Closing a connection that has ended aborts its transport, which may be gone.
        if socket is not None and socket.state is not State.CLOSED:
            await socket.close()

    async def ask(
        self, messages: Iterable[Message] | AsyncIterable[Message], *, together: int = 1
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the answers as they arrive, in the order of the messages; up to `together` messages are sent in one frame.

        An answer is that of `predict`, `update` or `step`, or {"id": ..., "refused": a problem}. Raises RuntimeError if
        iterated after another call of `ask` has begun or the stream was closed.
        """
        asked = _Messages(messages)
        try:
            async for answer in self._done(self._conversation.ask(together), asked):
                yield answer
        finally:
            await asked.close()

    async def one(self, message: Message) -> dict[str, Any]:
        """Send one message and return its answer. Raises the ServiceError that rejected it."""
        async with self._ones, aclosing(self.ask([message])) as answers:
            answer = await anext(answers)
        if (refused := refusal(answer)) is not None:
            raise refused
        return answer

    async def _done(self, script: Script, messages: _Messages) -> AsyncIterator[dict[str, Any]]:
        """Execute the script's steps, and yield the answers."""
        self._conversation.enter(script)
        wanted = next(script, None)
        while wanted is not None:
            if isinstance(wanted, Tell):
                yield wanted.answer
            try:
                found = await self._do(script, wanted, messages)
            except FAULTS as error:
                found = error
            self._conversation.check(script)
            wanted = _after(script, found)

    async def _do(self, script: Script, wanted: Any, messages: _Messages) -> Any:
        match wanted:
            case Connect():
                await self._drop()
                await messages.forget_answer()
                made = await connect_async(self._conversation.address, **self._conversation.connection(self._headers))
                try:
                    self._conversation.check(script)
                except RuntimeError:
                    await made.close()
                    raise
                self._socket = made
            case Send(text):
                assert self._socket is not None
                await self._socket.send(text)
            case Receive():
                assert self._socket is not None
                return await messages.answer(self._socket)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Next(sent, frame):
                return await messages.next(self._socket if sent else None, is_needed=not frame)
        return None


def _after(script: Script, found: Any) -> Any:
    """The script's next step; None at its end."""
    try:
        return script.throw(found) if isinstance(found, BaseException) else script.send(found)
    except StopIteration:
        return None


@final
class _Messages:
    """The messages of one call of `ask`, awaited together with the next answer."""

    def __init__(self, messages: Iterable[Message] | AsyncIterable[Message]) -> None:
        is_async = isinstance(messages, AsyncIterable)
        self._given = None if is_async else iter(messages)
        self._coming = aiter(messages) if is_async else None
        self._message: asyncio.Future[Any] | None = None
        self._answer: asyncio.Future[Any] | None = None

    async def next(self, socket: AsyncConnection | None, *, is_needed: bool) -> Any:
        """The next message. NOT_YET as soon as the socket has an answer, or at once if the message is not needed."""
        if self._given is not None:
            return next(self._given, OVER)
        if self._message is None:
            assert self._coming is not None
            self._message = asyncio.ensure_future(anext(self._coming, OVER))
        if is_needed:
            waited = {self._message}
            if socket is not None:
                self._answer = self._answer or asyncio.ensure_future(socket.recv())
                waited.add(self._answer)
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0)
        if not self._message.done():
            return NOT_YET
        message, self._message = self._message, None
        return message.result()

    async def answer(self, socket: AsyncConnection) -> Any:
        if self._answer is None:
            return await socket.recv()
        try:
            return await self._answer
        finally:
            self._answer = None

    async def forget_answer(self) -> None:
        """Stop waiting for an answer: the connection is gone."""
        await cancelled(self._answer)
        self._answer = None

    async def close(self) -> None:
        await self.forget_answer()
        await cancelled(self._message)


async def cancelled(task: asyncio.Future[Any] | None) -> None:
    """Cancel the task, wait for its end, and ignore its outcome."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
        _ = task.cancelled() or task.exception()
