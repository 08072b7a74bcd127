"""A consumer group on Redis streams: reads entries, and writes each answer once, whichever consumer does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from okl.errors import ConfigurationError

from ..store.redis_errors import is_refusal

AWAY_S: Final = 10.0
"""A server that does not answer within this time is considered unavailable."""

BLOCK_MS: Final = 500

WRITE: Final = """
-- Write the answers of the entries that are still pending, each to the stream with its number, and acknowledge the entries.
-- An entry that was answered before, by a script whose reply was lost or by another consumer, is no longer pending.
local written = 0
for i = 3, #ARGV, 4 do
    local entry = ARGV[i]
    if #redis.call('XPENDING', KEYS[1], ARGV[1], entry, entry, 1) > 0 then
        local output = KEYS[tonumber(ARGV[i + 1])]
        redis.call('XADD', output, 'MAXLEN', '~', ARGV[2], '*',
            'stream', KEYS[1], 'source', entry, 'session', ARGV[i + 2], 'answer', ARGV[i + 3])
        redis.call('XACK', KEYS[1], ARGV[1], entry)
        written = written + 1
    end
end
return written
"""

CLAIM: Final = """
-- Claim entries. XAUTOCLAIM takes deleted ones off the pending list, so this is the only chance to answer them.
-- Fail before that if the output is no stream.
redis.call('XACK', KEYS[2], ARGV[1], '0-1')
local found = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], 'COUNT', ARGV[5])
for _, entry in ipairs(found[3]) do
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[6], '*',
        'stream', KEYS[1], 'source', entry, 'session', '', 'answer', ARGV[7])
end
return {found[1], found[2], #found[3]}
"""


class Delivered(NamedTuple):
    """An entry of a stream; `fields` is None if it was deleted after its delivery to a consumer."""

    stream: str
    entry: str
    fields: Mapping[bytes, bytes] | None


class Claimed(NamedTuple):
    """`cursor` is "0-0" at the end; `deleted` is the number of deleted entries, which have been answered."""

    cursor: str
    entries: list[Delivered]
    deleted: int


class Written(NamedTuple):
    """The answer to an entry."""

    entry: str
    session: str
    answer: bytes
    is_refused: bool


@final
class Group:
    """One consumer of a group. Raises RedisError, OSError if Redis is unavailable, ConfigurationError if it refuses."""

    def __init__(self, url: str, *, group: str, consumer: str, output: str, refused: str, max_length: int) -> None:
        """Raises ConfigurationError, which never quotes the url: it may hold a password."""
        if not url.startswith(("redis://", "rediss://", "unix://")):
            raise ConfigurationError("--redis takes redis://host:port/db, rediss://... or unix://path.")
        self._group = group
        self._consumer = consumer
        self._outputs = [output, refused]
        self._max_length = max_length
        try:
            self._redis = Redis.from_url(
                url,
                protocol=2,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=AWAY_S,
                socket_connect_timeout=AWAY_S,
                socket_keepalive=True,
            )
        except (ValueError, TypeError, RedisError):
            raise ConfigurationError("--redis: the url is malformed; write special characters as %XX.") from None

    async def close(self) -> None:
        await self._redis.aclose()

    async def open(self, stream: str, *, create: bool) -> None:
        """Create the group if requested and missing, and check that Redis permits the commands needed later."""
        check = ("XPENDING", stream, self._group, "0-1", "0-1", 1)
        try:
            await self._call(*check)
        except ConfigurationError as error:
            if not create or "NOGROUP" not in error.detail:
                raise
            await self._create(stream)
            await self._call(*check)
        await self._call("XACK", stream, self._group, "0-1")

    async def _create(self, stream: str) -> None:
        try:
            await self._call("XGROUP", "CREATE", stream, self._group, "0", "MKSTREAM")
        except ConfigurationError as error:
            # Another consumer may be first.
            if "BUSYGROUP" not in error.detail:
                raise

    async def read(self, streams: Sequence[str], count: int) -> list[Delivered]:
        """New entries that no consumer has received; wait a moment for them."""
        found = await self._call(
            *("XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", count, "BLOCK", BLOCK_MS, "STREAMS"),
            *streams,
            *(">" for _ in streams),
        )
        return [one for name, entries in found or () for one in _entries(name.decode(), entries)]

    async def given(self, stream: str, after: str, count: int) -> list[Delivered]:
        """Entries after `after` that were delivered to this consumer, which has not answered them."""
        found = await self._call(
            *("XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", count, "STREAMS", stream, after)
        )
        return [one for name, entries in found or () for one in _entries(name.decode(), entries)]

    async def claim(self, stream: str, idle_ms: int, start: str, count: int, refusal: bytes) -> Claimed:
        """Claim entries that other consumers have left unanswered for `idle_ms`. `refusal` answers deleted ones."""
        arguments = (self._group, self._consumer, idle_ms, start, count, self._max_length, refusal)
        cursor, entries, deleted = await self._call("EVAL", CLAIM, 2, stream, self._outputs[1], *arguments)
        return Claimed(cursor.decode(), _entries(stream, entries), deleted)

    async def write(self, stream: str, answers: Sequence[Written]) -> int:
        """Write answers. Return how many were written; the others had been written before."""
        arguments: list[Any] = [self._group, self._max_length]
        for one in answers:
            arguments += (one.entry, 3 if one.is_refused else 2, one.session, one.answer)
        return await self._call("EVAL", WRITE, 3, stream, *self._outputs, *arguments)

    async def lag(self, stream: str) -> int | None:
        """The number of entries not yet delivered to any consumer; None if Redis cannot tell."""
        for group in await self._call("XINFO", "GROUPS", stream):
            facts = dict(zip(group[::2], group[1::2], strict=True)) if isinstance(group, list) else group
            if facts[b"name"] == self._group.encode():
                return facts.get(b"lag")
        return None

    async def _call(self, *command: Any) -> Any:
        try:
            # Read the raw reply: the driver's parser fails on deleted entries.
            connection = await self._redis.connection_pool.get_connection()
            try:
                await connection.send_command(*command)
                return await connection.read_response()
            except BaseException as error:
                # An unread reply would be taken for that of the next command. A master that became a replica keeps its
                # connections, while the address may lead to the new master by now.
                if not (isinstance(error, Exception) and is_refusal(error)):
                    await connection.disconnect(nowait=True)
                raise
            finally:
                await self._redis.connection_pool.release(connection)
        except (AuthenticationError, AuthorizationError) as error:
            raise ConfigurationError("Redis refuses the user or the password in --redis.") from error
        except ResponseError as error:
            if not is_refusal(error):
                raise
            advice = "; --create makes both." if str(error).startswith("NOGROUP") else ""
            raise ConfigurationError(f"Redis refuses {command[0]}: {error}{advice}") from error


def _entries(stream: str, found: Sequence[Any]) -> list[Delivered]:
    entries = (one for one in found if one is not None)
    return [Delivered(stream, id.decode(), _fields(fields)) for id, fields in entries]


def _fields(flat: Sequence[bytes] | None) -> dict[bytes, bytes] | None:
    return None if flat is None else dict(zip(flat[::2], flat[1::2], strict=True))
