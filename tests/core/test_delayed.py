"""Learners for late truths, against dense algebra: any delays, any order, and truths that never come."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core import DelayedLearner, Gaussian, create, create_delayed, diagnostics
from okl_core.delayed.delayed_learner import MAX_WAITING
from okl_core.errors import ConfigError, DivergedError, InputError, LabelError, NonFiniteError, ShapeError, UnknownKind
from okl_core.losses import LOSSES
from okl_core.types import F64

KERNEL = Gaussian(sigma=0.6)
A, Y, C = 0.3, 1.0, 1.5
NEVER = 10**6

DELAYS = st.lists(st.integers(0, 12) | st.just(NEVER), min_size=1, max_size=40)


def squares() -> DelayedLearner[Any]:
    config = {"kernel": KERNEL.model_dump(), "regularization": A, "clip": Y}
    return create_delayed({"kind": "kernel-aar", "config": config}, 2)


def newton_spec(loss: str = "squared", step: str = "curvature") -> dict[str, Any]:
    config = {"kernel": KERNEL.model_dump(), "regularization": A, "clip": C, "loss": loss, "step": step}
    return {"kind": "kons", "config": config}


def stream(seed: int, n: int) -> tuple[F64, F64]:
    """Inputs of which some come again, and truths at the ends of the range."""
    rng = np.random.default_rng(seed)
    return np.round(rng.uniform(-1.0, 1.0, (n, 2)), int(rng.integers(0, 3))), rng.choice([-Y, Y], n)


class Late:
    """A stream played: what was issued, and the rounds whose truths were known at each forecast, in the order they came."""

    def __init__(self, learner: DelayedLearner[Any], X: F64, y: F64, delays: list[int]) -> None:
        self.issued, self.known, order = np.empty(len(y)), list[list[int]](), list[int]()
        ids: dict[int, int] = {}
        for now in range(len(y) + 20):
            if now < len(y):
                self.known.append(list(order))
                forecast = learner.issue(X[now])
                ids[now], self.issued[now] = forecast.id, forecast.value
            for t in [t for t in ids if t + delays[t] == now]:
                assert learner.learn(ids.pop(t), y.item(t)) == LOSSES[learner.loss.name].value(self.issued[t], y[t])
                order.append(t)
        self.order = order


@settings(deadline=None)
@given(st.integers(0, 999), DELAYS)
def test_squares_are_those_of_all_inputs_and_the_truths_that_came(seed: int, delays: list[int]) -> None:
    X, y = stream(seed, len(delays))
    learner = squares()
    played = Late(learner, X, y, delays)
    K = KERNEL.gram(X)
    price = 0.0
    for t, known in enumerate(played.known):
        n = t + 1
        truths = np.zeros(n)
        truths[known] = y[known]
        inverse = np.linalg.inv(K[:n, :n] + A * np.eye(n))
        assert played.issued[t] == pytest.approx(np.clip(K[t, :n] @ inverse @ truths, -Y, Y), abs=1e-9)
        missing = [s for s in range(t) if s not in known]
        # phi^T A^{-1} phi' = (K (K + a I)^{-1})_{tj}
        moved = min(2.0, np.abs(K[t, :n] @ inverse[:, missing]).sum())
        price += Y * Y * moved * (4.0 - moved)
    told = learner.describe()
    arrived = np.zeros(len(y))
    arrived[played.order] = y[played.order]
    best, log_det = diagnostics.ridge_optimum(K, arrived, A), diagnostics.log_det(K, A)
    assert told["comparator_loss"] == pytest.approx(best, abs=1e-8)
    assert told["bound"] == pytest.approx(Y * Y * log_det + price, rel=1e-7)
    assert told["loss"] == pytest.approx(((played.issued - y)[played.order] ** 2).sum())
    assert told["loss"] <= best + told["bound"] + 1e-7
    latest = max((delay for delay in delays if delay != NEVER), default=0)
    if NEVER not in delays:
        assert told["bound"] <= (1.0 + 4.0 * latest) * Y * Y * log_det + 1e-7


@settings(deadline=None)
@given(st.integers(0, 999), DELAYS, st.sampled_from(["curvature", "half-curvature", "adaptive"]))
def test_newton_steps_are_parabolas_at_what_was_issued(seed: int, delays: list[int], step: str) -> None:
    X, y = stream(seed, len(delays))
    loss = LOSSES[("squared", "logistic", "squared-hinge")[seed % 3]]
    learner = create_delayed(newton_spec(loss.name, step), 2)
    played = Late(learner, X, y, delays)
    K = KERNEL.gram(X)
    # In the coordinates of a root of K: phi_t is the row t.
    values, V = np.linalg.eigh(K)
    Phi = V * np.sqrt(np.maximum(values, 0.0))
    bound, A_n, s = 0.0, A * np.eye(len(y)), np.zeros(len(y))
    states = {0: (A_n.copy(), s.copy())}
    for n, t in enumerate(played.order):
        v, phi = played.issued[t], Phi[t]
        g = loss.derivative(v, y[t])
        eta = {"curvature": 1.0, "half-curvature": 0.5}.get(step, 0.0) * loss.curvature(C)
        w = loss.weight(v, y[t], C) if step == "adaptive" else eta * g * g
        # What the minimum of the parabolas grows by, beside what the regret is made of.
        before = least(A_n, s)
        A_n, s = A_n + w * np.outer(phi, phi), s + (w * v - g) * phi
        bound -= least(A_n, s) - before + 0.5 * w * v * v - g * v
        states[n + 1] = A_n.copy(), s.copy()
    for t, known in enumerate(played.known):
        A_t, s_t = states[len(known)]
        assert played.issued[t] == pytest.approx(np.clip(Phi[t] @ np.linalg.solve(A_t, s_t), -C, C), abs=1e-7)
    assert learner.describe()["bound"] == pytest.approx(bound, rel=1e-6, abs=1e-6)


def least(A_n: F64, s: F64) -> float:
    """min_f 1/2 f^T A f - s^T f."""
    return -0.5 * float(s @ np.linalg.solve(A_n, s))


def test_without_delays_squares_are_those_of_kernel_aar() -> None:
    X, y = stream(5, 60)
    learner = squares()
    usual = create({"kind": "kernel-aar", "config": {"kernel": KERNEL.model_dump(), "regularization": A, "clip": Y}}, 2)
    played = Late(learner, X, y, [0] * 60)
    assert played.issued == pytest.approx(usual.run(X, y).values, abs=1e-12)
    told, own = usual.describe(), learner.describe()
    assert [own[name] for name in ("bound", "comparator_loss", "loss")] == pytest.approx(
        [told[name] for name in ("bound", "comparator_loss", "loss")]
    )


def test_without_delays_and_clips_newton_steps_are_those_of_kons() -> None:
    X, y = stream(5, 60)
    spec = newton_spec(step="adaptive")
    spec["config"]["clip"] = 50.0
    learner, usual = create_delayed(spec, 2), create(spec, 2)
    played = Late(learner, X, y, [0] * 60)
    assert played.issued == pytest.approx(usual.run(X, y).values, abs=1e-9)
    assert learner.describe()["bound"] == pytest.approx(usual.describe()["bound_gradient"])


@pytest.mark.parametrize("make", [squares, lambda: create_delayed(newton_spec(), 2)], ids=["squares", "newton"])
def test_the_order_of_arrival_does_not_matter(make: Any) -> None:
    X, y = stream(7, 30)
    first, second = make(), make()
    ids = [(first.issue(x).id, second.issue(x).id) for x in X[:29]]
    rng = np.random.default_rng(0)
    for i in rng.permutation(29).tolist():
        first.learn(ids[i][0], y.item(i))
    for i in rng.permutation(29).tolist():
        second.learn(ids[i][1], y.item(i))
    assert first.issue(X[29]).value == pytest.approx(second.issue(X[29]).value, abs=1e-10)


@pytest.mark.parametrize("make", [squares, lambda: create_delayed(newton_spec(), 2)], ids=["squares", "newton"])
def test_a_copy_and_a_pickle_go_on_alike_and_alone(make: Any) -> None:
    X, _ = stream(8, 20)
    learner = make()
    for x in X[:10]:
        learner.issue(x)
    before = learner.describe()
    others = [learner.copy(), copy.copy(learner), copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
    for other in others:
        other.learn(3, 1.0)
        other.issue(X[10])
    assert learner.describe() == before
    learner.learn(3, 1.0)
    learner.issue(X[10])
    expected = learner.describe()
    last = learner.issue(X[11])
    for other in others:
        assert other.describe() == expected
        assert other.issue(X[11]) == last


@pytest.mark.parametrize("make", [squares, lambda: create_delayed(newton_spec(), 2)], ids=["squares", "newton"])
def test_what_is_wrong_changes_nothing(make: Any) -> None:
    learner = make()
    issued = learner.issue([0.1, 0.2])
    before = learner.describe()
    for x, error in (([0.1], ShapeError), ([math.nan, 0.0], NonFiniteError), (["a", "b"], InputError)):
        with pytest.raises(error):
            learner.issue(x)
    for y, error in ((2.0, LabelError), (math.inf, NonFiniteError), ("1", InputError)):
        with pytest.raises(error):
            learner.learn(issued.id, y)
    for id in (2, 0, -1, 1.0, "1", [1], ([1],), np.array(1)):
        with pytest.raises(InputError, match="waits for a truth") as told:
            learner.learn(id, 0.5)
        assert told.value.field == "id"
    assert learner.describe() == before
    learner.learn(issued.id, 0.5)
    with pytest.raises(InputError):
        learner.learn(issued.id, 0.5)
    with pytest.raises(InputError):
        learner.drop(issued.id)


def test_a_truth_that_never_comes_is_0_to_squares() -> None:
    X, y = stream(9, 12)
    learner, other = squares(), squares()
    for i, x in enumerate(X[:11]):
        dropped, told = learner.issue(x).id, other.issue(x).id
        if i == 4:
            learner.drop(dropped)
            other.learn(told, 0.0)
        else:
            learner.learn(dropped, y.item(i))
            other.learn(told, y.item(i))
    assert learner.waiting == other.waiting == ()
    assert learner.issue(X[11]).value == other.issue(X[11]).value
    for name in ("bound", "comparator_loss"):
        assert learner.describe()[name] == other.describe()[name]


def test_a_truth_that_never_comes_is_nothing_to_newton_steps() -> None:
    X, y = stream(9, 12)
    learner, other = create_delayed(newton_spec(), 2), create_delayed(newton_spec(), 2)
    for i, x in enumerate(X[:11]):
        id = learner.issue(x).id
        if i == 4:
            learner.drop(id)
        else:
            learner.learn(id, y.item(i))
            other.learn(other.issue(x).id, y.item(i))
    assert learner.issue(X[11]).value == other.issue(X[11]).value


@settings(deadline=None)
@given(st.integers(0, 999), DELAYS)
def test_inputs_too_small_for_the_factor_count_with_the_others(seed: int, delays: list[int]) -> None:
    """0 and 1e-9 beside 1: their truths are in the comparator's loss, and move what is forecast."""
    rng = np.random.default_rng(seed)
    X, y = rng.choice([0.0, 1e-9, -1e-9, 1.0, 0.3], (len(delays), 1)), rng.choice([-Y, Y], len(delays))
    config = {"kernel": {"kind": "linear"}, "regularization": A, "clip": Y}
    learner = create_delayed({"kind": "kernel-aar", "config": config}, 1)
    played = Late(learner, X, y, delays)
    price = 0.0
    for t, known in enumerate(played.known):
        now = A + float((X[: t + 1] ** 2).sum())
        assert played.issued[t] == pytest.approx(
            np.clip(X[t] @ X[known].T @ y[known] / now, -Y, Y), rel=1e-9, abs=1e-12
        )
        moved = min(2.0, float(sum(abs(X[t, 0] * X[s, 0]) / now for s in range(t) if s not in known)))
        price += Y * Y * moved * (4.0 - moved)
    told, arrived = learner.describe(), np.zeros(len(y))
    arrived[played.order] = y[played.order]
    best = float(arrived @ arrived) - float(X[:, 0] @ arrived) ** 2 / (A + float((X**2).sum()))
    assert told["comparator_loss"] == pytest.approx(best, abs=1e-9)
    least = Y * Y * math.log1p(float((X**2).sum()) / A) + price
    assert least - 1e-9 <= told["bound"] <= least + 1e-5
    assert told["loss"] <= told["comparator_loss"] + told["bound"] + 1e-9


