"""Play a session's journal through other learners, with the delays of its truths, and print the comparison."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import ValidationError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from okl.comparing import HEADINGS
from okl.errors import ConfigurationError
from okl.measures import error_name
from okl.values import Json
from okl_core import LearnerSpec
from okl_core.contract.truth_choice import for_truths
from okl_core.contract.wrong_fields import in_words

from ..archive.journals import check_owner, read_archive
from ..challengers.champion import challenger_of, lesson_of
from ..session.definition import Definition
from ..session.history.words import outcome_text
from ..session.names import challenger_name
from ..session.record import decode_record
from ..session.requests import Excerpt, Lesson, Question
from ..session.scorecard import WINDOW
from ..session.session import Session
from ..session.snapshot import unpack
from ..session.turn import Position
from ..settings import Settings, limits_of, session_limits_of
from ..store.base import Entry, Tip, unless_gone
from ..store.moving import Whole
from .compare import heeding, printed_cells, ranked
from .contestants import Contestant, names_of, specs_of
from .stores import opened
from .terminal import progress_of_rows

BESIDE: Final = "beside the session"
STEPS: Final = 256
"""Rounds and predictions that each learner plays in turn."""


@dataclass(frozen=True, slots=True)
class Backtested:
    """The learners, the best first; the session's errors, one per round; `is_whole` if all of the journal was played."""

    session: Session
    contestants: Sequence[Contestant]
    errors: Sequence[float]
    first: int
    is_whole: bool


def backtest(console: Console, url: str, name: str, learners: Sequence[str], archive: Path | None = None) -> Backtested:
    """Raises SessionNotFound, ConfigurationError, DamagedArchive, StoreError."""
    if not learners:
        raise ConfigurationError("Name at least one learner with --learner.")
    whole = asyncio.run(_read(url, name))
    session = loaded(name, whole)
    base, entries = (whole.base, whole.entries) if archive is None else _joined(archive, whole)
    if session.task is None or not entries:
        raise ConfigurationError(f"The journal of session {name!r} has no rounds; OKL_RETAIN_BYTES keeps more of it.")
    steps = list(steps_in_time(entries, session))
    is_classifier = session.task.truths.is_classifier

    def define(spec: Json) -> Definition:
        try:
            learner = LearnerSpec.model_validate(for_truths(spec, has_labels=is_classifier))
        except ValidationError as error:
            raise ConfigurationError(f"--learner: {in_words(error.errors()[0])}") from error
        return challenger_of(session, challenger_name(name, "backtest"), learner)

    specs = specs_of(learners)
    limits = session_limits_of(Settings())
    contestants = [
        Contestant(label, spec, define, limits, has_labels=is_classifier)
        for label, spec in zip(names_of(specs), specs, strict=True)
    ]
    with heeding() as stopped, progress_of_rows(console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(name, total=len(steps))
        for start in range(0, len(steps), STEPS):
            if stopped.is_set:
                break
            for one in contestants:
                one.play_excerpt(Excerpt(base, 0, steps[start : start + STEPS]))
            progress.update(bar, completed=min(start + STEPS, len(steps)))
    errors = [error for step in steps if isinstance(step, Lesson) for error in step.errors]
    return Backtested(session, ranked(contestants), errors, base.round, not stopped.is_set)


async def _read(url: str, name: str) -> Whole:
    async with opened(url, limits_of(Settings())) as store:
        return unless_gone(await store.whole(name), name)


def _joined(archive: Path, whole: Whole) -> tuple[Tip, Sequence[Entry]]:
    """The archived entries and the later ones of the store. Raises ConfigurationError if there is a gap between them, or if
    they are another session's."""
    base, entries = read_archive(archive)
    end = entries[-1].tip if entries else base
    tips = [whole.base, *(entry.tip for entry in whole.entries)]
    if end not in tips:
        check_owner(archive, whole.head.name)
        trouble = (
            "does not reach the journal in the store, or the session was rolled back since: run `okl archive` first"
        )
        raise ConfigurationError(f"{archive} {trouble}.")
    return base, [*entries, *whole.entries[tips.index(end) :]]


def loaded(name: str, whole: Whole) -> Session:
    """The session as it is now, by which its truths are decoded. Raises StateCorrupt."""
    definition, identity = decode_record(name, whole.record)
    start = whole.head.snapshot_tip or whole.first
    session = unpack(definition, whole.snapshot, str(Position(identity, start)))
    for entry in whole.entries:
        if entry.tip.round > start.round:
            session.replay(entry.blob)
    return session


def steps_in_time(entries: Sequence[Entry], session: Session) -> Iterator[Lesson | Question]:
    """The rounds in order, and among them each late prediction at the time at which it was issued."""
    assert session.task is not None
    lessons = [lesson_of(entry, session.task) for entry in entries]
    # The clocks of several workers differ; the order of the journal decides.
    times = np.maximum.accumulate([lesson.at for lesson in lessons]).tolist()
    asked: dict[int, list[Question]] = {}
    for i, lesson in enumerate(lessons):
        if lesson.is_late and not math.isnan(lesson.waited_s):
            index = min(bisect_right(times, lesson.at - lesson.waited_s), i)
            asked.setdefault(index, []).append(Question((), lesson.id, raw=lesson.x[0]))
    for i, lesson in enumerate(lessons):
        yield from asked.get(i, ())
        yield lesson


def table_of_backtest(found: Backtested) -> Table:
    """A table as in `okl compare`, with a first line for the session itself."""
    task = found.session.task
    assert task is not None
    is_classifier = task.truths.is_classifier
    rounds = f"{len(found.errors):,} rounds of the journal, from round {found.first + 1:,} on"
    caption = f"{rounds}, each forecast when the session did."
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), caption=caption, caption_justify="left")
    for i, heading in enumerate((*HEADINGS, BESIDE)):
        shown = error_name(is_classifier=is_classifier) if heading == "error" else heading
        is_text = i in (0, len(HEADINGS) - 1, len(HEADINGS))
        table.add_column(shown, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    known = [error for error in found.errors if not math.isnan(error)]
    cells_of_session = [found.session.definition.name, _mean(known, is_classifier=is_classifier)]
    cells_of_session += [_mean(known[-WINDOW:], is_classifier=is_classifier), "", "", "", "", "as it was", ""]
    table.add_row(*(Text(cell) for cell in cells_of_session), style="bold")
    for one in found.contestants:
        beside = "" if one.outcome is None else outcome_text(one.outcome).replace("the champion", "it")
        table.add_row(*map(Text, (*printed_cells(one), beside)))
    return table


def _mean(errors: Sequence[float], *, is_classifier: bool) -> str:
    if not errors:
        return ""
    mean = math.fsum(errors) / len(errors)
    return f"{mean:.2%}" if is_classifier else f"{mean**0.5:.4g}"
