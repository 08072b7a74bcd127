"""NONS-ALD against its published form, with fresh eigenvectors at each new point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create
from okl_core.errors import DivergedError, LabelError
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.ald.nons_ald_state import NonsAldConfig, NonsAldState
from tests.core.first_order_streams import FUNCTIONS, GAUSSIAN, QUADRATIC, stream
from tests.core.states import state_as
from tests.oracles.ald import nons_ald

SETTINGS: dict[str, dict[str, Any]] = {
    "textbook": {},
    "shipped": {"step": "shipped"},
    "clipped": {"clip": 0.3},
    "clipped, shipped": {"clip": 0.3, "step": "shipped"},
    "few points": {"horizon": 100},
    "many points": {"threshold": 0.02, "regularization": 0.2},
    "half-life": {"half_life": 9},
    "half-life, clipped, shipped": {"half_life": 40, "clip": 0.3, "step": "shipped"},
}


def make(config: dict[str, Any]) -> OnlineLearner:
    return create({"kind": "nons-ald", "config": {"kernel": GAUSSIAN, **config}}, 2)


def state_of(learner: OnlineLearner) -> NonsAldState:
    return state_as(NonsAldState, learner)


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_definition(config: dict[str, Any]) -> None:
    parsed = NonsAldConfig.model_validate({"kernel": GAUSSIAN, **config})
    X, y = stream(1, 250, "squared")
    C = parsed.clip
    # Sudden changes between the ends: forecasts that pass C.
    y = C * np.sign(y) if C < 1.0 else y
    learner = make(config)
    info = learner.run(X, y)
    values, points = nons_ald(
        X,
        y,
        FUNCTIONS["gaussian"],
        threshold=parsed.threshold_at(1) ** 2,
        C=C,
        mu=parsed.regularization,
        eta=parsed.eta,
        is_shipped=parsed.step == "shipped",
        half_life=parsed.forgetting.rounds,
    )
    assert ("bound_gradient" in learner.describe()) == (parsed.half_life is None)
    assert info.values == pytest.approx(values, abs=1e-10)
    if C < 1.0:
        assert 20 < np.count_nonzero(np.abs(info.values) == C) < 230
    assert 5 < len(points) < 250
    assert state_of(learner).points.coordinates() == pytest.approx(X[points], abs=1e-14)


def test_a_round_that_stores_its_point_is_a_newton_step_in_the_larger_basis() -> None:
    X, y = stream(2, 120, "squared")
    learner = make({"clip": 5.0})  # no forecast is clipped
    grown = 0
    for x, truth in zip(X, y.tolist(), strict=True):
        before = state_of(learner)
        learner.update(x, truth)
        after = state_of(learner)
        if len(before.L) and len(after.L) > len(before.L):
            grown += 1
            z = np.append(before.L.solve(Gaussian(sigma=0.5).row(before.points, x)), after.L.diagonal()[-1])
            assert z @ z == pytest.approx(1.0, abs=1e-12)
            P = np.eye(len(z))
            P[:-1, :-1] = before.posterior.P.full()
            g = 2.0 * (np.append(before.posterior.u, 0.0) @ z - truth)
            A = np.linalg.inv(P) + g * g / 200.0 * np.outer(z, z)
            assert after.posterior.P.full() == pytest.approx(np.linalg.inv(A), abs=1e-12)
            step = after.posterior.u - np.append(before.posterior.u, 0.0)
            assert step == pytest.approx(-g * np.linalg.solve(A, z), abs=1e-12)
    assert grown > 5


def test_the_steps_are_within_the_curvature_of_the_loss() -> None:
    """(1/2) eta g^2 (a - value)^2 is below the loss, for every forecast, truth and a in [-C, C]."""
    for C in (0.3, 1.0, 7.0):
        eta = NonsAldConfig(clip=C).eta
        a, value, y = np.meshgrid(*[np.linspace(-C, C, 21)] * 3)
        g = 2.0 * (value - y)
        tangent = (value - y) ** 2 + g * (a - value)
        assert ((a - y) ** 2 >= tangent + 0.5 * eta * g**2 * (a - value) ** 2 - 1e-12 * C * C).all()


def test_the_budget_is_kept_and_learning_goes_on() -> None:
    X, y = stream(3, 400, "squared")
    learner = make({"budget": 7, "threshold": 0.1})
    info = learner.run(X, y)
    told = learner.describe()
    assert told["dictionary"] == 7
    assert told["bytes"] < 40_000
    assert info.losses[200:].mean() < 0.6 * np.mean(y[200:] ** 2)


def test_an_input_without_a_length_is_not_the_first_point() -> None:
    learner = create({"kind": "nons-ald", "config": {"kernel": {"kind": "linear"}}}, 2)
    learner.update(np.zeros(2), 0.5)
    assert learner.describe()["dictionary"] == 0
    learner.update(np.ones(2), 0.5)
    assert learner.describe()["dictionary"] == 1


def test_what_cannot_be() -> None:
    learner = make({"kernel": QUADRATIC})
    learner.run(np.array([[0.1, 0.0], [0.2, 0.0]]), np.array([0.5, -0.5]))
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.array([1e60, 0.0]), 1.0)
    with pytest.raises(LabelError):
        learner.update(np.array([0.0, 0.0]), 1.5)
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())
