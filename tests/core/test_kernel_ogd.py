"""Kernel OGD against its definition, gradient descent on weights, its regret bounds, and the corners of its inputs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import OnlineLearner, create, restore
from okl_core.errors import ConfigError, DivergedError, LabelError
from okl_core.first_order.in_blocks import BLOCK
from okl_core.first_order.steps import SMALLEST_SCALE
from okl_core.learners.kernel_ogd.kernel_ogd_state import KernelOgdConfig, KernelOgdState
from okl_core.losses import LOSSES
from okl_core.types import F64
from tests.core.states import state_as
from tests.oracles import kernels
from tests.oracles.kernel_ogd import KernelFunction, Run, kernel_ogd
from tests.oracles.kons import features

Config = dict[str, Any]

GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
LINEAR = {"kind": "linear"}
QUADRATIC = {"kind": "polynomial", "degree": 2, "offset": 1.0}

FUNCTIONS: dict[str, KernelFunction] = {
    "gaussian": lambda x, z: kernels.gaussian(x.tolist(), z.tolist(), 0.5),
    "linear": lambda x, z: kernels.linear(x.tolist(), z.tolist()),
    "polynomial": lambda x, z: kernels.polynomial(x.tolist(), z.tolist(), 2, 1.0),
}

SETTINGS: dict[str, Config] = {
    "plain": {"step_size": 0.2, "norm_bound": None},
    "defaults": {},
    "NORMA": {"step_size": "inverse-sqrt", "step_factor": 0.5, "regularization": 0.3, "norm_bound": None},
    "NORMA, truncated": {"step_size": 0.5, "regularization": 0.1, "norm_bound": None, "budget": 12},
    "Pegasos": {"step_size": "inverse-t", "regularization": 0.2, "norm_bound": None},
    "Pegasos, in a ball and truncated": {
        "step_size": "inverse-t",
        "regularization": 0.05,
        "norm_bound": 3.0,
        "budget": 9,
    },
    "capped steps": {"step_factor": 5.0, "regularization": 0.5, "norm_bound": None},
    "ball": {"norm_bound": 1.5, "step_factor": math.sqrt(2.0)},
    "ball, truncated": {"norm_bound": 1.5, "budget": 10},
    "budget of one": {"norm_bound": 1.5, "budget": 1},
    "logistic": {"loss": "logistic", "norm_bound": 4.0, "budget": 20},
    "squared hinge": {"loss": "squared-hinge", "step_size": 0.15, "norm_bound": 2.0, "budget": 15},
    "squared": {"loss": "squared", "step_size": 0.3, "norm_bound": None, "clip": None},
    "squared, clipped": {"loss": "squared", "norm_bound": 30.0, "clip": 0.6, "regularization": 0.01, "budget": 25},
    "linear": {"kernel": LINEAR, "norm_bound": 0.8, "budget": 20},
    "quadratic": {"kernel": QUADRATIC, "norm_bound": 2.0, "loss": "squared-hinge"},
}


def stream(seed: int, n: int, loss: str = "hinge", C: float = 0.6) -> tuple[F64, F64]:
    """With repeated and zero inputs."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    again = np.flatnonzero(rng.random(n) < 0.1)
    X[again] = X[again // 2]
    X[rng.random(n) < 0.03] = 0.0
    signal = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.4 * rng.standard_normal(n)
    return X, C * np.clip(signal, -1.0, 1.0) if loss == "squared" else np.where(signal >= 0.0, 1.0, -1.0)


def make(config: Config) -> OnlineLearner:
    return create({"kind": "kernel-ogd", "config": {"kernel": GAUSSIAN, **config}}, 2)


def stream_of(config: Config, seed: int, n: int) -> tuple[F64, F64]:
    return stream(seed, n, config.get("loss", "hinge"))


def oracle(config: Config, X: F64, y: F64) -> Run:
    c = KernelOgdConfig.model_validate({"kernel": GAUSSIAN, **config})
    U, lambda_, C = c.norm_bound, c.regularization, c.clip or math.inf

    def lipschitz(D: float) -> float:
        """The largest |l'| where |value| <= U sqrt(D), or both value and truth are within C."""
        return {
            "hinge": 1.0,
            "logistic": 1.0 / (1.0 + math.exp(-(U or 0.0) * math.sqrt(D))),
            "squared-hinge": 2.0 * (1.0 + (U or 0.0) * math.sqrt(D)),
            "squared": 4.0 * C,
        }[c.loss]

    def eta(t: int, D: float) -> float:
        if isinstance(c.step_size, float):
            return c.step_size
        if c.step_size == "inverse-t":
            return 1.0 / (lambda_ * t)
        radius = 1.0 if U is None else U / (lipschitz(D) * math.sqrt(D))
        return min(c.step_factor * radius / math.sqrt(t), 1.0 / lambda_ if lambda_ else math.inf)

    return kernel_ogd(
        X,
        y,
        kernels.remembered(FUNCTIONS[c.kernel.kind]),
        LOSSES[c.loss].derivative,
        eta,
        lambda_=lambda_,
        U=U or math.inf,
        B=c.budget or math.inf,
        C=C if c.loss == "squared" else math.inf,
    )


def by_age(learner: OnlineLearner) -> tuple[F64, F64]:
    """Points and coefficients, oldest first."""
    state = state_as(KernelOgdState, learner)
    points, a = state.points.coordinates(), state.scale * state.coefficients.view
    return np.roll(points, -state.oldest, axis=0), np.roll(a, -state.oldest)


def norm_of(learner: OnlineLearner) -> float:
    points, a = by_age(learner)
    kernel = KernelOgdConfig.model_validate(learner.spec.config).kernel
    return math.sqrt(max(0.0, float(a @ kernel.gram(points) @ a)))


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_what_it_is_defined_to_be(name: str) -> None:
    config = SETTINGS[name]
    X, y = stream_of(config, 1, 100)
    expected, learner = oracle(config, X, y), make(config)
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        info = learner.update(x, truth)
        told = learner.describe()
        assert info.forecast.value == pytest.approx(expected.values[t], rel=1e-9, abs=1e-9)
        assert told["dictionary"] == expected.sizes[t]
        assert told["step_size"] == pytest.approx(expected.etas[t], rel=1e-12)
        if "norm" in told:
            assert told["norm"] == pytest.approx(expected.norms[t], rel=1e-7, abs=1e-7)
    points, a = by_age(learner)
    np.testing.assert_allclose(points, expected.points, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(a, expected.a, rtol=1e-9, atol=1e-9)
    told = learner.describe()
    if "norm" in told:
        assert told["bound_gradient"] == pytest.approx(expected.bound_gradient, rel=1e-9)
    at_once = make(config).run(X, y)
    np.testing.assert_allclose(at_once.values, expected.values, rtol=1e-9, atol=1e-9)


def test_the_settings_reach_every_branch() -> None:
    told, scales = {}, {}
    for name, config in SETTINGS.items():
        learner = make(config)
        learner.run(*stream_of(config, 1, 100))
        told[name], scales[name] = learner.describe(), learner.state()["scale"]
    assert all(told[name]["dropped"] > 20 for name in ("NORMA, truncated", "ball, truncated", "logistic", "linear"))
    assert all("norm" not in told[name] for name in ("NORMA, truncated",))
    assert told["ball"]["norm"] == pytest.approx(1.5)
    assert told["plain"]["dictionary"] < 100
    assert scales["plain"] == 1.0
    assert scales["ball"] < 1.0


@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared-hinge", "squared"])
@pytest.mark.parametrize("U", [None, 0.7])
@pytest.mark.parametrize("lambda_", [0.0, 0.2])
def test_it_is_gradient_descent_on_the_weights_of_the_features(loss: str, U: float | None, lambda_: float) -> None:
    X, y = stream(2, 400, loss)
    Phi = features(X, 2, 1.0).astype(np.float64)
    config = {"kernel": QUADRATIC, "loss": loss, "step_size": 0.05, "regularization": lambda_, "norm_bound": U}
    values = make(config).run(X, y).values
    w = np.zeros(Phi.shape[1])
    for phi, truth, value in zip(Phi, y.tolist(), values.tolist(), strict=True):
        clipped = min(max(float(phi @ w), -1.0), 1.0) if loss == "squared" else float(phi @ w)
        assert value == pytest.approx(clipped, rel=1e-9, abs=1e-9)
        w -= 0.05 * (LOSSES[loss].derivative(clipped, truth) * phi + lambda_ * w)
        if U is not None and np.linalg.norm(w) > U:
            w *= U / np.linalg.norm(w)


def comparators(Phi: F64, y: F64, U: float) -> list[F64]:
    """Weights in the ball: 0, random ones, and least squares with several regularizations."""
    rng = np.random.default_rng(3)
    found = [np.zeros(Phi.shape[1]), *rng.standard_normal((10, Phi.shape[1]))]
    for ridge in (1e-3, 1.0, 100.0):
        found.append(np.linalg.solve(Phi.T @ Phi + ridge * np.eye(Phi.shape[1]), Phi.T @ y))
    shrunk = [w * min(1.0, U / max(float(np.linalg.norm(w)), 1e-300)) for w in found]
    return [*shrunk, *(0.2 * w for w in shrunk)]


@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared-hinge", "squared"])
@pytest.mark.parametrize("lambda_", [0.0, 0.1])
@pytest.mark.parametrize("step_size", ["inverse-sqrt", "inverse-t", 0.02])
def test_regret_stays_within_its_bound(loss: str, lambda_: float, step_size: str | float) -> None:
    if step_size == "inverse-t" and not lambda_:
        lambda_ = 0.01
    X, y = stream(4, 300, loss, C=1.0)
    Phi, U = features(X, 2, 1.0).astype(np.float64), 2.0
    config = {"kernel": QUADRATIC, "loss": loss, "step_size": step_size, "regularization": lambda_, "norm_bound": U}
    learner = make(config)
    total, told = 0.0, learner.describe()
    for x, truth in zip(X, y.tolist(), strict=True):
        total += learner.update(x, truth).loss + 0.5 * lambda_ * told["norm"] ** 2
        told = learner.describe()
    radius2 = 0.0 if step_size == "inverse-t" else 2.0 * U**2 / told["step_size"]
    for w in comparators(Phi, y, U):
        regret = total - LOSSES[loss].values(Phi @ w, y).sum() - 0.5 * lambda_ * len(y) * float(w @ w)
        first = float(w @ w) / (2.0 * told["step_size"]) if isinstance(step_size, float) else radius2
        assert regret <= first + told["bound_gradient"] + 1e-9


def test_the_default_steps_are_those_of_the_theorem() -> None:
    X, y = stream(5, 1000)
    learner = make({"norm_bound": 2.0})
    learner.run(X, y)
    told = learner.describe()
    assert told["step_size"] == pytest.approx(2.0 / math.sqrt(1000))
    assert 2.0 * 2.0**2 / told["step_size"] + told["bound_gradient"] <= 3.0 * 2.0 * math.sqrt(1000)


@given(
    cuts=st.lists(st.integers(0, 300), max_size=5),
    name=st.sampled_from(list(SETTINGS)),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_run_is_its_updates_however_it_is_cut(cuts: list[int], name: str, seed: int) -> None:
    X, y = stream_of(SETTINGS[name], seed, 300)
    single, learner = make(SETTINGS[name]), make(SETTINGS[name])
    played = []
    for x, truth in zip(X, y.tolist(), strict=True):
        played.append(single.play(x, truth))
        single.learn(played[-1])
    seen = [learner.run(X[a:b], y[a:b]) for a, b in itertools.pairwise([0, *sorted(cuts), 300])]
    values = np.concatenate([block.values for block in seen])
    np.testing.assert_allclose(values, [r.forecast.value for r in played], rtol=0.0, atol=1e-9)
    assert b"".join(block.choices for block in seen) == b"".join(r.choices for r in played)
    for array, expected in single.state().items():
        np.testing.assert_allclose(learner.state()[array], expected, rtol=1e-8, atol=1e-9, err_msg=array)


@pytest.mark.parametrize("name", ["ball, truncated", "Pegasos, in a ball and truncated", "squared, clipped"])
def test_the_norm_stays_exact(name: str) -> None:
    learner = make(SETTINGS[name])
    X, y = stream_of(SETTINGS[name], 6, 3000)
    for x, truth in zip(X[:1500], y[:1500].tolist(), strict=True):
        learner.update(x, truth)
    assert learner.describe()["norm"] == pytest.approx(norm_of(learner), rel=1e-9)
    learner.run(X[1500:], y[1500:])
    assert learner.describe()["norm"] == pytest.approx(norm_of(learner), rel=1e-9)


@pytest.mark.parametrize("config", [{"budget": 10}, {}])
def test_coefficients_neither_vanish_nor_grow_in_a_long_stream(config: Config) -> None:
    # Every round halves all coefficients: without multiplying their factor out it would be 2^-2000.
    config = {"step_size": 0.5, "regularization": 1.0, "norm_bound": None, **config}
    X, y = stream(7, 2000)
    learner = make(config)
    values = learner.run(X, y).values
    assert learner.state()["scale"] >= SMALLEST_SCALE
    assert np.abs(learner.state()["coefficients"]).max() <= 0.5 / SMALLEST_SCALE
    recent = make(config | {"budget": None})
    recent.run(X[-60:], y[-60:])
    # What is older than 60 rounds is below 2^-60.
    np.testing.assert_allclose(recent.predict(X[3]).value, learner.predict(X[3]).value, rtol=0.0, atol=2e-3)
    assert np.isfinite(values).all()


def test_a_step_may_forget_everything() -> None:
    learner = make({"step_size": 1.0, "regularization": 1.0, "norm_bound": None})
    for x, truth in (([0.3, 0.1], 1.0), ([-0.4, 0.2], -1.0)):
        learner.update(np.array(x), truth)
    only = FUNCTIONS["gaussian"](np.array([-0.4, 0.2]), np.array([0.3, 0.1]))
    assert learner.predict(np.array([0.3, 0.1])).value == pytest.approx(-only)
    # A round with loss puts 1 there, and the next one, without loss, takes it away.
    learner.run(np.zeros((BLOCK + 1, 2)), np.ones(BLOCK + 1))
    assert learner.predict(np.zeros(2)).value == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["plain", "ball, truncated", "squared, clipped"])
def test_a_restored_learner_continues_bit_for_bit_within_a_run(name: str) -> None:
    X, y = stream_of(SETTINGS[name], 8, 400)
    learner = make(SETTINGS[name])
    learner.run(X[:170], y[:170])
    again = restore(learner.spec, learner.state(), 2)
    for one in (learner, again):
        one.update(X[170], y[170])
        one.run(X[171:], y[171:])
    assert same(learner.state(), again.state())


def test_rounds_that_teach_nothing_store_nothing() -> None:
    learner = make({"kernel": LINEAR, "step_size": 0.5, "norm_bound": None})
    learner.update(np.zeros(2), 1.0)  # no feature
    learner.update(np.array([2.0, 0.0]), 1.0)
    before = learner.state()
    learner.update(np.array([1.0, 5.0]), 1.0)  # on the kink
    learner.run(np.array([[0.0, 0.0], [3.0, 1.0]]), np.ones(2))
    after = learner.state()
    assert after.pop("t") == before.pop("t") + 3
    assert after.pop("kappa") > before.pop("kappa")
    assert same(before, after)
    assert learner.describe()["dictionary"] == 1


@pytest.mark.parametrize(
    ("loss", "step_size", "length", "stored"),
    # Ten steps of 0.1, and one step of 20 / 20.
    [("hinge", 0.1, 1.0, 20), ("squared-hinge", 10.0, math.sqrt(0.05), 2), ("squared", 10.0, math.sqrt(0.05), 2)],
)
def test_rounding_does_not_decide_on_the_kink(loss: str, step_size: float, length: float, stored: int) -> None:
    X, y = np.tile([[length, 0.0], [0.0, length]], (12, 1)), np.tile([1.0, -1.0], 12)
    config = {"kernel": LINEAR, "loss": loss, "step_size": step_size, "norm_bound": None}
    single, blocks = make(config), make(config)
    for x, truth in zip(X, y.tolist(), strict=True):
        single.update(x, truth)
    blocks.run(X, y)
    assert single.describe()["dictionary"] == blocks.describe()["dictionary"] == stored


def test_a_replay_follows_the_record_and_not_its_own_arithmetic() -> None:
    learner = make({"kernel": LINEAR, "step_size": 1.0, "norm_bound": None})
    x = np.array([1.0, 0.0])
    learner.learn(learner.play(x, 1.0, choices=b"\x00"))
    assert learner.describe()["dictionary"] == 0
    learner.learn(learner.play(x, 1.0))
    learner.learn(learner.play(x, 1.0, choices=b"\x01"))
    assert learner.predict(x).value == 2.0


def test_forecasts_of_the_squared_loss_are_clipped_and_truths_bounded() -> None:
    learner = make({"loss": "squared", "clip": 0.5, "step_size": 3.0, "norm_bound": None})
    x = np.zeros(2)
    learner.update(x, 0.5)
    assert by_age(learner)[1].tolist() == [3.0]
    assert learner.predict(x).value == 0.5
    assert learner.update(x, 0.5).loss == 0.0
    with pytest.raises(LabelError, match="clip"):
        learner.update(x, 0.6)
    make({"loss": "squared", "clip": None, "step_size": 0.1}).update(x, 1e6)
    assert make({"clip": 0.5, "step_size": 3.0}).update(x, 1.0).loss == 1.0


def test_the_logistic_loss_gives_probabilities() -> None:
    X, y = stream(9, 200, "logistic")
    info = make(SETTINGS["logistic"]).run(X, y)
    assert info.probabilities is not None
    np.testing.assert_allclose(info.probabilities, 1.0 / (1.0 + np.exp(-info.values)), rtol=1e-12)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"step_size": "inverse-t"}, "give a regularization"),
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": "fast"}, "step_size"),
        ({"step_size": 3.0, "regularization": 0.5}, "at most 1 / regularization"),
        ({"step_size": 0.1, "step_factor": 2.0}, "step_factor belongs"),
        ({"loss": "squared", "clip": None}, "no Lipschitz constant"),
        ({"norm_bound": 0.0}, "norm_bound"),
        ({"budget": 0}, "budget"),
        ({"loss": "absolute"}, "loss"),
        ({"kernel": {"kind": "gaussian", "sigma": "median"}}, "resolved"),
    ],
)
def test_configs_that_cannot_work_are_refused(config: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(config).predict(np.zeros(2))


@pytest.mark.parametrize(
    "config",
    [
        {"kernel": {"kind": "polynomial", "degree": 3}},
        {"kernel": {"kind": "polynomial", "degree": 3}, "loss": "squared", "clip": None, "step_size": 1.0},
        {"kernel": LINEAR, "loss": "squared-hinge", "step_size": 1.0, "norm_bound": None, "budget": 5},
    ],
)
def test_an_overflow_changes_nothing(config: Config) -> None:
    learner = make(config)
    X, y = stream(10, 10)
    learner.run(0.1 * X, y)
    before = learner.state()
    # The first of these may be finite, but feeds the next ones.
    huge, truths = np.full((6, 2), 1e140), np.array([-1.0, 1.0] * 3)
    with np.errstate(all="ignore"):
        with pytest.raises(DivergedError):
            learner.run(huge, truths)
        assert same(before, learner.state())
        refused = 0
        for x, truth in zip(huge, truths.tolist(), strict=True):
            before = learner.state()
            try:
                learner.update(x, truth)
            except DivergedError:
                refused += 1
                assert same(before, learner.state())
    assert refused


@pytest.mark.parametrize("x", [np.ones(2), np.zeros(2)], ids=["stored", "not stored"])
def test_a_loss_that_overflows_changes_nothing(x: F64) -> None:
    config = {"kernel": LINEAR, "loss": "squared", "clip": None, "norm_bound": None, "step_size": 0.1, "budget": 5}
    learner = make(config)
    for call in (lambda: learner.update(x, 1e160), lambda: learner.run(np.stack((x, x)), np.array([0.5, 1e160]))):
        with pytest.raises(DivergedError):
            call()
        assert learner.t == 0


def same(before: dict[str, F64], after: dict[str, F64]) -> bool:
    return all(np.array_equal(before[array], after[array]) for array in before)
