"""A challenger plays its champion's rounds and predictions, as one part of a turn.

Like the champion, it forecasts each round before it sees the truth. If other rounds came between the champion's prediction
and its truth, the challenger's prediction was made at the same round as the champion's, and waits under the round's id.
Otherwise the challenger forecasts when it learns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

from okl.errors import ServiceError
from okl_core import errors as core
from okl_core.records.fields import Fields
from okl_core.records.record import Raw

from ..store.base import Tip
from .codec import WaitingEntry, encode_round, with_note
from .in_order import read_in_order
from .late import play_round
from .limits import SessionLimits
from .moment import Moment
from .pairing import Note
from .played import Pending
from .requests import Excerpt, ExcerptPlayed, Lesson, Question, earlier_entry_id
from .session import Session
from .task import check_weights

Append = Callable[[int, str, bytes], None]
"""Adds an entry to the turn: its number of rounds, its id, its bytes."""


class _Learned(NamedTuple):
    """An entry to be added: the rounds skipped before it, the champion's errors (one for each of its rounds), its bytes."""

    skipped: int
    errors: Sequence[float]
    blob: bytes


@final
class LessonPlayer:
    """Plays one `Excerpt` on a session, which changes at once: `has_learned` from its first round that is not refused.

    `found` returns the prediction that waits under an id.
    """

    def __init__(
        self,
        session: Session,
        excerpt: Excerpt,
        moment: Moment,
        limits: SessionLimits,
        append: Append,
        found: Callable[[str], WaitingEntry | None],
    ) -> None:
        self._session = session
        self._learner = excerpt.learner
        self._steps = excerpt.steps
        assert session.pairing is not None
        self._pairing = session.pairing
        # Rounds skipped across a change of the champion's learner count for neither comparison.
        is_another = self._pairing.learner not in (None, excerpt.learner)
        self._skipped = 0 if is_another else excerpt.skipped
        self._tip = excerpt.start
        self._is_careful = excerpt.is_careful
        self._moment = moment
        self._limits = limits
        self._append = append
        self._found = found
        self._rounds = 0
        self._refused: str | None = None
        self.has_learned = False

    def play(self, hold: Callable[[Question], object]) -> ExcerptPlayed:
        """Play all steps; `hold` forecasts an input whose truth comes later. Raises ServiceError, OklError."""
        for step in self._steps:
            if isinstance(step, Lesson):
                self._learn(step)
                continue
            try:
                hold(step)
            except (ServiceError, core.OklError):
                # A refused input is refused again, and reported, when its truth comes.
                if not self._is_careful:
                    raise
        return ExcerptPlayed(self._pairing.tip or self._tip, self._rounds, refused=self._refused)

    def _learn(self, lesson: Lesson) -> None:
        moment = self._moment._replace(at=lesson.at, waited_s=lesson.waited_s)
        if len(lesson.y) > 1 and not self._is_careful:
            self._run(lesson, moment)
            return
        latest: _Learned | None = None
        for i in range(len(lesson.y)):
            try:
                pending, errors = self._played(lesson, i, moment)
            except (ServiceError, core.InputError, core.ConfigError, core.NumericalError) as error:
                if not self._is_careful:
                    raise
                self._refused = str(error)
                self._skipped += 1
                continue
            if latest is not None:
                self._add(lesson.tip, latest, _earlier_entry_id(lesson, i))
            latest = _Learned(self._skipped, errors, encode_round(pending.entry))
            self._take(lesson, errors)
            self._session.learn(pending)
            self._skipped = 0
        if latest is not None:
            # The last entry also counts the rounds refused after it: the whole lesson is past once one of its rounds is.
            self._pairing.skipped += self._skipped
            self._add(lesson.tip, latest._replace(skipped=latest.skipped + self._skipped), lesson.id)
            self._skipped = 0

    def _played(self, lesson: Lesson, i: int, moment: Moment) -> tuple[Pending, list[float]]:
        """A round that can be learned, and the champion's error in it, NaN if the two cannot be compared."""
        session = self._session
        self._limits.check_room(session.definition.name, session.nbytes)
        waited = self._found(lesson.id) if lesson.is_late else None
        source = self._read(lesson.x[i]) if waited is None else waited
        y, task = session.read_truth(lesson.y[i])
        weight = 1.0 if lesson.weight is None else lesson.weight.item(i)
        if weight != 1.0:
            check_weights(task)
        pending = play_round(session, source, y, task, weight=weight, moment=moment)
        # Without a waiting prediction the challenger's forecast is newer than the champion's, so the two cannot be compared.
        champion_error = math.nan if lesson.is_late and waited is None else lesson.errors[i]
        return pending, [champion_error]

    def _run(self, lesson: Lesson, moment: Moment) -> None:
        session = self._session
        self._limits.check_room(session.definition.name, session.nbytes)
        raws, y, tasks = read_in_order(session, lesson.x, lesson.y, self._read)
        if lesson.weight is not None:
            check_weights(tasks[-1])
        self._take(lesson, lesson.errors)
        ran = session.run(raws, y, tasks, moment, lesson.weight)
        start = 0
        for i, (count, blob) in enumerate(ran.entries):
            id = lesson.id if i == len(ran.entries) - 1 else _earlier_entry_id(lesson, i)
            self._add(lesson.tip, _Learned(self._skipped, lesson.errors[start : start + count], blob), id)
            self._skipped = 0
            start += count

    def _take(self, lesson: Lesson, errors: Sequence[float]) -> None:
        """Take the note of the rounds that are learned next."""
        self.has_learned = True
        self._pairing.take(Note(self._learner, lesson.tip, self._skipped, errors))

    def _read(self, raw: Raw, fields: Fields | None = None) -> Raw:
        self._limits.check_input(self._session, self._session.check_input(raw, fields))
        return raw

    def _add(self, tip: Tip, learned: _Learned, id: str) -> None:
        """Append an entry with its note."""
        note = Note(self._learner, tip, learned.skipped, learned.errors)
        self._append(len(learned.errors), id, with_note(note.encode(), learned.blob))
        self._rounds += len(learned.errors)


def _earlier_entry_id(lesson: Lesson, index: int) -> str:
    """The id of an entry before the lesson's last one. Those of the lesson's own id may be the champion's other entries."""
    return earlier_entry_id(lesson.tip.digest.hex(), index)
