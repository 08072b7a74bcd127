"""The contract of the keys' store: records by id, and a bucket of tokens a key. A store of sessions may keep keys, too.

It knows nothing of what a key may do: bytes and numbers only, as `base` has it of sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

MOST_KEYS = 10_000
"""Each worker holds all of them, about 500 bytes each."""

RECORD_BYTES = 1 << 10
"""A record's most bytes."""


@dataclass(frozen=True, slots=True)
class KeyRecords:
    """All records by id. `version` is another after each change; empty where there never was a key."""

    version: str
    records: Mapping[str, bytes]


class Grant(NamedTuple):
    """Tokens that were taken out of a bucket: none, or at least one; then `wait_s` is how long until there is one."""

    tokens: float
    wait_s: float


class KeyStore(Protocol):
    """Errors: StoreUnavailable, StoreTimeout, StoreCorrupt."""

    async def add(self, id: str, record: bytes, version: str) -> bool:
        """Keep a key; False if another one has its id. The same again is True (a reply got lost).

        Raises LimitReached beyond MOST_KEYS, ValueError for more than RECORD_BYTES.
        """
        ...

    async def revoke(self, id: str, version: str) -> bool:
        """Forget a key and its bucket; False if there is none."""
        ...

    async def read(self, version: str) -> KeyRecords | None:
        """All keys; None if they are still those of this version."""
        ...

    async def take(self, id: str, owed: float, wanted: float, rate: float, burst: float) -> Grant:
        """Up to `wanted` tokens out of the key's bucket, after the `owed` ones, which may leave it below nothing.

        By the store's clock `rate` tokens flow into it a second, until it has `burst`; a new one is full. A driver that sends
        this again because the reply got lost takes twice: fewer tokens are left, never more.
        """
        ...


@runtime_checkable
class KeepsKeys(Protocol):
    """A store that keeps keys beside the sessions."""

    keys: KeyStore


def check_record(record: bytes) -> None:
    """Raises ValueError."""
    if len(record) > RECORD_BYTES:
        raise ValueError(f"a key's record has at most {RECORD_BYTES} bytes, not {len(record)}")
