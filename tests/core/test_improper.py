"""The rule of AIOLI: its root, the lemma behind its surrogates, what it decides, and which norms it takes."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from okl_core import create, resolve, waits_for_inputs
from okl_core.contract.learner import parse_spec
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError
from okl_core.learners.aioli import AioliConfig
from okl_core.losses import least_flatness
from okl_core.second_order.improper import improper_value
from okl_core.second_order.space_and_rule import Moments

EPS = float(np.finfo(np.float64).eps)
COINS = RoundRng(0)

MEDIAN = {"kind": "gaussian", "sigma": "median"}


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log10(low), math.log10(high)).map(lambda x: 10.0**x)


def bisected(m: float, q: float) -> float:
    """The root of a + q tanh(a / 2) = m, m >= 0, by bisection in extended precision."""
    low, high = np.longdouble(0.0), np.longdouble(m)
    for _ in range(400):
        middle = (low + high) / 2
        if middle + q * np.tanh(middle / 2) < m:
            low = middle
        else:
            high = middle
    return float(high)


@given(log_uniform(1e-12, 1e12), log_uniform(1e-12, 1e12))
@example(1e8, 1e8)
@example(40.0, 1e-9)
@example(1e12, 1.0)
def test_the_root_is_the_one_that_bisection_finds(m: float, q: float) -> None:
    found, root = improper_value(m, q), bisected(m, q)
    slope = 1.0 + 0.5 * q / np.cosh(min(0.5 * root, 300.0)) ** 2
    # What half an ulp in m and in q moves the root by.
    unattainable = EPS * (m + q * math.tanh(0.5 * root)) / slope
    assert abs(found - root) <= 1e-12 * root + 4.0 * unattainable
    assert improper_value(-m, q) == -found


@given(st.floats(-1e300, 1e300), st.floats(0.0, 1e300))
def test_the_root_exists_for_all_numbers(m: float, q: float) -> None:
    assert abs(improper_value(m, q)) <= abs(m)
    assert improper_value(m, 0.0) == m
    assert improper_value(0.0, q) == 0.0


def bregman(u: float, b: float) -> np.longdouble:
    """l(u) - l(b) - l'(b) (u - b) of l(a) = log(1 + exp(-a))."""
    to, at = np.longdouble(u), np.longdouble(b)
    return np.logaddexp(0, -to) - np.logaddexp(0, -at) + (to - at) / (1 + np.exp(at))


def curvature_at(b: float) -> np.longdouble:
    """l''(b)."""
    e = np.exp(-abs(np.longdouble(b)))
    return e / (1 + e) ** 2


@given(log_uniform(0.01, 1000.0), st.floats(-1.0, 1.0), st.floats(-1.0, 1.0), log_uniform(0.01, 3000.0))
@example(1000.0, 1.0, 1.0, 6.0)
@example(1000.0, -1.0, 1.0, 6.0)
@example(1.0, 1.0, 0.0, 1.0)
@pytest.mark.parametrize("curvature", ["paper", "half", "exact"])
def test_the_surrogate_is_below_the_loss(curvature: str, C: float, share: float, side: float, far: float) -> None:
    config = AioliConfig.model_validate({"comparator_norm": C, "curvature": curvature})
    u, b = share * C, side * far
    kappa = config.rule.kappa(b, 1.0)
    surrogate = curvature_at(b) * (np.longdouble(u) - b) ** 2 / (2 * kappa)
    # The two are equal where u is an end and kappa is the least, which is right to some 100 roundings.
    rounding = 16 * np.finfo(np.longdouble).eps * (1.0 + abs(u) + abs(b)) + 1e-13 * surrogate
    assert bregman(u, b) - surrogate >= -rounding


@given(log_uniform(0.1, 30.0), st.floats(-1.0, 1.0), log_uniform(0.1, 60.0))
@example(2.0, 1.0, 2.0)
@example(2.0, -1.0, 2.0 - 2e-6)
@example(2.0, 1.0, 2.0 + 2e-5)
def test_no_smaller_kappa_would_do(C: float, side: float, far: float) -> None:
    b = math.copysign(far, side)
    kappa = least_flatness(b, C)
    assert kappa <= 1.0 + 0.5 * C + 1e-9
    grid = np.linspace(-C, C, 4001)
    apart = grid[np.abs(grid - b) > 1e-2]
    needed = max(float(curvature_at(b) * np.longdouble(u - b) ** 2 / (2 * bregman(u, b))) for u in apart.tolist())
    assert kappa == pytest.approx(needed, rel=1e-2)


