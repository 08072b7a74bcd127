"""The figures of bench.papers.kons, as SVG: regret with its bounds, time of a round, and points, each against t.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; every line is labelled at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.papers.kons_runs import GAMMAS, KONS, Played, Result, factor_size
from okl_core.types import F64


class Line(NamedTuple):
    """How a contestant is drawn."""

    name: str
    label: str
    colour: str
    width: float = 1.4


EXACT = Line(KONS, "KONS", "#0072B2")
OGD = Line("Kernel OGD", "kernel OGD", "#555555")
STEPS = [
    EXACT._replace(label="curvature"),
    Line("KONS, adaptive", "adaptive", "#009E73"),
    Line("KONS, inverse-sqrt", "inverse-sqrt", "#CC79A7"),
    OGD,
]
SKETCHES = [
    # Wider than what may cover it.
    EXACT._replace(width=2.2),
    *(
        Line(f"Sketched-KONS, {gamma:g}", f"γ = {gamma:g}", colour)
        for gamma, colour in zip(GAMMAS, ("#8A3B00", "#D55E00", "#E69F00"), strict=True)
    ),
    Line("PROS-N-KONS, curvature", "PROS-N-KONS", "#56B4E9"),
]

STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.labelcolor": "#222222",
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 8.5,
    "axes.xmargin": 0.0,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 8.0,
    "grid.color": "#E0E0E0",
    "grid.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "path.simplify_threshold": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "kons",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}

DASHED = (0.0, (3.0, 1.5))

LABEL_GAP = 0.075
"""Distance of two labels at least, as a share of the height of a panel."""


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write the figures; their files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with mpl.rc_context(STYLE):
        figures = {
            "regret": regret(results),
            "time": cost(results, [*SKETCHES, OGD], "time of a round, µs", lambda played: played.round_us),
            "points": cost(results, SKETCHES, "points in the factor", points),
        }
        for name, figure in figures.items():
            paths.append(folder / f"kons-{name}.svg")
            save(figure, paths[-1])
    return paths


def points(played: Played) -> F64:
    return np.array([factor_size(played.by.kind, told) for told in played.told])


def regret(results: Sequence[Result]) -> Figure:
    """Regrets against the best function of each beginning of the stream, and the bounds on them."""
    figure, panels = panel_grid(2, len(results), height=5.4)
    for column, result in zip(panels.T, results, strict=True):
        for ax, lines, what in zip(column, (STEPS, SKETCHES), ("step sizes", "sketches"), strict=True):
            ends = []
            for line in lines:
                played = result.runs[line.name]
                t = [len(best.losses) for best in result.bests]
                regrets = [played.regret(best) for best in result.bests]
                positive = [value if value > 0.0 else np.nan for value in regrets]
                ax.plot(t, positive, color=line.colour, linewidth=line.width)
                if line in STEPS[:-1] or line in SKETCHES[:-1]:
                    bounds = [played.bound(best) for best in result.bests]
                    ax.plot(t, bounds, color=line.colour, linewidth=0.9, linestyle=DASHED)
                ends.append((regrets[-1], line))
            finish(ax, ends, f"{result.task.name}: {what}")
    keys = [Line2D([], [], color="#444444"), Line2D([], [], color="#444444", linewidth=0.9, linestyle=DASHED)]
    panels[0, 0].legend(keys, ["regret", "its bound"], loc="upper left")
    name_axes(panels, "regret")
    return figure


def cost(results: Sequence[Result], lines: Sequence[Line], what: str, of: Callable[[Played], F64]) -> Figure:
    """Something of every block, for these lines."""
    figure, panels = panel_grid(1, len(results), height=2.9)
    for ax, result in zip(panels[0], results, strict=True):
        ends = []
        for line in lines:
            played = result.runs[line.name]
            values = of(played)
            ax.plot(played.ends, values, color=line.colour, linewidth=line.width)
            ends.append((float(values[-1]), line))
        finish(ax, ends, result.task.name)
    name_axes(panels, what)
    return figure


def panel_grid(
    rows: int, columns: int, height: float, *, share_x: bool = False, share_y: bool = False
) -> tuple[Figure, np.ndarray]:
    """A figure as wide as a page, and its panels, shape (rows, columns)."""
    figure = Figure(figsize=(7.2, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=share_x, sharey=share_y)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, the same bytes each time."""
    figure.savefig(path, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})


def name_axes(panels: np.ndarray, what: str) -> None:
    for ax in panels[:, 0]:
        ax.set_ylabel(what)
    for ax in panels[-1]:
        ax.set_xlabel("round t")


def finish(ax: Axes, ends: Sequence[tuple[float, Line]], title: str) -> None:
    """Logarithmic axes, and a label right of the end of each line."""
    ax.set_title(title)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis, subs in ((ax.xaxis, (1.0, 2.0, 4.0)), (ax.yaxis, (1.0, 2.0, 5.0))):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    label_ends(ax, ends)


def label_ends(ax: Axes, ends: Sequence[tuple[float, Line]]) -> None:
    """A label right of the end of each line, at its last value. What is off the axis is named at its foot or head."""
    ends = sorted(ends)
    bottom, top = ax.get_ylim()
    to_share = ax.transScale + ax.transLimits
    shares = to_share.transform([(ax.get_xlim()[1], min(max(value, bottom), top)) for value, _ in ends])[:, 1]
    for height, (_, line) in zip(apart(shares), ends, strict=True):
        ax.annotate(
            line.label,
            (1.0, height),
            (4.0, 0.0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=line.colour,
            va="center",
        )


def apart(heights: F64) -> list[float]:
    """Ascending heights, LABEL_GAP apart: those that are nearer than that spread around their mean."""
    clusters: list[tuple[float, int]] = []
    for height in heights.tolist():
        clusters.append((height, 1))
        while len(clusters) > 1:
            (low, n), (high, m) = clusters[-2:]
            if high - low >= 0.5 * (n + m) * LABEL_GAP:
                break
            clusters[-2:] = [((low * n + high * m) / (n + m), n + m)]
    return [centre + LABEL_GAP * (i - 0.5 * (n - 1)) for centre, n in clusters for i in range(n)]
