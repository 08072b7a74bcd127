"""Sessions in Redis: a single server, behind Sentinel, or a Cluster. Every operation on one is one Lua script.

The driver sends a command again when the connection broke before its reply: it may have been executed. The scripts
answer the second one by what they find (see `lua/append.lua` and `lua/create.lua`).
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Awaitable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, final
from urllib.parse import urlsplit

import hiredis
from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.connection import AbstractConnection, ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import (
    ConnectionError,
    InvalidResponse,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.errors import ConfigurationError, SessionExists, StoreCorrupt, StoreError, StoreTimeout, StoreUnavailable
from service.store.base import (
    APPLIED_KEPT,
    SWEPT_AT_ONCE,
    TAIL_EVENTS,
    AlreadyApplied,
    AlreadyWaiting,
    Appended,
    Behind,
    Event,
    Gone,
    Head,
    Held,
    Page,
    Reading,
    TooManyWaiting,
    Waiting,
    check_events,
    make_reading,
)

SESSIONS = b"okl:sessions"
"""The names of all sessions: a sorted set with score 0, so that it is ordered by name."""

T = TypeVar("T")

KEYS = ("head", "journal", "snap", "waiting", "expiry", "forget", "applied", "order")
RETRIES = 3
BACKOFF = ExponentialWithJitterBackoff(base=0.01, cap=0.25)
CONNECT_TIMEOUT_S = 2.0
DEADLINE_S = 5.0
"""For an operation with all its retries."""

TIMES = struct.Struct("<dd")
"""In front of a waiting prediction's blob: when it expires, and when it is forgotten."""

_INCOMPLETE = object()
_FAILURES = (RedisError, RedisClusterException, OSError)


class _Lane(asyncio.Protocol):
    """A connection that the driver opened, one command at a time: the driver's own streams cost as much again."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._replies = hiredis.Reader(InvalidResponse, connection._parser.parse_error, notEnoughData=_INCOMPLETE)
        self._reply: asyncio.Future[Any] = self._loop.create_future()
        self._reply.cancel()  # nothing was asked yet
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        assert connection._writer is not None
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)

    async def ask(self, packed: bytes, deadline: float) -> Any:
        if self._transport.is_closing():
            raise ConnectionError("the connection broke while it was free")
        self._reply = self._loop.create_future()
        self._deadline = deadline
        # The timer of an earlier command goes on: to make and cancel one costs more than to look again when it is up.
        if self._timer is None or self._timer.when() > deadline:
            self._watch()
        self._transport.write(packed)
        return await self._reply

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._reply.done():
            return
        if self._loop.time() < self._deadline:
            self._watch()
        else:
            self._settle(RedisTimeoutError(f"no reply within {DEADLINE_S} s"))

    def data_received(self, data: bytes) -> None:
        self._replies.feed(data)
        while (reply := self._replies.gets()) is not _INCOMPLETE:
            if not isinstance(reply, hiredis.PushNotification):
                self._settle(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(ConnectionError(f"the connection broke: {exc or 'closed by the server'}"))

    def _settle(self, reply: Any) -> None:
        if self._reply.done():
            return
        if isinstance(reply, Exception):
            self._reply.set_exception(reply)
        else:
            self._reply.set_result(reply)


class _Lanes:
    """Connections kept out of the driver's pool between commands: to take one from it costs as much as a command."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._free: list[_Lane] = []

    async def send(self, packed: bytes) -> Any:
        """The reply. A command whose connection broke is sent again, RETRIES times at most."""
        deadline = asyncio.get_running_loop().time() + DEADLINE_S
        for failures in range(1, RETRIES + 1):
            try:
                return await self._send(packed, deadline)
            except ConnectionError:
                # What broke one connection (the server was started again) broke the others too.
                await self.close()
                await asyncio.sleep(BACKOFF.compute(failures))
        return await self._send(packed, deadline)

    async def _send(self, packed: bytes, deadline: float) -> Any:
        lane = self._free.pop() if self._free else await self._open(deadline)
        try:
            reply = await lane.ask(packed, deadline)
        except ReadOnlyError as error:
            # The master that Sentinel named has become a replica; a new connection asks for the new one.
            await self._drop(lane)
            raise ConnectionError("the server has become a replica") from error
        except ResponseError:
            self._free.append(lane)
            raise
        except BaseException:
            # Its reply may come yet, and would be taken for that of the next command.
            await self._drop(lane)
            raise
        self._free.append(lane)
        return reply

    async def _open(self, deadline: float) -> _Lane:
        async with asyncio.timeout_at(deadline):
            return _Lane(await self._pool.get_connection())

    async def _drop(self, lane: _Lane) -> None:
        await lane.connection.disconnect(nowait=True)
        await self._pool.release(lane.connection)

    async def close(self) -> None:
        while self._free:
            await self._drop(self._free.pop())


