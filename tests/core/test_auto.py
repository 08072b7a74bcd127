"""The learner `auto`: classes that grow, numbers of any shift and scale, and what its losses are bounded by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core import OnlineLearner, create, resolve
from okl_core.automatic.class_mixture import SHARE, TRIVIAL
from okl_core.contract.learner import parse_spec
from okl_core.errors import DivergedError, LabelError, ShapeError

KERNEL = {"kind": "relevance", "smooth": [1.0, 1.0], "steps": [0.5, 0.5], "pairs": [0.5, 0.5]}


def learner_of(**config: Any) -> OnlineLearner:
    return create({"kind": "auto", "config": {"relevance": KERNEL, "budget": 20, "half_life": 32, **config}}, dim=2)


def test_a_class_that_is_new_costs_what_was_kept_for_it() -> None:
    learner, x = learner_of(), np.array([0.2, 0.8])
    assert learner.predict(x).probabilities == ()
    assert learner.predict(x).label == 0
    assert learner.update(x, 0.0).loss == 0.0
    for t in range(1, 5):
        forecast = learner.predict(x)
        assert forecast.probabilities is not None
        assert len(forecast.probabilities) == t
        assert sum(forecast.probabilities) == pytest.approx(1.0 - 1.0 / (t + 1))
        assert learner.update(x, float(t)).loss == pytest.approx(np.log(t + 1))
    with pytest.raises(LabelError, match="y is 6, and the next new class is 5"):
        learner.update(x, 6.0)
    with pytest.raises(LabelError, match="y is 7, and the next new class is 6"):
        learner.run(np.array([x, x, x]), np.array([0.0, 5.0, 7.0]))
    assert learner.t == 5


def test_classes_that_grow_are_regressed_as_if_they_had_been_there() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(120, 2))
    y = np.minimum(np.floor(np.arange(120) / 20.0), np.floor(4.0 * X[:, 0]))
    grown, given_all = learner_of(), learner_of(classes=4)
    for learner in (grown, given_all):
        learner.run(X[:50], y[:50])
        for x, truth in zip(X[50:], y[50:].tolist(), strict=True):
            learner.update(x, truth)
    first, second = grown.state(), given_all.state()
    K = int(y.max()) + 1
    for name in ("kernel.U", "fading.U", "linear.U", "neighbours.Y"):
        np.testing.assert_allclose(first[f"regressors.{name}"], second[f"regressors.{name}"][:, :K], atol=1e-10)


def test_probabilities_of_a_block_have_a_column_for_each_class_at_its_end() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.uniform(size=(30, 2)), np.repeat([0.0, 1.0, 2.0], 10)
    info = learner_of().run(X, y)
    assert info.probabilities is not None
    assert info.probabilities.shape == (30, 3)
    assert not info.probabilities[:11, 1].any()
    np.testing.assert_allclose(info.probabilities.sum(axis=1), 1.0 - 1.0 / np.arange(1.0, 31.0))


@given(
    shift=st.sampled_from([0.0, -3.0, 1e6]), scale=st.sampled_from([1e-6, -1.0, 1e9]), seed=st.integers(0, 2**32 - 1)
)
@settings(max_examples=5, deadline=None)
def test_forecasts_of_numbers_follow_shift_and_scale(shift: float, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(80, 2))
    y = np.sin(5.0 * X[:, 0]) + 0.1 * np.cumsum(rng.standard_normal(80))
    spec = {"kind": "auto", "config": {"truth": "numbers", "budget": 20, "half_life": 32}}
    moved = shift * abs(scale) + scale * y
    values = create(resolve(spec, X, y), dim=2).run(X, y).values[1:]
    expected = create(resolve(spec, X, moved), dim=2).run(X, moved).values[1:]
    np.testing.assert_allclose(shift + values * scale / abs(scale), expected / abs(scale), rtol=0.0, atol=1e-5)


def streams(n: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(2)
    t = np.arange(n)
    made = {
        "alternating": np.where(t % 2, 1.0, -1.0),
        "walk": np.cumsum(rng.standard_normal(n)),
        "spikes": np.where(t % 37 == 36, 1e4, 0.0) + rng.standard_normal(n),
        "growing": 1.2 ** (t % 200),
        "cauchy": rng.standard_cauchy(n),
        "constant": np.full(n, 3.0),
        "against the mean": (2.0 * rng.integers(2, size=n) - 1.0) * np.sqrt(1.0 + t),
    }
    return {name: y.tolist() for name, y in made.items()}


@pytest.mark.parametrize("name", streams(1))
def test_numbers_are_forecast_no_worse_than_by_the_mean_and_the_last_truth(name: str) -> None:
    n = 500
    y, X = np.array(streams(n)[name]), np.random.default_rng(3).uniform(size=(n, 2))
    learner = learner_of(truth="numbers")
    losses = learner.run(X, y).losses
    means = np.cumsum(y)[:-1] / np.arange(1, n)
    for trivial in (means, y[:-1]):
        # M is the largest distance S times sqrt(2) at most: with it in place of S the bound is only tighter.
        S = float(learner.state()["numbers.M"]) / np.sqrt(2.0)
        assert losses[1:].sum() <= ((y[1:] - trivial) ** 2).sum() + (4.0 * np.log(100.0) + 2.0) * S * S + 1e-9


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("name", ["random", "repeated", "cycle", "opposite"])
def test_classes_are_forecast_no_worse_than_by_majority_and_last_label(name: str, classes: int | None) -> None:
    n, rng = 400, np.random.default_rng(4)
    X = rng.uniform(size=(n, 2))
    y = {
        "random": rng.integers(3, size=n),
        "repeated": np.repeat(rng.integers(3, size=n // 20), 20),
        "cycle": np.arange(n) % 3,
        "opposite": np.zeros(n, dtype=int),
    }[name].astype(float)
    y[:3] = 0.0, 1.0, 2.0
    learner = learner_of(classes=classes)
    if name == "opposite":
        # Whatever it takes to be the most likely is wrong.
        learner.run(X[:3], y[:3])
        loss = 0.0
        for t in range(3, n):
            probabilities = learner.predict(X[t]).probabilities
            assert probabilities is not None
            y[t] = float(np.argmin(probabilities))
            loss += learner.update(X[t], y[t]).loss
    else:
        loss = float(learner.run(X, y).losses[3:].sum())
    counts, stays, last, trivial = np.ones(3), 0.0, 2, np.zeros(2)
    # The rounds from the fourth on: all classes are known, in both ways of counting them.
    for t in range(3, n):
        truth = int(y[t])
        majority = (counts + 0.5) / (counts + 0.5).sum()
        stay = (stays + 0.5) / t
        others = majority[truth] * (1.0 - stay) / (1.0 - majority[last])
        trivial -= np.log([majority[truth], stay if truth == last else others])
        stays += float(truth == last)
        counts[truth] += 1.0
        last = truth
    experts = 1 + 4 + len(TRIVIAL)
    floor = SHARE * 0.5 / (experts - 1)
    assert loss <= trivial.min() - np.log(floor) - n * np.log(1.0 - SHARE) + np.log(n + 1.0)


def test_truths_that_are_too_large_change_nothing() -> None:
    learner, x = learner_of(truth="numbers"), np.array([0.2, 0.8])
    for y in (1e99, -1e99, 1.0, 1e99):
        assert np.isfinite(learner.update(x, y).forecast.value)
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(x, 1e101)
    with pytest.raises(DivergedError):
        learner.run(np.array([x, x]), np.array([1.0, -1e101]))
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


def test_the_smallest_truths_are_forecast_too() -> None:
    learner, x = learner_of(truth="numbers"), np.array([0.2, 0.8])
    for y in 1e-200 * np.random.default_rng(5).standard_normal(50):
        assert abs(learner.update(x, float(y)).forecast.value) <= 1e-198


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1e-307])
def test_truths_below_the_smallest_normal_number_are_forecast_too(unit: float) -> None:
    learner, x = learner_of(truth="numbers"), np.array([0.2, 0.8])
    y = unit * np.arange(20.0)
    for one in y[:10].tolist():
        assert abs(learner.update(x, one).forecast.value) <= 1e3 * unit
    assert np.isfinite(learner.run(np.tile(x, (10, 1)), y[10:]).values).all()


def test_the_kernel_waits_for_truths() -> None:
    _, _, config = parse_spec({"kind": "auto"})
    assert config.waiting() == [(("relevance",), "evidence")]
    with pytest.raises(ShapeError, match="truth of each row"):
        config.resolved(np.zeros((3, 2)))


def test_many_inputs_leave_the_linear_regressions_out() -> None:
    rng = np.random.default_rng(6)
    X = rng.uniform(size=(40, 1001))
    y = X[:, 0]
    learner = create(resolve({"kind": "auto", "config": {"truth": "numbers"}}, X, y), dim=1001)
    assert np.isfinite(learner.run(X, y).values).all()
    assert "weight_linear" not in learner.describe()


def test_a_rule_of_two_thresholds_is_learned() -> None:
    rng = np.random.default_rng(7)
    X = rng.uniform(size=(2000, 6))
    y = ((X[:, 1] > 0.4) & (X[:, 4] < 0.7)).astype(float)
    y[:2] = 0.0, 1.0
    learner = create(resolve({"kind": "auto"}, X[:500], y[:500]), dim=6)
    info = learner.run(X, y)
    assert info.probabilities is not None
    assert np.mean(info.probabilities.argmax(axis=1)[1000:] != y[1000:]) < 0.02


def test_numbers_that_drift_are_followed() -> None:
    rng = np.random.default_rng(8)
    X = rng.uniform(size=(3000, 2))
    y = np.where(np.arange(3000) < 1500, 1.0, -1.0) * np.sin(4.0 * X[:, 0])
    y[1500:] += 5.0
    learner = create(
        resolve({"kind": "auto", "config": {"truth": "numbers", "half_life": 250}}, X[:500], y[:500]), dim=2
    )
    errors = np.abs(learner.run(X, y).values - y)
    assert errors[1000:1500].mean() < 0.02
    assert errors[2500:].mean() < 0.2
