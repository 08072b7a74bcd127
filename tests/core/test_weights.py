"""Weights of rounds: the loss counts so often, in what is learned and in what is guaranteed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import okl_core
from okl_core import Gaussian, OnlineLearner, ReservoirLearner
from okl_core.errors import ShapeError, WeightError
from okl_core.learners.aioli import AioliConfig
from okl_core.types import F64

KERNEL = {"kind": "gaussian", "sigma": 0.7}
T = 150

LEARNERS: dict[str, dict[str, Any]] = {
    "kernel-ridge": {"kind": "kernel-ridge", "config": {"kernel": KERNEL, "clip": 2.0}},
    "kernel-ridge window": {"kind": "kernel-ridge", "config": {"kernel": KERNEL, "window": 40}},
    "kernel-aar": {"kind": "kernel-aar", "config": {"kernel": KERNEL}},
    "kernel-aar half-life": {"kind": "kernel-aar", "config": {"kernel": KERNEL, "half_life": 8}},
    "nystrom-ridge": {"kind": "nystrom-ridge", "config": {"kernel": KERNEL, "budget": 20}},
    "nystrom-aar": {"kind": "nystrom-aar", "config": {"kernel": KERNEL, "half_life": 64}},
    "kons": {"kind": "kons", "config": {"kernel": KERNEL, "clip": 2.0}},
    "kons adaptive": {"kind": "kons", "config": {"kernel": KERNEL, "loss": "squared-hinge", "step": "adaptive"}},
    "sketched-kons": {"kind": "sketched-kons", "config": {"kernel": KERNEL, "loss": "logistic"}},
    "pros-n-kons": {"kind": "pros-n-kons", "config": {"kernel": KERNEL, "loss": "squared-hinge", "clip": 0.3}},
    "ons": {"kind": "ons", "config": {"loss": "logistic", "step": "inverse-sqrt", "clip": 0.2}},
    "aioli": {"kind": "aioli", "config": {}},
    "kernel-aioli": {"kind": "kernel-aioli", "config": {"kernel": KERNEL}},
    "nystrom-aioli": {"kind": "nystrom-aioli", "config": {"kernel": KERNEL}},
    "fourier-aioli": {"kind": "fourier-aioli", "config": {"kernel": KERNEL, "frequencies": 80}},
}


def stream(n: int = T, seed: int = 0, *, heaviest: float = 8.0) -> tuple[F64, F64, F64]:
    """Inputs, labels and weights from 1 / heaviest to heaviest."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return X, y, heaviest ** rng.uniform(-1.0, 1.0, n)


def made(spec: dict[str, Any]) -> OnlineLearner:
    return okl_core.create(spec, dim=2)


