"""What a round of `packing` costs as the stream grows, and what finding the nearest centre costs: python -m bench.packing

Inputs are uniform in the unit ball, truths a smooth function of them with noise. Times are CPU times of this process. In
the first table the rounds between its lines are played by `run`, whose time is the mean over them; then `--updates`
rounds are timed one by one. A bar that is crossed makes the exit status 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.spatial import cKDTree  # pyright: ignore[reportAttributeAccessIssue]
from threadpoolctl import threadpool_limits

from bench.papers.metric_runs import ball
from okl_core import OnlineLearner, create
from okl_core.linalg import nearest
from okl_core.linalg.nearest import Nearest
from okl_core.types import F64

DIM = 3
ROUNDS = (10_000, 100_000, 1_000_000)
GROWTH_BAR = 3.0
"""Median update after the most rounds over that after the fewest, at most."""
SPIKE_BAR = 20.0
"""p99 of an update over its median, at most."""

DIMS = (1, 2, 3, 4, 6, 10, 20)
CENTRES = (300, 3_000, 10_000, 30_000, 100_000)
QUESTIONS = 400
REPEATS = 5

WAYS = {"compared": (10**9, 10**9), "scanned": (0, 10**9), "boxed": (0, 1)}
"""FEW_NUMBERS and BOXES_FROM of `linalg.nearest` that leave one way only."""


def truths(X: F64, rng: np.random.Generator) -> F64:
    return np.clip(0.5 + 0.4 * np.sin(4.0 * X[:, 0] + 2.0 * X[:, -1]) + 0.05 * rng.standard_normal(len(X)), 0.0, 1.0)


def update_times(learner: OnlineLearner, X: F64, y: F64) -> F64:
    """Microseconds of each update."""
    times: list[int] = []
    for x, truth in zip(X, y.tolist(), strict=True):
        start = time.process_time_ns()
        learner.update(x, truth)
        times.append(time.process_time_ns() - start)
    return np.array(times) / 1e3


def growth(updates: int) -> bool:
    """The table of rounds, and whether its bars hold."""
    print(f"d = {DIM}\n{'rounds':>9} {'p50 us':>8} {'p99 us':>8} {'max us':>9} {'run us':>8} {'centres':>8} {'MB':>6}")
    rng = np.random.default_rng(0)
    learner = create({"kind": "packing"}, DIM)
    medians, spikes = [], []
    for rounds in ROUNDS:
        X = ball(rounds - learner.t, DIM, rng)
        y = truths(X, rng)
        start = time.process_time()
        learner.run(X[:-updates], y[:-updates])
        run = 1e6 * (time.process_time() - start) / (len(y) - updates)
        times = update_times(learner, X[-updates:], y[-updates:])
        p50, p99 = np.percentile(times, (50, 99)).tolist()
        medians.append(p50)
        spikes.append(p99 / p50)
        seen = learner.describe()
        print(
            f"{rounds:9} {p50:8.1f} {p99:8.1f} {times.max():9.1f} {run:8.1f} {seen['dictionary']:8} "
            f"{seen['bytes'] / 1e6:6.1f}"
        )
    print(f"growth {medians[-1] / medians[0]:.2f} (< {GROWTH_BAR:g}), p99 / p50 {max(spikes):.1f} (< {SPIKE_BAR:g})\n")
    return medians[-1] < GROWTH_BAR * medians[0] and max(spikes) < SPIKE_BAR


def ways() -> None:
    """What one question costs by each way and by a tree, and what it costs to store one point more."""
    columns = [f"{name:>9}" for name in (*WAYS, "tree")] + [
        f"{'block':>9}",
        f"{'append':>9}",
        f"{'build ms':>9}",
        f"{'tree ms':>9}",
    ]
    print(f"{'d':>3} {'centres':>8} {' '.join(columns)}  chosen")
    rng = np.random.default_rng(0)
    for d in DIMS:
        for n in CENTRES:
            points, questions = ball(n, d, rng), ball(QUESTIONS, d, rng)
            cells = [_question_time(points, questions, *limits) for limits in WAYS.values()]
            tree_us, tree_ms = _tree_times(points, questions)
            cells.append(tree_us)
            cells += [_block_time(points, questions), *_append_times(points, questions), tree_ms]
            print(f"{d:3} {n:8} {' '.join(f'{cell:9.1f}' for cell in cells)}  {_chosen(n, d)}")


def _chosen(n: int, d: int) -> str:
    if d <= nearest.BOX_DIM and n >= nearest.BOXES_FROM * d:
        return "boxed"
    return "compared" if n * d < nearest.FEW_NUMBERS else "scanned"


def _question_time(points: F64, questions: F64, few: int, boxes_from: int) -> float:
    kept = nearest.FEW_NUMBERS, nearest.BOXES_FROM, nearest.BOX_DIM
    nearest.FEW_NUMBERS, nearest.BOXES_FROM, nearest.BOX_DIM = few, boxes_from, points.shape[1]
    stored = Nearest.unpack(points)
    stored.find(questions[0])
    fastest = _fastest(lambda: [stored.find(z) for z in questions])
    nearest.FEW_NUMBERS, nearest.BOXES_FROM, nearest.BOX_DIM = kept
    return fastest


def _tree_times(points: F64, questions: F64) -> tuple[float, float]:
    """Microseconds a question, and milliseconds to build it."""
    start = time.process_time()
    tree = cKDTree(points)
    built = time.process_time() - start
    return _fastest(lambda: [tree.query(z) for z in questions]), 1e3 * built


def _block_time(points: F64, questions: F64) -> float:
    stored, Z = Nearest.unpack(points), questions.T.copy()
    return _fastest(lambda: stored.find_block(Z))


def _append_times(points: F64, more: F64) -> tuple[float, float]:
    """Microseconds a point, and milliseconds that the first question needs more than others."""
    stored = Nearest.unpack(points)
    start = time.process_time()
    stored.find(more[0])
    built = time.process_time()
    for s in more:
        stored.append(s)
    return 1e6 * (time.process_time() - built) / len(more), 1e3 * (built - start)


def _fastest(call: Callable[[], object]) -> float:
    """Microseconds a question."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return 1e6 * best / QUESTIONS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=5000, help="rounds that are timed one by one")
    args = parser.parse_args()
    with threadpool_limits(1):
        holds = growth(args.updates)
        ways()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
