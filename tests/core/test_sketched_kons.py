"""Sketched-KONS against its definition in an explicit feature space, against KONS, and its regret bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError
from okl_core.losses import LOSSES
from okl_core.types import F64
from tests.core.newton_streams import (
    KERNELS,
    METHODS,
    STREAMS,
    Spec,
    comparators,
    definition,
    explicit,
    play_all,
    stream_for,
)
from tests.oracles.kons import Run, online_newton
from tests.oracles.sketched_kons import SketchedWeight

ROUNDS = 200
SEED = 5
ALPHA, GAMMA, BETA, EPSILON = 0.5, 0.15, 2.0, 0.4


def sketched(loss: str, step: str | float, kernel: Spec, **config: Any) -> OnlineLearner:
    given = {
        "loss": loss, "step": step, "kernel": kernel, "regularization": ALPHA,
        "floor_probability": GAMMA, "oversampling": BETA, "accuracy": EPSILON,
    } | config  # fmt: skip
    return create({"kind": "sketched-kons", "seed": SEED, "config": given}, 2)


def directly(loss: str, step: str | float, kernel: Spec, X: F64, y: F64, choices: bytes) -> tuple[Run, SketchedWeight]:
    """The definition; at a kink of the hinge it takes the side that the choices record, the first of a round's three."""
    derivative, weight = definition(loss, step, 1.0, choices[::3] if loss == "hinge" else b"")
    rng, coins = RoundRng(SEED), np.empty((len(y), 2))
    for t in range(len(y)):
        rng.at(t + 1)
        coins[t] = rng.uniform(2)
    Phi = explicit(kernel, X)
    coined = SketchedWeight(Phi, weight, ALPHA, GAMMA, BETA, EPSILON, coins)
    return online_newton(Phi, y, 1.0, ALPHA, derivative, coined), coined


@pytest.mark.pairs
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_it_is_its_definition(loss: str, step: str | float, stream: str) -> None:
    kernel = list(KERNELS.values())[(METHODS.index((loss, step)) + list(STREAMS).index(stream)) % len(KERNELS)]
    X, y = stream_for(loss, stream, n=ROUNDS)
    learner = sketched(loss, step, kernel)
    values, choices = play_all(learner, X, y)
    expected, coined = directly(loss, step, kernel, X, y, choices)
    tolerance = 1e-8 + np.arange(1, ROUNDS + 1) * np.finfo(np.float64).eps * np.array(expected.limit)
    assert tolerance[-1] < 1e-6
    assert (np.abs(values - expected.values) <= tolerance).all()
    coins = np.frombuffer(choices, dtype=np.uint8).reshape(ROUNDS, -1)[:, -2:]
    np.testing.assert_array_equal(coins, np.column_stack((coined.is_kept, coined.z)))
    assert 0 < sum(coined.z) < ROUNDS

    at_once = sketched(loss, step, kernel)
    info = at_once.run(X, y)
    assert (np.abs(info.values - expected.values) <= tolerance).all()
    assert info.choices == choices
    for seen in (learner.describe(), at_once.describe()):
        assert seen["sampled"] == sum(coined.is_kept)
        assert seen["active"] == np.count_nonzero(expected.weights * (explicit(kernel, X) ** 2).sum(axis=1))
        assert seen["sum_tau"] == pytest.approx(sum(coined.tau), rel=1e-6)