def test_a_forecast_is_moved_by_twice_the_largest_truth_at_most() -> None:
    config = {"kernel": {"kind": "linear"}, "regularization": 1.0, "clip": Y}
    learner = create_delayed({"kind": "kernel-aar", "config": config}, 1)
    price = 0.0
    for t in range(100):
        learner.issue([1.0])
        # All before wait: b is 1 / A_t for each of them.
        price += (moved := t / (t + 2.0)) * (4.0 - moved)
    learner.issue([10.0])
    # Each of the 100 that wait has a b of 10 / 201, and 5 in all are too much.
    assert learner.describe()["bound"] == pytest.approx(Y * Y * (math.log(201.0) + price + 4.0))


def test_what_inputs_too_small_for_the_factor_move_is_bounded_by_their_length() -> None:
    config = {"kernel": {"kind": "linear"}, "regularization": 1.0, "clip": Y}
    learner = create_delayed({"kind": "kernel-aar", "config": config}, 1)
    learner.issue([1e-9])
    learner.issue([2.0])
    # sqrt(lambda_t kappa_j / a), with q = 4.
    moved = math.sqrt(0.8) * 1e-9
    assert learner.describe()["bound"] - Y * Y * math.log(5.0) == pytest.approx(4.0 * moved, rel=1e-5)
    learner.learn(1, Y)
    assert learner.describe()["dictionary"] == 2


