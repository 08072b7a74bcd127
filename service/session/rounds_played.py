"""What a client is told of many rounds that were played at once."""

from __future__ import annotations

from service.session.coverage import answer_to
from service.session.played import Ran
from service.session.requests import RoundsPlayed
from service.session.session import Session
from service.session.task import Task


def rounds_played(session: Session, id: str | None, task: Task, ran: Ran) -> RoundsPlayed:
    """The totals, and the forecasts in the words of the task."""
    told = {
        "session": session.definition.name,
        "id": id,
        "t": session.t,
        "rounds": len(ran.forecasts),
        "loss": ran.loss,
    }
    given = zip(ran.forecasts, ran.thresholds, strict=True)
    answers = [answer_to(task, forecast, threshold) for forecast, threshold in given]
    has_intervals, truths = session.coverage is not None, task.truths
    if not truths.is_classifier:
        return RoundsPlayed(
            **told,
            values=[answer.value for answer in answers],
            lows=[answer.low for answer in answers] if has_intervals else None,
            highs=[answer.high for answer in answers] if has_intervals else None,
        )
    several = [answer.probabilities or () for answer in answers]
    one = [answer.probability for answer in answers]
    return RoundsPlayed(
        **told,
        mistakes=round(ran.error),
        scores=None if truths.has_classes else [answer.score for answer in answers],
        labels=[answer.label for answer in answers],
        probabilities=several if truths.has_classes else None if None in one else one,
        sets=[answer.labels or () for answer in answers] if has_intervals else None,
    )
