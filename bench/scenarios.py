"""What the benches measure: permanent ids, so that results of different days and machines can be compared.

A scenario names its stream, its learner, the unit its times are given in, and the bars it must not cross. A unit is the
time of an operation in plain numpy that the learner cannot do without, measured in the same process: a ratio to it says
more than microseconds on a machine that others use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from okl_core.types import F64
from service.demo_data import magic

Stream = tuple[F64, F64]


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


def magic_stream(path: Path | None) -> Stream:
    """MAGIC in a fixed order. A file is the raw set: arrays X and y, columns then scaled to [0, 1]."""
    if path is None:
        X, y = magic()
    else:
        with np.load(path) as archive:
            X, y = archive["X"].astype(np.float64), archive["y"].astype(np.float64)
        X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def gaussian_row() -> float:
    """One Gaussian kernel row against 400 points in 10 dimensions, and its product with a vector."""
    rng = np.random.default_rng(0)
    S, a, X = rng.random((400, 10)), rng.standard_normal(400), rng.random((2000, 10))
    sq, gamma = np.einsum("ij,ij->i", S, S), 2.0
    start = time.process_time()
    for x in X:
        np.exp(-gamma * (sq + x @ x - 2.0 * (S @ x))) @ a
    return (time.process_time() - start) / len(X)


KONS_ROUNDS = 4000


def kons_stream(path: Path | None) -> Stream:
    """The first rounds of MAGIC; each costs more than the one before."""
    X, y = magic_stream(path)
    return X[:KONS_ROUNDS], y[:KONS_ROUNDS]


def factor_read() -> float:
    """A sum over 4 t^2 bytes, the Cholesky factor of round t, in the mean over the rounds: a third of the last one's."""
    factor = np.ones(KONS_ROUNDS * KONS_ROUNDS // 2)
    times: list[float] = []
    for _ in range(10):
        start = time.process_time()
        factor.sum()
        times.append(time.process_time() - start)
    return min(times) / 3.0


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
