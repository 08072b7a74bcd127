"""Follow the regularised leader: every leader against a root finder, and what is stored of the rounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.errors import DivergedError, StateFormatError
from okl_core.learners.ftrl_logistic.logistic_leader import DistinctRounds
from okl_core.types import F64
from tests.oracles.logistic import leader


def ftrl(regularization: float = 1.0, *, intercept: bool = True, dim: int = 2) -> OnlineLearner:
    config = {"regularization": regularization, "intercept": intercept}
    return create({"kind": "ftrl-logistic", "config": config}, dim)


def stream(kind: str, n: int) -> tuple[F64, F64]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 2))
    if kind == "repeated":
        X = X[rng.integers(0, 5, n)]
    if kind == "large":
        X *= np.where(rng.random(n) < 0.3, 30.0, 1.0)[:, None]
    signal = X[:, 0] - 0.5 * X[:, 1] + (0.0 if kind == "separable" else rng.logistic(size=n))
    return X, np.where(signal >= 0.0, 1.0, -1.0)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("regularization", [1.0, 0.01])
@pytest.mark.parametrize("kind", ["noisy", "repeated", "large", "separable"])
def test_every_forecast_is_that_of_the_leader(kind: str, regularization: float, intercept: bool) -> None:
    X, y = stream(kind, 120)
    values = ftrl(regularization, intercept=intercept).run(X, y).values
    Phi = np.column_stack((X, np.ones(len(X)))) if intercept else X
    theta = np.zeros(Phi.shape[1])
    for t in range(len(y)):
        theta = leader(Phi[:t], y[:t], regularization, theta)
        assert values[t] == pytest.approx(theta @ Phi[t], rel=1e-8, abs=1e-8)


def test_from_far_away_the_leader_is_found_as_well() -> None:
    """The loss is all but linear between a start of large margins and the leader."""
    X, y = stream("noisy", 80)
    rounds = DistinctRounds(2)
    for x, truth in zip(X[:-1], y[:-1].tolist(), strict=True):
        rounds.absorb(x, truth)
    objective = rounds.objective_with(X[-1], float(y[-1]))
    expected = leader(X, y, 1e-3, np.zeros(2))
    for start in (np.zeros(2), np.array([1e3, -1e3]), np.array([-1e8, 1e6])):
        np.testing.assert_allclose(objective.leader(1e-3, start), expected, rtol=0.0, atol=1e-9)


def test_inputs_that_come_again_are_stored_once() -> None:
    X, y = stream("repeated", 60)
    X[X > 0.5] = 0.0
    Z = np.where(X == 0.0, -0.0, X)
    learner = ftrl(intercept=False)
    learner.run(np.vstack((X, Z)), np.concatenate((y, -y)))
    told, state = learner.describe(), learner.state()
    assert told["dictionary"] == len(np.unique(X, axis=0)) == len(state["rounds.rows"])
    assert told["t"] == 120
    for sign, name in ((1.0, "positives"), (-1.0, "negatives")):
        for row, count in zip(state["rounds.rows"], state[f"rounds.{name}"], strict=True):
            assert count == np.sum((np.vstack((X, X)) == row).all(axis=1) & (np.concatenate((y, -y)) == sign))


def test_the_order_of_the_rounds_does_not_matter() -> None:
    X, y = stream("noisy", 6)
    probe = np.array([0.3, 0.7])
    found = set()
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 97):
        learner = ftrl()
        learner.run(X[list(order)], y[list(order)])
        found.add(round(learner.predict(probe).value, 9))
    assert len(found) == 1


def test_inputs_beyond_arithmetic_are_refused_before_anything_changes() -> None:
    learner = ftrl()
    learner.update(np.array([1.0, 0.0]), 1.0)
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.array([1e153, 1e153]), -1.0)
    with pytest.raises(DivergedError):
        ftrl(1e-150, intercept=False).update(np.array([1e80, 0.0]), 1.0)
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


@pytest.mark.parametrize("regularization", [1e-6, 1e-4, 1.0, 1e6])
def test_an_absurd_row_is_refused_and_no_other(regularization: float) -> None:
    unit = math.sqrt(regularization)
    X, y = stream("noisy", 60)
    learner = ftrl(regularization)
    for size in (1.01e13, 1e15, 1e100):
        with pytest.raises(DivergedError, match="scale the inputs down"):
            learner.update(np.array([size * unit, 0.0]), 1.0)
    assert learner.t == 0
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        # Every tenth row is as long as may be.
        learner.update(x if t % 10 else 0.99e13 * unit * x / np.linalg.norm(x), truth)
    assert learner.t == 60


def test_an_absurd_row_does_not_keep_later_ones_out() -> None:
    X, y = stream("noisy", 60)
    learner = ftrl(dim=2)
    X[0] *= 1e15
    refused = 0
    for x, truth in zip(X, y.tolist(), strict=True):
        try:
            learner.update(x, truth)
        except DivergedError:
            refused += 1
    assert refused == 1


def test_a_state_that_does_not_fit_together_is_refused() -> None:
    learner = ftrl()
    learner.run(*stream("noisy", 5))
    for name in ("rounds.positives", "rounds.negatives"):
        with pytest.raises(StateFormatError):
            restore(learner.spec, learner.state() | {name: np.ones(4)}, 2)
