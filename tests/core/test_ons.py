"""Linear ONS against KONS with a linear kernel, the same on explicit weights, and its regret bound."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.errors import ConfigError, DivergedError, LabelError
from okl_core.losses import LOSSES
from okl_core.second_order import feature_space
from okl_core.second_order.feature_space import BLOCK, WIDE
from okl_core.types import F64
from tests.core.test_kons import METHODS, STREAMS, comparators, definition, kons, play_all, stream_for
from tests.oracles.kons import features, online_newton

KERNELS = {True: {"kind": "polynomial", "degree": 1, "offset": 1.0}, False: {"kind": "linear"}}
"""Of KONS, with an intercept and without."""

TERMS = ("loss", "log_det", "bound_gradient", "bound_step")


def ons(
    loss: str, step: str | float, C: float = 1.0, alpha: float = 1.0, intercept: bool = True, dim: int = 2
) -> OnlineLearner:
    config = {"loss": loss, "step": step, "clip": C, "regularization": alpha, "intercept": intercept}
    return create({"kind": "ons", "config": config}, dim)


@pytest.fixture(params=["one by one", "in blocks"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How `run` learns; by itself it takes blocks for many features only."""
    monkeypatch.setattr(feature_space, "WIDE", 0 if request.param == "in blocks" else math.inf)
    return request.param


@pytest.mark.pairs
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_it_is_kons_with_a_linear_kernel(loss: str, step: str | float, stream: str) -> None:
    intercept = (METHODS.index((loss, step)) + list(STREAMS).index(stream)) % 2 == 0
    X, y = stream_for(loss, stream, n=300)
    linear, single, blocks = kons(loss, step, KERNELS[intercept]), *(ons(loss, step, intercept=intercept) for _ in "12")
    expected = linear.run(X, y)
    values, choices = play_all(single, X, y)
    found = blocks.run(X, y, choices=expected.choices)
    np.testing.assert_allclose(values, expected.values, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(found.values, expected.values, rtol=0.0, atol=1e-9)
    assert choices == expected.choices
    for term in TERMS:
        for learner in (single, blocks):
            assert learner.describe()[term] == pytest.approx(linear.describe()[term], rel=1e-9)


@pytest.mark.pairs
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("alpha", [1.0, 1e-5])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_it_is_the_online_newton_step_on_weights(loss: str, step: str | float, intercept: bool, alpha: float) -> None:
    C = 1.0 if alpha == 1.0 else 1.5
    X, y = stream_for(loss, list(STREAMS)[METHODS.index((loss, step)) % len(STREAMS)], C=C)
    learner = ons(loss, step, C, alpha, intercept)
    values, choices = play_all(learner, X, y)
    Phi = features(X, 1, 1.0 if intercept else 0.0)
    expected = online_newton(Phi, y, C, alpha, *definition(loss, step, C, choices))
    unattainable = np.arange(1, len(y) + 1) * np.finfo(np.float64).eps * expected.limit
    assert (np.abs(values - expected.values) <= 1e-9 + unattainable).all()
    at_once = ons(loss, step, C, alpha, intercept).run(X, y, choices=choices)
    assert (np.abs(at_once.values - expected.values) <= 1e-9 + unattainable).all()


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge"])
def test_with_many_features_a_run_is_its_updates(loss: str) -> None:
    rng, dim = np.random.default_rng(2), WIDE + 3
    X = rng.standard_normal((3 * BLOCK, dim)) / math.sqrt(dim)
    signal = 3.0 * X[:, 0] + 0.3 * rng.standard_normal(len(X))
    y = np.clip(signal, -1.0, 1.0) if loss == "squared" else np.where(signal >= 0.0, 1.0, -1.0)
    single, blocks = ons(loss, "adaptive", dim=dim), ons(loss, "adaptive", dim=dim)
    values, _ = play_all(single, X, y)
    cuts = itertools.pairwise([0, 1, BLOCK - 1, 2 * BLOCK, len(y)])
    found = np.concatenate([blocks.run(X[a:b], y[a:b]).values for a, b in cuts])
    np.testing.assert_allclose(found, values, rtol=0.0, atol=1e-9)
    expected = single.state()
    for name, array in blocks.state().items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.pairs
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_regret_stays_within_its_bound(loss: str, step: str | float, stream: str) -> None:
    C, alpha = 1.0, 0.3
    X, y = stream_for(loss, stream, n=200)
    learner = ons(loss, step, C, alpha)
    learner.run(X, y)
    told = learner.describe()
    Phi = features(X, 1, 1.0).astype(np.float64)
    T, p = Phi.shape
    sigma, L, R2 = LOSSES[loss].curvature(C), LOSSES[loss].lipschitz(C), (Phi**2).sum(axis=1).max()
    if step == "curvature":
        assert told["log_det"] <= p * math.log1p(sigma * L**2 * R2 * T / (alpha * p))
        assert told["bound_gradient"] <= told["log_det"] / (2.0 * sigma)
    for v in comparators(Phi, y, C):
        regret = told["loss"] - LOSSES[loss].values(Phi @ v, y).sum()
        assert regret <= 0.5 * alpha * v @ v + told["bound_gradient"] + told["bound_step"] + 1e-9


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_the_inverse_stays_one(alpha: float) -> None:
    # All but in a plane: A has a condition of about 1e4 / alpha.
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (20_000, 2)) @ rng.standard_normal((2, 6)) + 1e-3 * rng.uniform(-1.0, 1.0, (20_000, 6))
    learner = ons("squared", "adaptive", alpha=alpha, intercept=False, dim=6)
    learner.run(X, np.clip(X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(len(X)), -1.0, 1.0))
    A = alpha * np.eye(6) + 2.0 * X.T @ X
    S = learner.state()["space.posterior.S"]
    product = A @ S @ S.T
    np.testing.assert_allclose(product, np.eye(6), rtol=0.0, atol=1e-13 * np.linalg.cond(A))
    assert learner.describe()["log_det"] == pytest.approx(np.linalg.slogdet(A / alpha)[1], rel=1e-9)


