"""The parts of `auto` against slow direct computations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core.automatic.evidence import Evidence, fit
from okl_core.automatic.neighbourhood import NEAREST, Neighbourhood
from okl_core.automatic.relevance_kernel import CENTRE, EXPLICIT, ROUGHNESS, RelevanceKernel
from okl_core.automatic.series import GAIN, LAGS, Series
from okl_core.automatic.shared_posterior import SharedPosterior
from okl_core.errors import ConfigError
from okl_core.types import F64

CUTS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def ridge_forecasts(Phi: F64, Y: F64) -> F64:
    """Each row's forecast by a least-squares problem of its own: rows of Phi, shape (n, p), before it."""
    n, p = Phi.shape
    made = np.zeros_like(Y)
    for t in range(n):
        past = Phi[:t]
        made[t] = Phi[t] @ np.linalg.solve(np.eye(p) + past.T @ past, past.T @ Y[:t])
    return made


@given(cuts=CUTS, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_a_block_is_its_rounds_and_these_are_ridge_regression(cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = sum(cuts)
    Phi, Y = rng.normal(size=(n, 4)), rng.normal(size=(n, 3))
    Y[: cuts[0], 2] = 0.0
    expected = ridge_forecasts(Phi, Y)
    blocks, single, start = SharedPosterior(4, 2), SharedPosterior(4, 2), 0
    for i, length in enumerate(cuts):
        rows = slice(start, start + length)
        if i == 1:
            # The third truth was 0 so far, as that of a new class.
            blocks.add_truths(1)
            single.add_truths(1)
        k = blocks.U.shape[1]
        np.testing.assert_allclose(blocks.learn(Phi[rows].T, Y[rows, :k]), expected[rows, :k], atol=1e-9)
        for phi, y, m in zip(Phi[rows], Y[rows, :k], expected[rows, :k], strict=True):
            projection = single.project(phi)
            np.testing.assert_allclose(projection.m, m, atol=1e-9)
            single.absorb(projection, y)
        start = rows.stop
    np.testing.assert_allclose(blocks.U, single.U, atol=1e-9)
    np.testing.assert_allclose(blocks.P.full(), single.P.full(), atol=1e-9)


def test_a_new_coordinate_was_zero_and_forgetting_discounts() -> None:
    rng = np.random.default_rng(0)
    Phi, Y = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
    Phi[:15, 4] = 0.0
    posterior = SharedPosterior(4, 2)
    posterior.learn(Phi[:15, :4].T, Y[:15])
    posterior.grow(1)
    posterior.learn(Phi[15:20].T, Y[15:20])
    posterior.discount(0.8)
    weights = np.where(np.arange(40) < 20, 0.8, 1.0)[:, None]
    # After it the BLAS calls must still write into P itself.
    for phi, y in zip(Phi[20:], Y[20:], strict=True):
        posterior.absorb(posterior.project(phi), y)
    A = np.eye(5) + Phi.T @ (weights * Phi)
    np.testing.assert_allclose(posterior.P.full(), np.linalg.inv(A), atol=1e-12)
    np.testing.assert_allclose(posterior.U, np.linalg.solve(A, Phi.T @ (weights * Y)), atol=1e-12)
    unpacked = SharedPosterior.unpack(posterior.pack())
    assert np.array_equal(unpacked.P.full(), posterior.P.full())


def kernel_of(d: int) -> RelevanceKernel:
    rng = np.random.default_rng(d)
    steps, pairs = np.zeros(d), np.zeros(d)
    steps[:3], pairs[1:4] = 0.5, 0.7
    return RelevanceKernel(
        amount=3.0, linear=0.2, smooth=rng.uniform(0.1, 2.0, d).tolist(), steps=steps.tolist(), pairs=pairs.tolist()
    )


def slow_value(kernel: RelevanceKernel, x: F64, z: F64) -> float:
    E = np.exp(-ROUGHNESS * np.abs(x - z))
    value = kernel.amount / (1.0 + 0.5 * float(np.array(kernel.smooth) @ (x - z) ** 2)) + float(
        np.array(kernel.steps) @ E
    )
    for i, j in itertools.combinations(range(len(x)), 2):
        value += kernel.pairs[i] * kernel.pairs[j] * float(E[i] * E[j])
    return value + (kernel.linear * float((x - CENTRE) @ (z - CENTRE)) if len(x) > EXPLICIT else 0.0)


@pytest.mark.parametrize("d", [4, EXPLICIT, EXPLICIT + 1])
def test_the_kernel_is_its_formula(d: int) -> None:
    rng = np.random.default_rng(1)
    kernel, S, X = kernel_of(d), rng.uniform(-8.0, 9.0, (7, d)), rng.uniform(0.0, 1.0, (5, d))
    S[3] = X[2]
    expected = [[slow_value(kernel, s, x) for x in X] for s in S]
    np.testing.assert_allclose(kernel.block(S, X), expected, rtol=1e-11)
    np.testing.assert_allclose(np.array([kernel.row(S, x) for x in X]).T, expected, rtol=1e-11)
    np.testing.assert_allclose(kernel.diag(X), [slow_value(kernel, x, x) for x in X], rtol=1e-12)
    assert np.linalg.eigvalsh(kernel.gram(np.vstack((S, X)))).min() > -1e-10


def test_the_kernel_refuses_inputs_of_another_dimension() -> None:
    with pytest.raises(ConfigError, match="lists of 4 numbers, the learner has 3 inputs"):
        kernel_of(4).points(3)


def test_the_gradient_of_the_evidence() -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(40, 5))
    Y = np.stack((np.sin(6.0 * X[:, 0]), (X[:, 1] > 0.5) - 0.5), axis=1) + 0.1 * rng.standard_normal((40, 2))
    evidence = Evidence(X, Y - Y.mean(axis=0), [0, 1, 3])
    theta = evidence.start + 0.3 * rng.standard_normal(len(evidence.start))
    value, gradient = evidence.value(theta)
    h = 1e-5
    moved = [
        (evidence.value(theta + h * e)[0] - evidence.value(theta - h * e)[0]) / (2.0 * h) for e in np.eye(len(theta))
    ]
    np.testing.assert_allclose(gradient, moved, atol=1e-6)
    # And the value itself, from the kernel that the parameters are those of.
    kernel = evidence.kernel(theta)
    C = kernel.gram(X) + kernel.linear * (X - CENTRE) @ (X - CENTRE).T + np.eye(40)
    fitted = np.trace(evidence.Y.T @ np.linalg.solve(C, evidence.Y))
    away = (theta - evidence.start) / 0.5
    assert value == pytest.approx(np.linalg.slogdet(C)[1] + 40.0 * np.log(fitted) + 0.5 * away @ away, rel=1e-9)


def test_the_evidence_finds_the_coordinate_that_matters() -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(200, 4))
    kernel = fit(X, np.where(X[:, 2:3] > 0.6, 1.0, 0.0))
    assert int(np.argmax(kernel.steps)) == 2


