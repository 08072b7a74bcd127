"""Keys in Redis, over the store's connections: one hash of all keys, and one hash per bucket, which expires when full."""

from __future__ import annotations

from typing import Any, Final, final

from okl.errors import LimitReached

from . import redis_whole
from .key_store import MOST_KEYS, Grant, KeyRecords, check_record
from .redis_connections import Connections
from .redis_scripts import Script, Value

KEYS_KEY: Final = "okl:keys"
"""Distinct from every session's keys, which have braces."""

_KEYS, _TAKE = Script("keys"), Script("take")
_OF: Final = "The list of keys"


@final
class RedisKeys:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def add(self, id: str, record: bytes, version: str) -> bool:
        check_record(record)
        outcome = await self._run(_KEYS, KEYS_KEY, "add", version, id, record, MOST_KEYS, is_write=True)
        if outcome < 0:
            raise LimitReached(f"There are {MOST_KEYS} keys; revoke one first.")
        return bool(outcome)

    async def revoke(self, id: str, version: str) -> bool:
        existed = await self._run(_KEYS, KEYS_KEY, "revoke", version, id, is_write=True)
        # In a cluster the bucket is in another slot. If a worker recreates it, it expires by itself.
        await self._connections.call(("DEL", _bucket_of(id)), is_write=True)
        return bool(existed)

    async def read(self, version: str) -> KeyRecords | None:
        answer = await self._run(_KEYS, KEYS_KEY, "ring", version)
        return None if answer is None else KeyRecords(*redis_whole.to_records(answer, _OF))

    async def take(self, id: str, owed: float, wanted: float, rate: float, burst: float) -> Grant:
        numbers = (repr(owed), repr(wanted), repr(rate), repr(burst))
        granted, wait_s = await self._run(_TAKE, _bucket_of(id), *numbers)
        return Grant(float(granted), float(wait_s))

    async def _run(self, script: Script, key: str, *arguments: Value, is_write: bool = False) -> Any:
        return await redis_whole.run(self._connections, script, key, *arguments, of=_OF, is_write=is_write)


def _bucket_of(id: str) -> str:
    return f"okl:bucket:{id}"
