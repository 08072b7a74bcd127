"""Verdicts and alarms on the wire."""

from __future__ import annotations

from typing import Any

from okl_core.monitoring.verdict import Judgement
from service.session.history.alarms import Alarm
from service.session.history.words import alarm_text, verdict_text

Json = dict[str, Any]


def verdict(found: Judgement | None, *, is_classifier: bool) -> Json | None:
    if found is None or not found.rounds:
        return None
    return {"text": verdict_text(found, is_classifier=is_classifier)} | found._asdict()


def alarm(found: Alarm, *, is_classifier: bool) -> Json:
    return found._asdict() | {"text": alarm_text(found, is_classifier=is_classifier)}
