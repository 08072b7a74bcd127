"""AIOLI on a dictionary against a minimisation of its objective on the features as each round had them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create
from okl_core.kernels.kernels import Gaussian, Kernel, Linear
from okl_core.second_order.nystrom_space import NystromRound
from okl_core.second_order.second_order import SecondOrderRound
from okl_core.types import F64
from tests.core.improper_streams import NAMES, SETTINGS, expected, labels_for

ROUNDS = 60
KERNEL = Gaussian(sigma=0.5)


def learner_of(kind: str = "nystrom-aioli", kernel: Kernel = KERNEL, **config: Any) -> OnlineLearner:
    return create({"kind": kind, "config": {"kernel": kernel.model_dump()} | config}, 2)


def features(learner: OnlineLearner, X: F64, y: F64) -> tuple[F64, F64]:
    """The forecasts, and the features of every round: coordinates of points that were kept later are 0."""
    values, Phi = np.empty(len(y)), np.zeros((len(y), len(y)))
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        played = learner.play(x, truth)
        assert isinstance(played, SecondOrderRound)
        assert isinstance(played.turn, NystromRound)
        values[t] = played.forecast.value
        Phi[t, : len(played.turn.phi)] = played.turn.phi
        learner.learn(played)
    return values, Phi


@pytest.mark.each
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dictionary", [{"kind": "kors", "regularization": 0.3}, {"kind": "ald", "threshold": 0.2}])
def test_every_forecast_minimises_the_objective_on_its_features(
    dictionary: dict[str, Any], config: dict[str, Any], name: str
) -> None:
    X, y = labels_for(name, ROUNDS)
    given = config | {"dictionary": dictionary, "budget": 12}
    learner = learner_of(**given)
    values, Phi = features(learner, X, y)
    told = learner.describe()
    assert 2 < told["dictionary"] <= 12
    oracle = expected(config, Phi, np.ones(ROUNDS), y)
    np.testing.assert_allclose(values, oracle.values, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(learner_of(**given).run(X, y).values, oracle.values, rtol=1e-7, atol=1e-7)
    assert told["loss"] == pytest.approx(sum(oracle.losses), rel=1e-7)
    assert told["bound"] == pytest.approx(sum(oracle.terms), rel=1e-6)


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kernel", [KERNEL, Linear()], ids=["gaussian", "linear"])
def test_once_the_dictionary_spans_what_comes_it_is_kernel_aioli(kernel: Kernel, config: dict[str, Any]) -> None:
    # The first points are orthogonal: each is kept, and its own round, which its coordinate has no part in, teaches nothing.
    first = np.eye(2) if kernel == Linear() else 10.0 * np.arange(8.0)[:, None] * np.ones(2)
    X, y = labels_for("random", 60)
    if kernel == KERNEL:
        X = first[np.random.default_rng(0).integers(0, len(first), 60)]
    learner = learner_of(kernel=kernel, dictionary={"kind": "ald", "threshold": 1e-3}, budget=None, **config)
    learner.run(first, np.ones(len(first)))
    values = learner.run(X, y).values
    assert learner.describe()["dictionary"] == len(first)
    exact = learner_of("kernel-aioli", kernel, **config).run(X, y).values
    assert np.abs(exact).max() > 0.5
    np.testing.assert_allclose(values, exact, atol=1e-9)


@pytest.mark.parametrize("forgetting", [{"half_life": 16}, {"carry": "reset"}])
def test_what_no_longer_holds_is_not_told(forgetting: dict[str, Any]) -> None:
    learner = learner_of(**forgetting)
    learner.run(*labels_for("random", 100))
    assert not {"bound", "log_det"} & set(learner.describe())
