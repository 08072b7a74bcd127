"""What single precision saves and costs: python -m bench.precision [FILE.npz ...] [--rounds N]

MAGIC, and sets from .npz files as `bench.resting` reads them, each played by the learners on a dictionary, in double and in
single precision, one round at a time and in blocks, side by side. Of both: the mean loss, and MB of the state; of single
precision beside double: how far a forecast is off, in the root of the mean square and at most, and what a round takes. The
dictionaries may differ, since in single precision a point must keep more outside the span of the others.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench.resting import stream
from bench.streams import magic_stream
from okl_core import create, get_learner, resolve
from okl_core.types import F64

KINDS = ("pros-n-kons", "nystrom-ridge", "nystrom-aioli")
LABELS_ONLY = ("nystrom-aioli",)
TURNS = 3


class Played(NamedTuple):
    """One precision on one stream."""

    loss: float
    values: F64
    seconds: float
    """CPU time of the rounds one by one."""
    block_seconds: float
    megabytes: float


def played(kind: str, precision: str, X: F64, y: F64) -> Played:
    config: dict[str, Any] = {"kernel": {"kind": "gaussian", "sigma": "median"}, "precision": precision}
    if "clip" in get_learner(kind).config_type.model_fields:
        config["clip"] = 1.0
    spec = resolve({"kind": kind, "config": config}, X[:200])
    alone, at_once = create(spec, X.shape[1]), create(spec, X.shape[1])
    start = time.process_time()
    for x, truth in zip(X, y.tolist(), strict=True):
        alone.update(x, truth)
    between = time.process_time()
    info = at_once.run(X, y)
    end = time.process_time()
    return Played(float(info.losses.mean()), info.values, between - start, end - between, at_once.nbytes / 1e6)


def row(kind: str, X: F64, y: F64) -> str:
    """By turns, so that both see the same machine; the fastest turn counts."""
    turns = [(played(kind, "double", X, y), played(kind, "single", X, y)) for _ in range(TURNS)]
    double, single = turns[0]
    off = np.abs(double.values - single.values)
    update = min(b.seconds for _, b in turns) / min(a.seconds for a, _ in turns)
    run = min(b.block_seconds for _, b in turns) / min(a.block_seconds for a, _ in turns)
    return (
        f"{double.loss:9.5f} {single.loss:9.5f} {np.sqrt(np.square(off).mean()):9.1e} {off.max():9.1e} "
        f"{double.megabytes:7.2f} {single.megabytes:7.2f} {update:7.2f} {run:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=12_000, help="at most so many of each set")
    args = parser.parse_args()
    print(f"{'':<26} {'loss':>19} {'off by':>19} {'MB':>15} {'single / double':>15}")
    head = f"{'double':>9} {'single':>9} {'rms':>9} {'at most':>9} {'double':>7} {'single':>7} {'update':>7} {'run':>6}"
    print(f"{'set':<10} {'learner':<15} {head}")
    with threadpool_limits(1):
        for name, (X, y) in [("magic", magic_stream(None))] + [(path.stem, stream(path)) for path in args.files]:
            is_labels = len(np.unique(y)) == 2
            for kind in KINDS:
                if is_labels or kind not in LABELS_ONLY:
                    print(f"{name:<10} {kind:<15} {row(kind, X[: args.rounds], y[: args.rounds])}", flush=True)


if __name__ == "__main__":
    main()
