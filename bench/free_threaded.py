"""Learners in threads, with Python's global lock or without it: `python -m bench.free_threaded [--threads N]`.

Each thread has a learner of its own. First all learners go through the contract (`okl_core.contract.checks`), in N threads
at a time, each kind in all of them at once: what a process keeps for all learners must bear that. Then rounds per second of
one thread and of N, on MAGIC: with the lock N threads together are about as fast as one. It needs no more than the learners
do, so that it runs where the service's packages do not: `make free-threaded`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from okl_core import create, learner_kinds
from okl_core.contract.checks import check_learner
from okl_core.types import F64

MAGIC: Final = Path(__file__).parents[1] / "service" / "data" / "magic04.npz"
KINDS: Final = ("aioli", "pomdr", "nystrom-aioli", "pros-n-kons")
ROUNDS: Final = {"update": 2_000, "run": 8_000}
REPEATS: Final = 3


def at_once(call: Callable[[], object], threads: int) -> float:
    """Seconds until so many threads, which start together, have made the call."""
    together = threading.Barrier(threads + 1)

    def wait_and_call() -> None:
        together.wait()
        call()

    with ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(wait_and_call) for _ in range(threads)]
        together.wait()
        start = time.perf_counter()
        for made in calls:
            made.result()
        return time.perf_counter() - start


def rounds_per_second(kind: str, way: str, X: F64, y: F64, threads: int) -> float:
    """Rounds per second of all threads together, the best of some repetitions."""

    def learn() -> None:
        learner = create(kind, X.shape[1])
        if way == "run":
            learner.run(X, y)
        else:
            for x, truth in zip(X, y.tolist(), strict=True):
                learner.update(x, truth)

    return threads * len(y) / min(at_once(learn, threads) for _ in range(REPEATS))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.free_threaded", description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    threads: int = parser.parse_args().threads
    # Public only from 3.13 on, where there is something to ask.
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"Python {platform.python_version()} {'with' if has_lock else 'without'} its lock, numpy {np.__version__}\n")
    kinds = learner_kinds()
    for kind in kinds:
        at_once(lambda kind=kind: check_learner(kind), threads)
    print(f"the contract of all {len(kinds)} learners holds, each in {threads} threads at once\n")
    with np.load(MAGIC) as data:
        X, y = data["X"].astype(np.float64), data["y"].astype(np.float64)
    print(f"{'learner':14} {'way':>7} {'1 thread':>10} {f'{threads} threads':>10} {'times':>6}   rounds per second")
    for kind in KINDS:
        for way, rounds in ROUNDS.items():
            alone, together = (rounds_per_second(kind, way, X[:rounds], y[:rounds], n) for n in (1, threads))
            print(f"{kind:14} {way:>7} {alone:10,.0f} {together:10,.0f} {together / alone:6.2f}")


if __name__ == "__main__":
    main()
