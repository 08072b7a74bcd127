"""BOGD against its definition, and its removals against what they are said to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError
from okl_core.first_order.in_blocks import BLOCK
from okl_core.learners.bogd import BogdConfig, BogdState
from okl_core.losses import LOSSES
from tests.core.first_order_streams import FUNCTIONS, GAUSSIAN, QUADRATIC, stream
from tests.core.states import state_as
from tests.oracles.first_order import bogd
from tests.oracles.kernels import remembered

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no removal": {"budget": 500},
    "plain": {"step_size": 0.31, "coefficient_bound": None},
    "cut": {"step_size": 0.5, "coefficient_bound": 0.4, "regularization": 0.1},
    "logistic": {"loss": "logistic", "step_factor": 2.0, "regularization": 0.2},
    "squared hinge": {"loss": "squared-hinge", "step_size": 0.11, "budget": 2},
    "squared": {"loss": "squared", "step_size": 0.21, "clip": None},
    "squared, clipped": {"loss": "squared", "step_size": "horizon", "step_factor": 0.9, "clip": 0.8},
    "quadratic": {"kernel": QUADRATIC, "step_size": 0.03},
}


def make(config: dict[str, Any], seed: int = 0) -> OnlineLearner:
    return create({"kind": "bogd", "seed": seed, "config": {"kernel": GAUSSIAN, "budget": 25, **config}}, 2)


def state_of(learner: OnlineLearner) -> BogdState:
    return state_as(BogdState, learner)


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_definition(config: dict[str, Any]) -> None:
    parsed = BogdConfig.model_validate({"kernel": GAUSSIAN, "budget": 25, **config})
    X, y = stream(1, BLOCK + 70, parsed.loss)
    learner = make(config, seed=4)
    info = learner.run(X, y)
    rng = RoundRng(4)

    def removed(t: int) -> int:
        rng.at(t)
        return int(parsed.budget * rng.uniform(1)[0])

    values, stored = bogd(
        X,
        y,
        remembered(FUNCTIONS[parsed.kernel.kind]),
        LOSSES[parsed.loss].derivative,
        parsed.eta,
        removed,
        B=parsed.budget,
        lambda_=parsed.regularization,
        c_max=parsed.coefficient_bound or np.inf,
        C=parsed.forecast_bound,
    )
    assert info.values == pytest.approx(values, abs=1e-9)
    state = state_of(learner)
    assert state.points.coordinates() == pytest.approx(np.array([s for s, _ in stored]), abs=1e-14)
    assert state.coefficients.view == pytest.approx(np.array([a for _, a in stored]), abs=1e-10)


def test_a_removal_changes_nothing_in_the_mean() -> None:
    X, y = stream(2, 120, "hinge")
    B, eta = 10, 0.3
    learner = make({"budget": B, "step_size": eta, "coefficient_bound": None})
    learner.run(X[:100], y[:100])
    x = X[100]
    truth = -1.0 if learner.predict(x).value >= 0.0 else 1.0
    probes = X[101:]
    before = np.array([learner.predict(probe).value for probe in probes])
    after = np.zeros(len(probes))
    for slot in range(B):
        branch = restore(learner.spec, learner.state(), 2)
        branch.learn(branch.play(x, truth, choices=bytes([1, slot])))
        after += np.array([branch.predict(probe).value for probe in probes]) / B
    step = eta * truth * np.array([FUNCTIONS["gaussian"](x, probe) for probe in probes])
    assert after == pytest.approx(before + step, abs=1e-12)


def test_every_slot_is_removed_as_often() -> None:
    X, y = stream(3, 4000, "logistic")
    learner = make({"loss": "logistic", "step_size": 0.1, "budget": 8})
    choices = learner.run(X, y).choices
    # The first byte of a round says that there is a loss, which the logistic one always has, the second what goes.
    slots = np.frombuffer(choices[8:], dtype=np.uint8)[1::2]
    assert len(slots) == 3992
    counts = np.bincount(slots, minlength=8)
    # The 0.999 quantile of chi-squared with 7 degrees of freedom is 24.3.
    assert ((counts - 499.0) ** 2 / 499.0).sum() < 24.3


def test_memory_stays_within_the_budget() -> None:
    X, y = stream(4, 1000, "hinge")
    learner = make({})
    learner.run(X, y)
    told = learner.describe()
    assert told["dictionary"] == 25
    assert told["removed"] > 100
    assert np.abs(state_of(learner).coefficients.view).max() <= 0.2


def test_overflow_is_refused() -> None:
    learner = make({"kernel": QUADRATIC, "step_size": 1.0})
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.array([1e60, 0.0]), 1.0)
    with pytest.raises(DivergedError):
        learner.run(np.array([[0.1, 0.0], [1e60, 0.0]]), np.array([1.0, -1.0]))
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())


def test_a_step_that_would_turn_the_function_around_is_refused() -> None:
    with pytest.raises(ConfigError, match="regularization"):
        make({"step_size": 2.0, "regularization": 0.6})
