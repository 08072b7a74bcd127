"""FOGD against its definition, its regret bound, and the corners of its inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError
from okl_core.kernels.fourier import draw
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.fogd import BLOCK, FogdConfig
from okl_core.losses import LOSSES
from tests.core.first_order_streams import GAUSSIAN, stream
from tests.oracles.first_order import fogd

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "published": {"step_size": "horizon", "step_factor": 7.0, "horizon": 120},
    "laplacian": {"kernel": {"kind": "laplacian"}, "step_size": 0.37},
    "matern": {"kernel": {"kind": "matern", "nu": 2.5}, "loss": "logistic"},
    "squared hinge": {"loss": "squared-hinge", "step_size": 0.11},
    "squared": {"loss": "squared", "step_size": 0.21, "clip": None},
    "squared, clipped": {"loss": "squared", "step_factor": 0.9, "clip": 0.8},
}


def make(config: dict[str, Any], seed: int = 0) -> OnlineLearner:
    return create({"kind": "fogd", "seed": seed, "config": {"kernel": GAUSSIAN, "frequencies": 30, **config}}, 2)


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_definition(config: dict[str, Any]) -> None:
    parsed = FogdConfig.model_validate({"kernel": GAUSSIAN, **config})
    X, y = stream(1, 120, parsed.loss)
    learner = make(config)
    info = learner.run(X, y)
    state = learner.state()
    C = parsed.forecast_bound
    omega = 2.0 * math.pi * state["frequencies"]
    values, w = fogd(X, y, omega, LOSSES[parsed.loss].derivative, parsed.eta, C)
    assert info.values == pytest.approx(values, abs=1e-10)
    assert state["w"] == pytest.approx(w, abs=1e-10)


def test_frequencies_are_those_of_the_seed() -> None:
    X, y = stream(0, 3 * BLOCK, "hinge")
    rng = RoundRng(5)
    rng.begin()
    rng.at(1)
    expected = draw(Gaussian(sigma=0.5), 2, 30, rng)
    learner = make({}, seed=5)
    learner.run(X, y)
    assert np.array_equal(learner.state()["frequencies"], expected)
    other = make({}, seed=6)
    other.run(X, y)
    assert not np.array_equal(other.state()["frequencies"], expected)


def test_inputs_far_from_zero_are_as_good() -> None:
    X, y = stream(2, 200, "hinge")
    X = np.round(X * 2.0**20) / 2.0**20
    near, far = make({}), make({})
    assert np.array_equal(near.run(X, y).values, far.run(X + 2.0**30, y).values)


def test_regret_is_within_the_bound() -> None:
    X, y = stream(3, 600, "hinge")
    eta = 0.25
    learner = make({"step_size": eta})
    losses = learner.run(X, y).losses
    # A comparator from a second pass with shrinking steps, and its regret bound; it should be far from trivial.
    second = make({"step_size": eta})
    second.run(np.tile(X, (4, 1)), np.tile(y, 4))
    v = second.state()["w"]
    probe = restore(second.spec, second.state(), 2)
    comparator = sum(max(0.0, 1.0 - t * probe.predict(x).value) for x, t in zip(X, y.tolist(), strict=True))
    g = losses > 0.0
    bound = v @ v / (2.0 * eta) + 0.5 * eta * g.sum()
    assert losses.sum() - comparator <= bound
    assert comparator < 0.8 * losses.sum()


def test_a_run_that_overflows_keeps_the_blocks_before() -> None:
    X, y = stream(4, 3 * BLOCK, "squared")
    config = {"loss": "squared", "step_size": 30.0, "clip": None}
    learner, expected = make(config), make(config)
    with pytest.raises(DivergedError):
        learner.run(X, y)
    t = learner.t
    assert t in (BLOCK, 2 * BLOCK)
    expected.run(X[:t], y[:t])
    assert all(np.array_equal(expected.state()[name], array) for name, array in learner.state().items())


def test_an_overflow_is_refused_before_anything_changes() -> None:
    X, y = stream(4, 2, "squared")
    learner = make({"loss": "squared", "step_size": 1e149, "clip": None})
    learner.update(X[0], 0.5)
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(X[1], float(y[1]))
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())
    learner = make({"kernel": {"kind": "gaussian", "sigma": 1e-150}})
    learner.update(np.zeros(2), 1.0)
    with pytest.raises(DivergedError):
        learner.update(1e50 * X[1], 1.0)
    with pytest.raises(DivergedError):
        learner.predict(1e50 * X[1])
    assert learner.t == 1


def test_kernels_without_frequencies_are_refused() -> None:
    with pytest.raises(ConfigError, match="kernel"):
        make({"kernel": {"kind": "linear"}})
    with pytest.raises(ConfigError, match="median"):
        make({"kernel": {"kind": "gaussian", "sigma": "median"}})
