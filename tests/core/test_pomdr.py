from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from okl_core import OnlineLearner, create, restore
from okl_core.contract.checks import check_learner
from okl_core.errors import DivergedError, NotPositiveDefiniteError
from okl_core.first_order.in_blocks import BLOCK
from okl_core.kernels.kernels import Gaussian, Polynomial
from okl_core.learners.pomdr import pomdr_state
from okl_core.learners.pomdr.pomdr_state import PomdrConfig, PomdrState
from okl_core.types import F64
from tests.core.states import state_as
from tests.oracles.kernels import remembered
from tests.oracles.pomdr import pomdr

NARROW = {"kind": "gaussian", "sigma": 0.3}
MEDIUM = {"kind": "gaussian", "sigma": 1.0}
WIDE = {"kind": "gaussian", "sigma": 2.0}
POLYNOMIAL = {"kind": "polynomial", "degree": 2, "offset": 1.0}

# Seed, rounds, share of flipped labels, share of repeated points, config; each reaches what its name says.
SETTINGS: dict[str, tuple[int, int, float, float, dict[str, Any]]] = {
    "stores everything": (0, 150, 0.0, 0.0, {"kernel": NARROW, "horizon": 5000}),
    "projects": (1, 200, 0.1, 0.0, {"kernel": WIDE, "ald_threshold": 0.2}),
    "projects, then removes": (
        2,
        200,
        0.2,
        0.0,
        {"kernel": MEDIUM, "ald_threshold": 0.1, "pomd_budget": 12, "budget": 20},
    ),
    "removes often": (3, 250, 0.3, 0.0, {"kernel": NARROW, "budget": 8, "pomd_budget": 3, "norm_bound": 3.0}),
    "smallest budget": (4, 120, 0.2, 0.0, {"kernel": NARROW, "budget": 2, "pomd_budget": 1}),
    "scaled step": (5, 250, 0.2, 0.0, {"kernel": NARROW, "budget": 12, "step_factor": 0.1, "horizon": 250}),
    "phase 1 beyond half": (6, 200, 0.3, 0.0, {"kernel": NARROW, "budget": 12, "pomd_budget": 11, "window": 4}),
    "window of one": (7, 200, 0.2, 0.0, {"kernel": NARROW, "budget": 20, "window": 1}),
    "repeated points": (8, 250, 0.3, 0.5, {"kernel": NARROW, "budget": 10, "pomd_budget": 5}),
    "polynomial": (9, 200, 0.1, 0.0, {"kernel": POLYNOMIAL, "ald_threshold": 0.05, "norm_bound": 5.0}),
    "polynomial, removes": (
        10,
        250,
        0.3,
        0.0,
        {"kernel": POLYNOMIAL, "ald_threshold": 0.0, "pomd_budget": 4, "budget": 10},
    ),
    "open horizon": (11, 100, 0.3, 0.0, {"kernel": NARROW, "norm_bound": 4.0, "ald_exponent": 0.5}),
}


