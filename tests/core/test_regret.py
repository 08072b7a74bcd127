"""The best function in hindsight against the ellipsoid method, closed forms, and its own certificate."""

from __future__ import annotations

import itertools
import math
from typing import cast

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.linalg import solve
from scipy.optimize import brentq

from okl_core.diagnostics.comparator import Comparator, best_in_hindsight, regret_curve
from okl_core.errors import ConfigError, LabelError, NonFiniteError, ShapeError
from okl_core.kernels.kernels import Gaussian, Kernel, Laplacian, Linear, Polynomial
from okl_core.losses import LOSSES, LossName
from okl_core.types import F64
from tests.oracles.hindsight import optimum

LOSS_NAMES = ("squared", "logistic", "hinge", "squared-hinge")

EVERY_LOSS = pytest.mark.parametrize("loss", LOSS_NAMES)

KERNELS: dict[str, Kernel] = {
    "gaussian": Gaussian(sigma=0.4),
    "laplacian": Laplacian(sigma=1.0),
    "linear": Linear(),
    "quadratic": Polynomial(degree=2),
}

CLASSES: list[dict[str, float]] = [
    {"regularization": 1.0},
    {"regularization": 0.01, "clip": 0.7},
    {"regularization": 0.1, "clip": 1.0},
    {"radius": 2.0},
    {"radius": 3.0, "clip": 0.7},
    {"regularization": 0.1, "radius": 1.0, "clip": 2.0},
    {"regularization": 1.0, "radius": 100.0, "clip": 100.0},
    {"clip": 1.0},
]


def stream(loss: LossName, n: int, seed: int = 0) -> tuple[F64, F64]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.4 * X[:, 1] + 0.4 * rng.standard_normal(n)
    return X, np.clip(y, -1.0, 1.0) if loss == "squared" else np.where(y >= 0.0, 1.0, -1.0)


CLASS_DEFAULTS = (("regularization", 0.0), ("radius", math.inf), ("clip", math.inf))


def assert_certified(
    best: Comparator, restricted: dict[str, float], relative: float = 1e-8, kappa: float = 1.0
) -> None:
    # Where nothing holds |f| it grows until values of n terms are known to n eps |f| sqrt(kappa); the objective has n.
    rounding = len(best.values) ** 2 * np.finfo(np.float64).eps * best.norm * math.sqrt(kappa)
    assert abs(best.gap) <= relative * max(1.0, best.objective) + rounding
    assert np.abs(best.values).max() <= restricted.get("clip", math.inf) * (1.0 + 1e-12)
    assert best.norm <= restricted.get("radius", math.inf) * (1.0 + 1e-12)


@pytest.mark.pairs
@pytest.mark.parametrize("restricted", CLASSES, ids=str)
@pytest.mark.parametrize("kernel", ["laplacian", "quadratic"])
@EVERY_LOSS
def test_it_is_what_the_ellipsoid_method_finds(loss: LossName, kernel: str, restricted: dict[str, float]) -> None:
    X, y = stream(loss, n=9)
    best = best_in_hindsight(KERNELS[kernel], X, y, loss, **restricted)
    assert_certified(best, restricted)
    bounds = [restricted.get(name, default) for name, default in CLASS_DEFAULTS]
    lower, upper = optimum(KERNELS[kernel].gram(X), y, LOSSES[loss], *bounds, tolerance=1e-7)
    assert lower - 1e-9 <= best.objective <= lower + 1e-6
    assert best.lower <= upper + 1e-9


