"""The view of a session's history: columns of equal length with one entry per point, and the state at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from okl_core.monitoring.verdict import CLASS_NAMES, NUMBER_NAMES, Judgement
from okl_core.types import F64

from ..scorecard import WINDOW
from .alarms import Alarm
from .history import COLUMNS, SUMS, History
from .spread import BINS, DELAYS_S, QUANTILES

SPARKS = 32
"""Points in the sparkline of a list."""

RATE_S = 60.0

_FIRST = (CLASS_NAMES[0], NUMBER_NAMES[0])

Column = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Reliability:
    """Forecasts with a probability from `start` to `end`: their number, their mean, and how often the event happened."""

    start: float
    end: float
    rounds: float
    forecast: float
    happened: float


@dataclass(frozen=True, slots=True)
class Delays:
    """Rounds whose truth came from `start_s` to `end_s` seconds after the prediction; None for an open end."""

    start_s: float
    end_s: float | None
    rounds: int


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a learner's parts by name, at the end of each round `t`; the `leader` has the largest now."""

    t: Sequence[int]
    parts: dict[str, list[float]]
    leader: str


@dataclass(frozen=True, slots=True)
class HistoryView:
    """A history's columns by name (`points`); errors are a classifier's mistake rates, else RMSE.

    The `verdict` compares the learner with the better trivial forecaster so far.
    """

    is_classifier: bool
    verdict: Judgement | None
    points: dict[str, Column]
    weights: Weights | None
    reliability: Sequence[Reliability] | None
    delays: Sequence[Delays]
    alarms: Sequence[Alarm]


@dataclass(frozen=True, slots=True)
class Outline:
    """What a list shows of a history: the last windowed `error` and `coverage`, and `took_s` of the last point.

    `sparkline`: evenly spaced windowed errors; `rate`: rounds a second in about the last RATE_S before the last round.
    """

    error: float
    sparkline: Sequence[float]
    coverage: float | None
    took_s: float | None
    rate: float


def view_of(history: History) -> HistoryView:
    """The view of a history with at least one round.

    Errors are mistake rates or RMSE; `window_*` cover the last WINDOW rounds, or the whole point if that is longer.
    """
    judged = None if history.verdict is None else history.verdict.judgement()
    alarms = [] if history.alarms is None else history.alarms.latest
    return HistoryView(
        is_classifier=history.is_classifier,
        verdict=judged,
        points=_points(history, judged),
        weights=_weights(history),
        reliability=_reliability(history) if history.spread.has_reliability else None,
        delays=_delays(history),
        alarms=alarms,
    )


def outline_of(history: History) -> Outline:
    """The outline of a history with at least one round: part of `view_of`, at part of its cost."""
    table = _Table(history)
    errors = table.errors(table.window, "error")
    few = np.linspace(0, len(errors) - 1, min(SPARKS, len(errors))).round().astype(int)
    [coverage] = _shares(table.window("kept")[-1:], table.window("promised")[-1:])
    [took_s] = _measured(table.point("took_s")[-1:] / table.point("rounds")[-1:])
    t, at = table.total("rounds"), table.point("at")
    then = max(int(np.searchsorted(at, at[-1] - RATE_S, side="right")) - 1, 0)
    seconds = (at[-1] - at[then]).item()
    rate = (t[-1] - t[then]).item() / seconds if seconds > 0.0 else 0.0
    return Outline(errors[-1].item(), errors[few].tolist(), coverage, took_s, rate)


