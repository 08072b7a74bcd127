"""The streams that benches play: the data that ships, or a file given on the command line."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bench.papers.metric_runs import ROUNDS, directional_stream
from okl_core.types import F64
from service.demo_data import magic

Stream = tuple[F64, F64]


def load(path: Path) -> Stream:
    """X and y of an .npz file."""
    with np.load(path) as archive:
        return archive["X"].astype(np.float64), archive["y"].astype(np.float64)


def scaled(X: F64) -> F64:
    """Each column to [0, 1]."""
    return (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-12)


def magic_stream(path: Path | None) -> Stream:
    """MAGIC in a fixed order. A file is the raw set: arrays X and y, columns then scaled to [0, 1]."""
    if path is None:
        X, y = magic()
    else:
        X, y = load(path)
        X = scaled(X)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


KONS_ROUNDS = 4000


def kons_stream(path: Path | None) -> Stream:
    """The first rounds of MAGIC; each costs more than the one before."""
    X, y = magic_stream(path)
    return X[:KONS_ROUNDS], y[:KONS_ROUNDS]


def magic_features(path: Path | None, count: int) -> Stream:
    """The first rounds of MAGIC in so many cosines of random directions."""
    X, y = kons_stream(path)
    rng = np.random.default_rng(0)
    return np.cos(X @ rng.standard_normal((X.shape[1], count)) + rng.uniform(0.0, 2.0 * np.pi, count)), y


def magic_classes(path: Path | None) -> Stream:
    """MAGIC with four classes: its two, each split where a feature passes its median."""
    X, y = kons_stream(path)
    return X, 2.0 * (y > 0.0) + (X[:, 8] > np.median(X[:, 8]))


LEADER_ROUNDS = 1000


def leader_stream(path: Path | None) -> Stream:
    """The first rounds of MAGIC, of which every leader takes all so far."""
    X, y = magic_stream(path)
    return X[:LEADER_ROUNDS], y[:LEADER_ROUNDS]


def first_input(path: Path | None) -> Stream:
    """MAGIC, of every row the first number only."""
    X, y = magic_stream(path)
    return np.ascontiguousarray(X[:, :1]), y


def ranked_inputs(path: Path | None) -> Stream:
    """MAGIC, of every row the ranks of the first three numbers: spread evenly over a cube inside the unit ball."""
    X, y = magic_stream(path)
    ranks = X[:, :3].argsort(axis=0).argsort(axis=0)
    return (2.0 * ranks / len(y) - 1.0) / math.sqrt(3.0), y


def one_direction(_: Path | None) -> Stream:
    """Made up: 5 inputs in the unit ball, truths that vary in one direction."""
    stream = directional_stream(ROUNDS, 5, 1, seed=0)
    return stream.X, stream.y
