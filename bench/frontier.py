"""All learners on a budget, on the same sets: `python -m bench.frontier [--set FILE.npz ...] [--budget B ...] [--orders N]`.

A set is an .npz file with X and y: labels in {-1, 1}, or numbers. MAGIC comes with the service. Inputs are scaled to [0, 1]
by column, and so are truths that are numbers. Each learner takes the Gaussian kernel of the sigma that is best for it on
the first order of the rows, out of one grid for all of them; the steps of gradient descent, and the parameters of
`pomdr` and `bao2ks`, are those of `bench.papers.pomdr` on MAGIC. Then it plays all orders.

The table has the share of mistakes in %, or the mean squared error times 1,000, with the standard error over the orders; the
points that are stored at the end; the bytes of the state; and the CPU time of a round by `run`. The best is marked.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench.papers.markdown import table
from bench.papers.pomdr_runs import MAGIC_NARROW, pomdr
from bench.streams import load, scaled
from okl_core import create
from okl_core.types import F64
from service.demo_data import magic

SIGMAS = (0.25, 0.5, 1.0, 2.0, 4.0)
COLUMNS = ("learner", "sigma", "error", "s.e.", "points", "KiB", "us a round")


class Contender(NamedTuple):
    """A learner at one budget, all but its sigma."""

    name: str
    kind: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """A learner on one order."""

    error: float
    points: float
    bytes: float
    seconds: float


def of_labels(T: int, B: int) -> list[Contender]:
    """Of T rounds; `fogd` has as many features as others have points."""
    steps = {"step_size": "horizon", "horizon": T, "step_factor": 100.0}
    published = pomdr(MAGIC_NARROW, T)
    published["pomd_budget"] = min(published["pomd_budget"], B // 2)
    mirrored = steps | {"step_factor": 10.0, "reservoir": math.ceil(math.log(T))}
    newton = {"clip": 2.0, "budget": B}
    return [
        Contender("fogd", "fogd", steps | {"frequencies": B}),
        Contender("bogd", "bogd", steps | {"budget": B}),
        Contender("nogd", "nogd", steps | {"budget": B}),
        Contender("skegd", "skegd", steps | {"budget": B}),
        Contender("bao2ks", "bao2ks", mirrored | {"budget": B}),
        Contender("pomdr", "pomdr", published | {"budget": B}),
        Contender("ahpatron", "ahpatron", {"budget": B}),
        Contender("nystrom-aioli", "nystrom-aioli", {"budget": B}),
        Contender("pros-n-kons, squared", "pros-n-kons", newton | {"loss": "squared"}),
        Contender("pros-n-kons, squared hinge", "pros-n-kons", newton | {"loss": "squared-hinge"}),
    ]


def of_numbers(T: int, B: int) -> list[Contender]:
    """Of T rounds with truths in [0, 1]; `nons-ald` and `aogd-ald` as their authors' programs are."""
    steps = {"step_size": "horizon", "horizon": T, "loss": "squared", "clip": 1.0}
    far = {"kind": "ald", "threshold": min(0.99, 5.0 / math.sqrt(T))}
    newton = {"loss": "squared", "clip": 1.0, "budget": B}
    return [
        Contender("fogd", "fogd", steps | {"frequencies": B, "step_factor": 10.0}),
        Contender("nogd", "nogd", steps | {"budget": B, "step_factor": 10.0}),
        Contender("aogd-ald", "aogd-ald", {"horizon": T, "budget": B}),
        Contender("nons-ald", "nons-ald", {"horizon": T, "budget": B, "step": "shipped"}),
        Contender("pros-n-kons, same dictionary", "pros-n-kons", newton | {"dictionary": far}),
        Contender("pros-n-kons", "pros-n-kons", newton),
        Contender("nystrom-aar", "nystrom-aar", {"budget": B}),
        Contender("nystrom-ridge", "nystrom-ridge", {"budget": B, "clip": 1.0}),
    ]


def play(one: Contender, sigma: float, X: F64, y: F64, seed: int) -> Told:
    """One pass in the order that this seed gives."""
    order = np.random.default_rng(seed).permutation(len(y))
    config = {**one.config, "kernel": {"kind": "gaussian", "sigma": sigma}}
    made = create({"kind": one.kind, "seed": seed, "config": config}, X.shape[1])
    start = time.process_time()
    values = made.run(X[order], y[order]).values
    seconds = time.process_time() - start
    is_wrong = np.where(values >= 0.0, 1.0, -1.0) != y[order]
    error = 100.0 * is_wrong.mean() if has_labels(y) else 1000.0 * np.square(values - y[order]).mean()
    told = made.describe()
    return Told(float(error), told["dictionary"], told["bytes"], seconds)


def has_labels(y: F64) -> bool:
    return set(np.unique(y[:1000]).tolist()) <= {-1.0, 1.0}


def lines(X: F64, y: F64, budget: int, orders: int) -> Iterator[tuple[float, list[str]]]:
    """The mean error and the cells of each learner."""
    contenders = (of_labels if has_labels(y) else of_numbers)(len(y), budget)
    for one in contenders:
        first = {sigma: play(one, sigma, X, y, 0) for sigma in SIGMAS}
        sigma = min(first, key=lambda sigma: first[sigma].error)
        told = [first[sigma], *(play(one, sigma, X, y, seed) for seed in range(1, orders))]
        errors = [each.error for each in told]
        spread = f"{np.std(errors, ddof=1) / math.sqrt(orders):.2f}" if orders > 1 else ""
        points, kib = np.mean([each.points for each in told]), np.mean([each.bytes for each in told]) / 1024
        us = 1e6 * np.mean([each.seconds for each in told]) / len(y)
        cells = [one.name, f"{sigma:g}", f"{np.mean(errors):.2f}", spread, f"{points:.0f}", f"{kib:,.0f}", f"{us:.0f}"]
        yield float(np.mean(errors)), cells


def sets(files: Sequence[Path]) -> Iterator[tuple[str, F64, F64]]:
    """Name, inputs and truths of each."""
    for name, (X, y) in [("magic", magic()), *((file.stem, load(file)) for file in files)]:
        if not has_labels(y):
            y = scaled(y[:, None])[:, 0]
        yield name, scaled(X), y


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frontier", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", type=Path, action="append", default=[], metavar="FILE.npz", help="repeatable")
    parser.add_argument("--budget", type=int, action="append", help="points at most; repeatable; by default 400")
    parser.add_argument("--orders", type=int, default=10)
    options = parser.parse_args()
    with threadpool_limits(1):
        for name, X, y in sets(options.set):
            for budget in options.budget or [400]:
                print(f"\n{name}, {len(y):,} rounds of {X.shape[1]} inputs, budget {budget}\n", flush=True)
                told = list(lines(X, y, budget, options.orders))
                best = min(error for error, _ in told)
                for error, cells in told:
                    cells[2] = f"**{cells[2]}**" if error == best else cells[2]
                print("\n".join(table(COLUMNS, [cells for _, cells in told])), flush=True)


if __name__ == "__main__":
    main()