class _Table:
    """The points of a history by column name: their own values, running totals, and sums of the window ending at each."""

    def __init__(self, history: History) -> None:
        self._is_classifier = history.is_classifier
        self._rows = history.rows()
        sums = self._rows[:, : len(SUMS)]
        self._totals = np.cumsum(sums, axis=0)
        t = self._totals[:, COLUMNS["rounds"]]
        before = np.vstack((np.zeros(len(SUMS)), self._totals))
        self._windows = self._totals - before[np.searchsorted(t, t - WINDOW, side="right")]

    def __len__(self) -> int:
        return len(self._rows)

    def point(self, name: str) -> F64:
        return self._rows[:, COLUMNS[name]]

    def total(self, name: str) -> F64:
        return self._totals[:, COLUMNS[name]]

    def window(self, name: str) -> F64:
        return self._windows[:, COLUMNS[name]]

    def errors(self, sums: Callable[[str], F64], name: str) -> F64:
        """The mean errors by the sums of a column: mistake rates, or RMSE."""
        means = sums(name) / sums("rounds")
        return means if self._is_classifier else np.sqrt(means)


def _points(history: History, judged: Judgement | None) -> dict[str, Column]:
    table = _Table(history)
    rival = "first" if judged is None or judged.rival in _FIRST else "second"
    low, median, high = (table.point(f"quantile_{q}") for q in QUANTILES)
    none = [None] * len(table)

    def mean(sums: Callable[[str], F64], name: str) -> Column:
        return (sums(name) / sums("rounds")).tolist()

    def error(sums: Callable[[str], F64], name: str) -> Column:
        return table.errors(sums, name).tolist()

    return {
        "t": _whole(table.total("rounds")),
        "at": table.point("at").tolist(),
        "rounds": _whole(table.point("rounds")),
        "loss": mean(table.point, "loss"),
        "error": error(table.point, "error"),
        "window": _whole(table.window("rounds")),
        "window_loss": mean(table.window, "loss"),
        "window_error": error(table.window, "error"),
        "window_rival_loss": mean(table.window, f"{rival}_loss"),
        "window_rival_error": error(table.window, f"{rival}_error"),
        "total_loss": mean(table.total, "loss"),
        "total_error": error(table.total, "error"),
        "total_rival_loss": mean(table.total, f"{rival}_loss"),
        "total_rival_error": error(table.total, f"{rival}_error"),
        "coverage": _shares(table.window("kept"), table.window("promised")),
        "low": none if history.is_classifier else low.tolist(),
        "median": none if history.is_classifier else median.tolist(),
        "high": none if history.is_classifier else high.tolist(),
        "dictionary": table.point("dictionary").tolist(),
        "bytes": _measured(table.point("bytes")),
        "took_s": _measured(table.point("took_s") / table.point("rounds")),
        "waiting": _whole(table.point("waiting")),
        "never_came": _whole(table.point("never_came")),
        "late": _whole(table.point("late")),
        "delay_s": _shares(table.point("waited_s"), table.point("late")),
        "regret": table.point("regret").tolist() if history.has_regret else none,
        "bound": none if math.isnan(history.bound) else [history.bound] * len(table),
    }


def _whole(column: F64) -> Column:
    return column.astype(int).tolist()


def _measured(column: F64) -> Column:
    """None stands for what was not yet measured, and recorded as 0."""
    return [value or None for value in column.tolist()]


def _shares(part: F64, whole: F64) -> Column:
    return [a / b if b else None for a, b in zip(part.tolist(), whole.tolist(), strict=True)]


def _weights(history: History) -> Weights | None:
    standings = history.standings
    if standings is None:
        return None
    parts = standings.weights()
    return Weights(standings.rounds, parts, leader=max(parts, key=lambda name: parts[name][-1]))


def _reliability(history: History) -> list[Reliability]:
    """The non-empty bins."""
    bins = []
    for i, (rounds, forecast, happened) in enumerate(history.spread.reliability.T.tolist()):
        if rounds:
            bins.append(Reliability(i / BINS, (i + 1) / BINS, rounds, forecast / rounds, happened / rounds))
    return bins


def _delays(history: History) -> list[Delays]:
    edges = (0.0, *DELAYS_S, None)
    counts = history.spread.delays.tolist()
    return [Delays(edges[i] or 0.0, edges[i + 1], int(count)) for i, count in enumerate(counts)]
