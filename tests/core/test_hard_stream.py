"""The stream that is hard for proper learners: what it is made of, and how the regrets on it grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from bench.papers.aioli_runs import best_slope, hard_norm, hard_stream
from okl_core import create


def test_it_is_two_points_in_balance() -> None:
    n = 10_000
    K = 0.5 * (hard_norm(n) ** 2 * n) ** (1.0 / 3.0)
    X, y = hard_stream(n, 1, 0)
    assert X.shape == (n, 1)
    assert set(zip(X[:, 0].tolist(), y.tolist(), strict=True)) == {(1.0, -1.0), (1.0 / K, 1.0)}
    assert np.array_equal(X, hard_stream(n, 1, 0)[0])
    assert not np.array_equal(X, hard_stream(n, 1, 1)[0])
    ones = {sign: np.mean([np.mean(hard_stream(n, sign, seed)[1] < 0.0) for seed in range(20)]) for sign in (1, -1)}
    delta = np.sqrt(2.0 * K / n)
    for sign in (1, -1):
        assert ones[sign] == pytest.approx((1.0 + sign * delta) / (2.0 * K), abs=4.0 / np.sqrt(20.0 * n * 2.0 * K))


@pytest.mark.parametrize("B", [0.1, 2.0, 50.0])
def test_the_best_slope(B: float) -> None:
    rng = np.random.default_rng(0)
    for y in (np.where(rng.random(80) < 0.4, 1.0, -1.0), np.ones(80), -np.ones(80)):
        X = rng.uniform(0.1, 1.0, (80, 1))
        found = minimize_scalar(
            lambda w, X=X, y=y: np.logaddexp(0.0, -w * X[:, 0] * y).sum(),
            bounds=(-B, B),
            method="bounded",
            options={"xatol": 1e-10},
        )
        slope = best_slope(X, y, B)
        assert slope.loss <= found.fun + 1e-12
        assert slope.loss == pytest.approx(found.fun, rel=1e-6)
        assert slope.value == pytest.approx(found.x, abs=1e-4 * B)


SIZES = (100, 600, 3600)


def worse_regret(kind: str, config: dict[str, Any], n: int) -> float:
    """The mean over some draws of the sign for which it is larger."""
    means = []
    for sign in (1, -1):
        regrets = []
        for seed in range(2):
            X, y = hard_stream(n, sign, seed)
            losses = create({"kind": kind, "config": config}, 1).run(X, y).losses
            regrets.append(losses.sum() - best_slope(X, y, hard_norm(n)).loss)
        means.append(float(np.mean(regrets)))
    return max(means)


def slope_of(regrets: list[float], sizes: tuple[int, ...] = SIZES) -> float:
    """Of the logarithm in that of n."""
    return float(np.polyfit(np.log(sizes), np.log(regrets), 1)[0])


@pytest.mark.slow
def test_the_regret_of_the_leader_grows_like_a_power() -> None:
    sizes = (100, 500, 2500)
    regrets = [
        worse_regret("ftrl-logistic", {"intercept": False, "regularization": 1.0 / hard_norm(n) ** 2}, n) for n in sizes
    ]
    assert slope_of(regrets, sizes) >= 0.35


@pytest.mark.slow
def test_that_of_exponential_weights_hardly_grows() -> None:
    regrets = [worse_regret("foster-1d", {"comparator_norm": hard_norm(n), "nodes": 2001}, n) for n in SIZES]
    assert slope_of(regrets) <= 0.2
    assert regrets[-1] <= 8.0


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("B", [1.0, 3.0, hard_norm(2000)])
def test_that_of_online_newton_steps_is_within_their_bound(B: float, sign: int) -> None:
    """As they are compared with: C = B R, and alpha / 2 = lambda = 1 / B^2."""
    X, y = hard_stream(2000, sign, 0)
    config = {"loss": "logistic", "clip": B, "regularization": 2.0 / B**2, "intercept": False}
    learner = create({"kind": "ons", "config": config}, 1)
    losses, best = learner.run(X, y).losses, best_slope(X, y, B)
    told = learner.describe()
    bound = (best.value / B) ** 2 + told["bound_gradient"]
    assert losses.sum() - best.loss <= bound <= (best.value / B) ** 2 + 0.5 * np.exp(B) * told["log_det"]
    assert told["bound_step"] == 0.0
