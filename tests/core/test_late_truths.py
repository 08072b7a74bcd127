"""Least squares whose truths come late: what was issued, what was learned, and what it may cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import okl_core
from bench.late import Schedule, play_late, schedule
from okl_core import Gaussian, diagnostics
from okl_core.errors import ConfigError, ShapeError
from okl_core.second_order.improper import improper_value
from okl_core.types import F64

KERNEL = Gaussian(sigma=0.6)
Y = 1.0

STREAMS = st.tuples(
    st.integers(0, 10_000),
    st.lists(st.integers(0, 15), min_size=1, max_size=50),
    st.sampled_from((0.05, 1.0, 20.0)),
)


def stream(seed: int, n: int) -> tuple[F64, F64]:
    """Inputs of which some come again, and truths of an adversary: the ends of the range."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.uniform(-1.0, 1.0, (n, 1)), int(rng.integers(0, 3)))
    return X, rng.choice([-Y, Y], n) if seed % 2 else np.where(np.arange(n) // 7 % 2, Y, -Y)


def direct_bound(X: F64, a: float, times: Schedule, *, is_shrunk: bool) -> float:
    """The bound from its letters, with a matrix for every round: phi_n^T A_j^{-1} phi_j = k_nj given the first j."""
    order = times.order
    K = KERNEL.gram(X[order])
    known = times.known[order]
    n = len(order)
    # given[j]: K / a given the first j rounds, phi^T A_j^{-1} phi.
    given = [K / a - K[:, :j] @ np.linalg.solve(K[:j, :j] + a * np.eye(j), K[:j]) / a for j in range(n + 1)]
    B = np.array([[abs(given[j + 1][m, j]) if known[m] <= j < m else 0.0 for j in range(n)] for m in range(n)])
    is_lost = B.sum(axis=1) > 0.5
    total = 0.0
    for j in range(n):
        q = given[j][j, j]
        b = sum(B[m, j] for m in range(n) if not is_lost[m])
        follows = not is_lost[j] and (1.0 + q) * b <= 1.0
        total += q / (1.0 + q) + 2.0 * b if follows else 1.0 + (1.0 + q) * b * b
        if is_shrunk and not is_lost[j]:
            v = given[known[j]][j, j]
            total += v / (1.0 + v)
    return 4.0 * Y * Y * min(total, n)


@given(STREAMS, st.booleans())
def test_the_bound_is_that_of_its_letters(drawn: tuple[int, list[int], float], is_shrunk: bool) -> None:
    seed, delays, a = drawn
    X, _ = stream(seed, len(delays))
    times = schedule(np.array(delays))
    told = diagnostics.late_ridge_bound(
        KERNEL.gram(X[times.order]), a, Y, times.known[times.order], is_shrunk=is_shrunk
    )
    assert told == pytest.approx(direct_bound(X, a, times, is_shrunk=is_shrunk), rel=1e-6)


@settings(deadline=None)
@given(STREAMS, st.booleans())
def test_the_regret_of_what_was_issued_is_within_it(drawn: tuple[int, list[int], float], is_shrunk: bool) -> None:
    seed, delays, a = drawn
    X, y = stream(seed, len(delays))
    times = schedule(np.array(delays))
    kind = "kernel-aar" if is_shrunk else "kernel-ridge"
    config = {"kernel": KERNEL.model_dump(), "regularization": a, "clip": Y}
    learner = okl_core.create({"kind": kind, "config": config}, dim=1)
    issued = play_late(learner, X, y, times).issued
    K = KERNEL.gram(X)
    best = diagnostics.ridge_optimum(K, y, a)
    order = times.order
    bound = diagnostics.late_ridge_bound(K[np.ix_(order, order)], a, Y, times.known[order], is_shrunk=is_shrunk)
    assert ((issued - y) ** 2).sum() - best <= bound + 1e-7
    # The sums do not know the order in which they were added up.
    assert learner.describe()["comparator_loss"] == pytest.approx(best, rel=1e-6, abs=1e-9)


@given(STREAMS)
def test_what_learning_the_missing_rounds_changes(drawn: tuple[int, list[int], float]) -> None:
    seed, delays, a = drawn
    X, y = stream(seed, len(delays))
    times = schedule(np.array(delays))
    learner = okl_core.create(
        {"kind": "kernel-ridge", "config": {"kernel": KERNEL.model_dump(), "regularization": a}}, dim=1
    )
    played = play_late(learner, X, y, times)
    order = times.order
    L = np.linalg.cholesky(KERNEL.gram(X[order]) + a * np.eye(len(y)))
    B, g = L / L.diagonal(), (y - played.fresh)[order]
    for n, known in enumerate(times.known[order].tolist()):
        moved = (played.fresh - played.issued)[order[n]]
        assert moved == pytest.approx(B[n, known:n] @ g[known:n], abs=1e-7)


@given(st.integers(0, 1000), st.integers(1, 8), st.sampled_from((0.05, 1.0)))
def test_batches_cost_their_length(seed: int, length: int, a: float) -> None:
    X, y = stream(seed, 48)
    t = np.arange(48)
    times = schedule(length - 1 - t % length)
    config = {"kernel": KERNEL.model_dump(), "regularization": a, "clip": Y}
    learner = okl_core.create({"kind": "kernel-ridge", "config": config}, dim=1)
    regret = ((play_late(learner, X, y, times).issued - y) ** 2).sum() - diagnostics.ridge_optimum(KERNEL.gram(X), y, a)
    assert regret <= 4.0 * Y * Y * length * diagnostics.log_det(KERNEL.gram(X), a) + 1e-7


def test_nothing_late_is_the_bound_without_delays() -> None:
    K = KERNEL.gram(stream(3, 40)[0])
    q = 1.0 / (1.0 - diagnostics.online_leverage_scores(K, 0.5)) - 1.0
    told = diagnostics.late_ridge_bound(K, 0.5, Y, np.arange(40))
    assert told == pytest.approx(4.0 * (q / (1.0 + q)).sum())
    assert told <= diagnostics.clipped_ridge_bound(0.0, 0.5, Y, diagnostics.log_det(K, 0.5))


@given(st.lists(st.integers(0, 9), max_size=30))
def test_a_schedule_learns_each_round_once_and_in_time(delays: list[int]) -> None:
    times = schedule(np.array(delays, dtype=np.int64))
    assert sorted(times.order.tolist()) == list(range(len(delays)))
    for t, known in enumerate(times.known.tolist()):
        assert set(times.order[:known].tolist()) == {s for s, delay in enumerate(delays) if s + delay < t}
    assert (times.lags >= 0).all()
    if not any(delays):
        assert not times.lags.any()


@given(*[st.floats(-50.0, 50.0)] * 2, *[st.floats(0.0, 50.0)] * 2)
def test_a_forecast_of_aioli_moves_no_further_than_its_moments(m: float, n: float, q: float, r: float) -> None:
    assert abs(improper_value(m, q) - improper_value(n, r)) <= abs(m - n) + abs(q - r) + 1e-9


def test_bad_arguments() -> None:
    with pytest.raises(ShapeError):
        diagnostics.late_ridge_bound(np.eye(3), 1.0, 1.0, np.arange(2))
    for known in ([0, 2, 2], [-1, 0, 0]):
        with pytest.raises(ConfigError):
            diagnostics.late_ridge_bound(np.eye(3), 1.0, 1.0, np.array(known))
    assert diagnostics.late_ridge_bound(np.empty((0, 0)), 1.0, 1.0, np.empty(0, np.int64)) == 0.0
    assert math.isfinite(diagnostics.late_ridge_bound(np.eye(3), 1e-9, 1.0, np.zeros(3, np.int64)))
