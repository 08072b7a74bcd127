"""AIOLI against a minimisation of its objective, its proof and its regret bound; forgetting, and online-to-batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from okl_core import OnlineLearner, ReservoirLearner, create, freeze
from okl_core.diagnostics.comparator import best_in_hindsight
from okl_core.errors import ConfigError, DivergedError
from okl_core.kernels.kernels import Linear
from okl_core.second_order import feature_space
from okl_core.second_order.feature_space import BLOCK
from okl_core.types import F64
from tests.core.improper_streams import NAMES, SETTINGS, expected, labels_for
from tests.core.newton_streams import play_all
from tests.oracles.improper import FLATNESS, Run

ROUNDS = 80


def aioli(dim: int = 2, intercept: bool = True, **config: Any) -> OnlineLearner:
    return create({"kind": "aioli", "config": {"intercept": intercept} | config}, dim)


def phi(X: F64, intercept: bool = True) -> F64:
    return np.hstack((X, np.ones((len(X), 1)))) if intercept else X


def oracle(Phi: F64, y: F64, **config: Any) -> Run:
    """With the defaults of linear AIOLI, written out again."""
    return expected({"comparator_norm": 2.0} | config, Phi, np.linalg.norm(Phi, axis=1), y)


@pytest.fixture(params=["one by one", "in blocks"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How `run` learns; by itself it takes blocks for many features only."""
    monkeypatch.setattr(feature_space, "WIDE", 0 if request.param == "in blocks" else math.inf)
    return request.param


@pytest.mark.pairs
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_every_forecast_minimises_the_objective(config: dict[str, Any], name: str) -> None:
    X, y = labels_for(name, ROUNDS)
    intercept = name in NAMES[::2]
    X, Phi = 3.0 * X, phi(3.0 * X, intercept)
    found = oracle(Phi, y, **config)
    single, blocks = aioli(intercept=intercept, **config), aioli(intercept=intercept, **config)
    values, _ = play_all(single, X, y)
    info = blocks.run(X, y)
    assert info.probabilities is not None
    for actual in (values, info.values):
        np.testing.assert_allclose(actual, found.values, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(info.probabilities, 1.0 / (1.0 + np.exp(-np.array(found.values))), rtol=0.0, atol=1e-7)

    lam = config.get("regularization", config.get("comparator_norm", 2.0) ** -2)
    A = 2.0 * lam * np.eye(Phi.shape[1]) + (Phi.T * found.weights) @ Phi
    for told in (single.describe(), blocks.describe()):
        assert told["log_det"] == pytest.approx(np.linalg.slogdet(A / (2.0 * lam))[1], rel=1e-7)
        assert told["loss"] == pytest.approx(sum(found.losses), rel=1e-7)
        assert told["bound"] == pytest.approx(sum(found.terms), rel=1e-6)
        assert (told["t"], told["dictionary"], told["features"]) == (ROUNDS, 0, Phi.shape[1])


@given(st.data())
def test_so_does_every_forecast_of_streams_made_to_break_it(data: st.DataObject) -> None:
    d, n = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12))
    points = st.lists(st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-3]), min_size=d, max_size=d)
    scales = st.sampled_from([0.0, 0.1, 1.0, 20.0])
    X = np.array([data.draw(points) for _ in range(n)]) * np.array([[data.draw(scales)] for _ in range(n)])
    y = np.array([data.draw(st.sampled_from([-1.0, 1.0])) for _ in range(n)])
    config = {
        "comparator_norm": data.draw(st.sampled_from([0.05, 1.0, 20.0])),
        "curvature": data.draw(st.sampled_from(["paper", "half", "exact"])),
        "regularization": data.draw(st.sampled_from([1e-3, 0.1, 1.0])),
    }
    values = aioli(d, intercept=False, **config).run(X, y).values
    np.testing.assert_allclose(values, oracle(X, y, **config).values, rtol=1e-7, atol=1e-7)