def same(one: dict[str, F64], other: dict[str, F64], tolerance: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_all_that_take_weights_are_tried() -> None:
    taking = {kind for kind in okl_core.learner_kinds() if okl_core.get_learner(kind).takes_weights}
    assert taking == {spec["kind"] for spec in LEARNERS.values()}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_weight_of_one_is_none(name: str) -> None:
    X, y, _ = stream()
    one, other, third = made(LEARNERS[name]), made(LEARNERS[name]), made(LEARNERS[name])
    one.run(X, y)
    other.run(X, y, weight=np.ones(T))
    same(one.state(), other.state())
    one = made(LEARNERS[name])
    for x, truth in zip(X, y.tolist(), strict=True):
        assert one.update(x, truth) == third.update(x, truth, weight=1.0)
    same(one.state(), third.state())


@pytest.mark.parametrize("name", LEARNERS)
def test_run_is_update_with_weights(name: str) -> None:
    X, y, weights = stream()
    one, other = made(LEARNERS[name]), made(LEARNERS[name])
    info = other.run(X, y, weight=weights)
    values = [
        one.update(x, t, weight=w).forecast.value for x, t, w in zip(X, y.tolist(), weights.tolist(), strict=True)
    ]
    np.testing.assert_allclose(values, info.values, rtol=1e-9, atol=1e-9)
    told = other.describe()
    for what, number in one.describe().items():
        # Arrays grow in other steps.
        assert what == "bytes" or number == pytest.approx(told[what], rel=1e-8), what
    again = okl_core.restore(one.spec, one.state(), dim=2)
    assert again.update(X[0], 1.0, weight=3.0) == one.update(X[0], 1.0, weight=3.0)


@pytest.mark.parametrize("name", LEARNERS)
def test_weights_change_what_is_learned_but_no_forecast_of_their_round(name: str) -> None:
    X, y, _ = stream()
    one, other = made(LEARNERS[name]), made(LEARNERS[name])
    one.run(X[:-1], y[:-1])
    other.run(X[:-1], y[:-1])
    assert one.update(X[-1], -y[-1]) == other.update(X[-1], -y[-1], weight=7.0)
    assert one.predict(X[-1]).value != other.predict(X[-1]).value


@pytest.mark.parametrize("kind", ["kernel-ridge", "kernel-aar"])
def test_a_weight_of_two_is_the_round_twice(kind: str) -> None:
    X, y, _ = stream(40)
    spec = {"kind": kind, "config": {"kernel": KERNEL}}
    weighted, twice = made(spec), made(spec)
    weighted.run(X, y, weight=np.full(40, 2.0))
    for x, truth in zip(X, y.tolist(), strict=True):
        twice.update(x, truth)
        twice.update(x, truth)
    for x in X:
        assert weighted.predict(x).value == pytest.approx(twice.predict(x).value, abs=1e-9)
    for name in ("log_det", "comparator_loss"):
        assert weighted.describe()[name] == pytest.approx(twice.describe()[name], rel=1e-9)


def test_ridge_regression_is_the_weighted_batch_solution() -> None:
    X, y, weights = stream()
    learner = made({"kind": "kernel-ridge", "config": {"kernel": KERNEL, "regularization": 0.3}})
    learner.run(X, y, weight=weights)
    K = Gaussian(sigma=0.7).gram(X)
    a = np.linalg.solve(K + 0.3 * np.diag(1.0 / weights), y)
    np.testing.assert_allclose([learner.predict(x).value for x in X], K @ a, atol=1e-9)
    objective = weights @ (y - K @ a) ** 2 + 0.3 * a @ K @ a
    assert learner.describe()["comparator_loss"] == pytest.approx(objective, rel=1e-9)


def test_an_online_newton_step_is_the_weighted_quadratics() -> None:
    X, y, weights = stream()
    learner = made({"kind": "ons", "config": {"clip": 50.0, "step": "adaptive", "intercept": False}})
    values = learner.run(X, y, weight=weights).values
    # The adaptive step of the squared loss is the loss itself: half the weighted squares, times two.
    A, s = np.eye(2), np.zeros(2)
    for t in range(T):
        assert values[t] == pytest.approx(X[t] @ np.linalg.solve(A, s), abs=1e-9)
        A += 2.0 * weights[t] * np.outer(X[t], X[t])
        s += 2.0 * weights[t] * y[t] * X[t]


@given(st.integers(0, 10_000), st.sampled_from((1.0, 1.9, 8.0, 100.0)), st.sampled_from((None, 1.0)), st.booleans())
def test_the_bounds_of_least_squares_hold_with_weights(
    seed: int, heaviest: float, clip: float | None, is_shrunk: bool
) -> None:
    X, y, weights = stream(60, seed, heaviest=heaviest)
    kind = "kernel-aar" if is_shrunk else "kernel-ridge"
    learner = made({"kind": kind, "config": {"kernel": KERNEL, "regularization": 0.1, "clip": clip}})
    losses = learner.run(X, y, weight=weights).losses
    told = learner.describe()
    assert told["loss"] == pytest.approx(weights @ losses)
    has_none = clip is None and (not is_shrunk or weights.max() >= 2.0)
    assert ("bound" in told) is not has_none
    if not has_none:
        assert told["loss"] - told["comparator_loss"] <= told["bound"] * (1.0 + 1e-9)
        assert 0.0 < told["bound"] < np.inf


@pytest.mark.parametrize(
    ("kind", "clip", "weight", "factor"),
    [
        ("kernel-ridge", 2.0, 0.5, 4.0 * 4.0),
        ("kernel-ridge", 2.0, 3.0, 3.0 * 4.0 * 4.0),
        ("kernel-aar", None, 0.5, 1.0),
        ("kernel-aar", None, 1.5, 1.0 / 0.5),
        ("kernel-aar", 2.0, 1.5, 1.0 / 0.5),
        # 8 omega Y^2, which is less than 1 / (2 - omega).
        ("kernel-aar", 2.0, 1.999, 8.0 * 1.999 * 4.0),
        ("kernel-aar", 2.0, 3.0, 8.0 * 3.0 * 4.0),
    ],
)
def test_the_bounds_of_least_squares_are_those_of_the_table(
    kind: str, clip: float | None, weight: float, factor: float
) -> None:
    X, y, _ = stream(60)
    learner = made({"kind": kind, "config": {"kernel": KERNEL, "clip": clip}})
    learner.run(X, y, weight=np.full(60, weight))
    told = learner.describe()
    assert told["bound"] == pytest.approx(factor * told["log_det"], rel=1e-9)


@given(st.integers(0, 10_000), st.sampled_from((1.0, 1.9, 8.0, 100.0)))
def test_the_bound_of_aioli_holds_with_weights(seed: int, heaviest: float) -> None:
    X, y, weights = stream(60, seed, heaviest=heaviest)
    # Truths that contradict themselves: the hardest for a forecast that does not know the weight to come.
    y = np.where(np.random.default_rng(seed).random(60) < 0.3, -y, y)
    B = 3.0
    learner = made({"kind": "aioli", "config": {"comparator_norm": B, "intercept": False}})
    losses = learner.run(X, y, weight=weights).losses
    told = learner.describe()

    def objective(v: F64) -> float:
        v = v * min(1.0, B / max(float(np.linalg.norm(v)), 1e-12))
        return float(weights @ np.logaddexp(0.0, -y * (X @ v)) + v @ v / B**2)

    best = min(minimize(objective, start, method="Nelder-Mead").fun for start in (np.zeros(2), np.array([2.0, 0.0])))
    assert weights @ losses - best <= told["bound"] + 1e-6


def test_the_bound_of_aioli_is_what_each_round_adds_to_the_minimum() -> None:
    X, y, weights = stream(heaviest=100.0)
    lam, kappa = 0.5, 1.0 + np.linalg.norm(X, axis=1)
    learner = made({"kind": "aioli", "config": {"regularization": lam, "intercept": False}})
    values = learner.run(X, y, weight=weights).values
    A, s, bound, heavy = 2.0 * lam * np.eye(2), np.zeros(2), 0.0, 0
    for t, (x, a, truth, omega) in enumerate(zip(X, values.tolist(), y.tolist(), weights.tolist(), strict=True)):
        h = max(1.0, math.sqrt((weights[:t] ** 2).mean())) if t else 1.0
        m, q = x @ np.linalg.solve(A, s), x @ np.linalg.solve(A, x)
        p = 1.0 / (1.0 + math.exp(truth * a))
        w, g = omega * p * (1.0 - p) / kappa[t], -truth * p
        # The excess of the loss over the growth of the minimum, without its last term, which is never above 0.
        excess = 0.5 * omega * (omega * g * g * q - 2.0 * g * (m - a)) / (1.0 + w * q)
        heavy += omega > 2.0 * h
        bound += excess if omega > 2.0 * h else omega * h * p * (1.0 - p) * q / (1.0 + w * q)
        A += w * np.outer(x, x)
        s += (w * a + omega * truth * p) * x
    assert heavy > 3
    assert learner.describe()["bound"] == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("kind", ["aioli", "kernel-aioli", "fourier-aioli"])
@pytest.mark.parametrize("weight", [1.5, 50.0])
def test_a_constant_weight_divides_the_regularization_of_aioli(kind: str, weight: float) -> None:
    X, y, _ = stream()
    config = LEARNERS[kind]["config"]
    heavy = made({"kind": kind, "config": config | {"regularization": 0.5}})
    plain = made({"kind": kind, "config": config | {"regularization": 0.5 / weight}})
    values = heavy.run(X, y, weight=np.full(len(y), weight)).values
    np.testing.assert_allclose(values, plain.run(X, y).values, rtol=1e-7, atol=1e-7)


def test_aioli_hedges_for_the_root_mean_square_of_the_weights_so_far() -> None:
    X, y, weights = stream()
    heavy = made({"kind": "aioli", "config": {"intercept": False}})
    heavy.run(X, y, weight=weights)
    heavy.run(X[:7], y[:7])
    state, x = heavy.state(), np.array([0.9, -0.4])
    h = np.sqrt((weights @ weights + 7.0) / (len(y) + 7))
    S = state["space.posterior.S"]
    m, q = state["space.posterior.u"] @ x, x @ S @ S.T @ x
    a = heavy.predict(x).value
    assert h > 2.0
    assert a + h * q * np.tanh(0.5 * a) == pytest.approx(m, abs=1e-9)


@pytest.mark.parametrize("kind", ["aioli", "kernel-aioli", "nystrom-aioli", "fourier-aioli"])
def test_heavy_rounds_of_a_rare_class_do_no_harm_to_aioli(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 2))
    y = np.where(rng.random(400) < 1.0 / (1.0 + np.exp(2.5 - 2.0 * X[:, 0])), 1.0, -1.0)
    weights = np.where(y > 0.0, 50.0, 1.0)
    losses = made(LEARNERS[kind]).run(X, y, weight=weights).losses
    # A guess of 1/2 costs log 2 in every round; hedged for weight 1, forecasts cost several times that.
    assert weights @ losses / weights.sum() < np.log(2.0)


