"""Long rounds are announced: none comes that was not, and none is announced where none can come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, ReservoirLearner, create, freeze
from okl_core.types import F64

Config = dict[str, Any]
Seen = Callable[[OnlineLearner], object]


def phase(learner: OnlineLearner) -> object:
    return learner.describe()["phase"]


def embedding(learner: OnlineLearner) -> object:
    return learner.state()["Q"].tobytes()


def removals(learner: OnlineLearner) -> object:
    return learner.describe()["removals"]


def oldest(learner: OnlineLearner) -> object:
    rounds = learner.state()["space.stored.J"]
    return rounds[0] if len(rounds) else 1.0


def metric(learner: OnlineLearner) -> object:
    return learner.state()["packing.metric.root"].tobytes()


WORK: dict[str, tuple[str, Config, Seen]] = {
    "nogd": ("nogd", {"budget": 30}, phase),
    "nogd first": ("nogd", {"budget": 30, "buffer": "first"}, phase),
    "skegd": ("skegd", {"budget": 20, "cycle": 5}, embedding),
    "skegd doubling": ("skegd", {"budget": 20}, embedding),
    "kons": ("kons", {"loss": "squared-hinge", "step": "adaptive", "window": 20}, oldest),
    "pomdr": ("pomdr", {"budget": 16, "pomd_budget": 4, "kernel": {"kind": "gaussian", "sigma": 0.2}}, removals),
    "metric-packing": ("metric-packing", {"spread": False}, metric),
    "metric-packing spread": ("metric-packing", {"refeed": False}, metric),
}


def stream(learner: OnlineLearner, n: int) -> tuple[F64, F64]:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.where(np.sin(3.0 * X[:, 0]) + 0.5 * rng.standard_normal(n) >= 0.0, 1.0, -1.0)
    return X, y if learner.target == "binary" else 0.5 + 0.5 * y * rng.random(n)


@pytest.fixture
def all_work_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("okl_core.contract.learner.LONG_WORK", 1.0)


@pytest.mark.usefixtures("all_work_is_long")
@pytest.mark.parametrize("name", WORK)
def test_no_long_round_comes_unannounced(name: str) -> None:
    kind, config, seen = WORK[name]
    learner = create({"kind": kind, "config": config}, 2)
    X, y = stream(learner, 260)
    came = announced = 0
    before, ahead = seen(learner), False
    for x, truth in zip(X, y.tolist(), strict=True):
        is_announced, soon = learner.has_long_round(), learner.has_long_round(10)
        assert soon or not is_announced
        # What is not among the next ten is not the next one.
        assert ahead or not is_announced
        learner.update(x, truth)
        now = seen(learner)
        assert is_announced or now == before, f"round {learner.t}"
        came, announced = came + (now != before), announced + is_announced
        before, ahead = now, soon or learner.has_long_round(9)
    assert came > 0
    assert announced < len(y)


def after(kind: str, config: Config, rounds: int, dim: int = 2) -> OnlineLearner:
    learner = create({"kind": kind, "config": config}, dim)
    rng = np.random.default_rng(0)
    learner.run(rng.uniform(-1.0, 1.0, (rounds, dim)), np.where(rng.random(rounds) < 0.5, 1.0, -1.0))
    return learner


def test_only_milliseconds_count() -> None:
    for budget, is_long in ((60, False), (500, True)):
        config = {"budget": budget, "buffer": "first"}
        for kind in ("nogd", "skegd"):
            assert after(kind, config, budget - 1).has_long_round() is is_long
            assert not after(kind, config, budget - 2).has_long_round(1)
            assert after(kind, config, budget - 2).has_long_round(2) is is_long
            assert not after(kind, config, budget).has_long_round()


def test_the_first_round_draws_all_frequencies() -> None:
    for features, is_long in ((100, False), (10**6, True)):
        learner = create({"kind": "fogd", "config": {"frequencies": features}}, 2)
        assert learner.has_long_round() is is_long
    assert not after("fogd", {"frequencies": 10**5}, 1).has_long_round(10**6)


def test_a_half_life_of_many_features_is_due_now_and_then() -> None:
    config = {"half_life": 40, "loss": "logistic"}
    assert [after("ons", config, t, dim=600).has_long_round() for t in (7, 8, 9, 10, 18, 19)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    assert not after("ons", config, 9, dim=6).has_long_round()
    assert not after("ons", {"loss": "logistic"}, 9, dim=600).has_long_round()


def test_rounds_of_hundreds_of_classes_are_long() -> None:
    for classes, is_long in ((30, False), (300, True)):
        learner = create({"kind": "softmax-aioli", "config": {"classes": classes}}, 2)
        assert learner.has_long_round() is is_long


def test_a_half_life_of_many_classes_is_due_now_and_then() -> None:
    learner = create({"kind": "softmax-aioli", "config": {"classes": 40, "half_life": 8}}, 8)
    found = []
    for t in range(5):
        found.append(learner.has_long_round())
        learner.update(np.ones(8), float(t))
    assert found == [False, True, False, True, False]
    assert learner.has_long_round(2)


def test_the_points_of_the_scores_are_built_anew_as_well() -> None:
    config = {"half_life": 24, "loss": "squared-hinge", "kernel": {"kind": "gaussian", "sigma": 0.1}}
    every = config | {"floor_probability": 1.0, "oversampling": 1e9}
    for kind, given, is_long in (("kons", config, False), ("sketched-kons", every, True)):
        learner = after(kind, given, 251)
        assert learner.describe()["active"] > 240
        assert learner.has_long_round() is is_long
        assert not after(kind, given, 250).has_long_round()


def test_the_work_of_many_learners_adds_up() -> None:
    config = {"budget": 150, "buffer": "first", "loss": "logistic"}
    member = {"kind": "nogd", "config": config}
    assert not after("nogd", config, 149).has_long_round()
    pool = after("pool", {"experts": [member] * 20}, 149)
    assert pool.has_long_round()
    classes = create({"kind": "one-vs-rest", "config": {"classes": 20, "member": member}}, 2)
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (149, 2))
    classes.run(X, np.arange(149.0) % 20)
    assert classes.has_long_round()
    classes.update(X[0], 0.0)
    assert not classes.has_long_round()


def test_the_other_facades_say_the_same() -> None:
    config = {"budget": 500, "buffer": "first"}
    reservoir = ReservoirLearner(create({"kind": "nogd", "config": config}, 2))
    rng = np.random.default_rng(0)
    reservoir.run(rng.uniform(-1.0, 1.0, (495, 2)), np.ones(495))
    assert [reservoir.has_long_round(rounds) for rounds in (1, 4, 5, 6)] == [False, False, True, True]
    assert not freeze(reservoir).has_long_round(6)
