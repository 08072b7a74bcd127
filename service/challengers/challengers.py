"""Challengers of a session: attach, list, detach, promote."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np

from okl.errors import (
    CannotPromote,
    LimitReached,
    Overloaded,
    SessionFailed,
    SessionFollows,
    SessionFrozen,
    SessionNotFound,
    StateCorrupt,
)
from okl_core import LearnerSpec
from okl_core.monitoring.duel import Outcome

from ..archive.portable import clash, pack_state
from ..archive.states import Current, States, current
from ..rounds import Rounds
from ..session.names import challenger_name, is_challenger, split_name
from ..session.pairing import Pairing
from ..session.precondition import IfTip, check_tip
from ..session.session import Session
from ..session.summary import decode_summary
from ..session.turn import Position
from ..sessions import Inspected, Sessions, challengers_of, made_of
from ..store.base import Gone, Head, Store, Tip, unless_gone
from ..store.moving import sealed
from .champion import ChampionView, challenger_of
from .feeder import Feeder
from .roster import Roster

MOST_LETTERS = 64
"""The most letters in the name of a checkpoint."""
TRIES = 8
"""Attempts at a promotion before the challenger is fed the champion's waiting predictions again."""

log = logging.getLogger("okl.challengers")

Begin = Literal["now", "journal"]


@dataclass(frozen=True, slots=True)
class ChallengerStatus:
    """What there is to say of a challenger: its progress, and how it compares with its champion.

    It has not seen `behind` rounds yet; `missed` were learned but not compared, `skipped` not learned. All three are None if
    it cannot be loaded. `trouble`: what kept this worker from loading or feeding it, if anything.
    """

    name: str
    kind: str
    t: int
    behind: int | None
    missed: int | None
    skipped: int | None
    is_classifier: bool
    outcome: Outcome | None
    created_at: float
    trouble: str | None


