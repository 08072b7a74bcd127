"""The pool's regret to its experts, its experts against the same learners alone, and what they share."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from okl_core import create, parse_spec, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import (
    ConfigError,
    DivergedError,
    NotPositiveDefiniteError,
    ReplayDivergence,
    StateFormatError,
)
from okl_core.pool.aggregation import AggregationName, MixedLoss, ValueAggregation
from okl_core.pool.expert_specs import ExpertSpec, default_experts
from okl_core.pool.experts import units_of
from okl_core.types import F64

AGGREGATIONS = list(itertools.product(get_args(MixedLoss), get_args(AggregationName)))
ALD: dict[str, Any] = {"kind": "ald", "threshold": 0.2}


def played(aggregation: ValueAggregation, V: F64, y: F64, rests: NDArray[np.bool_] | None = None) -> tuple[F64, F64]:
    """The losses of the pool, shape (T,), and of the experts, (T, N). `rests`, (T, N): who does, were it not the leader."""
    p = np.full(V.shape[1], 1.0 / V.shape[1])
    own, theirs = np.empty(len(y)), np.empty(V.shape)
    for t, truth in enumerate(y.tolist()):
        v = V[t] if rests is None else np.where(rests[t] & (p < p.max()), np.nan, V[t])
        forecast = aggregation.forecast(p, aggregation.taken(v))
        theirs[t] = aggregation.losses(v, forecast, truth)
        own[t] = aggregation.loss(forecast, truth)
        p = aggregation.weigh(p, theirs[t], theirs[: t + 1].sum(axis=0))
    return own, theirs


@st.composite
def adversarial(draw: st.DrawFn) -> tuple[F64, F64, float]:
    """Forecasts in [-C, C] that sit at the ends as often as not, and truths that hurt whom they can."""
    seed, N, T = draw(st.integers(0, 2**32 - 1)), draw(st.integers(2, 9)), draw(st.integers(1, 80))
    C = draw(st.sampled_from([0.5, 1.0, 6.0, 200.0]))
    rng = np.random.default_rng(seed)
    V = np.where(
        rng.random((T, N)) < draw(st.floats(0.0, 1.0)), rng.choice([-C, C], (T, N)), rng.uniform(-C, C, (T, N))
    )
    style = draw(st.sampled_from(["random", "against the first", "against the mean"]))
    y = {"random": rng.choice([-1.0, 1.0], T), "against the first": -np.sign(V[:, 0] + 1e-9)}.get(
        style, -np.sign(V.mean(axis=1) + 1e-9)
    )
    return V, y, C


@pytest.mark.parametrize(("loss", "name"), AGGREGATIONS)
@given(case=adversarial())
def test_regret_to_the_best_expert(loss: MixedLoss, name: AggregationName, case: tuple[F64, F64, float]) -> None:
    V, y, C = case
    aggregation = ValueAggregation(loss, name, C, 0.0, of_labels=False)
    own, theirs = played(aggregation, V, y if loss == "logistic" else C * y)
    assert own.sum() <= theirs.sum(axis=0).min() + math.log(V.shape[1]) / aggregation.eta + 1e-9


@pytest.mark.parametrize(("loss", "name"), AGGREGATIONS)
@given(case=adversarial(), seed=st.integers(0, 2**32 - 1), often=st.floats(0.0, 1.0))
def test_regret_to_experts_that_rest(
    loss: MixedLoss, name: AggregationName, case: tuple[F64, F64, float], seed: int, often: float
) -> None:
    """At rest an expert has the pool's loss: over the rounds that it plays it beats the pool by no more than the bound."""
    V, y, C = case
    rests = np.random.default_rng(seed).random(V.shape) < often
    aggregation = ValueAggregation(loss, name, C, 0.0, of_labels=False)
    own, theirs = played(aggregation, V, y if loss == "logistic" else C * y, rests)
    assert own.sum() <= theirs.sum(axis=0).min() + math.log(V.shape[1]) / aggregation.eta + 1e-9


