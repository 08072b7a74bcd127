"""One-vs-rest against its members run by hand, its loss against theirs, and what it refuses."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core import create, freeze, register, resolve, restore
from okl_core.contract.frozen import ReservoirLearner
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError, LabelError, ShapeError, StateFormatError
from okl_core.pool.experts import BLOCK
from okl_core.types import F64, Forecast
from tests.contract.broken import Sleepy

GAUSSIAN = {"kind": "gaussian", "sigma": 0.5}
MEMBERS: dict[str, dict[str, Any]] = {
    "aioli": {"kind": "aioli"},
    "ons": {"kind": "ons", "config": {"loss": "logistic", "clip": 30.0}},
    "kons": {"kind": "kons", "config": {"loss": "logistic", "kernel": GAUSSIAN}},
    "majority": {"kind": "majority"},
}
FAR: dict[str, Any] = {"kernel": GAUSSIAN, "dictionary": {"kind": "ald", "threshold": 0.3}}
"""Without coins, so that a learner by itself has the same dictionary."""
ON_A_DICTIONARY: dict[str, dict[str, Any]] = {
    "nystrom-aioli": {"kind": "nystrom-aioli", "config": FAR | {"half_life": 32}},
    "pros-n-kons": {"kind": "pros-n-kons", "config": FAR | {"loss": "logistic", "budget": 9}},
}


def spec(K: int, member: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "one-vs-rest", "config": {"classes": K, "member": member}} | more


def stream(K: int, n: int, d: int = 2, seed: int = 0, spread: float = 0.3) -> tuple[F64, F64]:
    """K clouds on a circle."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n).astype(float)
    X = spread * rng.standard_normal((n, d))
    X[:, 0] += np.cos(2.0 * np.pi * y / K)
    X[:, 1] += np.sin(2.0 * np.pi * y / K)
    return X, y


def by_hand(member: dict[str, Any], K: int, X: F64, y: F64) -> F64:
    """The members' probabilities, shape (n, K), each an ordinary learner that is told its class from the rest."""
    P = np.empty((len(y), K))
    for k in range(K):
        learner = create(member, X.shape[1])
        for t, x in enumerate(X):
            P[t, k] = learner.update(x, 1.0 if y[t] == k else -1.0).forecast.probability
    return P


@pytest.mark.parametrize("member", (MEMBERS | ON_A_DICTIONARY).values(), ids=MEMBERS | ON_A_DICTIONARY)
@pytest.mark.parametrize("K", [2, 3, 7])
def test_probabilities_are_the_members_scaled(member: dict[str, Any], K: int) -> None:
    X, y = stream(K, 60)
    P = by_hand(member, K, X, y)
    Q = P / P.sum(axis=1, keepdims=True)
    learner = create(spec(K, member), 2)
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        forecast = learner.predict(x)
        info = learner.update(x, truth)
        assert info.forecast == forecast
        assert forecast.probabilities == pytest.approx(
            tuple(Q[t]), rel=1e-9 if member["kind"] in ON_A_DICTIONARY else 1e-12
        )
        assert sum(forecast.probabilities or ()) == pytest.approx(1.0, abs=1e-12)
        assert forecast.value == max(forecast.probabilities or ())
        assert forecast.label == np.argmax(forecast.probabilities)
        assert info.loss == pytest.approx(-math.log(Q[t, int(truth)]), rel=1e-9)
    assert learner.describe()["loss"] == pytest.approx(-np.log(Q[np.arange(60), y.astype(int)]).sum())