@final
class Challengers:
    """The challengers of a store's sessions, `most` for each champion. Raises ServiceError only."""

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        sessions: Sessions,
        states: States,
        feeder: Feeder,
        roster: Roster,
        *,
        most: int,
        patience_s: float,
    ) -> None:
        self._store = store
        self._rounds = rounds
        self._sessions = sessions
        self._states = states
        self._feeder = feeder
        self._roster = roster
        self._most = most
        self._patience_s = patience_s
        # Challengers are added one after the other, so that this worker's requests together do not exceed the limit.
        self._adding = asyncio.Lock()

    async def attach(self, champion: str, name: str, learner: LearnerSpec | None, begin: Begin) -> ChallengerStatus:
        """Create a session that follows this one, from its present round or from the start of its stored journal.

        Raises SessionNotFound, SessionFollows, SessionFrozen, SessionExists, LimitReached, InvalidConfig, UnknownLearner.
        """
        if is_challenger(champion):
            raise SessionFollows(f"Session {champion!r} is a challenger itself.", session=champion)
        now, tip = await self._rounds.with_session(champion, _session_and_tip)
        if now.frozen is not None:
            raise SessionFrozen(f"Session {champion!r} is frozen; there is nothing to follow.", session=champion)
        if begin == "journal":
            whole = unless_gone(await self._store.whole(champion), champion)
            tip = whole.base
        session = made_of(challenger_of(now, challenger_name(champion, name), learner))
        assert session.pairing is not None
        session.pairing.tip = tip
        async with self._adding:
            if len(await challengers_of(self._store, champion)) >= self._most:
                detail = f"Session {champion!r} has {self._most} challengers; detach one first."
                raise LimitReached(detail, session=champion)
            await self._sessions.add(session)
        head = await self._store.head(champion)
        if isinstance(head, Gone) or head.seal:
            # Whoever deleted or renamed the champion may have listed its challengers before this one existed.
            await self._store.delete(challenger_name(champion, name))
            raise SessionNotFound(champion) if isinstance(head, Gone) else sealed(champion, head.seal)
        log.info("challenger attached", extra={"session": champion, "challenger": name, "begin": tip.round})
        self._roster.add(champion, name)
        return await self.inspect(champion, name)

    async def list(self, champion: str) -> Sequence[ChallengerStatus]:
        """List the challengers by name, also those that cannot be loaded. Raises SessionNotFound."""
        head = unless_gone(await self._store.head(champion), champion)
        found: list[ChallengerStatus] = []
        for name in await challengers_of(self._store, champion):
            with suppress(SessionNotFound):  # it was detached or promoted meanwhile
                own = unless_gone(await self._store.head(name), name)
                try:
                    found.append(await self._status(champion, own, head))
                except (StateCorrupt, SessionFailed) as error:
                    found.append(_broken(own, error.detail))
        return found

    async def inspect(self, champion: str, name: str) -> ChallengerStatus:
        """Return one challenger's status. Raises SessionNotFound."""
        head, own = unless_gone(await self._store.head(champion), champion), challenger_name(champion, name)
        return await self._status(champion, unless_gone(await self._store.head(own), own), head)

    async def detach(self, champion: str, name: str) -> None:
        """Delete the challenger. Raises SessionNotFound."""
        await self._sessions.delete(challenger_name(champion, name))

    async def promote(self, champion: str, name: str, if_tip: IfTip = None) -> Inspected:
        """Give the champion the challenger's learner, state and definition, and delete the challenger.

        Waiting predictions keep waiting, with the forecasts that were issued, and ids stay remembered. The previous state
        is kept as a checkpoint. `if_tip` names the tips at which the champion may be, None for any.

        Raises SessionNotFound, CannotPromote, PreconditionFailed, LimitReached, Overloaded.
        """
        own, loop = challenger_name(champion, name), asyncio.get_running_loop()
        # Check first, so that a promotion that is refused now leaves no checkpoint behind.
        await self._feeder.feed(champion, name)
        former = await self._rounds.with_session(champion, current)
        check_tip(champion, former.position.tip, if_tip)
        session, _ = await self._check(champion, own, former)
        if _are_alike(former.twin, session):
            # An earlier call was cut off after the swap; to keep this state would overwrite the one from before it.
            await self._sessions.delete(own)
            return await self._sessions.inspect(champion)
        # Reserve the checkpoint with the present state. The final state replaces it only after the promotion: a write before
        # that would give a busy champion time for more rounds.
        await self._states.keep(champion, _checkpoint_before(own))
        # The journal begins anew, and the other challengers cannot read what they have not seen by then.
        await self._roster.feed_before_trim(champion)
        give_up = loop.time() + self._patience_s

        def at_last(session: Session, head: Head, position: Position) -> Awaitable[bool]:
            view = ChampionView.of(session, head, position)
            return self._take_place(champion, own, view, current(session, head, position), if_tip)

        while loop.time() < give_up:
            await self._feeder.feed(champion, name)
            # If another worker commits a round meanwhile, the next try has only that round to catch up with.
            for _ in range(TRIES):
                if await self._rounds.with_session(champion, at_last):
                    await self._sessions.delete(own)
                    return await self._sessions.inspect(champion)
        raise Overloaded(f"Session {champion!r} is written to all the while; try again.", session=champion)

    async def _take_place(self, champion: str, own: str, view: ChampionView, former: Current, if_tip: IfTip) -> bool:
        """Promote once; False if another worker wrote to either session meanwhile, or made a prediction it cannot settle."""
        tip = former.position.tip
        check_tip(champion, tip, if_tip)
        fed = await self._feeder.finish(champion, own, view)
        if fed is None or fed.seen != tip:
            return False
        session, trouble = await self._check(champion, own, former)
        session.definition, session.pairing = replace(session.definition, name=champion), None
        if not await self._states.replace(champion, former, session, unless_waiting=trouble is not None):
            return False
        log.info("challenger promoted", extra={"session": champion, "challenger": own, "instead_of": tip.round})
        await self._keep(champion, _checkpoint_before(own), former)
        return True

    async def _check(self, champion: str, own: str, former: Current) -> tuple[Session, str | None]:
        """Return a copy of the challenger, and why it could not settle waiting predictions, if so. Raises CannotPromote."""
        session = await self._rounds.with_session(own, lambda session, *_: session.copy())
        trouble = clash(former.twin, session, with_labels=False)
        reason = "it has learned no round yet" if session.learner is None else None
        if reason is None and trouble is not None and await self._states.has_waiting(champion):
            reason = trouble
        if reason is not None:
            raise CannotPromote(f"{own!r} cannot take the place of {champion!r}: {reason}.", session=champion)
        return session, trouble

    async def _keep(self, champion: str, checkpoint: str, former: Current) -> None:
        """Keep the champion's final state, so that a client can return to it; the checkpoint is reserved already."""
        identity, tip = former.position
        state = pack_state(former.twin)
        if await self._store.keep(champion, identity, checkpoint, tip, state) is not True:
            log.warning("champion not kept", extra={"session": champion, "checkpoint": checkpoint, "t": tip.round})

    async def _status(self, champion: str, own: Head, head: Head) -> ChallengerStatus:
        _, name = split_name(own.name)

        def status(session: Session, own: Head, position: Position) -> ChallengerStatus:
            pairing = session.pairing or Pairing()
            progress = self._feeder.progress_of(session, own, position)
            return ChallengerStatus(
                name,
                session.definition.kind,
                session.t,
                behind=0 if progress.tip is None else max(0, head.tip.round - progress.tip.round),
                missed=pairing.missed,
                skipped=pairing.skipped + progress.skipped,
                is_classifier=session.task is not None and session.task.truths.is_classifier,
                outcome=pairing.outcome,
                created_at=own.created_at,
                trouble=self._roster.trouble(champion, name),
            )

        return await self._rounds.with_session(own.name, status)


def _broken(own: Head, trouble: str) -> ChallengerStatus:
    """The status of a challenger that cannot be loaded."""
    return ChallengerStatus(
        split_name(own.name)[1],
        decode_summary(own.summary).kind,
        own.tip.round,
        behind=None,
        missed=None,
        skipped=None,
        is_classifier=False,
        outcome=None,
        created_at=own.created_at,
        trouble=trouble,
    )


def _are_alike(champion: Session, challenger: Session) -> bool:
    """Whether the two differ in their names and metrics at most, so that a promotion changes nothing."""
    if replace(champion.definition, name=challenger.definition.name, template=None) != replace(
        challenger.definition, template=None
    ):
        return False
    if champion.learner is None or challenger.learner is None:
        return False
    ours, theirs = champion.learner.state(), challenger.learner.state()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def _checkpoint_before(challenger: str) -> str:
    """The name of the champion's state from before this challenger's promotion."""
    return f"before-{split_name(challenger)[1]}"[:MOST_LETTERS]


def _session_and_tip(session: Session, _: Head, position: Position) -> tuple[Session, Tip]:
    return session.copy(), position.tip
