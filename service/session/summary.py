"""The summary that lists show of a session: small, stored beside the session, read without loading it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from okl.measures import MISTAKE_RATE, error_name
from okl_core.monitoring.verdict import Judgement

from .definition import Definition
from .history.alarms import Alarm
from .history.view import outline_of
from .session import Session


@dataclass(frozen=True, slots=True)
class Summary:
    """A session after round `t`. `error` and `rate` (rounds a second) are those of the last rounds.

    `alarms` counts all, `alarm` is the latest. `expires_s`: how long predictions wait, if the session sets it. `asked_at`:
    when a worker last predicted, within seconds, by the store's clock, for a session made by a `template`. `loss` is None if
    it is not finite.
    """

    kind: str
    t: int = 0
    nbytes: int = 0
    error_name: str | None = None
    error: float | None = None
    loss: float | None = 0.0
    coverage: float | None = None
    took_s: float | None = None
    rate: float = 0.0
    verdict: Judgement | None = None
    sparkline: Sequence[float] = ()
    alarms: int = 0
    alarm: Alarm | None = None
    expires_s: float | None = None
    template: str | None = None
    asked_at: float | None = None

    @property
    def is_classifier(self) -> bool:
        """Whether the error is a mistake rate; False before there is an error."""
        return self.error_name == MISTAKE_RATE


def first_summary(definition: Definition) -> Summary:
    """The summary of a session without rounds."""
    return Summary(definition.kind, expires_s=definition.expires_s, template=definition.template)


def summary_of(session: Session) -> Summary:
    """The summary of a session in its present state."""
    first, history = first_summary(session.definition), session.history
    if not history.rounds:
        return replace(first, t=session.t, nbytes=session.nbytes)
    outline, alarms = outline_of(history), history.alarms
    return Summary(
        kind=first.kind,
        t=session.t,
        nbytes=session.nbytes,
        error_name=error_name(is_classifier=history.is_classifier),
        error=outline.error,
        loss=session.card.loss,
        coverage=outline.coverage,
        took_s=outline.took_s,
        rate=outline.rate,
        verdict=None if history.verdict is None else history.verdict.judgement(),
        sparkline=outline.sparkline,
        alarms=history.alarm_count,
        alarm=alarms.latest[-1] if alarms is not None and alarms.latest else None,
        expires_s=first.expires_s,
        template=first.template,
    )


def encode_summary(summary: Summary) -> bytes:
    document: dict[str, Any] = {name: getattr(summary, name) for name in Summary.__slots__}
    document["verdict"] = None if summary.verdict is None else summary.verdict._asdict()
    document["alarm"] = None if summary.alarm is None else summary.alarm._asdict()
    document["sparkline"] = [float(f"{error:.4g}") for error in summary.sparkline if math.isfinite(error)]
    return to_json({name: value for name, value in document.items() if value is not None}, inf_nan_mode="null")


_SUMMARY = TypeAdapter(Summary)


def decode_summary(blob: bytes) -> Summary:
    """Decode a summary, ignoring fields of other builds; one that cannot be read has the kind "unknown"."""
    try:
        return _SUMMARY.validate_json(blob, strict=True)
    except ValueError:
        return Summary("unknown")
