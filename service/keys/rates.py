"""Rate limits of keys. The token bucket is in the store, shared by all workers; each worker leases tokens in advance.

A worker with a token admits a request without asking the store. A lease is a tenth of the burst, but no more than flows in
within a tenth of a second, and at least one token. So in any time T all W workers together admit at most
burst + rate T + W leases; and a request may be refused while the other workers hold W - 1 unused leases.

While rounds are under way, a worker also holds back their tokens. Once they are played or refused, it pays what they cost, or
gives back what they did not, as far as that is more than a lease.
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

    @property
    def missing(self) -> float:
        """How many more tokens one more request needs."""
        return 1.0 + self.reserved - self.tokens


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
        if allowance.missing <= 0.0:
            allowance.tokens -= 1.0
            return
        self._check(allowance)
        async with allowance.lock:
            while allowance.missing > 0.0:
                # A request that waited for the lock shares the refusal of the one before it.
                self._check(allowance)
                owed = max(-allowance.tokens, 0.0)
                # Whole tokens, so that rounding leaves none missing.
                wanted = max(lease_of(rate), math.ceil(allowance.missing - owed))
                grant = await store.take(id, owed, wanted, rate.per_s, rate.burst)
                allowance.tokens += owed + grant.tokens
                if grant.tokens < wanted and allowance.missing > 0.0:
                    # The bucket is empty, and gives nothing until it has a whole token.
                    first_s = grant.wait_s or 1.0 / rate.per_s
                    wait_s = first_s + max(allowance.missing - 1.0, 0.0) / rate.per_s
                    allowance.closed_until = self._clock() + wait_s
                    raise TooManyRequests(wait_s)
            allowance.tokens -= 1.0

    def reserve(self, id: str, count: float) -> None:
        """Hold tokens back for rounds under way."""
        allowance = self._of.get(id)
        if allowance is not None:
            allowance.reserved += count

    async def settle(self, id: str, rate: Rate, store: KeyStore, reserved: float, spent: float) -> None:
        """Take what the rounds cost in the end, and release what was reserved for them. Raises a StoreError; a debt stays."""
        allowance = self._of.get(id)
        if allowance is None:
            return
        # It may have been forgotten and made anew meanwhile.
        allowance.reserved = max(0.0, allowance.reserved - reserved)
        allowance.tokens -= spent
        allowance.closed_until = -math.inf
        async with allowance.lock:
            await _balance(id, allowance, rate, store)

    def _check(self, allowance: Allowance) -> None:
        wait_s = allowance.closed_until - self._clock()
        if wait_s > 0.0:
            raise TooManyRequests(wait_s)


async def _balance(id: str, allowance: Allowance, rate: Rate, store: KeyStore) -> None:
    """Pay the debt, or give back the unused tokens, if it is more than a lease, for other workers to know."""
    lease = lease_of(rate)
    debt = -allowance.tokens
    unused = allowance.tokens - allowance.reserved - lease
    owed = debt if debt > lease else -max(unused, 0.0)
    if not owed:
        return
    allowance.tokens += owed
    try:
        await store.take(id, owed, 0.0, rate.per_s, rate.burst)
    except BaseException:
        # A lost reply: the bucket may then have too few tokens, never too many.
        allowance.tokens -= max(owed, 0.0)
        raise
