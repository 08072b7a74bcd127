"""What the benches measure: permanent ids, so that results of different days and machines can be compared.

A scenario names its stream, its learner, the unit its times are given in, and the bars it must not cross. A unit is the
time of an operation in plain numpy that the learner cannot do without, measured in the same process: a ratio to it says
more than microseconds on a machine that others use.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.streams import (
    KONS_ROUNDS,
    LEADER_ROUNDS,
    Stream,
    first_input,
    kons_stream,
    leader_stream,
    magic_classes,
    magic_features,
    magic_stream,
    one_direction,
    ranked_inputs,
)


@dataclass(frozen=True)
class Scenario:
    id: str
    kind: str
    config: Mapping[str, Any]
    stream: Callable[[Path | None], Stream]
    """From the file given on the command line, or the data that ships."""
    unit: Callable[[], float]
    """Seconds."""
    unit_name: str
    update_bar: float
    """Units a round at most."""
    run_bar: float


def gaussian_row(points: int = 400) -> float:
    """One Gaussian kernel row against so many points in 10 dimensions, and its product with a vector."""
    rng = np.random.default_rng(0)
    S, a, X = rng.random((points, 10)), rng.standard_normal(points), rng.random((2000, 10))
    sq, gamma = np.einsum("ij,ij->i", S, S), 2.0
    start = time.process_time()
    for x in X:
        np.exp(-gamma * (sq + x @ x - 2.0 * (S @ x))) @ a
    return (time.process_time() - start) / len(X)


RELEVANCE = {"kind": "relevance", "smooth": [0.5] * 10, "steps": [0.1] * 10, "pairs": [0.1] * 10}


def mean_row() -> float:
    """A kernel row against all points so far, in the mean over the rounds."""
    return gaussian_row(KONS_ROUNDS // 2)


def factor_read() -> float:
    """A sum over 4 t^2 bytes, the Cholesky factor of round t, in the mean over the rounds: a third of the last one's."""
    factor = np.ones(KONS_ROUNDS * KONS_ROUNDS // 2)
    times: list[float] = []
    for _ in range(10):
        start = time.process_time()
        factor.sum()
        times.append(time.process_time() - start)
    return min(times) / 3.0


def rank_one(p: int) -> float:
    """The product of a p x p matrix with a vector, and a rank-one update of the matrix."""
    P, x = np.eye(p), np.random.default_rng(0).standard_normal(p)
    rounds = 400_000 // (p + 200)
    start = time.process_time()
    for _ in range(rounds):
        g = P @ x
        P -= np.outer(g, g) / (1.0 + x @ g)
    return (time.process_time() - start) / rounds


def triangle() -> float:
    """The triangle of a QR decomposition of half as many rounds, 11 features."""
    A = np.random.default_rng(0).random((LEADER_ROUNDS // 2, 11))
    start = time.process_time()
    for _ in range(200):
        np.linalg.qr(A, mode="r")
    return (time.process_time() - start) / 200


def gradient_step(p: int = 11) -> float:
    """A forecast from p features, the loss's derivative, and a step against it."""
    rng = np.random.default_rng(0)
    X, w = rng.random((20_000, p)), np.zeros(p)
    start = time.process_time()
    for x in X:
        w -= 0.1 / (1.0 + math.exp(-(w @ x))) * x
    return (time.process_time() - start) / len(X)


def distances(points: int = 1000) -> float:
    """Squared distances to so many points in 3 dimensions, and the least of them."""
    rng = np.random.default_rng(0)
    S, X = rng.random((3, points)), rng.random((20_000, 3))
    start = time.process_time()
    for x in X:
        ((S - x[:, None]) ** 2).sum(axis=0).argmin()
    return (time.process_time() - start) / len(X)


def exponentials() -> float:
    """exp of 2001 numbers."""
    a = np.linspace(-1.0, 0.0, 2001)
    start = time.process_time()
    for _ in range(2000):
        np.exp(a)
    return (time.process_time() - start) / 2000


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        id="kons-magic-4000",
        kind="kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "logistic"},
        stream=kons_stream,
        unit=factor_read,
        unit_name="sum over the factor",
        update_bar=2.5,
        run_bar=1.25,
    ),
    Scenario(
        id="kons-magic-window",
        kind="kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "logistic", "step": "adaptive", "window": 400},
        stream=kons_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=20.0,
        run_bar=11.0,
    ),
    Scenario(
        id="sketched-kons-magic-4000",
        kind="sketched-kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "logistic"},
        stream=kons_stream,
        unit=mean_row,
        unit_name="kernel row, 2000 x 10",
        update_bar=11.0,
        run_bar=3.5,
    ),
    Scenario(
        id="kernel-ridge-magic-4000",
        kind="kernel-ridge",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=kons_stream,
        unit=factor_read,
        unit_name="sum over the factor",
        update_bar=2.5,
        run_bar=1.25,
    ),
    Scenario(
        id="kernel-aar-magic-4000",
        kind="kernel-aar",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=kons_stream,
        unit=factor_read,
        unit_name="sum over the factor",
        update_bar=2.5,
        run_bar=1.25,
    ),
    Scenario(
        id="kernel-aioli-magic-4000",
        kind="kernel-aioli",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=kons_stream,
        unit=factor_read,
        unit_name="sum over the factor",
        update_bar=2.5,
        run_bar=1.25,
    ),
    Scenario(
        id="nystrom-aioli-magic",
        kind="nystrom-aioli",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=25.0,
        run_bar=7.0,
    ),
    Scenario(
        id="fourier-aioli-magic",
        kind="fourier-aioli",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}},
        stream=magic_stream,
        unit=partial(rank_one, 400),
        unit_name="rank-one update, 400 x 400",
        update_bar=0.8,
        run_bar=0.35,
    ),
    Scenario(
        id="nystrom-ridge-magic",
        kind="nystrom-ridge",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "clip": 1.0},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=25.0,
        run_bar=7.0,
    ),
    Scenario(
        id="pool-magic",
        kind="pool",
        config={},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=300.0,
        run_bar=65.0,
    ),
    Scenario(
        id="pros-n-kons-magic",
        kind="pros-n-kons",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "squared-hinge", "clip": 2.0},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=25.0,
        run_bar=7.0,
    ),
    Scenario(
        id="kernel-ogd-magic",
        kind="kernel-ogd",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "step_size": 0.1, "norm_bound": None, "budget": 400},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=2.1,
        run_bar=1.1,
    ),
    Scenario(
        id="kernel-ogd-magic-ball",
        kind="kernel-ogd",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 400},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=2.8,
        run_bar=1.7,
    ),
    Scenario(
        id="fogd-magic",
        kind="fogd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "step_factor": 100.0,
            "horizon": 19020,
        },
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=4.5,
        run_bar=0.9,
    ),
    Scenario(
        id="nogd-magic",
        kind="nogd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "step_factor": 100.0,
            "horizon": 19020,
        },
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=3.1,
        run_bar=1.05,
    ),
    Scenario(
        id="bogd-magic",
        kind="bogd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "step_factor": 100.0,
            "horizon": 19020,
        },
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=3.6,
        run_bar=2.1,
    ),
    Scenario(
        id="aioli-magic",
        kind="aioli",
        config={},
        stream=magic_stream,
        unit=partial(rank_one, 11),
        unit_name="rank-one update, 11 x 11",
        update_bar=5.5,
        run_bar=2.6,
    ),
    Scenario(
        id="aioli-magic-50",
        kind="aioli",
        config={},
        stream=partial(magic_features, count=50),
        unit=partial(rank_one, 51),
        unit_name="rank-one update, 51 x 51",
        update_bar=4.2,
        run_bar=2.1,
    ),
    Scenario(
        id="aioli-magic-400",
        kind="aioli",
        config={},
        stream=partial(magic_features, count=400),
        unit=partial(rank_one, 401),
        unit_name="rank-one update, 401 x 401",
        update_bar=0.6,
        run_bar=0.35,
    ),
    Scenario(
        id="ons-magic",
        kind="ons",
        config={"loss": "squared-hinge", "clip": 2.0},
        stream=magic_stream,
        unit=partial(rank_one, 11),
        unit_name="rank-one update, 11 x 11",
        update_bar=4.5,
        run_bar=2.6,
    ),
    Scenario(
        id="ons-magic-400",
        kind="ons",
        config={"loss": "squared-hinge", "clip": 2.0},
        stream=partial(magic_features, count=400),
        unit=partial(rank_one, 401),
        unit_name="rank-one update, 401 x 401",
        update_bar=0.5,
        run_bar=0.3,
    ),
    Scenario(
        id="ftrl-logistic-magic-1000",
        kind="ftrl-logistic",
        config={},
        stream=leader_stream,
        unit=triangle,
        unit_name="QR, 500 x 11",
        update_bar=9.0,
        run_bar=9.0,
    ),
    Scenario(
        id="ogd-logistic-magic",
        kind="ogd-logistic",
        config={},
        stream=magic_stream,
        unit=gradient_step,
        unit_name="gradient step, 11 features",
        update_bar=5.5,
        run_bar=2.5,
    ),
    Scenario(
        id="foster-1d-magic",
        kind="foster-1d",
        config={},
        stream=first_input,
        unit=exponentials,
        unit_name="exp, 2001 numbers",
        update_bar=5.5,
        run_bar=5.0,
    ),
    Scenario(
        id="auto-magic-classes",
        kind="auto",
        config={"classes": 4, "relevance": RELEVANCE},
        stream=magic_classes,
        unit=partial(rank_one, 211),
        unit_name="rank-one update, 211 x 211",
        update_bar=30.0,
        run_bar=10.0,
    ),
    Scenario(
        id="one-vs-rest-magic-classes",
        kind="one-vs-rest",
        config={"classes": 4},
        stream=magic_classes,
        unit=partial(rank_one, 11),
        unit_name="rank-one update, 11 x 11",
        update_bar=35.0,
        run_bar=13.0,
    ),
    Scenario(
        id="packing-magic-ranks",
        kind="packing",
        config={"truth_range": [-1.0, 1.0]},
        stream=ranked_inputs,
        unit=distances,
        unit_name="distances, 1000 x 3",
        update_bar=4.0,
        run_bar=1.0,
    ),
    Scenario(
        id="metric-packing-directional",
        kind="metric-packing",
        config={"truth_range": [-1.0, 2.0]},
        stream=one_direction,
        unit=distances,
        unit_name="distances, 1000 x 3",
        update_bar=12.0,
        run_bar=5.0,
    ),
    Scenario(
        id="skegd-magic",
        kind="skegd",
        config={
            "kernel": {"kind": "gaussian", "sigma": 0.5},
            "step_size": "horizon",
            "horizon": 19020,
            "step_factor": 100.0,
        },
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=2.5,
        run_bar=0.8,
    ),
    Scenario(
        id="bao2ks-magic",
        kind="bao2ks",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "step_size": "horizon", "horizon": 19020},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=4.0,
        run_bar=1.8,
    ),
    Scenario(
        id="pomdr-magic",
        kind="pomdr",
        config={"kernel": {"kind": "gaussian", "sigma": 0.5}, "horizon": 19020, "step_factor": 0.05},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=2.5,
        run_bar=1.1,
    ),
    Scenario(
        id="pomdr-magic-wide",
        kind="pomdr",
        config={"kernel": {"kind": "gaussian", "sigma": 4.0}, "horizon": 19020},
        stream=magic_stream,
        unit=gaussian_row,
        unit_name="kernel row, 400 x 10",
        update_bar=4.5,
        run_bar=3.0,
    ),
)