def stream(seed: int, n: int, noise: float = 0.2, repeats: float = 0.0) -> tuple[F64, F64]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.where(np.sin(3.0 * X[:, 0]) + X[:, 1] >= 0.0, 1.0, -1.0)
    y[rng.random(n) < noise] *= -1.0
    again = np.flatnonzero(rng.random(n) < repeats)
    X[again] = X[again // 2]
    return X, y


def make(config: dict[str, Any]) -> OnlineLearner:
    return create({"kind": "pomdr", "config": config}, 2)


def state_of(learner: OnlineLearner) -> PomdrState:
    return state_as(PomdrState, learner)


def kernel_of(config: PomdrConfig) -> Callable[[F64, F64], float]:
    kernel = config.kernel
    if isinstance(kernel, Gaussian):
        return lambda x, z: math.exp(-float((x - z) @ (x - z)) / (2.0 * kernel.scale**2))
    assert isinstance(kernel, Polynomial)
    return lambda x, z: (float(x @ z) + kernel.offset) ** kernel.degree


def oracle(config: dict[str, Any], X: F64, y: F64, first_horizon: int = 1024) -> dict[str, F64]:
    c = PomdrConfig.model_validate(config)

    def T(t: int) -> int:
        return c.horizon or max(first_horizon, 2 ** math.ceil(math.log2(t)))

    def threshold(t: int, D: float) -> float:
        if c.ald_threshold is not None:
            return c.ald_threshold
        return math.sqrt(D) * min(1.0, c.ald_factor / T(t) ** c.ald_exponent)

    def B0(t: int) -> int:
        return c.pomd_budget or min(math.ceil(15.0 * math.log(T(t))), c.budget // 2)

    return pomdr(
        X,
        y,
        remembered(kernel_of(c)),
        U=c.norm_bound,
        B=c.budget,
        M=c.window,
        B0=B0,
        threshold=threshold,
        c=c.step_factor,
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_equals_the_dense_definition(name: str) -> None:
    seed, n, noise, repeats, config = SETTINGS[name]
    X, y = stream(seed, n, noise, repeats)
    expected = oracle(config, X, y)
    learner = make(config)
    for t in range(n):
        assert learner.describe()["dictionary"] == expected["sizes"][t]
        info = learner.update(X[t], y[t])
        assert info.forecast.value == pytest.approx(expected["values"][t], abs=1e-9, rel=1e-9)
        assert learner.describe()["norm"] == pytest.approx(expected["norms"][t], abs=1e-7)
    state, described = state_of(learner), learner.describe()
    np.testing.assert_allclose(state.scale * state.coefficients.view, expected["coefficients"], rtol=1e-7, atol=1e-9)
    for total in ("phase", "removals", "ald_rounds", "t_bar", "sum_delta"):
        assert described[total] == pytest.approx(float(expected[total]), rel=1e-9)
    assert state.gain == pytest.approx(float(expected["G"]), rel=1e-9)


def test_thresholds_follow_an_open_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pomdr_state, "FIRST_HORIZON", 16)
    X, y = stream(14, 110, 0.2)
    config = {"kernel": NARROW, "budget": 60, "norm_bound": 4.0, "ald_factor": 5.0}
    expected = oracle(config, X, y, first_horizon=16)
    single, blocks = make(config), make(config)
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y, strict=True)]
    np.testing.assert_allclose(values, expected["values"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(blocks.run(X, y).values, expected["values"], rtol=1e-9, atol=1e-9)
    assert single.describe()["t_bar"] == expected["t_bar"] > 32


def test_the_settings_reach_every_branch() -> None:
    reached = {}
    for name, (seed, n, noise, repeats, config) in SETTINGS.items():
        learner = make(config)
        learner.run(*stream(seed, n, noise, repeats))
        reached[name] = learner.describe()
    assert reached["projects"]["ald_rounds"] > 20
    assert reached["projects"]["phase"] == 1
    assert reached["projects, then removes"]["ald_rounds"] > 3
    assert reached["projects, then removes"]["removals"] >= 2
    assert reached["removes often"]["removals"] > 10
    assert reached["polynomial"]["ald_rounds"] > 20
    assert reached["polynomial, removes"]["removals"] > 5


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("cuts", [(), (1,), (7, 8, 60), (64, 100, 101, 102)])
def test_a_run_equals_updates(name: str, cuts: tuple[int, ...]) -> None:
    seed, n, noise, repeats, config = SETTINGS[name]
    X, y = stream(seed, n, noise, repeats)
    single, blocks = make(config), make(config)
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y, strict=True)]
    played = [blocks.run(*part) for part in zip(np.split(X, cuts), np.split(y, cuts), strict=True)]
    np.testing.assert_allclose(np.concatenate([info.values for info in played]), values, rtol=1e-9, atol=1e-9)
    for array, expected in zip(blocks.state().values(), single.state().values(), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-8, atol=1e-8)