@pytest.mark.parametrize("member", ON_A_DICTIONARY.values(), ids=ON_A_DICTIONARY)
def test_classes_share_a_dictionary(member: dict[str, Any]) -> None:
    """One, whatever the number of classes; a run is its updates, and what is restored goes on the same."""
    X, y = stream(5, 300)
    many, one = create(spec(5, member), 2), create(spec(5, member), 2)
    alone = create(member, 2)
    alone.run(X, np.where(y == 0.0, 1.0, -1.0))
    P = many.run(X, y).probabilities
    assert P is not None
    assert many.describe()["dictionary"] == alone.describe()["dictionary"]
    assert many.nbytes < 5 * alone.nbytes
    single = [one.update(x, truth).forecast.probabilities for x, truth in zip(X, y.tolist(), strict=True)]
    np.testing.assert_allclose(P, np.array(single), rtol=0.0, atol=1e-9)
    again = restore(many.spec, many.state(), 2)
    assert again.predict(X[0]) == many.predict(X[0])
    arrays = many.state()
    arrays["members.t"] = np.array(7.0)
    with pytest.raises(StateFormatError, match="a member has learned 300 rounds, its dictionary 7"):
        restore(many.spec, arrays, 2)
    arrays["members.learned"] = np.full(5, 7.0)
    with pytest.raises(StateFormatError, match="has learned 7 rounds, the learner 300"):
        restore(many.spec, arrays, 2)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 6), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 100.0]), st.sampled_from(["aioli", "ons"])
)
def test_the_loss_is_at_most_that_of_all_members(K: int, seed: int, size: float, name: str) -> None:
    """The chain of inequalities of the docstring, in every round."""
    X, y = stream(K, 25, seed=seed, spread=1.0)
    P = by_hand(MEMBERS[name], K, size * X, y)
    is_truth = np.arange(K) == y[:, None]
    with np.errstate(divide="ignore"):
        theirs = -np.log(np.where(is_truth, P, 1.0 - P)).sum(axis=1)
    info = create(spec(K, MEMBERS[name]), 2).run(size * X, y)
    assert (info.losses <= theirs + 1e-9).all()


