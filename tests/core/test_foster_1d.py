"""Exponential weights over slopes: against adaptive quadrature, their regret bounds, and weights that must not be lost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logsumexp

from bench.papers.aioli_runs import best_slope, hard_norm, hard_stream
from okl_core import OnlineLearner, create, restore
from okl_core.errors import ConfigError, ShapeError, StateFormatError
from okl_core.types import F64
from tests.oracles.logistic import mean_sigmoid


def foster(B: float = 1.0, **config: Any) -> OnlineLearner:
    return create({"kind": "foster-1d", "config": {"comparator_norm": B, **config}}, 1)


def stream(kind: str, n: int) -> tuple[F64, F64]:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1.0, 1.0, n)
    if kind == "separable":
        return x[:, None], np.where(x >= 0.0, 1.0, -1.0)
    return x[:, None], np.where(expit(1.5 * x) > rng.random(n), 1.0, -1.0)


@pytest.mark.parametrize("mu", [0.0, 0.2])
@pytest.mark.parametrize("B", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("kind", ["noisy", "separable"])
def test_every_forecast_is_that_of_the_integral(kind: str, B: float, mu: float) -> None:
    X, y = stream(kind, 120)
    values = foster(B, smoothing=mu).run(X, y).values
    for t in (0, 1, 2, 3, 10, 40, 119):
        p = mean_sigmoid(X[:t, 0], y[:t], X.item(t), B)
        p = (1.0 - mu) * p + 0.5 * mu
        assert expit(values[t]) == pytest.approx(p, abs=1e-9)


def test_weights_as_narrow_as_the_spacing_are_integrated() -> None:
    """Half of 1 / (R sqrt(n)) as spacing is as good as any smaller one."""
    n, B = 2000, 4.0
    X, y = stream("noisy", n)
    values = [foster(B, nodes=nodes).run(X, y).values for nodes in (4 * math.ceil(B * math.sqrt(n)) + 1, 8001)]
    np.testing.assert_allclose(*values, rtol=0.0, atol=1e-7)


def log_domain(X: F64, y: F64, B: float, nodes: int) -> list[float]:
    """The same forecasts, all in logarithms."""
    w = np.linspace(-B, B, nodes)
    L = np.zeros(nodes)
    for i, weight in enumerate((3.0 / 8.0, 7.0 / 6.0, 23.0 / 24.0)):
        L[i] = L[-1 - i] = math.log(weight)
    values = []
    for x, truth in zip(X[:, 0].tolist(), y.tolist(), strict=True):
        yes, no = (float(np.asarray(logsumexp(L - np.logaddexp(0.0, sign * w * x)))) for sign in (-1.0, 1.0))
        values.append(yes - no)
        L = L - np.logaddexp(0.0, -truth * w * x)
    return values


def test_no_weight_is_lost() -> None:
    """Inputs that leave one side exp(-1000) of the weight, then truths that move all of it back; and inputs beyond exp."""
    X = np.concatenate((np.full(200, 10.0), [2e3, -1e5, 1e5, 0.0, 3.0, 250.0, -299.0] * 4))[:, None]
    y = np.concatenate((np.ones(60), -np.ones(140), [1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0] * 4))
    values = foster(4.0, nodes=201).run(X, y).values
    assert values == pytest.approx(log_domain(X, y, 4.0, 201), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("n", [100, 3000])
def test_regret_on_the_hard_stream(n: int, sign: int) -> None:
    X, y = hard_stream(n, sign, seed=0)
    assert_bounds(X, y, hard_norm(n), 2001)


@pytest.mark.parametrize("B", [0.5, 30.0])
@pytest.mark.parametrize("kind", ["noisy", "separable"])
def test_regret(kind: str, B: float) -> None:
    assert_bounds(*stream(kind, 800), B, 1001)


def assert_bounds(X: F64, y: F64, B: float, nodes: int) -> None:
    """The bound of the paper, and the sharper one of exponential weights on so many nodes."""
    n, R = len(y), float(np.abs(X).max())
    regret = foster(B, nodes=nodes).run(X, y).losses.sum() - best_slope(X, y, B).loss
    assert regret <= 5.0 * math.log(B * R * n + math.e)
    h = 2.0 * B / (nodes - 1)
    assert regret <= math.log((nodes - 1) * 8.0 / 3.0) + n * (R * h) ** 2 / 32.0


def test_the_mean_slope_is_near_the_best() -> None:
    X, y = stream("noisy", 4000)
    learner = foster(5.0)
    learner.run(X, y)
    assert learner.describe()["mean"] == pytest.approx(best_slope(X, y, 5.0).value, abs=0.02)


def test_it_takes_one_input() -> None:
    spec = {"kind": "foster-1d"}
    with pytest.raises(ShapeError, match="dimension 1"):
        create(spec, 2)
    with pytest.raises(StateFormatError, match="dimension 1"):
        restore(spec, foster().state(), 2)
    with pytest.raises(ConfigError, match="lags"):
        create(spec | {"lags": 1}, 1)
    pool = {"kind": "pool", "config": {"experts": [{"kind": "foster-1d"}, {"kind": "majority"}]}}
    create(pool, 1).update(np.ones(1), 1.0)
    with pytest.raises(ShapeError, match="dimension 1"):
        create(pool, 2)
    with pytest.raises(ConfigError, match="lags"):
        create({"kind": "pool", "config": {"experts": [{"kind": "foster-1d", "lags": 1}]}}, 1)


def test_the_middle_is_a_node() -> None:
    with pytest.raises(ConfigError, match="odd"):
        foster(nodes=1000)


def test_the_largest_slopes_and_inputs_are_learned() -> None:
    learner = foster(1e150)
    learner.update(np.array([1e154]), 1.0)
    assert learner.predict(np.array([1e154])).probability == pytest.approx(1.0, abs=1e-3)
    assert math.isfinite(learner.predict(np.array([-1e154])).value)


def test_a_state_that_does_not_fit_together_is_refused() -> None:
    learner = foster(nodes=101)
    for name, array in (("mixture.L", np.zeros((3, 51))), ("mixture.M", np.ones((2, 50)))):
        with pytest.raises(StateFormatError):
            restore(learner.spec, learner.state() | {name: array}, 1)
