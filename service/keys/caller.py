"""Authorization of the current request: its key, and the sessions that it may name.

Every session name in a request, in its path, its query or its body, is parsed as a `Name` of `service.api.values`, and each
`Name` passes through `named` here. So no route needs a separate check, and none can forget it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from okl.errors import Forbidden, ServiceError, TooManyRequests, Unauthenticated

from .key import Key, KeyScope
from .keyring import Keyring

MOST_NAMED: Final = 8
"""The most sessions in one record of the audit log."""


@dataclass(slots=True)
class Caller:
    """An admitted request; `key` is None if no key is required."""

    key: Key | None
    keyring: Keyring
    has_cookie: bool = False
    sessions: tuple[str, ...] = ()
    outside: str | None = None
    """A session that the request named without permission."""
    has_token: bool = True
    """Whether the token that admitted the request is still to be used, by its first message or block."""

    @property
    def key_id(self) -> str | None:
        return None if self.key is None else self.key.id

    async def check(self) -> None:
        """Raises Unauthenticated once the key is revoked or has expired, or once a key is required; or a StoreError."""
        keyring = self.keyring
        if keyring.is_stale:
            await keyring.refresh()
        if self.key is None and keyring.is_required:
            raise Unauthenticated(
                "This service requires a key by now: send the header `Authorization: Bearer okl_...`."
            )
        if self.key is not None and not keyring.is_still_good(self.key):
            raise Unauthenticated("The key was revoked, or it has expired.")

    def enter(self, session: str) -> None:
        """Note a session that the request names. Raises Forbidden, whether or not the session exists."""
        if session not in self.sessions and len(self.sessions) < MOST_NAMED:
            self.sessions += (session,)
        if self.key is not None and not session.startswith(self.key.prefix):
            self.outside = session
            raise Forbidden("This key is for other sessions.")


PACED_S: Final = 10.0
"""The longest wait of a frame's messages, or a block of lines, for the rate of their key; meanwhile nothing more is read."""

LEAST_WAIT_S: Final = 0.01

current: Final[ContextVar[Caller | None]] = ContextVar("caller", default=None)


def named(session: str) -> str:
    """The name, if the request may use it. Raises Forbidden."""
    caller = current.get()
    if caller is not None:
        caller.enter(session)
    return session


def prefix() -> str:
    """The prefix of the names of all sessions that the request may see."""
    caller = current.get()
    return "" if caller is None or caller.key is None else caller.key.prefix


def may(scope: KeyScope) -> bool:
    """Whether the request has this scope. Use it to show or hide an action, not to guard it."""
    caller = current.get()
    return caller is None or caller.key is None or caller.key.scope >= scope


class Bill:
    """The rounds of a request that its key is charged for; the request itself counts as one of them."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    @property
    def beyond(self) -> int:
        """The tokens to charge beyond that of the request."""
        return max(self.rounds - 1, 0)

    def waive(self, rounds: int) -> None:
        """Do not charge rounds that were refused, or are duplicates. Otherwise a body that is sent again, to resume where it
        was refused, would spend all new tokens on rounds that were learned before, and never advance."""
        self.rounds -= rounds


@asynccontextmanager
async def spending(rounds: int) -> AsyncIterator[Bill]:
    """Charge all rounds of a request to its key once they are played; a request that is refused costs only itself."""
    bill, caller = Bill(rounds), current.get()
    if caller is None or caller.key is None:
        yield bill
        return
    reserved = bill.beyond
    caller.keyring.reserve(caller.key, reserved)
    try:
        yield bill
    except ServiceError:
        bill.waive(rounds)
        raise
    finally:
        await caller.keyring.settle(caller.key, reserved, bill.beyond)


async def check() -> None:
    """Raises Unauthenticated, or a StoreError, if the request would no longer be admitted."""
    caller = current.get()
    if caller is not None:
        await caller.check()


async def admit() -> None:
    """Count a message of a stream or a block of lines as a request; the first one is paid for by the stream's own request,
    so that a key with a low rate gets on. Raises TooManyRequests, or as `check`."""
    await check()
    caller = current.get()
    if caller is None or caller.key is None:
        return
    if not caller.has_token:
        await caller.keyring.admit(caller.key)
    caller.has_token = False


async def paced(until: float) -> None:
    """As `admit`, but wait for the key's rate. Raises as `admit` if the wait would last beyond the loop's time `until`."""
    while True:
        try:
            return await admit()
        except TooManyRequests as error:
            if asyncio.get_running_loop().time() + error.wait_s > until:
                raise
            await asyncio.sleep(max(error.wait_s, LEAST_WAIT_S))
