"""One commit in the making: the parts of several requests, played in order on a session at a tip.

A round is learned only when the next one is played, or once it is durable. A turn of a single round therefore leaves the
session unchanged until then, and there is nothing to undo if another worker commits first. A longer turn learns ahead; if its
commit is refused, the session is dropped, or replaced by its copy from before the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from okl.errors import (
    InvalidInput,
    LimitReached,
    PredictionNotFound,
    SessionFrozen,
)
from okl_core import errors as core
from okl_core.records.fields import Fields
from okl_core.records.record import Raw, Raws, to_bytes, to_list
from okl_core.types import F64

from ..store.base import Applied, Entry, Full, Hold, Tip, Waiting
from .codec import WaitingEntry, decode_waiting, encode_round, encode_waiting
from .coverage import answer_to
from .definition import Input
from .idempotency import check_key, expired, id_conflict, progress_of, remember, repeated_result, same_prediction
from .in_order import read_in_order
from .late import play_round, waiting
from .lesson_player import LessonPlayer
from .limits import SessionLimits
from .moment import Moment
from .played import Pending, of_rows
from .precondition import check_tip
from .refusals import refusal, session_follows
from .requests import (
    Batch,
    Excerpt,
    ExcerptPlayed,
    Part,
    Predicted,
    Question,
    Report,
    Result,
    Updated,
    earlier_entry_id,
    repointed,
)
from .rounds_played import rounds_played
from .session import Session
from .task import Task, check_weights

Outcome = Waiting | Applied | Full | None
"""The store's outcome of a hold; None if it was accepted."""

Known = Mapping[str, WaitingEntry | Waiting | Applied | None]
"""What the ids of the parts hold: a prediction of this worker, or what the store found."""

ResultOf = Callable[[Mapping[str, Outcome]], Result]
"""Returns the answer, given the outcomes of the holds by id. Raises IdConflict, PredictionExpired, LimitReached."""


class Position(NamedTuple):
    """The position of a session's copy: the session's identity, and the tip."""

    identity: bytes
    tip: Tip

    def __str__(self) -> str:
        return f"{self.identity.hex()}-{self.tip.label}"


class Unasked(Exception):
    """A truth names an id that was not looked up, since an earlier request of this turn, refused meanwhile, predicts it.

    The lookup can follow once the turn so far is durable.
    """


