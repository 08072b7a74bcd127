"""What a list tells of a session: small, kept beside the session in the store, read without the session itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from okl_core.monitoring.verdict import Judgement
from service.session.definition import Definition
from service.session.history.alarms import Alarm
from service.session.history.view import HistoryView, sparkline, view_of
from service.session.session import Session

RATE_S = 60.0
"""Rounds a second are those of about the last minute before the last round."""


@dataclass(frozen=True, slots=True)
class Summary:
    """After round `t`. `error` is that of the last rounds, `rate` the rounds a second then; `alarms` counts all, `alarm` is
    the latest."""

    kind: str
    t: int = 0
    nbytes: int = 0
    error_name: str | None = None
    error: float | None = None
    loss: float = 0.0
    coverage: float | None = None
    took_s: float = 0.0
    rate: float = 0.0
    verdict: Judgement | None = None
    sparkline: Sequence[float] = field(default=())
    alarms: int = 0
    alarm: Alarm | None = None


def first_summary(definition: Definition) -> Summary:
    """Of a session that has no rounds yet."""
    return Summary("auto" if definition.learner is None else definition.learner.kind)


def summary_of(session: Session) -> Summary:
    """Of a session as it is now."""
    first, history, task = first_summary(session.definition), session.history, session.task
    if task is None or not history.rounds:
        return Summary(first.kind, session.t, session.nbytes)
    view = view_of(history, is_classifier=task.truths.is_classifier)
    alarms, last = history.alarms, {name: column[-1] for name, column in view.points.items()}
    return Summary(
        first.kind,
        session.t,
        session.nbytes,
        view.error_name,
        last["window_error"],
        session.card.loss,
        last["coverage"],
        last["took_s"] or 0.0,
        rate_of(view),
        view.verdict,
        sparkline(view),
        0 if alarms is None else alarms.count,
        alarms.latest[-1] if alarms is not None and alarms.latest else None,
    )


def rate_of(view: HistoryView) -> float:
    """Rounds a second of about the last RATE_S before the last round."""
    t, at = view.points["t"], view.points["at"]
    end, rounds = at[-1] or 0.0, t[-1] or 0.0
    for i in range(len(t) - 2, -1, -1):
        then, before = at[i] or 0.0, t[i] or 0.0
        if end - then >= RATE_S or i == 0:
            return (rounds - before) / (end - then) if end > then else 0.0
    return 0.0


def encode_summary(summary: Summary) -> bytes:
    told = asdict(summary)
    told["verdict"] = None if summary.verdict is None else summary.verdict._asdict()
    told["alarm"] = None if summary.alarm is None else summary.alarm._asdict()
    told["sparkline"] = [float(f"{error:.4g}") for error in summary.sparkline if math.isfinite(error)]
    return to_json({name: value for name, value in told.items() if value is not None}, inf_nan_mode="null")


def decode_summary(blob: bytes) -> Summary:
    """What another build wrote, as far as this one knows it."""
    try:
        told: dict[str, Any] = from_json(blob)
        verdict, alarm = told.pop("verdict", None), told.pop("alarm", None)
        return Summary(
            **{name: value for name, value in told.items() if name in Summary.__slots__},
            verdict=None if verdict is None else Judgement(**verdict),
            alarm=None if alarm is None else Alarm(**alarm),
        )
    except (ValueError, TypeError, AttributeError):
        return Summary("unknown")
