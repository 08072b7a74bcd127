"""What threads of BLAS cost a learner beside busy neighbours: `python -m bench.threads [--kind KIND] [--busy N]`.

Rounds of MAGIC by `run` and by `update`, with as many threads of BLAS as there are processors: through `OnlineLearner`, which
computes in one of them, and by the algorithm alone, as BLAS divides its products. N other processes, each a loop that
needs a processor, are busy meanwhile; none, and then one, without `--busy`. Times are of the clock on the wall.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from bench.streams import Stream, magic_stream
from okl_core import create, get_learner
from okl_core.contract.learner import parse_spec
from okl_core.contract.rng import RoundRng

LEARNED, RUN, UPDATES = 2_000, 1_000, 200
"""Rounds before the clock runs, and by each way."""


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that are busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def guarded(kind: str, stream: Stream) -> tuple[float, float]:
    """Seconds a round of `run` and of `update`, by the learner as users hold it."""
    X, y = stream
    learner = create({"kind": kind}, X.shape[1])
    learner.run(X[:LEARNED], y[:LEARNED])

    def updates() -> None:
        for x, truth in zip(X[:UPDATES], y[:UPDATES].tolist(), strict=True):
            learner.update(x, truth)

    return _a_round(lambda: learner.run(X[:RUN], y[:RUN]), RUN), _a_round(updates, UPDATES)


def divided(kind: str, stream: Stream) -> tuple[float, float]:
    """The same by the algorithm alone."""
    X, y = stream
    algorithm, rng = get_learner(kind), RoundRng(0)
    _, _, config = parse_spec({"kind": kind})
    state = algorithm.init(config, X.shape[1])
    with threadpool_limits(1):
        rng.begin(None)
        algorithm.run(config, state, X[:LEARNED], y[:LEARNED], rng)

    def run() -> None:
        rng.begin(None)
        algorithm.run(config, state, X[:RUN], y[:RUN], rng)

    def updates() -> None:
        for x, truth in zip(X[:UPDATES], y[:UPDATES].tolist(), strict=True):
            rng.begin(None)
            rng.at(state.t + 1)
            algorithm.learn(config, state, algorithm.play(config, state, x, truth, rng))

    return _a_round(run, RUN), _a_round(updates, UPDATES)


def _a_round(call: Callable[[], object], rounds: int) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.threads", description=__doc__)
    parser.add_argument("--kind", default="nystrom-aioli")
    parser.add_argument("--busy", type=int, action="append")
    options = parser.parse_args()
    stream, processors = magic_stream(None), os.cpu_count() or 1
    print(f"{options.kind}, {processors} processors and threads of BLAS; us a round")
    print(f"{'busy':>4}{'run':>10}{'divided':>10}{'ratio':>8}{'update':>10}{'divided':>10}{'ratio':>8}")
    with threadpool_limits(processors):
        for busy in options.busy or (0, 1):
            with neighbours(busy):
                one, several = guarded(options.kind, stream), divided(options.kind, stream)
            cells = [f"{1e6 * a:10.0f}{1e6 * b:10.0f}{b / a:8.1f}" for a, b in zip(one, several, strict=True)]
            print(f"{busy:4}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