@pytest.mark.parametrize(("loss", "name"), AGGREGATIONS)
@given(case=adversarial(), share=st.floats(1e-4, 0.3), changes=st.integers(0, 4))
def test_regret_to_a_sequence_that_switches(
    loss: MixedLoss, name: AggregationName, case: tuple[F64, F64, float], share: float, changes: int
) -> None:
    V, y, C = case
    T, N = V.shape
    aggregation = ValueAggregation(loss, name, C, share, of_labels=False)
    own, theirs = played(aggregation, V, y if loss == "logistic" else C * y)
    # The best sequence with k changes, by dynamic programming over (changes so far, expert).
    best = np.full((changes + 1, N), np.inf)
    best[0] = theirs[0]
    for t in range(1, T):
        switched = np.concatenate(
            (np.full((1, N), np.inf), np.broadcast_to(best[:-1].min(axis=1)[:, None], (changes, N)))
        )
        best = np.minimum(best, switched) + theirs[t]
    k = min(changes, T - 1)
    overhead = (k + 1) * math.log(N) + k * math.log(1.0 / share) + (T - k) * math.log(1.0 / (1.0 - share))
    assert own.sum() <= best.min() + overhead / aggregation.eta + 1e-9


@pytest.mark.parametrize("C", [1.0, 3.0])
def test_the_forecast_of_squared_loss_is_that_of_the_substitution_function(C: float) -> None:
    aggregation = ValueAggregation("squared", "aggregating", C, 0.0, of_labels=False)
    p, v = np.array([0.7, 0.2, 0.1]), np.array([-0.4, 0.9, 0.1]) * C
    # The least loss that the mixture allows for the truths C and -C; their difference is 4 C times the forecast.
    least = [-2.0 * C * C * math.log(sum(p * np.exp(-((v - y) ** 2) / (2.0 * C * C)))) for y in (-C, C)]
    value = aggregation.forecast(p, v).value
    assert value == pytest.approx((least[0] - least[1]) / (4.0 * C), rel=1e-12)


@pytest.mark.parametrize(("loss", "name"), AGGREGATIONS)
def test_an_expert_without_weight_comes_back(loss: MixedLoss, name: AggregationName) -> None:
    """The first errs so long that its weight is no number above 0, and then never again."""
    aggregation = ValueAggregation(loss, name, 3.0, 0.0, of_labels=False)
    V = np.tile([3.0, -3.0], (3500, 1))
    y = np.where(np.arange(3500) < 1600, -1.0, 1.0) * (1.0 if loss == "logistic" else 3.0)
    own, theirs = played(aggregation, V, y)
    assert own.sum() <= theirs.sum(axis=0).min() + math.log(2.0) / aggregation.eta + 1e-9


def test_weights_survive_losses_that_are_huge() -> None:
    for share in (0.0, 1e-3):
        aggregation = ValueAggregation("squared", "aggregating", 1e-3, share, of_labels=False)
        losses = np.array([1e6, 0.0])
        p = aggregation.weigh(np.array([1.0 - share / 2.0, share / 2.0]), losses, losses)
        assert p.sum() == pytest.approx(1.0)
        assert p[1] > 0.99


def stream(rounds: int = 300) -> tuple[F64, F64]:
    rng = np.random.default_rng(4)
    X = rng.uniform(0.0, 1.0, (rounds, 2))
    return X, np.where(
        np.sin(6.0 * X[:, 0]) * np.cos(4.0 * X[:, 1]) + 0.1 * rng.standard_normal(rounds) > 0.0, 1.0, -1.0
    )


def newton(**config: Any) -> dict[str, Any]:
    return {"kernel": {"kind": "gaussian", "sigma": 0.3}, "dictionary": ALD} | config


