"""Sessions in Redis: a single server, behind Sentinel, or a Cluster. Every change of a session is one Lua script.

A command whose connection broke before its reply is sent again, although it may have been executed. The scripts recognize
the retry by what they find (`lua/commit.lua`, `lua/create.lua`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, final

from redis.exceptions import ResponseError

from okl.errors import SessionExists, StoreCorrupt, StoreError

from . import redis_moving as moves
from . import redis_scripts as scripts
from .base import (
    LAST_BYTES,
    PAGE_BYTES,
    PAGE_ITEMS,
    REMEMBERED_AFTER_EXPIRY_S,
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
    WaitingPage,
)
from .moving import FOR_GOOD, Checkpoint, Luggage, Whole, aside, check_note, is_aside, sealed
from .redis_connections import Connections
from .redis_errors import refused
from .redis_keys import RedisKeys
from .redis_replies import (
    HEAD_FIELDS,
    Damage,
    to_all_read,
    to_head,
    to_last,
    to_reading,
    to_waiting,
    to_what,
)
from .redis_scripts import KEYS, Script, Value, commit_arguments, duration_us, keys_of, text_of
from .redis_templates import RedisTemplates
from .redis_url import connections_from_url
from .redis_warnings import find_warnings
from .store_checks import (
    after_prefix,
    check_edges,
    check_entries,
    check_limit,
    check_number,
    check_summary,
    sound_part,
    split_cursor,
)

SESSIONS = "okl:sessions"
"""The names of all sessions: a sorted set whose scores are all 0, so that it is ordered by name."""

SWEPT_HERE = 100
"""Fewer than the contract allows, as a script blocks all clients of the server: 1,000 predictions take 19 ms."""

LISTED_AT_ONCE = 100
"""Requesting and decoding 100 heads blocks the event loop for 2 ms."""

LIMITS = struct.Struct("<7d")
"""As in `lua/sweep.lua`."""

_log = logging.getLogger("okl.store")


@final
class RedisStore:
    def __init__(self, connections: Connections, limits: Limits) -> None:
        self._connections = connections
        self.keys = RedisKeys(connections)
        self.templates = RedisTemplates(connections)
        self._tail = (limits.tail, limits.tail_bytes)
        self._checkpoints = (limits.checkpoints, limits.checkpoint_bytes)
        self._remembered_us = duration_us(limits.remembered_s)
        self._limits = LIMITS.pack(
            limits.waiting,
            limits.waiting_bytes,
            limits.remembered,
            limits.remembered_bytes,
            self._remembered_us,
            duration_us(REMEMBERED_AFTER_EXPIRY_S),
            SWEPT_HERE,
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
        self, name: str, record: bytes, tip: Tip, snapshot: bytes | None = None, *, summary: bytes = b"", told: int = 0
    ) -> None:
        check_summary(summary)
        check_number(told)
        # The index is in another slot. Added before, so that a session is never unlisted; and again after, as a concurrent
        # `delete` or `list` may have removed the name in between.
        await self._index("ZADD", 0, name)
        arguments = (record, summary, told, text_of(tip), *(() if snapshot is None else (snapshot,)))
        is_created = await self._run(scripts.CREATE, name, *arguments, is_write=True)
        await self._index("ZADD", 0, name, is_write=True)
        if not is_created:
            raise SessionExists(name)

    async def head(self, name: str) -> Head | Gone:
        fields = await self._on_session(name, "HMGET", keys_of(name)[0], *HEAD_FIELDS)
        with Damage(name):
            return Gone() if all(field is None for field in fields) else to_head(name, fields)

    async def read(self, name: str, after: Tip | None = None) -> Reading | Gone:
        arguments = () if after is None else (text_of(after),)
        answer = await self._run(scripts.READ, name, *arguments)
        with Damage(name):
            return Gone() if answer[0] == b"gone" else to_reading(name, answer[1])

    async def salvage(self, name: str) -> Reading | Gone:
        answer = await self._run(scripts.READ, name)
        with Damage(name):
            return Gone() if answer[0] == b"gone" else sound_part(to_all_read(name, answer[1]))

    async def find(self, name: str, tip: Tip, id: str) -> Found | Gone:
        answer = await self._run(scripts.FIND, name, self._remembered_us, text_of(tip), id)
        if answer[0] == b"gone":
            return Gone()
        with Damage(name):
            what, missed = to_what(id, answer[1]), answer[2]
            assert not isinstance(what, Full)
            return Found(what, None if missed is None else to_reading(name, missed))

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = (), progress: Applied | None = None
    ) -> Committed | Applied | Waiting | Behind | Gone:
        check_entries(tip, entries)
        answer = await self._run(
            scripts.COMMIT, name, self._limits, *commit_arguments(tip, entries, holds, progress), is_write=True
        )
        with Damage(name):
            match answer:
                case [b"committed", outcomes, waiting, never_came]:
                    whats = [to_what(hold.id, what) for hold, what in zip(holds, outcomes, strict=True)]
                    return Committed(whats, waiting, never_came)
                case [b"behind", reading]:
                    return Behind(to_reading(name, reading))
                case [b"applied", id, first_answer]:
                    return Applied(id.decode(), first_answer)
                case [b"waits", id, blob, is_expired]:
                    return Waiting(id.decode(), blob, bool(is_expired))
                case _:
                    return Gone()

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        return bool(await self._run(scripts.SNAPSHOT, name, *self._tail, text_of(tip), blob, is_write=True))

    async def rewind(self, name: str, tip: Tip, to: Tip, alarms: int = 0) -> bool:
        return bool(await self._run(scripts.REWIND, name, text_of(tip), text_of(to), alarms, is_write=True))

    async def replace(
        self,
        name: str,
        at: Tip,
        record: bytes,
        to: Tip,
        snapshot: bytes,
        *,
        summary: bytes = b"",
        told: int = 0,
        unless_waiting: bool = False,
    ) -> bool:
        check_summary(summary)
        check_number(told)
        arguments = (text_of(at), record, text_of(to), snapshot, summary, told, int(unless_waiting))
        return bool(await self._run(scripts.REPLACE, name, *arguments, is_write=True))

    async def last(self, name: str, rounds: int) -> Sequence[Entry] | Gone:
        answer = await self._run(scripts.LAST, name, rounds, LAST_BYTES)
        with Damage(name):
            return Gone() if answer[0] == b"gone" else to_last(name, answer)

    async def waiting(self, name: str, after: str | None, limit: int) -> WaitingPage | Gone:
        check_limit(limit)
        start: Sequence[Value] = ()
        if after is not None:
            time, id = split_cursor(after)
            start = (int(time), id)
        answer = await self._run(scripts.WAITING, name, min(limit, PAGE_ITEMS), PAGE_BYTES, *start)
        with Damage(name):
            return Gone() if answer[0] == b"gone" else to_waiting(answer)

    async def count_waiting(self, name: str, due_before: Sequence[float]) -> Sequence[int] | Gone:
        check_edges(due_before)
        answer = await self._run(scripts.COUNT_WAITING, name, *map(duration_us, due_before))
        return Gone() if answer[0] == b"gone" else answer[1:]

    async def cancel(self, name: str, id: str) -> bool:
        answer = await self._run(scripts.CANCEL, name, self._limits, id, is_write=True)
        return answer[0] == b"cancelled"

    async def summarize(self, name: str, tip: Tip, summary: bytes) -> bool:
        check_summary(summary)
        # Not `is_write`: a summary is rewritten every second, so it need not wait for replicas.
        is_noted = bool(await self._run(scripts.SUMMARIZE, name, text_of(tip), summary))
        if is_noted and self._connections.is_cluster:
            # The server of the index may have lost it alone, or be away. `list` removes the name of one deleted meanwhile.
            with suppress(StoreError):
                await self._index("ZADD", 0, name)
        return is_noted

    async def told(self, name: str, tip: Tip, count: int) -> bool:
        check_number(count)
        return bool(await self._run(scripts.TOLD, name, text_of(tip), count, is_write=True))

    async def list(self, cursor: str | None, limit: int) -> Page:
        start = "-" if cursor is None else f"({cursor}"
        found = await self._index("ZRANGEBYLEX", start, "+", "LIMIT", 0, limit + 1)
        names = [name.decode() for name in found]
        heads: list[Head] = []
        for first in range(0, min(len(names), limit), LISTED_AT_ONCE):
            part = names[first : min(first + LISTED_AT_ONCE, limit)]
            replies = await self._connections.call_all([("HMGET", keys_of(name)[0], *HEAD_FIELDS) for name in part])
            listed = [await self._listed(name, reply) for name, reply in zip(part, replies, strict=True)]
            heads += [head for head in listed if head is not None]
        return Page(heads, names[limit - 1] if len(names) > limit else None)

    async def count(self, prefix: str = "") -> int:
        if not prefix:
            return await self._index("ZCARD")
        return await self._index("ZLEXCOUNT", f"[{prefix}", f"({after_prefix(prefix)}")

    async def delete(
        self, name: str, at: Tip | None = None, *, unless_waiting: bool = False, remains: bytes = b""
    ) -> bool:
        # The driver sends a call whose reply was lost again: by then another session may have the name.
        first = None
        with suppress(StoreCorrupt):  # a damaged session can be deleted too
            first = await self._on_session(name, "HGET", keys_of(name)[0], "first")
        arguments = ("" if at is None else text_of(at), int(unless_waiting), remains, first or "")
        is_deleted = await self._run(scripts.DELETE, name, 0, *arguments, is_write=True)
        await self._unlist(name)
        return bool(is_deleted)

    async def keep(
        self,
        name: str,
        identity: bytes,
        checkpoint: str,
        tip: Tip,
        blob: bytes,
        *,
        at: float | None = None,
        note: bytes = b"",
    ) -> bool | Full:
        arguments = moves.kept_arguments(identity, self._checkpoints, checkpoint, tip, at, note, blob)
        answer = await self._run(scripts.KEEP, name, *arguments, is_write=True)
        return Full() if answer < 0 else bool(answer)

    async def kept(self, name: str) -> Sequence[Checkpoint] | Gone:
        if not await self._on_session(name, "EXISTS", keys_of(name)[0]):
            return Gone()  # Redis may have evicted the head, but not the checkpoints
        fields = await self._on_session(name, "HGETALL", keys_of(name)[KEYS.index("kept")])
        with Damage(name):
            return moves.to_checkpoints(fields)

    async def kept_state(self, name: str, checkpoint: str) -> bytes | None:
        return await self._on_session(name, "HGET", keys_of(name)[KEYS.index("states")], checkpoint)

    async def drop(self, name: str, checkpoint: str) -> bool:
        return bool(await self._run(scripts.DROP, name, checkpoint, is_write=True))

    async def seal(self, name: str, note: bytes, for_s: float, over: bytes | None = None) -> bool:
        check_note(note)
        duration = "" if for_s == FOR_GOOD else duration_us(for_s)
        is_over = () if over is None else (1, over)
        return bool(await self._run(scripts.SEAL, name, note, duration, *is_over, is_write=True))

    async def unseal(self, name: str, note: bytes, identity: bytes = b"") -> bool:
        return bool(await self._run(scripts.UNSEAL, name, note, identity, is_write=True))

    async def whole(self, name: str) -> Whole | Gone:
        return await moves.read_whole(self._run, name)

    async def luggage(self, name: str, cursor: str | None = None) -> Luggage | Gone:
        answer = await self._run(scripts.LUGGAGE, name, *moves.luggage_arguments(cursor))
        with Damage(name):
            return Gone() if answer[0] == b"gone" else moves.to_luggage(cursor, answer)

    async def arrive(self, name: str, whole: Whole, note: bytes) -> None:
        check_note(note)
        is_listed = not is_aside(name)
        if is_listed:
            await self._index("ZADD", 0, name)  # as in `create`
        has_arrived = await self._run(scripts.ARRIVE, name, *moves.arrive_arguments(whole, note), is_write=True)
        if is_listed:
            await self._index("ZADD", 0, name, is_write=True)
        if not has_arrived:
            raise SessionExists(name)

    async def unload(
        self, name: str, note: bytes, entries: Sequence[Entry], luggage: Luggage, then: bytes = b""
    ) -> bool:
        check_note(then)
        arguments = (note, then, self._remembered_us, *moves.unload_arguments(entries, luggage))
        return bool(await self._run(scripts.UNLOAD, name, *arguments, is_write=True))

    async def _listed(self, name: str, reply: Any) -> Head | None:
        try:
            if isinstance(reply, ResponseError):
                raise refused(reply, self._connections.server, f"Session {name!r}", session=name) from reply
            with Damage(name):
                if any(field is not None for field in reply):
                    return to_head(name, reply)
        except StoreCorrupt as error:
            _log.warning("a session cannot be listed", extra={"session": name, "error": str(error.__cause__)})
            return None
        # The head was evicted, or the session is being deleted.
        await self._run(scripts.DELETE, name, 1)
        await self._unlist(name)
        return None

    async def _unlist(self, name: str) -> None:
        await self._index("ZREM", name)
        if not is_aside(name) and await self._on_session(name, "EXISTS", keys_of(name)[0]):  # created again meanwhile
            await self._index("ZADD", 0, name)

    async def _index(self, command: str, *arguments: Value, is_write: bool = False) -> Any:
        try:
            return await self._connections.call((command, SESSIONS, *arguments), is_write=is_write)
        except ResponseError as error:
            raise refused(error, self._connections.server, "The list of sessions") from error

    async def _run(self, script: Script, name: str, *arguments: Value, is_write: bool = False) -> Any:
        keys = (*keys_of(name), *keys_of(aside(name))) if script.has_aside else keys_of(name)
        call = (len(keys), *keys, *arguments)
        try:
            answer = await script.run(self._connections, *call, is_write=is_write)
        except ResponseError as error:
            raise refused(error, self._connections.server, f"Session {name!r}", session=name) from error
        if type(answer) is list and answer[0] == b"sealed":
            raise sealed(name, answer[1])
        return answer

    async def _on_session(self, name: str, *command: Value) -> Any:
        try:
            return await self._connections.call(command)
        except ResponseError as error:
            raise refused(error, self._connections.server, f"Session {name!r}", session=name) from error


def from_url(url: str, limits: Limits) -> RedisStore:
    """The url's query takes the driver's connection options, such as `max_connections`, and those of `redis_url`."""
    return RedisStore(connections_from_url(url), limits)
