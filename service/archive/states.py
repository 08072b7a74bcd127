"""Session states: download, upload, clone, checkpoint, roll back, rename."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, final

from okl.errors import (
    CheckpointNotFound,
    InvalidSnapshot,
    LimitReached,
    Overloaded,
    SessionFollows,
    SessionNotFound,
)

from ..rounds import Rounds
from ..session.definition import Definition
from ..session.limits import SessionLimits
from ..session.names import is_challenger
from ..session.precondition import IfTip, check_tip
from ..session.record import encode_record
from ..session.session import Session
from ..session.snapshot import pack
from ..session.summary import encode_summary, summary_of
from ..session.turn import Position
from ..sessions import Inspected, Sessions
from ..store.base import DIGEST_BYTES, Full, Head, Store, Tip, unless_gone
from ..store.moving import Checkpoint
from ..store.store_time import time_of
from .mover import rename
from .portable import clash, definition_in, pack_state, unpack_state

log = logging.getLogger("okl.sessions")

Check = Callable[[Definition], None]
"""Raises ServiceError for a definition of which this service would not create a session."""


class Taken(NamedTuple):
    """A session's definition and state at a tip."""

    blob: bytes
    tip: Tip


class Current(NamedTuple):
    """The session that is to be replaced: a copy of it, and how many of its alarms were delivered."""

    position: Position
    twin: Session
    told: int


