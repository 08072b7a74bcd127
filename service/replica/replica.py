"""A worker's copy of one session, and what the worker knows of the session's journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from okl_core.records.record import size_of

from ..session.codec import WaitingEntry
from ..session.limits import prediction_bytes
from ..session.session import Session
from ..session.turn import Outcome, Position, Turn
from ..store.base import Full, Head

WAITING_BYTES = 1 << 20
"""The most bytes of a session's waiting predictions that a worker remembers; the store has them all."""

SESSION_BYTES = 30_000
"""The memory of a replica's Python objects beside its numbers, as measured by `python -m bench.scale`."""
OBJECT_BYTES = 1_000
"""The memory of a waiting prediction's Python objects."""


CONTENDED_S = 1.0
"""The time after another worker committed first in which turns that learn ahead keep a copy from before them."""

COPIED_BYTES = 4 << 20
"""Copying a larger session costs more than a turn. While other workers compete for it, a turn takes one request, and makes a
copy only for a block or a stream's frame."""


@dataclass(slots=True)
class Remembered:
    """A prediction that this worker made, and its expiry by the worker's monotonic clock."""

    entry: WaitingEntry
    until: float
    nbytes: int


@dataclass(slots=True)
class Journal:
    """The journal after the latest snapshot.

    `seconds` is about the time that a replay takes, `largest` the most bytes that one turn of this worker has added.
    """

    snapshot_round: int = -1
    snapshot_bytes: int = 0
    rounds: int = 0
    bytes: int = 0
    largest: int = 0
    seconds: float = 0.0

    def start(self, round: int, snapshot_bytes: int) -> None:
        """Start after a snapshot of this size, at this round."""
        self.snapshot_round, self.snapshot_bytes = round, snapshot_bytes
        self.rounds = self.bytes = self.largest = 0
        self.seconds = 0.0

    def see(self, head: Head) -> None:
        """Adopt the store's counts; another worker may have written a snapshot."""
        round = -1 if head.snapshot_tip is None else head.snapshot_tip.round
        if round != self.snapshot_round:
            self.start(round, head.snapshot_bytes)
        self.rounds, self.bytes = head.journal_rounds, head.journal_bytes

    def add(self, rounds: int, size: int, seconds: float) -> None:
        self.rounds += rounds
        self.bytes += size
        self.largest = max(self.largest, size)
        self.seconds += seconds


@dataclass(slots=True)
class Replica:
    """A copy of a session at `position`; `session` is None until it is loaded, and while it is being changed.

    `size` is the memory of the learner when last measured, `beside` that of the history. A round takes about `round_s`, which
    is 0 until a round was timed; `timed` counts the measurements.
    """

    name: str
    session: Session | None = None
    position: Position | None = None
    waiting: dict[str, Remembered] = field(default_factory=dict)
    waiting_bytes: int = 0
    store_waiting: int = 0
    never_came: int = 0
    """Predictions of the session whose truth never came; like `store_waiting`, as last counted by the store."""
    size: int = 0
    beside: int = 0
    answer_bytes: int = 0
    """The most bytes of the answer to a prediction, when last measured; 0 until the session was loaded."""
    round_s: float = 0.0
    timed: int = 0
    journal: Journal = field(default_factory=Journal)
    unfinished: Turn | None = None
    """A turn whose clients were answered, but whose last round is not learned yet."""
    contended_until: float = 0.0
    is_snapshot_under_way: bool = False
    wants_snapshot: bool = False
    added: int = 0
    """Rounds and predictions since the memory was last measured."""
    is_used: bool = False
    """Whether requests use the copy now, so that it must not be evicted."""
    is_deleted: bool = False
    """Whether this worker has deleted the session while requests used the copy, which is to be dropped after them."""
    alarms: int = 0
    """Alarms of the session that this worker knows of."""
    has_asked: bool = False
    """Whether this worker has predicted without a round, in a session made by a template, since the last summary."""
    asked_at: float | None = None
    """When it last wrote a summary after that, by the store's clock."""

    @property
    def is_contended(self) -> bool:
        """Whether another worker has recently committed first."""
        return self.contended_until > asyncio.get_running_loop().time()

    @property
    def is_one_by_one(self) -> bool:
        """Whether a turn takes only one request, so that it needs no copy."""
        return self.size > COPIED_BYTES and self.is_contended

    def contend(self) -> None:
        self.contended_until = asyncio.get_running_loop().time() + CONTENDED_S

    @property
    def nbytes(self) -> int:
        return self.size + self.beside + self.waiting_bytes + SESSION_BYTES

    def measure(self, session: Session) -> None:
        """Measure the memory of the session, and its answers."""
        self.size, self.beside = session.nbytes, session.history.nbytes
        self.answer_bytes = prediction_bytes(session)

    def drop(self) -> None:
        """Drop the copy, and everything made from it."""
        self.session = self.position = self.unfinished = None
        self.waiting.clear()
        self.waiting_bytes = 0

    def undo(self, turn: Turn, before: Session | None) -> None:
        """Undo what the turn has learned ahead: return to the copy from before it, or drop the session."""
        if turn.has_learned:
            if before is None:
                self.drop()
            else:
                self.session = before

    def keep(self, turn: Turn, outcomes: Sequence[Outcome], now: float) -> int:
        """Remember the predictions that wait since this turn, and return how many had no room."""
        for hold, outcome in zip(turn.holds, outcomes, strict=True):
            if outcome is None:
                self.remember(hold.id, turn.made[hold.id], now + hold.wait_s)
        return sum(isinstance(outcome, Full) for outcome in outcomes)

    def remember(self, id: str, entry: WaitingEntry, until: float) -> None:
        self.forget([id])
        lags, probabilities = entry.lags, entry.forecast.probabilities
        nbytes = OBJECT_BYTES + len(id) + size_of(entry.x)
        nbytes += (0 if lags is None else lags.nbytes) + 32 * (0 if probabilities is None else len(probabilities))
        self.waiting[id] = Remembered(entry, until, nbytes)
        self.waiting_bytes += nbytes
        while self.waiting_bytes > WAITING_BYTES:
            self.forget([next(iter(self.waiting))])

    def forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            if (prediction := self.waiting.pop(id, None)) is not None:
                self.waiting_bytes -= prediction.nbytes
