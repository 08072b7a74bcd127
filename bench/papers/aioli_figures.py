"""The figures of bench.papers.aioli, as SVG: forecasts, regrets on the hard stream, calibration, and what a budget costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy.special import expit

from bench.papers import aioli_budget, aioli_hard, aioli_real
from bench.papers.aioli_budget import BUDGETS, DICTIONARIES, FOURIER, NEAR, Study
from bench.papers.aioli_hard import FORECAST_INPUTS, Forecasts, Hard
from bench.papers.aioli_real import Score, reliability
from bench.papers.kons_figures import DASHED, STYLE, Line, label_ends, panel_grid, save

BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
ORANGE, RED, PINK, GREY = "#E69F00", "#D55E00", "#CC79A7", "#555555"
REGRETS = (
    *(Line(name, name, colour) for name, colour in zip(aioli_hard.AIOLIS, (BLUE, BLUE, SKY, SKY), strict=True)),
    *(Line(name, name, RED) for name in aioli_hard.FTRLS),
    Line(aioli_hard.FOSTER, aioli_hard.FOSTER, GREEN),
    Line("ONS", "ONS", PINK),
    Line("OGD", "OGD", GREY),
)
SECOND = (aioli_hard.AIOLIS[1], aioli_hard.AIOLIS[3], aioli_hard.FTRLS[1])
"""Drawn with broken lines, since they share a colour with another."""
LINEAR_BELOW = 10.0
"""Regrets of less than this, up or down, lie on a linear part of the axis."""
FORECASTS = (
    Line("AIOLI", "AIOLI", BLUE, 2.0),
    Line("FTRL", "FTRL", RED),
    Line(aioli_hard.FOSTER, aioli_hard.FOSTER, GREEN),
)
BEST = Line("best", "best slope", GREY)
CALIBRATED = (
    Line(aioli_real.NYSTROM, "nystrom-aioli", BLUE),
    Line(aioli_real.AIOLI, "aioli", SKY),
    Line("pros-n-kons", "pros-n-kons", GREEN),
    Line("fogd, c = 30", "fogd, c = 30", ORANGE),
    Line("ons", "ons", PINK),
    Line(aioli_real.RIVER, "River", RED),
)
SIZES = (
    *(
        Line(name, name.removeprefix("nystrom-aioli, "), colour)
        for name, colour in zip(DICTIONARIES, (RED, ORANGE, GREEN), strict=True)
    ),
    Line(FOURIER, "Fourier", BLUE),
)


def draw(
    folder: Path,
    found: Sequence[Forecasts],
    sizes: Sequence[int],
    hard: Mapping[str, Hard],
    scores: Mapping[str, Score],
    studies: Sequence[Study],
) -> list[Path]:
    """Write the figures; their files. `scores` are those of MAGIC."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Callable[[], Figure]] = {
        "forecast": lambda: forecast(found),
        "regret": lambda: regret(sizes, hard),
        "calibration": lambda: calibration(scores),
        "budget": lambda: budget(studies),
    }
    style: dict[Any, Any] = STYLE | {"svg.hashsalt": "aioli"}
    paths = []
    with mpl.rc_context(style):
        for name, figure in drawn.items():
            paths.append(folder / f"aioli-{name}.svg")
            save(figure(), paths[-1])
    return paths


def _plain(ax: Axes, of_x: bool, places: Sequence[float]) -> None:
    axis = ax.xaxis if of_x else ax.yaxis
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    axis.set_minor_locator(NullLocator())


def forecast(found: Sequence[Forecasts]) -> Figure:
    """Figure 1 of the paper: log odds as a function of the input."""
    figure, panels = panel_grid(1, len(found), 2.7)
    for ax, told in zip(panels[0], found, strict=True):
        lines = [*((line, told.values[line.name]) for line in FORECASTS), (BEST, told.best)]
        for line, values in lines:
            ax.plot(
                FORECAST_INPUTS,
                values,
                color=line.colour,
                linewidth=line.width,
                linestyle=DASHED if line is BEST else "-",
            )
        label_ends(ax, [(float(values[-1]), line) for line, values in lines])
        ax.set_title(f"after {told.rounds} rounds")
        ax.set_xlabel("input x")
    panels[0, 0].set_ylabel("forecast, log odds")
    return figure


