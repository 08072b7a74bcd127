"""The charts of a session: the columns of its documents that each draws, its texts, and its table.

A chart is data: one function of the script draws all of them, and the server renders their tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

from okl.measures import MISTAKE_RATE
from okl.values import Json

from . import formats

TABLE_ROWS: Final = 16
"""Rows of a chart's table: points spread evenly over all, including the last one."""

DIGITS: Final = 5
"""Significant digits of the numbers in a chart."""

SHOWN_WEIGHTS: Final = 8
"""The most lines of one chart that are easy to tell apart."""

Unit = Literal["number", "share", "size", "duration", "count"]
Numbers = Sequence[float | None]

_FORMATS: Final = {
    "number": formats.number,
    "share": formats.share,
    "size": formats.size,
    "duration": formats.duration,
    "count": formats.count,
}


@final
@dataclass(frozen=True, slots=True)
class Curve:
    """`tone` names its colour and stroke in the style; `x` and `y` are columns."""

    label: str
    tone: str
    y: str
    x: str = "t"


@final
@dataclass(frozen=True, slots=True)
class Face:
    """One of the views that a chart can switch between."""

    label: str
    unit: Unit
    lines: tuple[Curve, ...]


@final
@dataclass(frozen=True, slots=True)
class Chart:
    """`is_square`: both axes are shares from 0 to 1. `is_zoomed`: the vertical axis does not start at zero. `band`: the two
    lines between which the area is shaded."""

    id: str
    title: str
    about: str
    faces: tuple[Face, ...]
    is_wide: bool = False
    is_square: bool = False
    is_zoomed: bool = False
    has_marks: bool = True
    band: tuple[int, int] | None = None

    @property
    def legend(self) -> tuple[Curve, ...]:
        return self.faces[0].lines


@final
@dataclass(slots=True)
class Charts:
    """The charts of a page and the columns that they draw; `marks` are the alarms, {"t", "kind", "text"}."""

    charts: list[Chart] = field(default_factory=list)
    columns: dict[str, Numbers] = field(default_factory=dict)
    marks: list[Json] = field(default_factory=list)

    def data(self) -> str:
        """The script's input, as JSON that is safe to embed in a page."""
        used = {
            name for chart in self.charts for face in chart.faces for line in face.lines for name in (line.x, line.y)
        }
        data = {
            "columns": {name: [_rounded(value) for value in self.columns[name]] for name in sorted(used)},
            "marks": [{"t": mark["t"], "kind": mark["kind"]} for mark in self.marks],
            "charts": [_drawn(chart) for chart in self.charts],
        }
        return in_page(data)

    def table(self, chart: Chart) -> tuple[list[str], list[list[str]]]:
        """Headings and rows, the latest first: each x, followed by the lines over it."""
        columns: dict[str, list[tuple[str, Unit, Numbers]]] = {}
        for face in chart.faces:
            for line in face.lines:
                label = f"{face.label}: {line.label}" if len(chart.faces) > 1 else line.label
                columns.setdefault(line.x, []).append((label, face.unit, self.columns[line.y]))
        heads: list[str] = []
        rows: list[list[str]] = [[] for _ in range(min(TABLE_ROWS, max(len(self.columns[x]) for x in columns)))]
        for x, lines in columns.items():
            heads += ["forecast" if chart.is_square else "round", *(label for label, _, _ in lines)]
            indices = spread(len(self.columns[x]))
            for i, row in enumerate(rows):
                index = indices[i] if i < len(indices) else None
                say = formats.share if chart.is_square else formats.count
                row.append(formats.UNKNOWN if index is None else say(self.columns[x][index]))
                row += [
                    formats.UNKNOWN if index is None else _FORMATS[unit](numbers[index]) for _, unit, numbers in lines
                ]
        return heads, rows

    def add(self, chart: Chart) -> None:
        """Add the chart with the curves that have a number; do nothing if there is none."""
        faces = [replace(face, lines=tuple(filter(self._has_numbers, face.lines))) for face in chart.faces]
        faces = [face for face in faces if face.lines]
        if faces:
            is_whole = len(faces[0].lines) == len(chart.legend)
            self.charts.append(replace(chart, faces=tuple(faces), band=chart.band if is_whole else None))

    def _has_numbers(self, curve: Curve) -> bool:
        return any(value is not None for value in self.columns.get(curve.y, ()))


