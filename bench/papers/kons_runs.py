"""The streams of bench.papers.kons, its learners, and what it measures of a run."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.streams import Stream, load, scaled
from okl_core import create, diagnostics
from okl_core.diagnostics import Comparator
from okl_core.kernels.kernels import Gaussian
from okl_core.losses import LOSSES, LossName
from okl_core.types import F64

ROUNDS = 4000
BLOCKS = 40
"""A stream is played in so many blocks, after each of which the learner is looked at."""
REPEATS = 3
"""Of the time of a block the least counts."""
PREFIXES = 12
"""The best function in hindsight is found for so many beginnings of the stream."""

ALPHA = 1.0
GAMMAS = (0.03, 0.1, 0.3)
CLIPS: dict[LossName, float] = {"squared": 1.0, "logistic": 2.0}
OGD_FACTOR = math.sqrt(2.0)
"""c of the steps c U / (L sqrt(t)) for which (c + 2 / c) U L sqrt(T) is least."""

KONS = "KONS, curvature"
"""What the others are compared with."""

Description = Mapping[str, float]
Bound = Callable[[Description, float], float]
"""(what a learner describes, |f|) -> the most that its regret against f can be."""


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    X: F64
    y: F64
    loss: LossName
    kernel: Gaussian

    @property
    def clip(self) -> float:
        return CLIPS[self.loss]

    def best(self, rounds: int) -> Comparator:
        """The comparator of the first rounds."""
        X, y = self.X[:rounds], self.y[:rounds]
        return diagnostics.best_in_hindsight(self.kernel, X, y, self.loss, regularization=ALPHA, clip=self.clip)


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    kind: str
    config: Mapping[str, Any]
    bound: Bound | None


@dataclass(frozen=True, slots=True)
class Played:
    """A contestant's run: its losses, and after each block the round, what it described, and us a round."""

    by: Contestant
    losses: F64
    ends: list[int]
    told: list[Description]
    round_us: F64

    def regret(self, best: Comparator) -> float:
        return float(self.losses[: len(best.losses)].sum()) - best.loss

    def bound(self, best: Comparator) -> float | None:
        told = self.told[self.ends.index(len(best.losses))]
        return None if self.by.bound is None else self.by.bound(told, best.norm)


@dataclass(frozen=True, slots=True)
class Result:
    task: Task
    bests: list[Comparator]
    """One a prefix; the last is that of the whole stream."""
    runs: dict[str, Played]


def regression(rounds: int) -> Stream:
    """A smooth function of three inputs with noise."""
    rng = np.random.default_rng(0)
    X = rng.random((rounds, 3))
    f = np.sin(2.0 * np.pi * X[:, 0]) * X[:, 1] + X[:, 2] - 0.5
    return X, np.clip(0.6 * f + 0.15 * rng.standard_normal(rounds), -1.0, 1.0)


def classification(rounds: int) -> Stream:
    """Labels whose log odds are a smooth function of two inputs."""
    rng = np.random.default_rng(1)
    X = rng.random((rounds, 2))
    log_odds = np.sin(2.0 * np.pi * X[:, 0]) + 2.0 - 4.0 * X[:, 1]
    return X, np.where(rng.random(rounds) < 1.0 / (1.0 + np.exp(-log_odds)), 1.0, -1.0)


def from_file(path: Path, rounds: int, loss: LossName) -> Stream:
    """The first rounds of a file, in the fixed order and scaled."""
    X, y = load(path)
    order = np.random.default_rng(0).permutation(len(y))[:rounds]
    if loss == "squared":
        y = 2.0 * scaled(y) - 1.0
    return scaled(X)[order], y[order]


def tasks(rounds: int, numbers: Path | None, labels: Path | None) -> list[Task]:
    """A task of numbers and one of labels, each from its file or made."""
    made: list[Task] = []
    sources: list[tuple[str, Path | None, Callable[[int], Stream], LossName]] = [
        ("regression", numbers, regression, "squared"),
        ("classification", labels, classification, "logistic"),
    ]
    for name, path, synthetic, loss in sources:
        X, y = synthetic(rounds) if path is None else from_file(path, rounds, loss)
        title = name.capitalize() if path is None else f"{name.capitalize()} ({path.stem})"
        made.append(Task(title, X, y, loss, Gaussian(sigma=Gaussian().median_distance(X))))
    return made


