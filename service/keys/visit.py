"""Authorization of the current request: its key, and the sessions that it may name.

Every session name in a request, in its path, its query or its body, is parsed as a `Name` of `service.api.values`, and each
`Name` passes through `named` here. So no route needs a separate check, and none can forget it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from okl.errors import Forbidden, ServiceError, TooManyRequests, Unauthenticated

from .key import Key, KeyScope
from .keyring import Keyring

MOST_NAMED: Final = 8
"""The most sessions in one record of the audit log."""


@dataclass(slots=True)
class Visit:
    """An admitted request; `key` is None if no key is required."""

    key: Key | None
    keyring: Keyring
    has_cookie: bool = False
    sessions: tuple[str, ...] = ()
    outside: str | None = None
    """A session that the request named without permission."""

    @property
    def key_id(self) -> str | None:
        return None if self.key is None else self.key.id

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

current: Final[ContextVar[Visit | None]] = ContextVar("visit", default=None)


def named(session: str) -> str:
    """The name, if the request may use it. Raises Forbidden."""
    visit = current.get()
    if visit is not None:
        visit.enter(session)
    return session


def prefix() -> str:
    """The prefix of the names of all sessions that the request may see."""
    visit = current.get()
    return "" if visit is None or visit.key is None else visit.key.prefix


def may(scope: KeyScope) -> bool:
    """Whether the request has this scope. Use it to show or hide an action, not to guard it."""
    visit = current.get()
    return visit is None or visit.key is None or visit.key.scope >= scope


def spend(rounds: int) -> None:
    """Count all rounds of a request against its key's rate; the first is counted already, with the request."""
    visit = current.get()
    if visit is not None and visit.key is not None and rounds > 1:
        visit.keyring.spend(visit.key, rounds - 1)


class Bill:
    """What a request of several rounds will cost, beside the request itself."""

    def __init__(self, rounds: int) -> None:
        self.rounds = max(rounds - 1, 0)

    def waive(self) -> None:
        """Charge nothing: the rounds were refused, or are duplicates. Otherwise a body that is sent again, to resume where it
        was refused, would spend all new tokens on rounds that were learned before, and never advance."""
        self.rounds = 0


@contextmanager
def spending(rounds: int) -> Iterator[Bill]:
    """Charge all rounds of a request to its key once they are played; a request that is refused costs only itself."""
    bill, visit = Bill(rounds), current.get()
    if visit is None or visit.key is None:
        yield bill
        return
    reserved = bill.rounds
    visit.keyring.reserve(visit.key, reserved)
    try:
        yield bill
    except ServiceError:
        bill.waive()
        raise
    finally:
        visit.keyring.settle(visit.key, reserved, bill.rounds)


async def admit() -> None:
    """Count one more request, such as a message of an open socket. Raises TooManyRequests, or Unauthenticated once the key
    is revoked or has expired."""
    visit = current.get()
    if visit is None or visit.key is None:
        return
    if visit.keyring.is_stale:
        await visit.keyring.refresh()
    if not visit.keyring.is_still_good(visit.key):
        raise Unauthenticated("The key was revoked, or it has expired.")
    await visit.keyring.admit(visit.key)


async def paced(until: float) -> None:
    """As `admit`, but wait for the key's rate. Raises as `admit` if the wait would last beyond the loop's time `until`."""
    while True:
        try:
            return await admit()
        except TooManyRequests as error:
            if asyncio.get_running_loop().time() + error.wait_s > until:
                raise
            await asyncio.sleep(max(error.wait_s, LEAST_WAIT_S))
