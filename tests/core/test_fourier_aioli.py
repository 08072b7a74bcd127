"""AIOLI on random Fourier features against a minimisation of its objective on them, and against the kernel's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError
from okl_core.kernels.fourier import draw
from okl_core.kernels.kernels import Gaussian, Laplacian
from okl_core.types import F64
from tests.core.improper_streams import NAMES, SETTINGS, expected, labels_for
from tests.core.newton_streams import play_all

ROUNDS = 60
KERNEL = Gaussian(sigma=0.5)


def learner_of(seed: int = 0, **config: Any) -> OnlineLearner:
    given = {"kernel": KERNEL.model_dump(), "frequencies": 12} | config
    return create({"kind": "fourier-aioli", "seed": seed, "config": given}, 2)


def by_definition(frequencies: F64, origin: F64, X: F64) -> F64:
    angles = 2.0 * math.pi * (X - origin) @ frequencies.T
    return np.hstack((np.cos(angles), np.sin(angles))) / math.sqrt(len(frequencies))


@pytest.mark.each
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_every_forecast_minimises_the_objective_on_its_features(config: dict[str, Any], name: str) -> None:
    X, y = labels_for(name, ROUNDS)
    learner = learner_of(**config)
    values, _ = play_all(learner, X, y)
    state = learner.state()
    Phi = by_definition(state["space.drawn.frequencies"], X[0], X)
    oracle = expected(config, Phi, np.ones(ROUNDS), y)
    np.testing.assert_allclose(values, oracle.values, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(learner_of(**config).run(X, y).values, oracle.values, rtol=1e-7, atol=1e-7)
    told = learner.describe()
    assert told["loss"] == pytest.approx(sum(oracle.losses), rel=1e-7)
    assert told["bound"] == pytest.approx(sum(oracle.terms), rel=1e-6)


def test_frequencies_are_those_of_the_seed() -> None:
    X, y = labels_for("random", ROUNDS)
    rng = RoundRng(5)
    rng.begin()
    rng.at(1)
    first = draw(KERNEL, 2, 12, rng)
    for play in (lambda one: one.run(X, y), lambda one: play_all(one, X, y)):
        learner = learner_of(seed=5)
        play(learner)
        assert np.array_equal(learner.state()["space.drawn.frequencies"], first)
    other = learner_of(seed=6)
    other.run(X, y)
    assert not np.array_equal(other.state()["space.drawn.frequencies"], first)


@pytest.mark.parametrize("kernel", [KERNEL, Laplacian(sigma=2.0)], ids=["gaussian", "laplacian"])
def test_with_many_features_it_nears_kernel_aioli(kernel: Gaussian | Laplacian) -> None:
    X, y = labels_for("zeros", 200)
    spec = {"kind": "kernel-aioli", "config": {"kernel": kernel.model_dump()}}
    exact = create(spec, 2).run(X, y).values
    errors = {
        D: np.mean(
            [
                np.square(learner_of(seed, kernel=kernel.model_dump(), frequencies=D).run(X, y).values - exact).mean()
                for seed in range(4)
            ]
        )
        for D in (30, 480)
    }
    assert errors[480] < errors[30] / 4.0
    assert errors[480] < 0.05 * np.square(exact).mean()


def test_it_forecasts_before_its_first_round_and_restores() -> None:
    learner = learner_of()
    assert learner.predict(np.ones(2)).probability == 0.5
    again = restore(learner.spec, learner.state(), 2)
    X, y = labels_for("random", ROUNDS)
    assert np.array_equal(again.run(X, y).values, learner.run(X, y).values)
    probe = np.array([0.3, -0.2])
    assert restore(again.spec, again.state(), 2).predict(probe) == learner.predict(probe)


def test_an_input_whose_features_overflow_changes_nothing() -> None:
    learner = learner_of(kernel={"kind": "gaussian", "sigma": 1e-10})
    X, y = labels_for("random", ROUNDS)
    for rounds in (0, 20):
        learner.run(X[:rounds], y[:rounds])
        before = learner.state()
        for bad in (np.array([[0.0, 0.0], [1e150, 0.0]]), np.array([[1e150, 1e150], [-1e150, 0.0]])):
            with pytest.raises(DivergedError):
                learner.run(bad, np.ones(2))
        after = learner.state()
        assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("first", [[1e14, 0.0], [-1e30, 1e150]])
def test_a_first_input_that_is_nonsense_does_not_blur_the_others(first: list[float]) -> None:
    X, y = labels_for("random", ROUNDS)
    nonsense, plain = learner_of(), learner_of()
    nonsense.update(np.array(first), 1.0)
    plain.update(np.zeros(2), 1.0)
    assert not nonsense.state()["space.drawn.origin"][np.abs(first) > 1.0].any()
    # The features are those of the same seed; one round apart the forecasts are alike, not equal.
    assert np.corrcoef(nonsense.run(X, y).values, plain.run(X, y).values)[0, 1] > 0.8


def test_what_it_does_not_take() -> None:
    with pytest.raises(ConfigError, match="kernel"):
        learner_of(kernel={"kind": "linear"})
    with pytest.raises(ConfigError, match="frequencies"):
        learner_of(frequencies=0)
    with pytest.raises(ConfigError, match="median"):
        learner_of(kernel={"kind": "gaussian", "sigma": "median"})


def test_with_a_half_life_it_reports_no_bound_and_follows_a_drift() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (1500, 2))
    angle = np.arange(1500) / 100.0
    y = np.sign(np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1])
    late = {}
    for half_life in (None, 64):
        learner = learner_of(half_life=half_life)
        late[half_life] = learner.run(X, y).losses[750:].mean()
        assert ("bound" in learner.describe()) == (half_life is None)
    assert late[64] < 0.6 * late[None]
