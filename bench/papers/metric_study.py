"""Regret on streams whose truths vary in a few directions, of packings that know them, learn them or neither, and rivals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bench.papers.metric_runs import FREQUENCY, ROUNDS, DirectionalStream, contestants, cosine, directional_stream
from bench.papers.metric_sets import LEARNED, MEDIAN, forecasts
from okl_core import OnlineLearner, create
from okl_core.learners.metric_packing.metric_packing_config import MetricPackingConfig
from okl_core.metrics.gradient_outer_product import gradient_outer_product
from okl_core.packing.learned_metric import learned_metric
from okl_core.packing.regret_bounds import most_centres, regret_bound
from okl_core.types import F64

STREAMS = ((2, 2), *itertools.product((5, 10, 20), (1, 2, 3)))
"""d and the number of directions."""
SEEDS = 3

EUCLIDEAN, SUBSPACE, PUBLISHED, RESTART, REFEED = "Euclidean", "subspace", "restart at once", "restart", "refeed"
"""Packings by their names in `metric_runs.contestants`."""

PACKINGS = (EUCLIDEAN, SUBSPACE, PUBLISHED, RESTART, REFEED)

LINEAR_EUCLIDEAN, LINEAR_REFEED = "Euclidean, linear", "refeed, linear"

LINEAR = (LINEAR_EUCLIDEAN, LINEAR_REFEED)
"""The same with linear fits: their centres and metrics are those of the means, and theorem 1 is not about them."""

RIVALS: Mapping[str, Mapping[str, Any]] = {
    "ons": {"kind": "ons"},
    "pros-n-kons": {"kind": "pros-n-kons", "config": MEDIAN},
    "pros-n-kons, learned metric": {"kind": "pros-n-kons", "config": LEARNED},
    "nystrom-ridge": {"kind": "nystrom-ridge", "config": MEDIAN},
    "pool": {"kind": "pool", "config": {"truth": "numbers"}},
}


class Bar(NamedTuple):
    """Largest mean regret of packings that learn the metric, and least cosine of what they learn, after ROUNDS rounds."""

    restart: float
    refeed: float
    cosine: float = 0.95


BARS: Mapping[tuple[int, int], Bar] = {(5, 1): Bar(40.0, 22.0), (10, 1): Bar(40.0, 40.0), (10, 2): Bar(65.0, 65.0)}
"""By d and the number of directions."""


@dataclass(frozen=True, slots=True)
class Task:
    """Streams of one kind, one a seed."""

    d: int
    k: int
    streams: list[DirectionalStream]

    @property
    def name(self) -> str:
        return f"d = {self.d}, {self.k} direction{'s' if self.k > 1 else ''}"

    @property
    def rounds(self) -> int:
        return len(self.streams[0].y)


@dataclass(frozen=True, slots=True)
class Played:
    """One run: its cumulative regret after each round, shape (T,), and for a packing what it was after each phase."""

    regret: F64
    looks: list[Look]


class Look(NamedTuple):
    t: int
    M: F64
    rank: float
    centres: float


@dataclass(frozen=True)
class Result:
    task: Task
    runs: dict[str, list[Played]]

    def regret(self, name: str) -> F64:
        """Cumulative, in the mean over the seeds, shape (T,)."""
        return np.mean([played.regret for played in self.runs[name]], axis=0)

    def centres(self, name: str) -> float:
        return float(np.mean([played.looks[-1].centres for played in self.runs[name]]))

    @cached_property
    def cosines(self) -> dict[str, list[float]]:
        """Of the metrics at the end, by seed."""
        return {
            name: [
                cosine(stream.U, played.looks[-1].M)
                for stream, played in zip(self.task.streams, self.runs[name], strict=True)
            ]
            for name in (RESTART, REFEED)
        }


def tasks(streams: Sequence[tuple[int, int]], rounds: int, seeds: int) -> list[Task]:
    return [Task(d, k, [directional_stream(rounds, d, k, seed) for seed in range(seeds)]) for d, k in streams]


def phase_ends(rounds: int) -> list[int]:
    """2^(i + 1) - 2 for i = 1, 2, ..., and the last round."""
    ends = itertools.takewhile(lambda end: end < rounds, (2 ** (i + 1) - 2 for i in itertools.count(1)))
    return [*ends, rounds]


def measure(task: Task) -> Result:
    """Every learner on every stream of a task."""
    runs: dict[str, list[Played]] = {name: [] for name in (*PACKINGS, *LINEAR, *RIVALS)}
    for stream in task.streams:
        listed = contestants(stream)
        for name in (*PACKINGS, *LINEAR):
            runs[name].append(_play_packing(stream, *listed[name]))
        for name, spec in RIVALS.items():
            runs[name].append(Played(_regret(stream, forecasts(spec, stream.X, stream.y)[0]), []))
    return Result(task, runs)


def _play_packing(stream: DirectionalStream, kind: str, config: Mapping[str, Any]) -> Played:
    """The inputs as they are: they lie in the ball."""
    T, d = stream.X.shape
    truth_range = [float(stream.y.min()), float(stream.y.max())]
    learner = create({"kind": kind, "config": {"truth_range": truth_range, **config}}, d)
    values: list[F64] = []
    looks = [_look(learner)]
    for start, end in itertools.pairwise([0, *phase_ends(T)]):
        values.append(learner.run(stream.X[start:end], stream.y[start:end]).values)
        looks.append(_look(learner))
    return Played(_regret(stream, np.concatenate(values)), looks)


def _look(learner: OnlineLearner) -> Look:
    description = learner.describe()
    return Look(
        int(description["t"]), learned_metric(learner), description["effective_rank"], description["dictionary"]
    )


def _regret(stream: DirectionalStream, values: F64) -> F64:
    return np.cumsum((values - stream.y) ** 2 - (stream.f - stream.y) ** 2)


def constant_regret(stream: DirectionalStream) -> float:
    """Of who forecasts 1/2 for ever."""
    return float(((0.5 - stream.y) ** 2 - (stream.f - stream.y) ** 2).sum())


def true_outer_product(stream: DirectionalStream) -> F64:
    """The mean of grad f grad f^T over the inputs, shape (d, d)."""
    slopes = 0.5 * FREQUENCY * np.cos(FREQUENCY * stream.X @ stream.U) @ stream.U.T / stream.U.shape[1]
    return slopes.T @ slopes / len(slopes)


def largest_slopes(stream: DirectionalStream, V: F64) -> F64:
    """At least |df/dv| everywhere, for every column v of V: shape (V.shape[1],)."""
    return 0.5 * FREQUENCY * np.abs(stream.U.T @ V).mean(axis=0)


def estimate(stream: DirectionalStream, rounds: int) -> F64:
    """What `metric-packing` would make of the first rounds, shape (d, d)."""
    points = MetricPackingConfig().evaluation_points
    return gradient_outer_product(stream.X[:rounds], stream.y[:rounds], points=points)


class Bound(NamedTuple):
    """What a run may lose at most, by theorem 1: with the most centres there can be, and with those there were."""

    stated: float
    from_centres: float | None


def bound(stream: DirectionalStream, name: str, played: Played) -> Bound | None:
    """None where theorem 1 says nothing: it is about packings that begin empty, under one metric."""
    if name in (EUCLIDEAN, SUBSPACE):
        last = played.looks[-1]
        return Bound(_theorem(stream, last.M, last.t, None), _theorem(stream, last.M, last.t, last.centres))
    if name != PUBLISHED:
        return None
    lives = itertools.pairwise(played.looks)
    return Bound(sum(_theorem(stream, born.M, died.t - born.t, None) for born, died in lives), None)


def _theorem(stream: DirectionalStream, M: F64, rounds: int, centres: float | None) -> float:
    """Theorem 1 for truths that fill their range: they are taken to [0, 1], and the regret comes back."""
    width = float(np.ptp(stream.y))
    values, V = np.linalg.eigh(M)
    eigenvalues = values[::-1] / values[-1]
    if centres is None:
        centres = most_centres(eigenvalues, rounds)
    return width**2 * regret_bound(eigenvalues, largest_slopes(stream, V[:, ::-1]) / width, rounds, centres)


def broken(results: Sequence[Result]) -> list[str]:
    """What must not be and is."""
    found: list[str] = []
    for result in results:
        task = result.task
        for name in PACKINGS:
            for seed, (stream, played) in enumerate(zip(task.streams, result.runs[name], strict=True)):
                allowed = bound(stream, name, played)
                for most in () if allowed is None else allowed:
                    if most is not None and played.regret[-1] > most:
                        found.append(f"{task.name}, {name}, seed {seed}: regret {played.regret[-1]:.2f} > {most:.2f}")
        bar = BARS.get((task.d, task.k))
        if bar is None or task.rounds != ROUNDS:
            continue
        for name, most in ((RESTART, bar.restart), (PUBLISHED, bar.restart), (REFEED, bar.refeed)):
            if result.regret(name)[-1] > most:
                found.append(f"{task.name}, {name}: mean regret {result.regret(name)[-1]:.2f} > {most:g}")
        for name, cosines in result.cosines.items():
            if min(cosines) < bar.cosine:
                found.append(f"{task.name}, {name}: cosine {min(cosines):.3f} < {bar.cosine:g}")
    return found