def test_no_more_wait_than_are_allowed() -> None:
    learner = create_delayed(newton_spec(), 2)
    for _ in range(MAX_WAITING):
        learner.issue([0.0, 0.0])
    with pytest.raises(InputError, match="learn or drop"):
        learner.issue([0.0, 0.0])
    learner.drop(1)
    assert learner.issue([0.0, 0.0]).id == MAX_WAITING + 1


def test_a_round_that_diverges_changes_nothing() -> None:
    spec = {"kind": "kons", "config": {"kernel": {"kind": "linear"}, "clip": 1.0}}
    learner = create_delayed(spec, 1)
    issued = learner.issue([1e9])
    before = learner.describe()
    with pytest.raises(DivergedError):
        learner.learn(issued.id, 1.0)
    assert learner.describe() == before
    assert learner.waiting == (issued.id,)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"kind": "aioli"}, "kind"),
        ({"kind": "aioli", "config": {"half_life": "learned"}}, "kind"),
        ({"kind": "kernel-ridge", "config": {"clip": 1.0}}, "kind"),
        ({"kind": "kernel-aar"}, "clip"),
        ({"kind": "kernel-aar", "config": {"clip": 1.0, "window": 10}}, "window"),
        ({"kind": "kernel-aar", "config": {"clip": 1.0, "half_life": "learned"}}, "half_life"),
        ({"kind": "kons", "config": {"half_life": 100}}, "half_life"),
        ({"kind": "kons", "config": {"half_life": "learned"}}, "half_life"),
        ({"kind": "kons", "lags": 2}, "lags"),
        ({"kind": "kons", "config": {"step": "inverse-sqrt"}}, "step"),
        ({"kind": "kons", "config": {"step": "adaptive", "window": 10}}, "window"),
        ({"kind": "kons", "config": {"kernel": {"kind": "gaussian", "sigma": "median"}}}, "sigma"),
    ],
)
def test_a_spec_without_a_delayed_form(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as told:
        create_delayed(spec, 2)
    assert [path[-1] for path, _ in told.value.errors] == [field]
    assert str(told.value).startswith(spec["kind"]) or field == "sigma"


def test_a_kind_and_a_dimension_that_are_none() -> None:
    with pytest.raises(UnknownKind):
        create_delayed("delayed", 2)
    with pytest.raises(ShapeError):
        create_delayed({"kind": "kons"}, 0)
