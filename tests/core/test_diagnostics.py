"""Effective dimensions against their definitions; regret bounds against measured regrets and against each other."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import create, diagnostics
from okl_core.errors import ConfigError, NotPositiveDefiniteError, ShapeError
from okl_core.kernels.kernels import Gaussian, Kernel, Linear, Polynomial
from okl_core.losses import LOSSES, LossName
from okl_core.types import F64
from tests.core.newton_streams import METHODS, STREAMS, stream_for

GAUSSIAN = Gaussian(sigma=0.5)

FUNCTIONS = [
    diagnostics.leverage_scores,
    diagnostics.online_leverage_scores,
    diagnostics.effective_dimension,
    diagnostics.effective_dimensions,
    diagnostics.online_effective_dimension,
    diagnostics.log_det,
]


def gram(seed: int, n: int, kernel: Kernel) -> F64:
    return kernel.gram(np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 2)))


matrices = st.builds(
    gram, st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([GAUSSIAN, Linear(), Polynomial(degree=3)])
)
regularizations = st.floats(1e-3, 1e3)


@given(K=matrices, a=regularizations)
def test_every_prefix_is_as_defined(K: F64, a: float) -> None:
    online, dimensions = diagnostics.online_leverage_scores(K, a), diagnostics.effective_dimensions(K, a)
    scores = np.empty(0)
    for t in range(1, len(K) + 1):
        scores = np.diag(np.linalg.solve((K[:t, :t] + a * np.eye(t)).T, K[:t, :t].T).T)
        assert online[t - 1] == pytest.approx(scores[-1], rel=1e-9, abs=1e-12)
        assert dimensions[t - 1] == pytest.approx(scores.sum(), rel=1e-9)
    np.testing.assert_allclose(diagnostics.leverage_scores(K, a), scores, rtol=1e-9, atol=1e-12)
    assert diagnostics.effective_dimension(K, a) == pytest.approx(scores.sum(), rel=1e-9)
    assert diagnostics.online_effective_dimension(K, a) == pytest.approx(online.sum())
    assert diagnostics.log_det(K, a) == pytest.approx(np.linalg.slogdet(np.eye(len(K)) + K / a)[1], rel=1e-9, abs=1e-9)


@given(K=matrices, a=regularizations, larger=st.floats(1.0, 100.0), seed=st.integers(0, 100))
def test_the_dimensions_are_ordered(K: F64, a: float, larger: float, seed: int) -> None:
    n, order = len(K), np.random.default_rng(seed).permutation(len(K))
    d_eff, d_onl = diagnostics.effective_dimension(K, a), diagnostics.online_effective_dimension(K, a)
    log_det, slack = diagnostics.log_det(K, a), 1e-9
    # [calandriello2017] lemma 3, and what makes its left side an upper bound on d_eff.
    assert 0.0 <= d_eff <= d_onl + slack
    assert d_onl <= log_det + slack
    assert log_det <= d_eff * (1.0 + math.log1p(np.linalg.norm(K, 2) / a)) + slack
    assert d_eff <= min(n, np.trace(K) / a) + slack
    # tau = q / (1 + q) and the determinant is the product of the 1 + q.
    assert -np.log1p(-diagnostics.online_leverage_scores(K, a)).sum() == pytest.approx(log_det, rel=1e-9, abs=slack)
    # A larger regularization counts less, a longer stream more; the order matters online only.
    assert diagnostics.effective_dimension(K, larger * a) <= d_eff + slack
    assert (np.diff(diagnostics.effective_dimensions(K, a)) >= -slack).all()
    assert diagnostics.effective_dimension(K[np.ix_(order, order)], a) == pytest.approx(d_eff, rel=1e-9)
    assert diagnostics.log_det(K[np.ix_(order, order)], a) == pytest.approx(log_det, rel=1e-9, abs=slack)


def test_orthogonal_and_repeated_points() -> None:
    assert diagnostics.effective_dimension(np.eye(12), 0.5) == pytest.approx(12 / 1.5)
    assert diagnostics.effective_dimension(np.ones((12, 12)), 0.5) == pytest.approx(12 / 12.5)
    assert diagnostics.log_det(np.ones((12, 12)), 0.5) == pytest.approx(math.log(25.0))
    t = np.arange(1, 13)
    np.testing.assert_allclose(diagnostics.online_leverage_scores(np.ones((12, 12)), 0.5), 1.0 / (t + 0.5))


def test_what_is_no_kernel_matrix_is_refused() -> None:
    for function in FUNCTIONS:
        with pytest.raises(ShapeError, match=r"\(3, 2\)"):
            function(np.ones((3, 2)), 1.0)
        with pytest.raises(ConfigError, match="positive"):
            function(np.eye(3), 0.0)
        with pytest.raises(NotPositiveDefiniteError, match="raise the regularization"):
            function(-np.eye(3), 0.5)


def test_the_log_determinant_is_that_which_kons_adds_up() -> None:
    X, y = stream_for("squared", "random", n=120)
    config = {"kernel": GAUSSIAN.model_dump(), "step": "adaptive", "regularization": 0.3}
    learner = create({"kind": "kons", "config": config}, 2)
    learner.run(X, y)
    # Adaptive steps of the squared loss weight every round by 2.
    assert learner.describe()["log_det"] == pytest.approx(diagnostics.log_det(2.0 * GAUSSIAN.gram(X), 0.3))


# -- regret bounds ----------------------------------------------------------------------------------------------------


def regret_of(kind: str, config: dict[str, Any], X: F64, y: F64, alpha: float) -> tuple[float, dict[str, float], F64]:
    """The largest regret against any function of the class, less (alpha / 2) |f|^2; what it describes; the values."""
    learner = create({"kind": kind, "config": {"kernel": GAUSSIAN.model_dump(), **config}}, X.shape[1])
    info = learner.run(X, y)
    loss = cast(LossName, learner.loss.name)
    best = diagnostics.best_in_hindsight(GAUSSIAN, X, y, loss, regularization=alpha, clip=config.get("clip", math.inf))
    return float(info.losses.sum()) - best.lower, learner.describe(), info.values


def dimension_of(X: F64, alpha: float, loss: str, C: float) -> dict[str, Any]:
    """What the bounds of theorem 1 take of a stream."""
    sigma, L = LOSSES[loss].curvature(C), LOSSES[loss].lipschitz(C)
    d_eff = diagnostics.effective_dimension(GAUSSIAN.gram(X), alpha / (sigma * L * L))
    return {"curvature": sigma, "lipschitz": L, "rounds": len(X), "dimension": d_eff}


@pytest.mark.pairs
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_kons_stays_within_its_bounds(loss: str, step: str | float, stream: str) -> None:
    C, alpha = 1.0, 0.3
    X, y = stream_for(loss, stream, n=200)
    regret, told, _ = regret_of("kons", {"loss": loss, "step": step, "clip": C, "regularization": alpha}, X, y, alpha)
    first = diagnostics.kons_bound(0.0, alpha, told["bound_gradient"], told["bound_step"])
    assert regret <= first + 1e-6
    if step == "curvature":
        of_stream = dimension_of(X, alpha, loss, C)
        second = diagnostics.kons_log_det_bound(0.0, alpha, of_stream["curvature"], told["log_det"])
        third = diagnostics.kons_dimension_bound(0.0, alpha, **of_stream)
        printed = diagnostics.kons_dimension_bound(0.0, alpha, **of_stream, as_printed=True)
        assert told["bound_gradient"] == pytest.approx(first)
        assert first <= second <= third <= printed


@pytest.mark.parametrize("loss", ["squared", "hinge"])
def test_decreasing_steps_stay_within_their_bound(loss: str) -> None:
    C, alpha, n = 1.0, 0.3, 200
    X, y = stream_for(loss, "random", n=n)
    config = {"loss": loss, "step": "inverse-sqrt", "clip": C, "regularization": alpha}
    regret, told, values = regret_of("kons", config, X, y, alpha)
    of_loss = LOSSES[loss]
    L, eta = of_loss.lipschitz(C), 1.0 / (of_loss.lipschitz(C) * C * np.sqrt(np.arange(1, n + 1)))
    root = np.sqrt(eta) * [of_loss.derivative(v, truth) for v, truth in zip(values, y, strict=True)]
    d_onl = diagnostics.online_effective_dimension(root[:, None] * GAUSSIAN.gram(X) * root, alpha)
    curvature = min(of_loss.curvature(C), float(eta[-1]))
    bound = diagnostics.kons_step_bound(0.0, alpha, d_onl, eta, clip=C, lipschitz=L, curvature=curvature)
    assert regret <= told["bound_gradient"] + told["bound_step"] <= bound
    norm = 1.7
    halves = diagnostics.kons_step_bound(norm, alpha, d_onl, eta, clip=C, lipschitz=L)
    assert halves == pytest.approx(
        0.5 * diagnostics.kons_step_bound(norm, alpha, d_onl, eta, clip=C, lipschitz=L, as_printed=True)
    )
    assert halves >= bound + 0.5 * alpha * norm**2


def test_the_norm_of_the_comparator_counts_in_every_bound() -> None:
    of_stream = {"curvature": 0.125, "lipschitz": 4.0, "rounds": 100, "dimension": 5.0}
    bounds = {
        "half": [
            lambda norm: diagnostics.kons_bound(norm, 0.4, 1.0, 2.0),
            lambda norm: diagnostics.kons_log_det_bound(norm, 0.4, 0.125, 3.0),
            lambda norm: diagnostics.kons_dimension_bound(norm, 0.4, **of_stream),
        ],
        "whole": [
            lambda norm: diagnostics.kons_dimension_bound(norm, 0.4, **of_stream, as_printed=True),
            lambda norm: diagnostics.sketched_kons_bound(norm, 0.4, **of_stream, least_probability=0.1),
            lambda norm: diagnostics.clipped_ridge_bound(norm, 0.4, 1.0, 3.0),
            lambda norm: diagnostics.aar_bound(norm, 0.4, 1.0, 3.0),
        ],
    }
    for bound in bounds["half"]:
        assert bound(3.0) - bound(0.0) == pytest.approx(0.5 * 0.4 * 9.0)
    for bound in bounds["whole"]:
        assert bound(3.0) - bound(0.0) == pytest.approx(0.4 * 9.0)


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0])
def test_the_sketch_stays_within_its_bounds(gamma: float) -> None:
    alpha, C = 0.5, 1.0
    X, y = stream_for("squared", "flips", n=400)
    config = {"loss": "squared", "clip": C, "regularization": alpha, "floor_probability": gamma}
    regret, told, _ = regret_of("sketched-kons", config, X, y, alpha)
    of_stream = dimension_of(X, alpha, "squared", C)
    whole = diagnostics.sketched_kons_bound(0.0, alpha, **of_stream, least_probability=gamma)
    assert regret <= told["bound_gradient"] + told["bound_step"] + 1e-6 <= whole
    exact = diagnostics.kons_dimension_bound(0.0, 1.0, **of_stream, as_printed=True)
    assert diagnostics.sketched_kons_bound(0.0, 1.0, **of_stream, least_probability=gamma) == pytest.approx(
        exact / gamma
    )


def ridge_forecasts(K: F64, y: F64, a: float) -> tuple[F64, F64]:
    """gamma_t and q_t of every round, from its own past alone."""
    gamma, q = np.empty(len(y)), np.empty(len(y))
    for t in range(len(y)):
        solved = np.linalg.solve(K[:t, :t] + a * np.eye(t), np.column_stack((y[:t], K[:t, t])))
        gamma[t], explained = K[t, :t] @ solved
        q[t] = (K[t, t] - explained) / a
    return gamma, q


@pytest.mark.parametrize("a", [0.1, 2.0])
@pytest.mark.parametrize("stream", STREAMS)
def test_ridge_regression_and_the_aggregating_algorithm(stream: str, a: float) -> None:
    Y = 2.0
    X, y = STREAMS[stream](np.random.default_rng(7), 120, Y)
    K = GAUSSIAN.gram(X)
    gamma, q = ridge_forecasts(K, y, a)
    optimum = diagnostics.ridge_optimum(K, y, a)
    assert optimum == pytest.approx(a * y @ np.linalg.solve(K + a * np.eye(len(y)), y))
    assert optimum == pytest.approx(((y - gamma) ** 2 / (1.0 + q)).sum())
    best = diagnostics.best_in_hindsight(GAUSSIAN, X, y, "squared", regularization=2.0 * a)
    assert optimum == pytest.approx(best.objective)
    log_det = diagnostics.log_det(K, a)
    assert log_det == pytest.approx(np.log1p(q).sum())
    for values, bound in (
        (np.clip(gamma, -Y, Y), diagnostics.clipped_ridge_bound),
        (gamma / (1.0 + q), diagnostics.aar_bound),
    ):
        assert ((values - y) ** 2).sum() - best.loss <= bound(best.norm, a, Y, log_det) + 1e-9


@given(
    seed=st.integers(0, 2**32 - 1), n=st.integers(1, 200), U=st.floats(0.1, 5.0), c=st.sampled_from([None, 0.5, 1.4])
)
def test_gradient_descent_stays_within_its_bound(seed: int, n: int, U: float, c: float | None) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.where(X[:, 0] + rng.standard_normal(n) >= 0.0, 1.0, -1.0)
    D = float((X**2).sum(axis=1).max())
    w, losses = np.zeros(3), np.empty(n)
    for t, (x, truth) in enumerate(zip(X, y, strict=True)):
        losses[t] = max(0.0, 1.0 - truth * (w @ x))
        eta = U / math.sqrt(D * n) if c is None else c * U / math.sqrt(D * (t + 1))
        if losses[t] > 0.0:
            w = w + eta * truth * x
        w *= min(1.0, U / max(float(np.linalg.norm(w)), 1e-300))
    best = diagnostics.best_in_hindsight(Linear(), X, y, "hinge", radius=U)
    # Of one round the bound is met with equality.
    assert losses.sum() - best.lower <= diagnostics.gradient_descent_bound(U, 1.0, n, D, step_factor=c) + 1e-9


def test_the_bound_of_gradient_descent_in_numbers() -> None:
    assert diagnostics.gradient_descent_bound(1.0, 1.0, 64) == 8.0
    assert diagnostics.gradient_descent_bound(0.5, 2.0, 64, 4.0, step_factor=2.0) == 48.0
