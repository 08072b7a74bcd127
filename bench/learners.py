"""Time a round of each learner: python -m bench.learners [kind or scenario id ...] [--data FILE] [--repeats N]

Times are CPU times of this process. The parts of the floor, update, run and predict take turns, and the fastest of each
counts: other work on the machine only ever adds. `rest` is the share of an update that is not in its floor.
A bar that is crossed makes the exit status 1.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from bench.scenarios import SCENARIOS, Scenario
from bench.streams import Stream
from okl_core import create

PREDICTIONS = 5000

HEADER = (
    f"{'id':<26} {'floor us':>8} {'update':>14} {'run':>14} {'rest':>5} {'predict':>8} {'rounds/s':>9} {'run/s':>8}"
)


def measure(scenario: Scenario, stream: Stream, repeats: int) -> dict[str, float]:
    """Seconds: the floor, and a round of update, run and predict."""
    X, y = stream
    truths = y.tolist()
    learner = create({"kind": scenario.kind, "config": dict(scenario.config)}, X.shape[1])

    def update() -> None:
        nonlocal learner
        learner = create(learner.spec, learner.dim)
        for x, truth in zip(X, truths, strict=True):
            learner.update(x, truth)

    def run() -> None:
        nonlocal with_loss
        with_loss = float((create(learner.spec, learner.dim).run(X, y).losses > 0.0).mean())

    def predict() -> None:
        for x in X[:PREDICTIONS]:
            learner.predict(x)

    with_loss, best = 1.0, dict[str, float]()
    parts = scenario.floor()
    seconds = [math.inf] * len(parts)
    for _ in range(repeats):
        seconds = [min(known, part.seconds()) for known, part in zip(seconds, parts, strict=True)]
        for name, call, rounds in (("update", update, len(y)), ("run", run, len(y)), ("predict", predict, PREDICTIONS)):
            best[name] = min(best.get(name, float("inf")), _timed(call) / min(rounds, len(y)))
    shares = [part.times * (with_loss if part.with_loss else 1.0) for part in parts]
    best["floor"] = sum(share * spent for share, spent in zip(shares, seconds, strict=True))
    return best


def _timed(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def report(scenario: Scenario, best: dict[str, float]) -> tuple[str, bool]:
    """One line of the table, and whether both bars hold."""
    update, run = best["update"] / best["floor"], best["run"] / best["floor"]
    cells = [
        f"{scenario.id:<26}",
        f"{1e6 * best['floor']:8.2f}",
        f"{update:6.2f} (<{scenario.update_bar:5.2f})",
        f"{run:6.2f} (<{scenario.run_bar:5.2f})",
        f"{100.0 * (1.0 - 1.0 / update):4.0f}%",
        f"{best['predict'] / best['floor']:8.2f}",
        f"{1.0 / best['update']:9.0f}",
        f"{1.0 / best['run']:8.0f}",
    ]
    return " ".join(cells), update <= scenario.update_bar and run <= scenario.run_bar


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", help="kinds or scenario ids; all without")
    parser.add_argument("--data", type=Path, help="the raw data set, an .npz with X and y; the data that ships without")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(HEADER)
    is_met = True
    with threadpool_limits(1):
        for scenario in SCENARIOS:
            if not args.which or {scenario.kind, scenario.id} & set(args.which):
                line, holds = report(scenario, measure(scenario, scenario.stream(args.data), args.repeats))
                print(line, flush=True)
                is_met &= holds
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
