"""What [li2023] prints of POMDR and its rivals, and the same runs with the learners of this library.

The figures of the paper are those of its tables 2 to 5: means and standard deviations over 10 random orders of the rows.
Its times are those of R programs on another machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from okl_core import create
from okl_core.types import F64

PERMUTATIONS = 10


class Figure(NamedTuple):
    """Mistakes in % with their standard deviation, and seconds of a pass."""

    mistakes: float
    sd: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """All algorithms on one set, tables 2 and 4. zeta and c are parameters of POMDR, c where the programs have it."""

    data: str
    sigma: float
    zeta: float
    c: float
    printed: Mapping[str, Figure]


def _printed(*rows: tuple[float, float, float]) -> dict[str, Figure]:
    names = ("FOGD", "NOGD", "SkeGD", "B(AO)₂KS", "POMDR")
    return {name: Figure(*row) for name, row in zip(names, rows, strict=True)}


COMPARISONS = (
    Comparison(
        "magic",
        0.5,
        2.0 / 3.0,
        0.05,
        _printed(
            (16.88, 0.15, 0.74), (17.31, 0.20, 1.57), (24.17, 0.95, 1.07), (22.04, 0.43, 0.95), (16.17, 0.21, 0.91)
        ),
    ),
    Comparison(
        "w8a",
        4.0,
        0.5,
        0.1,
        _printed(
            (2.25, 0.04, 8.29), (2.89, 0.09, 23.65), (3.04, 0.01, 10.72), (2.91, 0.02, 14.08), (2.12, 0.06, 18.36)
        ),
    ),
    Comparison(
        "mushrooms",
        2.0,
        2.0 / 3.0,
        0.05,
        _printed((0.31, 0.03, 0.70), (1.71, 0.33, 1.87), (0.26, 0.02, 0.51), (1.67, 0.25, 0.76), (0.21, 0.03, 0.44)),
    ),
    Comparison(
        "a9a",
        4.0,
        0.5,
        0.05,
        _printed(
            (16.39, 0.07, 4.47), (16.53, 0.10, 9.95), (17.31, 0.21, 4.88), (20.65, 0.26, 6.16), (16.25, 0.09, 9.53)
        ),
    ),
    Comparison(
        "ijcnn1",
        4.0,
        2.0 / 3.0,
        0.1,
        _printed((8.51, 0.06, 6.14), (8.53, 0.03, 12.63), (9.76, 0.05, 7.58), (9.58, 0.00, 7.12), (8.69, 0.07, 8.37)),
    ),
)


@dataclass(frozen=True, slots=True)
class Alignment:
    """POMDR at another width, tables 3 and 5. `t_bar` is the round that ended phase 1, infinite if none did."""

    data: str
    sigma: float
    zeta: float
    c: float
    mistakes: float
    sum_delta: float
    t_bar: float


MAGIC_NARROW = Alignment("magic", 0.5, 2.0 / 3.0, 0.05, 16.17, 6385.0, 469.0)
MAGIC_WIDE = Alignment("magic", 4.0, 2.0 / 3.0, 0.05, 23.26, 10337.0, math.inf)

ALIGNMENTS = (
    MAGIC_NARROW,
    MAGIC_WIDE,
    Alignment("w8a", 4.0, 0.5, 0.1, 2.12, 2594.0, 3582.0),
    Alignment("w8a", 64.0, 0.5, 0.1, 3.12, 4256.0, math.inf),
    Alignment("mushrooms", 0.5, 2.0 / 3.0, 0.05, 0.83, 8122.0, 135.0),
    Alignment("mushrooms", 2.0, 2.0 / 3.0, 0.05, 0.21, 68.0, math.inf),
    Alignment("a9a", 4.0, 0.5, 0.05, 16.25, 15405.0, 529.0),
    Alignment("a9a", 32.0, 0.5, 0.05, 21.17, 26801.0, math.inf),
)


class Contestant(NamedTuple):
    """A learner with its parameters; `printed` is its name in the paper's tables, if it is in them."""

    name: str
    kind: str
    config: Mapping[str, Any]
    printed: str | None = None


def _steps(T: int, factor: float) -> dict[str, Any]:
    return {"step_size": "horizon", "horizon": T, "step_factor": factor}


def contestants(told: Comparison, T: int) -> list[Contestant]:
    """The algorithms of the tables with the parameters of their programs, and some that are not in them.

    The steps are the best of 10^{-3}, ..., 10^3 over sqrt(T), as the paper's are.
    """
    descent = _steps(T, 100.0)
    return [
        Contestant("FOGD", "fogd", descent, "FOGD"),
        Contestant("NOGD", "nogd", descent | {"buffer": "first"}, "NOGD"),
        Contestant("NOGD, losses", "nogd", descent),
        Contestant("SkeGD, transport", "skegd", descent),
        Contestant("SkeGD", "skegd", descent | {"carry": "match"}, "SkeGD"),
        Contestant("B(AO)₂KS", "bao2ks", _steps(T, 10.0) | {"reservoir": math.ceil(math.log(T))}, "B(AO)₂KS"),
        Contestant("BOGD", "bogd", descent),
        Contestant("kernel OGD", "kernel-ogd", {"step_size": 100.0 / math.sqrt(T), "norm_bound": None, "budget": 400}),
        Contestant("POMDR", "pomdr", pomdr(told, T), "POMDR"),
    ]


def pomdr(told: Comparison | Alignment, T: int) -> dict[str, Any]:
    """POMDR as in the paper's experiments."""
    return {
        "horizon": T,
        "pomd_budget": round(15.0 * math.log(T)),
        "step_factor": told.c,
        "ald_exponent": told.zeta,
    }


@dataclass(frozen=True, slots=True)
class Measured:
    """One number a permutation: mistakes in %, CPU seconds of a `run`, and what `describe` tells at the end."""

    mistakes: F64
    seconds: F64
    told: list[dict[str, float]]

    @property
    def sd(self) -> float:
        """Of the mistakes; nan for a single permutation."""
        return float(self.mistakes.std(ddof=1)) if len(self.mistakes) > 1 else math.nan

    @property
    def sum_delta(self) -> float:
        """The mean of what the bound of POMDR follows."""
        return float(np.mean([told["sum_delta"] for told in self.told]))

    @property
    def t_bar(self) -> F64:
        """The round that ended phase 1 of POMDR, infinite where none did."""
        return np.array([math.inf if told["phase"] == 1 else told["t_bar"] for told in self.told])


def measure(
    kind: str, config: Mapping[str, Any], sigma: float, X: F64, y: F64, permutations: int = PERMUTATIONS
) -> Measured:
    """One pass of a learner with a Gaussian kernel over each of so many orders of the rows."""
    mistakes, seconds, told = [], [], []
    spec = {"kind": kind, "config": {"kernel": {"kind": "gaussian", "sigma": sigma}, **config}}
    for seed in range(permutations):
        order = np.random.default_rng(seed).permutation(len(y))
        inputs, truths = X[order], y[order]
        learner = create(spec | {"seed": seed}, X.shape[1])
        start = time.process_time()
        values = learner.run(inputs, truths).values
        seconds.append(time.process_time() - start)
        mistakes.append(100.0 * np.mean(np.where(values >= 0.0, 1.0, -1.0) != truths))
        told.append(learner.describe())
    return Measured(np.array(mistakes), np.array(seconds), told)