@final
class Script:
    def __init__(self, name: str) -> None:
        folder = Path(__file__).with_name("lua")
        self.source = (folder / "session.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


CREATE, READ, HOLD, APPEND, LOOK_UP, SNAPSHOT = map(Script, ("create", "read", "hold", "append", "look_up", "snapshot"))


async def _reply(request: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await request
    except _FAILURES as error:
        raise _store_error(error) from error


def _pack(*command: bytes | str | float) -> bytes:
    return hiredis.pack_command(command)  # pyright: ignore[reportArgumentType]


@lru_cache(4096)
def _opening(sha: bytes, name: str) -> bytes:
    """The packed parts of a call that stay the same, behind the line that counts them."""
    return _pack("EVALSHA", sha, len(KEYS), *_keys(name)).partition(b"\r\n")[2]


def _pack_call(script: Script, name: str, arguments: Sequence[bytes | str | float]) -> bytes:
    count = 3 + len(KEYS) + len(arguments)
    own = _pack(*arguments).partition(b"\r\n")[2]
    return b"*%d\r\n%b%b" % (count, _opening(script.sha, name), own)


@lru_cache(4096)
def _keys(name: str) -> tuple[bytes, ...]:
    return tuple(f"okl:{{{name}}}:{key}".encode() for key in KEYS)


def _head(name: str, fields: Mapping[bytes, bytes], waiting: int) -> Head:
    if not fields.keys() >= {b"uid", b"meta", b"created_at", b"round", b"snapshot_round"}:
        raise StoreCorrupt(f"The head of session {name!r} lacks fields.")
    round, snapshot_round = int(fields[b"round"]), int(fields[b"snapshot_round"])
    updated_at, snapshot_at = fields.get(b"updated_at"), fields.get(b"snapshot_at")
    return Head(
        name,
        fields[b"uid"].decode(),
        fields[b"meta"],
        float(fields[b"created_at"]),
        round,
        None if updated_at is None else float(updated_at),
        snapshot_round,
        None if snapshot_at is None else float(snapshot_at),
        int(fields.get(b"snapshot_bytes", 0)),
        round - max(snapshot_round, 0),
        int(fields.get(b"journal_bytes", 0)),
        waiting,
    )


def _reading(name: str, answer: Sequence[Any]) -> Reading:
    fields, waiting, start, entries, snapshot = answer
    head = _head(name, dict(zip(fields[::2], fields[1::2], strict=True)), waiting)
    return make_reading(head, start, [_event(*entry) for entry in entries], snapshot)


def _event(entry_id: bytes, fields: Sequence[bytes]) -> Event:
    _, count, _, id, _, answer, _, blob = fields
    return Event(int(entry_id.partition(b"-")[0]), blob, id.decode() or None, answer, int(count))


def _refused(name: str, answer: Sequence[Any]) -> Behind | AlreadyApplied | Gone:
    match answer:
        case [b"behind", reading]:
            return Behind(_reading(name, reading))
        case [b"applied", id, first_answer]:
            return AlreadyApplied(id.decode(), first_answer)
        case _:
            return Gone()


def _waiting(id: str, packed: bytes) -> Waiting:
    expires_at, _ = TIMES.unpack_from(packed)
    return Waiting(id, packed[TIMES.size :], expires_at)


def _store_error(error: Exception) -> StoreError:
    if isinstance(error, (RedisTimeoutError, TimeoutError)):
        return StoreTimeout(f"Redis did not answer in time: {error}.")
    if isinstance(error, ResponseError) and str(error).startswith(("WRONGTYPE", "The ID specified", "user_script")):
        return StoreCorrupt(f"Redis holds something else under a session's keys: {error}.")
    return StoreUnavailable(f"Redis cannot serve: {error}.")


@final
class RedisStore:
    schemes: ClassVar[tuple[str, ...]] = ("redis", "rediss", "redis+sentinel", "redis+cluster")

    def __init__(self, client: Redis | RedisCluster, sentinels: Sequence[Redis] = ()) -> None:
        self._client = client
        self._sentinels = sentinels
        self._lanes = None if isinstance(client, RedisCluster) else _Lanes(client.connection_pool)

    async def open(self) -> None:
        if isinstance(self._client, RedisCluster):
            # A first use by several tasks at once would have each of them find out the nodes.
            await _reply(self._client.initialize())
        await self.ping()

    async def close(self) -> None:
        if self._lanes is not None:
            await self._lanes.close()
        for client in (self._client, *self._sentinels):
            await client.aclose()

    async def ping(self) -> None:
        await self._execute("PING")

    async def create(self, head: Head, snapshot: bytes | None = None) -> None:
        # The index is another slot. Before: a session is never unlisted. After: a `delete` or a `list` at the same
        # time may have taken the name out in between.
        await self._execute("ZADD", SESSIONS, 0, head.name)
        given = () if snapshot is None else (snapshot,)
        created = await self._run(CREATE, head.name, head.uid, head.meta, head.created_at, head.round, *given)
        await self._execute("ZADD", SESSIONS, 0, head.name)
        if not created:
            raise SessionExists(head.name)

    async def read(self, name: str, uid: str | None = None, after: int = -1) -> Reading | Gone:
        answer = await self._run(READ, name, uid or "", after)
        return Gone() if answer[0] == b"gone" else _reading(name, answer[1])

    async def head(self, name: str) -> Head | Gone:
        (head,) = await self._heads([name])
        return head

    async def hold(
        self, name: str, uid: str, expected: int, waiting: Waiting, *, now: float, limit: int
    ) -> Held | Behind | AlreadyWaiting | AlreadyApplied | TooManyWaiting | Gone:
        packed = TIMES.pack(waiting.expires_at, waiting.forget_at(now)) + waiting.blob
        match await self._run(
            HOLD, name, uid, expected, waiting.id, packed, waiting.expires_at, now, limit, SWEPT_AT_ONCE
        ):
            case b"held":
                return Held()
            case [b"full"]:
                return TooManyWaiting()
            case [b"waiting", held]:
                return AlreadyWaiting(_waiting(waiting.id, held))
            case answer:
                return _refused(name, answer)

    async def append(
        self, name: str, uid: str, expected: int, events: Sequence[Event], *, now: float
    ) -> Appended | Behind | AlreadyApplied | Gone:
        check_events(expected, events)
        rows = [value for e in events for value in (e.round, e.count, e.id or "", e.answer, e.blob)]
        match await self._run(APPEND, name, uid, expected, now, APPLIED_KEPT, *rows):
            case b"appended":
                return Appended()
            case [b"replayed"]:
                return Appended(replayed=True)
            case answer:
                return _refused(name, answer)

    async def look_up(self, name: str, uid: str, id: str) -> Waiting | AlreadyApplied | Gone | None:
        match await self._run(LOOK_UP, name, uid, id):
            case [b"unknown"]:
                return None
            case [b"waiting", held]:
                return _waiting(id, held)
            case [b"applied", _, first_answer]:
                return AlreadyApplied(id, first_answer)
            case _:
                return Gone()

    async def snapshot(self, name: str, uid: str, round: int, blob: bytes, *, now: float) -> bool:
        return bool(await self._run(SNAPSHOT, name, uid, round, blob, now, TAIL_EVENTS))

    async def list(self, cursor: str | None, limit: int) -> Page:
        start = b"-" if cursor is None else b"(" + cursor.encode()
        found = await self._execute("ZRANGEBYLEX", SESSIONS, start, b"+", "LIMIT", 0, limit + 1)
        names = [name.decode() for name in found]
        heads = await self._heads(names[:limit])
        for name, head in zip(names, heads, strict=False):
            if isinstance(head, Gone):
                await self._unlist(name)
        return Page(
            [head for head in heads if isinstance(head, Head)], names[limit - 1] if len(names) > limit else None
        )

    async def count(self) -> int:
        return await self._execute("ZCARD", SESSIONS)

    async def delete(self, name: str) -> bool:
        removed = await self._execute("UNLINK", *_keys(name))
        await self._unlist(name)
        return removed > 0

    async def _unlist(self, name: str) -> None:
        await self._execute("ZREM", SESSIONS, name)
        if await self._execute("EXISTS", _keys(name)[0]):  # created again meanwhile
            await self._execute("ZADD", SESSIONS, 0, name)

    async def _heads(self, names: Sequence[str]) -> Sequence[Head | Gone]:
        pipeline = self._client.pipeline(transaction=False)
        for keys in map(_keys, names):
            pipeline.hgetall(keys[KEYS.index("head")])
            pipeline.zcard(keys[KEYS.index("expiry")])
        found = await _reply(pipeline.execute())
        rows = zip(names, found[::2], found[1::2], strict=True)
        return [_head(name, fields, waiting) if fields else Gone() for name, fields, waiting in rows]

    async def _run(self, script: Script, name: str, *arguments: bytes | str | float) -> Any:
        if self._lanes is None:
            return await _reply(self._evaluate(self._client, script, name, *arguments))
        try:
            try:
                return await self._lanes.send(_pack_call(script, name, arguments))
            except NoScriptError:
                return await self._lanes.send(_pack("EVAL", script.source, len(KEYS), *_keys(name), *arguments))
        except _FAILURES as error:
            raise _store_error(error) from error

    async def _evaluate(
        self, client: Redis | RedisCluster, script: Script, name: str, *arguments: bytes | str | float
    ) -> Any:
        call = (len(KEYS), *_keys(name), *arguments)
        try:
            return await client.execute_command("EVALSHA", script.sha, *call)
        except NoScriptError:
            return await client.execute_command("EVAL", script.source, *call)

    async def _execute(self, *command: bytes | str | float) -> Any:
        return await _reply(self._client.execute_command(*command))


def from_url(url: str) -> RedisStore:
    """The query takes the driver's own connection options, such as `socket_timeout` and `max_connections`."""
    defaults: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    defaults["retry"] = Retry(BACKOFF, RETRIES, (ConnectionError,))
    try:
        parts = urlsplit(url)
        if parts.scheme == "redis+cluster":
            return RedisStore(RedisCluster.from_url(parts._replace(scheme="redis").geturl(), **defaults))
        if parts.scheme != "redis+sentinel":
            return RedisStore(Redis.from_url(url, **defaults))
        credentials, _, addresses = parts.netloc.rpartition("@")
        service = parts.path.strip("/")
        if not service:
            raise ValueError("the name of the service is missing")
        options: dict[str, Any] = dict(parse_url(f"redis://{credentials}@?{parts.query}"))
        hosts = [urlsplit(f"//{address}") for address in addresses.split(",")]
        sentinels = [(host.hostname or "localhost", host.port or 26379) for host in hosts]
    except (ValueError, RedisError, RedisClusterException) as error:
        raise ConfigurationError(f"store url {url!r}: {error}") from error
    sentinel = Sentinel(sentinels, sentinel_kwargs=defaults, **(defaults | options))
    return RedisStore(sentinel.master_for(service), sentinel.sentinels)