@pytest.mark.parametrize("X", [np.zeros((1, 3)), np.zeros((9, 2)), np.full((5, 1), 9.0)])
def test_the_evidence_of_rows_that_say_nothing(X: F64) -> None:
    kernel = fit(X, np.zeros((len(X), 2)))
    assert np.isfinite(kernel.gram(X)).all()
    assert np.isfinite(fit(X, np.arange(len(X), dtype=float)[:, None]).gram(X)).all()


@given(cuts=CUTS, window=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_neighbours(cuts: list[int], window: int) -> None:
    rng = np.random.default_rng(4)
    n = sum(cuts)
    Z, Y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    Z[n // 2] = Z[0]
    expected = np.zeros_like(Y)
    for t in range(1, n):
        past = slice(max(0, t - window), t)
        v = (((Z[past] - Z[t]) ** 2).sum(axis=1) + NEAREST) ** -4.0
        expected[t] = v @ Y[past] / v.sum()
    blocks, single, start = Neighbourhood(window, 2, 2), Neighbourhood(window, 2, 2), 0
    for length in cuts:
        rows = slice(start, start + length)
        np.testing.assert_allclose(blocks.learn(Z[rows], Y[rows]), expected[rows], atol=1e-9)
        start = rows.stop
    for z, y, m in zip(Z, Y, expected, strict=True):
        np.testing.assert_allclose(single.forecast(z), m, atol=1e-9)
        single.remember(z[None, :], y[None, :])
    np.testing.assert_array_equal(blocks.rows[: len(blocks)], single.rows[: len(single)])


def test_the_series() -> None:
    rng = np.random.default_rng(5)
    n = 60
    Phi, y = rng.normal(size=(n, 2)), np.cumsum(rng.normal(size=n))
    y -= y[0]
    features, jumps, levels = np.zeros((n, 2 + LAGS)), np.zeros((n, 1)), np.zeros((n, 2))
    for t in range(n):
        past = np.array([y[t - 1 - i] if t > i else 0.0 for i in range(LAGS)])
        scale = np.abs(y[:t]).max(initial=0.0)
        features[t, :2] = Phi[t]
        if scale:
            features[t, 2:] = GAIN * np.append(past[0], past[:-1] - past[1:]) / scale
            jumps[t] = np.clip((y[t] - past[0]) / scale, -10.0, 10.0)
        levels[t] = scale, past[0]
    expected = ridge_forecasts(features, jumps)[:, 0] * levels[:, 0] + levels[:, 1]
    blocks, single = Series.empty(2), Series.empty(2)
    made = np.concatenate([blocks.learn(Phi[rows].T, y[rows]) for rows in (slice(0, 7), slice(7, 8), slice(8, n))])
    np.testing.assert_allclose(made, expected, atol=1e-9)
    for phi, truth, m in zip(Phi, y.tolist(), expected.tolist(), strict=True):
        value, projection = single.project(phi)
        assert value == pytest.approx(m, abs=1e-9)
        single.absorb(projection, truth)
