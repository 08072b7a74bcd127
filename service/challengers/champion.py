"""A champion's journal as its challengers are given it: rounds in the session's own words, with the champion's errors."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from okl_core import LearnerSpec
from okl_core.errors import OklError

from ..session.codec import BlockEntry, RoundEntry, WaitingEntry, decode_entry
from ..session.definition import Definition, Scalar
from ..session.inputs import invalid
from ..session.requests import Lesson, Question
from ..session.scorecard import Issued
from ..session.session import Session
from ..session.task import Task
from ..session.turn import Position
from ..sessions import made_of
from ..store.base import Entry, Head, Tip


class Champion(NamedTuple):
    """What is needed of a champion to read its journal. `learner` names its learner; `has_waiting`: does anything wait?"""

    position: Position
    task: Task | None
    learner: int
    has_waiting: bool

    @classmethod
    def of(cls, session: Session, head: Head, position: Position) -> Champion:
        return cls(position, session.task, learner_mark(session), head.waiting > 0)

    def reads_as(self, other: Champion) -> bool:
        """Do the truths in the journals of both mean the same? Labels may have been added."""
        if self.learner != other.learner or self.position.identity != other.position.identity:
            return False
        if self.task is None or other.task is None:
            return self.task is other.task
        one, two = self.task.truths, other.task.truths
        names = two.names[: len(one.names)]
        return (one.target, one.y_range, one.taken, one.names) == (two.target, two.y_range, two.taken, names)


def learner_mark(session: Session) -> int:
    """Another number for another learner."""
    asked = session.definition.learner
    return zlib.crc32(b"" if asked is None else asked.model_dump_json().encode())


def lesson_of(entry: Entry, task: Task) -> Lesson:
    """What an entry of the champion's journal teaches. Raises StateCorrupt."""
    found = decode_entry(entry.blob)
    at, waited_s = found.moment.at, found.moment.waited_s
    if isinstance(found, RoundEntry):
        issued = Issued(found.issued, found.label, found.sure)
        errors = [_error(task, issued, found.y)]
        is_late = found.said is not None
        y = [truth_of(task, found.y)]
        return Lesson(entry.tip, entry.id, [found.x], y, errors, found.weight, is_late, at, waited_s)
    truths = found.y.tolist()
    y = [truth_of(task, truth) for truth in truths]
    return Lesson(entry.tip, entry.id, found.raws, y, _errors(task, found, truths), at=at, waited_s=waited_s)


def _errors(task: Task, found: BlockEntry, truths: Sequence[float]) -> list[float]:
    if not task.truths.has_classes:
        return [_error(task, Issued(value), truth) for value, truth in zip(found.values.tolist(), truths, strict=True)]
    if found.named is None:
        return [math.nan] * len(truths)
    return [float(named != truth) for named, truth in zip(found.named.tolist(), truths, strict=True)]


def _error(task: Task, issued: Issued, y: float) -> float:
    """A mistake, or the squared error; NaN where it is not known."""
    if math.isnan(issued.value):
        return math.nan
    try:
        return task.judge.round(issued, y)[1]
    except OklError:
        return math.nan


def truth_of(task: Task, y: float) -> Scalar:
    """The truth as the client has told it; of a number up to rounding."""
    truths = task.truths
    if truths.is_classifier:
        return truths.names[int(y) if truths.has_classes else int(y > 0.0)]
    told = truths.from_learner(y)
    return told if truths.y_range is None else min(max(told, truths.y_range[0]), truths.y_range[1])


class Unsettled(NamedTuple):
    """A prediction of the champion that waits."""

    id: str
    entry: WaitingEntry


def steps_of(
    start: Tip, entries: Sequence[Entry], asked: Sequence[Unsettled], task: Task
) -> Iterator[Lesson | Question]:
    """Rounds and predictions in the order in which the champion had them; a prediction that it made before `start` is left
    out, since nobody can make it any more."""
    by_round: dict[int, list[Unsettled]] = {}
    for one in asked:
        by_round.setdefault(one.entry.t, []).append(one)
    for entry in entries:
        yield from _questions(by_round, entry.tip.round - entry.count)
        yield lesson_of(entry, task)
    yield from _questions(by_round, entries[-1].tip.round if entries else start.round)


def _questions(by_round: dict[int, list[Unsettled]], round: int) -> Iterator[Question]:
    for one in by_round.pop(round, ()):
        yield Question((), one.id, raw=one.entry.x)


def challenger_of(champion: Session, name: str, learner: LearnerSpec | None) -> Definition:
    """The champion's with another learner. Labels that the champion has found are declared, where the learner has to know
    them. Raises InvalidInput where they are not known yet, UnknownLearner, InvalidConfig."""
    made, task = replace(champion.definition, name=name, learner=learner, reservoir=False), champion.task
    own = made_of(made).task
    if task is not None and own is not None and task.truths.is_classifier != own.truths.is_classifier:
        told = "numbers" if own.truths.is_classifier else "labels"
        raise invalid("/learner", f"is for other truths; those of this session are {told}")
    if learner is None or made.labels is not None or not (task is None or task.is_open):
        return made
    if task is None:
        raise invalid("/learner", "nobody knows yet what the truths of this session are; attach it after some rounds")
    if own is None or own.is_open:
        return made
    if len(task.truths.names) < 2:
        raise invalid(
            "/learner", "takes two labels or more, and this session has seen one; attach it after some rounds"
        )
    return replace(made, labels=task.truths.names)