def test_a_long_run_is_its_updates() -> None:
    """Over more than one block, of which each is learned member by member."""
    X, y = stream(3, BLOCK + 100)
    one, many = create(spec(3, MEMBERS["aioli"]), 2), create(spec(3, MEMBERS["aioli"]), 2)
    info = many.run(X, y)
    played = [one.update(x, truth) for x, truth in zip(X, y.tolist(), strict=True)]
    assert info.probabilities is not None
    np.testing.assert_allclose(info.probabilities, [p.forecast.probabilities for p in played], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(info.losses, [p.loss for p in played], rtol=1e-9)
    assert info.t == many.t == one.t
    labels = info.probabilities.argmax(axis=1)
    assert np.mean(labels[100:] != y[100:]) < 0.05


class Certain(Sleepy):
    """Gives every label the probability x[0], none where x[1] is 2, and refuses its own label where x[1] is 1."""

    kind: ClassVar[str] = "certain"
    dims: ClassVar[int | None] = 2

    def gives_probabilities(self, config: Any) -> bool:
        return True

    def predict(self, config: Any, state: Any, x: F64) -> Forecast:
        return Forecast(0.0, math.nan if x[1] == 2.0 else float(x[0]))

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        if y > 0.0 and x[1] == 1.0:
            raise DivergedError("too much for it")
        played = super().play(config, state, x, y, rng)
        played.forecast = self.predict(config, state, x)
        return played


@pytest.fixture
def certain(own_registry: None) -> dict[str, Any]:
    register(Certain)
    return {"kind": "certain"}


@pytest.mark.parametrize("p", [0.0, 1e-310, 1.0])
def test_members_that_agree_leave_all_classes_equal(certain: dict[str, Any], p: float) -> None:
    """Also if all are sure that it is none of theirs: no division by 0, no infinite loss."""
    learner = create(spec(4, certain), 2)
    for info in (learner.update(np.array([p, 0.0]), 2.0), learner.update(np.array([p, 0.0]), 0.0)):
        assert info.forecast.probabilities == pytest.approx((0.25,) * 4)
        assert info.forecast.label == 0
        assert info.loss == pytest.approx(math.log(4.0))


@pytest.mark.parametrize(
    ("mark", "told"), [(1.0, "class 2 against the rest: too much"), (2.0, "not finite")], ids=["refused", "not finite"]
)
def test_one_member_that_refuses_refuses_the_round(certain: dict[str, Any], mark: float, told: str) -> None:
    """And so does a probability that is no number; the others have learned nothing."""
    learner = create(spec(3, certain), 2)
    with pytest.raises(ShapeError, match="dimension 2"):
        create(spec(3, certain), 3)
    learner.update(np.array([0.5, 0.0]), 1.0)
    before = {name: array.tobytes() for name, array in learner.state().items()}
    X = np.array([[0.5, 0.0], [0.5, 0.0], [0.5, mark]])
    with pytest.raises(DivergedError, match=told):
        learner.update(X[-1], 2.0)
    with pytest.raises(DivergedError, match=told):
        learner.run(X, np.array([0.0, 1.0, 2.0]))
    assert {name: array.tobytes() for name, array in learner.state().items()} == before


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"classes": 1}, "classes"),
        ({"classes": 1001}, "classes"),
        ({"member": {"kind": "oracle"}}, "oracle"),
        ({"member": {"kind": "mean"}}, "no learner of two labels"),
        ({"member": {"kind": "one-vs-rest"}}, "no learner of two labels"),
        ({"member": {"kind": "kons", "config": {"loss": "squared"}}}, "no learner of two labels"),
        ({"member": {"kind": "kons", "config": {"loss": "squared-hinge"}}}, "no probabilities"),
        ({"member": {"kind": "pomdr"}}, "no probabilities"),
        ({"member": {"kind": "ons", "config": {"loss": "logistic", "clip": -1.0}}}, "clip"),
    ],
    ids=str,
)
def test_configs_that_are_refused(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        create({"kind": "one-vs-rest", "config": config}, 2)


def test_truths_are_classes() -> None:
    learner = create(spec(3, MEMBERS["majority"]), 1)
    for y in (-1.0, 3.0, 0.5, math.nan, math.inf):
        with pytest.raises(LabelError, match="classes 0 to 2"):
            learner.update(np.zeros(1), y)
    assert learner.update(np.zeros(1), 2).t == 1


def test_a_pool_takes_no_classes() -> None:
    with pytest.raises(ConfigError, match="expert 0, one-vs-rest, does not learn labels"):
        create({"kind": "pool", "config": {"experts": [spec(2, MEMBERS["majority"])]}}, 1)


def test_a_member_may_wait_for_inputs() -> None:
    member = {"kind": "kons", "config": {"loss": "logistic", "kernel": {"kind": "gaussian", "sigma": "median"}}}
    X, y = stream(3, 50)
    with pytest.raises(ConfigError, match='"median" must be resolved'):
        create(spec(3, member), 2)
    resolved = resolve(spec(3, member), X)
    assert resolved.config["member"]["config"] == resolve(member, X).config
    assert create(resolved, 2).run(X, y).t == 50


@pytest.mark.parametrize("rule", ["last", "uniform"])
def test_frozen_it_gives_probabilities(rule: Any) -> None:
    X, y = stream(3, 40)
    learner = ReservoirLearner.create(spec(3, MEMBERS["aioli"], seed=2), 2)
    info = learner.run(X, y)
    assert info.probabilities is not None
    assert info.probabilities.shape == (40, 3)
    frozen = freeze(learner, rule)
    again = create(spec(3, MEMBERS["aioli"]), 2)
    again.run(X[: frozen.t], y[: frozen.t])
    expected = again.predict(X[0]).probabilities or ()
    assert frozen.predict(X[0]).probabilities == pytest.approx(expected, abs=1e-9)


def test_states_of_other_classes_are_refused() -> None:
    learner = create(spec(3, MEMBERS["aioli"]), 2)
    learner.run(*stream(3, 5))
    arrays = learner.state()
    other = create(spec(3, MEMBERS["aioli"]), 2).state()
    fewer = {name: array for name, array in arrays.items() if not name.startswith("members.2.")}
    mixed = arrays | {name: array for name, array in other.items() if name.startswith("members.1.")}
    more = arrays | {"members.7.t": np.array(5.0)}
    for K, wrong in ((2, arrays), (4, arrays), (3, fewer), (3, mixed), (3, more)):
        with pytest.raises(StateFormatError):
            restore(spec(K, MEMBERS["aioli"]), wrong, 2)
