"""The request under way as far as keys go: whose it is, and which sessions it may name.

Every name of a session that a request gives, in its path, its query or its body, is read as a `Name` of `service.api.values`,
and each `Name` passes through `named` here. So no route needs a check of its own, and none can forget it.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from okl.errors import Forbidden, TooManyRequests, Unauthenticated

from .key import Key, KeyScope
from .keyring import Keyring

MOST_NAMED: Final = 8
"""So many sessions are told in the audit log."""


@dataclass(slots=True)
class Visit:
    """A request that was let in; `key` is None where no key is required."""

    key: Key | None
    keyring: Keyring
    has_cookie: bool = False
    sessions: tuple[str, ...] = ()
    outside: str | None = None
    """A session that it may not name, and has."""

    @property
    def key_id(self) -> str | None:
        return None if self.key is None else self.key.id

    def enter(self, session: str) -> None:
        """Raises Forbidden, whether or not there is such a session."""
        if session not in self.sessions and len(self.sessions) < MOST_NAMED:
            self.sessions += (session,)
        if self.key is not None and not session.startswith(self.key.prefix):
            self.outside = session
            raise Forbidden("This key is for other sessions.")


PACED_S: Final = 10.0
"""So long the messages of a frame, or a block of lines, wait for the rate of their key; meanwhile nothing more is read."""

LEAST_WAIT_S: Final = 0.01

current: Final[ContextVar[Visit | None]] = ContextVar("visit", default=None)


def named(session: str) -> str:
    """The name, if the request may give it. Raises Forbidden."""
    visit = current.get()
    if visit is not None:
        visit.enter(session)
    return session


def prefix() -> str:
    """How the names of the sessions begin that the request may see."""
    visit = current.get()
    return "" if visit is None or visit.key is None else visit.key.prefix


def may(scope: KeyScope) -> bool:
    """Whether the request may do what this scope is for; to show or to hide it, not to guard it."""
    visit = current.get()
    return visit is None or visit.key is None or visit.key.scope >= scope


def spend(rounds: int) -> None:
    """Count all rounds of a request against its key's rate; the request itself has counted for the first."""
    visit = current.get()
    if visit is not None and visit.key is not None and rounds > 1:
        visit.keyring.spend(visit.key, rounds - 1)


def give_back(rounds: int) -> None:
    """Of what was spent on a request whose rounds are told again: all but the one. Else a body that is sent again, to go on
    where it was refused, would spend on what was learned before all that has flowed in, and never go on."""
    visit = current.get()
    if visit is not None and visit.key is not None and rounds > 1:
        visit.keyring.spend(visit.key, 1 - rounds)


async def admit() -> None:
    """Count one more request, such as a message of an open socket. Raises TooManyRequests; or Unauthenticated, once the key
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
    """The same, once the key's rate lets it in. Raises as `admit`, where it does not before that time of the loop."""
    while True:
        try:
            return await admit()
        except TooManyRequests as error:
            if asyncio.get_running_loop().time() + error.wait_s > until:
                raise
            await asyncio.sleep(max(error.wait_s, LEAST_WAIT_S))
