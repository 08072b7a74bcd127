"""The boundary, and bands of comparisons: what the proof needs, coverage at all times, and other boundaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammainc, gammaln, zeta
from scipy.stats import binom

from okl_core.contract.state import pack, unpack
from okl_core.errors import InputError, StateFormatError
from okl_core.monitoring import Comparison, boundaries, boundary
from okl_core.monitoring.bands import LAMBDAS, WEIGHTS
from okl_core.monitoring.comparison import cut
from okl_core.types import F64

DIFFERENCES = st.lists(st.floats(-1.0, 1.0), max_size=60)


def mixture(v: float, alpha: float, v_opt: float = 10.0) -> float:
    """The gamma-exponential mixture boundary of [howard2021], c = 1, tuned as [choe2024]."""
    log = math.log(1.0 / (2.0 * alpha))
    rho = v_opt / (2.0 * log + math.log(1.0 + 2.0 * log))

    def excess(s: float) -> float:
        A = v + rho
        own = rho * math.log(rho) - gammaln(rho) - math.log(gammainc(rho, rho))
        return own + gammaln(A) + math.log(gammainc(A, s + A)) - A * math.log(s + A) + s + v + math.log(alpha)

    return float(brentq(excess, 0.0, 100.0 * (1.0 + math.sqrt(v)) + 100.0))


def stitched(v: float, alpha: float) -> float:
    """The stitched boundary of [howard2021], theorem 1 for c = 1, eta = 2, s = 1.4."""
    ell = 1.4 * math.log(math.log(2.0 * max(v, 1.0))) + math.log(zeta(1.4) / (alpha * math.log(2.0) ** 1.4))
    k1, k2 = (2.0**0.25 + 2.0**-0.25) / math.sqrt(2.0), (math.sqrt(2.0) + 1.0) / 2.0
    return math.sqrt(k1 * k1 * max(v, 1.0) * ell + (k2 * ell) ** 2) + k2 * ell


def test_the_mixture_in_closed_form_is_its_integral() -> None:
    """exp(lambda s - psi v) over the density of lambda; 1 at the origin, 1 / alpha on the boundary."""
    rho, v = 1.2, 40.0

    def density(lam: float) -> float:
        return math.exp(rho * (math.log1p(-lam) + lam)) / (1.0 - lam)

    whole = quad(density, 0.0, 1.0)[0]
    assert whole == pytest.approx(math.exp(rho + gammaln(rho) - rho * math.log(rho)) * gammainc(rho, rho), rel=1e-6)
    log = brentq(lambda log: 10.0 / (2.0 * log + math.log(1.0 + 2.0 * log)) - rho, 0.1, 50.0)
    alpha = math.exp(-log) / 2.0
    s = mixture(v, alpha)
    found = quad(lambda lam: math.exp(lam * s + v * (math.log1p(-lam) + lam)) * density(lam), 0.0, 1.0)[0] / whole
    assert found == pytest.approx(1.0 / alpha, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.005, 0.0125, 0.025, 0.05])
def test_lines_are_as_low_as_the_mixture_and_lower_than_the_stitched(alpha: float) -> None:
    for v in np.geomspace(1.0, 1e6, 40).tolist():
        u = boundary(v, alpha)
        assert u < stitched(v, alpha)
        assert 0.9 < u / mixture(v, alpha) < 1.15


def test_what_the_proof_needs() -> None:
    assert sum(WEIGHTS) < 1.0
    x = np.linspace(-1.0, 1.0, 2001)
    for lam in LAMBDAS:
        psi = -math.log1p(-lam) - lam
        assert (np.exp(lam * x - psi * x * x) <= (1.0 + lam * x) * (1.0 + 1e-12)).all()


SPREADS = st.lists(st.floats(0.0, 1e12), min_size=1, max_size=5)
ALPHAS = st.lists(st.floats(1e-12, 0.5), min_size=1, max_size=3)


@given(SPREADS, ALPHAS, st.floats(0.1, 10.0))
def test_one_and_many_agree(spreads: list[float], alphas: list[float], c: float) -> None:
    many = boundaries(np.array(spreads)[:, None], np.array(alphas), c)
    assert many == pytest.approx(np.array([[boundary(v, alpha, c) for alpha in alphas] for v in spreads]), rel=1e-12)
    assert boundaries(np.array([]), alphas[0], c).shape == (0,)


def test_two_lines_that_meet() -> None:
    spreads = [352.55106041802725, 352.5510604180273]
    assert boundaries(np.array(spreads), 0.005) == pytest.approx([boundary(v, 0.005) for v in spreads], rel=1e-12)


@given(st.floats(0.0, 1e12), st.floats(1e-12, 0.5), st.floats(0.1, 10.0))
def test_it_grows_with_v_and_falls_with_alpha(v: float, alpha: float, c: float) -> None:
    one = boundary(v, alpha, c)
    assert 0.0 < one <= boundary(2.0 * v + 1.0, alpha, c)
    assert one <= boundary(v, alpha / 2.0, c)


def covered(D: F64, means: F64, alpha: float) -> float:
    """Share of the streams, rows of D, whose mean of conditional means is in the band at all times."""
    n = np.arange(1, D.shape[1] + 1)
    total = np.cumsum(D, axis=1)
    guess = np.concatenate((np.zeros((len(D), 1)), total[:, :-1] / n[:-1]), axis=1)
    width = boundaries(np.cumsum((D - guess) ** 2, axis=1), alpha / 2.0, 2.0)
    return float((np.abs(total - np.cumsum(means, axis=1)) <= width).all(axis=1).mean())


@pytest.mark.parametrize("kind", ["rare", "half", "drifting", "feedback"])
def test_coverage_at_all_times(kind: str) -> None:
    rng, N, T, alpha = np.random.default_rng(5), 400, 1000, 0.2
    means = np.zeros((N, T))
    if kind == "feedback":
        # A mean that depends on the past, so that no two differences are independent.
        D = np.zeros((N, T))
        for t in range(T):
            means[:, t] = 0.5 * np.sign(D[:, :t].sum(axis=1))
            D[:, t] = np.where(rng.random(N) < (1.0 + means[:, t]) / 2.0, 1.0, -1.0)
    else:
        p = {"rare": 0.02, "half": 0.5, "drifting": (1.0 + np.sin(np.arange(T) / 50.0)) / 2.0}[kind]
        means += 2.0 * np.broadcast_to(p, T) - 1.0
        D = np.where(rng.random((N, T)) < np.broadcast_to(p, T), 1.0, -1.0)
    assert covered(D, means, alpha) >= 1.0 - binom.ppf(0.999, N, alpha) / N


@given(DIFFERENCES, st.sampled_from((0.5, 0.9, 0.99)))
def test_a_band_is_computed_as_defined(differences: list[float], level: float) -> None:
    comparison = Comparison()
    for difference in differences:
        comparison.add(difference)
    n = len(differences)
    V = sum((d - (sum(differences[:i]) / i if i else 0.0)) ** 2 for i, d in enumerate(differences))
    assert comparison.spread == pytest.approx(V, abs=1e-9)
    low, high = comparison.band(level)
    assert -1.0 <= low <= high <= 1.0
    if n:
        mean, width = sum(differences) / n, boundary(V, (1.0 - level) / 2.0, 2.0) / n
        assert low == pytest.approx(max(mean - width, -1.0), abs=1e-9)
        assert high == pytest.approx(min(mean + width, 1.0), abs=1e-9)
    assert comparison.is_better(level) == (low > 0.0)


@given(DIFFERENCES, DIFFERENCES)
def test_a_comparison_continues_bit_for_bit(before: list[float], after: list[float]) -> None:
    comparison = Comparison()
    for difference in before:
        comparison.add(difference)
    again = unpack(Comparison, pack(comparison))
    for difference in after:
        comparison.add(difference)
        again.add(difference)
    assert again == comparison


@pytest.mark.parametrize("difference", [-1.1, 1.1, math.nan, math.inf])
def test_what_is_no_difference_changes_nothing(difference: float) -> None:
    comparison = Comparison()
    with pytest.raises(InputError):
        comparison.add(difference)
    assert comparison == Comparison()


@pytest.mark.parametrize("sums", [(-1, 0.0, 0.0), (1, 2.0, 0.0), (1, 0.0, -1.0), (1, math.nan, 0.0), (0, 0.0, 1.0)])
def test_sums_of_no_differences_are_refused(sums: tuple[int, float, float]) -> None:
    with pytest.raises(StateFormatError):
        Comparison(*sums)


@given(st.floats(0.0, allow_nan=False), st.floats(0.0, allow_nan=False))
def test_cut_errors_are_between_0_and_1(error: float, scale: float) -> None:
    assert 0.0 <= cut(error, scale) <= 1.0
    if 0.0 < scale < 1e300 and error < 1e300:
        assert cut(error, scale) == min(error / scale, 1.0)
