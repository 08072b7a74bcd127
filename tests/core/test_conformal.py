"""Adaptive conformal thresholds: what is promised for every stream, and that it is useful on ordinary ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from okl_core.conformal import (
    Conformal,
    ConformalState,
    class_score,
    excess_bound,
    interval,
    number_score,
    prediction_set,
)
from okl_core.contract.state import pack
from okl_core.errors import InputError, NonFiniteError, StateFormatError
from okl_core.types import F64

LEVELS = st.sampled_from((0.5, 0.8, 0.9, 0.95, 0.99))
SCORES = st.floats(0.0, 1e300)


def play(
    conformal: Conformal, score: Callable[[int, float], float], lags: list[int]
) -> tuple[ConformalState, F64, F64]:
    """Rounds of which round t is learned after so many others were issued; the scores and what was issued."""
    state = conformal.init()
    waiting: list[tuple[int, float, float, int]] = []
    scores, issued = np.empty(len(lags)), np.empty(len(lags))
    for t, lag in enumerate(lags):
        issued[t] = conformal.threshold(state)
        scores[t] = score(t, issued.item(t))
        waiting.append((t + lag, scores.item(t), issued.item(t), state.rounds))
        for one in [one for one in waiting if one[0] <= t]:
            conformal.learn(state, one[1], one[2], state.rounds - one[3])
            waiting.remove(one)
    return state, scores, issued


@given(LEVELS, st.lists(st.tuples(SCORES, st.integers(0, 12)), max_size=120))
def test_the_excess_is_bounded_for_every_stream(level: float, rounds: list[tuple[float, int]]) -> None:
    conformal = Conformal(level=level)
    state, _, _ = play(conformal, lambda t, q: rounds[t][0], [lag for _, lag in rounds])
    described = conformal.describe(state)
    assert described["excess"] <= described["bound"] + 1e-9
    assert described["excess"] == state.misses - conformal.alpha * state.counted


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("lag", [0, 1, 30])
def test_the_bounds_hold_against_who_sees_the_threshold(level: float, lag: int) -> None:
    conformal = Conformal(level=level)
    alpha, pending = conformal.alpha, 1 + lag
    M = max(1.0, alpha * pending)

    always, _, _ = play(conformal, lambda t, q: 1.5 * q if 0.0 < q < 1e300 else 1e-300, [lag] * 3000)
    assert conformal.excess(always) <= excess_bound(level, lag)
    assert conformal.excess(always) >= 5.0 * M

    never, _, issued = play(conformal, lambda t, q: 0.5 * q if 0.0 < q < math.inf else 1.0, [lag] * 3000)
    assert conformal.excess(never) >= -(5.0 * M * (1.0 - alpha) / alpha + alpha * pending) - 1e-9
    assert np.isfinite(issued[lag + 1 :]).all()


def test_scores_of_one_scale_cost_few_misses() -> None:
    conformal = Conformal(level=0.9)
    greedy, _, issued = play(conformal, lambda t, q: min(1.0, q + 0.01), [0] * 3000)
    # 5 M + (1 - alpha), since no score is above twice the largest kept.
    assert conformal.excess(greedy) <= 5.9
    assert np.isfinite(issued[1:]).all()


@given(LEVELS, st.lists(SCORES.filter(bool), min_size=1, max_size=150))
def test_the_level_is_that_of_adaptive_conformal_inference(level: float, scores: list[float]) -> None:
    """[gibbs2021] (2), with a step of alpha / 5, and quantiles of numpy."""
    conformal = Conformal(level=level)
    state, a = conformal.init(), conformal.alpha
    for t, score in enumerate(scores):
        q = conformal.threshold(state)
        kept = scores[max(0, t - conformal.kept) : t]
        n = len(kept)
        if n and 1.0 / (n + 1) <= 1.0 - a <= n / (n + 1):
            assert q == pytest.approx(np.quantile(kept, 1.0 - a, method="weibull"), rel=1e-6)
        elif n and a <= 0.0:
            assert q >= 2.0 * max(kept) * (1.0 - 1e-9)
        conformal.learn(state, score, q)
        a += conformal.alpha / 5.0 * (conformal.alpha - (score > q))


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("lag", [0, 20])
def test_coverage_and_width_on_draws(level: float, lag: int) -> None:
    scores = np.abs(np.random.default_rng(0).standard_normal(5000))
    conformal = Conformal(level=level)
    _, _, issued = play(conformal, lambda t, q: scores.item(t), [lag] * len(scores))
    assert abs((scores <= issued).mean() - level) < 0.005
    known = issued[lag + 1 :]
    assert known.mean() == pytest.approx(np.quantile(scores, level), rel=0.06)
    assert np.isfinite(known).all()


def test_coverage_when_the_scale_jumps_by_a_thousand() -> None:
    rng = np.random.default_rng(1)
    scores = np.abs(rng.standard_normal(6000)) * 1000.0 ** (np.arange(6000) // 1000 % 2)
    state, _, issued = play(Conformal(), lambda t, q: scores.item(t), [0] * 6000)
    held = np.convolve(scores <= issued, np.ones(500) / 500, "valid")
    assert held.min() > 0.85
    assert held.max() < 0.95
    assert state.scores.shape == (100,)


def test_the_mean_lag_is_that_of_the_scores_kept() -> None:
    conformal = Conformal(level=0.5)
    state, mean = conformal.init(), 0.0
    for t in range(1, 301):
        lag = 0 if t <= 200 else 10
        conformal.learn(state, score=1.0, issued=1.0, lag=lag)
        mean += (lag - mean) / min(t, 20)
        assert state.mean_lag == pytest.approx(mean)
    # All of the 20 scores that are kept came late.
    assert mean > 9.9


def test_below_the_smallest_score_the_threshold_falls_to_0() -> None:
    conformal = Conformal(level=0.6)
    state = conformal.init()
    for t in range(18):
        conformal.learn(state, score=1.0 + t, issued=math.inf)
    # E = -7.2, so a = 0.4 (1 + 7.2 / 5) = 0.976 and (1 - a) (18 + 1) = 0.456.
    assert conformal.threshold(state) == pytest.approx(0.456)
    conformal.learn(state, score=19.0, issued=math.inf)
    assert conformal.threshold(state) == 0.0


def test_a_class_at_the_threshold_is_in_the_set() -> None:
    assert prediction_set((0.5, 0.25, 0.25), 0.75) == (0, 1, 2)


def test_the_first_rounds_have_sensible_thresholds() -> None:
    scores = np.abs(np.random.default_rng(2).standard_normal(20))
    _, _, issued = play(Conformal(), lambda t, q: scores.item(t), [0] * 20)
    assert math.isinf(issued[0])
    assert (issued[1:] <= 2.0 * np.maximum.accumulate(scores)[:-1] * 1.5).all()


def test_exact_forecasts_leave_no_credit() -> None:
    conformal = Conformal()
    state = conformal.init()
    for _ in range(10_000):
        conformal.learn(state, 0.0, conformal.threshold(state))
    assert conformal.threshold(state) == 0.0
    assert state.counted == 1  # the first, whose threshold was infinite
    misses = 0
    for t in range(200):
        q, score = conformal.threshold(state), 1.0 + 0.1 * math.sin(t)
        misses += score > q
        conformal.learn(state, score, q)
    assert misses <= 30


@given(st.lists(st.floats(0.0, 10.0), max_size=150))
def test_a_state_goes_on_from_its_arrays(scores: list[float]) -> None:
    conformal = Conformal()
    state = conformal.init()
    for score in scores:
        conformal.learn(state, score, conformal.threshold(state), lag=3)
    arrays = pack(state)
    again = conformal.unpack(arrays)
    assert conformal.threshold(again) == conformal.threshold(state)
    assert {name: array.tobytes() for name, array in pack(again).items()} == {n: a.tobytes() for n, a in arrays.items()}
    assert state.nbytes == 800


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scores", np.zeros(99)),
        ("scores", np.full(100, -1.0)),
        ("scores", np.full(100, np.inf)),
        ("misses", np.array(5.0)),
        ("rounds", np.array(-1.0)),
        ("mean_lag", np.array(np.nan)),
        ("mean_lag", np.array(1.0)),
    ],
)
def test_arrays_that_are_no_state_are_refused(name: str, value: F64) -> None:
    conformal = Conformal()
    with pytest.raises(StateFormatError):
        conformal.unpack(pack(conformal.init()) | {name: value})


@pytest.mark.parametrize("level", [0.0, 0.49, 0.999, math.nan])
def test_levels_are_checked(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        Conformal(level=level)


@pytest.mark.parametrize(("score", "issued", "lag"), [(math.nan, 1.0, 0), (math.inf, 1.0, 0), (1.0, math.nan, 0)])
def test_numbers_that_are_not_finite_change_nothing(score: float, issued: float, lag: int) -> None:
    conformal = Conformal()
    state = conformal.init()
    with pytest.raises(NonFiniteError):
        conformal.learn(state, score, issued, lag)
    assert state.rounds == 0


@pytest.mark.parametrize(("score", "issued", "lag"), [(-1.0, 1.0, 0), (1.0, -1.0, 0), (1.0, 1.0, -1)])
def test_negative_numbers_are_refused(score: float, issued: float, lag: int) -> None:
    with pytest.raises(InputError):
        Conformal().learn(Conformal().init(), score, issued, lag)


@given(st.floats(-1e308, 1e308), st.floats(-1e308, 1e308))
@example(1e308, -1e308)
def test_scores_of_finite_numbers_are_finite(value: float, y: float) -> None:
    assert 0.0 <= number_score(value, y) < math.inf


@given(st.floats(-1e3, 1e3), st.floats(-10.0, 10.0), st.floats(0.0, 1e3) | st.just(math.inf))
def test_an_interval_holds_every_truth_that_is_not_missed(value: float, y: float, threshold: float) -> None:
    low, high = interval(value, threshold, (-10.0, 10.0))
    assert -10.0 <= low <= high <= 10.0
    if number_score(value, y) <= threshold:
        assert low - 1e-9 <= y <= high + 1e-9


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=9).filter(any), st.floats(0.0, 2.0) | st.just(math.inf))
def test_a_set_holds_every_class_that_is_not_missed(weights: list[float], threshold: float) -> None:
    p = tuple(weight / sum(weights) for weight in weights)
    held = prediction_set(p, threshold)
    assert held == tuple(sorted(held))
    assert p.index(max(p)) in held
    assert all(k in held for k in range(len(p)) if class_score(p[k]) <= threshold)


def test_sets_of_classes_hold_the_truth() -> None:
    rng = np.random.default_rng(3)
    conformal = Conformal(level=0.9)
    state, held, sizes = conformal.init(), 0, 0
    for _ in range(4000):
        p = rng.dirichlet(np.full(5, 0.7))
        truth = int(rng.choice(5, p=p))
        q = conformal.threshold(state)
        chosen = prediction_set(tuple(p.tolist()), q)
        held, sizes = held + (truth in chosen), sizes + len(chosen)
        conformal.learn(state, class_score(p.item(truth)), q)
    assert abs(held / 4000 - 0.9) < 0.01
    assert 1.5 < sizes / 4000 < 3.5
