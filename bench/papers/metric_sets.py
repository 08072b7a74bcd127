"""The real sets of bench.papers.metric, and how learners are run on streams whose ranges are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.streams import Stream, load
from okl_core import OnlineLearner, create, resolve
from okl_core.contract.learner import parse_spec
from okl_core.records.scaling import Scaling
from okl_core.types import F64

Spec = Mapping[str, Any]

FIRST = 100
"""Rounds that `"sigma": "median"` and `"metric": "learned"` look at, before they are played."""

SORTED = frozenset({"cal_housing"})
"""Sets whose rows have an order that no user would meet: by place. They are put in a fixed random one."""

DAY = 24
LAGS = {"bike": DAY}
"""Truths before that a user would take in: of an hourly series those of a day."""

MEDIAN = {"kernel": {"kind": "gaussian", "sigma": "median"}}
LEARNED = {"kernel": {"kind": "gaussian", "sigma": "median", "metric": "learned"}}


class Contestant(NamedTuple):
    """A learner with what a user must tell it, and parameters that one may try: `grid` has the best of them in hindsight."""

    name: str
    kind: str
    config: Spec
    grid: Sequence[Spec] = ()


KERNELS: list[Spec] = [
    {"kernel": {"kind": "gaussian", "sigma": sigma}, "regularization": alpha}
    for sigma in (0.5, 1.0, 2.0, 4.0)
    for alpha in (0.1, 0.01)
]

SLOPES: list[Spec] = [{"slope_regularization": value} for value in (0.1, 0.01, 0.001)]

CONTESTANTS = (
    Contestant("mean", "mean", {}),
    Contestant("last truth", "last-label", {}),
    Contestant(
        "linear, `ons`",
        "ons",
        {},
        [{"step": step, "regularization": alpha} for step in ("curvature", "adaptive") for alpha in (1.0, 0.1, 0.01)],
    ),
    Contestant("`packing`", "packing", {}),
    Contestant("`packing`, linear", "packing", {"estimate": "linear"}, SLOPES),
    Contestant(
        "`metric-packing`",
        "metric-packing",
        {},
        [{"bandwidth": c, "metric_regularization": alpha} for c in (1.0, 1.5, 2.5) for alpha in (0.25, 0.5, 1.0)],
    ),
    Contestant("`metric-packing`, linear", "metric-packing", {"estimate": "linear"}, SLOPES),
    Contestant("`pros-n-kons`", "pros-n-kons", MEDIAN, KERNELS),
    Contestant("`pros-n-kons`, learned metric", "pros-n-kons", LEARNED),
    Contestant("`nystrom-ridge`", "nystrom-ridge", MEDIAN, KERNELS),
    Contestant("`pool`", "pool", {"truth": "numbers"}),
)


YARDSTICKS = ("linear, `ons`", "`pros-n-kons`")
"""Contestants beside which the others are put."""


@dataclass(frozen=True, slots=True)
class RealSet:
    name: str
    X: F64
    y: F64
    lags: int

    @property
    def title(self) -> str:
        return f"{self.name}, `lags` {self.lags}" if self.lags else self.name


class Score(NamedTuple):
    """Of a run with these changes to the config: root of the mean squared error in the units of the truths, and so on."""

    changed: Spec
    rmse: float
    late: float
    """Over the second half."""
    points: float


@dataclass(frozen=True, slots=True)
class Entry:
    by: Contestant
    score: Score
    tuned: Score
    """The best of the grid and `score`."""


def read(path: Path, rounds: int | None = None) -> list[RealSet]:
    """A set, and the same with lags if they belong to it; the first rows only if `rounds` says so."""
    X, y = _ordered(path)
    X, y = X[:rounds], y[:rounds]
    return [RealSet(path.stem, X, y, lags) for lags in {0: None, LAGS.get(path.stem, 0): None}]


def _ordered(path: Path) -> Stream:
    X, y = load(path)
    if path.stem not in SORTED:
        return X, y
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def forecasts(spec: Spec, X: F64, y: F64) -> tuple[F64, OnlineLearner]:
    """A learner's forecasts of y, shape (n,), in one pass, and the learner.

    It is told the ranges of the whole stream: inputs are scaled as a session's, truths to what it takes of [-1, 1].
    """
    _, algorithm, config = parse_spec(spec)
    X = Scaling.of_ranges(X.min(axis=0), X.max(axis=0), algorithm.input_radius(config))(X)
    start, end = np.clip(algorithm.truth_range(config), -1.0, 1.0)
    low, unit = y.min(), np.ptp(y) / (end - start)
    taken = np.clip(start + (y - low) / unit, start, end)
    learner = create(resolve(spec, X[:FIRST], taken[:FIRST]), X.shape[1])
    return low + (learner.run(X, taken).values - start) * unit, learner


def score(data: RealSet, by: Contestant, changed: Spec) -> Score:
    spec = {"kind": by.kind, "config": {**by.config, **changed}, "lags": data.lags}
    values, learner = forecasts(spec, data.X, data.y)
    squares = (values - data.y) ** 2
    late = squares[len(squares) // 2 :]
    return Score(changed, math.sqrt(squares.mean()), math.sqrt(late.mean()), learner.describe()["dictionary"])


def measure(data: RealSet, contestants: Sequence[Contestant] = CONTESTANTS) -> list[Entry]:
    """Every contestant on a set, as it comes and tuned."""
    entries: list[Entry] = []
    for by in contestants:
        found = score(data, by, {})
        tried = [score(data, by, changed) for changed in by.grid]
        entries.append(Entry(by, found, min([found, *tried], key=lambda one: one.rmse)))
    return entries