@final
class States:
    """Raises ServiceError only. Awaited are `renamed` with the new name of a session that was renamed, and `before_trim` with
    that of one whose journal is about to begin anew. `replaced` is called with a state that another one has replaced, where
    the session was, and how many of its alarms were delivered. Replacing the state of a session that others keep writing to
    is tried for `patience_s`."""

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        sessions: Sessions,
        limits: SessionLimits,
        *,
        renamed: Callable[[str], Awaitable[None]],
        before_trim: Callable[[str], Awaitable[None]],
        patience_s: float,
        replaced: Callable[[Session, Position, int], None] | None = None,
    ) -> None:
        self._store = store
        self._rounds = rounds
        self._sessions = sessions
        self._limits = limits
        self._renamed = renamed
        self._before_trim = before_trim
        self._patience_s = patience_s
        self._replaced = replaced

    async def take(self, name: str) -> Taken:
        """The session's current state. Raises SessionNotFound."""

        def packed(session: Session, _: Head, position: Position) -> Taken:
            return Taken(pack_state(session), position.tip)

        return await self._rounds.with_session(name, packed)

    async def clone(self, name: str, new_name: str) -> Inspected:
        """Create a session with the same state, which then learns independently.

        Raises SessionNotFound, SessionExists, LimitReached.
        """
        state = await self.take(name)
        return await self._sessions.add(await self._unpacked(new_name, state.blob))

    async def create(self, name: str, blob: bytes, check: Check) -> Inspected:
        """Create a session from a state. Raises InvalidSnapshot, SessionFollows, SessionExists, LimitReached."""
        _check_free(name)
        check(definition_in(blob))
        return await self._sessions.add(await self._unpacked(name, blob))

    async def keep(self, name: str, checkpoint: str | None) -> Checkpoint:
        """Keep the session's current state, in place of one of the same name; the name defaults to `t<round>`.

        Raises SessionNotFound, LimitReached, CheckpointNotFound.
        """

        def packed(session: Session, _: Head, position: Position) -> tuple[Position, bytes]:
            return position, pack_state(session)

        (identity, tip), blob = await self._rounds.with_session(name, packed)
        label = checkpoint or f"t{tip.round}"
        kept = await self._store.keep(name, identity, label, tip, blob)
        if isinstance(kept, Full):
            raise LimitReached(f"Session {name!r} keeps as many checkpoints as it may; delete one first.", session=name)
        if not kept:
            raise SessionNotFound(name)
        log.info("checkpoint kept", extra={"session": name, "checkpoint": label, "t": tip.round})
        for one in await self.kept(name):
            if one.name == label:
                return one
        raise no_checkpoint(name, label)  # deleted meanwhile

    async def kept(self, name: str) -> Sequence[Checkpoint]:
        """Raises SessionNotFound."""
        return unless_gone(await self._store.kept(name), name)

    async def drop(self, name: str, checkpoint: str) -> None:
        """Raises SessionNotFound, CheckpointNotFound."""
        if not await self._store.drop(name, checkpoint):
            await self.kept(name)
            raise no_checkpoint(name, checkpoint)

    async def roll_back(self, name: str, checkpoint: str, if_tip: IfTip) -> Inspected:
        """Continue the session from a checkpoint, as in `put`. Raises CheckpointNotFound, too."""
        blob = await self._store.kept_state(name, checkpoint)
        if blob is None:
            await self.kept(name)
            raise no_checkpoint(name, checkpoint)
        return await self._go_on(name, await self._unpacked(name, blob), if_tip)

    async def rename(self, name: str, new_name: str) -> Inspected:
        """Rename a session and its challengers. Raises SessionNotFound, SessionExists, SessionMoving."""
        _check_free(name)
        await rename(self._store, name, new_name)
        await self._renamed(new_name)
        return await self._sessions.inspect(new_name)

    async def put(self, name: str, blob: bytes, check: Check, if_tip: IfTip) -> Inspected:
        """Continue the session from this state; waiting predictions and remembered ids stay.

        `if_tip` names the tips at which the session may be. Raises SessionNotFound, InvalidSnapshot,
        PreconditionFailed.
        """
        check(definition_in(blob))
        return await self._go_on(name, await self._unpacked(name, blob), if_tip)

    async def _unpacked(self, name: str, blob: bytes) -> Session:
        """Unpack a state in a thread, since a large one takes a while."""
        return await asyncio.to_thread(unpack_state, name, blob, self._limits)

    async def _go_on(self, name: str, session: Session, if_tip: IfTip) -> Inspected:
        _check_free(name)
        # First, since challengers take a while.
        await self._checked(name, session, if_tip)
        await self._before_trim(name)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience_s
        while loop.time() < give_up:
            now, trouble = await self._checked(name, session, if_tip)
            tip = now.position.tip
            session.definition = replace(session.definition, template=now.twin.definition.template)
            if await self.replace(name, now, session, unless_waiting=trouble is not None):
                extra = {"session": name, "t": session.t, "instead_of": tip.round}
                log.info("session goes on from another state", extra=extra)
                return await self._sessions.inspect(name)
        raise Overloaded(f"Session {name!r} is written to all the while; try again.", session=name)

    async def _checked(self, name: str, session: Session, if_tip: IfTip) -> tuple[Current, str | None]:
        """Return the present session, and why `session` could not settle waiting predictions, if so.

        Raises SessionNotFound, PreconditionFailed, InvalidSnapshot.
        """
        now = await self._rounds.with_session(name, current)
        check_tip(name, now.position.tip, if_tip)
        trouble = clash(now.twin, session)
        if trouble is not None and await self.has_waiting(name):
            raise InvalidSnapshot(
                f"The snapshot cannot take the place of {name!r}, whose predictions wait for their truths: {trouble}. "
                "Settle or cancel them, or make a new session of it with `If-None-Match: *`."
            )
        return now, trouble

    async def has_waiting(self, name: str) -> bool:
        """Whether any prediction waits. The head counts some that have expired since the last commit."""
        return unless_gone(await self._store.count_waiting(name, [math.inf]), name)[0] > 0

    async def replace(self, name: str, former: Current, session: Session, *, unless_waiting: bool = False) -> bool:
        """Continue the session from another one's state, if it is still at the former position, and with `unless_waiting` if
        no prediction waits (a prediction that is made meanwhile does not change the position)."""
        to = Tip(session.t, secrets.token_bytes(DIGEST_BYTES))
        asked_at = await time_of(self._store, name)
        identity = former.position.identity
        is_replaced = await self._store.replace(
            name,
            former.position.tip,
            encode_record(session.definition, identity),
            to,
            await asyncio.to_thread(pack, session, str(Position(identity, to))),
            # This is use of a session, which its last rounds may no longer tell.
            summary=encode_summary(replace(summary_of(session), asked_at=asked_at)),
            told=_told(former, session),
            unless_waiting=unless_waiting,
        )
        if is_replaced and self._replaced is not None:
            self._replaced(former.twin, former.position, former.told)
        return is_replaced


def _told(former: Current, session: Session) -> int:
    """Return how many alarms of the new state count as delivered: those before the first that the former has and waits for
    its delivery. The others were delivered, or are those of another session."""
    alarms, before = session.history.alarms, former.twin.history.alarms
    return 0 if alarms is None else alarms.before(() if before is None else before.after(former.told))


def _check_free(name: str) -> None:
    """Raises SessionFollows."""
    if is_challenger(name):
        raise SessionFollows(f"Session {name!r} is a challenger; what it is follows from its champion.", session=name)


def no_checkpoint(name: str, checkpoint: str) -> CheckpointNotFound:
    return CheckpointNotFound(f"Session {name!r} has no checkpoint {checkpoint!r}.", session=name)


def current(session: Session, head: Head, position: Position) -> Current:
    return Current(position, session.copy(), head.told)
