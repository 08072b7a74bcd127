"""Verdicts and alarms on the wire."""

from __future__ import annotations

from okl.measures import error_name
from okl.values import Json
from okl_core.monitoring.duel import Outcome
from okl_core.monitoring.verdict import Judgement

from ..session.history.alarms import Alarm
from ..session.history.words import alarm_text, outcome_text, verdict_text


def verdict(found: Judgement | None, *, is_classifier: bool) -> Json | None:
    if found is None or not found.rounds:
        return None
    return {"text": verdict_text(found, is_classifier=is_classifier)} | found._asdict()


def alarm(found: Alarm, *, is_classifier: bool) -> Json:
    return found._asdict() | {"text": alarm_text(found, is_classifier=is_classifier)}


def comparison(found: Outcome | None, *, is_classifier: bool) -> Json | None:
    """How a challenger compares to its champion."""
    if found is None or found.own is None or found.rival is None:
        return None
    own, rival = (one if is_classifier else one**0.5 for one in (found.own, found.rival))
    return {
        "text": outcome_text(found),
        "state": found.state,
        "rounds": found.rounds,
        "error_name": error_name(is_classifier=is_classifier),
        "challenger": own,
        "champion": rival,
        "low": found.low,
        "high": found.high,
    }
