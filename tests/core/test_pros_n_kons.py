"""PROS-N-KONS against a direct computation of its definition, and what its dictionary does to the learned function."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import OnlineLearner, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, DivergedError, StateFormatError
from okl_core.kernels.kernels import Gaussian
from okl_core.kernels.points import Points
from okl_core.learners.pros_n_kons import ProsNKons, ProsNKonsConfig
from okl_core.linalg.symmetric import Symmetric
from okl_core.losses import LOSSES
from okl_core.second_order.embedding import AldDictionary, Embedding
from okl_core.second_order.newton import NewtonRule, Step
from okl_core.second_order.posterior import Posterior
from okl_core.second_order.space_and_rule import Moments
from okl_core.types import F64
from tests.oracles.kons import Derivative, Weight
from tests.oracles.pros_n_kons import LinearDependence, RowSampling, pros_n_kons

ROUNDS = 300
Carry = Literal["transport", "reset"]

KORS: dict[str, Any] = {"kind": "kors", "regularization": 0.5, "oversampling": 1.0, "accuracy": 0.5}
ALD: dict[str, Any] = {"kind": "ald", "threshold": 0.3}


def stream(loss: str, seed: int = 5, rounds: int = ROUNDS) -> tuple[F64, F64]:
    """A smooth function on the square; its inputs come from a corner at first, so that the dictionary changes late too."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 1.0, (rounds, 2)) * np.linspace(0.3, 1.0, rounds)[:, None]
    y = np.sin(5.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.1 * rng.standard_normal(rounds)
    return X, np.clip(y, -1.0, 1.0) if loss == "squared" else np.where(y >= 0.0, 1.0, -1.0)


def definition(loss: str, step: str, C: float) -> tuple[Derivative, Weight]:
    of_loss = LOSSES[loss]

    def weight(t: int, value: float, g: float, y: float) -> float:
        if step == "adaptive":
            return of_loss.weight(value, y, C)
        return {"curvature": 1.0, "half-curvature": 0.5}[step] * of_loss.curvature(C) * g**2

    return lambda t, value, y: of_loss.derivative(value, y), weight


@pytest.mark.pairs
@pytest.mark.parametrize("form", ["update", "run"])
@pytest.mark.parametrize("half_life", [None, 80])
@pytest.mark.parametrize("dictionary", [KORS, ALD], ids=["kors", "ald"])
@pytest.mark.parametrize("carry", ["transport", "reset"])
@pytest.mark.parametrize(
    ("loss", "step", "C"),
    [("squared", "half-curvature", 1.0), ("squared", "adaptive", 0.8), ("logistic", "adaptive", 2.0),
     ("squared-hinge", "curvature", 1.5)],
)  # fmt: skip
def test_it_is_its_definition(
    loss: str, step: str, C: float, carry: Carry, dictionary: dict[str, Any], half_life: int | None, form: str
) -> None:
    X, y = stream(loss)
    y = y * min(C, 1.0) if loss == "squared" else y
    kernel = Gaussian(sigma=0.1)
    seed, alpha = 11, 0.3
    config = {
        "kernel": kernel.model_dump(), "loss": loss, "step": step, "clip": C, "regularization": alpha,
        "dictionary": dictionary, "carry": carry, "half_life": half_life,
    }  # fmt: skip
    learner = create({"kind": "pros-n-kons", "seed": seed, "config": config}, 2)
    if form == "run":
        values = learner.run(X, y).values
    else:
        values = np.array([learner.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)])
    derivative, weight = definition(loss, step, C)
    rng = RoundRng(seed)
    coins = np.empty(ROUNDS)
    for t in range(ROUNDS):
        rng.at(t + 1)
        coins[t] = rng.uniform(1)[0]
    direct = pros_n_kons(
        kernel.gram(X), y, C=C, alpha=alpha, derivative=derivative, weight=weight, carry=carry,
        choice=LinearDependence(0.3) if dictionary is ALD else RowSampling(0.5, 1.0, 0.5, coins),
        discount=lambda t: 0.5 ** (20 / 80) if half_life and t % 20 == 0 else 1.0,
    )  # fmt: skip
    assert learner.describe()["dictionary"] == len(direct.dictionary)
    assert len([t for t in direct.dictionary if t > 30]) > 5, "the dictionary must change late too"
    assert np.abs(values - direct.values).max() < 1e-7


