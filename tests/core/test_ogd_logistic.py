"""Projected gradient descent on the logistic loss: against a direct loop, and its regret against its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core import OnlineLearner, create
from okl_core.contract.agreement import close_states
from okl_core.diagnostics.comparator import best_in_hindsight
from okl_core.errors import DivergedError
from okl_core.kernels.kernels import Linear
from okl_core.learners.ogd_logistic import BLOCK
from okl_core.types import F64
from tests.oracles.logistic import gradient_descent


def ogd(B: float = 1.0, R: float | None = None, *, intercept: bool = True, dim: int = 2) -> OnlineLearner:
    config = {"comparator_norm": B, "input_norm": R, "intercept": intercept}
    return create({"kind": "ogd-logistic", "config": config}, dim)


def stream(n: int, seed: int = 0) -> tuple[F64, F64]:
    """The largest inputs come late."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)) * np.linspace(0.1, 2.0, n)[:, None]
    X[0] = 0.0
    return X, np.where(X[:, 0] + 0.5 * rng.standard_normal(n) >= 0.0, 1.0, -1.0)


@pytest.mark.parametrize("R", [None, 0.5, 4.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("B", [0.3, 5.0])
def test_definition(B: float, intercept: bool, R: float | None) -> None:
    X, y = stream(150)
    learner = ogd(B, R, intercept=intercept)
    found = learner.run(X, y).values
    Phi = np.column_stack((X, np.ones(len(X)))) if intercept else X
    values, theta = gradient_descent(Phi, y, B, R)
    np.testing.assert_allclose(found, values, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(learner.state()["theta"], theta, rtol=0.0, atol=1e-12)
    norms = np.linalg.norm(Phi, axis=1)
    moving = norms > 0.0
    largest = np.maximum.accumulate(norms) if R is None else np.full(len(y), R)
    eta = B / (largest[moving] * np.sqrt(np.arange(1, len(y) + 1)[moving]))
    squares = (norms / (1.0 + np.exp(y * values)))[moving] ** 2
    assert learner.describe()["bound"] == pytest.approx(2.0 * B * B / eta[-1] + 0.5 * eta @ squares)


def test_a_run_of_several_blocks_is_its_updates() -> None:
    X, y = stream(2 * BLOCK + 5)
    single, blocks = ogd(2.0), ogd(2.0)
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
    # A row of a block may begin where BLAS adds in another order. A step is along one input, so that what a difference of
    # an ulp makes in theta is of that size still after all rounds.
    tolerance = len(y) * np.finfo(np.float64).eps * 2.0 * np.linalg.norm(X, axis=1).max()
    np.testing.assert_allclose(blocks.run(X, y).values, values, rtol=0.0, atol=tolerance)
    close_states(single.state(), blocks.state(), "a run of several blocks")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("B", [0.5, 4.0])
@pytest.mark.parametrize("R", [None, 10.0])
def test_regret_is_within_the_bound(B: float, R: float | None, seed: int) -> None:
    X, y = stream(400, seed)
    # Truths that turn make a stream that is hard to follow.
    y[200:] *= -1.0 if seed == 2 else 1.0
    learner = ogd(B, R, intercept=False)
    regret = learner.run(X, y).losses.sum() - best_in_hindsight(Linear(), X, y, "logistic", radius=B).loss
    told = learner.describe()
    largest = float(np.linalg.norm(X, axis=1).max()) if R is None else R
    assert regret <= told["bound"] <= 3.0 * B * largest * math.sqrt(len(y))
    assert told["norm"] <= B * (1.0 + 1e-12)
    assert told["step_size"] == pytest.approx(B / (largest * math.sqrt(len(y))))


def test_an_overflow_is_refused_before_anything_changes() -> None:
    learner = ogd(1.0, 1e-150)
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.array([1e150, 0.0]), 1.0)
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())