def test_a_long_run_equals_updates() -> None:
    X, y = stream(12, 5 * BLOCK + 3)
    single, blocks = make({"kernel": NARROW, "budget": 60}), make({"kernel": NARROW, "budget": 60})
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y, strict=True)]
    info = blocks.run(X, y)
    np.testing.assert_allclose(info.values, values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(info.losses, np.maximum(0.0, 1.0 - y * values))
    assert blocks.describe()["removals"] > 3


@pytest.mark.parametrize(
    ("config", "seed"),
    [
        ({"ald_threshold": 1e-5, "budget": 100, "pomd_budget": 50}, 10),
        ({"ald_threshold": 0.0, "pomd_budget": 150}, 3),
        ({"ald_exponent": 1.0, "ald_factor": 1.0}, 3),
        ({"ald_threshold": 0.0, "kernel": {"kind": "polynomial", "degree": 4}}, 35),
    ],
)
def test_a_run_equals_updates_near_the_span_of_the_stored_points(config: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(300, 3 if "kernel" in config else 1)), np.where(rng.random(300) < 0.5, 1.0, -1.0)
    single, blocks = (create({"kind": "pomdr", "config": config}, X.shape[1]) for _ in range(2))
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y, strict=True)]
    # The values of a polynomial are of very different sizes, and the rounding of each is that of the largest.
    atol = 1e-9 * float(np.abs(values).max())
    np.testing.assert_allclose(blocks.run(X, y).values, values, rtol=1e-9, atol=atol)


@pytest.mark.parametrize("name", SETTINGS)
def test_play_and_predict_change_nothing(name: str) -> None:
    seed, n, noise, repeats, config = SETTINGS[name]
    X, y = stream(seed, n, noise, repeats)
    learner = make(config)
    for x, truth in zip(X, y, strict=True):
        before = learner.state()
        value = learner.predict(x).value
        played = learner.play(x, truth)
        after = learner.state()
        assert all(before[key].tobytes() == after[key].tobytes() for key in before)
        assert played.forecast.value == value
        learner.learn(played)


@pytest.mark.parametrize("name", ["projects, then removes", "removes often", "phase 1 beyond half"])
def test_a_restored_learner_continues_bit_for_bit(name: str) -> None:
    seed, n, noise, repeats, config = SETTINGS[name]
    X, y = stream(seed, n, noise, repeats)
    reached = set()
    for stop in (*range(0, 60, 6), *range(60, n, 30)):
        learner = make(config)
        for t in range(stop):
            learner.update(X[t], y[t])
        copy = restore(learner.spec, learner.state(), 2)
        reached.add((learner.describe()["phase"], learner.describe()["removals"] > 0))
        for t in range(stop, n):
            learner.update(X[t], y[t])
            copy.update(X[t], y[t])
        states = learner.state(), copy.state()
        assert all(states[0][key].tobytes() == states[1][key].tobytes() for key in states[0])
    assert reached == {(1, False), (2, False), (2, True)}


@pytest.mark.parametrize("name", SETTINGS)
def test_recorded_choices_replay(name: str) -> None:
    seed, n, noise, repeats, config = SETTINGS[name]
    X, y = stream(seed, n, noise, repeats)
    live, replayed, blocks = make(config), make(config), make(config)
    choices = b""
    for x, truth in zip(X, y, strict=True):
        played = live.play(x, truth)
        live.learn(played)
        replayed.replay(x, truth, choices=played.choices, value=played.forecast.value)
        choices += played.choices
    assert all(array.tobytes() == replayed.state()[key].tobytes() for key, array in live.state().items())
    assert blocks.run(X, y, choices=choices).choices == choices


def test_a_replay_follows_the_record_and_not_its_own_arithmetic() -> None:
    learner = make({"kernel": NARROW})
    x = np.array([0.5, 0.5])
    learner.learn(learner.play(x, 1.0, choices=b"\x00"))
    assert learner.describe()["violations"] == 0
    learner.learn(learner.play(x, 1.0, choices=b"\x01\x01"))
    assert learner.describe()["ald_rounds"] == 1


def test_the_arrays_of_phase_1_are_dropped() -> None:
    X, y = stream(13, 400, 0.3)
    learner = make({"kernel": NARROW, "budget": 40})
    sizes = set()
    for x, truth in zip(X, y, strict=True):
        learner.update(x, truth)
        arrays = learner.state()
        if learner.describe()["phase"] == 2:
            sizes.add((arrays["factor"].size, arrays["ring"].size))
    assert sizes == {(0, 0)}
    assert sum(array.nbytes for array in learner.state().values()) < 8 * (40 + 15) * 7