@given(log_uniform(0.01, 1e3), st.floats(-1.0, 1.0), log_uniform(1e-3, 1e6))
@example(742.9084231024315, 1.0, 742.6270696231957)
@example(743.4321087295622, -1.0, 744.7320429553841)
@example(744.02, 1.0, 744.0)
def test_the_least_kappa_is_a_number_for_all_forecasts(C: float, side: float, far: float) -> None:
    assert 0.0 < least_flatness(math.copysign(far, side), C) <= (1.0 + 0.5 * C) * (1.0 + 1e-9)


def decimal_kappa(b: float, C: float) -> Decimal:
    """The least kappa where the parabola touches at C, b >= 0, from the definition, in decimal digits that leave 60."""
    with localcontext(prec=400):
        at, to = Decimal(b), Decimal(C)
        tail = (-at).exp()
        remainder = (1 + (-to).exp()).ln() - (1 + tail).ln() + (to - at) * tail / (1 + tail)
        return tail / (1 + tail) ** 2 * (to - at) ** 2 / (2 * remainder)


@given(log_uniform(0.01, 600.0), log_uniform(1e-9, 60.0), st.sampled_from([-1.0, 1.0]), st.sampled_from([-1.0, 1.0]))
@example(4.0, 0.01, -1.0, 1.0)
@example(4.0, math.nextafter(0.01, 0.0), 1.0, 1.0)
@example(0.04, 0.01, -1.0, 1.0)
@example(0.01, 1.0, 1.0, -1.0)
@example(0.01, 690.0, 1.0, 1.0)
@example(600.0, 600.0, -1.0, 1.0)
def test_the_least_kappa_is_exact_to_twelve_digits(C: float, distance: float, way: float, side: float) -> None:
    b = abs(C + way * distance)
    if b != C:
        kappa = least_flatness(side * b, C)
        assert abs(Decimal(kappa) / decimal_kappa(b, C) - 1) <= Decimal("1e-12")


def test_the_halved_constant_is_tight() -> None:
    C, b = 1000.0, 6.0
    least = curvature_at(b) * (C - b) ** 2 / (2 * bregman(C, b))
    assert 0.49 * C <= least <= 1.0 + 0.5 * C


@given(st.floats(-40.0, 40.0), log_uniform(1e-6, 1e6), st.sampled_from([-1.0, 1.0]), log_uniform(0.01, 100.0))
def test_the_decision_is_that_of_the_table(m: float, q: float, y: float, R: float) -> None:
    config = AioliConfig(comparator_norm=3.0)
    a, w, c, rho_delta, g = config.rule.decide(Moments(m, q, R * R), y, 7, COINS)
    p, rest = 1.0 / (1.0 + math.exp(y * a)), 1.0 / (1.0 + math.exp(-y * a))
    assert a == improper_value(m, q)
    assert w == pytest.approx(p * rest / (1.0 + 3.0 * R * 0.5), rel=1e-9)
    assert (c, g) == (pytest.approx(w * a + y * p, rel=1e-9), pytest.approx(-y * p, rel=1e-9))
    size = c / math.sqrt(w) + math.sqrt(w) * (abs(m) + q)
    assert rho_delta == pytest.approx(c / math.sqrt(w) - math.sqrt(w) * m, rel=1e-9, abs=1e-9 * abs(size))


@pytest.mark.parametrize("m", [800.0, -800.0, 1e8, -1e12])
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_sure_forecasts_neither_overflow_nor_lose_their_gradient(m: float, y: float) -> None:
    a, w, c, rho_delta, _ = AioliConfig().rule.decide(Moments(m, 0.5, 1.0), y, 1, COINS)
    assert a == pytest.approx(m, rel=1e-3)
    assert (w, c, rho_delta) == (0.0, 0.0 if y * m > 0.0 else y, 0.0)