def test_experts_are_the_learners_that_they_are_alone() -> None:
    """Without coins: a bank shares the dictionary, and changes nothing."""
    X, y = stream()
    experts: list[dict[str, Any]] = [
        {"kind": "pros-n-kons", "config": newton(loss="squared-hinge")},
        {"kind": "pros-n-kons", "config": newton(loss="logistic", clip=4.0, half_life=64)},
        {"kind": "pros-n-kons", "config": newton(loss="squared", budget=20)},
        {"kind": "pros-n-kons", "config": newton(loss="squared-hinge", regularization=1.0), "lags": 2},
        {"kind": "nystrom-aioli", "config": newton(half_life=64)},
        {"kind": "nystrom-aar", "config": newton()},
        {"kind": "ons", "config": {"loss": "squared-hinge"}, "lags": 1},
        {"kind": "pomdr"},
    ]
    learner = create({"kind": "pool", "config": {"experts": experts, "share": 0.0}}, 2)
    learner.run(X, y)
    told = learner.describe()
    losses = [value for name, value in told.items() if name.startswith("loss_")]
    for i, expert in enumerate(experts):
        values = np.clip(create(expert, 2).run(X, y).values, -1.0, 1.0)
        assert losses[i] == pytest.approx(((values - y) ** 2).sum(), rel=1e-9)
    assert told["loss"] <= min(losses) + told["bound"]
    assert told["bound"] == pytest.approx(2.0 * math.log(len(losses)))


@pytest.mark.parametrize(("name", "eta"), [("aggregating", 0.5), ("exponential", 0.125)])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.2])
def test_the_bound_on_the_regret_to_the_best_expert(name: AggregationName, eta: float, share: float) -> None:
    X, y = stream()
    experts = [{"kind": "ons", "config": {"loss": "squared-hinge"}}, {"kind": "bogd"}]
    learner = create({"kind": "pool", "config": {"experts": experts, "aggregation": name, "share": share}}, 2)
    for t in range(0, len(y), 20):
        learner.run(X[t : t + 20], y[t : t + 20])
        told = learner.describe()
        expected = (math.log(told["experts"]) + learner.t * math.log(1.0 / (1.0 - share))) / eta
        assert told["bound"] == pytest.approx(expected)
        assert told["loss"] - told["best_loss"] <= told["bound"]


def test_experts_with_one_dictionary_share_it() -> None:
    experts = [ExpertSpec(kind="pros-n-kons", config=newton(loss=loss)) for loss in ("squared", "logistic")]
    apart = ExpertSpec(kind="pros-n-kons", config=newton(budget=7))
    lagged = ExpertSpec(kind="pros-n-kons", config=newton(), lags=1)
    published = ExpertSpec(kind="pros-n-kons", config=newton(carry="reset"))
    experts += [ExpertSpec(kind=kind, config=newton()) for kind in ("nystrom-ridge", "nystrom-aioli")]
    units = units_of([*experts, apart, lagged, published])
    assert [unit.places for unit in units] == [[0, 1, 2, 3], [4], [5], [6]]
    assert [unit.kinds for unit in units[:1]] == ["pros-n-kons, nystrom-ridge, nystrom-aioli"]
    shared = create({"kind": "pool", "config": {"experts": [e.model_dump() for e in experts]}}, 2)
    alone = create({"kind": "pool", "config": {"experts": [experts[0].model_dump()]}}, 2)
    shared.run(*stream())
    alone.run(*stream())
    assert shared.describe()["dictionary"] == alone.describe()["dictionary"] > 10


@pytest.mark.parametrize("truth", ["labels", "numbers"])
def test_default_pool_is_hard_to_beat(truth: str) -> None:
    X, y = stream(900)
    if truth == "numbers":
        y = np.clip(np.sin(6.0 * X[:, 0]) * np.cos(4.0 * X[:, 1]), -1.0, 1.0)
    learner = create({"kind": "pool", "config": {"truth": truth}}, 2)
    losses = learner.run(X, y).losses
    told = learner.describe()
    assert told["experts"] == len([e for spec in default_experts("labels", 1.0) for e in spec.expand()]) + 2
    overhead = 2.0 * (math.log(told["experts"]) + 900 * math.log(1.0 / (1.0 - 0.001)))
    assert losses.sum() <= told["best_loss"] + overhead
    trivial = ((y - np.sign(np.concatenate(([0.0], np.cumsum(y)[:-1])))) ** 2).sum()
    assert losses.sum() < 0.5 * trivial


