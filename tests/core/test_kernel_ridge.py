"""Kernel ridge regression and the AAR against their dense definitions, an exact identity, and their loss bounds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core import Gaussian, OnlineLearner, create
from okl_core.errors import ConfigError, DivergedError, LabelError
from okl_core.types import F64
from tests.core.newton_streams import STREAMS, play_all

KINDS = ("kernel-ridge", "kernel-aar")
KERNEL = Gaussian(sigma=0.5)
A = 0.2


def learner_of(kind: str, **config: Any) -> OnlineLearner:
    return create({"kind": kind, "config": {"kernel": KERNEL.model_dump(), "regularization": A} | config}, 2)


def stream_of(name: str, n: int = 120, Y: float = 1.0) -> tuple[F64, F64]:
    return STREAMS[name](np.random.default_rng(3), n, Y)


def ridge(K: F64, y: F64, t: int) -> float:
    """gamma_t of [zhdanov2013], t from 0."""
    return float(K[t, :t] @ np.linalg.solve(K[:t, :t] + A * np.eye(t), y[:t]))


def aggregating(K: F64, y: F64, t: int) -> float:
    """The AAR of [vovk2001]: ridge regression that has the input of round t already, with the truth 0."""
    past = np.append(y[:t], 0.0)
    return float(K[t, : t + 1] @ np.linalg.solve(K[: t + 1, : t + 1] + A * np.eye(t + 1), past))


def best_in_hindsight(K: F64, y: F64) -> float:
    """min_f sum (y - f(x))^2 + a |f|^2 over f = sum_i theta_i k(x_i, .), by its normal equations."""
    theta = np.linalg.lstsq(np.vstack((K, np.sqrt(A) * _root(K))), np.concatenate((y, np.zeros(len(y)))), rcond=None)[0]
    return float(((y - K @ theta) ** 2).sum() + A * theta @ K @ theta)


def _root(K: F64) -> F64:
    values, vectors = np.linalg.eigh(K)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_its_definition(kind: str, stream: str) -> None:
    X, y = stream_of(stream)
    K = KERNEL.gram(X)
    definition = ridge if kind == "kernel-ridge" else aggregating
    expected = [definition(K, y, t) for t in range(len(y))]
    values, _ = play_all(learner_of(kind), X, y)
    np.testing.assert_allclose(values, expected, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(learner_of(kind).run(X, y).values, expected, rtol=0.0, atol=1e-9)
    clipped = learner_of(kind, clip=1.0).run(X, y).values
    np.testing.assert_allclose(clipped, np.clip(expected, -1.0, 1.0), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_the_best_function_in_hindsight_is_known(kind: str, clip: float | None, stream: str) -> None:
    X, y = stream_of(stream)
    K = KERNEL.gram(X)
    learner = learner_of(kind, clip=clip)
    total = 0.0
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        total += learner.update(x, truth).loss
        if t % 20 == 0:
            seen = learner.describe()
            assert seen["loss"] == pytest.approx(total, rel=1e-12)
            assert seen["comparator_loss"] == pytest.approx(best_in_hindsight(K[:t, :t], y[:t]), rel=1e-8)
            closed_form = A * y[:t] @ np.linalg.solve(K[:t, :t] + A * np.eye(t), y[:t])
            assert seen["comparator_loss"] == pytest.approx(closed_form, rel=1e-9)
            assert seen["log_det"] == pytest.approx(np.linalg.slogdet(np.eye(t) + K[:t, :t] / A)[1], rel=1e-9)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("kind", "clip"), [("kernel-ridge", 2.0), ("kernel-aar", None), ("kernel-aar", 2.0)])
def test_the_loss_stays_within_its_bound(kind: str, clip: float | None, stream: str) -> None:
    X, y = stream_of(stream, 300, 2.0)
    learner = learner_of(kind, clip=clip)
    learner.run(X, y)
    seen = learner.describe()
    Y2 = 4.0 * 2.0**2 if kind == "kernel-ridge" else np.abs(y).max() ** 2
    assert seen["bound"] == pytest.approx(Y2 * seen["log_det"])
    assert seen["loss"] - seen["comparator_loss"] <= seen["bound"]


def test_the_bound_of_the_aar_is_nearly_reached() -> None:
    # Against the truth that the forecast misses by most, each round at one input: no constant below Y^2 would do.
    learner = learner_of("kernel-aar")
    x = np.zeros(2)
    for _ in range(700):
        learner.update(x, -1.0 if learner.predict(x).value >= 0.0 else 1.0)
    seen = learner.describe()
    assert 0.8 * seen["bound"] <= seen["loss"] - seen["comparator_loss"] <= seen["bound"]


def test_ridge_regression_without_a_clip_promises_no_bound() -> None:
    assert "bound" not in learner_of("kernel-ridge").describe()


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3), kind=st.sampled_from(KINDS))
@settings(max_examples=20, deadline=None)
def test_forecasts_scale_with_the_truths_and_ignore_the_order(seed: int, scale: float, kind: str) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(-1, 1, (40, 2)), rng.normal(size=40)
    first, second = learner_of(kind), learner_of(kind)
    first.run(X, y)
    order = rng.permutation(40)
    second.run(X[order], scale * y[order])
    probe = rng.uniform(-1, 1, 2)
    assert second.predict(probe).value == pytest.approx(scale * first.predict(probe).value, rel=1e-9, abs=1e-9 * scale)


@pytest.mark.parametrize("kind", KINDS)
def test_truths_beyond_the_clip_are_refused(kind: str) -> None:
    learner = learner_of(kind, clip=0.5)
    assert np.abs(learner.run(np.zeros((50, 2)), np.full(50, 0.5)).values).max() <= 0.5
    with pytest.raises(LabelError, match=re.escape("from -0.5 to 0.5 (widen `clip`")):
        learner.update(np.zeros(2), 0.6)
    learner_of(kind).update(np.zeros(2), 1e6)
    with pytest.raises(ConfigError, match="clip"):
        learner_of(kind, clip=0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("truth", [1e200, -1e155, 1e150])
def test_an_overflow_changes_nothing(kind: str, truth: float) -> None:
    learner = learner_of(kind)
    X, y = stream_of("random", 10)
    learner.run(X, y)
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.update(np.ones(2), truth)
    with pytest.raises(DivergedError):
        learner.run(X[:3], np.array([0.5, truth, 0.1]))
    after = learner.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    learner.update(np.ones(2), 1.0)
