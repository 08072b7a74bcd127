"""The Nystrom forms of ridge regression and of the AAR against least squares on the features as each round had them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import Gaussian, OnlineLearner, create
from okl_core.second_order.nystrom_space import NystromRound
from okl_core.second_order.second_order import SecondOrderRound
from okl_core.types import F64

KERNEL = Gaussian(sigma=0.25)
A = 0.3
ROUNDS = 250


def learner_of(kind: str, **config: Any) -> OnlineLearner:
    return create({"kind": kind, "config": {"kernel": KERNEL.model_dump(), "regularization": A} | config}, 2)


def stream() -> tuple[F64, F64]:
    rng = np.random.default_rng(2)
    X = rng.uniform(0.0, 1.0, (ROUNDS, 2))
    return X, np.sin(7.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(ROUNDS)


def features(learner: OnlineLearner, X: F64, y: F64) -> tuple[F64, F64]:
    """The forecasts, and the features of every round: coordinates of points that were kept later are 0."""
    values, kept = np.empty(ROUNDS), []
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        played = learner.play(x, truth)
        assert isinstance(played, SecondOrderRound)
        assert isinstance(played.turn, NystromRound)
        values[t] = played.forecast.value
        if played.turn.growth is not None:
            kept.append(t)
        learner.learn(played)
    L = np.linalg.cholesky(KERNEL.gram(X[kept]))
    Phi = np.linalg.solve(L, KERNEL.block(X[kept], X)).T
    return values, np.where(np.arange(ROUNDS)[:, None] > np.array(kept), Phi, 0.0)


@pytest.mark.parametrize("kind", ["nystrom-ridge", "nystrom-aar"])
@pytest.mark.parametrize("clip", [None, 2.5])
def test_it_is_least_squares_on_the_features(kind: str, clip: float | None) -> None:
    X, y = stream()
    learner = learner_of(kind, clip=clip)
    values, Phi = features(learner, X, y)
    assert 30 < learner.describe()["dictionary"] < ROUNDS
    expected = np.empty(ROUNDS)
    for t, phi in enumerate(Phi):
        P = np.linalg.inv(A * np.eye(Phi.shape[1]) + Phi[:t].T @ Phi[:t])
        m, q = phi @ P @ Phi[:t].T @ y[:t], phi @ P @ phi
        expected[t] = m if kind == "nystrom-ridge" else m / (1.0 + q)
    if clip is not None:
        expected = np.clip(expected, -clip, clip)
    assert np.abs(values - expected).max() < 1e-9
    assert np.abs(learner_of(kind, clip=clip).run(X, y).values - expected).max() < 1e-9

    told = learner.describe()
    best = np.linalg.solve(A * np.eye(Phi.shape[1]) + Phi.T @ Phi, Phi.T @ y)
    assert told["comparator_loss"] == pytest.approx(((y - Phi @ best) ** 2).sum() + A * best @ best, rel=1e-9)
    assert told["log_det"] == pytest.approx(np.linalg.slogdet(np.eye(Phi.shape[1]) + Phi.T @ Phi / A)[1], rel=1e-9)
    if "bound" in told:
        assert told["loss"] <= told["comparator_loss"] + told["bound"]
    assert ("bound" in told) == (kind == "nystrom-aar" or clip is not None)


@pytest.mark.parametrize("forgetting", [{"half_life": 64}, {"carry": "reset"}])
def test_what_no_longer_holds_is_not_told(forgetting: dict[str, Any]) -> None:
    learner = learner_of("nystrom-ridge", clip=3.0, **forgetting)
    learner.run(*stream())
    assert not {"comparator_loss", "bound"} & set(learner.describe())
