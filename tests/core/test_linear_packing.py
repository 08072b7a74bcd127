"""Packings with linear fits: against regularised least squares solved anew every round, and the corners of their states."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from bench.papers.metric_runs import directional_stream, measure
from okl_core import OnlineLearner, create, restore
from okl_core.contract.agreement import close_states, same_arrays, same_rounds
from okl_core.errors import ConfigError, StateFormatError
from okl_core.packing.local_linear import LocalLinear
from okl_core.packing.packing_config import MOST_LINEAR
from tests.core.packing_streams import ball, lattice, truths
from tests.core.test_metric_packing import MODES, POINTS, learner_of, stream
from tests.core.test_metric_packing import play_all as play_rounds
from tests.core.test_packing import METRICS, metric_of, packing, play_all, same_packing
from tests.oracles.metric_packing import delay, phased_packing
from tests.oracles.packing import ellipsoid_packing

LINEAR = {"estimate": "linear"}


@pytest.mark.pairs
@pytest.mark.parametrize("include_center", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", METRICS)
def test_it_is_regularised_least_squares_in_every_ball(name: str, d: int, include_center: bool) -> None:
    rng = np.random.default_rng(d)
    metric, M = metric_of(name, d)
    X = ball(450, d, rng) if name == "full" else np.vstack((lattice(200, d, rng), ball(250, d, rng)))
    X[200::7] = X[5:-195:7][: len(X[200::7])]
    y = truths(X, rng)
    config = {"include_center": include_center, "slope_regularization": 0.02, **LINEAR}
    single, blocked = (packing(metric, d, **config) for _ in range(2))
    expected = ellipsoid_packing(X, y, M, include_center, slope_regularization=0.02)
    run, choices = play_all(single, X, y)
    assert run.active == expected.active
    np.testing.assert_allclose(run.values, expected.values, rtol=0.0, atol=1e-9)
    info = blocked.run(X, y)
    assert info.choices == choices
    assert info.values.tolist() == run.values
    same_packing(single, blocked)


@pytest.mark.pairs
@pytest.mark.parametrize("memory", [8192, 130])
@pytest.mark.parametrize(("refeed", "spread"), MODES)
@pytest.mark.parametrize("d", [1, 3])
def test_it_is_the_phased_algorithm(d: int, refeed: bool, spread: bool, memory: int) -> None:
    X, y = stream(300, d)
    # As in the test of the means: with alpha = 1 rounding may decide a rank.
    config = {"refeed": refeed, "spread": spread, "memory": memory, "metric_regularization": 0.9, **LINEAR}
    learner, blocked = learner_of(d, **config), learner_of(d, **config)
    values = [played.forecast.value for played in play_rounds(learner, X, y)]
    last = 126 if memory == 130 else 300
    late = (lambda n: delay(n, d, POINTS, refeed)) if spread else (lambda n: 0)
    expected = phased_packing(X, y, POINTS, refeed, late, last, 0.9, slope_regularization=0.01)
    np.testing.assert_allclose(values, expected, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(blocked.run(X, y).values, expected, rtol=0.0, atol=1e-9)
    close_states(learner.state(), blocked.state(), "a run in blocks")


@pytest.mark.parametrize("slope_regularization", [1e-12, 1e-3, 1e6])
def test_thousands_of_rounds_in_one_ball_lose_no_digits(slope_regularization: float) -> None:
    rng = np.random.default_rng(0)
    d, n = 4, 4000
    centre = np.full(d, 1e3)
    # Almost all along one direction, and many times the same.
    V = rng.uniform(-0.1, 0.1, (n, 1)) * np.array([1.0, -1.0, 0.5, 0.0]) + 1e-4 * rng.standard_normal((n, d))
    V[::3] = V[0]
    residuals = np.clip(V @ np.array([2.0, 0.0, 1.0, 3.0]) + 0.1 * rng.standard_normal(n), -0.5, 0.5)
    fits = LocalLinear(d)
    fits.append(centre, slope_regularization)
    total = 0.0
    for i, (v, residual) in enumerate(zip(V, residuals.tolist(), strict=True)):
        fits.absorb(0, centre + v, residual - total / max(i, 1), float(i))
        total += residual
    Z = centre + V - (centre + V).mean(axis=0)
    A = np.vstack((Z, math.sqrt(slope_regularization) * np.eye(d)))
    expected = np.linalg.lstsq(A, np.append(residuals - residuals.mean(), np.zeros(d)))[0]
    np.testing.assert_allclose(fits.slopes.view[0], expected, rtol=1e-6, atol=1e-9)
    S = fits.roots.view[0]
    np.testing.assert_allclose(S @ S.T @ (A.T @ A), np.eye(d), atol=1e-6)


@pytest.mark.parametrize("kind", ["packing", "metric-packing"])
def test_an_affine_function_is_found(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = ball(600, 2, rng)
    y = 0.5 + X @ np.array([0.3, -0.1])
    errors = {}
    for estimate in ("mean", "linear"):
        config = {"estimate": estimate, "slope_regularization": 1e-9}
        info = create({"kind": kind, "config": config}, 2).run(X, y)
        errors[estimate] = np.abs(info.values - y)[-100:]
    assert np.median(errors["linear"]) < 1e-4 * np.median(errors["mean"])


def test_the_units_of_the_truths_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    X = ball(300, 3, rng)
    y = truths(X, rng)
    values = packing("identity", 3, **LINEAR).run(X, y).values
    other = packing("identity", 3, truth_range=[-7.0, 393.0], **LINEAR).run(X, 400.0 * y - 7.0).values
    np.testing.assert_allclose(other, 400.0 * values - 7.0, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("truth_range", [[0.0, 1.0], [-1e150, 1e150], [1.0, 1.0 + 2e-16]])
@pytest.mark.parametrize("slope_regularization", [1e-12, 1.0])
def test_far_from_all_balls_the_forecast_is_an_end_of_the_range(
    truth_range: list[float], slope_regularization: float
) -> None:
    low, high = truth_range
    learner = packing("identity", 2, truth_range=truth_range, slope_regularization=slope_regularization, **LINEAR)
    X = 0.1 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 0.0]])
    learner.run(X, np.array([low, high, low, low, low, high]))
    for size in (10.0, 1e8, 1e153):
        for direction in (np.array([1.0, 0.0]), np.array([-1.0, 0.0]), np.array([1.0, 1.0])):
            value = learner.predict(size * direction).value
            assert low <= value <= high
            if slope_regularization < 1.0:
                assert value == (low if direction[0] < 0.0 else high)


@pytest.mark.parametrize("include_center", [True, False])
def test_with_one_round_it_is_the_truth_of_that(include_center: bool) -> None:
    learner = packing("identity", 1, include_center=include_center, truth_range=[-1.0, 4.0], **LINEAR)
    assert learner.predict(np.zeros(1)).value == 1.5
    learner.update(np.zeros(1), 3.0)
    assert learner.predict(np.ones(1)).value == 3.0
    learner.update(np.array([5.0]), -1.0)
    assert learner.predict(np.array([5.2])).value == (-1.0 if include_center else 1.5)
    learner.update(np.array([5.2]), 1.0)
    slope = 0.2 * 2.0 / 2.0 / (0.01 + 0.2**2 / 2.0)
    expected = slope * 0.1 if include_center else 1.0
    assert learner.predict(np.array([5.2])).value == pytest.approx(expected)


@pytest.mark.parametrize(("refeed", "spread"), MODES)
def test_restored_at_every_round_it_continues_bit_for_bit(refeed: bool, spread: bool) -> None:
    X, y = stream(150, 3)
    learner = learner_of(3, refeed=refeed, spread=spread, memory=100, **LINEAR)
    again = learner
    replayed = 0
    for x, truth in zip(X, y.tolist(), strict=True):
        arrays = again.state()
        replayed += "successor.packing.fits.roots" in arrays
        again = restore(learner.spec, arrays, 3)
        same_rounds(learner.play(x, truth), again.play(x, truth), "a restored learner")
        learner.update(x, truth)
        again.update(x, truth)
        same_arrays(learner.state(), again.state(), "a restored learner")
    assert (replayed > 0) == (refeed and spread)


@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_its_updates_however_it_is_cut(seed: int) -> None:
    X, y = stream(300, 3)
    rng = np.random.default_rng(seed)
    single, learner = (learner_of(3, memory=200, **LINEAR) for _ in range(2))
    rounds = play_rounds(single, X, y)
    cuts = [0, *sorted(rng.integers(0, 300, 6).tolist()), 300]
    values = np.concatenate([learner.run(X[a:b], y[a:b]).values for a, b in itertools.pairwise(cuts)])
    np.testing.assert_allclose(values, [played.forecast.value for played in rounds], rtol=0.0, atol=1e-9)
    close_states(single.state(), learner.state(), "a run in blocks")


def test_means_have_no_arrays_of_fits() -> None:
    X, y = stream(80, 2)
    for learner in (packing("identity", 2), learner_of(2)):
        learner.run(X, y)
        assert not [name for name in learner.state() if "fits" in name]


def mixed(kind: str) -> tuple[OnlineLearner, OnlineLearner]:
    """After the same rounds, with means and with linear fits; `metric-packing` while rounds are played again."""
    X, y = stream(68, 2)
    learners = [create({"kind": kind, "config": config}, 2) for config in ({}, LINEAR)]
    for learner in learners:
        learner.run(X, y)
    return learners[0], learners[1]


@pytest.mark.parametrize("kind", ["packing", "metric-packing"])
def test_a_state_of_the_other_estimate_is_refused(kind: str) -> None:
    mean, linear = mixed(kind)
    for spec, state in ((mean.spec, linear.state()), (linear.spec, mean.state())):
        with pytest.raises(StateFormatError, match="linear fits"):
            restore(spec, state, 2)


def test_damaged_fits_are_refused() -> None:
    _, linear = mixed("metric-packing")
    arrays = linear.state()
    assert "successor.packing.fits.roots" in arrays
    for part in ("packing", "successor.packing"):
        names = [f"{part}.fits.{name}" for name in ("means", "slopes", "roots")]
        for name in names:
            for damage in (arrays[name][:-1], arrays[name][..., :1], arrays[name].ravel()):
                with pytest.raises(StateFormatError):
                    restore(linear.spec, arrays | {name: damage}, 2)
        fewer = {name: arrays[name][:-1] for name in names}
        none = {name: array for name, array in arrays.items() if name not in names}
        for changed in (arrays | fewer, none):
            with pytest.raises(StateFormatError, match="linear fits"):
                restore(linear.spec, changed, 2)


def test_bytes_and_bound_tell_of_the_estimate() -> None:
    X = ball(2000, 3, np.random.default_rng(0))
    seen = {}
    for estimate in ("mean", "linear"):
        learner = packing("identity", 3, estimate=estimate)
        learner.run(X, truths(X, np.random.default_rng(1)))
        seen[estimate] = learner.describe()
    centres = seen["mean"]["dictionary"]
    assert seen["linear"]["bytes"] - seen["mean"]["bytes"] >= 8 * (3 * 3 + 2 * 3) * centres
    assert "bound_balls" in seen["mean"]
    assert "bound_balls" not in seen["linear"]


@pytest.mark.parametrize("config", [{"slope_regularization": 0.0}, {"estimate": "median"}])
def test_a_config_that_makes_no_sense_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(config))):
        packing("identity", 2, **config)


@pytest.mark.parametrize(("d", "directions", "regret"), [(5, 1, 11.0), (10, 2, 30.0)])
def test_it_errs_less_than_means_where_the_function_is_smooth(d: int, directions: int, regret: float) -> None:
    played = directional_stream(8190, d, directions, seed=0)
    mean, linear = (measure(played, "metric-packing", config) for config in ({}, LINEAR))
    assert linear.regret <= regret
    assert linear.regret < mean.regret
    # The packing is the same: what a ball forecasts changes nothing of it.
    assert (linear.centres, linear.cosine) == (mean.centres, mean.cosine)


@pytest.mark.parametrize("kind", ["packing", "metric-packing"])
def test_more_inputs_than_it_is_for_are_refused(kind: str) -> None:
    spec = {"kind": kind, "config": {"estimate": "linear"}}
    assert create(spec, MOST_LINEAR).t == 0
    with pytest.raises(ConfigError, match="100 inputs at most, not for 101"):
        create(spec, MOST_LINEAR + 1)