@pytest.mark.parametrize("carry", ["transport", "reset"])
def test_a_new_point_and_the_learned_function(carry: Carry) -> None:
    """`transport` keeps the function to rounding, `reset` makes it 0."""
    X, y = stream("squared")
    algorithm = ProsNKons()
    config = ProsNKonsConfig.model_validate({"kernel": {"kind": "gaussian", "sigma": 0.4}, "carry": carry})
    state, rng = algorithm.init(config, 2), RoundRng(0)
    probes = np.random.default_rng(1).uniform(0.0, 1.0, (50, 2))
    changes = 0
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        rng.begin()
        rng.at(t + 1)
        played = algorithm.play(config, state, x, truth, rng)
        if played.turn.growth is not None:
            changes += 1
            without = copy.deepcopy(state)
            turn = played.turn
            played.turn = turn._replace(growth=None)
            algorithm.learn(config, without, played)
            played.turn = turn
        else:
            without = None
        algorithm.learn(config, state, played)
        if without is not None:
            after = np.array([algorithm.predict(config, state, probe).value for probe in probes])
            before = np.array([algorithm.predict(config, without, probe).value for probe in probes])
            expected = before if carry == "transport" else 0.0 * before
            assert np.abs(after - expected).max() < 1e-9
    assert changes > 20


@pytest.mark.parametrize("budget", [1, 7, 40])
def test_budget_is_kept(budget: int) -> None:
    X, y = stream("squared")
    config = {"kernel": {"kind": "gaussian", "sigma": 0.2}, "budget": budget}
    learner = create({"kind": "pros-n-kons", "config": config}, 2)
    sizes = []
    for x, truth in zip(X, y.tolist(), strict=True):
        learner.update(x, truth)
        sizes.append(learner.describe()["dictionary"])
    assert max(sizes) == budget
    bounded = learner.nbytes
    learner.run(*stream("squared", seed=6, rounds=1000))
    assert learner.describe()["dictionary"] == budget
    assert learner.nbytes == bounded


def test_a_point_of_which_rounding_alone_would_be_left_joins_no_ald_dictionary() -> None:
    # Outside the span is 1e-7 of k(x, x): more than the threshold's square, less than a coordinate needs.
    config = {"dictionary": {"kind": "ald", "threshold": 1e-4}}
    single, blocks = (create({"kind": "pros-n-kons", "config": config}, 1) for _ in range(2))
    X, y = np.array([[0.0], [3.2e-4], [1.0]]), np.ones(3)
    for x in X:
        single.update(x, 1.0)
    blocks.run(X, y)
    assert single.describe()["dictionary"] == blocks.describe()["dictionary"] == 2


def test_a_replay_gives_a_point_the_coordinate_that_was_recorded() -> None:
    # Other arithmetic finds 1e-9 of the point outside the span, too little for a coordinate.
    embedding, rng = Embedding(Gaussian(), AldDictionary(), None), RoundRng(0)
    for choices, expected in ((b"\x01", (1e-6, True)), (b"\x00", (1e-9, False))):
        rng.begin(choices, 1)
        assert embedding.coordinate_of(1e-9, 1.0, rng) == expected


