"""POMDR and its rivals, as in [li2023] tables 2 to 5: python -m bench.papers.pomdr

MAGIC comes with the service; the other sets are read from .npz files with X and y in {-1, 1}: mushrooms (UCI 73, one 0/1
column a value), a9a, w8a and ijcnn1 (LIBSVM; a9a and ijcnn1 with their test part). MAGIC's columns are scaled to [0, 1].
Prints tables in Markdown, the paper's figures beside ours, and draws them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from threadpoolctl import threadpool_limits

from bench.papers.kons_figures import STYLE
from bench.papers.markdown import table
from bench.papers.pomdr_runs import (
    ALIGNMENTS,
    COMPARISONS,
    PERMUTATIONS,
    Alignment,
    Comparison,
    Contestant,
    Measured,
    contestants,
    measure,
    pomdr,
)
from bench.streams import Stream, load, scaled
from service.demo_data import magic

Result = list[tuple[Contestant, Measured]]

OURS, PAPER = "#0072B2", "#D55E00"

RIVAL_COLUMNS = ["algorithm", "mistakes %", "paper", "CPU s", "paper s", "points"]
ALIGNMENT_COLUMNS = ["set", "sigma", "mistakes %", "paper", "sum of delta", "paper", "t-bar", "paper"]


def _pm(mean: float, sd: float) -> str:
    return f"{mean:.2f} ± {sd:.2f}" if math.isfinite(sd) else f"{mean:.2f}"


def rivals(told: Comparison, T: int, result: Result) -> list[str]:
    """The table of a set, one of tables 2 and 4."""
    rows = []
    for contestant, found in result:
        printed = told.printed.get(contestant.printed or "")
        points = np.mean([numbers["dictionary"] for numbers in found.told])
        rows.append(
            [
                contestant.name,
                _pm(float(found.mistakes.mean()), found.sd),
                _pm(printed.mistakes, printed.sd) if printed else "",
                f"{found.seconds.mean():.2f}",
                f"{printed.seconds:.2f}" if printed else "",
                f"{points:.0f}",
            ]
        )
    return [f"## {told.data}: sigma {told.sigma:g}, {T} rounds", "", *table(RIVAL_COLUMNS, rows)]


def alignment(told: Alignment, found: Measured) -> list[str]:
    """A column of tables 3 and 5, as a row."""
    return [
        told.data,
        f"{told.sigma:g}",
        _pm(float(found.mistakes.mean()), found.sd),
        f"{told.mistakes:.2f}",
        f"{found.sum_delta:.0f}",
        f"{told.sum_delta:.0f}",
        _round(found),
        f"{told.t_bar:.0f}" if math.isfinite(told.t_bar) else "never",
    ]


def _round(found: Measured) -> str:
    ended = found.t_bar[np.isfinite(found.t_bar)]
    if len(ended) in (0, len(found.t_bar)):
        return f"{ended.mean():.0f}" if len(ended) else "never"
    return f"{ended.mean():.0f} in {len(ended)} of {len(found.t_bar)}"


def draw(results: Mapping[str, tuple[Comparison, Result]], path: Path) -> None:
    """A panel a set: mistakes of every algorithm, ours and the paper's."""
    style: dict[Any, Any] = STYLE | {"svg.hashsalt": "pomdr", "axes.xmargin": 0.08}
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
        for ax, (told, result) in zip(panels, results.values(), strict=True):
            _panel(ax, told, result)
        panels[0].invert_yaxis()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2)
        figure.supxlabel("mistakes, % of the rounds", fontsize=8.0)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})


def _panel(ax: Axes, told: Comparison, result: Result) -> None:
    rows = np.arange(len(result))
    means = [found.mistakes.mean() for _, found in result]
    sds = [0.0 if math.isnan(found.sd) else found.sd for _, found in result]
    printed = [
        (row, told.printed[contestant.printed])
        for row, (contestant, _) in enumerate(result)
        if contestant.printed is not None
    ]
    ax.errorbar(means, rows, xerr=sds, fmt="o", color=OURS, markersize=4.0, linewidth=1.2, label="okl_core")
    # Below, so that both are seen where they agree.
    ax.errorbar(
        [figure.mistakes for _, figure in printed],
        [row + 0.3 for row, _ in printed],
        xerr=[figure.sd for _, figure in printed],
        fmt="D",
        color=PAPER,
        markerfacecolor="none",
        markersize=3.5,
        linewidth=1.0,
        label="as published",
    )
    ax.set_yticks(rows, [contestant.name for contestant, _ in result])
    ax.tick_params(axis="y", length=0.0)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set_title(told.data)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for told in COMPARISONS:
        parser.add_argument(f"--{told.data}", type=Path, metavar="FILE.npz", help="X and y in {-1, 1}")
    parser.add_argument("--permutations", type=int, default=PERMUTATIONS, help="orders of the rows")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder of the figure")
    options = parser.parse_args(arguments)
    sets: dict[str, Stream] = {"magic": magic()}
    for told in COMPARISONS:
        path = getattr(options, told.data)
        if path is not None:
            X, y = load(path)
            sets[told.data] = scaled(X) if told.data == "magic" else X, y
    results: dict[str, tuple[Comparison, Result]] = {}
    with threadpool_limits(1):
        for told in (told for told in COMPARISONS if told.data in sets):
            X, y = sets[told.data]
            result = [
                (by, measure(by.kind, by.config, told.sigma, X, y, options.permutations))
                for by in contestants(told, len(y))
            ]
            results[told.data] = told, result
            print(*rivals(told, len(y), result), "", sep="\n", flush=True)
        rows = []
        for column in (column for column in ALIGNMENTS if column.data in sets):
            X, y = sets[column.data]
            found = measure("pomdr", pomdr(column, len(y)), column.sigma, X, y, options.permutations)
            rows.append(alignment(column, found))
    print("## POMDR: what its bound follows, and the round that ended its first phase", "", sep="\n")
    print(*table(ALIGNMENT_COLUMNS, rows), sep="\n")
    draw(results, options.out / "pomdr.svg")


if __name__ == "__main__":
    main()
