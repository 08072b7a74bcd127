"""A session's history as it is told: columns of equal length, one entry a point, and what is known at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from okl_core.monitoring.verdict import CLASS_NAMES, NUMBER_NAMES, Judgement
from okl_core.types import F64
from service.session.history.alarms import Alarm
from service.session.history.history import LATEST, SUMS, History
from service.session.history.spread import BINS, DELAYS_S, QUANTILES
from service.session.scorecard import WINDOW

SPARKS = 32
"""Points of the small picture in a list."""

_FIRST = (CLASS_NAMES[0], NUMBER_NAMES[0])

Column = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Reliability:
    """Of the forecasts whose probability was from `start` to `end`: how many, their mean, and how often it happened."""

    start: float
    end: float
    rounds: float
    forecast: float
    happened: float


@dataclass(frozen=True, slots=True)
class Delays:
    """Rounds whose truth came from `start_s` to `end_s` after their prediction; `end_s` is None where that is open."""

    start_s: float
    end_s: float | None
    rounds: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Of a learner's parts by name, at the end of round `t`."""

    t: Sequence[int]
    parts: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """`points` by name; `error_name` says what an error is; the `verdict` is against the better trivial forecaster so far."""

    error_name: str
    verdict: Judgement | None
    points: dict[str, Column]
    weights: Weights | None
    reliability: Sequence[Reliability] | None
    delays: Sequence[Delays]
    alarms: Sequence[Alarm]


def view_of(history: History, *, is_classifier: bool) -> HistoryView:
    """What a history tells. Errors are mistake rates or RMSE; `window_*` look at the last rounds, WINDOW of them or the
    point itself where that is longer."""
    judged = None if history.verdict is None else history.verdict.told()
    alarms = [] if history.alarms is None else history.alarms.latest
    return HistoryView(
        error_name="mistake rate" if is_classifier else "RMSE",
        verdict=judged,
        points=_points(history, judged, is_classifier=is_classifier),
        weights=_weights(history),
        reliability=_reliability(history) if history.spread.has_reliability else None,
        delays=_delays(history),
        alarms=alarms,
    )


def sparkline(view: HistoryView) -> list[float]:
    """Some of the windowed errors, evenly taken, the last one among them."""
    errors = [error for error in view.points["window_error"] if error is not None]
    if len(errors) <= SPARKS:
        return errors
    return [errors[i] for i in np.linspace(0, len(errors) - 1, SPARKS).round().astype(int)]


def _points(history: History, judged: Judgement | None, *, is_classifier: bool) -> dict[str, Column]:
    rows = history.rows()
    sums = dict(zip(SUMS, rows[:, : len(SUMS)].T, strict=True))
    latest = dict(zip(LATEST, rows[:, len(SUMS) :].T, strict=True))
    totals = {name: np.cumsum(column) for name, column in sums.items()}
    rounds, t = sums["rounds"], totals["rounds"]
    rival = "first" if judged is None or judged.rival in _FIRST else "second"
    before = np.searchsorted(t, t - WINDOW, side="right")

    def windowed(name: str) -> F64:
        return totals[name] - np.concatenate(([0.0], totals[name]))[before]

    window = windowed("rounds")

    def error_of(total: F64, of: F64) -> Column:
        mean = total / of
        return (mean if is_classifier else np.sqrt(mean)).tolist()

    low, median, high = (latest[f"quantile_{q}"] for q in QUANTILES)
    none = [None] * len(rows)
    return {
        "t": t.astype(int).tolist(),
        "at": latest["at"].tolist(),
        "rounds": rounds.astype(int).tolist(),
        "loss": (sums["loss"] / rounds).tolist(),
        "error": error_of(sums["error"], rounds),
        "window": window.astype(int).tolist(),
        "window_loss": (windowed("loss") / window).tolist(),
        "window_error": error_of(windowed("error"), window),
        "window_rival_loss": (windowed(f"{rival}_loss") / window).tolist(),
        "window_rival_error": error_of(windowed(f"{rival}_error"), window),
        "total_loss": (totals["loss"] / t).tolist(),
        "total_error": error_of(totals["error"], t),
        "total_rival_loss": (totals[f"{rival}_loss"] / t).tolist(),
        "total_rival_error": error_of(totals[f"{rival}_error"], t),
        "coverage": _shares(windowed("kept"), windowed("promised")),
        "low": none if is_classifier else low.tolist(),
        "median": none if is_classifier else median.tolist(),
        "high": none if is_classifier else high.tolist(),
        "dictionary": latest["dictionary"].tolist(),
        "bytes": latest["bytes"].tolist(),
        "took_s": (sums["took_s"] / rounds).tolist(),
        "waiting": latest["waiting"].astype(int).tolist(),
        "never_came": latest["never_came"].astype(int).tolist(),
        "late": sums["late"].astype(int).tolist(),
        "delay_s": _shares(sums["waited_s"], sums["late"]),
        "regret": latest["regret"].tolist() if history.has_regret else none,
        "bound": none if math.isnan(history.bound) else [history.bound] * len(rows),
    }


def _shares(part: F64, whole: F64) -> Column:
    return [a / b if b else None for a, b in zip(part.tolist(), whole.tolist(), strict=True)]


def _weights(history: History) -> Weights | None:
    standings = history.standings
    return None if standings is None else Weights(standings.rounds, standings.weights())


def _reliability(history: History) -> list[Reliability]:
    """The bins that have forecasts."""
    told = []
    for i, (rounds, forecast, happened) in enumerate(history.spread.reliability.T.tolist()):
        if rounds:
            told.append(Reliability(i / BINS, (i + 1) / BINS, rounds, forecast / rounds, happened / rounds))
    return told


def _delays(history: History) -> list[Delays]:
    edges = (0.0, *DELAYS_S, None)
    counts = history.spread.delays.tolist()
    return [Delays(edges[i] or 0.0, edges[i + 1], int(count)) for i, count in enumerate(counts)]
