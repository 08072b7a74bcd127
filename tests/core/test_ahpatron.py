"""Ahpatron against its definition, and its halvings against what they are said to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create
from okl_core.errors import ConfigError, DivergedError
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.ahpatron.ahpatron_state import AhpatronConfig, AhpatronState
from okl_core.types import F64
from service.demo_data import magic
from tests.core.first_order_streams import FUNCTIONS, GAUSSIAN, QUADRATIC, stream
from tests.core.states import state_as
from tests.oracles.first_order import ahpatron

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "roomy": {"budget": 500},
    "smallest": {"budget": 2},
    "every margin": {"slack": 0.0, "ridge": 0.3},
    "quadratic": {"kernel": QUADRATIC, "budget": 12, "ridge": 0.1},
}


def make(config: dict[str, Any]) -> OnlineLearner:
    return create({"kind": "ahpatron", "config": {"kernel": GAUSSIAN, "budget": 20, **config}}, 2)


def state_of(learner: OnlineLearner) -> AhpatronState:
    return state_as(AhpatronState, learner)


def gram(state: AhpatronState) -> F64:
    return Gaussian(sigma=0.5).gram(state.points.coordinates())


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_definition(config: dict[str, Any]) -> None:
    parsed = AhpatronConfig.model_validate({"kernel": GAUSSIAN, "budget": 20, **config})
    X, y = stream(1, 260, "hinge")
    X[100:110] = X[:10]  # points that are there already
    learner = make(config)
    info = learner.run(X, y)
    options = {"B": parsed.budget, "slack": parsed.slack, "ridge": parsed.ridge}
    values, stored = ahpatron(X, y, FUNCTIONS[parsed.kernel.kind], **options)
    assert info.values == pytest.approx(values, abs=1e-9)
    state = state_of(learner)
    assert (state.halvings > 0) == (parsed.budget < 500)
    assert state.points.coordinates() == pytest.approx(np.array([s for s, _ in stored]), abs=1e-14)
    assert state.coefficients.view == pytest.approx(np.array([a for _, a in stored]), abs=1e-9)


def test_the_norm_is_that_of_the_function_and_bounded() -> None:
    X, y = stream(2, 300, "hinge")
    learner = make({"budget": 8})
    for x, truth in zip(X, y.tolist(), strict=True):
        learner.update(x, truth)
        state = state_of(learner)
        a = state.coefficients.view
        assert state.norm == pytest.approx(np.sqrt(max(a @ gram(state) @ a, 0.0)), abs=1e-7)
        assert state.norm <= np.sqrt(8.0) / 2.0
        assert len(state.points) <= 8
    assert state_of(learner).halvings > 5


def test_halving_is_the_ridge_projection_of_what_goes_at_the_norm_before() -> None:
    """Against least squares with the ridge as further rows, on a factor of the kernel matrix."""
    X, y = stream(3, 400, "hinge")
    learner = make({"ridge": 0.01})
    for x, truth in zip(X, y.tolist(), strict=True):
        before = state_of(learner)
        played = learner.play(x, truth)
        if (half := played.half) is not None:  # pyright: ignore[reportAttributeAccessIssue]
            a, K = before.coefficients.view, gram(before)
            kept = half.kept
            gone = [i for i in range(20) if i not in kept]
            assert np.abs(a[kept]).min() >= np.median(np.abs(a))
            Phi = np.linalg.cholesky(K + 1e-12 * np.eye(20))  # a row a point
            wide = np.vstack((Phi[kept].T, 0.1 * np.eye(10)))
            theta = np.linalg.lstsq(wide, np.append(Phi[gone].T @ a[gone], np.zeros(10)), rcond=None)[0]
            b = a[kept] + theta
            assert half.coefficients / np.linalg.norm(half.coefficients) == pytest.approx(
                b / np.linalg.norm(b), abs=1e-6
            )
            norm = np.sqrt(half.coefficients @ K[np.ix_(kept, kept)] @ half.coefficients)
            assert norm == pytest.approx(before.norm, abs=1e-9)
        learner.learn(played)
    assert state_of(learner).halvings > 3


def test_the_bound_is_that_of_the_theorem() -> None:
    X, y = stream(5, 200, "hinge")
    learner = make({"budget": 8, "ridge": 0.01})
    # U^2 / (2 lambda) with U^2 = B / 4 and lambda = 1/4; k(x, x) = 1.
    bound = 4.0
    for x, truth in zip(X, y.tolist(), strict=True):
        before = state_of(learner)
        played = learner.play(x, truth)
        if not played.is_learned:  # pyright: ignore[reportAttributeAccessIssue]
            bound += played.loss
        else:
            bound += 0.125
            if (half := played.half) is not None:  # pyright: ignore[reportAttributeAccessIssue]
                change = -before.coefficients.view
                change[half.kept] += half.coefficients
                row = Gaussian(sigma=0.5).row(before.points.coordinates(), x)
                bound += np.sqrt(2.0) / 0.25 * np.sqrt(change @ gram(before) @ change) + truth * (change @ row)
        learner.learn(played)
    assert state_of(learner).halvings > 5
    assert learner.describe()["bound"] == pytest.approx(bound, rel=1e-9)
    # A solve with K_II + eta I magnifies rounding by up to B / eta.
    assert learner.conditioning >= 8.0 / 0.01


def test_it_errs_as_published_on_magic() -> None:
    """The authors' program, with inputs in [0, 1]: 16.68 % over the whole set in one order."""
    X, y = magic()
    X = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    order = np.random.default_rng(0).permutation(len(X))
    learner = create({"kind": "ahpatron", "config": {"kernel": GAUSSIAN}}, X.shape[1])
    values = learner.run(X[order], y[order]).values
    assert np.mean(np.where(values >= 0.0, 1.0, -1.0) != y[order]) == pytest.approx(0.1660, abs=0.005)


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match="budget"):
        make({"budget": 7})
    learner = make({"kernel": QUADRATIC})
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.array([1e60, 0.0]), 1.0)
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


def test_a_dictionary_that_cannot_be_halved() -> None:
    learner = make({"kernel": QUADRATIC, "budget": 4, "ridge": 1e-8})
    X, y = stream(4, 60, "hinge")
    with pytest.raises(DivergedError, match="ridge"):
        learner.run(1e12 * X[:30].repeat(2, axis=0), y)