def test_sampling_keeps_nothing_once_the_budget_is_used_up() -> None:
    X, y = stream("squared")
    config = {"kernel": {"kind": "gaussian", "sigma": 0.2}, "budget": 5}
    single, blocks = (create({"kind": "pros-n-kons", "config": config}, 2) for _ in range(2))
    for x, truth in zip(X, y.tolist(), strict=True):
        single.update(x, truth)
        assert ("space.embedding.kept.roots" in single.state()) is (single.describe()["dictionary"] < 5)
    blocks.run(X, y)
    assert "space.embedding.kept.roots" not in blocks.state()


def test_the_conditioning_does_not_depend_on_the_unit_of_the_kernel() -> None:
    def conditioning(size: float) -> float:
        config = {"kernel": {"kind": "linear"}, "regularization": size**2, "clip": 1.0}
        config["dictionary"] = {"kind": "ald", "threshold": 0.1}
        learner = create({"kind": "pros-n-kons", "config": config}, 2)
        learner.run(size * np.array([[1.0, 0.0], [0.6, 0.8], [1.0, 0.1]]), np.array([0.5, -0.5, 0.2]))
        return learner.conditioning

    assert conditioning(1e-4) == pytest.approx(conditioning(1.0), rel=1e-6)


def test_repeated_points_add_no_coordinate() -> None:
    X = np.repeat(np.random.default_rng(0).uniform(0.0, 1.0, (5, 2)), 40, axis=0)
    y = np.tile([1.0, -0.5], 100)
    everything = {"kind": "kors", "oversampling": 1e12}
    learner = create({"kind": "pros-n-kons", "config": {"dictionary": everything, "budget": None}}, 2)
    values = learner.run(X, y).values
    assert learner.describe()["dictionary"] == 200
    assert learner.state()["space.embedding.independent"].sum() == 5
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= 1.0


def test_forgetting_follows_a_flip_that_remembering_does_not() -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(0.0, 1.0, (2000, 1))
    y = np.sin(6.0 * X[:, 0]) * np.where(np.arange(2000) < 1000, 1.0, -1.0)
    kernel = {"kind": "gaussian", "sigma": 0.3}

    def late_loss(half_life: int | None) -> float:
        learner = create({"kind": "pros-n-kons", "config": {"kernel": kernel, "half_life": half_life}}, 1)
        return float(learner.run(X, y).losses[1300:].mean())

    assert late_loss(50) < 0.01 * late_loss(None)


def test_choices_are_the_coins_and_replay_them() -> None:
    X, y = stream("squared", rounds=200)
    spec = {"kind": "pros-n-kons", "config": {"kernel": {"kind": "gaussian", "sigma": 0.3}}}
    learner = create(spec, 2)
    choices = learner.run(X, y).choices
    assert 0 < choices.count(1) < len(choices)
    # Another seed with the choices of the first is the first.
    other = create(spec | {"seed": 99}, 2)
    other.run(X, y, choices=choices)
    for name, array in learner.state().items():
        assert other.state()[name] == pytest.approx(array, abs=1e-12), name


def test_a_restored_learner_continues_through_discounts() -> None:
    X, y = stream("squared")
    spec = {"kind": "pros-n-kons", "config": {"kernel": {"kind": "gaussian", "sigma": 0.3}, "half_life": 40}}
    learner = create(spec, 2)
    learner.run(X[:103], y[:103])
    again = restore(spec, learner.state(), 2)
    assert again.run(X[103:], y[103:]).values.tobytes() == learner.run(X[103:], y[103:]).values.tobytes()


