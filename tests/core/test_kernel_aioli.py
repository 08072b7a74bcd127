"""Kernel AIOLI against a minimisation of its objective, its regret bound, and the sums that it reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create
from okl_core.diagnostics.comparator import best_in_hindsight
from okl_core.kernels.kernels import Gaussian, Kernel, Linear
from tests.core.improper_streams import NAMES, SETTINGS, expected, labels_for
from tests.core.newton_streams import play_all
from tests.oracles.improper import coordinates

ROUNDS = 60
KERNELS: dict[str, Kernel] = {"gaussian": Gaussian(sigma=0.5), "linear": Linear()}


def learner_of(kernel: Kernel, **config: Any) -> OnlineLearner:
    return create({"kind": "kernel-aioli", "config": {"kernel": kernel.model_dump()} | config}, 2)


@pytest.mark.pairs
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_forecast_minimises_the_objective(kernel: Kernel, config: dict[str, Any], name: str) -> None:
    X, y = labels_for(name, ROUNDS)
    if kernel == Linear():
        X = 3.0 * X
    K = kernel.gram(X)
    Phi = X if kernel == Linear() else coordinates(K)
    oracle = expected(config, Phi, np.sqrt(K.diagonal()), y)
    learner = learner_of(kernel, **config)
    values, _ = play_all(learner, X, y)
    np.testing.assert_allclose(values, oracle.values, rtol=1e-7, atol=1e-7)
    info = learner_of(kernel, **config).run(X, y)
    np.testing.assert_allclose(info.values, oracle.values, rtol=1e-7, atol=1e-7)
    assert info.probabilities is not None
    np.testing.assert_allclose(info.probabilities, 1.0 / (1.0 + np.exp(-np.array(oracle.values))), atol=1e-7)

    told = learner.describe()
    w = np.sqrt(oracle.weights)
    lam = config.get("regularization", config.get("comparator_norm", 10.0) ** -2)
    log_det = np.linalg.slogdet(np.eye(ROUNDS) + w[:, None] * K * w / (2.0 * lam))[1]
    assert told["log_det"] == pytest.approx(log_det, rel=1e-7)
    assert told["loss"] == pytest.approx(sum(oracle.losses), rel=1e-7)
    assert told["bound"] == pytest.approx(sum(oracle.terms), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_with_the_linear_kernel_it_is_aioli(config: dict[str, Any], name: str) -> None:
    X, y = labels_for(name, 300)
    given = {"comparator_norm": 10.0, "intercept": False} | config
    linear = create({"kind": "aioli", "config": given}, 2)
    learner = learner_of(Linear(), **config)
    np.testing.assert_allclose(learner.run(X, y).values, linear.run(X, y).values, rtol=1e-9, atol=1e-9)
    told, of_linear = learner.describe(), linear.describe()
    for number in ("loss", "log_det", "bound"):
        assert told[number] == pytest.approx(of_linear[number], rel=1e-9)


def test_the_streams_make_it_sure_of_the_wrong_label() -> None:
    X, y = labels_for("adversarial", ROUNDS)
    values = learner_of(Linear(), **SETTINGS["trusting"]).run(3.0 * X, y).values
    assert (y * values).max() > 20.0
    assert (y * values).min() < -5.0


@pytest.mark.parametrize("name", ["random", "flips", "repeated"])
@pytest.mark.parametrize("B", [1.0, 10.0])
@pytest.mark.parametrize("curvature", ["paper", "half", "exact"])
def test_the_regret_stays_within_its_bound(name: str, B: float, curvature: str) -> None:
    X, y = labels_for(name, 400)
    kernel = KERNELS["gaussian"]
    learner = learner_of(kernel, comparator_norm=B, curvature=curvature)
    learner.run(X, y)
    told = learner.describe()
    best = best_in_hindsight(kernel, X, y, "logistic", regularization=2.0 / B**2, radius=B)
    assert best.norm <= B * (1.0 + 1e-9)
    kappa = 1.0 + B if curvature == "paper" else 1.0 + 0.5 * B
    assert told["loss"] - best.lower <= told["bound"] <= kappa * told["log_det"]


def test_the_bound_is_not_idle() -> None:
    # Labels that the best function cannot tell either: what regret there is comes from the learning.
    X = np.zeros((2000, 2))
    y = np.where(np.random.default_rng(0).random(2000) < 0.9, 1.0, -1.0)
    learner = learner_of(KERNELS["gaussian"], comparator_norm=3.0)
    learner.run(X, y)
    told = learner.describe()
    best = best_in_hindsight(KERNELS["gaussian"], X, y, "logistic", regularization=2.0 / 9.0, radius=3.0)
    regret = told["loss"] - best.lower
    assert 0.1 * told["bound"] < regret <= told["bound"]


def test_with_a_window_it_reports_no_bound_and_follows_a_drift() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (1500, 2))
    angle = np.arange(1500) / 100.0
    y = np.sign(np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1])
    late = {}
    for window in (None, 100):
        learner = learner_of(KERNELS["gaussian"], window=window)
        late[window] = learner.run(X, y).losses[750:].mean()
        assert ("bound" in learner.describe()) == (window is None)
    assert late[100] < 0.6 * late[None]
