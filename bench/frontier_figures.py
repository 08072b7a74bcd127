"""The figures of bench.frontier: errors of learners on a budget against time and memory, a line a learner over the budgets.

Ours are drawn thick. Colours are those of Okabe and Ito, which colour-blind readers tell apart; each line has a mark of its
own too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.frontier import Entry
from bench.papers.kons_figures import STYLE, save

COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#E69F00", "#8A3B00", "#555555", "#000000", "#AA9900")
MARKS = "osD^vP<>X*"


def draw(path: Path, name: str, has_labels: bool, entries: Sequence[Entry]) -> None:
    """One set with several budgets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    learners = list(dict.fromkeys(entry.learner for entry in entries))
    # Ours take the first colours, whatever their place in the table.
    ordered = sorted(learners, key=lambda learner: not Entry(name, learner, 0, 0.0).is_ours)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.2, 3.1), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for learner, colour, mark in zip(ordered, COLOURS, MARKS, strict=False):
            own = sorted((entry for entry in entries if entry.learner == learner), key=lambda entry: entry.budget)
            errors = [entry.mean("error") for entry in own]
            width = 2.0 if own[0].is_ours else 1.0
            look = {"color": colour, "marker": mark, "markersize": 4.0, "linewidth": width, "label": learner}
            axes[0].plot([entry.mean("us") for entry in own], errors, **look)
            axes[1].plot([entry.mean("bytes") / 1024 for entry in own], errors, **look)
        for ax, what in zip(axes, ("CPU time of a round, µs", "memory, KiB"), strict=True):
            ax.set_xscale("log")
            ax.set_xlabel(what)
            ax.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 3.0)))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            ax.margins(x=0.05)
        axes[0].set_ylabel("mistakes, %" if has_labels else "mean squared error · 1,000")
        budgets = ", ".join(str(budget) for budget in sorted({entry.budget for entry in entries}))
        axes[0].set_title(f"{name}: budgets {budgets}")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
        save(figure, path)
