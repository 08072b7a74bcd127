"""Sessions in Redis: a single server, behind Sentinel, or a Cluster. Every operation on one is one Lua script.

A command whose connection broke before its reply is sent again: it may have been executed. The scripts answer the second
one by what they find (`lua/commit.lua`, `lua/create.lua`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, final

from redis.exceptions import NoScriptError, ResponseError

from service.errors import SessionExists, StoreCorrupt, StoreError
from service.store.base import (
    DIGEST_BYTES,
    REMEMBERED_AFTER_EXPIRY_S,
    SWEPT_AT_ONCE,
    Applied,
    Behind,
    Committed,
    Entry,
    Found,
    Full,
    Gone,
    Head,
    Hold,
    Limits,
    Page,
    Reading,
    Tip,
    Waiting,
    check_entries,
    check_reading,
    sound_part,
)
from service.store.redis_connections import Connections
from service.store.redis_errors import is_damage, log_failure, store_error
from service.store.redis_url import connections_from_url
from service.store.redis_warnings import find_warnings

SESSIONS = "okl:sessions"
"""The names of all sessions: a sorted set with score 0, so that it is ordered by name."""

KEYS = ("head", "journal", "snap", "waiting", "expiry", "forget", "applied", "remembered")

HEAD_FIELDS = (
    "summary",
    "created_at",
    "counters",
    "first",
    "tip",
    "snapshot",
    "snapshot_at",
    "snapshot_bytes",
    "tail_bytes",
)
"""In this order in every reply that has a head."""

COUNTERS = struct.Struct("<8d")
"""As in `lua/session.lua`: updated at, due at, journal bytes, number waiting, their bytes, bytes of the expired, number
remembered, their bytes."""

SWEPT_HERE = 100
"""A script holds up all clients of the server: to expire or forget 1,000 predictions takes it 19 ms."""

US = 1_000_000
LONGEST_US = 1 << 51
"""The longest wait, 71 years: later times would lose digits."""

Value = bytes | str | int

_log = logging.getLogger("okl.store")


@final
class Script:
    def __init__(self, name: str) -> None:
        folder = Path(__file__).with_name("lua")
        self.source = (folder / "session.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


CREATE, READ, FIND, COMMIT, SNAPSHOT, REWIND, DELETE = map(
    Script, ("create", "read", "find", "commit", "snapshot", "rewind", "delete")
)


@lru_cache(4096)
def _keys(name: str) -> Sequence[bytes]:
    return tuple(f"okl:{{{name}}}:{key}".encode() for key in KEYS)


def _us(seconds: float) -> int:
    return int(min(max(seconds, 0.0) * US, LONGEST_US))


# From replies to the contract's answers. What does not fit raises one of these, which becomes StoreCorrupt.
_DAMAGE = (ValueError, TypeError, struct.error)


def _text(tip: Tip) -> bytes:
    return b"%d:%b" % (tip.round, tip.digest)


def _tip(text: bytes | None) -> Tip:
    round, _, digest = (text or b"").partition(b":")
    if len(digest) != DIGEST_BYTES:
        raise ValueError("a digest is cut")
    return Tip(int(round), digest)


def _head(name: str, fields: Sequence[bytes | None]) -> Head:
    summary, created_at, packed, first_text, tip_text, snapshot_text, snapshot_at, snapshot_bytes, tail_bytes = fields
    if summary is None or packed is None:
        raise ValueError("the head lacks fields")
    tip, first = _tip(tip_text), _tip(first_text)
    snapshot_tip = None if snapshot_text is None else _tip(snapshot_text)
    updated_at, _, journal_bytes, *counts = COUNTERS.unpack(packed)
    waiting, waiting_bytes, _, remembered, remembered_bytes = map(int, counts)
    return Head(
        name,
        summary,
        tip,
        int(created_at or b"") / US,
        updated_at / US if updated_at else None,
        snapshot_tip,
        None if snapshot_at is None else int(snapshot_at) / US,
        int(snapshot_bytes or 0),
        tip.round - (snapshot_tip or first).round,
        int(journal_bytes),
        int(tail_bytes or 0),
        waiting,
        waiting_bytes,
        remembered,
        remembered_bytes,
    )


def _entry(stream_id: bytes, flat: Sequence[bytes]) -> Entry:
    _, digest, _, count, _, id, _, blob = flat
    return Entry(Tip(int(stream_id.partition(b"-")[0]), digest), int(count), id.decode(), blob)


def _reading(name: str, answer: Sequence[Any]) -> Reading:
    return check_reading(_all_read(name, answer))


def _all_read(name: str, answer: Sequence[Any]) -> Reading:
    fields, start, rows, snapshot, is_whole, record = answer
    head = _head(name, fields)
    if is_whole and (record is None or (snapshot is None and head.snapshot_tip is not None)):
        raise ValueError("the record or the snapshot is missing")
    if snapshot is not None and len(snapshot) != head.snapshot_bytes:
        raise ValueError("the snapshot is not as long as it was")
    return Reading(head, _tip(start), [_entry(*row) for row in rows], snapshot, record if is_whole else None)


def _what(id: str, answer: Sequence[Any] | None) -> Waiting | Applied | Full | None:
    match answer:
        case None:
            return None
        case [b"applied", _, first_answer]:
            return Applied(id, first_answer)
        case [b"waiting", blob, is_expired]:
            return Waiting(id, blob, bool(is_expired))
        case _:
            return Full()


def _commit_arguments(tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold]) -> list[Value]:
    arguments: list[Value] = [_text(tip), len(entries)]
    for entry in entries:
        answer = b"" if entry.answer is None else b"+" + entry.answer
        arguments += (entry.tip.round, entry.tip.digest, entry.count, entry.id, entry.blob, answer)
    for hold in holds:
        arguments += (hold.id, hold.blob, _us(hold.wait_s))
    return arguments


@final
class RedisStore:
    schemes: ClassVar[tuple[str, ...]] = ("redis", "rediss", "redis+sentinel", "redis+cluster")

    def __init__(self, connections: Connections, limits: Limits) -> None:
        self._connections = connections
        self._tail = (limits.tail, limits.tail_bytes)
        self._remembered_us = _us(limits.remembered_s)
        self._limits = COUNTERS.pack(
            limits.waiting,
            limits.waiting_bytes,
            limits.remembered,
            limits.remembered_bytes,
            self._remembered_us,
            _us(REMEMBERED_AFTER_EXPIRY_S),
            min(SWEPT_HERE, SWEPT_AT_ONCE),
            0,
        )

    async def open(self) -> None:
        await self._connections.open()
        await self.ping()

    async def close(self) -> None:
        await self._connections.close()

    async def ping(self) -> None:
        await self._index("ZCARD")

    async def warnings(self) -> Sequence[str]:
        return await find_warnings(self._connections)

    async def create(
        self, name: str, record: bytes, tip: Tip, snapshot: bytes | None = None, *, summary: bytes = b""
    ) -> None:
        # The index is another slot. Before: a session is never unlisted. After: a `delete` or a `list` at the same
        # time may have taken the name out in between.
        await self._index("ZADD", 0, name)
        given = () if snapshot is None else (snapshot,)
        is_created = await self._run(CREATE, name, record, summary, _text(tip), *given, is_write=True)
        await self._index("ZADD", 0, name, is_write=True)
        if not is_created:
            raise SessionExists(name)

    async def head(self, name: str) -> Head | Gone:
        fields = await self._on_session(name, "HMGET", _keys(name)[0], *HEAD_FIELDS)
        with _Damage(name):
            return Gone() if all(field is None for field in fields) else _head(name, fields)

    async def read(self, name: str, after: Tip | None = None) -> Reading | Gone:
        given = () if after is None else (_text(after),)
        answer = await self._run(READ, name, *given)
        with _Damage(name):
            return Gone() if answer[0] == b"gone" else _reading(name, answer[1])

    async def salvage(self, name: str) -> Reading | Gone:
        answer = await self._run(READ, name)
        with _Damage(name):
            return Gone() if answer[0] == b"gone" else sound_part(_all_read(name, answer[1]))

    async def find(self, name: str, tip: Tip, id: str) -> Found | Gone:
        answer = await self._run(FIND, name, self._remembered_us, _text(tip), id)
        if answer[0] == b"gone":
            return Gone()
        with _Damage(name):
            what, missed = _what(id, answer[1]), answer[2]
            assert not isinstance(what, Full)
            return Found(what, None if missed is None else _reading(name, missed))

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = ()
    ) -> Committed | Applied | Behind | Gone:
        check_entries(tip, entries)
        answer = await self._run(COMMIT, name, self._limits, *_commit_arguments(tip, entries, holds), is_write=True)
        with _Damage(name):
            match answer:
                case [b"committed", outcomes]:
                    return Committed([_what(hold.id, what) for hold, what in zip(holds, outcomes, strict=True)])
                case [b"behind", reading]:
                    return Behind(_reading(name, reading))
                case [b"applied", id, first_answer]:
                    return Applied(id.decode(), first_answer)
                case _:
                    return Gone()

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        return bool(await self._run(SNAPSHOT, name, *self._tail, _text(tip), blob, is_write=True))

    async def rewind(self, name: str, tip: Tip, to: Tip) -> bool:
        return bool(await self._run(REWIND, name, _text(tip), _text(to), is_write=True))

    async def list(self, cursor: str | None, limit: int) -> Page:
        start = "-" if cursor is None else f"({cursor}"
        found = await self._index("ZRANGEBYLEX", start, "+", "LIMIT", 0, limit + 1)
        names = [name.decode() for name in found]
        heads = await asyncio.gather(*map(self._listed, names[:limit]))
        return Page([head for head in heads if head is not None], names[limit - 1] if len(names) > limit else None)

    async def count(self) -> int:
        return await self._index("ZCARD")

    async def delete(self, name: str, at: Tip | None = None) -> bool:
        given = () if at is None else (_text(at),)
        is_deleted = await self._run(DELETE, name, 0, *given, is_write=True)
        await self._unlist(name)
        return bool(is_deleted)

    async def _listed(self, name: str) -> Head | None:
        try:
            head = await self.head(name)
        except StoreCorrupt as error:
            _log.warning("a session cannot be listed", extra={"session": name, "error": str(error.__cause__)})
            return None
        if isinstance(head, Head):
            return head
        # Its head was evicted, or it is being deleted.
        await self._run(DELETE, name, 1)
        await self._unlist(name)
        return None

    async def _unlist(self, name: str) -> None:
        await self._index("ZREM", name)
        if await self._on_session(name, "EXISTS", _keys(name)[0]):  # created again meanwhile
            await self._index("ZADD", 0, name)

    async def _index(self, command: str, *arguments: Value, is_write: bool = False) -> Any:
        try:
            return await self._connections.call((command, SESSIONS, *arguments), is_write=is_write)
        except ResponseError as error:
            raise _refused(error, "The list of sessions", None) from error

    async def _run(self, script: Script, name: str, *arguments: Value, is_write: bool = False) -> Any:
        call = (len(KEYS), *_keys(name), *arguments)
        try:
            return await self._connections.call(("EVALSHA", script.sha, *call), is_write=is_write)
        except NoScriptError:
            return await self._on_session(name, "EVAL", script.source, *call, is_write=is_write)
        except ResponseError as error:
            raise _refused(error, f"Session {name!r}", name) from error

    async def _on_session(self, name: str, *command: Value, is_write: bool = False) -> Any:
        try:
            return await self._connections.call(command, is_write=is_write)
        except ResponseError as error:
            raise _refused(error, f"Session {name!r}", name) from error


def _refused(error: ResponseError, what: str, session: str | None) -> StoreError:
    if not is_damage(error):
        log_failure(error)
        return store_error(error)
    named = {} if session is None else {"session": session}
    return StoreCorrupt(f"{what} cannot be read: Redis holds something else under its keys, or a part of it.", **named)


@final
class _Damage:
    """Turns what a damaged reply raises while it is read into StoreCorrupt."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _DAMAGE):
            raise StoreCorrupt(f"What Redis holds of session {self._name!r} is damaged.", session=self._name) from error


def from_url(url: str, limits: Limits) -> RedisStore:
    """The query takes the driver's own connection options, `max_connections` among them, and those of `redis_url`."""
    return RedisStore(connections_from_url(url), limits)
