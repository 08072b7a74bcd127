"""The removal of POMDR by itself, on budgets of several chunks, and the terms of the bound as the theorems have them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core import create
from okl_core.contract.rng import RoundRng
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.pomdr.pomdr_removal import CHUNK, most_similar, remove
from okl_core.learners.pomdr.pomdr_state import PomdrConfig

WIDE = Gaussian(sigma=2.0)


def started() -> RoundRng:
    rng = RoundRng(0)
    rng.begin()
    rng.at(1)
    return rng


@pytest.mark.parametrize("half", [1, CHUNK, CHUNK + 1, 2 * CHUNK + 37])
def test_what_is_merged_has_the_norm_that_is_told(half: int) -> None:
    rng = np.random.default_rng(half)
    kept, a, nearest = rng.normal(size=(half, 3)), rng.normal(size=2 * half), rng.integers(0, half, half)
    merged, norm2 = remove(PomdrConfig(kernel=WIDE, budget=2 * half, pomd_budget=1), a, nearest, kept, started())
    expected = a[:half].copy()
    for j, i in enumerate(nearest.tolist()):
        expected[i] += a[half + j]
    K = np.exp(-((kept[:, None] - kept) ** 2).sum(axis=2) / 8.0)
    # U = 25.
    np.testing.assert_allclose(merged, expected * 25.0 / math.sqrt(expected @ K @ expected), rtol=1e-9)
    assert norm2 == 25.0**2


def test_a_function_of_which_only_rounding_is_left_is_not_scaled_up() -> None:
    a = np.array([0.1 + 0.2, 1.0, -0.3, -1.0])
    merged, norm2 = remove(PomdrConfig(budget=4, pomd_budget=1), a, np.array([0, 1]), np.eye(2), started())
    assert 0.0 < merged[0] < 1e-15
    assert 0.0 < norm2 < 1e-30


@pytest.mark.parametrize(
    ("values", "index"),
    [([0.5, 1.0 - 1e-15, 1.0], 1), ([0.5, 1.0 - 1e-11, 1.0], 2), ([-2.0, -1.0 - 1e-15, -1.0], 1), ([0.0, 0.0], 0)],
)
def test_of_points_that_rounding_alone_tells_apart_the_oldest_is_the_most_similar(
    values: list[float], index: int
) -> None:
    assert most_similar(np.array(values)) == index


def test_the_terms_of_the_bound_are_those_of_the_theorems() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1.0, 1.0, (300, 2)), np.where(rng.random(300) < 0.5, 1.0, -1.0)
    U = 4.0
    config = {"kernel": {"kind": "gaussian", "sigma": 0.6}, "norm_bound": U, "budget": 30, "ald_threshold": 0.2}
    learner = create({"kind": "pomdr", "config": config}, 2)
    learner.run(X, y)
    told = learner.describe()
    N, sum_delta = told["removals"], told["sum_delta"]
    assert N > 3
    assert told["ald_rounds"] > 3
    # The sum leaves out the first round, whose delta is k(x, x) = 1.
    assert told["bound_pomd"] == pytest.approx(
        3.0 * U * math.sqrt(sum_delta + 1.0) + U * (9.0 + 0.002 * told["ald_rounds"])
    )
    assert told["bound_removals"] == pytest.approx(3.0 * U * (math.sqrt(N * (sum_delta + 1.0)) + math.sqrt(3.0) * N))