def test_a_grid_is_one_expert_each() -> None:
    spec = ExpertSpec(kind="kons", sigmas=[0.5, 1.0], lags=1)
    assert [expert.config["kernel"]["sigma"] for expert in spec.expand()] == [0.5, 1.0]
    assert all(expert.lags == 1 for expert in spec.expand())


def test_it_follows_a_change_of_the_best_expert() -> None:
    """The trivial forecasters swap places; the share lets the pool change sides."""
    y = np.concatenate((np.ones(300), np.tile([1.0, -1.0], 200), -np.ones(300)))
    X = np.zeros((len(y), 1))
    experts: list[dict[str, Any]] = [{"kind": "majority"}]
    late = {
        share: create({"kind": "pool", "config": {"experts": experts, "share": share}}, 1).run(X, y).losses[-250:].sum()
        for share in (0.0, 0.01)
    }
    assert late[0.01] < 30.0 < late[0.0]


def test_probability_is_the_mean_of_the_labels() -> None:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(3000) < 0.8, 1.0, -1.0)
    learner = create({"kind": "pool", "config": {"experts": [{"kind": "mean"}]}}, 1)
    info = learner.run(np.zeros((3000, 1)), y)
    assert info.probabilities is not None
    assert info.probabilities[-1] == pytest.approx(0.8, abs=0.03)


def test_an_expert_that_diverges_stops_the_block_and_changes_nothing() -> None:
    X, y = stream(60)
    X[40] = 1e150
    experts = [{"kind": "kons"}, {"kind": "kons", "config": {"kernel": {"kind": "polynomial", "degree": 3}}}]
    told = "expert 1, kons: "
    learner = create({"kind": "pool", "config": {"experts": experts}}, 2)
    learner.run(X[:30], y[:30])
    before = learner.state()
    with pytest.raises(DivergedError, match=told), np.errstate(all="ignore"):
        learner.run(X[30:], y[30:])
    with pytest.raises(DivergedError, match=told), np.errstate(all="ignore"):
        learner.play(X[40], y[40])
    after = learner.state()
    assert learner.t == 30
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    learner.run(X[30:40], y[30:40])


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_choices_of_something_else_change_nothing(at: float) -> None:
    X, y = stream()
    spec = {"kind": "pool", "seed": 3, "config": {"resting": 1}}
    choices = bytearray(create(spec, 2).run(X, y).choices)
    place = int(at * (len(choices) - 1))
    choices[place] = choices[place] + 2
    learner = create(spec, 2)
    before = learner.state()
    with pytest.raises((ReplayDivergence, NotPositiveDefiniteError)):
        learner.run(X, y, choices=bytes(choices))
    after = learner.state()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


@pytest.mark.parametrize("way", ["run", "update"])
def test_a_bank_throws_the_coins_of_its_members(way: str) -> None:
    """With coins: the dictionary is that of each member alone, given the same coins."""
    X, y = stream()
    kernel = {"kernel": {"kind": "gaussian", "sigma": 0.3}}
    experts: list[dict[str, Any]] = [
        {"kind": "pros-n-kons", "config": kernel | {"loss": "squared"}},
        {"kind": "pros-n-kons", "config": kernel | {"loss": "logistic", "clip": 3.0, "half_life": 64}},
    ]
    pool = create({"kind": "pool", "seed": 5, "config": {"experts": experts}}, 2)
    if way == "run":
        pool.run(X, y)
    else:
        for x, truth in zip(X, y.tolist(), strict=True):
            pool.update(x, truth)
    losses = [value for name, value in pool.describe().items() if name.startswith("loss_")]
    for expert, loss in zip(experts, losses, strict=False):
        _, learner, config = parse_spec(expert)
        rng = RoundRng(5, "/unit-0")
        rng.begin()
        values = learner.run(config, learner.init(config, 2), X, y, rng).values
        assert loss == pytest.approx(((np.clip(values, -1.0, 1.0) - y) ** 2).sum(), rel=1e-9)


