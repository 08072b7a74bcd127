"""The figures of bench.papers.metric, as SVG: regrets, what is learned of the function, and the effective rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from bench.papers.kons_figures import STYLE, Line, finish, label_ends, name_axes, panel_grid, save
from bench.papers.metric_study import (
    EUCLIDEAN,
    LINEAR_REFEED,
    REFEED,
    RESTART,
    SUBSPACE,
    Result,
    estimate,
    phase_ends,
    true_outer_product,
)
from okl_core.packing.radius import effective_rank

SHOWN = ((5, 1), (10, 1), (10, 2), (20, 1))
"""d and directions of the streams that are drawn; of others there are tables."""

BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
ORANGE, RED, PINK, GREY = "#E69F00", "#D55E00", "#CC79A7", "#555555"

REGRETS = (
    Line(EUCLIDEAN, "identity", GREY),
    Line(SUBSPACE, "true metric", "#000000"),
    Line(RESTART, "learned, restart", ORANGE),
    Line(REFEED, "learned", RED, 2.0),
    Line(LINEAR_REFEED, "learned, linear", PINK, 2.0),
    Line("pros-n-kons", "pros-n-kons", SKY),
    Line("pros-n-kons, learned metric", "pros-n-kons, learned", BLUE),
    Line("pool", "pool", GREEN),
)

ESTIMATES = (RED, BLUE, SKY)
"""Most samples first."""
FEWEST = 30

RANK_DIM = 20
RANK_ROUNDS = 10**6
SPECTRA = (
    Line("1", "1", GREY),
    Line("1 / m", "1/m", SKY),
    Line("1 / m^2", "1/m²", BLUE),
    Line("1 / m^4", "1/m⁴", GREEN),
    Line("exp(1 - m)", "exp(1 - m)", ORANGE),
    Line("exp(3 - 3 m)", "exp(3 - 3m)", RED),
)
LEARNED = (GREY, BLUE, GREEN, RED)
"""One a stream."""

POINTS = 32
"""Of a line."""
FIRST = 10
"""Rounds before the curves begin."""


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write the figures; their files."""
    shown = [result for result in results if (result.task.d, result.task.k) in SHOWN]
    folder.mkdir(parents=True, exist_ok=True)
    style: dict[Any, Any] = STYLE | {"svg.hashsalt": "metric"}
    paths: list[Path] = []
    with mpl.rc_context(style):
        for name, figure in (("regret", regret(shown)), ("spectrum", spectrum(shown)), ("rank", rank(shown))):
            paths.append(folder / f"metric-{name}.svg")
            save(figure, paths[-1])
    return paths


def regret(results: Sequence[Result]) -> Figure:
    """Cumulative regrets, in the mean over the seeds."""
    figure, panels = panel_grid(-(-len(results) // 2), 2, height=2.6 * -(-len(results) // 2))
    for ax, result in zip(panels.flat, results, strict=False):
        t = np.unique(np.geomspace(FIRST, result.task.rounds, POINTS).round().astype(int))
        ends: list[tuple[float, Line]] = []
        for line in REGRETS:
            values = result.regret(line.name)[t - 1]
            ax.plot(t, np.where(values > 0.0, values, np.nan), color=line.colour, linewidth=line.width)
            ends.append((float(values[-1]), line))
        finish(ax, ends, result.task.name)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator())
    _hide_the_rest(panels, len(results))
    name_axes(panels, "regret")
    return figure


def spectrum(results: Sequence[Result]) -> Figure:
    """Eigenvalues of the gradient outer product over the largest, true and estimated from so many samples."""
    figure, panels = panel_grid(-(-len(results) // 2), 2, height=2.4 * -(-len(results) // 2))
    for ax, result in zip(panels.flat, results, strict=False):
        stream, T = result.task.streams[0], result.task.rounds
        m = np.arange(1, result.task.d + 1)
        sizes = [n for n in phase_ends(T) if n >= FEWEST][::-3]
        ends: list[tuple[float, Line]] = []
        for n, colour in zip(sizes, ESTIMATES, strict=False):
            values = np.linalg.eigvalsh(estimate(stream, n))[::-1]
            ax.plot(m, values / values[0], color=colour, linewidth=1.2)
            ends.append((float(values[-1] / values[0]), Line("", f"{n}", colour)))
        truth = np.linalg.eigvalsh(true_outer_product(stream))[::-1][: result.task.k]
        ax.plot(m[: len(truth)], truth / truth[0], "o", color="#000000", markerfacecolor="none", label="true, others 0")
        ax.set_yscale("log")
        ax.set_title(result.task.name)
        ax.yaxis.set_minor_locator(NullLocator())
        ax.margins(x=0.03)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label_ends(ax, ends)
    panels[0, 0].legend(loc="upper right")
    _hide_the_rest(panels, len(results))
    name_axes(panels, "share of the largest")
    for ax in panels[-1]:
        ax.set_xlabel("eigenvalue m of d")
    return figure


def rank(results: Sequence[Result]) -> Figure:
    """Effective rank against t: of spectra, as figure 1 of the paper, and of the metrics that were learned."""
    figure, panels = panel_grid(1, 2, height=2.9)
    of_spectra, of_learned = panels[0]
    t = np.unique(np.geomspace(1, RANK_ROUNDS, 10 * POINTS).round().astype(int))
    m = np.arange(1.0, RANK_DIM + 1)
    lines = (np.ones(RANK_DIM), 1.0 / m, m**-2.0, m**-4.0, np.exp(1.0 - m), np.exp(3.0 - 3.0 * m))
    ends: list[tuple[float, Line]] = []
    for line, eigenvalues in zip(SPECTRA, lines, strict=True):
        ranks = [effective_rank(eigenvalues, n) for n in t.tolist()]
        of_spectra.step(t, ranks, where="post", color=line.colour, linewidth=line.width)
        ends.append((float(ranks[-1]), line))
    _finish_rank(of_spectra, ends, f"eigenvalues, d = {RANK_DIM}")
    ends = []
    for result, colour in zip(results, LEARNED, strict=False):
        looks = result.runs[REFEED][0].looks[1:]
        of_learned.plot([look.t for look in looks], [look.rank for look in looks], color=colour, marker=".")
        ends.append((looks[-1].rank, Line("", result.task.name, colour)))
    _finish_rank(of_learned, ends, "learned, at the ends of phases")
    name_axes(panels, "effective rank")
    return figure


def _finish_rank(ax: Axes, ends: Sequence[tuple[float, Line]], title: str) -> None:
    ax.set_title(title)
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    label_ends(ax, ends)


def _hide_the_rest(panels: np.ndarray, used: int) -> None:
    for ax in panels.flat[used:]:
        ax.set_visible(False)