AIOLIS = ["aioli", "kernel-aioli", "nystrom-aioli", "fourier-aioli"]


@pytest.mark.parametrize(
    ("kind", "memory"), [*((kind, {"half_life": 16}) for kind in AIOLIS), ("kernel-aioli", {"window": 40})]
)
def test_aioli_forgets_heavy_rounds_altogether(kind: str, memory: dict[str, int]) -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    y = np.where(X[:, 0] > 0.2 * rng.normal(size=600), 1.0, -1.0)
    weights = np.ones(600)
    weights[:20] = 1000.0
    spec = {"kind": kind, "config": LEARNERS[kind]["config"] | memory}
    heavy, light = made(spec), made(spec)
    heavy.run(X, y, weight=weights)
    light.run(X, y)
    found, expected = ([learner.predict(x).value for x in X[:50]] for learner in (heavy, light))
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-2)


@pytest.mark.parametrize("half_life", [10**9, 10**149], ids=["long", "endless"])
@pytest.mark.parametrize("kind", AIOLIS)
def test_aioli_hedges_for_no_weight_that_rounding_made(kind: str, half_life: int) -> None:
    X, y, _ = stream()
    spec = {"kind": kind, "config": LEARNERS[kind]["config"] | {"half_life": half_life}}
    block, single = made(spec), made(spec)
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
    np.testing.assert_allclose(block.run(X, y).values, values, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(made(LEARNERS[kind]).run(X, y).values, values, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("half_life", [8, 16, 100, 10**9])
def test_fading_rounds_of_weight_one_leave_a_hedge_of_one(half_life: int) -> None:
    rule = AioliConfig(half_life=half_life).rule
    squares = 0.0
    for t in range(3000):
        assert rule.hedge_after(squares, t) == 1.0
        squares = rule.fade * squares + 1.0


@given(st.integers(0, 10_000), st.sampled_from((1.0, 8.0, 100.0)), st.sampled_from(("curvature", 0.6, "adaptive")))
def test_the_bound_of_the_online_newton_step_holds_with_weights(seed: int, heaviest: float, step: Any) -> None:
    X, y, weights = stream(60, seed, heaviest=heaviest)
    config = {"loss": "squared", "clip": 1.0, "step": step, "regularization": 0.5, "intercept": False}
    learner = made({"kind": "ons", "config": config})
    values, losses = (info := learner.run(X, y, weight=weights)).values, info.losses
    told = learner.describe()
    if step == 0.6:
        # The curvature of the squared loss is 1/8.
        assert told["bound_step"] == pytest.approx(2.0 * (0.6 - 0.125) * (weights @ (2.0 * (values - y)) ** 2))
    v = np.linalg.solve(X.T @ (weights[:, None] * X) + 0.25 * np.eye(2), X.T @ (weights * y))
    v *= min(1.0, 1.0 / np.abs(X @ v).max())
    best = weights @ (y - X @ v) ** 2
    assert weights @ losses - best <= 0.25 * v @ v + told["bound_gradient"] + told["bound_step"] + 1e-9


def test_learners_without_weights_say_who_takes_them() -> None:
    for kind in ("mean", "pomdr", "pool"):
        learner = okl_core.create({"kind": kind}, dim=2)
        with pytest.raises(WeightError, match=f"^{kind} takes no weights; these learners do: aioli, .*kernel-ridge"):
            learner.update(np.zeros(2), 1.0, weight=2.0)
        with pytest.raises(WeightError, match="takes no weights"):
            learner.run(np.zeros((1, 2)), np.ones(1), weight=np.array([2.0]))
        learner.update(np.zeros(2), 1.0, weight=1.0)
        assert learner.t == 1


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e-7, 1e7, np.nan, np.inf])
def test_weights_are_checked(weight: float) -> None:
    learner = made(LEARNERS["kernel-ridge"])
    with pytest.raises(WeightError) as one:
        learner.update(np.zeros(2), 1.0, weight=weight)
    assert one.value.field == "weight"
    with pytest.raises(WeightError) as many:
        learner.run(np.zeros((3, 2)), np.ones(3), weight=np.array([1.0, 1.0, weight]))
    assert many.value.index == 2
    with pytest.raises(ShapeError):
        learner.run(np.zeros((3, 2)), np.ones(3), weight=np.ones(2))
    assert learner.t == 0