class Turn:
    """A turn commits its `entries` and `holds`; `tip` is the tip after the entries. `has_learned`: the session is ahead of
    the tip at which the turn started. A prediction whose truth comes in the same turn is not a hold.

    `size` is the memory of the learner when last measured: learning refuses a learner that is too large.
    """

    def __init__(
        self,
        session: Session,
        position: Position,
        size: int,
        known: Known,
        limits: SessionLimits,
        new_id: Callable[[], str],
        moment: Moment,
    ) -> None:
        self.session = session
        self.tip = position.tip
        self.entries: list[Entry] = []
        self.progress: Applied | None = None
        self.made: dict[str, WaitingEntry] = {}
        """The predictions that will wait."""
        self._settled: dict[str, WaitingEntry] = {}
        """The predictions of this turn whose truths came in it."""
        self.has_learned = self.has_predicted = False
        self._identity = position.identity
        self._size = size
        self._known = known
        self._limits = limits
        self._new_id = new_id
        self._moment = moment
        self._pending: Pending | None = None

    @cached_property
    def holds(self) -> Sequence[Hold]:
        """The predictions to hold. To be read once all parts are played."""
        wait_s = self.session.definition.expires_s or self._limits.waiting_s
        return [Hold(id, encode_waiting(self._identity, id, entry), wait_s) for id, entry in self.made.items()]

    @property
    def position(self) -> Position:
        """The position after the entries."""
        return Position(self._identity, self.tip)

    @property
    def rounds(self) -> int:
        return sum(entry.count for entry in self.entries)

    @property
    def nbytes(self) -> int:
        return sum(len(entry.blob) for entry in self.entries)

    @property
    def is_pending(self) -> bool:
        """Whether a round has been played but not yet learned."""
        return self._pending is not None

    def play(self, part: Part) -> ResultOf:
        """Play a part. Raises the ServiceError that refuses it; the turn can continue without it."""
        try:
            match part:
                case Question():
                    return self._ask(part)
                case Report():
                    return self._report(part)
                case Batch():
                    return self._run(part)
                case Excerpt():
                    return self._play_excerpt(part)
        except core.OklError as error:
            if (refused := refusal(error, self._name)) is None:
                raise
            raise repointed(refused, part) from error
        except InvalidInput as error:
            raise repointed(error, part) from None

    def learn(self) -> None:
        """Carry the last round into the session. Raises OklError."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self.has_learned = True
            self.session.learn(pending)

    @property
    def _name(self) -> str:
        return self.session.definition.name

    # -- predict ----------------------------------------------------------------------------------------------------

    def _ask(self, question: Question) -> ResultOf:
        self._check_answers()
        if question.together > 1:
            self._limits.check_predictions(question.together, self.session)
        return self._hold(question)

    def _hold(self, question: Question) -> ResultOf:
        session, id = self.session, question.id
        # Refuse a wrong input before anything is learned, except before the first round, which may decide what is wrong.
        early = self._read_asked(question) if session.t else None
        self.learn()
        raw = self._read_asked(question) if early is None else early
        entry = waiting(session, raw, self._moment.at)
        self.has_predicted = True
        if id is None or session.frozen is not None:
            return lambda _: self._predicted(None, entry)
        self._moment = self._moment._replace(waiting=self._moment.waiting + (id not in self.made))
        self.made[id] = entry
        return lambda outcomes: self._predicted(id, self._held(id, entry, outcomes.get(id)))

    def _read_asked(self, question: Question) -> Raw:
        if question.raw is None:
            return self._read(question.x)
        self._limits.check_input(self.session, self.session.check_input(question.raw))
        return question.raw

    def _predicted(self, id: str | None, entry: WaitingEntry) -> Predicted:
        return Predicted(self._name, id, entry.t, answer_to(self.session.task, entry.forecast, entry.threshold))

    def _held(self, id: str, entry: WaitingEntry, outcome: Outcome) -> WaitingEntry:
        """The prediction that waits now, or did until its truth came: this one, or an earlier one with the same id."""
        if id in self._settled:
            return same_prediction(self._name, id, self._settled[id], entry)
        match outcome:
            case None:
                return entry
            case Waiting(_, blob, is_expired):
                if is_expired:
                    raise expired(self._name, id)
                return same_prediction(self._name, id, decode_waiting(self._identity, id, blob), entry)
            case Applied():
                raise id_conflict(self._name, id, "was used for an earlier round")
            case Full():
                raise LimitReached(
                    "Too many predictions of this session wait for their truth; report some, or predict with `wait: false`.",
                    session=self._name,
                )

    # -- update -----------------------------------------------------------------------------------------------------

    def _report(self, report: Report) -> ResultOf:
        self._check_learns()
        y, task = self.session.read_truth(report.y)
        known = self._known.get(report.id) if report.id is not None else None
        if isinstance(known, Applied):
            sent = None if report.x is None else [self._read(report.x)]
            again = repeated_result(self._name, self._identity, known, sent, report, self._known)
            return lambda _: again
        is_fresh = known is None and report.id in self.made
        if is_fresh:
            known = self.made[report.id or ""]
        elif known is None and report.id is not None and report.id not in self._known:
            raise Unasked
        source = self._round_of(report, known)
        self._limits.check_room(self._name, self._size)
        if self._pending is not None:
            self.learn()
            # The round just learned may have added the label.
            y, task = self.session.read_truth(report.y)
        if report.weight != 1.0:
            check_weights(task)
        moment = self._moment.after(source.at) if isinstance(source, WaitingEntry) else self._moment
        pending = play_round(self.session, source, y, task, weight=report.weight, moment=moment)
        self._moment = self._moment._replace(waiting=moment.waiting)
        updated, raws = self._updated(report.id, pending), [pending.entry.x]
        answer = None if report.id is None else remember(self._identity, report.id, updated, raws, report)
        self._append(1, report.id, encode_round(pending.entry), answer, is_fresh=is_fresh)
        self._pending = pending
        if report.id is not None and self.made.pop(report.id, None) is not None and isinstance(source, WaitingEntry):
            self._settled[report.id] = source
        return lambda _: updated

    def _updated(self, id: str | None, pending: Pending) -> Updated:
        truths, entry, t = pending.task.truths, pending.entry, self.session.t + 1
        if truths.is_classifier:
            return Updated(self._name, id, t, pending.loss, mistake=bool(pending.error))
        return Updated(self._name, id, t, pending.loss, error=(entry.issued.value - entry.y) * truths.unit)

    def _round_of(self, report: Report, known: WaitingEntry | Waiting | None) -> WaitingEntry | Raw:
        """The report's prediction or input. Raises PredictionNotFound, PredictionExpired, IdConflict, InvalidInput."""
        if isinstance(known, Waiting):
            assert report.id is not None
            if known.is_expired and report.x is None:
                raise expired(self._name, report.id)
            known = None if known.is_expired else decode_waiting(self._identity, report.id, known.blob)
        if known is None:
            if report.x is None:
                raise PredictionNotFound(
                    f"No prediction {report.id!r} waits in session {self._name!r}; give the id that POST /predict gave.",
                    session=self._name,
                    id=report.id,
                )
            return self._read(report.x)
        if report.x is not None and to_bytes(self._read(report.x)) != to_bytes(known.x):
            raise id_conflict(self._name, report.id or "", "waits for the truth of another input")
        return known

    def _check_answers(self) -> None:
        if self.session.pairing is not None:
            raise session_follows(self._name)

    def _check_learns(self) -> None:
        self._check_answers()
        if (frozen := self.session.frozen) is not None:
            raise SessionFrozen(
                f"Session {self._name!r} is frozen and learns nothing; it was made from {frozen.session!r}.",
                session=self._name,
            )

    # -- rounds -----------------------------------------------------------------------------------------------------

    def _run(self, batch: Batch) -> ResultOf:
        self._check_learns()
        session = self.session
        was_learned = isinstance(self._known.get(batch.id or ""), Applied)
        if not was_learned:
            check_tip(self._name, self.tip, batch.if_tip)
        raws, y, tasks = self._read_rows(batch)
        known = None if batch.id is None else self._known.get(batch.id)
        if isinstance(known, Applied):
            again = repeated_result(self._name, self._identity, known, raws, batch, self._known)
            return lambda _: again
        if known is not None:
            raise id_conflict(self._name, batch.id or "", "waits for the truth of a prediction")
        if batch.weight is not None:
            check_weights(tasks[-1])
        # Check with the labels that these rounds add. A duplicate has passed this check, when there were fewer labels.
        check_key(self._name, self._identity, batch, self._known)
        self._limits.check_batch(len(batch.y), tasks[-1].truths, has_intervals=session.coverage is not None)
        self._limits.check_room(self._name, self._size)
        self.has_learned = True
        ran = session.run(raws, y, tasks, self._moment, batch.weight)
        self._limits.check_room(self._name, session.nbytes)
        played = rounds_played(self.session, batch.id, tasks[-1], ran)
        answer = None if batch.id is None else remember(self._identity, batch.id, played, raws, batch)
        id = batch.id or self._new_id()
        *earlier, (count, blob) = ran.entries
        for i, (earlier_count, earlier_blob) in enumerate(earlier):
            self._append(earlier_count, earlier_entry_id(id, i), earlier_blob)
        self._append(count, id, blob, answer)
        self.progress = progress_of(self._identity, batch)
        return lambda _: played

    def _read_rows(self, batch: Batch) -> tuple[Raws, F64, Sequence[Task]]:
        """The inputs, the truths in the learner's terms, and the task that knows each. Raises InvalidInput at the row."""
        task = self.session.task
        if task is not None and (found := self.session.read_rows(batch.x, batch.y)) is not None:
            return *found, [task] * len(batch.y)
        return read_in_order(self.session, batch.x, to_list(batch.y), self._read, _row)

    # -- challengers ------------------------------------------------------------------------------------------------

    def _play_excerpt(self, excerpt: Excerpt) -> ResultOf:
        pairing = self.session.pairing
        if pairing is None or pairing.tip != excerpt.start:
            return lambda _: ExcerptPlayed(excerpt.start, is_stale=True)
        player = LessonPlayer(self.session, excerpt, self._moment, self._limits, self._append, self._held_under)
        try:
            played = player.play(self._hold)
        finally:
            self.has_learned = player.has_learned
        return lambda _: played

    def _held_under(self, id: str) -> WaitingEntry | None:
        """The prediction under this id, from this turn, this worker or the store, expired or not."""
        known = self.made.get(id) or self._known.get(id)
        if isinstance(known, Waiting):
            return decode_waiting(self._identity, id, known.blob)
        return known if isinstance(known, WaitingEntry) else None

    # -- both -------------------------------------------------------------------------------------------------------

    def _append(
        self, count: int, id: str | None, blob: bytes, answer: bytes | None = None, *, is_fresh: bool = False
    ) -> None:
        entry = Entry.after(self.tip, count, id or self._new_id(), blob, answer, is_fresh=is_fresh)
        self.tip = entry.tip
        self.entries.append(entry)

    def _read(self, sent: Input, fields: Fields | None = None) -> Raw:
        raw = self.session.read_input(sent, fields)
        self._limits.check_input(self.session, raw)
        return raw


@contextmanager
def _row(i: int) -> Iterator[None]:
    """Make the errors of a row of a batch point at it."""
    try:
        with of_rows(i, None):
            yield
    except InvalidInput as error:
        part = "/y" if error.extra["errors"][0]["pointer"].startswith("/y") else "/x"
        raise error.under(f"{part}/{i}", part) from None
