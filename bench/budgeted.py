"""Second-order learning on a budget of 400 points: `python -m bench.budgeted [--ijcnn1 FILE.npz] [--elec2 FILE.npz]`.

Prints the mistakes of `pros-n-kons` in one pass over MAGIC (which comes with the service) and ijcnn1 in random orders, and
over elec2 in time order, with the rounds per second of `run`; then what a round costs late in a stream and early.

Files are .npz with X (rounds, inputs) and y in {-1, 1}. ijcnn1: LIBSVM, train and test together, or either. elec2: the
electricity market of New South Wales, 45,312 half hours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bench.scenarios import load, scaled
from okl_core import OnlineLearner, create
from okl_core.types import F64
from service.demo_data import magic

PERMUTATIONS = 10
BUDGET = 400


@dataclass(frozen=True, slots=True)
class Entry:
    """A learner on a data set. `bar` is in % of mistakes; `beside` says what it is compared with."""

    data: str
    learner: dict[str, Any]
    bar: float
    beside: str


def learner(sigma: float, loss: str, *, clip: float, lags: int = 0, half_life: int | None = None) -> dict[str, Any]:
    config = {
        "kernel": {"kind": "gaussian", "sigma": sigma},
        "loss": loss,
        "clip": clip,
        "budget": BUDGET,
        "half_life": half_life,
    }
    return {"kind": "pros-n-kons", "lags": lags, "config": config}


MAGIC = "16.17 (POMDR, 400 points)"
IJCNN1 = "8.51 (POMDR, 400 points)"
ELEC2 = "14.67 (the last label)"

ENTRIES = (
    Entry("magic", learner(0.5, "squared", clip=2.0), 14.3, MAGIC),
    Entry("magic", learner(0.5, "logistic", clip=4.0), 14.3, MAGIC),
    Entry("magic", learner(0.5, "squared-hinge", clip=2.0), 14.3, MAGIC),
    Entry("ijcnn1", learner(0.7, "squared", clip=2.0), 5.7, IJCNN1),
    Entry("ijcnn1", learner(0.7, "logistic", clip=4.0), 5.7, IJCNN1),
    Entry("ijcnn1", learner(0.7, "squared-hinge", clip=2.0), 5.7, IJCNN1),
    Entry("elec2", learner(0.5, "squared", clip=2.0, lags=1), 13.6, ELEC2),
    Entry("elec2", learner(0.5, "squared", clip=2.0, lags=1, half_life=500), 13.6, ELEC2),
    Entry("elec2", learner(0.5, "squared-hinge", clip=2.0, lags=1, half_life=500), 13.6, ELEC2),
)

HEADER = f"{'set':<8}{'loss':<15}{'half-life':>10}{'mistakes %':>12}{'sd':>6}{'bar':>7}{'points':>8}{'rounds/s':>10}   beside"


def measure(entry: Entry, X: F64, y: F64, permutations: int) -> str:
    """One line of the table. Time order has one permutation: none."""
    in_time = entry.data == "elec2"
    mistakes, rates, points = [], [], 0.0
    for seed in range(1 if in_time else permutations):
        order = np.arange(len(y)) if in_time else np.random.default_rng(seed).permutation(len(y))
        made = create(entry.learner | {"seed": seed}, X.shape[1])
        start = time.process_time()
        values = made.run(X[order], y[order]).values
        rates.append(len(y) / (time.process_time() - start))
        mistakes.append(100.0 * np.mean(np.where(values >= 0.0, 1.0, -1.0) != y[order]))
        points = max(points, made.describe()["dictionary"])
    sd = f"{np.std(mistakes, ddof=1):.2f}" if len(mistakes) > 1 else ""
    config = entry.learner["config"]
    return (
        f"{entry.data:<8}{config['loss']:<15}{config['half_life'] or 'none':>10}{np.mean(mistakes):12.2f}{sd:>6}"
        f"{entry.bar:7.1f}{points:8.0f}{np.mean(rates):10.0f}   {entry.beside}"
    )


EARLY, LATE, MEASURED = 10_000, 100_000, 1_000


def costs(X: F64, y: F64) -> list[str]:
    """Microseconds a round around two times of one stream, by `update` and by `run`; the dictionary is full at both."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(y), LATE + 4 * MEASURED)
    X, y = X[rows] + 0.01 * rng.standard_normal((len(rows), X.shape[1])), y[rows]
    lines = []
    for half_life in (None, 1000):
        made = create(learner(0.5, "squared", clip=2.0, half_life=half_life), X.shape[1])
        early, late = (_around(made, X, y, t) for t in (EARLY, LATE))
        for form, before, after in zip(("update", "run"), early, late, strict=True):
            lines.append(
                f"{form:<8}{half_life or 'none':>10}{before:14.0f}{after:14.0f}{after / before:10.2f}{made.describe()['dictionary']:9.0f}"
            )
    return lines


def _around(made: OnlineLearner, X: F64, y: F64, t: int) -> tuple[float, float]:
    made.run(X[made.t : t], y[made.t : t])

    def timed(work: Callable[[slice], object]) -> float:
        rows = slice(made.t, made.t + MEASURED)
        start = time.process_time()
        work(rows)
        return 1e6 * (time.process_time() - start) / MEASURED

    def one_by_one(rows: slice) -> None:
        for x, truth in zip(X[rows], y[rows].tolist(), strict=True):
            made.update(x, truth)

    return timed(one_by_one), timed(lambda rows: made.run(X[rows], y[rows]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ijcnn1", type=Path, help="an .npz file with X and y in {-1, 1}")
    parser.add_argument("--elec2", type=Path, help="an .npz file with X and y in {-1, 1}, in time order")
    parser.add_argument("--permutations", type=int, default=PERMUTATIONS)
    options = parser.parse_args(arguments)
    sets = {"magic": magic()}
    for name in ("ijcnn1", "elec2"):
        path = getattr(options, name)
        if path is not None:
            X, y = load(path)
            sets[name] = scaled(X), y
    with threadpool_limits(1):
        print(HEADER)
        for entry in ENTRIES:
            if entry.data in sets:
                print(measure(entry, *sets[entry.data], options.permutations), flush=True)
        print(
            f"\n{'form':<8}{'half-life':>10}{f'us, t = {EARLY}':>14}{f'us, t = {LATE}':>14}{'ratio':>10}{'points':>9}"
        )
        for line in costs(*sets["magic"]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
