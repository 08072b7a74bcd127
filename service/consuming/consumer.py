"""Read entries of Redis streams, send them to the service, and write each answer once, even after crashes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from redis.exceptions import RedisError

from okl.errors import ConfigurationError, ServiceError

from .channels import Channels, pause_after
from .entries import DELETED, Consumed, read_entry, refusal
from .group import Delivered, Group, Written

MOST_BYTES: Final = 32 << 20
"""The most bytes of messages in flight and of answers to be written."""

READ_ENTRIES: Final = 256
READ_BYTES: Final = 4 << 20
"""The most entries of one reply, and their intended total size, estimated by the largest entry of the reply before."""

WRITE_ENTRIES: Final = 256
WRITE_BYTES: Final = 1 << 20
TELL_S: Final = 10.0
FINISH_S: Final = 30.0
LAST_READ_S: Final = 2.0
"""The longest wait for the reply to the last read, more than BLOCK_MS: a frozen Redis would hold up the end."""

AWAY: Final = (RedisError, OSError)

log = logging.getLogger("okl.consume")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most entries in flight, the most open sockets, and the time after which another consumer's entry is claimed; 0 for
    never."""

    under_way: int = 1_024
    sockets: int = 64
    claim_after_s: float = 300.0


@final
class Consumer:
    """Reads until it is stopped; `run` can be called once."""

    def __init__(self, group: Group, url: str, streams: Sequence[str], *, create: bool, bounds: Bounds) -> None:
        self.consumed = self.answered = self.refused = 0
        self._group = group
        self._streams = streams
        self._create = create
        self._bounds = bounds
        self._channels = Channels(url, self._answer, most=bounds.sockets)
        self._under_way: dict[tuple[str, str], Consumed] = {}
        self._redelivered: set[tuple[str, str]] = set()
        self._bytes = 0
        self._is_full = False
        self._answers: deque[tuple[Consumed, Written]] = deque()
        self._has_answers = asyncio.Event()
        self._has_room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._giving_up = asyncio.Event()
        self._opening = asyncio.Lock()
        self._is_open = False
        self._count = 16
        # The entry after which to read entries that were delivered to this consumer and not answered; None if all are read.
        self._given: dict[str, str | None] = dict.fromkeys(streams, "0")

    def stop(self) -> None:
        """Stop reading; entries in flight are answered first, within FINISH_S. Called again, they stay pending."""
        if self._stopping.is_set():
            self._giving_up.set()
        self._stopping.set()
        self._has_room.set()

    async def run(self) -> None:
        """Consume until `stop`. Raises ConfigurationError if Redis refuses a command."""
        writing = asyncio.create_task(self._write())
        telling = asyncio.create_task(self._tell())
        reading = asyncio.create_task(self._read())
        stopping = asyncio.create_task(self._stopping.wait())
        tasks: list[asyncio.Task[Any]] = [reading, writing, telling, stopping]
        try:
            await asyncio.wait([reading, writing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                await writing
            ending = asyncio.create_task(self._end(reading, writing))
            giving_up = asyncio.create_task(self._giving_up.wait())
            tasks += [ending, giving_up]
            await asyncio.wait([ending, giving_up], return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                await ending
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._channels.close()
            facts = {"consumed": self.consumed, "answered": self.answered, "refused": self.refused}
            log.info("stopped", extra={**facts, "left": len(self._under_way)})

    async def _end(self, reading: asyncio.Task[None], writing: asyncio.Task[None]) -> None:
        await asyncio.wait([reading], timeout=LAST_READ_S)
        if reading.done():
            await reading
        # Entries whose delivery is not awaited stay pending.
        reading.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                await self._finished(writing)

    async def _finished(self, writing: asyncio.Task[None]) -> None:
        while self._under_way:
            if writing.done():
                await writing
            self._has_room.clear()
            room = asyncio.create_task(self._has_room.wait())
            await asyncio.wait([room, writing], return_when=asyncio.FIRST_COMPLETED)
            room.cancel()

    # -- read -----------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        failures, claim_at = 0, 0.0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            is_open = False
            try:
                await self._open()
                is_open = True
                if not await self._room():
                    continue
                if self._bounds.claim_after_s and loop.time() >= claim_at and not any(self._given.values()):
                    await self._claim()
                    claim_at = loop.time() + self._bounds.claim_after_s / 4
                await self._read_some()
                failures = 0
            except (*AWAY, ConfigurationError) as error:
                self._raise_unless_passing(error, is_open=is_open)
                log.warning("redis does not answer", extra={"detail": str(error) or type(error).__name__})
                # Entries that were lost with the connection belong to this consumer: nobody else reads them.
                self._given = dict.fromkeys(self._streams, "0")
                self._is_open = False
                failures += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_after(failures)):
                        await self._stopping.wait()

    async def _open(self) -> None:
        """Open the group, again after each failure: Redis may have come back without it."""
        async with self._opening:
            if not self._is_open:
                for stream in self._streams:
                    await self._group.open(stream, create=self._create)
                self._is_open = True

    def _raise_unless_passing(self, error: Exception, *, is_open: bool) -> None:
        """Raise an error that will not pass. A missing group is created, unless it was `_open` that failed."""
        # `self._is_open` does not tell: the other task may have missed the group first.
        is_missing = "NOGROUP" in str(error) and self._create and is_open
        if isinstance(error, ConfigurationError) and not is_missing:
            raise error

    async def _room(self) -> bool:
        """Whether there is room for more; if there is none, wait until something has changed."""
        # When full, wait until a quarter is free: reading entries one by one would cost more than answering them.
        share = 0.75 if self._is_full else 1.0
        self._is_full = len(self._under_way) >= share * self._bounds.under_way or self._bytes >= share * MOST_BYTES
        if not self._is_full:
            return True
        self._has_room.clear()
        if not self._stopping.is_set():
            await self._has_room.wait()
        return False

    async def _read_some(self) -> None:
        room = self._most()
        for stream, after in self._given.items():
            if after is not None:
                found = await self._group.given(stream, after, room)
                self._take(found)
                if self._given[stream] == after:
                    self._given[stream] = found[-1].entry if found else None
                return
        # COUNT applies to each stream.
        new = await self._group.read(self._streams, max(1, room // len(self._streams)))
        # A fail-over may have lost a delivery. The answer under way may be refused as written before, and the entry is
        # pending since then.
        self._redelivered |= {(one.stream, one.entry) for one in new} & self._under_way.keys()
        self._take(new)

    def _most(self) -> int:
        return max(1, min(self._count, self._bounds.under_way - len(self._under_way)))

    async def _claim(self) -> None:
        for stream in self._streams:
            cursor = "0-0"
            while not self._stopping.is_set():
                if not await self._room():
                    continue
                idle_ms = int(self._bounds.claim_after_s * 1000)
                cursor, found, deleted = await self._group.claim(stream, idle_ms, cursor, self._most(), DELETED)
                self.consumed += deleted
                self.answered += deleted
                self.refused += deleted
                self._take(found)
                if cursor == "0-0":
                    break

    def _take(self, entries: Sequence[Delivered]) -> None:
        largest = 1
        for stream, entry, fields in entries:
            if (stream, entry) in self._under_way:
                continue
            self.consumed += 1
            largest = max(largest, sum(map(len, fields.values())) if fields else 0)
            try:
                message = read_entry(stream, entry, fields)
            except ServiceError as error:
                message = Consumed(stream, entry, _shown(fields), b"")
                self._add(message)
                self._answer(message, refusal(error), True)
            else:
                self._add(message)
                self._channels.send(message)
        if entries:
            self._count = max(1, min(READ_ENTRIES, 2 * self._count, READ_BYTES // largest))

    def _add(self, message: Consumed) -> None:
        self._under_way[message.stream, message.entry] = message
        self._bytes += message.size

    # -- write ----------------------------------------------------------------------------------------------------------

    def _answer(self, message: Consumed, answer: bytes, is_refused: bool) -> None:
        # From here on the answer takes the message's room.
        self._bytes += len(answer) - message.size
        message.data, message.size = b"", len(answer)
        self._answers.append((message, Written(message.entry, message.session, answer, is_refused)))
        self._has_answers.set()

    async def _write(self) -> None:
        failures = 0
        while True:
            if not self._answers:
                self._has_answers.clear()
                await self._has_answers.wait()
            some = self._next_answers()
            is_open = False
            try:
                await self._open()
                is_open = True
                self.answered += await self._group.write(some[0][0].stream, [answer for _, answer in some])
            except (*AWAY, ConfigurationError) as error:
                self._raise_unless_passing(error, is_open=is_open)
                # Answers that were written before the error are not written again.
                log.warning("redis takes no answers", extra={"detail": str(error) or type(error).__name__})
                self._is_open = False
                failures += 1
                await asyncio.sleep(pause_after(failures))
                continue
            failures = 0
            for message, answer in some:
                self._answers.popleft()
                self.refused += answer.is_refused
                self._bytes -= message.size
                key = message.stream, message.entry
                del self._under_way[key]
                if key in self._redelivered:
                    self._redelivered.remove(key)
                    self._given[message.stream] = "0"
                self._channels.written(message)
            self._has_room.set()

    def _next_answers(self) -> list[tuple[Consumed, Written]]:
        """The first answers, all of one stream."""
        some: list[tuple[Consumed, Written]] = []
        size = 0
        for message, answer in self._answers:
            size += message.size
            if some and (len(some) == WRITE_ENTRIES or size > WRITE_BYTES or message.stream != some[0][0].stream):
                break
            some.append((message, answer))
        return some

    # -- tell -----------------------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            lags: list[int | None] = []
            with contextlib.suppress(*AWAY, ServiceError):
                lags = [await self._group.lag(stream) for stream in self._streams]
            known = [lag for lag in lags if lag is not None]
            facts = {"consumed": self.consumed, "answered": self.answered, "refused": self.refused}
            log.info(
                "consuming",
                extra=facts
                | {
                    "under_way": len(self._under_way),
                    "lag": sum(known) if len(known) == len(self._streams) else "unknown",
                },
            )


def _shown(fields: object) -> str:
    """The session that an entry names, if it could be one."""
    named = fields.get(b"session", b"") if isinstance(fields, dict) else b""
    return named[:64].decode("utf-8", "replace")
