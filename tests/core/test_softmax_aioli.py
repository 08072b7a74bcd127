"""AIOLI for K classes against dense algebra, against `aioli` for two, its bound against the best matrix, what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

from bench.sides import best_matrix
from okl_core import OnlineLearner, create, restore
from okl_core.errors import ConfigError, DivergedError, LabelError
from okl_core.losses import LEAST_PROBABILITY
from okl_core.second_order import softmax as rule
from okl_core.types import F64
from tests.oracles.softmax import DenseSoftmax, least_quotient, surplus_in_fractions

HEDGES = (0.5, 0.7, 1.0)


def learner_of(K: int, dim: int, **config: Any) -> OnlineLearner:
    return create({"kind": "softmax-aioli", "config": {"classes": K, "intercept": False} | config}, dim)


def logits_of(learner: OnlineLearner, x: F64) -> F64:
    """Up to a sum: those that sum to 0."""
    probabilities = learner.predict(x).probabilities
    assert probabilities is not None
    v = np.log(probabilities)
    return v - v.mean()


def stream(K: int, n: int, d: int, seed: int, scale: float = 1.0) -> tuple[F64, F64]:
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((n, d))
    W = rng.standard_normal((K, d))
    return X, np.array([rng.choice(K, p=softmax(W @ x / scale)) for x in X], dtype=np.float64)


@pytest.mark.parametrize("hedge", HEDGES)
@pytest.mark.parametrize("K", [2, 3, 5])
def test_it_is_the_dense_algebra(K: int, hedge: float) -> None:
    X, y = stream(K, 30, 3, K)
    learner = learner_of(K, 3, comparator_norm=4.0, regularization=0.2, hedge=hedge)
    dense = DenseSoftmax(K, 3, 4.0, 0.2, hedge)
    total = 0.0
    for x, truth in zip(X, y.tolist(), strict=True):
        v = logits_of(learner, x)
        np.testing.assert_allclose(dense.left(v, x), 0.0, atol=1e-6)
        loss = learner.update(x, truth).loss
        assert loss == pytest.approx(logsumexp(v) - v[int(truth)], rel=1e-9)
        kappa = rule.curvature(rule.reach(K, 4.0, float(x @ x)) + math.log(softmax(v).max()))
        total += dense.learn(v, x, int(truth), kappa)
    told = learner.describe()
    assert told["bound"] == pytest.approx(total, rel=1e-9)
    m, Q = dense.moments(X[0])
    np.testing.assert_allclose(m, _moments(learner, X[0], K)[0], atol=1e-9)
    np.testing.assert_allclose(Q, _moments(learner, X[0], K)[1], atol=1e-9)


@pytest.mark.parametrize(("K", "H"), [(2, 8), (3, 10), (5, 33)])
def test_a_half_life_is_the_dense_algebra_with_weights_that_fall(K: int, H: int) -> None:
    X, y = stream(K, 70, 2, K)
    learner = learner_of(K, 3, comparator_norm=4.0, regularization=0.2, half_life=H, intercept=True)
    dense, every = DenseSoftmax(K, 4, 4.0, 0.2, 0.5), H // 4
    X = np.column_stack((X, X[:, 0] * X[:, 1]))
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), 1):
        v, phi = logits_of(learner, x), np.append(x, 1.0)
        np.testing.assert_allclose(dense.left(v, phi), 0.0, atol=1e-6)
        m, Q = dense.moments(phi)
        np.testing.assert_allclose(_moments(learner, phi, K)[0], m, atol=1e-9)
        np.testing.assert_allclose(_moments(learner, phi, K)[1], Q, atol=1e-9)
        assert learner.update(x, truth).loss == pytest.approx(logsumexp(v) - v[int(truth)], rel=1e-9)
        kappa = rule.curvature(rule.reach(K, 4.0, float(phi @ phi)) + math.log(softmax(v).max()))
        dense.learn(v, phi, int(truth), kappa)
        if t % every == 0:
            dense.discount(0.5 ** (every / H))
    assert "bound" not in learner.describe()
    assert learner.describe()["loss"] == pytest.approx(learner_run_loss(learner, X, y), rel=1e-9)


def learner_run_loss(learner: OnlineLearner, X: F64, y: F64) -> float:
    """That of the same learner in one run, restored in the middle."""
    again = create(learner.spec, learner.dim)
    first = again.run(X[:33], y[:33]).losses.sum()
    return float(first + restore(learner.spec, again.state(), learner.dim).run(X[33:], y[33:]).losses.sum())


def test_it_follows_classes_that_turn() -> None:
    X, _ = stream(3, 600, 2, 1)
    angle = np.arctan2(X[:, 1], X[:, 0]) + np.arange(600) / 60.0
    y = np.floor(angle / (2.0 * math.pi / 3.0)) % 3.0
    late = {H: learner_of(3, 2, half_life=H).run(X, y).losses[300:].mean() for H in (None, 32)}
    assert late[32] < 0.7 * late[None]


def _moments(learner: OnlineLearner, x: F64, K: int) -> tuple[F64, F64]:
    """m and Q from the state's arrays."""
    arrays, U = learner.state(), rule.basis(K)
    S, u = arrays["posterior.S"], arrays["posterior.u"]
    Phi = np.kron(np.eye(K - 1), x[:, None])
    return U @ (Phi.T @ u), U @ (Phi.T @ S @ S.T @ Phi) @ U.T


