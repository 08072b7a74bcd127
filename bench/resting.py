"""What a pool gains and loses where experts rest: python -m bench.resting [FILE.npz ...] [--rounds N]

MAGIC, and sets from .npz files with X and y: two different truths are labels, others are scaled to [-1, 1]. Rows of elec2
and bike (by the names of their files) are played as they come, others in a random order; columns are scaled to [0, 1].
`pool` plays the first rounds by `run` with `resting` 1, where none rests, 8 and 16. `silent` is made up for an expert that
rests and becomes the best: labels are coins for half of the rounds, and then a function of two inputs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bench.streams import Stream, load, magic_stream, scaled
from okl_core import create
from okl_core.types import F64

IN_TIME_ORDER = ("elec2", "bike")
RESTING = (1, 8, 16)


def stream(path: Path) -> Stream:
    """The rows in the order in which they are played."""
    X, y = load(path)
    if path.stem not in IN_TIME_ORDER:
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
    low, high = float(y.min()), float(y.max())
    return scaled(X), 2.0 * (y - low) / (high - low) - 1.0


def silent(rounds: int) -> Stream:
    """Nothing can be learned, and the pool's loss tells nothing, until there is something to learn."""
    rng = np.random.default_rng(0)
    X, coins = rng.random((rounds, 2)), rng.choice([-1.0, 1.0], size=rounds)
    return X, np.where(np.arange(rounds) < rounds // 2, coins, np.sign(np.sin(9.0 * X[:, 0]) * np.cos(6.0 * X[:, 1])))


def measure(X: F64, y: F64) -> list[str]:
    """Squared loss a round and rounds a second for each of RESTING."""
    truth = "labels" if len(np.unique(y)) == 2 else "numbers"
    cells = []
    for every in RESTING:
        config: dict[str, Any] = {"truth": truth, "resting": every}
        learner = create({"kind": "pool", "config": config}, X.shape[1])
        start = time.process_time()
        loss = learner.run(X, y).losses.mean()
        spent = time.process_time() - start
        cells.append(f"{loss:9.5f} {len(y) / spent:7.0f} {learner.describe()['awake']:4.0f}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=12_000, help="at most so many of each set")
    args = parser.parse_args()
    print(f"{'':<12}" + "  ".join(f"{f'resting {every}':>22}" for every in RESTING))
    print(f"{'set':<12}" + "  ".join(f"{'loss':>9} {'run/s':>7} {'awake':>4}" for _ in RESTING))
    with threadpool_limits(1):
        own = [("magic", magic_stream(None)), ("silent", silent(args.rounds))]
        for name, (X, y) in own + [(path.stem, stream(path)) for path in args.files]:
            print(f"{name:<12}" + "  ".join(measure(X[: args.rounds], y[: args.rounds])), flush=True)


if __name__ == "__main__":
    main()