def spread(length: int) -> list[int]:
    """At most TABLE_ROWS indices, evenly spread, including the last one, latest first."""
    rows = min(length, TABLE_ROWS)
    return [length - 1 - i * length // rows for i in range(rows)]


def in_page(data: Any) -> str:
    """JSON without characters that could end the element that contains it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _rounded(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def _drawn(chart: Chart) -> Json:
    return {
        "id": chart.id,
        "square": chart.is_square,
        "zoomed": chart.is_zoomed,
        "marks": chart.has_marks,
        "band": chart.band,
        "tones": [line.tone for line in chart.legend],
        "faces": [
            {"label": face.label, "unit": face.unit, "lines": [[line.x, line.y] for line in face.lines]}
            for face in chart.faces
        ],
    }


# -- one session ------------------------------------------------------------------------------------------------------


def of_session(document: Json) -> Charts:
    """The charts for which the session's history has numbers, in the order of the page."""
    history = document.get("history") or {}
    points: dict[str, Numbers] = history.get("points") or {}
    if not points.get("t"):
        return Charts()
    found = Charts(columns=dict(points), marks=history.get("alarms") or [])
    is_rate = history.get("error_name") == MISTAKE_RATE
    error = "Mistake rate" if is_rate else "RMSE"
    unit: Unit = "share" if is_rate else "number"
    rival = history.get("rival") or "trivial forecaster"

    def against(label: str, unit: Unit, name: str) -> Face:
        start, _, kind = name.partition("_")
        lines = Curve("this session", "own", name), Curve(rival, "rival", f"{start}_rival_{kind}")
        return Face(label, unit, lines)

    about = "Over the last rounds, beside the best trivial forecaster so far; dotted lines are alarms."
    faces = (
        against(error, unit, "window_error"),
        against("Loss", "number", "window_loss"),
        against(f"{error}, all rounds", unit, "total_error"),
        against("Loss, all rounds", "number", "total_loss"),
    )
    found.add(Chart("quality", "How well it does", about, faces, is_wide=True))
    regret = Curve("regret", "own", "regret"), Curve("bound", "bound", "bound")
    about = "Loss beyond that of the pool's best expert"
    has_bound = any(value is not None for value in points.get("bound") or ())
    about += ", and the bound that theory puts on it by now." if has_bound else "."
    found.add(Chart("regret", "Regret", about, (Face("Regret", "number", regret),)))
    _add_calibration(found, document, history.get("reliability"))
    _add_deliveries(found)
    _add_weights(found, history.get("weights"))
    _add_resources(found)
    return found


def _add_calibration(found: Charts, document: Json, reliability: Sequence[Json] | None) -> None:
    bins = [one for one in reliability or () if one.get("rounds") and one.get("forecast") is not None]
    if bins:
        found.columns["reliability_forecast"] = [one["forecast"] for one in bins]
        found.columns["reliability_happened"] = [one["happened"] for one in bins]
        found.columns["reliability_rounds"] = [one["rounds"] for one in bins]
        x = "reliability_forecast"
        lines = Curve("happened", "points", "reliability_happened", x), Curve("perfect", "rival", x, x)
        about = "How often it happened, by the probability that was forecast. On the diagonal they agree."
        face = Face("Calibration", "share", lines)
        found.add(Chart("reliability", "Calibration", about, (face,), is_square=True, has_marks=False))
    residuals = Curve("10 %", "edge", "low"), Curve("median", "own", "median"), Curve("90 %", "edge", "high")
    about = "Forecast minus truth in the last rounds: its median, and its 10 % and 90 % quantiles."
    found.add(Chart("residuals", "Residuals", about, (Face("Residuals", "number", residuals),), band=(0, 2)))
    lines = (Curve("observed", "own", "coverage"),)
    asked = (document["session"].get("settings") or {}).get("interval")
    if asked is not None and "coverage" in found.columns:
        found.columns["coverage_asked"] = [asked] * len(found.columns["t"])
        lines += (Curve("target", "rival", "coverage_asked"),)
    about = "Share of the truths that their interval, or set of labels, held."
    found.add(Chart("coverage", "Coverage", about, (Face("Coverage", "share", lines),), is_zoomed=True))


def _add_deliveries(found: Charts) -> None:
    lines = (Curve("delay", "own", "delay_s"),)
    found.add(
        Chart(
            "delay", "Label delay over time", "From the prediction to its truth.", (Face("Delay", "duration", lines),)
        )
    )
    lines = (Curve("waiting", "own", "waiting"), Curve("never came", "bad", "never_came"))
    about = "Predictions that wait for their truth, and truths that never came."
    if any(any(found.columns.get(line.y, ())) for line in lines):
        found.add(Chart("waits", "Waiting for truths", about, (Face("Predictions", "count", lines),)))


def _add_weights(found: Charts, weights: Json | None) -> None:
    if not weights or not weights.get("t"):
        return
    found.columns["weights_t"] = weights["t"]
    named = sorted(
        zip(weights["names"], weights["values"], strict=True), key=lambda one: one[1][-1] or 0.0, reverse=True
    )
    lines = []
    for i, (name, values) in enumerate(named[:SHOWN_WEIGHTS]):
        found.columns[f"weights_{i}"] = values
        lines.append(Curve(name, f"series-{i + 1}", f"weights_{i}", "weights_t"))
    left = len(named) - len(lines)
    about = "Weight of each part of the learner." + (f" The {left} smallest are omitted." if left else "")
    found.add(Chart("weights", "Weights", about, (Face("Weights", "share", tuple(lines)),), is_wide=True))


def _add_resources(found: Charts) -> None:
    several: tuple[tuple[str, str, str, Unit], ...] = (
        ("dictionary", "Dictionary", "Points that the learner stores.", "count"),
        ("bytes", "Memory", "Memory of the learner.", "size"),
        ("took_s", "Time per round", "Compute time of one round.", "duration"),
    )
    for id, title, about, unit in several:
        # A learner without a dictionary has stored no point in any round.
        if any(found.columns.get(id, ())):
            found.add(Chart(id, title, about, (Face(title, unit, (Curve(title.lower(), "own", id),)),)))


# -- several sessions -------------------------------------------------------------------------------------------------


def of_several(sessions: Sequence[Json]) -> Charts:
    """Windowed error and mean loss of each session, by rounds. Classifiers and regressors, whose numbers do not compare, are
    in charts of their own."""
    found = Charts()
    for i, one in enumerate(sessions):
        points = one.get("points") or {}
        for name in ("t", "window_error", "total_loss"):
            found.columns[f"{name}_{i}"] = points.get(name) or []
    measures = dict.fromkeys(one["error_name"] for one in sessions if one.get("error_name"))
    for measure in measures:
        names = {i: one["name"] for i, one in enumerate(sessions) if one.get("error_name") == measure}
        is_rate = measure == MISTAKE_RATE
        id, title, unit = ("rate", "Mistake rate", "share") if is_rate else ("rmse", "RMSE", "number")
        members = "" if len(measures) == 1 else " of classifiers" if is_rate else " of regressors"
        error = Face("Error", unit, _lines(names, "window_error"))
        loss = Face("Loss", "number", _lines(names, "total_loss"))
        about = "Over the last rounds of each session."
        found.add(Chart(id, title, about, (error,), is_wide=True, has_marks=False))
        about = "Over all rounds so far."
        found.add(Chart(f"{id}-loss", f"Mean loss{members}", about, (loss,), is_wide=True, has_marks=False))
    return found


def _lines(names: Mapping[int, str], column: str) -> tuple[Curve, ...]:
    """A line for each of these sessions, by their place among all, in the same colour in every chart."""
    return tuple(Curve(name, f"series-{i + 1}", f"{column}_{i}", f"t_{i}") for i, name in names.items())