def contestants(task: Task, U: float) -> list[Contestant]:
    """The learners; gradient descent is given the norm U of the best function, which it could not know."""
    shared = {"kernel": task.kernel.model_dump(), "clip": task.clip, "regularization": ALPHA}
    newton = {**shared, "loss": task.loss}
    listed = [
        Contestant(f"KONS, {step}", "kons", {**newton, "step": step}, newton_bound)
        for step in ("curvature", "adaptive", "inverse-sqrt")
    ]
    listed += [
        Contestant(f"Sketched-KONS, {gamma:g}", "sketched-kons", {**newton, "floor_probability": gamma}, newton_bound)
        for gamma in GAMMAS
    ]
    listed += [
        Contestant(f"PROS-N-KONS, {step}", "pros-n-kons", {**newton, "step": step}, None)
        for step in ("curvature", "adaptive")
    ]
    if task.loss == "squared":
        # a |f|^2 is the same as (alpha / 2) |f|^2.
        ridge = {**shared, "regularization": 0.5 * ALPHA}
        listed.append(
            Contestant("Kernel ridge", "kernel-ridge", ridge, ridge_bound(diagnostics.clipped_ridge_bound, task))
        )
        listed.append(Contestant("Kernel AAR", "kernel-aar", ridge, ridge_bound(diagnostics.aar_bound, task)))
    descent = {"kernel": shared["kernel"], "loss": task.loss, "norm_bound": U, "step_factor": OGD_FACTOR}
    if task.loss == "squared":
        descent["clip"] = task.clip
    L = LOSSES[task.loss].lipschitz(task.clip if task.loss == "squared" else U)

    def descent_bound(description: Description, norm: float) -> float:
        return diagnostics.gradient_descent_bound(U, L, int(description["t"]), step_factor=OGD_FACTOR)

    return [*listed, Contestant("Kernel OGD", "kernel-ogd", descent, descent_bound)]


def newton_bound(description: Description, norm: float) -> float:
    return diagnostics.kons_bound(norm, ALPHA, description["bound_gradient"], description["bound_step"])


def ridge_bound(bound: Callable[[float, float, float, float], float], task: Task) -> Bound:
    return lambda told, norm: bound(norm, 0.5 * ALPHA, task.clip, told["log_det"])


def play(task: Task, by: Contestant, ends: Sequence[int]) -> Played:
    """Run a contestant over the stream, block by block."""
    learner = create({"kind": by.kind, "config": dict(by.config)}, task.X.shape[1])
    losses: list[F64] = []
    told: list[Description] = []
    seconds: list[float] = []
    for start, end in itertools.pairwise([0, *ends]):
        before = time.process_time()
        info = learner.run(task.X[start:end], task.y[start:end])
        seconds.append(time.process_time() - before)
        losses.append(info.losses)
        told.append(learner.describe())
    return Played(by, np.concatenate(losses), list(ends), told, 1e6 * np.array(seconds) / np.diff([0, *ends]))


def measure(task: Task) -> Result:
    """Every contestant on the stream, and the comparators."""
    T = len(task.y)
    ends = np.unique(np.linspace(0, T, min(BLOCKS, T) + 1).astype(int))[1:].tolist()
    blocks = np.unique(np.geomspace(1, len(ends), PREFIXES).round().astype(int))
    bests = [task.best(ends[block - 1]) for block in blocks]
    listed = contestants(task, max(best.norm for best in bests))
    runs = {by.name: play(task, by, ends) for by in listed}
    # The same again, only for the times: the repeats of a contestant lie apart, so that no disturbance meets them all.
    for by in (REPEATS - 1) * listed:
        np.minimum(runs[by.name].round_us, play(task, by, ends).round_us, out=runs[by.name].round_us)
    return Result(task, bests, runs)


def factor_size(kind: str, description: Description) -> float:
    """Points whose square a round costs."""
    return 0.0 if kind == "kernel-ogd" else description.get("active", description["dictionary"])