def minimum(Phi: F64, y: F64, values: F64, kappa: F64, lam: float) -> float:
    """min over theta of the surrogates of these rounds and lambda |theta|^2, as they are defined."""
    slopes = -y[:, None] * Phi / (1.0 + np.exp(y * values))[:, None]
    eta = np.exp(y * values) / kappa
    # Of theta the surrogate has g^T theta - g^T theta_s, and g^T theta_s = -y p a_s.
    at = -y * values / (1.0 + np.exp(y * values))
    H = 2.0 * lam * np.eye(Phi.shape[1]) + (slopes.T * eta) @ slopes
    theta = np.linalg.solve(H, slopes.T @ (eta * at - 1.0))
    u = slopes @ theta - at
    return float(np.logaddexp(0.0, -y * values).sum() + u.sum() + 0.5 * eta @ u**2 + lam * theta @ theta)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_the_step_of_the_proof_holds_in_every_round(config: dict[str, Any], name: str) -> None:
    X, y = labels_for(name, ROUNDS)
    B, lam = config.get("comparator_norm", 2.0), config.get("regularization", config.get("comparator_norm", 2.0) ** -2)
    Phi, R = phi(X), np.maximum(np.linalg.norm(phi(X), axis=1), config.get("input_norm", 0.0))
    learner = aioli(**config)
    values = learner.run(X, y).values
    flatness = FLATNESS[config.get("curvature", "half")]
    kappa = np.array([flatness(*pair) for pair in zip(values.tolist(), (B * R).tolist(), strict=True)])
    p = 1.0 / (1.0 + np.exp(y * values))
    least = [minimum(Phi[:t], y[:t], values[:t], kappa[:t], lam) for t in range(ROUNDS + 1)]
    gains = np.logaddexp(0.0, -y * values) - np.diff(least)
    terms = []
    for t in range(ROUNDS):
        A = 2.0 * lam * np.eye(3) + (Phi[: t + 1].T * (p * (1.0 - p) / kappa)[: t + 1]) @ Phi[: t + 1]
        terms.append(p[t] * (1.0 - p[t]) * Phi[t] @ np.linalg.solve(A, Phi[t]))
    assert (gains <= np.array(terms) + 1e-9 * max(1.0, abs(least[-1]))).all()
    assert learner.describe()["bound"] == pytest.approx(sum(terms), rel=1e-6)


@pytest.mark.parametrize("curvature", ["paper", "half", "exact"])
@pytest.mark.parametrize("B", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("name", ["random", "flips", "repeated", "adversarial"])
def test_regret_stays_within_its_bounds(name: str, B: float, curvature: str) -> None:
    X, y = labels_for(name, 300)
    Phi, lam = phi(X), B**-2
    learner = aioli(comparator_norm=B, curvature=curvature)
    learner.run(X, y)
    told = learner.describe()
    n, p = Phi.shape
    R = np.linalg.norm(Phi, axis=1).max()
    kappa = 1.0 + B * R * (1.0 if curvature == "paper" else 0.5)
    best = best_in_hindsight(Linear(), Phi, y, "logistic", regularization=2.0 * lam, radius=B)
    assert told["loss"] - best.lower <= told["bound"]
    # A weight is at most 1 / 4 in any case, and 1 / (4 kappa) where kappa is that of all rounds.
    least = 1.0 if curvature == "exact" else kappa
    assert told["bound"] <= kappa * told["log_det"] <= p * kappa * math.log1p(n * R**2 / (8.0 * p * lam * least))


@pytest.mark.parametrize("seed", [0, 1])
def test_it_beats_every_linear_function_where_learners_of_one_do_not(seed: int) -> None:
    # One rare input against many that say little and the opposite: a linear forecast has to choose.
    n, rng = 2000, np.random.default_rng(seed)
    B = math.log(n)
    K = 0.5 * (B**2 * n) ** (1.0 / 3.0)
    is_rare = rng.random(n) < (1.0 + math.sqrt(2.0 * K / n)) / (2.0 * K)
    X, y = np.where(is_rare, 1.0, 1.0 / K)[:, None], np.where(is_rare, -1.0, 1.0)
    best: Any = minimize_scalar(lambda v: np.logaddexp(0.0, -y * X[:, 0] * v).sum(), bounds=(-B, B), method="bounded")
    proper = create({"kind": "ons", "config": {"loss": "logistic", "clip": B, "intercept": False}}, 1)
    assert proper.run(X, y).losses.sum() > best.fun + 5.0
    assert aioli(1, intercept=False, comparator_norm=B).run(X, y).losses.sum() < best.fun - 5.0


def test_a_half_life_is_a_sum_with_weights_that_fall() -> None:
    rng, H, alpha = np.random.default_rng(3), 16, 0.5
    X = rng.standard_normal((3 * H + 1, 2))
    y = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    learner = aioli(half_life=H, regularization=0.5 * alpha)
    A, s, stride = alpha * np.eye(3), np.zeros(3), H // 4
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        features = np.append(x, 1.0)
        m, q = features @ np.linalg.solve(A, s), features @ np.linalg.solve(A, features)
        a = learner.update(x, truth).forecast.value
        assert a + q * math.tanh(0.5 * a) == pytest.approx(m, abs=1e-9)
        p = 1.0 / (1.0 + math.exp(truth * a))
        w = p * (1.0 - p) / (1.0 + np.linalg.norm(features))
        A, s = A + w * np.outer(features, features), s + (w * a + truth * p) * features
        if t % stride == 0:
            factor = 0.5 ** (stride / H)
            A, s = factor * A + (1.0 - factor) * alpha * np.eye(3), factor * s
    assert "bound" not in learner.describe()
    assert "log_det" not in learner.describe()


def test_forgetting_follows_a_function_that_turns() -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((4000, 3))
    angle = 2.0 * np.pi * np.arange(len(X)) / len(X)
    y = np.where(X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle) >= 0.0, 1.0, -1.0)
    wrong = {}
    for half_life in (None, 100):
        values = aioli(3, half_life=half_life).run(X, y).values
        wrong[half_life] = np.mean(np.where(values >= 0.0, 1.0, -1.0) != y)
    assert wrong[100] < 0.05 < 0.1 < wrong[None]


