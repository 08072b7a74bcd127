"""How a round's cost and the state grow with t: `python -m bench.growth [SCENARIO ...] [--rounds N]`.

A learner of `bench/scenarios.py` plays MAGIC again and again, each row moved by a hundredth, so that none comes twice. Its
state is kept at ten times, each sqrt(2) times the one before. From each of them on `update` is timed round by round, in turns
of any order, each turn in another place of the memory, so that a drift of the machine and an unlucky place meet all; the mean
of all but the slowest tenth counts. The exponent is the slope of the logarithm of the time over that of t, with its standard
error. Learners on a budget are measured once the dictionary is full, those that keep all rounds up to a shorter horizon.

An exponent holds its bar if it is below it by two standard errors, crosses it if it is above by two, and is open otherwise:
then the machine was too busy, or `--turns` too few. Exits with 1 unless all hold.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from bench.scenarios import SCENARIOS
from bench.streams import Stream, magic_stream
from okl_core import OnlineLearner, create, restore
from okl_core.types import F64

TIMES, TURNS, TIMED = 10, 20, 25
"""Times, and in each turn the rounds that are timed from each of them."""

ROUNDS, KEPT = 300_000, 6_000
"""The last round that is timed: of a learner on a budget, and of one that keeps all."""

KEEP_ALL = {"kons-magic-4000": 2.05, "kernel-ridge-magic-4000": 2.05, "kernel-aioli-magic-4000": 2.05}
"""Bars of learners whose round costs O(t^2)."""

BAR = 0.02
"""Of the others."""

BUDGETED = (
    "pomdr-magic",
    "ahpatron-magic",
    "bogd-magic",
    "nogd-magic",
    "fogd-magic",
    "skegd-magic",
    "bao2ks-magic",
    "nystrom-ridge-magic",
    "nystrom-aioli-magic",
    "fourier-aioli-magic",
    "pros-n-kons-magic",
    "aioli-magic",
    "ons-magic",
)


@dataclass(frozen=True, slots=True)
class Grown:
    """Exponents of the time of an update and of the bytes of the state, with the standard error of the first."""

    time: float
    error: float
    bytes: float
    first_us: float
    last_us: float


def rows(start: int, count: int, X: F64, y: F64) -> tuple[F64, F64]:
    """So many rounds of the endless stream."""
    rng = np.random.default_rng(start)
    places = np.arange(start, start + count) % len(y)
    return X[places] + 0.01 * rng.standard_normal((count, X.shape[1])), y[places]


def grow(scenario: str, rounds: int, turns: int = TURNS) -> Grown:
    chosen = next(one for one in SCENARIOS if one.id == scenario)
    X, y = magic_stream(None)
    learner = create({"kind": chosen.kind, "config": dict(chosen.config)}, X.shape[1])
    ts = [round(rounds / math.sqrt(2.0) ** (TIMES - 1 - i)) for i in range(TIMES)]
    kept, sizes = [], []
    for t in ts:
        while learner.t < t:
            learner.run(*rows(learner.t, min(20_000, t - learner.t), X, y))
        kept.append(restore(learner.spec, learner.state()))
        sizes.append(learner.describe()["bytes"])
    us = in_turns(kept, [(X, y)] * TIMES, turns)
    slope, error = fitted(ts, us)
    return Grown(slope, error, fitted(ts, sizes)[0], us[0], us[-1])


def in_turns(kept: list[OnlineLearner], streams: Sequence[Stream], turns: int) -> list[float]:
    """Microseconds of an update of each learner; it plays on in its stream."""
    seconds: list[list[float]] = [[] for _ in kept]
    order = np.random.default_rng(0)
    for _ in range(turns):
        for i in order.permutation(len(kept)):
            kept[i] = one = restore(kept[i].spec, kept[i].state())
            seconds[i] += update_times(one, *rows(one.t, TIMED, *streams[i]))
    return [1e6 * usual(times) for times in seconds]


def update_times(learner: OnlineLearner, X: F64, y: F64) -> list[float]:
    """Seconds of each round."""
    times = []
    for x, truth in zip(X, y.tolist(), strict=True):
        start = time.perf_counter()
        learner.update(x, truth)
        times.append(time.perf_counter() - start)
    return times


def usual(times: Sequence[float]) -> float:
    """The mean of all but the slowest tenth. A median would jump: rounds with a loss and those without are two kinds."""
    return float(np.mean(sorted(times)[: len(times) - len(times) // 10]))


def fitted(ts: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The slope of the logarithms, and its standard error."""
    x, z = np.log(ts), np.log(values)
    x -= x.mean()
    slope = float(x @ z / (x @ x))
    rest = z - z.mean() - slope * x
    return slope, math.sqrt(float(rest @ rest) / (len(x) - 2) / float(x @ x))


def verdict(found: Grown, bar: float) -> str:
    if found.time + 2.0 * found.error <= bar:
        return "holds"
    return "crossed" if found.time - 2.0 * found.error > bar else "open"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", choices=(*BUDGETED, *KEEP_ALL, []), help="default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of a learner on a budget")
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    verdicts: set[str] = set()
    print(
        "| learner | us at first | us at last | exponent of time | bar | | of bytes |\n|---|---:|---:|---:|---:|---|---:|"
    )
    with threadpool_limits(1):
        for scenario in options.scenario or (*BUDGETED, *KEEP_ALL):
            bar = KEEP_ALL.get(scenario, BAR)
            found = grow(scenario, KEPT if scenario in KEEP_ALL else options.rounds, options.turns)
            verdicts.add(told := verdict(found, bar))
            cells = (
                f"{found.first_us:.0f} | {found.last_us:.0f} | {found.time:.3f} ± {found.error:.3f} | {bar:g} | {told}"
            )
            print(f"| {scenario} | {cells} | {found.bytes:.3f} |", flush=True)
    sys.exit(verdicts != {"holds"})


if __name__ == "__main__":
    main()
