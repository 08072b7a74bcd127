"""B(AO)2KS against the same algorithm with a coefficient for every round, and the corners of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import OnlineLearner, create
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError
from okl_core.first_order.in_blocks import BLOCK
from okl_core.kernels.kernels import Gaussian
from okl_core.learners.bao2ks.bao2ks_state import Bao2ksConfig, Bao2ksState
from okl_core.types import F64
from tests.core.states import state_as
from tests.oracles.bao2ks import Run, bao2ks

NARROW = {"kind": "gaussian", "sigma": 0.3}
SMALL = {"kernel": NARROW, "budget": 12, "reservoir": 4}

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"kernel": NARROW},
    "restarts": SMALL,
    "projects": {**SMALL, "norm_bound": 0.8, "step_size": 0.5},
    "one slot": {"kernel": NARROW, "budget": 9, "reservoir": 1, "thinning": 1.0},
    "horizon": {**SMALL, "step_size": "horizon", "horizon": 100, "step_factor": 3.0},
    "polynomial": {"kernel": {"kind": "polynomial"}, "budget": 12, "reservoir": 5, "norm_bound": 4.0},
}


def stream(n: int, seed: int = 0, repeats: float = 0.1) -> tuple[F64, F64]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.where(np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(n) >= 0.0, 1.0, -1.0)
    again = rng.random(n) < repeats
    X[again] = X[rng.integers(0, n, again.sum())]
    return X, y


def make(config: dict[str, Any], seed: int = 0) -> OnlineLearner:
    return create({"kind": "bao2ks", "seed": seed, "config": config}, 2)


def state_of(learner: OnlineLearner) -> Bao2ksState:
    return state_as(Bao2ksState, learner)


def expected(config: dict[str, Any], X: F64, y: F64, seed: int = 0) -> Run:
    parsed, rng, draws = Bao2ksConfig.model_validate(config), RoundRng(seed), []
    rng.begin()
    for t in range(len(y)):
        rng.at(t + 1)
        draws.append(rng.uniform(2))
    rates = np.array([parsed.eta(t + 1) for t in range(len(y))])
    K = parsed.kernel.block(X, X)
    U, B, M, beta = parsed.norm_bound, parsed.budget, parsed.reservoir, parsed.thinning
    return bao2ks(K, y, np.array(draws), rates, U=U, B=B, M=M, beta=beta)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_algorithm_of_the_paper(name: str, seed: int) -> None:
    config = SETTINGS[name]
    X, y = stream(180, seed)
    told = expected(config, X, y, seed)
    learner = make(config, seed)
    values, norms = [], []
    for x, truth in zip(X, y.tolist(), strict=True):
        values.append(learner.update(x, truth).forecast.value)
        norms.append(learner.describe()["norm"])
    np.testing.assert_allclose(values, told.values, rtol=0.0, atol=1e-9)
    alive = np.array(told.sizes) <= Bao2ksConfig.model_validate(config).budget
    np.testing.assert_allclose(np.array(norms)[alive], np.array(told.norms)[alive], rtol=0.0, atol=1e-7)
    seen = learner.describe()
    assert (seen["violations"], seen["sampled"]) == (told.violations, told.sampled)
    np.testing.assert_allclose(make(config, seed).run(X, y).values, told.values, rtol=0.0, atol=1e-9)


def test_the_settings_reach_every_branch() -> None:
    X, y = stream(180)
    reached = {}
    for name, config in SETTINGS.items():
        learner = make(config)
        learner.run(X, y)
        reached[name] = learner.describe()
    assert reached["default"]["restarts"] == 0
    for name in ("restarts", "one slot", "horizon", "polynomial"):
        assert reached[name]["restarts"] > 1, name
    assert reached["projects"]["norm"] == pytest.approx(0.8, rel=1e-6)
    assert all(seen["sampled"] > 3 for seen in reached.values())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_long_run_equals_updates(name: str) -> None:
    X, y = stream(3 * BLOCK + 5, 2)
    single, blocks = make(SETTINGS[name]), make(SETTINGS[name])
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
    np.testing.assert_allclose(blocks.run(X, y).values, values, rtol=0.0, atol=1e-9)
    for array, told in zip(blocks.state().values(), single.state().values(), strict=True):
        np.testing.assert_allclose(array, told, rtol=0.0, atol=1e-9)


def test_the_reservoir_is_uniform() -> None:
    # Constant features: which rounds are in V at the end is told by the inputs themselves.
    n, M, runs = 40, 5, 400
    X = np.column_stack((np.arange(n, dtype=np.float64), np.zeros(n)))
    counts = np.zeros(n)
    for seed in range(runs):
        learner = make({"kernel": NARROW, "budget": 100, "reservoir": M}, seed)
        learner.run(X, np.ones(n))
        state = state_of(learner)
        counts[np.rint(state.points.coordinates()[:M, 0]).astype(int)] += 1
    assert counts.sum() == runs * M
    # Chi squared with 39 degrees of freedom: 80 is passed with a probability of 1e-4.
    share = runs * M / n
    assert ((counts - share) ** 2 / (share * (1.0 - M / n))).sum() < 80.0


@given(
    seed=st.integers(0, 2**32 - 1),
    M=st.integers(1, 5),
    over=st.integers(1, 12),
    U=st.floats(0.5, 30.0),
    sigma=st.floats(0.1, 3.0),
    cuts=st.lists(st.integers(0, 90), max_size=4).map(sorted),
)
def test_invariants(seed: int, M: int, over: int, U: float, sigma: float, cuts: list[int]) -> None:
    kernel = {"kind": "gaussian", "sigma": sigma}
    config = {"kernel": kernel, "budget": M + over, "reservoir": M, "norm_bound": U}
    X, y = stream(90, seed, 0.2)
    learner = make(config, seed)
    parts = list(zip(np.split(X, cuts), np.split(y, cuts), strict=True))
    for A, b in parts:
        learner.run(A, b)
        state = state_of(learner)
        assert state.size <= config["budget"]
        if state.t == 0:
            continue
        K = Gaussian(sigma=sigma).gram(state.points.coordinates())
        mean = np.zeros(len(K))
        mean[:M] = state.labels / min(state.t, M)
        f = state.scale * (state.coefficients.view + state.pull * mean)
        assert f @ K @ f == pytest.approx(state.norm2, abs=1e-7 * U * U)
        assert f @ K @ mean == pytest.approx(state.inner, abs=1e-7 * U)
        assert mean @ K @ mean == pytest.approx(state.guess2, abs=1e-9)
        assert state.norm2 <= U * U * (1.0 + 1e-9)
        assert not state.coefficients.view[:M][state.members == 0.0].any()


def test_a_guess_that_is_right_is_not_asked_about() -> None:
    # One input for ever: the guess is its gradient from the second round on.
    learner = make({"kernel": NARROW, "step_size": 1e-3, "reservoir": 3, "thinning": 1.0})
    learner.run(np.zeros((50, 2)), np.ones(50))
    seen = learner.describe()
    assert (seen["violations"], seen["sampled"]) == (50, 1)


def test_a_guess_that_is_zero_up_to_rounding_is_zero() -> None:
    # The guesses of both labels cancel at one input: |g|^2 rounds to 0 or to either side of it.
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0, -1.0])
    y = np.concatenate((y, np.where(np.random.default_rng(0).random(300) < 0.5, 1.0, -1.0)))
    for x in (0.3, 0.7, 1.9):
        X = np.full((len(y), 1), x)
        for kernel in ({"kind": "gaussian"}, {"kind": "polynomial", "degree": 3}, {"kind": "linear"}):
            spec = {"kind": "bao2ks", "config": {"kernel": kernel}}
            single, blocked = create(spec, 1), create(spec, 1)
            rounds = []
            for t, truth in enumerate(y.tolist()):
                rounds.append(single.update(X[t], truth).forecast.value)
            # A root that magnified the rounding of 0 would show as 1e-8.
            np.testing.assert_allclose(blocked.run(X, y).values, rounds, rtol=1e-9, atol=1e-9)
            assert single.state()["guess2"] >= 0.0
            assert blocked.state()["guess2"] >= 0.0


def test_inputs_without_a_feature_teach_nothing() -> None:
    learner = make({"kernel": {"kind": "linear"}, "budget": 60, "reservoir": 2})
    info = learner.run(np.zeros((30, 2)), np.ones(30))
    assert not info.values.any()
    assert learner.describe()["norm"] == 0.0


def test_a_kernel_that_overflows_is_refused_before_anything_changes() -> None:
    learner = make({"kernel": {"kind": "polynomial", "degree": 16}})
    learner.run(*stream(20))
    before = learner.state()
    huge = np.array([[1.0, 1.0], [1e30, 1e30]])
    with np.errstate(over="ignore"):
        for call in (lambda: learner.update(huge[1], 1.0), lambda: learner.run(huge, np.ones(2))):
            with pytest.raises(DivergedError, match="scale the inputs"):
                call()
    assert all(array.tobytes() == learner.state()[key].tobytes() for key, array in before.items())


def test_steps_that_overflow_are_refused_before_anything_changes() -> None:
    learner = make({"kernel": {"kind": "polynomial", "degree": 8}, "step_size": 1e150})
    learner.update(np.full(2, 1e3), 1.0)
    before = learner.state()
    X, y = np.array([[1.0, 1.0], [2e3, 1e3], [1e3, 3e3]]), np.array([1.0, -1.0, -1.0])
    with pytest.raises(DivergedError, match="smaller steps"):
        learner.run(X, y)
    assert all(array.tobytes() == learner.state()[key].tobytes() for key, array in before.items())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"budget": 10, "reservoir": 10}, "must be above the reservoir"),
        ({"thinning": 0.5}, "thinning"),
        ({"norm_bound": 0.0}, "norm_bound"),
        ({"reservoir": 0}, "reservoir"),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(config)


def test_far_features_are_as_near_as_they_were() -> None:
    X, y = stream(200, 4)
    near = make(SMALL).run(X, y).values
    far = make(SMALL).run(X + 2.0**20, y).values
    np.testing.assert_allclose(far, near, rtol=0.0, atol=1e-6)
