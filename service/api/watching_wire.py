"""Encode the answers of the routes that observe a session."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from starlette.types import Scope

from okl.errors import ServiceError
from okl.measures import error_name
from okl.values import Json
from okl_core.records.record import Raw

from ..session.requests import Predicted
from ..sessions import Listed
from ..watching.past import PastHistory, PastRound, WaitingList, WaitingRound
from . import wire
from .problems import document_for
from .verdicts import alarm, verdict

IDLE_S = 60.0
"""A session without a round for longer than this has a rate of 0 rounds per second."""


def line(listed: Listed, now: float) -> Json:
    """A session's entry in the list of sessions."""
    head, summary = listed.head, listed.summary
    is_classifier = summary.is_classifier
    last = head.created_at if head.updated_at is None else head.updated_at
    return wire.summary(head, summary.kind) | {
        "never_came": head.never_came,
        "bytes": summary.nbytes,
        "rate": summary.rate if now - last < IDLE_S else 0.0,
        "error_name": summary.error_name,
        "error": summary.error,
        "verdict": verdict(summary.verdict, is_classifier=is_classifier),
        "sparkline": list(summary.sparkline),
        "alarms": summary.alarms,
        "alarm": None if summary.alarm is None else alarm(summary.alarm, is_classifier=is_classifier),
    }


def history(name: str, past: PastHistory) -> Json:
    view = past.view
    if view is None:
        nothing = dict.fromkeys(("error_name", "rival", "verdict", "points", "weights", "reliability"))
        return {"session": name, "t": past.t} | nothing | {"delays": [], "alarms": []}
    is_classifier, weights = view.is_classifier, view.weights
    return {
        "session": name,
        "t": past.t,
        "error_name": error_name(is_classifier=is_classifier),
        "rival": None if view.verdict is None else view.verdict.rival,
        "verdict": verdict(view.verdict, is_classifier=is_classifier),
        "points": view.points,
        "weights": None
        if weights is None
        else {
            "t": weights.t,
            "leader": weights.leader,
            "names": list(weights.parts),
            "values": list(weights.parts.values()),
        },
        "reliability": None if view.reliability is None else [asdict(bin) for bin in view.reliability],
        "delays": [asdict(bin) for bin in view.delays],
        "alarms": [alarm(one, is_classifier=is_classifier) for one in view.alarms],
    }


def history_csv(past: PastHistory) -> str:
    """One line per point; unknown values are empty."""
    text = io.StringIO()
    if past.view is not None:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(past.view.points)
        writer.writerows(zip(*past.view.points.values(), strict=True))
    return text.getvalue()


def past_rounds(name: str, found: Iterable[PastRound]) -> Json:
    return {"session": name, "rounds": [_past_round(one) for one in found]}


def _past_round(one: PastRound) -> Json:
    answer = _members(one) | {"x": _plain(one.x), "mistake": None}
    return answer if one.label is None else answer | {"mistake": bool(one.error), "error": None}


def _members(one: PastRound | WaitingRound) -> Json:
    """Its fields by name. `asdict` would copy the input too, value by value, which takes a second for a page of wide ones."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _plain(x: Raw) -> Any:
    """The input as JSON: a missing number, NaN in the domain, becomes null."""
    return x if isinstance(x, dict) else [None if math.isnan(value) else value for value in x.tolist()]


def waiting(name: str, found: WaitingList) -> Json:
    return {
        "session": name,
        "predictions": [_members(one) | {"x": _plain(one.x)} for one in found.predictions],
        "next": found.cursor,
        "waiting": found.waiting,
        "never_came": found.never_came,
        "ages": [asdict(bin) for bin in found.ages],
    }


def many_predictions(name: str, results: Sequence[Predicted | ServiceError], scope: Scope) -> Json:
    answers = [
        {"refused": document_for(one, scope)} if isinstance(one, ServiceError) else wire.prediction(one)
        for one in results
    ]
    return {"session": name, "predictions": answers}