@pytest.mark.parametrize("name", LEARNERS)
def test_the_heaviest_and_the_lightest_rounds_are_borne(name: str) -> None:
    X, y, _ = stream(60)
    weights = np.where(np.arange(60) % 3 == 0, 1e6, 1e-6)
    one, other = made(LEARNERS[name]), made(LEARNERS[name])
    info = one.run(X, y, weight=weights)
    values = [
        other.update(x, t, weight=w).forecast.value for x, t, w in zip(X, y.tolist(), weights.tolist(), strict=True)
    ]
    assert np.isfinite(info.values).all()
    np.testing.assert_allclose(info.values, values, rtol=1e-5, atol=1e-5)


def test_a_replay_takes_the_weight_that_was_recorded() -> None:
    X, y, weights = stream()
    one, other = made(LEARNERS["sketched-kons"]), made(LEARNERS["sketched-kons"])
    for x, truth, weight in zip(X, y.tolist(), weights.tolist(), strict=True):
        played = one.play(x, truth, weight=weight)
        one.learn(played)
        other.replay(x, truth, choices=played.choices, value=played.forecast.value, weight=weight)
    same(one.state(), other.state())


def test_a_reservoir_passes_weights_on() -> None:
    X, y, weights = stream()
    one, other = made(LEARNERS["kernel-aar"]), ReservoirLearner.create(LEARNERS["kernel-aar"], dim=2)
    one.run(X, y, weight=weights)
    other.run(X[:90], y[:90], weight=weights[:90])
    for x, truth, weight in zip(X[90:], y[90:].tolist(), weights[90:].tolist(), strict=True):
        other.update(x, truth, weight=weight)
    same(one.state(), other.learner.state(), 1e-9)
