"""A worker's copy of all keys, as they were in the store a moment ago."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, final

from okl.errors import StoreError, StoreTimeout

from ..settings import Settings
from ..store.key_store import KeepsKeys, KeyRecords, KeyStore
from .key import Key, decode_key, id_in, is_genuine, is_genuine_cookie
from .rates import Allowances

log = logging.getLogger("okl.keys")

SEEN_S: Final = 2.0
"""Every worker knows of a new or revoked key within this time."""

READ_WITHIN_S: Final = 2.0
"""The time-out of a read; a slower store counts as one that does not answer."""


def is_open_without_keys(settings: Settings) -> bool:
    """Whether access is open until the first key is created: if only this machine reaches the service, or if allowed."""
    return not settings.require_keys and (settings.allow_anonymous or is_loopback(settings.host))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@final
class Keyring:
    """The keys of a store, refreshed at most every SEEN_S seconds, and only on demand.

    Once a key was created, keys stay required even after the last one is revoked, and in this worker even after the store has
    lost them all: a closed service never opens by itself. Until the keys were read once, nobody is let in.
    """

    def __init__(
        self,
        *,
        is_open: bool,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._is_open = is_open
        self._has_read = False
        self._clock = clock
        self._wall_clock = wall_clock
        self._store: KeyStore | None = None
        self._known = KeyRecords("", {})
        self._keys: Mapping[str, Key] = {}
        self._due = float("-inf")
        self._reading: asyncio.Task[StoreError | None] | None = None
        self._allowances = Allowances(clock)

    def keep(self, store: object) -> None:
        """Use the keys of this store; none if it keeps no keys."""
        self._store = store.keys if isinstance(store, KeepsKeys) else None

    @property
    def is_required(self) -> bool:
        return not self._is_open

    @property
    def is_stale(self) -> bool:
        return self._store is not None and self._clock() >= self._due

    @property
    def has_read(self) -> bool:
        """Whether the keys were ever read."""
        return self._has_read

    async def refresh(self) -> None:
        """Read the keys of the store. Raises StoreError if it does not answer, and keys are or may be required."""
        if self._store is None:
            return
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                error = await asyncio.shield(self._reading)
        except TimeoutError:
            error = StoreTimeout("The store did not say in time which keys there are.")
        if error is None:
            return
        if self.is_required or not self._has_read:
            raise error
        # Without keys access stays open; requests that need the store fail by themselves.
        self._due = self._clock() + SEEN_S

    async def _read(self) -> StoreError | None:
        """Return the error of a store that does not answer: nobody may be waiting any more for it to be raised."""
        assert self._store is not None
        try:
            asked = self._clock()
            found = await self._store.read(self._known.version)
            if found is not None:
                if self._known.version and not found.version:
                    log.warning("the store has lost its keys; they stay required: create one anew")
                self._is_open = self._is_open and not found.version
                self._keys = _decoded(found, self._known, self._keys)
                self._known = found
                self._allowances.keep(self._keys)
            self._due = asked + SEEN_S
            self._has_read = True
            return None
        except StoreError as error:
            return error
        finally:
            self._reading = None

    def key_of(self, text: str) -> Key | None:
        """The key with this text; None if there is none, or if it has expired."""
        # The slice is the key's id; the digest covers the whole text.
        key = self._keys.get(text[4:12])
        return key if is_genuine(key, text) and not self._is_over(key) else None

    def key_of_cookie(self, cookie: str) -> Key | None:
        """The key with which a browser signed in; None if the cookie is invalid or expired."""
        key = self._keys.get(id_in(cookie) or "")
        return key if is_genuine_cookie(key, cookie, self._wall_clock()) and not self._is_over(key) else None

    def is_still_good(self, key: Key) -> bool:
        return self._keys.get(key.id) == key and not self._is_over(key)

    def _is_over(self, key: Key | None) -> bool:
        return key is None or key.is_expired(self._wall_clock())

    async def admit(self, key: Key) -> None:
        """Charge one request to the key. Raises TooManyRequests, or a StoreError."""
        if key.rate is not None and self._store is not None:
            await self._allowances.admit(key.id, key.rate, self._store)

    def reserve(self, key: Key, count: float) -> None:
        """Hold tokens back for rounds under way, until `settle`."""
        if key.rate is not None:
            self._allowances.reserve(key.id, count)

    async def settle(self, key: Key, reserved: float, spent: float) -> None:
        """Charge what the rounds cost in the end, for which the next requests wait, and release what was reserved."""
        if key.rate is not None and self._store is not None:
            with suppress(StoreError):  # the rounds are played; the worker pays for them with the next request
                await self._allowances.settle(key.id, key.rate, self._store, reserved, spent)


def _decoded(found: KeyRecords, known: KeyRecords, keys: Mapping[str, Key]) -> dict[str, Key]:
    """Decode changed records; an unreadable record is left out."""
    decoded: dict[str, Key] = {}
    for id, record in found.records.items():
        if known.records.get(id) == record and id in keys:
            decoded[id] = keys[id]
            continue
        try:
            decoded[id] = decode_key(id, record)
        except ValueError as error:
            log.warning("a key cannot be read", extra={"key": id, "error": str(error)})
    return decoded
