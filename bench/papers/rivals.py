"""Rivals beside their authors' programs: python -m bench.papers.rivals [--mushrooms FILE.npz ...] [--orders N]

The programs of [liao2024] (Ahpatron) and [li2023b] (AOGD-ALD, NONS-ALD, CON-KONS and PROS-N-KONS) were run in R, with their
own settings, on ten random orders of each set: inputs, and truths that are numbers, scaled to [0, 1]; sigma the best of 0.5,
1, 2 and 4; Ahpatron with 400 points, the others without a budget. Here the learners play other orders with the same settings
and sigma. Prints one table in Markdown: mistakes in %, or the mean squared error times 1,000, with its standard deviation
over the orders, of both; how many standard errors of the difference ours is above the program's; and the points of ours.

The programs of CON-KONS and PROS-N-KONS keep the first input, whatever their coin says, where the algorithm may wait for
several rounds and forecasts 0 until then. So here their coins are such that it is kept.

MAGIC comes with the service; the other sets are .npz files with X and y, as for bench.papers.pomdr and bench.frontier.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench.frontier import Contender, Told, has_labels, play
from bench.papers.markdown import table
from bench.streams import Stream, load, scaled
from okl_core import create
from service.demo_data import magic

ORDERS, PROGRAM_ORDERS = 20, 10
COLUMNS = ("learner", "set", "sigma", "ours", "s.d.", "program", "s.d.", "s.e. apart", "points")


class Figure(NamedTuple):
    """What a program gave in the mean over its orders: mistakes in %, or the mean squared error times 1,000."""

    learner: str
    data: str
    sigma: float
    error: float
    deviation: float


FIGURES = (
    Figure("ahpatron", "magic", 0.5, 16.523, 0.102),
    Figure("ahpatron", "mushrooms", 2.0, 0.327, 0.031),
    Figure("ahpatron", "a9a", 2.0, 16.027, 0.046),
    Figure("ahpatron", "w8a", 4.0, 2.186, 0.021),
    Figure("aogd-ald", "airfoil", 0.5, 17.392, 0.390),
    Figure("aogd-ald", "energy", 0.5, 12.288, 0.590),
    Figure("aogd-ald", "abalone", 0.5, 8.657, 0.084),
    Figure("aogd-ald", "ccpp", 0.5, 4.412, 0.032),
    Figure("nons-ald", "airfoil", 1.0, 21.075, 0.383),
    Figure("nons-ald", "energy", 2.0, 12.226, 0.620),
    Figure("nons-ald", "abalone", 2.0, 8.417, 0.056),
    Figure("nons-ald", "ccpp", 1.0, 4.234, 0.045),
    Figure("CON-KONS", "airfoil", 1.0, 24.432, 0.788),
    Figure("CON-KONS", "energy", 2.0, 19.065, 2.276),
    Figure("CON-KONS", "abalone", 1.0, 8.156, 0.093),
    Figure("CON-KONS", "ccpp", 1.0, 4.365, 0.129),
    Figure("PROS-N-KONS", "airfoil", 4.0, 45.706, 3.091),
    Figure("PROS-N-KONS", "energy", 2.0, 72.003, 5.904),
    Figure("PROS-N-KONS", "abalone", 2.0, 12.928, 0.578),
    Figure("PROS-N-KONS", "ccpp", 1.0, 17.650, 1.507),
)


def contender(learner: str, T: int) -> Contender:
    """The learner with the settings of its program, for T rounds."""
    if learner == "ahpatron":
        return Contender(learner, learner, {"budget": 400, "ridge": 0.0005, "slack": 0.5})
    if learner == "aogd-ald":
        return Contender(learner, learner, {"horizon": T, "budget": T})
    if learner == "nons-ald":
        steps = {"regularization": 1.0, "clip": 1.0, "step": "shipped"}
        return Contender(learner, learner, steps | {"horizon": T, "budget": T})
    sampled = {"kind": "kors", "regularization": 10.0, "oversampling": 1.0, "accuracy": 0.5}
    newton = {"loss": "squared", "clip": 1.0, "regularization": 15.0, "step": "half-curvature", "dictionary": sampled}
    carry = "reset" if learner == "PROS-N-KONS" else "transport"
    return Contender(learner, "pros-n-kons", newton | {"carry": carry, "budget": None})


def measure(figure: Figure, stream: Stream, orders: int) -> list[Told]:
    """One pass an order, as in bench.frontier."""
    X, y = stream
    y = y if has_labels(y) else scaled(y[:, None])[:, 0]
    one = contender(figure.learner, len(y))
    coins = itertools.count() if one.kind != "pros-n-kons" else filter(partial(keeps_first, one), itertools.count())
    return [play(one, figure.sigma, scaled(X), y, seed, next(coins)) for seed in range(orders)]


def keeps_first(one: Contender, seed: int) -> bool:
    """Does the dictionary take the first input, with the coins of this seed? With a Gaussian kernel, whichever it is."""
    learner = create({"kind": one.kind, "seed": seed, "config": one.config}, 1)
    learner.update([0.0], 0.0)
    return learner.describe()["dictionary"] == 1


def cells(figure: Figure, results: Sequence[Told]) -> list[str]:
    errors = np.array([each.error for each in results])
    mean, deviation = float(errors.mean()), float(errors.std(ddof=1))
    apart = (mean - figure.error) / math.hypot(
        deviation / math.sqrt(len(results)), figure.deviation / math.sqrt(PROGRAM_ORDERS)
    )
    numbers = mean, deviation, figure.error, figure.deviation
    points = np.mean([each.points for each in results])
    shown = [f"{number:.3f}" for number in numbers]
    return [figure.learner, figure.data, f"{figure.sigma:g}", *shown, f"{apart:+.1f}", f"{points:.0f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in dict.fromkeys(figure.data for figure in FIGURES):
        if name != "magic":
            parser.add_argument(f"--{name}", type=Path, metavar="FILE.npz", help="X and y")
    parser.add_argument("--orders", type=int, default=ORDERS, help="at least 2")
    options = parser.parse_args(arguments)
    rows = []
    with threadpool_limits(1):
        for figure in FIGURES:
            path: Path | None = getattr(options, figure.data, None)
            if path is not None or figure.data == "magic":
                stream = magic() if path is None else load(path)
                rows.append(cells(figure, measure(figure, stream, options.orders)))
    print(*table(COLUMNS, rows), sep="\n")


if __name__ == "__main__":
    main()
