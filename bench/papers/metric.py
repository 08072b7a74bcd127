"""Packing the inputs and learning the metric, as in [kuzborskij2017], beside other learners: python -m bench.papers.metric

Streams of numbers that vary in one, two or three directions of the unit ball, 8,190 rounds each; and real sets from .npz
files with X and y, in the order of their rows (but cal_housing, whose rows are sorted by place, in a fixed random one) and
bike, whose rows are hours, also with the truths of a day as lags. Prints tables in Markdown, draws figures, and fails if a
regret exceeds what theorem 1 allows, or if a packing that learns its metric does worse than the bars of metric_study.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from bench.papers.markdown import table
from bench.papers.metric_figures import draw
from bench.papers.metric_runs import ROUNDS
from bench.papers.metric_sets import YARDSTICKS, Entry, RealSet, Score, read
from bench.papers.metric_sets import measure as measure_set
from bench.papers.metric_study import (
    EUCLIDEAN,
    LINEAR_EUCLIDEAN,
    LINEAR_REFEED,
    PACKINGS,
    PUBLISHED,
    REFEED,
    RESTART,
    SEEDS,
    STREAMS,
    SUBSPACE,
    Result,
    bound,
    broken,
    constant_regret,
    measure,
    tasks,
)

NAMES = {
    EUCLIDEAN: "`packing`, identity",
    SUBSPACE: "`packing`, true metric",
    PUBLISHED: "`metric-packing`, as published",
    RESTART: "`metric-packing`, `refeed` false",
    REFEED: "`metric-packing`",
    LINEAR_EUCLIDEAN: "`packing`, linear",
    LINEAR_REFEED: "`metric-packing`, linear",
    "ons": "linear, `ons`",
    "pros-n-kons, learned metric": "`pros-n-kons`, learned metric",
}

QUICK_ROUNDS = 254
"""Seven phases."""

SET_COLUMNS = ["learner", "RMSE", "second half", "points", "over linear", "over `pros-n-kons`", "tuned", "with"]


def named(name: str) -> str:
    return NAMES.get(name, f"`{name}`")


def streams_table(results: Sequence[Result]) -> list[str]:
    """Regrets, and how well the directions are found."""
    task = results[0].task
    columns = ["d; directions", *(f"{result.task.d}; {result.task.k}" for result in results)]
    rows = [[named(name), *(f"{result.regret(name)[-1]:.1f}" for result in results)] for name in results[0].runs]
    cosines = [f"{min(result.cosines[REFEED]):.3f}" for result in results]
    return [
        f"## Streams: {task.rounds} rounds, regret in the mean over {len(task.streams)}",
        "",
        *table(columns, [*rows, ["least cosine of the directions learned", *cosines]]),
    ]


def gains_table(results: Sequence[Result]) -> list[str]:
    """What learning the metric takes off the regret, and linear functions; and what forecasting 1/2 for ever costs."""

    def off(name: str, beside: str) -> list[str]:
        gains = [1.0 - result.regret(name)[-1] / result.regret(beside)[-1] for result in results]
        return [f"{named(name)} off {named(beside)}", *(f"{gain:.0%}" for gain in gains)]

    rows = [off(REFEED, EUCLIDEAN), off(REFEED, RESTART), off(LINEAR_REFEED, REFEED)]
    halves = [np.mean([constant_regret(stream) for stream in result.task.streams]) for result in results]
    rows.append(["regret of 1/2 for ever", *(f"{half:,.0f}" for half in halves)])
    columns = ["d; directions", *(f"{result.task.d}; {result.task.k}" for result in results)]
    return ["## What it gains", "", *table(columns, rows)]


def bounds_table(results: Sequence[Result]) -> list[str]:
    """What theorem 1 allows, on the first of the streams."""
    rows: list[list[str]] = []
    for name in PACKINGS:
        runs = [result.runs[name][0] for result in results]
        allowed = [bound(result.task.streams[0], name, run) for result, run in zip(results, runs, strict=True)]
        # As published it has just begun anew when it is looked at.
        centres = [] if name == PUBLISHED else [f"{run.looks[-1].centres:.0f}" for run in runs]
        stated = [f"{one.stated:.1e}" for one in allowed if one is not None]
        counted = [f"{one.from_centres:.1e}" for one in allowed if one is not None and one.from_centres is not None]
        told = {"centres": centres, "theorem": stated, "with these centres": counted}
        rows += [[f"{named(name)}: {what}", *cells] for what, cells in told.items() if cells]
    columns = ["d; directions", *(f"{result.task.d}; {result.task.k}" for result in results)]
    return ["## What theorem 1 allows", "", *table(columns, rows)]


def set_table(data: RealSet, entries: Sequence[Entry]) -> list[str]:
    return [
        f"## {data.title}: {len(data.y)} rounds, {data.X.shape[1]} inputs, truths from {data.y.min():g} to {data.y.max():g}",
        "",
        *table(SET_COLUMNS, [_set_row(entry, entries) for entry in entries]),
    ]


def _set_row(entry: Entry, entries: Sequence[Entry]) -> list[str]:
    yardsticks = [next(other.score.rmse for other in entries if other.by.name == name) for name in YARDSTICKS]
    over = [f"{entry.score.rmse / yardstick - 1.0:+.0%}" for yardstick in yardsticks]
    plain = [_number(entry.score.rmse), _number(entry.score.late), f"{entry.score.points:.0f}", *over]
    if not entry.by.grid:
        return [entry.by.name, *plain, "", ""]
    return [entry.by.name, *plain, _number(entry.tuned.rmse), _changes(entry.tuned)]


def _number(rmse: float) -> str:
    """Four digits."""
    return np.format_float_positional(rmse, precision=4, fractional=False, trim="-")


def _changes(tuned: Score) -> str:
    told = [
        f"`sigma` {value['sigma']:g}" if name == "kernel" else f"`{name}` {value}"
        for name, value in tuned.changed.items()
    ]
    return ", ".join(told) or "no change"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", default=[], metavar="FILE.npz", help="X and y, real")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"), help="folder of the figures")
    quick = f"few streams, one seed, {QUICK_ROUNDS} rounds of each and of the sets: to see that it runs"
    parser.add_argument("--quick", action="store_true", help=quick)
    options = parser.parse_args(arguments)
    rounds, seeds, streams = (QUICK_ROUNDS, 1, STREAMS[:3]) if options.quick else (ROUNDS, SEEDS, STREAMS)
    with threadpool_limits(1):
        results = [measure(task) for task in tasks(streams, rounds, seeds)]
        tables = (streams_table(results), gains_table(results), bounds_table(results))
        print(*(line for lines in tables for line in (*lines, "")), sep="\n", flush=True)
        for data in (data for path in options.data for data in read(path, QUICK_ROUNDS if options.quick else None)):
            print(*set_table(data, measure_set(data)), "", sep="\n", flush=True)
        print(*draw(results, options.figures), sep="\n")
    found = broken(results)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