@pytest.mark.pairs
@pytest.mark.parametrize("restricted", CLASSES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
@EVERY_LOSS
def test_it_is_certified(loss: LossName, kernel: str, restricted: dict[str, float]) -> None:
    X, y = stream(loss, n=150)
    X[50:60] = X[:10]
    best = best_in_hindsight(KERNELS[kernel], X, y, loss, **restricted)
    assert_certified(best, restricted, kappa=float(KERNELS[kernel].diag(X).max()))
    K = KERNELS[kernel].gram(X)
    if restricted.keys() != {"clip"}:
        # Where nothing holds |f| the coefficients grow until they cancel.
        np.testing.assert_allclose(K @ best.coefficients, best.values, rtol=0.0, atol=1e-7)
        assert best.coefficients @ K @ best.coefficients == pytest.approx(best.norm**2, rel=1e-6)
    np.testing.assert_array_equal(best.losses, LOSSES[loss].values(best.values, y))
    assert best.loss == best.losses.sum()


FLAT = Gaussian(sigma=9.0)
"""Its matrices are singular to rounding: the search may end early, and the gap that it leaves says so."""


@given(
    seed=st.integers(0, 2**32 - 1),
    loss=st.sampled_from(LOSS_NAMES),
    kernel=st.sampled_from([*KERNELS.values(), FLAT]),
    alpha=st.sampled_from([0.0, 1e-4, 0.1, 10.0]),
    U=st.sampled_from([0.02, 1.0, 30.0, math.inf]),
    C=st.sampled_from([0.1, 1.0, 5.0, math.inf]),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    n=st.integers(1, 40),
)
def test_no_function_is_below_the_certificate(
    seed: int, loss: LossName, kernel: Kernel, alpha: float, U: float, C: float, scale: float, n: int
) -> None:
    assume(alpha > 0.0 or math.isfinite(U) or math.isfinite(C))
    X, y = stream(loss, n, seed)
    X *= scale
    restricted = {"regularization": alpha, "radius": U, "clip": C}
    best = best_in_hindsight(kernel, X, y, loss, **restricted)
    if kernel is not FLAT:
        assert_certified(best, restricted, 1e-7, kappa=float(kernel.diag(X).max()))
    rng, K = np.random.default_rng(seed), kernel.gram(X)
    for size in (1e-3, 0.1, 10.0):
        # A small step off the optimum, then any function, shrunk until it belongs to the class.
        a = (best.coefficients if size < 1.0 else 0.0) + size * rng.standard_normal(n)
        v, norm = K @ a, math.sqrt(max(0.0, a @ K @ a))
        shrink = min(1.0, C / max(np.abs(v).max(), 1e-300), U / max(norm, 1e-300))
        objective = LOSSES[loss].values(shrink * v, y).sum() + 0.5 * alpha * (shrink * norm) ** 2
        # Where nothing holds |f| the coefficients cancel, and v is known to n eps |a|_1 of the largest k(x, x).
        rounding = n * np.finfo(np.float64).eps * shrink * np.abs(a).sum() * K.diagonal().max()
        steepest = 2.0 * (1.0 + np.abs(shrink * v).max())
        assert objective >= best.lower - 1e-7 * max(1.0, best.objective) - n * steepest * rounding


def test_without_bounds_the_squared_loss_is_ridge_regression() -> None:
    X, y = stream("squared", n=80)
    for alpha in (1e-3, 1.0, 50.0):
        best = best_in_hindsight(KERNELS["gaussian"], X, y, "squared", regularization=alpha)
        K = KERNELS["gaussian"].gram(X)
        a = np.linalg.solve(K + 0.5 * alpha * np.eye(80), y)
        np.testing.assert_allclose(best.values, K @ a, rtol=0.0, atol=1e-8)
        assert best.norm == pytest.approx(math.sqrt(a @ K @ a), rel=1e-8)
        assert best.objective == pytest.approx(0.5 * alpha * y @ a, rel=1e-10)


def test_in_a_ball_the_squared_loss_is_the_ridge_regression_that_ends_on_it() -> None:
    X, y = stream("squared", n=80)
    K = KERNELS["laplacian"].gram(X)

    def ridge(log_a: float) -> F64:
        return solve(K + math.exp(log_a) * np.eye(80), y)

    on_it = ridge(cast(float, brentq(lambda log_a: math.sqrt(ridge(log_a) @ K @ ridge(log_a)) - 2.0, -15.0, 15.0)))
    best = best_in_hindsight(KERNELS["laplacian"], X, y, "squared", radius=2.0, tolerance=1e-12)
    np.testing.assert_allclose(best.values, K @ on_it, rtol=0.0, atol=1e-6)


def test_a_kernel_that_separates_everything_reaches_the_bounds() -> None:
    X, y = stream("logistic", n=60)
    best = best_in_hindsight(Laplacian(sigma=0.3), X, y, "logistic", clip=2.0)
    np.testing.assert_allclose(best.values, 2.0 * y, rtol=0.0, atol=1e-6)


@EVERY_LOSS
def test_a_kernel_without_features_has_one_function(loss: LossName) -> None:
    y = stream(loss, n=5)[1]
    for restricted in ({"regularization": 1.0}, {"clip": 1.0}, {"radius": 1.0, "clip": 1.0}):
        best = best_in_hindsight(Linear(), np.zeros((5, 2)), y, loss, **restricted)
        assert best.norm == 0.0
        assert best.objective == pytest.approx(LOSSES[loss].values(np.zeros(5), y).sum())
        assert_certified(best, restricted)


def test_the_curve_is_the_running_sum() -> None:
    losses, others = np.array([1.0, 0.5, 2.0]), np.array([0.5, 0.5, 0.0])
    assert regret_curve(losses, others).tolist() == [0.5, 0.5, 2.5]
    with pytest.raises(ShapeError):
        regret_curve(losses, others[:2])


def test_what_cannot_be_solved_is_refused() -> None:
    X, y = stream("logistic", n=4)
    for restricted in ({}, {"regularization": -1.0}, {"clip": 0.0}, {"radius": -1.0}, {"regularization": math.nan}):
        with pytest.raises(ConfigError, match="must restrict"):
            best_in_hindsight(Linear(), X, y, "logistic", **restricted)
    for bad_X, bad_y in ((X, y[:3]), (X[0], y), (X[:0], y[:0])):
        with pytest.raises(ShapeError):
            best_in_hindsight(Linear(), bad_X, bad_y, "logistic", clip=1.0)
    with pytest.raises(ConfigError, match="unknown loss 'absolute'"):
        best_in_hindsight(Linear(), X, y, "absolute", clip=1.0)
    with pytest.raises(LabelError):
        best_in_hindsight(Linear(), X, 0.5 * y, "hinge", clip=1.0)
    for bad_X, bad_y in itertools.product((X, X * np.nan), (y, y * np.inf)):
        if bad_X is not X or bad_y is not y:
            with pytest.raises(NonFiniteError):
                best_in_hindsight(Linear(), bad_X, bad_y, "squared", clip=1.0)
