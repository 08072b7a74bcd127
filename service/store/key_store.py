"""The contract of the key store: records by id, and one token bucket per key. A session store may keep keys, too.

Like a session store, it handles bytes and numbers; it does not know what a key permits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

MOST_KEYS = 10_000
"""Each worker holds all of them, about 500 bytes each."""

RECORD_BYTES = 1 << 10
"""The largest record."""


@dataclass(frozen=True, slots=True)
class KeyRecords:
    """All records by id. `version` differs after each change; empty if there never was a key."""

    version: str
    records: Mapping[str, bytes]


class Grant(NamedTuple):
    """Tokens taken out of a bucket: at least one, or none; in that case one is available after `wait_s`."""

    tokens: float
    wait_s: float


class KeyStore(Protocol):
    """Errors: StoreUnavailable, StoreTimeout, StoreCorrupt."""

    async def add(self, id: str, record: bytes, version: str) -> bool:
        """Keep a key; False if another key has its id. Adding the same record again returns True (a retry).

        Raises LimitReached beyond MOST_KEYS, ValueError for more than RECORD_BYTES.
        """
        ...

    async def revoke(self, id: str, version: str) -> bool:
        """Forget a key and its bucket; False if there is no such key."""
        ...

    async def read(self, version: str) -> KeyRecords | None:
        """All keys; None if `version` is current."""
        ...

    async def take(self, id: str, owed: float, wanted: float, rate: float, burst: float) -> Grant:
        """Take up to `wanted` tokens out of the key's bucket, after the `owed` ones, which may make it negative; if `owed` is
        negative, that many are given back.

        By the store's clock, `rate` tokens per second flow into the bucket, up to `burst`; a new one is full. A retry after a
        lost reply takes twice: the bucket then has too few tokens, never too many.
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
