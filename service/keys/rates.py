"""Rate limits of keys. The token bucket is in the store, shared by all workers; each worker leases tokens in advance.

A worker with a token admits a request without asking the store. A lease is a tenth of the burst, but no more than flows in
within a tenth of a second, and at least one token. So in any time T all W workers together admit at most
burst + rate T + W leases; and a request may be refused while the other workers hold W - 1 unused leases.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from typing import Final, final

from okl.errors import TooManyRequests

from ..store.key_store import KeyStore
from .key import Rate

LEASED_SHARE: Final = 0.1
LEASED_S: Final = 0.1


def lease_of(rate: Rate) -> float:
    """The number of tokens that a worker leases at a time."""
    return max(1.0, min(LEASED_SHARE * rate.burst, LEASED_S * rate.per_s))


@final
class Allowance:
    """A worker's tokens of one key; a negative number is owed to the bucket. `reserved` are for rounds under way."""

    __slots__ = ("closed_until", "lock", "reserved", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        self.reserved = 0.0
        self.closed_until = -math.inf
        self.lock = asyncio.Lock()


@final
class Allowances:
    """The allowances of all keys."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[str, Allowance] = {}

    def keep(self, ids: Collection[str]) -> None:
        """Forget the allowances of all other keys."""
        self._of = {id: one for id, one in self._of.items() if id in ids}

    async def admit(self, id: str, rate: Rate, store: KeyStore) -> None:
        """Take one token. Raises TooManyRequests, or a StoreError."""
        allowance = self._of.get(id)
        if allowance is None:
            allowance = self._of[id] = Allowance()
        missing = 1.0 + allowance.reserved - allowance.tokens
        if missing <= 0.0:
            allowance.tokens -= 1.0
            return
        self._check(allowance)
        if allowance.reserved:
            # Not owed to the bucket yet, since the rounds may still be refused.
            raise TooManyRequests(missing / rate.per_s)
        async with allowance.lock:
            if allowance.tokens < 1.0:
                # A request that waited for the lock shares the refusal of the one before it.
                self._check(allowance)
                owed = max(-allowance.tokens, 0.0)
                grant = await store.take(id, owed, lease_of(rate), rate.per_s, rate.burst)
                allowance.tokens += owed + grant.tokens
                if not grant.tokens:
                    allowance.closed_until = self._clock() + grant.wait_s
                    self._check(allowance)
            allowance.tokens -= 1.0

    def spend(self, id: str, count: float) -> None:
        """Take more tokens, even if there are not enough."""
        allowance = self._of.get(id)
        if allowance is not None:
            allowance.tokens -= count

    def reserve(self, id: str, count: float) -> None:
        """Hold tokens back for rounds under way."""
        allowance = self._of.get(id)
        if allowance is not None:
            allowance.reserved += count

    def settle(self, id: str, reserved: float, spent: float) -> None:
        """Take what the rounds cost in the end, and release what was reserved for them."""
        allowance = self._of.get(id)
        if allowance is not None:
            # It may have been forgotten and made anew meanwhile.
            allowance.reserved = max(0.0, allowance.reserved - reserved)
            allowance.tokens -= spent

    def _check(self, allowance: Allowance) -> None:
        wait_s = allowance.closed_until - self._clock()
        if wait_s > 0.0:
            raise TooManyRequests(wait_s)