@given(
    seed=st.integers(0, 2**32 - 1),
    budget=st.integers(1, 10).map(lambda half: 2 * half),
    window=st.integers(1, 6),
    U=st.floats(0.5, 30.0),
    sigma=st.floats(0.1, 3.0),
    c=st.floats(0.05, 1.0),
    data=st.data(),
)
def test_invariants(seed: int, budget: int, window: int, U: float, sigma: float, c: float, data: st.DataObject) -> None:
    pomd_budget = data.draw(st.integers(1, budget - 1))
    kernel = {"kind": "gaussian", "sigma": sigma}
    X, y = stream(seed, 80, 0.3, 0.2)
    learner = make(
        {
            "kernel": kernel,
            "budget": budget,
            "pomd_budget": pomd_budget,
            "window": window,
            "norm_bound": U,
            "step_factor": c,
        }
    )
    kept: F64 | None = None
    for x, truth in zip(X, y, strict=True):
        assert learner.describe()["dictionary"] < budget
        learner.update(x, truth)
        state = state_of(learner)
        a, points = state.scale * state.coefficients.view, state.points.coordinates()[window:]
        norm2 = float(a @ Gaussian(sigma=sigma).gram(points) @ a)
        # A removal may leave almost nothing, which is then scaled up to U: coefficients that cancel, and rounding with them.
        rounding = 1e-14 * float(np.abs(a).sum()) ** 2
        assert norm2 <= U * U * (1.0 + 1e-9) + rounding
        assert norm2 == pytest.approx(state.norm2, abs=1e-7 * U * U + rounding)
        if state.removals:
            half = points[: budget // 2]
            assert kept is None or half.tobytes() == kept.tobytes()
            kept = half


@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 150), max_size=6).map(sorted))
@settings(max_examples=25, deadline=None)
def test_blocks_of_any_size(seed: int, cuts: list[int]) -> None:
    X, y = stream(seed, 150, 0.3, 0.2)
    config = {"kernel": NARROW, "budget": 14, "pomd_budget": 9, "window": 3, "norm_bound": 5.0}
    single, blocks = make(config), make(config)
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y, strict=True)]
    parts = zip(np.split(X, cuts), np.split(y, cuts), strict=True)
    played = np.concatenate([blocks.run(*part).values for part in parts])
    np.testing.assert_allclose(played, values, rtol=1e-9, atol=1e-9)


def test_a_merged_function_that_vanishes_stays_zero() -> None:
    learner = make({"kernel": NARROW, "budget": 2, "pomd_budget": 1, "norm_bound": 25.0})
    learner.update(np.zeros(2), 1.0)
    # The second point repeats the first, and its coefficient is made the exact opposite.
    altered = {"gain": np.array(0.0), "scale": np.array(1.0), "coefficients": np.array([-25.0 / math.sqrt(3.0)])}
    learner = restore(learner.spec, learner.state() | altered, 2)
    learner.update(np.zeros(2), 1.0)
    assert (learner.describe()["removals"], learner.describe()["norm"]) == (1, 0.0)
    assert learner.state()["coefficients"].tolist() == [0.0]


def test_a_scale_that_shrinks_in_every_round_does_not_underflow() -> None:
    # The guess is right, so the rate does not fall, and every step leaves the ball.
    X, y = np.zeros((2000, 2)), np.ones(2000)
    single, blocks = make({"norm_bound": 0.5}), make({"norm_bound": 0.5})
    for x, truth in zip(X, y, strict=True):
        single.update(x, truth)
    blocks.run(X, y)
    for learner in (single, blocks):
        state = state_of(learner)
        assert learner.describe()["ald_rounds"] == 1999
        assert 1e-9 <= state.scale <= 1.0
        assert state.scale * state.coefficients.view == pytest.approx([0.5])


def test_the_conditioning_after_a_removal_is_that_of_the_points_kept() -> None:
    X, y = stream(6, 200, 0.3)
    learner = make({"kernel": NARROW, "budget": 12, "pomd_budget": 11, "window": 4})
    rounds = zip(X, y, strict=True)
    while not learner.describe()["removals"]:
        learner.update(*next(rounds))
    # The same point twice makes the kernel matrix singular, but phase 2 projects nothing.
    for truth in (1.0, -1.0, 1.0, -1.0):
        learner.update(np.zeros(2), truth)
    assert learner.describe()["dictionary"] == 10
    assert learner.conditioning < 1000.0