@pytest.mark.parametrize("step", ["curvature", "adaptive"])
def test_bound_terms_bound_the_regret_while_the_dictionary_grows(step: str) -> None:
    """With `transport` this is kons on the features as they were, 0 in the coordinates to come."""
    X, y = stream("squared", rounds=400)
    config = {"kernel": {"kind": "gaussian", "sigma": 0.2}, "step": step, "clip": 1.5, "regularization": 0.5}
    learner = create({"kind": "pros-n-kons", "config": config}, 2)
    features, losses = [], []
    for x, truth in zip(X, y.tolist(), strict=True):
        played = learner.play(x, truth)
        features.append(played.turn.phi)  # type: ignore[attr-defined]
        losses.append(played.loss)
        learner.learn(played)
    numbers = learner.describe()
    assert len(features[50]) < len(features[-1])
    Phi = np.zeros((len(X), int(numbers["dictionary"])))
    for t, phi in enumerate(features):
        Phi[t, : len(phi)] = phi
    for penalty in (1e-3, 0.5, 10.0):
        v = np.linalg.solve(Phi.T @ Phi + penalty * np.eye(Phi.shape[1]), Phi.T @ y)
        v *= min(1.0, 1.5 / np.abs(Phi @ v).max())
        regret = sum(losses) - float(((Phi @ v - y) ** 2).sum())
        assert regret <= 0.25 * float(v @ v) + numbers["bound_gradient"] + numbers["bound_step"]


