"""A conversation with a session: messages as they arrive, answered in the same order, as soon as each is durable.

Messages in flight are bounded in number, and in bytes together with their answers. Nothing more is read until there is room,
so a client that sends faster than its rounds are learned, or that does not read its answers, gets backpressure on its own
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, final

from pydantic_core import to_json
from starlette.types import Scope

from okl.errors import Overloaded, ServiceError, passes, stopping

from ..keys import caller
from ..replica.tickets import Sender
from ..rounds import Rounds
from ..session.requests import Answers
from .messages import Message, Read, asked_of
from .problems import document_for, unexpected_document
from .round_schemas import StepBody

MOST_MESSAGES: Final = 256
"""Messages in flight in one conversation, at which reading pauses; the last frame may exceed it."""

MOST_BYTES: Final = 4 << 20
"""Bytes of these messages, and of the largest answers that they may get."""

MOST_TOGETHER: Final = 1 << 20
"""Bytes of the answers in one frame, unless it has only one. Of a frame that nobody reads the worker holds several copies."""

Future = asyncio.Future[Answers]
Encode = Callable[[Answers], Any]
Join = Callable[[Sequence[bytes]], bytes]


class Frame(NamedTuple):
    """Messages that arrived together, in `size` bytes; `join` combines their answers, or as many as are sent together."""

    messages: Sequence[Read]
    size: int
    join: Join


class _Begun(NamedTuple):
    """A message in flight, or refused at once; `id` is the id that it names."""

    future: Future | ServiceError
    encode: Encode
    id: str | None

    async def done(self) -> None:
        """Wait until it is answered or refused."""
        if not isinstance(self.future, ServiceError):
            await asyncio.wait([self.future])


class _Group(NamedTuple):
    """Begun messages of a frame, which are answered together; `size` counts the bytes of the messages and the answers."""

    begun: Sequence[_Begun]
    size: int
    join: Join


@final
class Conversations:
    """The conversations of one worker, at most `most` at a time."""

    def __init__(self, rounds: Rounds, *, most: int) -> None:
        self._rounds = rounds
        self._most = most
        self._open: set[asyncio.Task[None]] = set()
        self._count = 0
        self._is_closing = False

    @property
    def count(self) -> int:
        """The number of open conversations."""
        return self._count

    def check_room(self) -> None:
        """Raises Overloaded."""
        if self._is_closing:
            raise stopping()
        if self._count >= self._most:
            raise Overloaded(f"This worker already has {self._most} streams; try again.")

    @contextmanager
    def room(self, *, has_begun: bool = False) -> Iterator[None]:
        """Count a conversation while it is open. Raises Overloaded if there is no room, unless it `has_begun`."""
        if not has_begun:
            self.check_room()
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    def close(self) -> None:
        """Stop reading. Messages that were read are still answered, then the conversations end."""
        self._is_closing = True
        for task in self._open:
            task.cancel()

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    async def answers(self, session: str, frames: AsyncGenerator[Frame], scope: Scope) -> AsyncGenerator[bytes]:
        """Yield the answers to each frame, in order: together, unless they may be too large. An error in reading the frames
        is the last answer.

        A retryable refusal is the last answer too: messages after it are not applied, and the client resumes with the one
        that was refused.
        """
        if self._is_closing:
            return  # between the look for room and the first message
        talk = _Conversation(self._rounds, session, scope)
        reader = asyncio.create_task(talk.read(frames))
        self._open.add(reader)
        try:
            while not talk.is_over and (group := await talk.groups.get()) is not None:
                yield group.join([to_json(await talk.answer(one), inf_nan_mode="null") for one in group.begun])
                talk.free(group)
        finally:
            self._open.discard(reader)
            reader.cancel()
            await asyncio.wait([reader])
            talk.leave()


@final
class _Conversation:
    """One conversation: `read` begins messages as they arrive, and queues them in `groups`, in order, to be answered."""

    def __init__(self, rounds: Rounds, session: str, scope: Scope) -> None:
        self.groups: asyncio.Queue[_Group | None] = asyncio.Queue()
        self._rounds = rounds
        self._session = session
        self._scope = scope
        self._messages = self._bytes = 0
        self._answer_bytes = 0
        """The most bytes of an answer; 0 if unknown."""
        self._has_room = asyncio.Event()
        self._sender = Sender()
        self._held: ServiceError | None = None
        """The retryable refusal of a message, because of which no later message is begun."""
        self.is_over = False

    async def read(self, frames: AsyncGenerator[Frame]) -> None:
        """Begin messages as they arrive, while there is room."""
        try:
            async for frame in frames:
                rest, size = frame.messages, frame.size
                while True:
                    begun = await self._begin_some(rest)
                    rest, size = rest[len(begun) :], size + len(begun) * self._answer_bytes
                    self._messages += len(begun)
                    self._bytes += size
                    self.groups.put_nowait(_Group(begun, size, frame.join))
                    if self._held is not None:
                        return
                    while self._messages >= MOST_MESSAGES or self._bytes >= MOST_BYTES:
                        self._has_room.clear()
                        await self._has_room.wait()
                    if not rest:
                        break
                    size = 0
        except ServiceError as error:
            self.groups.put_nowait(_Group([_refused(error, None)], 0, b"\n".join))
        finally:
            self.groups.put_nowait(None)

    def free(self, group: _Group) -> None:
        self._messages -= len(group.begun)
        self._bytes -= group.size
        self._has_room.set()

    async def _begin_some(self, messages: Sequence[Read]) -> list[_Begun]:
        """Begin the first of these messages: as many as may be answered together."""
        begun: list[_Begun] = []
        until = asyncio.get_running_loop().time() + caller.PACED_S
        try:
            while not (size := self._rounds.answer_bytes(self._session)) and len(begun) < len(messages):
                # How large an answer is shows once a message has loaded the session, or created it.
                begun.append(await self._begin(messages[len(begun)], until))
                try:
                    await begun[-1].done()
                except asyncio.CancelledError:
                    # What was begun is still to be answered.
                    self._held = stopping()
            self._answer_bytes = size
            for message in messages[len(begun) : max(1, MOST_TOGETHER // (size or 1))]:
                begun.append(await self._begin(message, until))
        except BaseException:
            _look_away(begun)
            raise
        return begun

    async def _begin(self, message: Read, until: float) -> _Begun:
        id = None if isinstance(message, ServiceError) else id_of(message)
        if self._held is not None:
            return _refused(self._held, id)
        try:
            await caller.paced(until)
        except ServiceError as error:
            self._held = error if passes(error) else None
            return _refused(error, id)
        if isinstance(message, ServiceError):
            return _refused(message, id)
        parts, encode = asked_of(message, self._rounds, self._scope)
        while True:
            try:
                future = self._rounds.begin(self._session, parts, self._sender)
            except Overloaded as error:
                # Others have filled the session's queue. If one of our messages is in it, wait until that is done.
                latest = self._sender.latest
                if latest is None or latest.done():
                    self._held = error
                    return _refused(error, id)
                await asyncio.wait([latest])
            else:
                return _Begun(future, encode, id)

    async def answer(self, one: _Begun) -> Any:
        try:
            if isinstance(one.future, ServiceError):
                raise one.future
            return one.encode(await one.future)
        except ServiceError as error:
            self.is_over |= passes(error)
            document = document_for(error, self._scope)
        except Exception as error:
            document = unexpected_document(error, self._scope)
        return {"refused": document} if one.id is None else {"id": one.id, "refused": document}

    def leave(self) -> None:
        """Discard the remaining answers."""
        while not self.groups.empty():
            group = self.groups.get_nowait()
            if group is not None:
                _look_away(group.begun)


def id_of(message: Message) -> str | None:
    """The id by which the client knows the message: the truth's for a step, else the message's own."""
    return message.update.id if isinstance(message, StepBody) else message.id


def _refused(error: ServiceError, id: str | None) -> _Begun:
    return _Begun(error, lambda results: results, id)


def _look_away(begun: Sequence[_Begun]) -> None:
    """Retrieve the errors of discarded messages; asyncio would log them as never retrieved."""

    def look(future: Future) -> None:
        if not future.cancelled():
            future.exception()

    for one in begun:
        if isinstance(one.future, asyncio.Future):
            one.future.add_done_callback(look)
