"""What it costs not to know the half-life: `python -m bench.half_lives [--set FILE.npz ...]`.

A `pool` of `pros-n-kons` with `half_lives` `"learned"`, on one dictionary of 200 points, on a stream whose best function
turns once in 600 rounds, on one that changes its sign once, on MAGIC in a random order, where nothing drifts, and on the sets
named: labels, in the order of their rows, with the last label as one more input. A column each half-life, then the pool with
its default share, and what it takes over the one that never forgets: the mean squared loss of a round. The best fixed one is
bold.

Then `kons`, which stores its rounds, with each kind of step, on labels that turn and on numbers that do.

Then `softmax-aioli` with a `half_life` that is `"learned"`, in the columns of the first table the mean log-loss: three
sectors of a plane that turn once in 600 rounds, three that take each other's places once, and the digits of scikit-learn in
a random order.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bench.multiclass import read
from bench.papers.markdown import table
from bench.streams import Stream, load, magic_stream, scaled
from okl_core import create
from okl_core.pool.expert_specs import HALF_LIVES

ROUNDS, STORED = 6_000, 1_500
SHARE = 0.001


def streams(files: Sequence[Path]) -> Iterator[tuple[str, Stream, int]]:
    """Name, inputs and labels, and lags."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(ROUNDS, 2))
    angle = 2.0 * np.pi * np.arange(ROUNDS) / 600.0
    turning = np.where(np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1] > 0.0, 1.0, -1.0)
    half = np.where(np.arange(ROUNDS) < ROUNDS // 2, 1.0, -1.0)
    yield "turns", (X, turning), 0
    yield "changes its sign", (X, half * np.where(np.sin(4.0 * X[:, 0]) > X[:, 1], 1.0, -1.0)), 0
    X, y = magic_stream(None)
    yield "MAGIC", (scaled(X[:ROUNDS]), np.where(y[:ROUNDS] > 0.0, 1.0, -1.0)), 0
    for file in files:
        X, y = load(file)
        yield file.stem, (scaled(X[: 2 * ROUNDS]), np.where(y[: 2 * ROUNDS] > 0.0, 1.0, -1.0)), 1


def class_streams() -> Iterator[tuple[str, Stream]]:
    """Name, inputs and classes."""
    rng = np.random.default_rng(0)
    X, t = rng.normal(size=(ROUNDS, 2)), np.arange(ROUNDS)
    angle = np.arctan2(X[:, 1], X[:, 0]) / (2.0 * np.pi)
    yield "sectors turn", (X, np.floor(3.0 * (angle + t / 600.0)) % 3.0)
    yield "sectors change places", (X, (np.floor(3.0 * angle) + (t >= ROUNDS // 2)) % 3.0)
    X, y = read("digits")
    order = rng.permutation(len(y))
    yield "digits", (X[order], y[order])


def labels_line(name: str, stream: Stream, lags: int) -> list[str]:
    own = {"loss": "squared", "clip": 2.0, "budget": 200, "kernel": {"kind": "gaussian", "sigma": 0.5}}
    experts: list[dict[str, Any]] = [{"kind": "pros-n-kons", "config": own, "lags": lags, "half_lives": "learned"}]
    return line(name, stream, {"kind": "pool", "config": {"experts": experts, "share": SHARE}})


def classes_line(name: str, stream: Stream) -> list[str]:
    classes = int(stream[1].max()) + 1
    return line(name, stream, {"kind": "softmax-aioli", "config": {"classes": classes, "half_life": "learned"}})


def line(name: str, stream: Stream, spec: dict[str, Any]) -> list[str]:
    """Of a pool of the grid and the trivial forecasters, which are the last of it."""
    X, y = stream
    learner = create(spec, X.shape[1])
    pooled = learner.run(X, y).losses.mean()
    losses = [value for key, value in learner.describe().items() if key.startswith("loss_")]
    alone = [value / len(y) for value in losses[: len(HALF_LIVES)]]
    best = min(alone)
    cells = [f"**{loss:.4f}**" if loss == best else f"{loss:.4f}" for loss in alone]
    return [name, *cells, f"{pooled:.4f}", f"{pooled / alone[-1] - 1.0:+.1%}"]


def stored() -> Iterator[tuple[str, str, Stream]]:
    """Name, loss, and stream."""
    _, (X, labels), _ = next(streams(()))
    angle = 2.0 * np.pi * np.arange(STORED) / 600.0
    X = X[:STORED]
    yield "labels", "squared-hinge", (X, labels[:STORED])
    yield "numbers", "squared", (X, np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1])


def stored_line(name: str, loss: str, stream: Stream, step: str) -> list[str]:
    X, y = stream
    own = {"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": loss, "clip": 1.5, "regularization": 0.1, "step": step}
    learners = [create({"kind": "kons", "config": own | {"half_life": half_life}}, 2) for half_life in HALF_LIVES]
    losses = [learner.run(X, y).losses.mean() for learner in learners]
    return [f"{name}, `{step}`", *(f"**{loss:.4f}**" if loss == min(losses) else f"{loss:.4f}" for loss in losses)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, action="append", default=[], metavar="FILE.npz", help="repeatable")
    options = parser.parse_args(arguments)
    grid = ["never" if half_life is None else str(half_life) for half_life in HALF_LIVES]
    with threadpool_limits(1):
        rows = [labels_line(*one) for one in streams(options.set)]
        steps = [stored_line(*one, step) for one in stored() for step in ("curvature", "half-curvature", "adaptive")]
        classes = [classes_line(*one) for one in class_streams()]
    print("\n".join(table(["stream", *grid, "learned", "over never"], rows)))
    print("\n" + "\n".join(table(["kons on", *grid], steps)))
    print("\n" + "\n".join(table(["stream", *grid, "learned", "over never"], classes)))


if __name__ == "__main__":
    main()
