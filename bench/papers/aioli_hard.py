"""The linear learners of bench.papers.aioli on the stream that is hard for proper ones, and the forecasts that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.papers.aioli_runs import best_slope, hard_norm, hard_stream
from okl_core import create
from okl_core.types import F64

SIZES = (100, 316, 1000, 3162, 10_000, 31_623, 100_000)
RUNS = 10
LONG, LONG_RUNS = 10_000, 3
"""Streams of more rounds than LONG are played only so many times."""
SIGNS = (1, -1)

AIOLI = "AIOLI, λ = 1/B²"
AIOLIS = (AIOLI, "AIOLI, λ = 1", "AIOLI, λ = 1/B², paper", "AIOLI, λ = 1, paper")
FTRL = "FTRL, λ = 1"
FTRLS = (FTRL, "FTRL, λ = 1/B²")
FOSTER = "Foster et al."


@dataclass(frozen=True, slots=True)
class Rival:
    name: str
    kind: str
    config: Mapping[str, Any]


def rivals(n: int) -> list[Rival]:
    """The learners for n rounds of the hard stream: each is told B = log n, and R = 1 if it asks."""
    B = hard_norm(n)
    linear: dict[str, Any] = {"intercept": False}
    ball = {"comparator_norm": B, "input_norm": 1.0}
    listed = []
    for name in AIOLIS:
        curvature = "paper" if name.endswith("paper") else "half"
        listed.append(Rival(name, "aioli", linear | ball | _weight(name, B) | {"curvature": curvature}))
    listed += [Rival(name, "ftrl-logistic", linear | _weight(name, B)) for name in FTRLS]
    # Five nodes in the smallest width, 2 / (R sqrt(n)), that the weights can have.
    nodes = 2 * math.ceil(2.5 * B * math.sqrt(n)) + 1
    listed.append(Rival(FOSTER, "foster-1d", {"comparator_norm": B, "nodes": nodes}))
    newton = linear | {"loss": "logistic", "clip": B}
    listed += [
        Rival("ONS", "ons", newton),
        Rival("ONS, adaptive", "ons", newton | {"step": "adaptive"}),
        Rival("OGD", "ogd-logistic", linear | ball),
    ]
    return listed


def _weight(name: str, B: float) -> dict[str, float]:
    return {"regularization": 1.0 / B**2 if "1/B²" in name else 1.0}


def theorem_1(norm: float, regularization: float, B: float, R: float, n: int, p: int, curvature: str) -> float:
    r"""lambda |theta|^2 + p kappa log(1 + n R^2 / (8 p lambda least)): AIOLI's regret on p features is no larger.

    kappa is what a round's may be at most, and least what it is at least.

    References: [jezequel2020] theorem 1, where both are 1 + B R; docs/theorems.md, 2.
    """
    kappa = 1.0 + B * R * (1.0 if curvature == "paper" else 0.5)
    least = 1.0 if curvature == "exact" else kappa
    return regularization * norm**2 + p * kappa * math.log1p(n * R * R / (8.0 * p * regularization * least))


@dataclass(frozen=True, slots=True)
class Hard:
    """The regrets of a learner: (sizes, signs, runs), nan where a size has fewer runs."""

    regrets: F64

    @property
    def worse(self) -> F64:
        """The mean over the runs of the sign for which it is larger, shape (sizes,)."""
        return np.nanmean(self.regrets, axis=2).max(axis=1)

    @property
    def largest(self) -> float:
        """Of all single runs."""
        return float(np.nanmax(self.regrets))

    def slope(self, sizes: Sequence[int]) -> float:
        """Of the logarithm of the regret in that of n; nan if a regret is not positive."""
        worse = self.worse
        return float(np.polyfit(np.log(sizes), np.log(worse), 1)[0]) if (worse > 0.0).all() else math.nan


def measure(sizes: Sequence[int], runs: int) -> tuple[dict[str, Hard], list[str]]:
    """Every rival on every stream, and the runs of AIOLI whose regret was above the bound."""
    names = [rival.name for rival in rivals(sizes[0])]
    regrets = {name: np.full((len(sizes), len(SIGNS), runs), np.nan) for name in names}
    broken: list[str] = []
    for i, n in enumerate(sizes):
        for j, sign in enumerate(SIGNS):
            for seed in range(runs if n <= LONG else min(runs, LONG_RUNS)):
                X, y = hard_stream(n, sign, seed)
                best = best_slope(X, y, hard_norm(n))
                for rival in rivals(n):
                    made = create({"kind": rival.kind, "config": dict(rival.config)}, 1)
                    regret = float(made.run(X, y).losses.sum()) - best.loss
                    regrets[rival.name][i, j, seed] = regret
                    bound = _bound(rival, best.value, n)
                    if regret > bound:
                        broken.append(f"{rival.name}, n = {n}, sign {sign}, run {seed}: regret {regret} > {bound}")
    return {name: Hard(found) for name, found in regrets.items()}, broken


def _bound(rival: Rival, slope: float, n: int) -> float:
    if rival.kind != "aioli":
        return math.inf
    B, R = rival.config["comparator_norm"], rival.config["input_norm"]
    return theorem_1(abs(slope), rival.config["regularization"], B, R, n, 1, rival.config["curvature"])


# -- forecasts as functions of the input ------------------------------------------------------------------------------

FORECAST_ROUNDS = (5, 50)
FORECAST_NORM = 5.0
FORECAST_INPUTS = np.linspace(-1.0, 1.0, 81)


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Forecasts at FORECAST_INPUTS after some rounds, and those of the best slope in hindsight."""

    rounds: int
    values: dict[str, F64]
    best: F64


def forecasts() -> list[Forecasts]:
    """What AIOLI, FTRL and exponential weights say of every input, after a few rounds of one smooth stream."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (max(FORECAST_ROUNDS), 1))
    y = np.where(rng.random(len(X)) < 1.0 / (1.0 + np.exp(-FORECAST_NORM * X[:, 0])), 1.0, -1.0)
    B = FORECAST_NORM
    weight = {"intercept": False, "regularization": 1.0 / B**2}
    specs: dict[str, dict[str, Any]] = {
        "AIOLI": {"kind": "aioli", "config": weight | {"comparator_norm": B, "input_norm": 1.0}},
        "FTRL": {"kind": "ftrl-logistic", "config": weight},
        FOSTER: {"kind": "foster-1d", "config": {"comparator_norm": B}},
    }
    found = []
    for n in FORECAST_ROUNDS:
        values: dict[str, F64] = {}
        for name, spec in specs.items():
            made = create(spec, 1)
            made.run(X[:n], y[:n])
            values[name] = np.array([made.predict(np.array([x])).value for x in FORECAST_INPUTS.tolist()])
        found.append(Forecasts(n, values, best_slope(X[:n], y[:n], B).value * FORECAST_INPUTS))
    return found