def test_a_point_that_the_factor_refuses_changes_nothing() -> None:
    # A record says that the same input was far from the span of itself, which no arithmetic finds.
    x, refused = np.array([0.5, 0.5]), b"\x01\x00"
    single, blocks = make({"kernel": NARROW}), make({"kernel": NARROW})
    single.update(x, 1.0)
    before = single.state()
    played = single.play(x, -1.0, choices=refused)
    with pytest.raises(NotPositiveDefiniteError):
        single.learn(played)
    with pytest.raises(NotPositiveDefiniteError):
        blocks.run(np.tile(x, (2, 1)), np.array([1.0, -1.0]), choices=b"\x01\x00" + refused)
    for learner in (single, blocks):
        assert all(array.tobytes() == learner.state()[key].tobytes() for key, array in before.items())


def test_an_input_without_a_feature_changes_nothing() -> None:
    learner = make({"kernel": {"kind": "linear"}, "budget": 4, "pomd_budget": 2})
    for _ in range(3):
        info = learner.update(np.zeros(2), 1.0)
        assert (info.forecast.value, info.loss) == (0.0, 1.0)
    assert learner.describe()["dictionary"] == 0
    learner.update(np.array([1.0, 2.0]), 1.0)
    assert learner.describe()["dictionary"] == 1


def test_a_kernel_that_overflows_is_refused_before_anything_changes() -> None:
    learner = make({"kernel": {"kind": "polynomial", "degree": 16}})
    learner.update(np.ones(2), 1.0)
    before = learner.state()
    with np.errstate(over="ignore"):
        for call in (
            lambda: learner.update(np.full(2, 1e30), 1.0),
            lambda: learner.run(np.array([[1.0, 1.0], [1e30, 1e30]]), np.ones(2)),
        ):
            with pytest.raises(DivergedError, match="scale the inputs"):
                call()
    assert all(array.tobytes() == learner.state()[key].tobytes() for key, array in before.items())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"budget": 401}, "must be even"),
        ({"budget": 20, "pomd_budget": 20}, "must be below the budget"),
        ({"ald_threshold": 0.1, "ald_exponent": 1.0}, "give either ald_threshold"),
        ({"ald_threshold": 0.1, "ald_factor": 1.0}, "give either ald_threshold"),
        ({"norm_bound": 0.0}, "greater than 0"),
        ({"window": 0}, "greater than or equal to 1"),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PomdrConfig.model_validate(config)


def test_the_defaults_follow_the_horizon() -> None:
    config = PomdrConfig()
    assert [config.horizon_at(t) for t in (1, 1024, 1025, 2048, 2049)] == [1024, 1024, 2048, 2048, 4096]
    assert config.pomd_budget_at(1) == math.ceil(15.0 * math.log(1024))
    assert config.ald_threshold_at(1, 1.0) == pytest.approx(10.0 * 1024 ** (-2.0 / 3.0))
    assert PomdrConfig(budget=10).pomd_budget_at(1) == 5
    assert PomdrConfig(horizon=20).ald_threshold_at(1, 4.0) == 2.0
    assert PomdrConfig(ald_threshold=0.3).ald_threshold_at(1, 4.0) == 0.3


@pytest.mark.parametrize(
    "name", ["projects", "projects, then removes", "smallest budget", "polynomial, removes", "open horizon"]
)
def test_the_learner_contract(name: str) -> None:
    check_learner("pomdr", SETTINGS[name][4], rounds=80)


@pytest.mark.parametrize("size", [1e-160, 1e-161, 3e-162])
def test_inputs_whose_squares_almost_vanish_leave_the_norm_a_number_within_its_bound(size: float) -> None:
    """The step size is large where all k(x, x) are small: its square overflowed, and 0 times that is no number."""
    learner = create({"kind": "pomdr", "config": {"kernel": {"kind": "linear"}, "norm_bound": 0.5}}, 1)
    for x in (size, size, size, 0.0, size):
        learner.update(np.array([x]), -1.0)
    assert 0.0 < learner.describe()["norm"] <= 0.5
    for _ in range(20):
        learner.update(np.ones(1), -1.0)
    assert learner.describe()["norm"] <= 0.5
