"""Row sampling against dense linear algebra: the guarantee of its theorem, and its two forms against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from okl_core.contract.rng import RoundRng
from okl_core.contract.state import pack
from okl_core.kernels.kernels import Gaussian, Kernel, Linear
from okl_core.linalg.weighted_factor import WeightedFactor
from okl_core.second_order.row_sampling import Kors, KorsBlock
from okl_core.types import F64

RUNS = 50
ROUNDS = 900
EPSILON = 0.5
DELTA = 0.1
ALPHA = 1.0


def sampled(kernel: Kernel, kors: Kors, X: F64, seed: int, block: int = 100) -> tuple[WeightedFactor, F64, F64]:
    """The dictionary, the estimate tau of every round, and the probability of every round that was kept (else 0)."""
    rng, sample = RoundRng(seed), WeightedFactor.empty()
    tau, kept = np.empty(len(X)), np.zeros(len(X))
    for start in range(0, len(X), block):
        points = X[start : start + block]
        part = KorsBlock(kors, sample, kernel.gram(points), kernel.block(X[:start][kept[:start] > 0.0], points))
        for j in range(len(points)):
            rng.at(start + j + 1)
            tau[start + j] = part.score(j)
            p = kors.probability(part.score(j))
            if rng.bernoulli(p):
                part.keep(j, p)
                kept[start + j] = p
        part.settle()
    return sample, tau, kept


def test_theorem_2_holds_in_enough_of_many_runs() -> None:
    """In all rounds at once: the sandwich of A, the estimates of the leverage scores, and the size of the dictionary."""
    beta = 3.0 * math.log(ROUNDS / DELTA) / EPSILON**2
    rho = (1.0 + EPSILON) / (1.0 - EPSILON)
    kors = Kors(ALPHA, beta, EPSILON)
    held, shares = 0, []
    for seed in range(RUNS):
        X = np.random.default_rng(seed).standard_normal((ROUNDS, 2)) * [1.0, 0.3]
        sample, tau, kept = sampled(Linear(), kors, X, seed)
        outer = X[:, :, None] * X[:, None, :]
        A = ALPHA * np.eye(2) + np.cumsum(outer, axis=0)
        # A weight of 1 / p for the rounds that were kept.
        A_I = ALPHA * np.eye(2) + np.cumsum(
            np.divide(1.0, kept, out=np.zeros(ROUNDS), where=kept > 0.0)[:, None, None] * outer, axis=0
        )
        exact = np.einsum("ti,tij,tj->t", X, np.linalg.inv(A), X)
        root = np.linalg.inv(np.linalg.cholesky(A))
        spectrum = np.linalg.eigvalsh(root @ A_I @ root.transpose(0, 2, 1))
        is_sandwiched = bool((spectrum >= 1.0 - EPSILON).all() and (spectrum <= 1.0 + EPSILON).all())
        is_estimated = bool((tau >= exact * (1.0 - 1e-9)).all() and (tau <= rho * exact * (1.0 + 1e-9)).all())
        is_small = len(sample) <= 3.0 * rho * beta * exact.sum()
        held += is_sandwiched and is_estimated and is_small
        shares.append(len(sample) / ROUNDS)
    assert held >= (1.0 - DELTA) * RUNS
    assert np.mean(shares) < 0.7, "the theorem's beta must leave rounds out, or nothing was tested"


def test_estimate_is_equation_4() -> None:
    """tau = (1 + epsilon) times the leverage score in the dictionary that holds the round itself with weight 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    kernel, kors = Gaussian(sigma=0.7), Kors(0.5, 3.0, 0.3)
    sample, tau, kept = sampled(kernel, kors, X, seed=3)
    K = kernel.gram(X)
    for t in range(60):
        kept_here = np.append(np.flatnonzero(kept[:t]), t)
        S = np.append(1.0 / np.sqrt(kept[:t][kept[:t] > 0.0]), 1.0)
        k = S * K[kept_here, t]
        inner = S[:, None] * K[np.ix_(kept_here, kept_here)] * S + 0.5 * np.eye(len(kept_here))
        score = (K[t, t] - k @ np.linalg.solve(inner, k)) / 0.5
        assert tau[t] == pytest.approx(1.3 * score, rel=1e-9)
    assert len(sample) == np.count_nonzero(kept) > 10
    assert np.allclose(sample.roots.view, 1.0 / np.sqrt(kept[kept > 0.0]))


@pytest.mark.parametrize("scaled", [False, True])
def test_block_equals_point_by_point(scaled: bool) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((150, 3))
    X[40:60] = X[20:40]
    scales = rng.uniform(0.0, 2.0, 150) if scaled else np.ones(150)
    kernel, kors = Gaussian(), Kors(1.0, 2.0, 0.5)
    single, blocked = WeightedFactor.empty(), WeightedFactor.empty()
    coins = rng.random(150)
    taus, inside = [], np.zeros(150, dtype=bool)
    for t, (x, u, scale) in enumerate(zip(X, coins, scales, strict=True)):
        leverage = kors.leverage(single, kernel.row(X[inside], x), 1.0, scale)
        p = kors.probability(leverage.tau)
        if u < p:
            kors.keep(single, leverage, p, scale)
            inside[t] = True
        taus.append(leverage.tau)
    for start in range(0, 150, 50):
        points = X[start : start + 50]
        block = KorsBlock(kors, blocked, kernel.gram(points), kernel.block(X[:start][inside[:start]], points))
        for j in range(50):
            tau = block.score(j, scales[start + j])
            assert tau == pytest.approx(taus[start + j], abs=1e-12)
            p = kors.probability(tau)
            if coins[start + j] < p:
                block.keep(j, p, scales[start + j])
        block.settle()
    for name, array in pack(single).items():
        assert pack(blocked)[name] == pytest.approx(array, abs=1e-11), name


def test_a_zero_feature_has_no_leverage() -> None:
    kors, empty = Kors(), WeightedFactor.empty()
    assert kors.leverage(empty, np.empty(0), kappa=0.0).tau == 0.0
    assert kors.leverage(empty, np.empty(0), kappa=2.0, scale=0.0).tau == 0.0
    assert kors.probability(0.0) == 0.0
