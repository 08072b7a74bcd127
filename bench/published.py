"""POMDR against its published numbers, [li2023] tables 2 and 3: `python -m bench.published [--mushrooms PATH.npz]`.

MAGIC comes with the service; mushrooms (UCI 73, one column a value, 8,124 x 112) is read from an .npz file with X and y.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from okl_core import create
from okl_core.types import F64
from service.demo_data import magic

PERMUTATIONS = 10


@dataclass(frozen=True, slots=True)
class Published:
    """What the paper prints. `t_bar` is the round that ended phase 1, infinite if none did."""

    data: str
    sigma: float
    mistakes: float
    sum_delta: float
    t_bar: float


MAGIC_NARROW = Published("magic", 0.5, mistakes=16.17, sum_delta=6385.0, t_bar=469.0)
MAGIC_WIDE = Published("magic", 4.0, mistakes=23.26, sum_delta=10337.0, t_bar=math.inf)
MUSHROOMS = Published("mushrooms", 2.0, mistakes=0.21, sum_delta=68.0, t_bar=math.inf)


@dataclass(frozen=True, slots=True)
class Measured:
    """One number a permutation: mistakes in %, the sum of delta, the round that ended phase 1 (infinite: none did)."""

    mistakes: F64
    sum_delta: F64
    t_bar: F64


def measure(X: F64, y: F64, sigma: float, permutations: int = PERMUTATIONS) -> Measured:
    """POMDR as in the paper's experiments, on `permutations` orders of the rows."""
    T = len(y)
    config = {
        "kernel": {"kind": "gaussian", "sigma": sigma},
        "horizon": T,
        "pomd_budget": round(15.0 * math.log(T)),
        "step_factor": 0.05,
    }
    rows = []
    for seed in range(permutations):
        order = np.random.default_rng(seed).permutation(T)
        learner = create({"kind": "pomdr", "config": config}, X.shape[1])
        values = learner.run(X[order], y[order]).values
        told = learner.describe()
        wrong = np.where(values >= 0.0, 1.0, -1.0) != y[order]
        rows.append((100.0 * wrong.mean(), told["sum_delta"], math.inf if told["phase"] == 1 else told["t_bar"]))
    return Measured(*np.array(rows).T)


def load(path: Path) -> tuple[F64, F64]:
    with np.load(path) as archive:
        return archive["X"].astype(np.float64), archive["y"].astype(np.float64)


HEADER = (
    f"{'set':<10}{'sigma':>6}{'mistakes %':>12}{'sd':>6}{'published':>11}"
    f"{'sum of delta':>14}{'published':>11}{'phase 1 ended':>16}{'published':>11}"
)


def line(told: Published, found: Measured) -> str:
    ended = found.t_bar[np.isfinite(found.t_bar)]
    sd = found.mistakes.std(ddof=1) if len(found.mistakes) > 1 else math.nan
    mean_end = f"{ended.mean():.0f}" if len(ended) == len(found.t_bar) else f"{len(ended)} of {len(found.t_bar)}"
    return (
        f"{told.data:<10}{told.sigma:>6g}{found.mistakes.mean():12.2f}{sd:6.2f}{told.mistakes:11.2f}"
        f"{found.sum_delta.mean():14.0f}{told.sum_delta:11.0f}"
        f"{mean_end if len(ended) else 'never':>16}{f'{told.t_bar:.0f}' if math.isfinite(told.t_bar) else 'never':>11}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mushrooms", type=Path, help="an .npz file with X (rounds, inputs) and y in {-1, 1}")
    parser.add_argument("--permutations", type=int, default=PERMUTATIONS)
    options = parser.parse_args(arguments)
    sets = [(MAGIC_NARROW, magic()), (MAGIC_WIDE, magic())]
    if options.mushrooms is not None:
        sets.append((MUSHROOMS, load(options.mushrooms)))
    print(HEADER)
    with threadpool_limits(1):
        for told, (X, y) in sets:
            print(line(told, measure(X, y, told.sigma, options.permutations)), flush=True)


if __name__ == "__main__":
    main()
