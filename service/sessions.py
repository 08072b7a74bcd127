"""The life cycle of sessions: create, list, inspect, freeze, delete."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from okl.errors import (
    CannotFreeze,
    LimitReached,
    PredictionNotFound,
    SessionMoved,
    SessionMoving,
    SessionNotFound,
    UnknownLearner,
)
from okl_core import LearnerSpec
from okl_core import errors as core
from okl_core.contract.frozen import FreezeRule
from okl_core.errors import did_you_mean, quoted
from okl_core.monitoring.verdict import Judgement
from okl_core.records.preparation import Preparation

from .pointers import invalid_config
from .rounds import Rounds
from .session.definition import Definition, Scalar
from .session.freezing import freeze_session
from .session.history.alarms import Alarm
from .session.limits import SessionLimits
from .session.names import challenger_name, is_challenger
from .session.played import FrozenFrom
from .session.precondition import ANYWHERE, IfTip, check_tip, precondition_failed
from .session.record import encode_record
from .session.refusals import session_follows
from .session.scorecard import Tally
from .session.session import Session
from .session.snapshot import pack
from .session.summary import Summary, decode_summary, encode_summary, first_summary, summary_of
from .session.turn import Position
from .store.all_heads import heads_of
from .store.base import DIGEST_BYTES, Gone, Head, Store, Tip, unless_gone
from .store.store_time import time_of

log = logging.getLogger("okl.sessions")


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list of sessions: the store's counts, and the latest summary."""

    head: Head
    summary: Summary


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of sessions; `cursor` asks for the next page, None at the end."""

    sessions: Sequence[Listed]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Inspected:
    """Everything about one session."""

    head: Head
    definition: Definition
    spec: LearnerSpec | None
    t: int
    labels: Sequence[Scalar]
    preparation: Preparation | None
    dim: int | None
    is_warming_up: bool
    frozen: FrozenFrom | None
    lags: list[float] | None
    tally: Tally
    is_classifier: bool
    coverage: float | None
    verdict: Judgement | None
    alarms: Sequence[Alarm]
    describe: dict[str, float]
    nbytes: int


class Sessions:
    """The sessions of a store, `most` at most. Raises ServiceError only."""

    def __init__(self, store: Store, rounds: Rounds, limits: SessionLimits, *, most: int) -> None:
        self._store = store
        self._rounds = rounds
        self._limits = limits
        self._most = most
        self._adding = asyncio.Lock()

    async def create(self, definition: Definition) -> Inspected:
        """Create a session. Raises InvalidInput, InvalidConfig, UnknownLearner, SessionExists, LimitReached."""
        await self.make(definition)
        return await self.inspect(definition.name)

    def check(self, definition: Definition) -> None:
        """Check a definition. Raises InvalidInput, InvalidConfig, UnknownLearner."""
        session = made_of(definition)
        if session.dim is not None:
            pointer = "/schema" if definition.schema else "/dim" if definition.dim else "/hashed"
            self._limits.check_size(session, session.dim, pointer)

    async def make(self, definition: Definition) -> None:
        """As `create`, without inspecting the session."""
        self.check(definition)
        await self._add(definition)
        facts = {"session": definition.name, "kind": first_summary(definition).kind}
        named = {} if definition.template is None else {"template": definition.template}
        log.info("session created", extra=facts | named)

    async def freeze(self, name: str, new_name: str, rule: FreezeRule) -> Inspected:
        """Create a frozen session from the present round of this one.

        Raises SessionNotFound, CannotFreeze, SessionExists, LimitReached.
        """

        def frozen_twin(session: Session, *_: object) -> Session:
            try:
                return freeze_session(session, new_name, rule).copy()
            except core.StateError as error:
                raise CannotFreeze(f"Session {name!r} cannot be frozen: {error}.", session=name) from error

        twin = await self._rounds.with_session(name, frozen_twin)
        inspected = await self.add(twin)
        log.info("session frozen", extra={"session": name, "frozen": new_name, "t": twin.t})
        return inspected

    async def add(self, session: Session) -> Inspected:
        """Create a session that starts with a state. Raises SessionExists, LimitReached."""
        await self._add(session.definition, session)
        return await self.inspect(session.definition.name)

    async def _add(self, definition: Definition, session: Session | None = None) -> None:
        # The alarms of the state are another session's, which delivers them.
        told = 0 if session is None else session.history.alarm_count
        first = Tip(0 if session is None else session.t, secrets.token_bytes(DIGEST_BYTES))
        blob = None if session is None else pack(session, str(Position(first.digest, first)))
        record = encode_record(definition, first.digest)
        summary = encode_summary(first_summary(definition) if session is None else summary_of(session))
        # One after the other, so that this worker's requests together do not exceed the limit.
        async with self._adding:
            if await self._store.count() >= self._most:
                raise LimitReached(f"There are {self._most} sessions; delete one first.")
            if not is_challenger(definition.name):
                await delete_orphans(self._store, definition.name)
            await self._store.create(definition.name, record, first, blob, summary=summary, told=told)

    async def inspect(self, name: str) -> Inspected:
        """Return everything about a session. Raises SessionNotFound."""
        return await self._rounds.with_session(name, _inspected)

    async def list(self, cursor: str | None, limit: int, prefix: str = "") -> Listing:
        """List sessions whose names start with `prefix`, by name. Unreadable ones are listed too: no state is decoded."""
        if prefix and (cursor is None or cursor < prefix):
            # Start after all names that sort before those with the prefix.
            cursor = prefix[:-1] + chr(ord(prefix[-1]) - 1) + chr(0x7F)
        page = await self._store.list(cursor, limit)
        heads = [head for head in page.heads if head.name.startswith(prefix)]
        # The page may end at an unreadable session without the prefix, whose name is not for this caller.
        next_cursor = page.cursor if page.cursor is not None and page.cursor.startswith(prefix) else None
        return Listing([Listed(head, decode_summary(head.summary)) for head in heads], next_cursor)

    async def count(self, prefix: str) -> int:
        """Count the sessions whose names start with `prefix`."""
        return await self._store.count(prefix)

    async def cancel(self, name: str, id: str) -> None:
        """Cancel a prediction whose truth will never come, in the challengers too.

        Raises SessionNotFound, SessionFollows, PredictionNotFound.
        """
        unless_gone(await self._store.head(name), name)
        if is_challenger(name):
            raise session_follows(name)
        # The champion's last, so that a request that was cut off is completed when it is sent again.
        for challenger in await challengers_of(self._store, name):
            await self._rounds.cancel(challenger, id)
        if not await self._rounds.cancel(name, id):
            raise PredictionNotFound(f"No prediction {id!r} waits in session {name!r}.", session=name, id=id)

    async def delete(self, name: str, if_tip: IfTip = None) -> None:
        """Delete a session and its challengers; with `if_tip` only if it is at one of these tips.

        Raises SessionNotFound, PreconditionFailed.
        """
        tip = None
        if if_tip is not None and ANYWHERE not in if_tip:
            head = unless_gone(await self._store.head(name), name)
            tip = head.tip
            check_tip(name, tip, if_tip)
        if not await self._store.delete(name, tip):
            head = await self._store.head(name)
            raise SessionNotFound(name) if isinstance(head, Gone) else precondition_failed(name, head.tip)
        log.info("session deleted", extra={"session": name})
        await self._clear_up(name)

    async def delete_unused(self, head: Head, not_before: float) -> bool:
        """Delete a session if it is unchanged since `head` was read, no prediction waits, and it is time by the store's clock
        too: a worker whose clock is wrong would delete what others use. Raises SessionMoving."""
        now = await time_of(self._store, head.name)
        if now is None or now < not_before:
            return False
        is_deleted = await self._store.delete(head.name, head.tip, unless_waiting=True)
        if is_deleted:
            await self._clear_up(head.name)
        return is_deleted

    async def _clear_up(self, deleted: str) -> None:
        """Delete the challengers of a deleted session, and drop this worker's copies. Those of other workers go when room is
        needed."""
        self._rounds.replicas.discard(deleted)
        for challenger in await challengers_of(self._store, deleted):
            await self._store.delete(challenger)
            self._rounds.replicas.discard(challenger)


async def challengers_of(store: Store, champion: str) -> list[str]:
    """Return the names of the sessions that follow this one."""
    return [head.name for head in await _challenger_heads(store, champion)]


async def delete_orphans(store: Store, champion: str) -> None:
    """Delete challengers whose champion is gone, left by a worker killed after deleting the champion but not them."""
    orphans = await _challenger_heads(store, champion)
    # Read before the champion's head, and deleted only at the tips read: challengers of a new champion of this name stay.
    if not orphans or not isinstance(await store.head(champion), Gone):
        return
    for head in orphans:
        with contextlib.suppress(SessionMoving, SessionMoved):
            if await store.delete(head.name, head.tip):
                log.info("challenger without a champion deleted", extra={"session": head.name})


async def _challenger_heads(store: Store, champion: str) -> list[Head]:
    prefix, found = challenger_name(champion, ""), list[Head]()
    # Most sessions have none, and a page of heads holds those of others.
    if not await store.count(prefix):
        return found
    async with contextlib.aclosing(heads_of(store, 100, prefix)) as heads:
        async for head in heads:
            if not head.name.startswith(prefix):
                break
            found.append(head)
    return found


def _inspected(session: Session, head: Head, _: object) -> Inspected:
    return Inspected(
        head=head,
        definition=session.definition,
        spec=session.spec,
        t=session.t,
        labels=() if session.task is None else session.task.truths.names,
        preparation=session.preparation,
        dim=session.dim,
        is_warming_up=session.is_warming_up,
        frozen=session.frozen,
        lags=None if session.lags is None else session.lags.tolist(),
        tally=session.card.tally(),
        is_classifier=session.task is not None and session.task.truths.is_classifier,
        coverage=None if session.coverage is None else session.coverage.share,
        verdict=None if session.history.verdict is None else session.history.verdict.judgement(),
        alarms=() if session.history.alarms is None else session.history.alarms.latest,
        describe=session.describe(),
        nbytes=session.nbytes,
    )


def made_of(definition: Definition) -> Session:
    """Make a new session from a definition. Raises UnknownLearner, InvalidConfig, InvalidInput."""
    try:
        return Session(definition)
    except core.UnknownKind as error:
        detail = f"There is no kind {quoted(error.kind)}{did_you_mean(error.kind, error.known)}."
        raise UnknownLearner(detail, known=list(error.known)) from error
    except core.ConfigError as error:
        learner = {} if definition.learner is None else definition.learner.model_dump()
        raise invalid_config(learner, error.errors) from error
