"""How often a key may ask. The bucket of tokens is in the store, one for all workers; a worker takes some ahead.

A worker that has a token lets a request in without asking the store. It takes a tenth of the burst at a time, and no more
than flow in a tenth of a second, but one at least; call that the lease. So in any time T all W workers together let in at
most burst + rate T + W leases; and a request may be refused while the others hold W - 1 leases that they do not use.
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
    """Tokens that a worker takes at a time."""
    return max(1.0, min(LEASED_SHARE * rate.burst, LEASED_S * rate.per_s))


@final
class Allowance:
    """A worker's tokens of one key; below nothing it owes them to the bucket."""

    __slots__ = ("closed_until", "lock", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        self.closed_until = -math.inf
        self.lock = asyncio.Lock()


@final
class Allowances:
    """Those of all keys."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[str, Allowance] = {}

    def keep(self, ids: Collection[str]) -> None:
        """Forget those of other keys."""
        self._of = {id: one for id, one in self._of.items() if id in ids}

    async def admit(self, id: str, rate: Rate, store: KeyStore) -> None:
        """Take one token. Raises TooManyRequests, or a StoreError."""
        own = self._of.get(id)
        if own is None:
            own = self._of[id] = Allowance()
        if own.tokens >= 1.0:
            own.tokens -= 1.0
            return
        self._check(own)
        async with own.lock:
            if own.tokens < 1.0:
                # Who waited for the lock is told what the one before was told.
                self._check(own)
                owed = max(-own.tokens, 0.0)
                grant = await store.take(id, owed, lease_of(rate), rate.per_s, rate.burst)
                own.tokens += owed + grant.tokens
                if not grant.tokens:
                    own.closed_until = self._clock() + grant.wait_s
                    self._check(own)
            own.tokens -= 1.0

    def spend(self, id: str, count: float) -> None:
        """Take more tokens, whether they are there or not."""
        own = self._of.get(id)
        if own is not None:
            own.tokens -= count

    def _check(self, own: Allowance) -> None:
        wait_s = own.closed_until - self._clock()
        if wait_s > 0.0:
            raise TooManyRequests(wait_s)