@pytest.mark.parametrize("rule", ["last", "uniform"])
def test_frozen_it_predicts_the_root_of_the_kept_state(rule: Any) -> None:
    X, y = labels_for("random", 70)
    learner = ReservoirLearner.create({"kind": "aioli", "seed": 2}, 2)
    learner.run(X[:60], y[:60])
    frozen = freeze(learner, rule)
    learner.run(X[60:], y[60:])
    Phi = phi(X[: frozen.t])
    found = oracle(Phi, y[: frozen.t])
    assert frozen.t == 60 if rule == "last" else 0 < frozen.t < 60
    w, a = np.array(found.weights), np.array(found.values)
    A = 2.0 * 0.25 * np.eye(3) + (Phi.T * w) @ Phi
    s = Phi.T @ (w * a + y[: frozen.t] / (1.0 + np.exp(y[: frozen.t] * a)))
    for x in np.random.default_rng(1).standard_normal((20, 2)):
        features = np.append(x, 1.0)
        forecast = frozen.predict(x)
        m, q = features @ np.linalg.solve(A, s), features @ np.linalg.solve(A, features)
        assert forecast.value + q * math.tanh(0.5 * forecast.value) == pytest.approx(m, abs=1e-7)
        assert forecast.probability == pytest.approx(1.0 / (1.0 + math.exp(-forecast.value)), rel=1e-12)


def test_its_forecasts_are_not_linear_in_the_input() -> None:
    learner = aioli(1, intercept=False, comparator_norm=20.0)
    for _ in range(3):
        learner.update(np.ones(1), 1.0)
    near, far = (learner.predict(np.array([x])).value for x in (0.5, 1.0))
    assert 0.0 < far < 1.9 * near


@pytest.mark.parametrize("dim", [2, 130])
def test_a_run_in_pieces_is_its_updates(dim: int) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((3 * BLOCK, dim)) / math.sqrt(dim)
    y = np.where(X[:, 0] + 0.1 * rng.standard_normal(len(X)) >= 0.0, 1.0, -1.0)
    single, blocks = aioli(dim, half_life=40), aioli(dim, half_life=40)
    values, _ = play_all(single, X, y)
    found = np.concatenate([blocks.run(X[a:b], y[a:b]).values for a, b in [(0, 7), (7, BLOCK + 3), (BLOCK + 3, None)]])
    np.testing.assert_allclose(found, values, rtol=0.0, atol=1e-9)
    for name, array in blocks.state().items():
        np.testing.assert_allclose(array, single.state()[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.usefixtures("form")
def test_an_overflow_changes_nothing() -> None:
    learner = aioli(regularization=1e-3)
    learner.update(np.array([1.0, 0.0]), 1.0)
    before = learner.state()
    X = np.array([[0.5, 0.0], [0.0, 1e153]])
    with np.errstate(all="ignore"), pytest.raises(DivergedError):
        learner.update(X[1], 1.0)
    with np.errstate(all="ignore"), pytest.raises(DivergedError):
        learner.run(X, np.ones(2))
    assert all(np.array_equal(array, before[name]) for name, array in learner.state().items())


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("power", [10, 30, 40, 42, 50, 70, 100, 300, 500])
def test_rows_in_one_direction_say_nothing_of_those_across(power: int, intercept: bool) -> None:
    """However long: past what rounding can hold apart they are refused. All products here are exact."""
    rng = np.random.default_rng(7)
    X = rng.integers(-3, 4, (60, 2)).astype(np.float64) @ np.array([[1.0, -1.0, 1.0], [1.0, 1.0, 2.0]])
    y = np.where(X[:, 0] + rng.standard_normal(60) >= 0.0, 1.0, -1.0)
    far = 2.0**power * np.array([[3.0, 1.0, -2.0]])
    plain, learner = aioli(3, intercept), aioli(3, intercept)
    for start in range(0, 60, 20):
        part = slice(start, start + 20)
        expected = plain.run(X[part], y[part]).values
        if start:
            before = learner.state()
            try:
                # Once more against itself, or the intercept would learn from it.
                learner.run(np.vstack((far, -far)), np.ones(2))
            except DivergedError:
                assert power >= 42
                assert all(np.array_equal(array, before[name]) for name, array in learner.state().items())
            else:
                assert power <= 42
        found = learner.run(X[part], y[part]).values
        if not intercept:
            np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-2)
        assert np.abs(found).max() <= 3.0 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"comparator_norm": 0.0}, "comparator_norm"),
        ({"regularization": 0.0}, "regularization"),
        ({"input_norm": -1.0}, "input_norm"),
        ({"input_norm": "median"}, "input_norm"),
        ({"curvature": "full"}, "curvature"),
        ({"half_life": 4}, "half_life"),
        ({"loss": "hinge"}, "loss"),
    ],
)
def test_configs_that_cannot_work_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create({"kind": "aioli", "config": config}, 2)