@pytest.mark.pairs
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_with_every_coin_heads_it_is_kons(loss: str, step: str | float, stream: str) -> None:
    X, y = stream_for(loss, stream, n=ROUNDS)
    kernel = {"kind": "gaussian", "sigma": 0.5}
    config = {"loss": loss, "step": step, "kernel": kernel, "regularization": ALPHA}
    exact = create({"kind": "kons", "config": config}, 2)
    learner = sketched(loss, step, kernel, floor_probability=1.0)
    np.testing.assert_allclose(learner.run(X, y).values, exact.run(X, y).values, rtol=0.0, atol=1e-9)
    seen, expected = learner.describe(), exact.describe()
    for name in set(seen) & set(expected) - {"bytes"}:
        assert seen[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-9), name
    arrays = learner.state()
    for name, array in exact.state().items():
        np.testing.assert_allclose(arrays[name], array, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.pairs
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("loss", "step"), METHODS)
def test_regret_stays_within_its_bound(loss: str, step: str | float, stream: str) -> None:
    kernel = KERNELS["quadratic"]
    X, y = stream_for(loss, stream, n=140)
    learner = sketched(loss, step, kernel)
    values, choices = play_all(learner, X, y)
    expected, _ = directly(loss, step, kernel, X, y, choices)
    seen = learner.describe()
    g, w, q = (np.array(kept) for kept in (expected.gradients, expected.weights, expected.variances))
    excess = w - LOSSES[loss].curvature(1.0) * g**2
    assert seen["bound_gradient"] == pytest.approx(0.5 * (g**2 * q / (1.0 + w * q)).sum())
    assert seen["log_det"] == pytest.approx(np.log1p(w * q).sum())
    if step != "adaptive":
        assert seen["bound_step"] == pytest.approx(2.0 * np.maximum(excess, 0.0).sum(), rel=1e-9, abs=1e-12)
    Phi = explicit(kernel, X).astype(np.float64)
    for f in comparators(Phi, y, 1.0):
        regret = LOSSES[loss].values(values, y).sum() - LOSSES[loss].values(Phi @ f, y).sum()
        bound = 0.5 * ALPHA * f @ f + seen["bound_gradient"] + seen["bound_step"]
        assert regret <= bound + 1e-9


def test_the_coins_of_a_round_are_independent() -> None:
    # Rounds whose gradient joins one of the two sets join the other as often as all rounds of their probability do.
    X, y = stream_for("squared", "random", n=4000)
    learner = sketched("squared", "curvature", {"kind": "gaussian", "sigma": 0.05}, oversampling=0.3, accuracy=0.1)
    coins = np.frombuffer(learner.run(X, y).choices, dtype=np.uint8).reshape(-1, 2).astype(bool)
    shares = coins.mean(axis=0)
    both = coins.all(axis=1).mean()
    assert 0.05 < shares.min() < shares.max() < 0.95
    assert abs(both - shares.prod()) < 0.03


def test_rounds_that_are_left_out_make_no_row_of_the_factor() -> None:
    X, y = stream_for("squared", "random", n=600)
    learner = sketched("squared", "curvature", KERNELS["linear"], floor_probability=0.05, oversampling=1.0)
    learner.run(X, y)
    seen = learner.describe()
    assert seen["dictionary"] == 600
    assert seen["active"] < 120
    assert seen["sampled"] < 60, "a space of two dimensions needs few points"
    assert learner.state()["space.factor.L"].shape == (seen["active"] * (seen["active"] + 1) / 2,)


@pytest.mark.parametrize(
    "config",
    [
        {"floor_probability": 0.0}, {"floor_probability": 1.1}, {"oversampling": 0.0}, {"accuracy": 1.0},
        {"window": 0}, {"loss": "hinge"}, {"kernel": {"kind": "gaussian", "sigma": "median"}},
    ],
    ids=str,
)  # fmt: skip
def test_configs_that_cannot_work_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(config)) if "kernel" not in config else "resolved"):
        create({"kind": "sketched-kons", "config": config}, 2)


def test_a_round_is_learned_by_the_learner_that_it_is_given_to() -> None:
    X, y = np.random.default_rng(5).normal(size=(60, 2)), np.ones(60)
    player = create({"kind": "sketched-kons"}, 2)
    player.run(X[:30], y[:30])
    for x in X[30:]:
        twin, before = restore(player.spec, player.state(), 2), player.state()
        played = player.play(x, 1.0)
        twin.learn(played)
        assert all(np.array_equal(before[name], array) for name, array in player.state().items())
        player.learn(played)
        assert all(np.array_equal(twin.state()[name], array) for name, array in player.state().items())
