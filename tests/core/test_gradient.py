"""The estimate of the gradient outer product against loops over its definition, true gradients, and its symmetries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core import create, gradient_outer_product
from okl_core.errors import ConfigError, DivergedError, NonFiniteError, OklError, ShapeError, StateError
from okl_core.metrics import gradient_outer_product as gradient
from okl_core.metrics.gradient_outer_product import Scales, slopes, stride
from okl_core.packing.learned_metric import learned_metric
from okl_core.types import F64
from tests.core.packing_streams import ball, full_metric
from tests.oracles import metric_packing as oracle


def samples(n: int, d: int, seed: int = 0) -> tuple[F64, F64]:
    rng = np.random.default_rng(seed)
    X = ball(n, d, rng)
    return X, np.sin(3.0 * X[:, 0] + X[:, -1]) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("chunk", [8, 1 << 15])
@pytest.mark.parametrize(("n", "d"), [(1, 2), (40, 1), (60, 2), (50, 5)])
def test_it_is_its_definition(n: int, d: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "CHUNK", chunk)
    X, y = samples(n, d)
    eps = 1.5 * n ** (-1.0 / (2.0 * (d + 1)))
    tau = 0.25 * eps**0.25
    published = 2.0 * d * math.log(2.0 * n)
    for kwargs, expected in [
        ({}, oracle.gradient_outer_product(X, y, eps, tau, 1)),
        ({"min_count": 4}, oracle.gradient_outer_product(X, y, eps, tau, 4)),
        ({"min_count": "published"}, oracle.gradient_outer_product(X, y, eps, tau, published)),
        ({"points": 9}, oracle.gradient_outer_product(X, y, eps, tau, 1, math.ceil(n / 9))),
        ({"bandwidth": 0.8}, oracle.gradient_outer_product(X, y, 0.8, 0.25 * 0.8**0.25, 1)),
        ({"bandwidth": 0.8, "difference_step": 0.3}, oracle.gradient_outer_product(X, y, 0.8, 0.3, 1)),
    ]:
        found = gradient_outer_product(X, y, **kwargs)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 * max(1.0, float(np.abs(expected).max())))
        assert (found == found.T).all()


def test_a_sample_at_the_end_of_a_ball_is_in_it() -> None:
    X, y = np.array([[0.0], [8.0]]), np.array([1.0, 2.0])
    values, is_supported = slopes(X.T, y, 1, range(2), Scales(bandwidth=1.0, difference_step=0.5, min_count=1.0))
    assert is_supported.all()
    assert values.tolist() == [0.0, 0.0]


def test_more_samples_than_there_are_never_suffice() -> None:
    X, y = samples(20, 2)
    assert gradient_outer_product(X, y, bandwidth=100.0, difference_step=1.0, min_count=20).any()
    for count in (21, 10**400):
        assert not gradient_outer_product(X, y, bandwidth=100.0, difference_step=1.0, min_count=count).any()


def test_the_published_count_leaves_nothing_where_one_finds_the_direction() -> None:
    X, y = samples(1022, 5)
    assert (gradient_outer_product(X, y, min_count="published", points=60) == 0.0).all()
    assert (np.diag(gradient_outer_product(X, y, points=60)) > 0.0).all()


@pytest.mark.parametrize(
    ("f", "grad"),
    [
        (lambda X, U: np.sin(3.0 * X @ U[0]), lambda X, U: 3.0 * np.cos(3.0 * X @ U[0])[:, None] * U[0]),
        (lambda X, U: 1.0 / (1.0 + np.exp(-4.0 * X @ U[0])), None),
        (
            lambda X, U: 0.5 * (X @ U[0]) ** 2 + X @ U[1],
            lambda X, U: (X @ U[0])[:, None] * U[0] + U[1],
        ),
    ],
    ids=["sine", "logistic", "quadratic"],
)
@pytest.mark.parametrize("d", [2, 4])
def test_it_finds_the_directions_of_true_gradients(
    f: Callable[[F64, F64], F64], grad: Callable[[F64, F64], F64] | None, d: int
) -> None:
    rng = np.random.default_rng(d)
    X, U = ball(2000, d, rng), np.linalg.qr(rng.standard_normal((d, d)))[0]
    y = f(X, U) + 0.02 * rng.standard_normal(len(X))
    found = np.linalg.eigh(gradient_outer_product(X, y, points=150))[1][:, -1]
    top = U[0]
    if grad is not None:
        V = grad(X, U)
        top = np.linalg.eigh(V.T @ V)[1][:, -1]
    assert abs(found @ top) > 0.99


def test_with_many_samples_it_nears_the_true_matrix() -> None:
    rng = np.random.default_rng(5)
    X = ball(20000, 2, rng)
    V = np.stack((3.0 * np.cos(3.0 * X[:, 0]), np.full(len(X), 0.5)), axis=1)
    y = np.sin(3.0 * X[:, 0]) + 0.5 * X[:, 1]
    true = V.T @ V / len(X)
    error = [
        np.linalg.norm(gradient_outer_product(X[:n], y[:n], points=300) - true, 2) / np.linalg.norm(true, 2)
        for n in (200, 2000, 20000)
    ]
    assert error[0] > error[1] > error[2]
    assert error[2] < 0.5


@given(
    axes=st.permutations(range(3)),
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3),
    shift=st.floats(-5.0, 5.0),
    scale=st.floats(0.1, 10.0),
)
@settings(max_examples=20, deadline=None)
def test_it_turns_with_the_axes_and_scales_with_the_truths(
    axes: list[int], signs: list[float], shift: float, scale: float
) -> None:
    X, y = samples(80, 3)
    G = gradient_outer_product(X, y)
    turned = gradient_outer_product(X[:, axes] * signs, shift + scale * y)
    expected = scale**2 * np.outer(signs, signs) * G[np.ix_(axes, axes)]
    np.testing.assert_allclose(turned, expected, rtol=0.0, atol=1e-9 * float(np.abs(expected).max()))


def test_no_ball_holds_more_samples_than_there_are() -> None:
    X, y = samples(40, 1)
    assert gradient_outer_product(X, y, min_count=4)[0, 0] > 0.0
    assert (gradient_outer_product(X, y, min_count=10**400) == 0.0).all()


def test_truths_that_are_all_the_same_have_no_slope_at_all() -> None:
    X, _ = samples(300, 3)
    assert (gradient_outer_product(X, np.full(300, 0.1)) == 0.0).all()


def test_a_slope_has_the_same_bits_in_every_company() -> None:
    X, y = samples(300, 6)
    at, every = Scales.of(300, 6), stride(300, 40)
    columns = np.ascontiguousarray(X.T)
    values, is_supported = slopes(columns, y, every, range(6 * 38), at)
    for size in (1, 4, 7, 50):
        parts = [slopes(columns, y, every, range(s, min(s + size, 6 * 38)), at) for s in range(0, 6 * 38, size)]
        assert (np.concatenate([part[0] for part in parts]) == values).all()
        assert (np.concatenate([part[1] for part in parts]) == is_supported).all()


@pytest.mark.parametrize(
    ("error", "X", "y", "kwargs"),
    [
        (ShapeError, np.ones(3), np.ones(3), {}),
        (ShapeError, np.empty((0, 2)), np.empty(0), {}),
        (ShapeError, np.ones((3, 2)), np.ones(2), {}),
        (NonFiniteError, np.full((3, 2), np.nan), np.ones(3), {}),
        (NonFiniteError, np.ones((3, 2)), np.array([1.0, np.inf, 1.0]), {}),
        (ConfigError, np.ones((3, 2)), np.ones(3), {"bandwidth": 0.0}),
        (ConfigError, np.ones((3, 2)), np.ones(3), {"difference_step": math.nan}),
        (ConfigError, np.ones((3, 2)), np.ones(3), {"min_count": 0}),
        (ConfigError, np.ones((3, 2)), np.ones(3), {"min_count": "printed"}),
        (ConfigError, np.ones((3, 2)), np.ones(3), {"points": 0}),
        (ConfigError, np.ones((3, 2)), np.ones(3), {"points": 0.5}),
        (DivergedError, np.eye(3), np.array([0.0, 1e200, 0.0]), {}),
        (DivergedError, np.eye(3), np.array([1.7e308, -1.7e308, 0.0]), {}),
    ],
)
def test_what_cannot_be_is_refused(error: type[OklError], X: F64, y: F64, kwargs: dict[str, Any]) -> None:
    with pytest.raises(error):
        gradient_outer_product(X, y, **kwargs)


def test_the_metric_of_a_learner() -> None:
    M = full_metric(3, np.random.default_rng(1))
    learner = create({"kind": "packing", "config": {"metric": (2.0 * M).tolist()}}, 3)
    np.testing.assert_allclose(learned_metric(learner), M, rtol=0.0, atol=1e-12)
    with pytest.raises(StateError, match="no metric"):
        learned_metric(create({"kind": "mean"}, 3))
