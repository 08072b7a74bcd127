"""A challenger plays its champion's rounds and predictions, as one part of a turn.

Like the champion, it forecasts each round before it sees the truth. If other rounds came between the champion's prediction
and its truth, the challenger's prediction was made at the same round as the champion's, and waits under the round's id.
Otherwise the challenger forecasts when it learns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from okl.errors import ServiceError
from okl_core import errors as core

from ..store.base import Tip
from .codec import WaitingEntry, encode_followed, encode_round
from .coverage import promise_kept
from .following import Note
from .limits import SessionLimits
from .moment import Moment
from .requests import Follow, Followed, Lesson, Question
from .session import Session
from .task import Task, check_weights, reckoned

Append = Callable[[int, str | None, bytes], None]
"""Adds an entry to the turn: its number of rounds, its id (None: make a new one), its bytes."""


@final
class Follower:
    """Plays one `Follow` on a session, which changes at once. `found` returns the prediction that waits under an id."""

    def __init__(
        self,
        session: Session,
        part: Follow,
        moment: Moment,
        limits: SessionLimits,
        append: Append,
        found: Callable[[str], WaitingEntry | None],
    ) -> None:
        self._session = session
        self._learner = part.learner
        self._steps = part.steps
        following = session.following
        # Rounds skipped across a change of the champion's learner count for neither comparison.
        is_another = following is not None and following.learner not in (None, part.learner)
        self._skipped = 0 if is_another else part.skipped
        self._tip = part.start
        self._is_careful = part.is_careful
        self._moment = moment
        self._limits = limits
        self._append = append
        self._found = found
        self._rounds = 0
        self._refused: str | None = None

    def play(self, hold: Callable[[Question], object]) -> Followed:
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
        assert self._session.following is not None
        return Followed(self._session.following.tip or self._tip, self._rounds, refused=self._refused)

    def _learn(self, lesson: Lesson) -> None:
        moment = self._moment._replace(at=lesson.at, waited_s=lesson.waited_s)
        if len(lesson.y) > 1 and not self._is_careful:
            self._run(lesson, moment)
            self._tip = lesson.tip
            return
        last = len(lesson.y) - 1
        for i in range(len(lesson.y)):
            try:
                self._round(lesson, i, moment, lesson.tip if i == last else self._tip)
            except (ServiceError, core.InputError, core.ConfigError, core.NumericalError) as error:
                if not self._is_careful:
                    raise
                self._refused = str(error)
                self._skipped += 1
        self._tip = lesson.tip

    def _round(self, lesson: Lesson, i: int, moment: Moment, tip: Tip) -> None:
        session = self._session
        self._limits.check_room(session.definition.name, session.nbytes)
        waited = self._found(lesson.id) if lesson.is_late else None
        raw = session.check_input(lesson.x[i]) if waited is None else waited.x
        if session.preparation is None:
            self._limits.check_size(session, len(raw), "/x")
        y, task = session.reckoned(lesson.y[i])
        if lesson.weight != 1.0:
            check_weights(task)
        pending = session.play(
            raw,
            y,
            task,
            issued=None if waited is None else waited.forecast,
            lags=None if waited is None else waited.lags,
            weight=lesson.weight,
            promise=None
            if waited is None
            else promise_kept(task, waited.forecast, waited.threshold, y, session.t - waited.t),
            said=None if waited is None else waited.said,
            moment=moment,
        )
        # Without a waiting prediction the challenger's forecast is newer than the champion's, so the two cannot be compared.
        champion_error = math.nan if lesson.is_late and waited is None else lesson.errors[i]
        assert session.following is not None
        session.following.take(Note(self._learner, tip, self._skipped, [champion_error]))
        self._add(tip, [champion_error], lesson.id if i == len(lesson.y) - 1 else None, encode_round(pending.entry))
        session.learn(pending)

    def _run(self, lesson: Lesson, moment: Moment) -> None:
        session = self._session
        self._limits.check_room(session.definition.name, session.nbytes)
        tasks: list[Task] = []
        y: list[float] = []
        raws, task, fields = [], session.task, session.fields
        for x, truth in zip(lesson.x, lesson.y, strict=True):
            raws.append(session.check_input(x, fields))
            if session.preparation is None:
                self._limits.check_size(session, len(raws[-1]), "/x")
            fields = fields or session.fields_after(raws[0])
            known, task = reckoned(session.definition, task, truth)
            y.append(known)
            tasks.append(task)
        assert session.following is not None
        session.following.take(Note(self._learner, lesson.tip, self._skipped, lesson.errors))
        ran = session.run(raws, np.array(y), tasks, moment)
        start = 0
        for i, (count, blob) in enumerate(ran.entries):
            is_last = i == len(ran.entries) - 1
            tip, errors = lesson.tip if is_last else self._tip, lesson.errors[start : start + count]
            self._add(tip, errors, lesson.id if is_last else None, blob)
            start += count

    def _add(self, tip: Tip, errors: Sequence[float], id: str | None, blob: bytes) -> None:
        """Append an entry with its note; `errors` are the champion's, one for each round of the entry."""
        note = Note(self._learner, tip, self._skipped, errors)
        self._append(len(errors), id, encode_followed(note.encode(), blob))
        self._skipped = 0
        self._rounds += len(errors)
