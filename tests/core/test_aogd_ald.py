"""AOGD-ALD against its definition by dense solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create
from okl_core.errors import DivergedError
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.ald.aogd_ald_state import AogdAldConfig, AogdAldState
from tests.core.first_order_streams import FUNCTIONS, GAUSSIAN, QUADRATIC, stream
from tests.core.states import state_as
from tests.oracles.ald import aogd_ald

SETTINGS: dict[str, dict[str, Any]] = {
    "phase 1": {"threshold": 0.3, "dictionary_size": 100},
    "phase 2": {"horizon": 400, "dictionary_size": 9},
    "a small ball": {"norm_bound": 0.4, "dictionary_size": 12},
    "a large ball": {"norm_bound": 50.0, "threshold": 0.05},
    "budget": {"dictionary_size": 9, "budget": 30},
    "budget of the dictionary": {"dictionary_size": 20, "budget": 8, "norm_bound": 1.0},
    "one point": {"budget": 1},
}


def make(config: dict[str, Any]) -> OnlineLearner:
    return create({"kind": "aogd-ald", "config": {"kernel": GAUSSIAN, **config}}, 2)


def state_of(learner: OnlineLearner) -> AogdAldState:
    return state_as(AogdAldState, learner)


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_definition(config: dict[str, Any]) -> None:
    parsed = AogdAldConfig.model_validate({"kernel": GAUSSIAN, **config})
    X, y = stream(1, 220, "squared")
    learner = make(config)
    info = learner.run(X, y)
    values, points, a = aogd_ald(
        X,
        y,
        FUNCTIONS["gaussian"],
        threshold=parsed.threshold_at(1),
        U=parsed.norm_bound,
        B0=parsed.dictionary_at(1, 2),
        B=parsed.budget,
    )
    assert info.values == pytest.approx(values, abs=1e-10)
    state = state_of(learner)
    told = learner.describe()
    assert told["phase"] == (2 if parsed.dictionary_at(1, 2) <= 20 else 1)
    assert (told["dropped"] > 100) == ("budget" in config)
    order = np.roll(np.arange(len(points)), -state.oldest)
    assert state.points.coordinates()[order] == pytest.approx(X[points], abs=1e-14)
    assert state.coefficients.view[order] == pytest.approx(a, abs=1e-9)


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_the_norm_is_that_of_the_function_and_bounded(config: dict[str, Any]) -> None:
    X, y = stream(2, 150, "squared")
    learner = make(config)
    for x, truth in zip(X, 3.0 * y, strict=True):
        learner.update(x, float(truth))
        state = state_of(learner)
        a, K = state.coefficients.view, Gaussian(sigma=0.5).gram(state.points.coordinates())
        assert np.sqrt(state.norm2) == pytest.approx(np.sqrt(max(a @ K @ a, 0.0)), abs=1e-7)
        assert state.norm2 <= AogdAldConfig(**config).norm_bound ** 2


def test_a_projected_step_is_the_gradient_in_the_span() -> None:
    X, y = stream(3, 150, "squared")
    learner = make({"norm_bound": 20.0})
    projected = 0
    for x, truth in zip(X, y.tolist(), strict=True):
        before = state_of(learner)
        learner.update(x, truth)
        after = state_of(learner)
        if len(after.points) == len(before.points):
            projected += 1
            kernel = Gaussian(sigma=0.5)
            K, k = kernel.gram(before.points.coordinates()), kernel.row(before.points, x)
            beta = np.linalg.lstsq(K, k, rcond=None)[0]
            a = before.coefficients.view
            g = 2.0 * 20.0 / np.sqrt(after.gain) * (a @ k - truth)
            assert after.gain - before.gain == pytest.approx(4.0 * (a @ k - truth) ** 2 * (k @ beta), abs=1e-10)
            assert after.coefficients.view == pytest.approx(a - g * beta, abs=1e-9)
    assert projected > 100


def test_the_dictionary_balances_the_phases() -> None:
    """B0^2 + d B0 = d T."""
    for d, T in ((3, 200), (10, 5000), (1, 1)):
        B0 = AogdAldConfig(horizon=T, budget=10_000).dictionary_at(1, d)
        assert abs(B0 * B0 + d * B0 - d * T) <= 2 * B0 + d
    assert AogdAldConfig(horizon=200).dictionary_at(1, 3) == 23


def test_what_cannot_be() -> None:
    learner = make({"kernel": QUADRATIC})
    learner.run(np.array([[0.1, 0.0], [0.2, 0.0]]), np.array([0.5, -0.5]))
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.array([1e60, 0.0]), 1.0)
    with pytest.raises(DivergedError):
        learner.update(np.array([0.0, 0.0]), 1e160)
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())
