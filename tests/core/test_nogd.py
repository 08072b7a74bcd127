"""NOGD against its definition, and what its embedding must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.errors import ConfigError, DivergedError
from okl_core.learners.nogd import NogdConfig, NogdState
from okl_core.losses import LOSSES
from tests.core.first_order_streams import FUNCTIONS, GAUSSIAN, QUADRATIC, stream
from tests.core.states import state_as
from tests.oracles.first_order import nogd
from tests.oracles.kernels import remembered

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "published": {"step_size": "horizon", "step_factor": 7.0, "horizon": 150, "buffer": "first"},
    "full rank": {"rank": 25, "step_size": 0.3},
    "logistic": {"loss": "logistic", "rank": 9},
    "squared hinge": {"loss": "squared-hinge", "step_size": 0.11},
    "squared": {"loss": "squared", "step_size": 0.21, "clip": None, "buffer": "first"},
    "squared, clipped": {"loss": "squared", "step_factor": 0.9, "clip": 0.8},
    "quadratic": {"kernel": QUADRATIC, "rank": 4, "step_size": 0.03},
}


def make(config: dict[str, Any]) -> OnlineLearner:
    return create({"kind": "nogd", "config": {"kernel": GAUSSIAN, "budget": 25, **config}}, 2)


def state_of(learner: OnlineLearner) -> NogdState:
    return state_as(NogdState, learner)


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_definition(config: dict[str, Any]) -> None:
    parsed = NogdConfig.model_validate({"kernel": GAUSSIAN, "budget": 25, **config})
    X, y = stream(1, 150, parsed.loss)
    learner = make(config)
    info = learner.run(X, y)
    values, points = nogd(
        X,
        y,
        remembered(FUNCTIONS[parsed.kernel.kind]),
        LOSSES[parsed.loss].derivative,
        parsed.eta,
        B=25,
        k=parsed.rank or 5,
        is_first=parsed.buffer == "first",
        C=parsed.forecast_bound,
    )
    assert info.values == pytest.approx(values, abs=1e-8)
    assert state_of(learner).points.coordinates() == pytest.approx(np.array(points), abs=1e-14)
    assert learner.describe()["phase"] == 2


def test_the_function_is_carried_over() -> None:
    """With full rank nothing is lost: the forecasts after the round that fills the buffer are the kernel sum's."""
    X, y = stream(2, 300, "hinge")
    learner = make({"rank": 25, "step_size": 0.3})
    for x, truth in zip(X, y.tolist(), strict=True):
        learner.update(x, truth)
        if learner.describe()["phase"] == 2:
            break
    state = state_of(learner)
    K = NogdConfig.model_validate({"kernel": GAUSSIAN}).kernel.block(state.points, X)
    forecasts = [learner.predict(x).value for x in X]
    assert forecasts == pytest.approx(state.coefficients.view @ K, abs=1e-9)


def test_signs_of_eigenvectors_do_not_matter() -> None:
    X, y = stream(3, 200, "hinge")
    learner = make({})
    learner.run(X[:100], y[:100])
    arrays = learner.state()
    signs = np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    arrays["P"] *= signs[:, None]
    arrays["w"] *= signs
    other = restore(learner.spec, arrays, 2)
    assert np.array_equal(learner.run(X[100:], y[100:]).values, other.run(X[100:], y[100:]).values)


def test_the_embedding_is_orthonormal_and_its_signs_are_fixed() -> None:
    X, y = stream(4, 150, "hinge")
    learner = make({"rank": 8})
    learner.run(X, y)
    state = state_of(learner)
    K = NogdConfig.model_validate({"kernel": GAUSSIAN}).kernel.gram(state.points.coordinates())
    products = state.P @ K @ state.P.T
    assert products == pytest.approx(np.eye(8), abs=1e-9)
    eigenvalues = np.linalg.eigvalsh(K)[::-1][:8]
    assert 1.0 / np.square(state.P).sum(axis=1) == pytest.approx(eigenvalues, rel=1e-9)
    assert (state.P[np.arange(8), np.abs(state.P).argmax(axis=1)] > 0.0).all()


def test_repeated_points_leave_their_eigenvalues_out() -> None:
    X, y = stream(5, 60, "hinge")
    X = X[np.arange(60) % 7]
    learner = make({"buffer": "first", "rank": 20})
    learner.run(X, y)
    assert learner.describe()["rank"] == 7
    assert np.isfinite(learner.run(X, y).values).all()


def test_kernel_values_that_underflow() -> None:
    X, y = stream(7, 60, "hinge")
    learner = make({"kernel": {"kind": "linear"}, "budget": 5})
    assert (np.abs(learner.run(2e-162 * X, y).values) < 1e-100).all()
    assert learner.describe()["phase"] == 2
    assert all(np.isfinite(array).all() for array in learner.state().values())


def test_a_replay_takes_the_recorded_rank() -> None:
    X, y = stream(6, 25, "hinge")
    learner = make({"buffer": "first", "budget": 6, "rank": 3})
    learner.run(X[:5], y[:5])
    played = learner.play(X[5], float(y[5]))
    assert played.choices == bytes([1, 3])
    learner.learn(learner.play(X[5], float(y[5]), choices=bytes([1, 2])))
    assert learner.describe()["rank"] == 2
    assert learner.state()["P"].shape == (2, 6)


def test_overflow_is_refused() -> None:
    learner = make({"kernel": QUADRATIC, "step_size": 1.0})
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.array([1e60, 0.0]), 1.0)
    with pytest.raises(DivergedError):
        learner.run(np.array([[0.1, 0.0], [1e60, 0.0]]), np.array([1.0, -1.0]))
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


def test_a_rank_above_the_budget_is_refused() -> None:
    with pytest.raises(ConfigError, match="rank"):
        make({"rank": 26})
