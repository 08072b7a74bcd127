"""Probabilities on sets of two classes: who plays, and what is measured of the forecasts."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from bench.streams import load, scaled
from okl_core import create, resolve
from okl_core.learners.ftrl_logistic.logistic_leader import LogisticObjective
from okl_core.types import F64

IN_ORDER = frozenset({"a9a", "elec2"})
"""Sets whose rows are played in the order of the file; others in random orders."""
DRIFTING = frozenset({"elec2"})
PERMUTATIONS = 3
ROUNDS_IN_ALL = 60_000
"""Of the permutations of a set, unless one alone is longer."""
SEEN = 1000
"""First inputs that `median` is found from."""
BEGINNING = 3000
"""Rounds that the learners play whose rounds cost more and more."""
BINS = 10

MEDIAN: dict[str, Any] = {"kernel": {"kind": "gaussian", "sigma": "median"}}
LOGISTIC: dict[str, Any] = {"loss": "logistic"}
EXACT: dict[str, Any] = {"curvature": "exact"}

AIOLI = "aioli"
NYSTROM = "nystrom-aioli"
RIVER = "River's LogisticRegression"


@dataclass(frozen=True, slots=True)
class Source:
    """A set: X, columns scaled to [0, 1], y, and the orders in which its rows are played."""

    name: str
    X: F64
    y: F64
    orders: list[NDArray[np.intp]]


def source(name: str, X: F64, y: F64, rounds: int | None = None) -> Source:
    """A set of which at most so many rounds are played, all by default."""
    n = len(y) if rounds is None else min(rounds, len(y))
    if name in IN_ORDER:
        orders = [np.arange(n)]
    else:
        count = max(1, min(PERMUTATIONS, ROUNDS_IN_ALL // n))
        orders = [np.random.default_rng(seed).permutation(len(y))[:n] for seed in range(count)]
    return Source(name, X, y, orders)


def from_file(path: Path, rounds: int | None = None) -> Source:
    X, y = load(path)
    return source(path.stem, scaled(X), y, rounds)


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    lags: int = 0
    is_short: bool = False
    """Does it play the beginning alone?"""
    inputs: int | None = None
    """It plays no set with more inputs."""
    is_for_drift: bool = False
    """Does it play drifting sets alone?"""


CONTESTANTS = (
    Contestant(AIOLI, "aioli"),
    Contestant("aioli, B = 30", "aioli", {"comparator_norm": 30.0}),
    Contestant("aioli, exact", "aioli", EXACT),
    Contestant("aioli, exact, B = 30", "aioli", EXACT | {"comparator_norm": 30.0}),
    Contestant(NYSTROM, "nystrom-aioli", MEDIAN),
    Contestant("nystrom-aioli, exact", "nystrom-aioli", MEDIAN | EXACT),
    Contestant("nystrom-aioli, σ = 1", "nystrom-aioli"),
    Contestant("nystrom-aioli, lags, half-life", "nystrom-aioli", MEDIAN | {"half_life": 500}, 1, is_for_drift=True),
    Contestant("fourier-aioli", "fourier-aioli", MEDIAN),
    Contestant("kernel-aioli", "kernel-aioli", MEDIAN, is_short=True),
    Contestant(
        "pool of AIOLIs",
        "pool",
        {
            **LOGISTIC,
            "clip": 10.0,
            "experts": [{"kind": "nystrom-aioli", "sigmas": [0.5, 1.0, 2.0, 4.0]}, {"kind": "aioli"}],
        },
    ),
    Contestant("pros-n-kons", "pros-n-kons", MEDIAN | LOGISTIC | {"clip": 4.0}),
    Contestant("fogd", "fogd", MEDIAN | LOGISTIC),
    Contestant("fogd, c = 30", "fogd", MEDIAN | LOGISTIC | {"step_factor": 30.0}),
    Contestant("nogd", "nogd", MEDIAN | LOGISTIC),
    Contestant("skegd", "skegd", MEDIAN | LOGISTIC),
    Contestant("bogd", "bogd", MEDIAN | LOGISTIC),
    Contestant("kernel-ogd", "kernel-ogd", MEDIAN | LOGISTIC, is_short=True),
    Contestant("kons", "kons", MEDIAN | LOGISTIC | {"clip": 4.0, "step": "adaptive"}, is_short=True),
    Contestant("sketched-kons", "sketched-kons", MEDIAN | LOGISTIC | {"clip": 4.0, "step": "adaptive"}, is_short=True),
    Contestant("ons", "ons", LOGISTIC | {"clip": 4.0, "step": "adaptive"}),
    Contestant("ogd-logistic", "ogd-logistic"),
    Contestant("ogd-logistic, B = 10", "ogd-logistic", {"comparator_norm": 10.0}),
    Contestant("ftrl-logistic", "ftrl-logistic", is_short=True, inputs=30),
    Contestant(RIVER, "river"),
)
"""All as they come, but for: `sigma`, found from the inputs; the loss; a clip, and steps, that logistic loss needs."""


class Scores(NamedTuple):
    """The means over the orders, of the time the least. The first three are of all rounds, nan if it did not play them."""

    log_loss: float
    mistakes: float
    """%."""
    calibration: float
    """%: see `calibration_error`."""
    beginning: float
    """Log-loss of the first rounds."""
    round_us: float


class Played(NamedTuple):
    """One pass: log odds of the label 1, the truths, seconds, and (unless it is River's) the regret's terms."""

    values: F64
    y: F64
    seconds: float
    told: dict[str, float]


class Score(NamedTuple):
    """Of a contestant on a set: the scores, and the passes."""

    scores: Scores
    passes: list[Played]


def can_play(by: Contestant, data: Source) -> bool:
    if by.is_for_drift and data.name not in DRIFTING:
        return False
    if by.kind == "river" and importlib.util.find_spec("river") is None:
        return False
    return by.inputs is None or data.X.shape[1] <= by.inputs


def score(by: Contestant, data: Source) -> Score:
    passes = [play(by, data, seed) for seed in range(len(data.orders))]
    found = np.array([_scores(played) for played in passes])
    means = found.mean(axis=0).tolist()
    if by.is_short:
        means[:3] = [math.nan] * 3
    return Score(Scores._make([*means[:4], found[:, 4].min().item()]), passes)


def _scores(played: Played) -> Scores:
    values, y, seconds, _ = played
    losses = np.logaddexp(0.0, -y * values)
    mistakes = float(np.mean(np.where(values >= 0.0, 1.0, -1.0) != y))
    error = calibration_error(expit(values), y)
    return Scores(
        float(losses.mean()),
        100.0 * mistakes,
        100.0 * error,
        float(losses[:BEGINNING].mean()),
        1e6 * seconds / len(y),
    )


def play(by: Contestant, data: Source, seed: int) -> Played:
    order = data.orders[seed][: BEGINNING if by.is_short else None]
    X, y = data.X[order], data.y[order]
    if by.kind == "river":
        return _play_river(X, y)
    spec = {"kind": by.kind, "config": dict(by.config), "lags": by.lags, "seed": seed}
    learner = create(resolve(spec, X[:SEEN], y[:SEEN]), X.shape[1])
    before = time.process_time()
    values = learner.run(X, y).values
    seconds = time.process_time() - before
    if by.kind == "pool":
        # The pool's numbers are its experts'.
        return Played(values, y, seconds, {})
    return Played(values, y, seconds, learner.describe())


def _play_river(X: F64, y: F64) -> Played:
    """River's logistic regression behind its scaler, as its guide has it."""
    from river import compose, linear_model, preprocessing

    model = compose.Pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
    rows = [dict(enumerate(x)) for x in X.tolist()]
    values = np.empty(len(y))
    before = time.process_time()
    for t, (x, truth) in enumerate(zip(rows, (y > 0.0).tolist(), strict=True)):
        p = model.predict_proba_one(x).get(True, 0.5)
        values[t] = math.log((p + 1e-15) / (1.0 - p + 1e-15))
        model.learn_one(x, truth)
    return Played(values, y, time.process_time() - before, {})


# -- calibration ------------------------------------------------------------------------------------------------------


class Bin(NamedTuple):
    """Rounds whose probabilities of the label 1 lie in the same tenth."""

    rounds: int
    said: float
    """Their mean probability."""
    seen: float
    """Their share of the label 1."""


def reliability(p: F64, y: F64) -> list[Bin]:
    """The bins that are not empty. p, y: (n,)."""
    places = np.minimum((BINS * p).astype(int), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    said, seen = (np.bincount(places, weights, BINS) for weights in (p, (y > 0.0).astype(float)))
    return [Bin(int(counts[k]), said[k] / counts[k], seen[k] / counts[k]) for k in range(BINS) if counts[k]]


def calibration_error(p: F64, y: F64) -> float:
    """The expected calibration error: by how much said and seen differ, in the mean over the rounds."""
    return sum(bin.rounds * abs(bin.said - bin.seen) for bin in reliability(p, y)) / len(y)


# -- the best weights in hindsight ------------------------------------------------------------------------------------

LEAST = 1e-7
"""What the regularization may add to the loss of weights that the ball does not hold."""


class Best(NamedTuple):
    theta: F64
    loss: float
    """Cumulative."""
    gap: float
    """No weights in the ball have a loss that is smaller by more: the gap of Frank and Wolfe."""


def best_weights(Phi: F64, y: F64, B: float) -> Best:
    """The weights of least logistic loss with norm at most B. Phi: (n, p), y: (n,).

    They are a leader: of the regularization with which its norm is B, or of next to none.
    """
    objective = LogisticObjective(Phi, (y > 0.0).astype(float), (y < 0.0).astype(float))
    theta = np.zeros(Phi.shape[1])

    def excess(log_regularization: float) -> float:
        nonlocal theta
        theta = objective.leader(math.exp(log_regularization), theta)
        return float(np.linalg.norm(theta)) - B

    # 2 regularization theta is a sum of gradients, each no longer than its phi: up here the norm is B at most.
    high = low = math.log(0.5 * float(np.linalg.norm(Phi, axis=1).sum()) / B)
    while excess(low) <= 0.0 and low > math.log(LEAST / B**2):
        high, low = low, low - math.log(100.0)
    if np.linalg.norm(theta) > B:
        brentq(excess, low, high, xtol=1e-7)
        theta *= min(1.0, B / float(np.linalg.norm(theta)))
    return _certified(Phi, y, theta, B)


def _certified(Phi: F64, y: F64, theta: F64, B: float) -> Best:
    margins = y * (Phi @ theta)
    gradient = -(y * expit(-margins)) @ Phi
    gap = float(gradient @ theta + B * np.linalg.norm(gradient))
    return Best(theta, float(np.logaddexp(0.0, -margins).sum()), gap)