def test_its_bytes_are_those_of_all_that_it_keeps() -> None:
    learner = create({"kind": "pool", "config": {"truth": "numbers", "experts": [{"kind": "mean", "lags": 64}]}}, 2)
    state = learner.state()
    kept = sum(state[name].nbytes for name in ("weights", "losses", "awake", "truths"))
    assert learner.nbytes >= kept > 64 * 8


def test_restored_in_the_middle_it_continues() -> None:
    X, y = stream()
    spec = {"kind": "pool", "seed": 3}
    learner = create(spec, 2)
    learner.run(X[:130], y[:130])
    again = restore(spec, learner.state(), 2)
    assert again.run(X[130:], y[130:]).values.tobytes() == learner.run(X[130:], y[130:]).values.tobytes()
    arrays = learner.state()
    for wrong in (
        {"cells.99.t": np.zeros(1)},
        {"weights": np.ones(3)},
        {"losses": np.ones(3)},
        {"awake": np.ones(3)},
        {"awake": np.zeros(15)},
        {"awake": np.full(15, np.nan)},
        {"awake": np.full(15, 0.5)},
        {"weights": np.full(15, np.nan)},
        {"weights": np.full(15, 1.0)},
        {"weights": np.eye(15)[0], "awake": np.eye(15)[1]},
        {"losses": np.full(15, np.nan)},
        {"losses": np.full(15, -1.0)},
        {"truths": np.ones(3)},
        {"cells.0.learned": np.full(2, 1e6)},
        {"cells.0.t": np.array(-1.0)},
        {"cells.0.embedding.L": np.zeros(0)},
        {"cells.0.embedding.independent": np.zeros(1)},
        {"cells.0.posteriors.1.alpha": np.array(0.0)},
        {"cells.0.posteriors.1.largest": np.array(np.nan)},
        {"cells.0.posteriors.1.u": np.zeros(1), "cells.0.posteriors.1.P": np.ones(1)},
        {"t": np.array(9.0)},
    ):
        with pytest.raises(StateFormatError):
            restore(spec, arrays | wrong, 2)
    lost = {name: array for name, array in arrays.items() if not name.startswith("cells.0.posteriors.1.")}
    with pytest.raises(StateFormatError, match="posteriors"):
        restore(spec, lost, 2)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"experts": [{"kind": "pool"}]}, "cannot be an expert of a pool"),
        ({"experts": [{"kind": "nothing"}]}, "nothing"),
        ({"experts": [{"kind": "kons", "config": {"clip": -1.0}}]}, "clip"),
        ({"experts": []}, "at least 1"),
        ({"truth": "numbers", "experts": [{"kind": "pomdr"}]}, "does not learn numbers"),
        ({"truth": "numbers", "clip": 3.0, "experts": [{"kind": "kons"}]}, "widen its `clip` or `truth_range`"),
        ({"truth": "numbers", "loss": "logistic"}, "logistic loss is for labels"),
        ({"experts": [{"kind": "kons", "sigmas": []}]}, "at least 1"),
        ({"share": 1.0}, "less than 1"),
        ({"clip": 0.5}, "at least 1"),
        ({"loss": "logistic", "clip": 900.0}, "at most 300"),
        ({"truth": "numbers", "clip": 1e-200, "experts": [{"kind": "mean"}]}, "clip"),
        ({"experts": [{"kind": "mean"}, {"kind": "kons", "config": {"clip": -1.0}}]}, "config.experts.1.config.clip"),
        ({"experts": [{"kind": "ons", "sigmas": [1.0]}]}, "kernel"),
        ({"experts": [{"kind": "kons", "sigmas": [1.0], "config": {"kernel": {"kind": "linear"}}}]}, "either sigmas"),
        ({"experts": [{"kind": "kons", "config": {"kernel": {"kind": "gaussian", "sigma": "median"}}}]}, "median"),
    ],
)
def test_bad_configs_say_what_is_wrong(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        create({"kind": "pool", "config": config}, 1)


def test_a_limit_with_many_zeros_is_told_in_few_digits() -> None:
    with pytest.raises(ConfigError, match=r"config\.clip: must be at least 1e-50, not 1e-60$"):
        create({"kind": "pool", "config": {"clip": 1e-60}}, 2)
