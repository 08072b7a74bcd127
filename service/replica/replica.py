"""One worker's copy of one session, and what it knows of the session's journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from okl_core.records.record import size_of

from ..session.codec import WaitingEntry
from ..session.session import Session
from ..session.turn import Outcome, Position, Turn
from ..store.base import Full, Head

WAITING_BYTES = 1 << 20
"""Waiting predictions of a session that a worker remembers; the store has them all."""

SESSION_BYTES = 30_000
"""What the Python objects of a replica take beside its numbers, as `python -m bench.scale` measures it."""
OBJECT_BYTES = 1_000
"""The same for a waiting prediction."""


CONTENDED_S = 1.0
"""For so long after another worker was first at a session, a turn that learns ahead keeps a copy from before it."""

COPIED_BYTES = 4 << 20
"""To copy a larger session costs more than a turn: while other workers compete for it, a turn takes one request, and needs a
copy for a block or a stream's frame alone."""


@dataclass(slots=True)
class Remembered:
    """A prediction that this worker made, and until when it waits, by the worker's own monotonic clock."""

    entry: WaitingEntry
    until: float
    nbytes: int


@dataclass(slots=True)
class Journal:
    """What lies after the latest snapshot; `seconds` is about the time that replaying it takes."""

    snapshot_round: int = -1
    snapshot_bytes: int = 0
    rounds: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def start(self, round: int, snapshot_bytes: int) -> None:
        """A snapshot of this size, at this round, is where the journal starts."""
        self.snapshot_round, self.snapshot_bytes = round, snapshot_bytes
        self.rounds = self.bytes = 0
        self.seconds = 0.0

    def see(self, head: Head) -> None:
        """What the store counts; another worker may have written a snapshot."""
        round = -1 if head.snapshot_tip is None else head.snapshot_tip.round
        if round != self.snapshot_round:
            self.start(round, head.snapshot_bytes)
        self.rounds, self.bytes = head.journal_rounds, head.journal_bytes

    def add(self, rounds: int, size: int, seconds: float) -> None:
        self.rounds += rounds
        self.bytes += size
        self.seconds += seconds


@dataclass(slots=True)
class Replica:
    """`session` is None until it is loaded, and while it is being changed; it stands at `position`.

    `size` is the memory of the learner when it was last measured, `beside` that of the history. A round takes about
    `round_s`, which is 0 until a round was timed; `timed` counts the measurements.
    """

    name: str
    session: Session | None = None
    position: Position | None = None
    waiting: dict[str, Remembered] = field(default_factory=dict)
    waiting_bytes: int = 0
    store_waiting: int = 0
    never_came: int = 0
    """Predictions of the session, as the store counted them last."""
    size: int = 0
    beside: int = 0
    round_s: float = 0.0
    timed: int = 0
    journal: Journal = field(default_factory=Journal)
    unfinished: Turn | None = None
    """A turn whose clients were answered, and whose last round is not learned yet."""
    contended_until: float = 0.0
    is_snapshot_under_way: bool = False
    wants_snapshot: bool = False
    added: int = 0
    """Rounds and predictions since somebody looked at the memory."""
    is_used: bool = False
    """Requests are at this session now: it is not dropped meanwhile."""
    alarms: int = 0
    """Alarms of the session that this worker knows of."""
    asked_at: float | None = None
    """When this worker predicted last without a round, in a session of a template: seconds since the epoch."""

    @property
    def is_contended(self) -> bool:
        """Were other workers first at this session lately?"""
        return self.contended_until > asyncio.get_running_loop().time()

    @property
    def is_one_by_one(self) -> bool:
        """Does a turn take one request, so that it needs no copy?"""
        return self.size > COPIED_BYTES and self.is_contended

    def contend(self) -> None:
        self.contended_until = asyncio.get_running_loop().time() + CONTENDED_S

    @property
    def nbytes(self) -> int:
        return self.size + self.beside + self.waiting_bytes + SESSION_BYTES

    def measure(self, session: Session) -> None:
        """Look at the memory that it takes."""
        self.size, self.beside = session.nbytes, session.history.nbytes

    def drop(self) -> None:
        """Forget the copy, and what was made from it."""
        self.session = self.position = self.unfinished = None
        self.waiting.clear()
        self.waiting_bytes = 0

    def undo(self, turn: Turn, before: Session | None) -> None:
        """Take back what the turn has learned ahead: to the copy from before it, or to none."""
        if turn.has_learned:
            if before is None:
                self.drop()
            else:
                self.session = before

    def keep(self, turn: Turn, outcomes: Sequence[Outcome], now: float) -> int:
        """Remember what waits since this turn; how many predictions had no room."""
        for hold, outcome in zip(turn.holds, outcomes, strict=True):
            if outcome is None:
                self.remember(hold.id, turn.made[hold.id], now + hold.wait_s)
        return sum(isinstance(outcome, Full) for outcome in outcomes)

    def remember(self, id: str, entry: WaitingEntry, until: float) -> None:
        self.forget([id])
        lags, many = entry.lags, entry.forecast.probabilities
        nbytes = OBJECT_BYTES + len(id) + size_of(entry.x)
        nbytes += (0 if lags is None else lags.nbytes) + 32 * (0 if many is None else len(many))
        self.waiting[id] = Remembered(entry, until, nbytes)
        self.waiting_bytes += nbytes
        while self.waiting_bytes > WAITING_BYTES:
            self.forget([next(iter(self.waiting))])

    def forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            if (found := self.waiting.pop(id, None)) is not None:
                self.waiting_bytes -= found.nbytes
