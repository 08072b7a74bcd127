"""Ahpatron and NONS-ALD beside what their authors' programs gave: python -m bench.papers.rivals [--mushrooms FILE.npz ...]

The programs of [liao2024] and [li2023b] were run on one order of the rows, with their own settings (a ridge of 0.0005 for
all sets), a budget of 400, inputs (and truths that are numbers) scaled to [0, 1], and the best sigma of 0.5, 1, 2 and 4.
Here the learners play many orders with the same settings and sigma. Prints one table in Markdown: mistakes in %, or the
mean squared error times 1,000, its standard deviation over the orders, the standard error of the mean, the figure of the
program, and how many standard deviations the two are apart. The figure is that of one order, so it deviates as one order
does, and not as a mean.

MAGIC comes with the service; the other sets are .npz files with X and y: mushrooms, a9a and w8a as for bench.papers.pomdr,
ccpp (UCI 294) and abalone (UCI 1, the sex as 1, 2 or 3).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench.frontier import Contender, Told, has_labels, play
from bench.papers.markdown import table
from bench.streams import Stream, load, scaled
from service.demo_data import magic

ORDERS = 20
BUDGET = 400
COLUMNS = ("learner", "set", "sigma", "mean", "s.d. of an order", "s.e.", "program", "s.d. apart", "points")


class Figure(NamedTuple):
    """What a program gave on one order: mistakes in %, or the mean squared error times 1,000."""

    learner: str
    data: str
    sigma: float
    error: float


FIGURES = (
    Figure("ahpatron", "magic", 0.5, 16.68),
    Figure("ahpatron", "mushrooms", 2.0, 0.32),
    Figure("ahpatron", "a9a", 2.0, 16.00),
    Figure("ahpatron", "w8a", 4.0, 2.17),
    Figure("nons-ald", "ccpp", 1.0, 4.17),
    Figure("nons-ald", "abalone", 2.0, 8.38),
)


def settings_of(learner: str, T: int) -> Mapping[str, Any]:
    """Those of the program's run."""
    if learner == "ahpatron":
        return {"budget": BUDGET, "ridge": 0.0005, "slack": 0.5}
    return {"budget": BUDGET, "horizon": T, "regularization": 1.0, "clip": 1.0, "step": "shipped"}


def measure(figure: Figure, stream: Stream, orders: int) -> list[Told]:
    """One pass an order, as in bench.frontier."""
    X, y = stream
    one = Contender(figure.learner, figure.learner, settings_of(figure.learner, len(y)))
    y = y if has_labels(y) else scaled(y[:, None])[:, 0]
    return [play(one, figure.sigma, scaled(X), y, seed) for seed in range(orders)]


def cells(figure: Figure, told: Sequence[Told]) -> list[str]:
    errors = np.array([each.error for each in told])
    mean, deviation = float(errors.mean()), float(errors.std(ddof=1))
    apart = (mean - figure.error) / deviation
    numbers = mean, deviation, deviation / math.sqrt(len(told)), figure.error
    points = np.mean([each.points for each in told])
    shown = [f"{number:.3f}" if number < 0.1 else f"{number:.2f}" for number in numbers]
    return [figure.learner, figure.data, f"{figure.sigma:g}", *shown, f"{apart:+.1f}", f"{points:.0f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for figure in FIGURES[1:]:
        parser.add_argument(f"--{figure.data}", type=Path, metavar="FILE.npz", help="X and y")
    parser.add_argument("--orders", type=int, default=ORDERS, help="at least 2")
    options = parser.parse_args(arguments)
    rows = []
    with threadpool_limits(1):
        for figure in FIGURES:
            path: Path | None = getattr(options, figure.data, None)
            if path is None and figure.data != "magic":
                continue
            stream = magic() if path is None else load(path)
            rows.append(cells(figure, measure(figure, stream, options.orders)))
    print(*table(COLUMNS, rows), sep="\n")


if __name__ == "__main__":
    main()