def test_the_intercept_is_learned() -> None:
    rng = np.random.default_rng(6)
    X = rng.uniform(0.0, 1.0, (1000, 3))
    y = X @ [0.5, -0.3, 0.1] - 0.4
    errors = {}
    for intercept in (True, False):
        learner = ons("squared", "adaptive", intercept=intercept, alpha=1e-3, dim=3)
        errors[intercept] = np.abs(learner.run(X, y).values[-100:] - y[-100:]).max()
    assert errors[True] < 1e-4 < 1e-1 < errors[False]


def test_a_round_without_features_or_derivative_leaves_no_trace() -> None:
    learner = ons("squared-hinge", "curvature", C=3.0, intercept=False)
    learner.update(np.array([1.0, 0.0]), 1.0)
    before = learner.state()
    assert 1.0 < learner.predict(np.array([1.2, 0.0])).value < 3.0
    learner.update(np.array([1.2, 0.0]), 1.0)
    learner.run(np.array([[0.0, 0.0], [1.0, 0.0]]), np.ones(2))
    after = learner.state()
    assert (after.pop("t"), after.pop("totals.loss")) == (before.pop("t") + 3, before.pop("totals.loss") + 1.0)
    assert same(before, after)


@pytest.mark.usefixtures("form")
def test_a_restored_learner_continues_bit_for_bit_within_a_run() -> None:
    X, y = stream_for("squared", "flips", n=400)
    learner = ons("squared", "adaptive")
    learner.run(X[:170], y[:170])
    again = restore(learner.spec, learner.state(), 2)
    for one in (learner, again):
        one.update(X[170], y[170])
        one.run(X[171:], y[171:])
    assert same(learner.state(), again.state())


def test_forecasts_are_clipped_exactly_and_carry_the_probability_of_the_loss() -> None:
    X, y = stream_for("logistic", "saturated", n=50)
    info = ons("logistic", "adaptive", C=0.5, alpha=1e-3).run(X, y)
    assert np.abs(info.values).max() == 0.5
    assert info.probabilities is not None
    np.testing.assert_allclose(info.probabilities, 1.0 / (1.0 + np.exp(-info.values)), rtol=1e-12)
    assert ons("hinge", 0.1).run(X, y).probabilities is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"loss": "hinge"}, "no curvature"),
        ({"clip": 0.0}, "clip"),
        ({"regularization": 0.0}, "regularization"),
        ({"intercept": 1.0}, "intercept"),
        ({"kernel": {"kind": "linear"}}, "kernel"),
    ],
)
def test_configs_that_cannot_work_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create({"kind": "ons", "config": config}, 2)


def test_truths_beyond_the_clip_are_refused() -> None:
    learner = ons("squared", "curvature", C=2.0)
    learner.update(np.ones(2), -2.0)
    with pytest.raises(LabelError):
        learner.update(np.ones(2), 2.1)


@pytest.mark.usefixtures("form")
def test_an_overflow_changes_nothing() -> None:
    learner = ons("squared", "curvature", alpha=1e-3)
    learner.update(np.array([1.0, 0.0]), 1.0)
    before = learner.state()
    # |x|^2 / alpha is beyond the largest number; |x|^2 / alpha times a derivative of 2 is.
    for huge in (np.array([0.0, 1e153]), np.array([0.0, 4e152])):
        for call in (lambda x: learner.update(x, -1.0), lambda x: learner.run(x[None, :], -np.ones(1))):
            with np.errstate(all="ignore"), pytest.raises(DivergedError):
                call(huge)
    assert same(before, learner.state())


def same(before: dict[str, F64], after: dict[str, F64]) -> bool:
    return all(np.array_equal(before[name], after[name]) for name in before)
