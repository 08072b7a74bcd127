"""The alarm for a risen error: the definition computed slowly, false alarms, delays, hostile numbers, exact state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from okl_core.contract.state import pack, unpack
from okl_core.errors import InputError, StateFormatError
from okl_core.monitoring import DriftAlarm, Rise, boundary
from okl_core.monitoring.drift import STAKES, Wealth
from okl_core.types import F64

SHARES = st.lists(st.floats(0.0, 1.0) | st.sampled_from((0.0, 1.0)), max_size=80)


def weight(j: int) -> float:
    """w_j; b by counting."""
    b = 0
    while 2 ** (b + 1) <= j:
        b += 1
    return 1.0 / ((b + 1) * (b + 2) * 2**b)


def slow(x: F64, alpha: float) -> Rise | None:
    """The first alarm, from all starts j of all stakes: E_k = sum_j w_j prod_{i >= j} (1 + lambda_k (y_i / m_i - 1))."""
    m, V = 1.0, np.cumsum([(x[i] - (x[:i].sum() + 0.5) / (i + 1)) ** 2 for i in range(len(x))])
    logs = np.full((len(STAKES), len(x) // 4), -np.inf)
    for i, mean in enumerate(x[: len(x) // 4 * 4].reshape(-1, 4).mean(axis=1).tolist(), start=1):
        logs[:, i - 1] = math.log(weight(i))
        logs[:, :i] += np.log(1.0 + np.array(STAKES) * (mean / m - 1.0))[:, None]
        if np.exp(logs[:, :i]).sum(axis=1).mean() >= 2.0 / alpha:
            j = 4 * int(np.unravel_index(logs[:, :i].argmax(), (len(STAKES), i))[1])
            return Rise(4 * i, x[:j].mean() if j else 0.0, x[j : 4 * i].mean(), j + 1)
        if i % 2 == 0:
            m = min(m, x[: 4 * i].mean() + boundary(V[4 * i - 1], alpha / 2.0) / (4 * i))
    return None


def test_the_weights_of_the_starts_sum_to_one() -> None:
    assert sum(weight(j) for j in range(1, 2**16)) == pytest.approx(1.0 - 1.0 / 17.0)


@settings(max_examples=40, deadline=None)
@given(SHARES, st.floats(0.0, 0.3), st.integers(0, 9))
# Drawn numbers hardly ever rise enough for an alarm.
@example([1.0] * 80, 0.1, 0)
@example([0.6] * 80, 0.2, 1)
@example([0.4, 0.0] * 40, 0.05, 2)
def test_an_alarm_is_computed_as_defined(after: list[float], p: float, seed: int) -> None:
    before = (np.random.default_rng(seed).random(150) < p).astype(float)
    x = np.concatenate((before, after))
    found, expected = DriftAlarm(is_of_numbers=False, alpha=0.2).run(x), slow(x, 0.2)
    if expected is None:
        assert found == []
    else:
        assert found[0] == pytest.approx(expected)


@pytest.mark.parametrize("p", [0.02, 0.3])
def test_false_alarms_are_as_rare_as_promised(p: float) -> None:
    """At an alpha of 0.5, so that few streams say something; the first alarm of each of 150 streams of 600 rounds."""
    rng, N = np.random.default_rng(1), 150
    alarms = sum(bool(DriftAlarm(False, alpha=0.5).run((rng.random(600) < p).astype(float))) for _ in range(N))
    assert alarms <= binom.ppf(0.999, N, 0.5)


def test_a_falling_error_gives_no_alarm() -> None:
    rng = np.random.default_rng(2)
    p = 0.05 + 0.45 * np.exp(-np.arange(2000) / 300.0)
    assert all(DriftAlarm(False).run((rng.random(2000) < p).astype(float)) == [] for _ in range(30))


@pytest.mark.parametrize(("before", "after", "delay"), [(0.1, 0.9, 60), (0.1, 0.3, 500), (0.3, 0.7, 200)])
def test_a_rise_is_noticed(before: float, after: float, delay: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        x = (rng.random(1800) < np.where(np.arange(1800) < 1000, before, after)).astype(float)
        alarm = DriftAlarm(False).run(x)[0]
        assert 1000 < alarm.t <= 1000 + delay
        assert abs(alarm.since - 1001) <= delay
        assert alarm.before == pytest.approx(before, abs=0.05)
        assert alarm.after == pytest.approx(after, abs=0.3)


def test_a_new_segment_follows_an_alarm() -> None:
    x = np.tile(np.repeat([0.0, 1.0], 300), 3)
    alarms = DriftAlarm(False).run(x)
    assert [alarm.since for alarm in alarms] == [301, 901, 1501]
    # The second segment begins with errors, so that its mean is near a half.
    assert all(alarm.t - alarm.since < 150 and alarm.after == 1.0 for alarm in alarms)


@pytest.mark.parametrize("is_of_numbers", [True, False])
def test_nothing_is_left_of_a_segment_after_its_alarm(is_of_numbers: bool) -> None:
    drift = DriftAlarm(is_of_numbers)
    x = np.where(np.arange(700) < 500, 1e-3, 1.0)
    alarm = drift.run(x)[0]
    single = DriftAlarm(is_of_numbers)
    assert [single.add(error) for error in x[: alarm.t].tolist()][-1] is not None
    assert single == DriftAlarm(is_of_numbers, t=alarm.t, wealth=single.wealth)
    assert not single.wealth.pack().any()


def test_squared_errors_of_numbers() -> None:
    rng = np.random.default_rng(4)
    z = rng.standard_normal(1200) * np.where(np.arange(1200) < 800, 1.0, 3.0)
    (alarm,) = DriftAlarm(True).run(1e-6 * z**2)
    assert 800 < alarm.t < 880
    assert alarm.before == pytest.approx(1e-6, rel=0.2)
    assert 3e-6 < alarm.after < 2e-5


def test_errors_without_a_scale_are_errors_or_none() -> None:
    drift = DriftAlarm(True)
    assert drift.run(np.zeros(500)) == []
    alarm = drift.run(np.full(20, 1e-300))[0]
    assert (alarm.since, alarm.before) == (501, 0.0)


@given(st.lists(st.floats(0.0, allow_nan=False), max_size=150), st.integers(0, 150), st.booleans())
def test_a_state_continues_bit_for_bit(errors: list[float], middle: int, is_of_numbers: bool) -> None:
    if not is_of_numbers:
        errors = [error % 1.0 if math.isfinite(error) else 1.0 for error in errors]
    drift = DriftAlarm(is_of_numbers, alpha=0.9)
    drift.run(errors[:middle])
    again = unpack(DriftAlarm, pack(drift))
    assert drift.run(errors[middle:]) == again.run(errors[middle:])
    arrays = {name: array.tobytes() for name, array in pack(drift).items()}
    assert {name: array.tobytes() for name, array in pack(again).items()} == arrays
    assert sum(map(len, arrays.values())) == 8 * (10 + 32)
    assert drift.nbytes == 8 * 32


@pytest.mark.parametrize("error", [math.nan, -1.0, -math.inf])
@pytest.mark.parametrize("is_of_numbers", [True, False])
def test_what_is_no_error_changes_nothing(error: float, is_of_numbers: bool) -> None:
    drift = DriftAlarm(is_of_numbers)
    with pytest.raises(InputError):
        drift.add(error)
    assert drift.t == 0
    if not is_of_numbers:
        with pytest.raises(InputError):
            drift.add(1.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", np.array(0.0)),
        ("t", np.array(5.0)),
        ("count", np.array(-1.0)),
        ("total", np.array(99.0)),
        ("settled", np.array(99.0)),
        ("spread", np.array(np.nan)),
        ("ceiling", np.array(0.0)),
        ("mean", np.array(np.inf)),
        ("seen", np.array(31.0)),
        ("wealth", np.zeros((4, 7))),
        ("wealth", np.full((4, 8), -1.0)),
    ],
)
def test_arrays_that_are_no_state_are_refused(name: str, value: F64) -> None:
    drift = DriftAlarm(True)
    drift.run(np.ones(50))
    with pytest.raises(StateFormatError):
        unpack(DriftAlarm, pack(drift) | {name: value})


def test_wealth_takes_what_it_packs() -> None:
    assert Wealth.unpack(Wealth().pack()).pack().tolist() == np.zeros((4, 8)).tolist()