def test_the_basis_is_orthonormal_and_sums_to_nothing() -> None:
    for K in (2, 3, 7, 40):
        U = rule.basis(K)
        np.testing.assert_allclose(U.T @ U, np.eye(K - 1), atol=1e-13)
        np.testing.assert_allclose(U.sum(axis=0), 0.0, atol=1e-13)


@given(K=st.integers(2, 6), L=st.floats(0.7, 40.0), seed=st.integers(0, 2**32 - 1))
def test_kappa_is_the_least_quotient(K: int, L: float, seed: int) -> None:
    p = np.random.default_rng(seed).dirichlet(np.full(K, 0.5))
    below = max(L, math.log(K)) + math.log(p.max())
    assert rule.curvature(below) == pytest.approx(least_quotient(max(L, math.log(K)), p), rel=1e-3)
    assert rule.curvature(below) >= 1.0 / (1.0 + 0.5 * below)


@given(
    K=st.integers(2, 6),
    norm=st.floats(0.05, 15.0),
    spread=st.floats(0.0, 30.0),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_no_parabola_is_above_the_loss(K: int, norm: float, spread: float, seed: int) -> None:
    """Of any logits played, at any that a matrix of norm 1 gives an input of this norm."""
    rng = np.random.default_rng(seed)
    v = spread * rng.standard_normal(K)
    u = rng.standard_normal(K)
    # A competitor's logits have this norm at most; the worst have two entries.
    u = norm * (u / np.linalg.norm(u) if rng.random() < 0.5 else (np.eye(K)[0] - np.eye(K)[-1]) / math.sqrt(2.0))
    p = softmax(v)
    H = np.diag(p) - np.outer(p, p)
    kappa = rule.curvature(rule.reach(K, 1.0, norm * norm) + math.log(p.max()))
    left = float(np.asarray(logsumexp(u)) - np.asarray(logsumexp(v)) - p @ (u - v))
    assert left - 0.5 * kappa * (u - v) @ H @ (u - v) >= -1e-9 * (1.0 + abs(left))


def test_the_numbers_of_the_table_are_those_of_their_definitions() -> None:
    # B R = sqrt(2), so e^2.
    assert rule.reach(4, 0.5, 8.0) == pytest.approx(math.log(1.0 + 3.0 * math.exp(2.0)))
    assert rule.reach(2, 1e200, 1e100) == pytest.approx(math.sqrt(2.0) * 1e250)
    for below in (1e-9, 9.9e-5, 1.1e-4, 0.5):
        # The next term of the series is below^3 / 60.
        assert rule.curvature(below) == pytest.approx(1.0 - below / 3.0 + below**2 / 12.0, abs=below**3 / 59.0 + 1e-8)
    assert rule.curvature(20.0) == pytest.approx(2.0 * 19.0 / 400.0)


@pytest.mark.parametrize("hedge", [0.3, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("K", [2, 3, 4, 50, 1000])
def test_inputs_up_to_the_longest_calm_are_hardly_amplified(K: int, hedge: float) -> None:
    calm = rule.longest_calm(K, hedge)
    assert 0.0 < calm <= rule.CALM
    assert rule.amplified(K, hedge, calm) <= rule.CANCELLED * rule.CALM + rule.CALMEST
    assert calm == rule.CALM or rule.amplified(K, hedge, 1.001 * calm) > rule.CALMEST


def test_a_hedge_near_one_overflows_nothing() -> None:
    learner = create({"kind": "softmax-aioli", "config": {"classes": 4, "hedge": 0.9999}}, 1)
    for t in range(8):
        learner.update(np.array([t / 8.0]), float(t % 4))
    assert learner.conditioning < 100.0


def test_for_two_classes_it_is_aioli(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hedge of 1, the same flattening, and twice the regularization: |W|^2 is half of |theta|^2."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(60) > 0.0, 1.0, -1.0)
    monkeypatch.setattr(rule, "curvature", lambda below: 1.0 / (1.0 + 0.5 * 3.0))
    two = create({"kind": "aioli", "config": {"comparator_norm": 3.0, "regularization": 0.1, "intercept": False}}, 3)
    many = learner_of(2, 3, comparator_norm=3.0, regularization=0.2, hedge=1.0)
    for x, truth in zip(X, y.tolist(), strict=True):
        expected = two.update(x, truth).forecast.probability
        found = many.update(x, float(truth > 0.0)).forecast.probabilities
        assert found is not None
        assert found[1] == pytest.approx(expected, abs=1e-12)
    # The bound of `aioli` leaves out what is below 0 in each round.
    assert many.describe()["bound"] <= two.describe()["bound"]


def test_classes_have_no_order() -> None:
    X, y = stream(4, 40, 2, 3)
    order = np.array([2, 0, 3, 1])
    one, other = learner_of(4, 2).run(X, y), learner_of(4, 2).run(X, order[y.astype(int)].astype(float))
    assert one.probabilities is not None
    assert other.probabilities is not None
    np.testing.assert_allclose(one.probabilities, other.probabilities[:, order], atol=1e-9)


def worst_truth(learner: OnlineLearner, x: F64) -> float:
    probabilities = learner.predict(x).probabilities
    assert probabilities is not None
    return float(np.argmin(probabilities))


@given(
    K=st.integers(2, 5),
    d=st.integers(1, 3),
    norm=st.floats(0.2, 12.0),
    hedge=st.sampled_from(HEDGES),
    scale=st.floats(0.1, 5.0),
    repeats=st.booleans(),
    choice=st.sampled_from(["coin", "worst", "constant"]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_the_regret_is_below_the_bound(
    K: int, d: int, norm: float, hedge: float, scale: float, repeats: bool, choice: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((15, d))
    X = X[rng.integers(3, size=15)] if repeats else X
    learner, truths, loss = learner_of(K, d, comparator_norm=norm, hedge=hedge), [], 0.0
    for x in X:
        y = worst_truth(learner, x) if choice == "worst" else float(rng.integers(K)) if choice == "coin" else 1.0
        loss += learner.update(x, y).loss
        truths.append(y)
    told, lam = learner.describe(), 1.0 / norm**2
    assert told["loss"] == pytest.approx(loss)
    assert loss <= best_matrix(X, np.array(truths), K, norm, lam) + told["bound"] + 1e-6 * (1.0 + loss)


@given(K=st.integers(2, 7), hedge=st.sampled_from(HEDGES), size=st.floats(0.01, 1e5), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_no_truth_costs_more_than_the_hedge_times_the_trace(K: int, hedge: float, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    U, B = rule.basis(K), rng.standard_normal((K - 1, K - 1))
    F, m = math.sqrt(size) * B.T, 3.0 * math.sqrt(size) * (U @ rng.standard_normal(K - 1))
    told = rule.LogitMoments(F, m, U @ F.T @ F @ U.T)
    played = rule.hedged(m, told.Q, 5.0, hedge, 1)
    trace = float(played.p @ told.Q.diagonal() - played.p @ told.Q @ played.p)
    for y in range(K):
        assert rule.step(told, played, U, y).surplus <= hedge * trace + 1e-9 * (1.0 + size)


@given(K=st.integers(2, 6), size=st.floats(0.01, 100.0), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_what_a_round_costs_is_told_whatever_is_played(K: int, size: float, seed: int) -> None:
    """Against the least of both parabolas, found in the basis: also where what is played is no root."""
    rng = np.random.default_rng(seed)
    U, B = rule.basis(K), rng.standard_normal((K - 1, K - 1))
    Q = size * (B @ B.T + 0.1 * np.eye(K - 1))
    m, v = rng.standard_normal(K - 1), 3.0 * rng.standard_normal(K - 1)
    p = softmax(U @ v)
    H, kappa, y = np.diag(p) - np.outer(p, p), 0.3, int(rng.integers(K))
    g, inverse = U.T @ (p - np.eye(K)[y]), np.linalg.inv(Q)
    # The least of (u - m)^T Q^{-1} (u - m) / 2 + g^T (u - v) + kappa (u - v)^T H (u - v) / 2.
    u = np.linalg.solve(inverse + kappa * U.T @ H @ U, inverse @ m - g + kappa * U.T @ H @ U @ v)
    grown = 0.5 * (u - m) @ inverse @ (u - m) + g @ (u - v) + 0.5 * kappa * (u - v) @ U.T @ H @ U @ (u - v)
    before = rule.LogitMoments(np.linalg.cholesky(Q).T, U @ m, U @ Q @ U.T)
    told = rule.step(before, rule.Logits(U @ v, p, kappa, True), U, y).surplus
    assert told == pytest.approx(-grown, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("size", "off"), [(1.0, 1e-13), (1e6, 1e-10), (1e12, 1e-7), (1e20, 1e-3)])
def test_what_a_round_costs_keeps_its_digits_however_large_the_variance(size: float, off: float) -> None:
    """Against fractions: squares of what is large beside what is small would have none left."""
    rng = np.random.default_rng(0)
    for K in (2, 3, 5):
        for _ in range(6):
            U, F = rule.basis(K), math.sqrt(size) * rng.standard_normal((K - 1, K - 1))
            told = rule.LogitMoments(F, math.sqrt(size) * (U @ rng.standard_normal(K - 1)), U @ F.T @ F @ U.T)
            played = rule.hedged(told.m, told.Q, 5.0, 0.5, 1)._replace(is_root=True)
            for y in range(K):
                exact = surplus_in_fractions(U @ F.T, told.m, played.v, played.p, played.kappa, y)
                assert rule.step(told, played, U, y).surplus == pytest.approx(exact, rel=off, abs=off)


@pytest.mark.parametrize("ahead", [20.0, 40.0, 60.0])
@pytest.mark.parametrize("K", [3, 4])
def test_the_surplus_keeps_its_digits_where_the_likeliest_class_came(K: int, ahead: float) -> None:
    rng, U = np.random.default_rng(0), rule.basis(K)
    F = np.linalg.qr(rng.standard_normal((K - 1, K - 1)))[0]
    told = rule.LogitMoments(F, U @ (ahead * U[-1]), U @ F.T @ F @ U.T)
    played = rule.hedged(told.m, told.Q, 5.0, 0.5, 1)
    exact = surplus_in_fractions(U @ F.T, told.m, played.v, played.p, played.kappa, K - 1)
    assert 0.0 < exact < 1e-7
    assert rule.step(told, played, U, K - 1).surplus == pytest.approx(exact, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("scale", [1e4, 1e6, 1e8, 1e10])
def test_the_bound_holds_where_huge_inputs_come_among_short_ones(scale: float) -> None:
    for seed in range(22, 30):
        rng = np.random.default_rng(seed)
        K, d, rows = int(rng.integers(2, 6)), int(rng.integers(1, 4)), []
        X = rng.normal(size=(25, d)) * np.where(rng.random(25) < 0.5, scale, 1.0)[:, None]
        learner, lost = learner_of(K, d), 0.0
        for x in X:
            y = worst_truth(learner, x)
            lost += learner.update(x, y).loss
            rows.append(y)
        # All of norm 0 are equally probable: no less than the best matrix.
        assert lost <= len(rows) * math.log(K) + learner.describe()["bound"]


@pytest.mark.parametrize("size", [1e-2, 1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("K", [2, 3, 5, 30])
def test_the_logits_are_the_root_whatever_the_size_of_the_variance(K: int, size: float) -> None:
    """To the digits that the equation determines p to: what is left, in longer floats, is worth next to no change of p."""
    rng, U = np.random.default_rng(K), rule.basis(K)
    for spread in (0.0, 1.0, 3.0):
        for _ in range(10):
            F = U @ rng.standard_normal((K - 1, K - 1)) * np.exp(spread * rng.standard_normal(K - 1))
            Q = F @ F.T
            Q *= size / np.abs(Q).max()
            m = size * 10.0 ** rng.uniform(-3.0, 0.9) * (U @ rng.standard_normal(K - 1)) / K
            v, p, _, is_root = rule.hedged(m, Q, 5.0, 0.5, 1)
            exact, G = v.astype(np.longdouble), Q.astype(np.longdouble)
            p_of_v = np.exp(exact) / np.exp(exact).sum()
            left = (exact + G @ p_of_v - m - 0.5 * (G.diagonal() - G.diagonal().mean())).astype(np.float64)
            H = np.diag(p) - np.outer(p, p)
            off = H @ np.linalg.solve(np.eye(K) + Q @ H, left - left[v.argmax()])
            values = np.linalg.eigvalsh(U.T @ Q @ U)
            assert is_root
            np.testing.assert_allclose(p, p_of_v.astype(np.float64), rtol=0.0, atol=1e-14)
            assert np.abs(off).max() <= 1e-14 * (1.0 + min(size, values[-1] / values[0]))


@given(K=st.integers(2, 6), size=st.floats(-3.0, 11.0), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_round_is_not_endless_whatever_the_inputs_are(K: int, size: float, seed: int) -> None:
    """Of all lengths up to those refused; a step more is some 10 microseconds."""
    rng, learner = np.random.default_rng(seed), learner_of(K, 3)
    looks = Looks(rule.dgesv)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rule, "dgesv", looks)
        for _ in range(15):
            looks.count = 0
            forecast = learner.update(10.0**size * rng.standard_normal(3), float(rng.integers(K))).forecast
            assert sum(forecast.probabilities or ()) == pytest.approx(1.0)
            assert looks.count <= 100


class Looks:
    """Counts the calls."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work, self.count = work, 0

    def __call__(self, *given: Any) -> Any:
        self.count += 1
        return self.work(*given)


def test_a_truth_that_was_given_next_to_nothing_is_scored_as_what_was_said() -> None:
    """By rounds one by one and in a block, and no worse than the bound has it."""
    X, y = stream(3, 200, 3, 1, scale=1000.0)
    one, many = learner_of(3, 3), learner_of(3, 3)
    infos = [one.update(x, truth) for x, truth in zip(X, y.tolist(), strict=True)]
    block = many.run(X, y)
    given = [(info.forecast.probabilities or ())[int(truth)] for info, truth in zip(infos, y, strict=True)]
    assert min(given) == LEAST_PROBABILITY
    np.testing.assert_allclose([info.loss for info in infos], -np.log(given), rtol=1e-12)
    np.testing.assert_allclose(block.losses, -np.log(given), rtol=1e-9)
    told = one.describe()
    assert told["loss"] <= best_matrix(X, y, 3, 8.0, 1.0 / 64.0) + told["bound"]


def test_an_input_of_zeros_says_nothing() -> None:
    learner = learner_of(3, 2)
    learner.run(*stream(3, 10, 2, 0))
    before = learner.state()["posterior.u"]
    info = learner.update(np.zeros(2), 1.0)
    assert info.forecast.probabilities == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    np.testing.assert_array_equal(learner.state()["posterior.u"], before)


def test_what_it_refuses() -> None:
    for config in (
        {"classes": 1},
        {"classes": 1001},
        {"hedge": 0.4},
        {"hedge": 1.1},
        {"comparator_norm": 0.0},
        {"half_life": 7},
    ):
        with pytest.raises(ConfigError, match=next(iter(config))):
            create({"kind": "softmax-aioli", "config": config}, 2)
    learner = learner_of(3, 2)
    for y in (3.0, -1.0, 0.5):
        with pytest.raises(LabelError, match="classes 0 to 2"):
            learner.update(np.ones(2), y)
    with pytest.raises(DivergedError, match="scale the inputs down"):
        learner.update(np.full(2, 1e20), 0.0)
    assert learner.t == 0