def part(learner: OnlineLearner, name: str) -> dict[str, F64]:
    """The arrays of a part of the state."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): array for key, array in learner.state().items() if key.startswith(prefix)}


def test_bound_terms_bound_the_regret_in_the_span() -> None:
    """With a dictionary that no longer changes this is kons on phi: its bound holds for every f in the span."""
    X, y = stream("squared", rounds=600)
    kernel = Gaussian(sigma=0.1)
    config = {"kernel": kernel.model_dump(), "step": "curvature", "budget": 15}
    learner = create({"kind": "pros-n-kons", "config": config}, 2)
    learner.run(X, y)
    start = learner.describe()
    points = Points.unpack(part(learner, "space.embedding.points")).coordinates()
    X2, y2 = stream("squared", seed=8, rounds=600)
    losses = learner.run(X2, y2).losses.sum()
    end = learner.describe()
    # Nearly least squares in the span, with |f(x)| below C.
    K_I, k = kernel.gram(points), kernel.block(points, X2)
    a = np.linalg.solve(k @ k.T + 1e-6 * K_I, k @ y2)
    a /= max(1.0, np.abs(a @ k).max())
    best = float(((a @ k - y2) ** 2).sum())
    # What was learned before the start is a prior with A_start, centred at u: |f - u|^2_A / 2 is its norm term.
    assert len(Posterior.unpack(part(learner, "space.posterior"))) == 15
    assert losses - best <= _norm(config, X, y, a, K_I) + end["bound_gradient"] - start["bound_gradient"]


def _norm(config: dict[str, Any], X: F64, y: F64, a: F64, K_I: F64) -> float:
    """|f - u|^2_A / 2 at the start, f = sum a_i k(x_i, .)."""
    learner = create({"kind": "pros-n-kons", "config": config}, 2)
    learner.run(X, y)
    posterior = Posterior.unpack(part(learner, "space.posterior"))
    coordinates = np.linalg.cholesky(K_I).T @ a
    difference = coordinates - posterior.u
    return 0.5 * float(difference @ np.linalg.solve(posterior.P.full(), difference))


def test_a_discount_is_that_of_a_and_s() -> None:
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((4, 30))
    posterior = Posterior(0.7, 4)
    A = 0.7 * np.eye(4) + Phi @ Phi.T
    posterior.P = Symmetric(np.linalg.inv(A))
    posterior.u = rng.standard_normal(4)
    s = A @ posterior.u
    posterior.discount(0.8)
    A = 0.8 * A + 0.2 * 0.7 * np.eye(4)
    assert posterior.P.full() == pytest.approx(np.linalg.inv(A), abs=1e-13)
    assert posterior.u == pytest.approx(np.linalg.solve(A, 0.8 * s), abs=1e-13)
    assert math.isfinite(posterior.largest)


@pytest.mark.parametrize("kernel", [{"kind": "linear"}, {"kind": "polynomial", "degree": 3}], ids=lambda k: k["kind"])
@pytest.mark.parametrize("half_life", [None, 8])
def test_an_absurd_row_is_refused_and_ruins_nothing(kernel: dict[str, Any], half_life: int | None) -> None:
    X, y = stream("squared", rounds=120)
    absurd = X.copy()
    absurd[0] *= 1e75
    absurd[50:53] *= 1e9
    spec = {"kind": "pros-n-kons", "config": {"kernel": kernel, "half_life": half_life}}
    learner = create(spec, 2)
    for t, (x, truth) in enumerate(zip(absurd, y.tolist(), strict=True)):
        before = learner.state()
        if t in (0, 50, 51, 52):
            with pytest.raises(DivergedError, match="scale the inputs down"):
                learner.update(x, truth)
            assert all(learner.state()[name].tobytes() == array.tobytes() for name, array in before.items())
        else:
            learner.update(x, truth)
    assert all(np.isfinite(array).all() for array in learner.state().values())
    # In a block they are refused too, with all that the block had put into the dictionary.
    learner = create(spec, 2)
    before = learner.state()
    with pytest.raises(DivergedError):
        learner.run(absurd[49:], y[49:])
    assert all(learner.state()[name].tobytes() == array.tobytes() for name, array in before.items())
    learner.run(X, y)


@pytest.mark.parametrize("forgetting", [{"half_life": 16}, {"carry": "reset"}])
def test_sums_that_mean_nothing_are_not_told(forgetting: dict[str, Any]) -> None:
    learner = create({"kind": "pros-n-kons", "config": forgetting}, 2)
    learner.run(*stream("squared"))
    assert not {"log_det", "bound_gradient", "bound_step"} & set(learner.describe())


def test_a_discount_of_what_rounding_made_indefinite_clips_it() -> None:
    posterior = Posterior(1.0, 2)
    posterior.P = Symmetric(np.diag([1.0, -9.0]))
    posterior.u = np.array([1.0, 0.0])
    posterior.discount(0.5)
    assert posterior.P.full() == pytest.approx(np.diag([1.0, 0.0]))
    assert posterior.u == pytest.approx([0.5, 0.0])


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_ald_threshold_is_a_share(threshold: float) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        create({"kind": "pros-n-kons", "config": {"dictionary": {"kind": "ald", "threshold": threshold}}}, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"space.embedding.L": np.zeros(0)},
        {"space.embedding.independent": np.ones(1)},
        {"space.posterior.u": np.zeros(1), "space.posterior.P": np.ones(1)},
        {"space.embedding.kept.roots": np.ones(1)},
        {"space.embedding.kept.roots": np.ones(1), "space.embedding.kept.L": np.ones(1)},
        {"space.posterior.alpha": np.array(0.0)},
        {"space.posterior.largest": np.array(np.nan)},
    ],
)
def test_a_state_in_other_coordinates_is_refused(wrong: dict[str, F64]) -> None:
    learner = create({"kind": "pros-n-kons"}, 2)
    learner.run(*stream("squared"))
    assert learner.state().keys() >= wrong.keys()
    with pytest.raises(StateFormatError):
        restore(learner.spec, learner.state() | wrong, 2)


@given(
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from(get_args(get_args(Step)[0])),
    st.floats(1e-3, 4.0),
    st.floats(-6.0, 6.0),
)
def test_an_idle_round_changes_nothing_whatever_its_variance(name: str, step: Any, clip: float, m: float) -> None:
    """And with squared hinge every round with its margin is idle, as long as the prediction needs no clip."""
    rule = NewtonRule(LOSSES[name], clip, step)
    for y in (-1.0, 1.0):
        if rule.is_idle(m, y):
            for q in (0.0, 1e-3, 1e3):
                decision = rule.decide(Moments(m, q, 1.0), y, 1, RoundRng(0))
                assert (decision.w, decision.c, decision.g, decision.value) == (0.0, 0.0, 0.0, m)
        assert rule.is_idle(m, y) == (name == "squared-hinge" and clip > 1.0 and 1.0 <= y * m <= clip)
