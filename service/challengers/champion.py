"""A champion's journal, as given to its challengers: rounds in the session's labels or units, with the champion's errors."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from okl_core import LearnerSpec
from okl_core.errors import OklError
from okl_core.records.record import weights_of

from ..pointers import invalid
from ..session.codec import RoundEntry, WaitingEntry, decode_entry
from ..session.definition import Definition
from ..session.requests import Lesson, Question
from ..session.scorecard import Issued
from ..session.session import Session
from ..session.task import Task
from ..session.turn import Position
from ..sessions import made_of
from ..store.base import Entry, Head, Tip


class ChampionView(NamedTuple):
    """What is needed to read a champion's journal. `learner` identifies its learner; `has_waiting`: any prediction waits;
    `expires_s`: how long one waits, None for the service's default."""

    position: Position
    task: Task | None
    learner: int
    has_waiting: bool
    expires_s: float | None

    @classmethod
    def of(cls, session: Session, head: Head, position: Position) -> ChampionView:
        return cls(position, session.task, learner_mark(session), head.waiting > 0, session.definition.expires_s)

    def reads_as(self, other: ChampionView) -> bool:
        """Whether truths mean the same in both journals; `other` may have more labels."""
        if self.learner != other.learner or self.position.identity != other.position.identity:
            return False
        if self.task is None or other.task is None:
            return self.task is other.task
        one, two = self.task.truths, other.task.truths
        names = two.names[: len(one.names)]
        return (one.target, one.y_range, one.taken, one.names) == (two.target, two.y_range, two.taken, names)


def learner_mark(session: Session) -> int:
    """A checksum that identifies the learner in the session's definition."""
    asked = session.definition.learner
    return zlib.crc32(b"" if asked is None else asked.model_dump_json().encode())


def lesson_of(entry: Entry, task: Task) -> Lesson:
    """The lesson of an entry of the champion's journal. Raises StateCorrupt."""
    decoded = decode_entry(entry.blob)
    at, waited_s = decoded.moment.at, decoded.moment.waited_s
    if isinstance(decoded, RoundEntry):
        errors = [_error(task, decoded.issued, decoded.y)]
        is_late = decoded.trivial is not None
        y = [task.truths.from_truth(decoded.y)]
        weight = weights_of([decoded.weight])
        return Lesson(entry.tip, entry.id, [decoded.x], y, errors, weight, is_late, at, waited_s)
    truths = decoded.y.tolist()
    y = [task.truths.from_truth(truth) for truth in truths]
    errors = [_error(task, decoded.issued(i), truth) for i, truth in enumerate(truths)]
    return Lesson(entry.tip, entry.id, decoded.raws, y, errors, decoded.weight, at=at, waited_s=waited_s)


def _error(task: Task, issued: Issued, y: float) -> float:
    """1 or 0 for a mistake or none, or the squared error; NaN if unknown."""
    if math.isnan(issued.value):
        return math.nan
    try:
        return task.judge.round(issued, y)[1]
    except OklError:
        return math.nan


class Unsettled(NamedTuple):
    """A waiting prediction of the champion."""

    id: str
    entry: WaitingEntry


def steps_of(
    start: Tip, entries: Sequence[Entry], unsettled: Sequence[Unsettled], task: Task
) -> Iterator[Lesson | Question]:
    """Rounds and predictions in the champion's order, without predictions made before `start`, whose round is past."""
    by_round: dict[int, list[Unsettled]] = {}
    for one in unsettled:
        by_round.setdefault(one.entry.t, []).append(one)
    for entry in entries:
        yield from _questions(by_round, entry.tip.round - entry.count)
        yield lesson_of(entry, task)
    yield from _questions(by_round, entries[-1].tip.round if entries else start.round)


def _questions(by_round: dict[int, list[Unsettled]], round: int) -> Iterator[Question]:
    for one in by_round.pop(round, ()):
        yield Question((), one.id, raw=one.entry.x)


def challenger_of(champion: Session, name: str, learner: LearnerSpec | None) -> Definition:
    """The champion's definition with another name and learner. It declares the labels found so far if the learner needs them.

    Raises InvalidInput if they are not known yet, UnknownLearner, InvalidConfig.
    """
    definition, task = replace(champion.definition, name=name, learner=learner, reservoir=False), champion.task
    own = made_of(definition).task
    if task is not None and own is not None and task.truths.is_classifier != own.truths.is_classifier:
        detail = "numbers" if own.truths.is_classifier else "labels"
        raise invalid("/learner", f"is for other truths; those of this session are {detail}")
    if learner is None or definition.labels is not None or not (task is None or task.is_open):
        return definition
    if task is None:
        raise invalid("/learner", "the truths of this session are not known yet; attach it after some rounds")
    if own is None or own.is_open:
        return definition
    if len(task.truths.names) < 2:
        raise invalid(
            "/learner", "takes two labels or more, and this session has seen one; attach it after some rounds"
        )
    return replace(definition, labels=task.truths.names)
