"""The answer to a request of many rounds that were played at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from .coverage import answer_to
from .played import Forecasts, Ran
from .requests import Columns, Labels, RoundsPlayed
from .scorecard import forecasts_of
from .session import Session
from .task import Task


def rounds_played(session: Session, id: str | None, task: Task, ran: Ran) -> RoundsPlayed:
    """The totals, and the forecasts in the task's labels or units."""
    parts = [_columns(task, part) for part in ran.forecasts]
    columns = parts[0] if len(parts) == 1 else _joined(parts)
    if isinstance(columns.probabilities, list) and None in columns.probabilities:
        columns = columns._replace(probabilities=None)
    return RoundsPlayed(
        session=session.definition.name,
        id=id,
        t=session.t,
        rounds=sum(len(part.values) for part in ran.forecasts),
        loss=ran.loss,
        mistakes=round(ran.error) if task.truths.is_classifier else None,
        columns=columns,
    )


def _columns(task: Task, given: Forecasts) -> Columns:
    truths = task.truths
    if given.thresholds is not None or len(given.values) == 1:
        return _one_by_one(task, given)
    if not truths.is_classifier:
        return Columns(values=truths.from_learner(given.values))
    if truths.has_classes and given.probabilities is not None:
        indices = given.probabilities.argmax(axis=1)
        return Columns(labels=Labels(truths.names, indices), probabilities=given.probabilities.tolist())
    indices = (given.values >= 0.0).astype(np.intp)
    return Columns(scores=given.values, labels=Labels(truths.names, indices), probabilities=given.probabilities)


def _one_by_one(task: Task, given: Forecasts) -> Columns:
    """Forecasts with intervals, or that may be empty, converted one at a time."""
    truths, has_intervals = task.truths, given.thresholds is not None
    thresholds = [None] * len(given.values) if given.thresholds is None else given.thresholds.tolist()
    rows = zip(forecasts_of(given.values, given.probabilities), thresholds, strict=True)
    answers = [answer_to(task, forecast, threshold) for forecast, threshold in rows]
    if not truths.is_classifier:
        return Columns(
            values=[answer.value for answer in answers],
            lows=[answer.low for answer in answers] if has_intervals else None,
            highs=[answer.high for answer in answers] if has_intervals else None,
        )
    return Columns(
        scores=None if truths.has_classes else [answer.score for answer in answers],
        labels=[answer.label for answer in answers],
        probabilities=[answer.probabilities or () for answer in answers]
        if truths.has_classes
        else [answer.probability for answer in answers],
        sets=[answer.labels or () for answer in answers] if has_intervals else None,
    )


def _joined(parts: Sequence[Columns]) -> Columns:
    """The columns that all parts have."""
    lists = [part.as_lists() for part in parts]
    common = [name for name in lists[0] if all(name in one for one in lists)]
    return Columns(**{name: list(chain.from_iterable(one[name] for one in lists)) for name in common})