def regret(sizes: Sequence[int], hard: Mapping[str, Hard]) -> Figure:
    """Figure 2 of the paper: regret against n on the hard stream, the worse sign."""
    figure, panels = panel_grid(1, 1, 3.6)
    ax: Axes = panels[0, 0]
    for line in REGRETS:
        ax.plot(
            sizes,
            hard[line.name].worse,
            color=line.colour,
            linewidth=line.width,
            linestyle=DASHED if line.name in SECOND else "-",
            marker="o",
            markersize=2.5,
        )
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=LINEAR_BELOW)
    _plain(ax, True, [10.0**k for k in range(2, 6)])
    _plain(ax, False, [-1000, -300, -100, -30, -10, 0, 10, 30, 100, 300])
    ax.axhline(0.0, color="#444444", linewidth=0.6)
    label_ends(ax, [(float(hard[line.name].worse[-1]), line) for line in REGRETS])
    ax.set_xlabel("rounds n")
    ax.set_ylabel("regret")
    return figure


def calibration(scores: Mapping[str, Score]) -> Figure:
    """How often the label 1 came among the rounds that were given about the same probability."""
    lines = [line for line in CALIBRATED if line.name in scores]
    figure, panels = panel_grid(2, 3, 4.2, share_x=True, share_y=True)
    for ax, line in zip(panels.flat, lines, strict=False):
        passes = scores[line.name].passes
        p = np.concatenate([expit(played.values) for played in passes])
        y = np.concatenate([played.y for played in passes])
        bins = reliability(p, y)
        ax.plot([0.0, 1.0], [0.0, 1.0], color="#AAAAAA", linewidth=0.8)
        ax.plot([bin.said for bin in bins], [bin.seen for bin in bins], color=line.colour, linewidth=1.0)
        areas = [4.0 + 200.0 * bin.rounds / len(y) for bin in bins]
        ax.scatter([bin.said for bin in bins], [bin.seen for bin in bins], s=areas, color=line.colour, clip_on=False)
        ax.set_title(f"{line.label}: {scores[line.name].scores.calibration:.1f}%")
        ax.set_aspect("equal")
        ax.set_xlim(0.0, 1.0)
        ax.set_ylim(0.0, 1.0)
    for ax in panels.flat[len(lines) :]:
        ax.set_visible(False)
    figure.supxlabel("probability of a gamma that was said", fontsize=8.0)
    figure.supylabel("share of gammas seen", fontsize=8.0)
    return figure


def budget(studies: Sequence[Study]) -> Figure:
    """Loss above that of the exact learner, against what is stored."""
    figure, panels = panel_grid(1, len(studies), 2.7, share_y=True)
    for ax, study in zip(panels[0], studies, strict=True):
        ax.axhspan(-100.0 * NEAR, 100.0 * NEAR, color="#EEEEEE", linewidth=0.0)
        ends = []
        for line in SIZES:
            listed = [found for found in study.found if found.form.name == line.name]
            shares = [100.0 * study.excess(found) for found in listed]
            ax.plot(
                [found.size for found in listed],
                shares,
                color=line.colour,
                linewidth=line.width,
                marker="o",
                markersize=2.5,
            )
            ends.append((shares[-1], line))
        ax.set_xscale("log")
        ax.set_ylim(-2.0, 12.0)
        _plain(ax, True, BUDGETS)
        label_ends(ax, ends)
        ax.set_title(study.task.name)
        ax.set_xlabel("points, or frequencies")
    panels[0, 0].set_ylabel(f"loss above {aioli_budget.EXACT}, %")
    return figure