class TestInputNorm:
    """R: none, a number, or `warmup`."""

    def test_a_larger_input_counts_with_its_own_norm(self) -> None:
        rule = AioliConfig(comparator_norm=2.0, input_norm=3.0, curvature="paper").rule
        assert [rule.kappa(0.0, norm * norm) for norm in (0.5, 3.0, 5.0)] == [7.0, 7.0, 11.0]
        assert AioliConfig(comparator_norm=2.0, curvature="half").rule.kappa(0.0, 25.0) == 6.0

    @pytest.mark.parametrize("intercept", [True, False])
    def test_the_warmup_gives_the_largest_norm(self, intercept: bool) -> None:
        spec = {"kind": "aioli", "seed": 3, "config": {"input_norm": "warmup", "intercept": intercept}}
        assert waits_for_inputs(spec)
        resolved = resolve(spec, np.array([[3.0, 4.0], [0.0, 1.0]]))
        assert resolved.config["input_norm"] == pytest.approx(math.sqrt(25.0 + intercept))
        assert (resolved.seed, waits_for_inputs(resolved)) == (3, False)
        create(resolved, 2)
        create(resolve(spec, np.empty((0, 2))), 2)

    def test_lags_are_counted_in(self) -> None:
        spec = {"kind": "aioli", "lags": 2, "config": {"input_norm": "warmup", "intercept": False}}
        resolved = resolve(spec, np.array([[2.0], [1.0], [1.0]]), np.array([1.0, -1.0, 1.0]))
        assert resolved.config["input_norm"] == 2.0

    @pytest.mark.parametrize(
        ("kernel", "sigma", "R"),
        [(MEDIAN, 2.0, 1.0), ({"kind": "linear"}, None, 3.0), ({"kind": "polynomial"}, None, 10.0)],
    )
    def test_a_kernel_gives_the_root_of_its_diagonal(
        self, kernel: dict[str, Any], sigma: float | None, R: float
    ) -> None:
        spec = {"kind": "kernel-aioli", "config": {"input_norm": "warmup", "kernel": kernel}}
        resolved = resolve(spec, np.array([[0.0], [1.0], [3.0]]))
        assert resolved.config["input_norm"] == pytest.approx(R)
        assert resolved.config["kernel"].get("sigma") == sigma

    def test_unresolved_it_is_refused_with_all_that_waits(self) -> None:
        spec = {"kind": "kernel-aioli", "config": {"input_norm": "warmup", "kernel": MEDIAN}}
        with pytest.raises(ConfigError, match='sigma "median" and input_norm "warmup" must be resolved') as caught:
            create(spec, 2)
        assert [path for path, _ in caught.value.errors] == [("kernel", "sigma"), ("input_norm",)]
        with pytest.raises(ConfigError, match='input_norm "warmup" must be resolved'):
            create({"kind": "aioli", "config": {"input_norm": "warmup"}}, 2)

    def test_an_expert_of_a_pool_has_no_warmup(self) -> None:
        with pytest.raises(ConfigError, match='give input_norm itself, not "warmup"'):
            parse_spec({"kind": "pool", "config": {"experts": [{"kind": "aioli", "config": {"input_norm": "warmup"}}]}})


@pytest.mark.parametrize("kind", ["kernel-aioli", "nystrom-aioli"])
def test_inputs_that_hide_the_variance_are_refused_however_light_their_rounds(kind: str) -> None:
    """A column of times with a linear kernel: q would be off by far more than 1, and with it the forecast."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[40:, 0] += 1.7e9
    dictionary = {"dictionary": {"kind": "ald"}} if kind == "nystrom-aioli" else {}
    learner = create({"kind": kind, "config": {"kernel": {"kind": "linear"}} | dictionary}, 3)
    learner.run(X[:40], np.ones(40))
    before = learner.state()
    for x in X[40:]:
        with pytest.raises(DivergedError, match="scale the inputs down"):
            learner.update(x, 1.0)
        with pytest.raises(DivergedError, match="scale the inputs down"):
            learner.run(x[None], np.ones(1))
    assert all(np.array_equal(before[name], array) for name, array in learner.state().items())
