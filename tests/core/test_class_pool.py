"""Pools of classes: against a mixture made by hand of the same learners alone, their regret, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp

from okl_core import OnlineLearner, create, get_learner, learner_kinds, parse_spec, restore
from okl_core.errors import ConfigError, DivergedError, LabelError, StateFormatError
from okl_core.losses import LEAST_PROBABILITY
from okl_core.pool import resting
from okl_core.pool.aggregation import ClassAggregation
from okl_core.pool.expert_specs import HALF_LIVES, ExpertSpec
from okl_core.types import F64, Forecast

FAR = {"kernel": {"kind": "gaussian", "sigma": 0.5}, "dictionary": {"kind": "ald", "threshold": 0.3}}
"""Without coins, so that an expert by itself has the same dictionary."""
RELEVANCE = {"kind": "relevance", "smooth": [0.1] * 2, "steps": [0.2] * 2, "pairs": [0.2] * 2}
EXPERTS: list[Any] = [
    {"kind": "softmax-aioli", "half_lives": [16, None]},
    {"kind": "one-vs-rest", "config": {"member": {"kind": "nystrom-aioli", "config": FAR | {"half_life": 32}}}},
    "one-vs-rest",
]


def spec(K: int, experts: list[Any], **config: Any) -> dict[str, Any]:
    return {"kind": "pool", "config": {"truth": "classes", "classes": K, "experts": experts} | config}


def stream(K: int, n: int, seed: int = 0, spread: float = 0.4) -> tuple[F64, F64]:
    """K clouds on a circle, which change places half-way."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n).astype(float)
    place = np.where(np.arange(n) < n // 2, y, (y + 1.0) % K)
    circle = np.stack((np.cos(2.0 * np.pi * place / K), np.sin(2.0 * np.pi * place / K)), axis=1)
    return circle + spread * rng.standard_normal((n, 2)), y


def by_hand(experts: list[Any], K: int, X: F64, y: F64) -> F64:
    """The probabilities of each expert by itself, shape (T, N, K), `frequencies` the last."""
    given = [one for expert in experts for one in ExpertSpec.model_validate(expert).expand()]
    P = []
    for expert in (*given, ExpertSpec(kind="frequencies")):
        learner = create({"kind": expert.kind, "config": expert.config | {"classes": K}}, X.shape[1])
        P.append([learner.update(x, truth).forecast.probabilities for x, truth in zip(X, y.tolist(), strict=True)])
    return np.array(P).transpose(1, 0, 2)


def mixed(P: F64, y: F64, share: float) -> tuple[F64, F64]:
    """The mixture's probabilities, shape (T, K), and the logarithms of the last weights, all as logarithms."""
    N = P.shape[1]
    logs, found = np.full(N, -math.log(N)), []
    for p, truth in zip(np.log(P), y.astype(int), strict=True):
        found.append(logsumexp(logs[:, None] + p, axis=0))
        logs = logs + p[:, truth]
        logs -= logsumexp(logs)
        if share:
            logs = np.logaddexp(math.log1p(-share) + logs, math.log(share / N))
    return np.exp(found), logs


@pytest.mark.each
@pytest.mark.parametrize("share", [0.0, 0.01])
@pytest.mark.parametrize("K", [2, 3, 6])
def test_it_is_the_mixture_of_the_learners_alone(K: int, share: float) -> None:
    X, y = stream(K, 100)
    P = by_hand(EXPERTS, K, X, y)
    Q, logs = mixed(P, y, share)
    one, many = create(spec(K, EXPERTS, share=share), 2), create(spec(K, EXPERTS, share=share), 2)
    for x, truth, q in zip(X, y.tolist(), Q, strict=True):
        said = one.predict(x)
        info = one.update(x, truth)
        assert info.forecast == said
        assert said.probabilities == pytest.approx(q, rel=1e-8)
        assert sum(said.probabilities or ()) == pytest.approx(1.0, abs=1e-12)
        assert (said.value, said.label) == (max(said.probabilities or ()), int(np.argmax(said.probabilities)))
        assert said.probability is None
        assert info.loss == pytest.approx(-math.log(q[int(truth)]), rel=1e-8, abs=1e-12)
    block = many.run(X, y)
    assert block.probabilities is not None
    np.testing.assert_allclose(block.probabilities, Q, atol=1e-9)
    np.testing.assert_allclose(block.losses, -np.log(Q[np.arange(100), y.astype(int)]), rtol=1e-8, atol=1e-12)
    for learner in (one, many):
        assert_told(learner, P, y, logs, share)


def assert_told(learner: OnlineLearner, P: F64, y: F64, logs: F64, share: float) -> None:
    told, standing = learner.describe(), learner.standing()
    theirs = -np.log(np.take_along_axis(P, y.astype(int)[:, None, None], axis=2)[..., 0]).sum(axis=0)
    assert standing is not None
    np.testing.assert_allclose(standing.losses, theirs, rtol=1e-8)
    np.testing.assert_allclose(standing.weights, np.exp(logs), rtol=1e-6, atol=1e-300)
    assert told["classes"] == P.shape[2]
    assert told["best_loss"] == pytest.approx(theirs.min())
    assert told["experts"] == len(theirs) == 5
    assert told["bound"] == standing.bound == pytest.approx(math.log(5.0) - len(y) * math.log(1.0 - share))
    assert told["loss"] <= told["best_loss"] + told["bound"] + 1e-9


def played(
    aggregation: ClassAggregation, V: F64, y: F64, rests: NDArray[np.bool_] | None = None
) -> tuple[F64, F64, list[Forecast]]:
    """The losses of the pool, shape (T,), and of the experts, (T, N), and what was forecast. `rests`, (T, N)."""
    p = np.full(V.shape[1], 1.0 / V.shape[1])
    own, theirs, made = np.empty(len(y)), np.empty(V.shape[:2]), []
    for t, truth in enumerate(y.tolist()):
        v = aggregation.taken(V[t])
        if rests is not None:
            v[rests[t] & (p < p.max())] = np.nan
        made.append(aggregation.forecast(p, v))
        own[t], theirs[t] = aggregation.loss(made[-1], truth), aggregation.losses(v, made[-1], truth)
        p = aggregation.weigh(p, theirs[t], theirs[: t + 1].sum(axis=0))
        assert p.sum() == pytest.approx(1.0)
    return own, theirs, made


@st.composite
def adversarial(draw: st.DrawFn) -> tuple[F64, F64]:
    """Probabilities that are 0 and 1 as often as not, and truths that hurt whom they can."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, K, T = draw(st.integers(2, 6)), draw(st.integers(2, 5)), draw(st.integers(1, 80))
    V = rng.dirichlet(np.full(K, draw(st.sampled_from([0.01, 0.3, 3.0]))), size=(T, N))
    sure = rng.random((T, N)) < draw(st.floats(0.0, 1.0))
    V[sure] = np.eye(K)[rng.integers(K, size=int(sure.sum()))]
    worst = {"first": V[:, 0], "mean": V.mean(axis=1), "any": rng.random((T, K))}
    return V, worst[draw(st.sampled_from(sorted(worst)))].argmin(axis=1).astype(float)


@given(case=adversarial(), seed=st.integers(0, 2**32 - 1), often=st.floats(0.0, 1.0))
def test_regret_to_the_best_expert(case: tuple[F64, F64], seed: int, often: float) -> None:
    """With experts that rest at times, too, which then have the pool's loss."""
    V, y = case
    aggregation = ClassAggregation(V.shape[2], 0.0)
    for rests in (None, np.random.default_rng(seed).random(V.shape[:2]) < often):
        own, theirs, made = played(aggregation, V, y, rests)
        assert own.sum() <= theirs.sum(axis=0).min() + math.log(V.shape[1]) + 1e-9 * (1.0 + own.sum())
        for forecast in made:
            assert sum(forecast.probabilities or ()) == pytest.approx(1.0, abs=1e-12)
            assert min(forecast.probabilities or ()) >= LEAST_PROBABILITY


@given(
    K=st.integers(2, 4),
    size=st.sampled_from([1e-3, 1.0, 1e4]),
    is_worst=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=10, deadline=None)
def test_regret_to_learners_of_streams_made_against_them(K: int, size: float, is_worst: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    learner = create(spec(K, EXPERTS, share=0.0), 2)
    total = 0.0
    for x in size * rng.standard_normal((30, 2)) * rng.choice([1.0, 100.0], (30, 1)):
        told = learner.predict(x).probabilities or ()
        total += learner.update(x, float(np.argmin(told) if is_worst else rng.integers(K))).loss
    found = learner.describe()
    assert found["loss"] == pytest.approx(total)
    assert total <= found["best_loss"] + found["bound"] + 1e-9 * (1.0 + total)


@given(case=adversarial(), share=st.floats(1e-4, 0.3), changes=st.integers(0, 4))
def test_regret_to_a_sequence_that_switches(case: tuple[F64, F64], share: float, changes: int) -> None:
    V, y = case
    T, N = V.shape[:2]
    own, theirs, _ = played(ClassAggregation(V.shape[2], share), V, y)
    best = np.full((changes + 1, N), np.inf)
    best[0] = theirs[0]
    for t in range(1, T):
        before = np.broadcast_to(best[:-1].min(axis=1)[:, None], (changes, N))
        best = np.minimum(best, np.concatenate((np.full((1, N), np.inf), before))) + theirs[t]
    k = min(changes, T - 1)
    overhead = (k + 1) * math.log(N) + k * math.log(1.0 / share) + (T - k) * math.log(1.0 / (1.0 - share))
    assert own.sum() <= best.min() + overhead + 1e-9 * (1.0 + own.sum())


def test_an_expert_without_weight_comes_back() -> None:
    """The first errs so long that its weight is no number above 0, and then never again."""
    V = np.tile([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], (16, 1, 1))
    y = np.where(np.arange(16) < 5, 1.0, 0.0)
    own, theirs, _ = played(ClassAggregation(3, 0.0), V, y)
    assert theirs[:5, 0].sum() > 3000.0
    assert own.sum() <= theirs.sum(axis=0).min() + math.log(2.0) + 1e-9 * own.sum()
    assert own[-1] == pytest.approx(0.0)


def test_a_tiny_share_keeps_weights_that_are_small_beside_an_expert_that_has_lost() -> None:
    """The second has little weight and then errs with the first, while the third, which has less, is right."""
    told = np.array([[1.0, 1e-27, 1e-183], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    own, theirs, _ = played(ClassAggregation(2, 1e-200), np.stack((told, 1.0 - told), axis=2), np.zeros(3))
    assert own.sum() <= theirs[:, 1].sum() + math.log(3.0) + 1e-9 * own.sum()


def test_extreme_inputs_leave_probabilities_that_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    learner = create(spec(3, EXPERTS), 2)
    for size in (1e-12, 1.0, 1e3, 1e6):
        for _ in range(10):
            info = learner.update(size * rng.standard_normal(2), float(rng.integers(3)))
            assert sum(info.forecast.probabilities or ()) == pytest.approx(1.0)
            assert math.isfinite(info.loss)
    before = learner.state()
    with pytest.raises(DivergedError, match=r"expert 0, softmax-aioli: .*scale the inputs down"):
        learner.update(np.full(2, 1e20), 0.0)
    assert all(before[name].tobytes() == array.tobytes() for name, array in learner.state().items())
    for wrong in (3.0, -1.0, 0.5):
        with pytest.raises(LabelError, match="classes 0 to 2"):
            learner.update(np.ones(2), wrong)


def test_restored_in_the_middle_it_continues() -> None:
    X, y = stream(3, 120)
    learner = create(spec(3, EXPERTS), 2)
    learner.run(X[:50], y[:50])
    again = restore(learner.spec, learner.state(), 2)
    assert again.run(X[50:], y[50:]).losses.tobytes() == learner.run(X[50:], y[50:]).losses.tobytes()
    with pytest.raises(StateFormatError):
        restore(spec(4, EXPERTS), learner.state(), 2).predict(X[0])


def test_experts_rest_every_way_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "FIRST", 64)
    X, y = stream(3, 500)
    one, many = (create(spec(3, EXPERTS, resting=4), 2) for _ in range(2))
    single = np.array([one.update(x, truth).forecast.probabilities for x, truth in zip(X, y.tolist(), strict=True)])
    blocks = [many.run(X[a:b], y[a:b]).probabilities for a, b in ((0, 100), (100, 101), (101, 500))]
    np.testing.assert_allclose(np.vstack([block for block in blocks if block is not None]), single, atol=1e-9)
    rounds = [array for name, array in one.state().items() if name.startswith("cells.") and name.endswith(".t")]
    assert min(rounds) < 300.0
    assert one.state()["awake"].min() == 0.0
    for name, array in many.state().items():
        assert one.state()[name] == pytest.approx(array, rel=1e-7, abs=1e-9), name


def test_every_kind_of_classes_may_be_an_expert() -> None:
    X, y = stream(3, 60)
    own: dict[str, dict[str, Any]] = {"auto": {"relevance": RELEVANCE, "budget": 20}}
    kinds = [kind for kind in learner_kinds() if get_learner(kind).target(get_learner(kind).config_type()) == "class"]
    assert {"auto", "frequencies", "one-vs-rest", "softmax-aioli"} <= set(kinds)
    learner = create(spec(3, [{"kind": kind, "config": own.get(kind, {})} for kind in kinds]), 2)
    told = learner.run(X, y)
    assert told.probabilities is not None
    np.testing.assert_allclose(told.probabilities.sum(axis=1), 1.0)
    assert learner.describe()["experts"] == len(kinds)  # `frequencies` is not there twice


def test_the_default_pool_beats_what_knows_no_inputs() -> None:
    X, y = stream(4, 400)
    learner = create({"kind": "pool", "config": {"truth": "classes", "classes": 4}}, 2)
    losses, told = learner.run(X, y).losses, learner.describe()
    assert losses.sum() <= told["best_loss"] + math.log(told["experts"]) + 400.0 * math.log(1.0 / 0.999)
    assert losses.mean() < 0.5 * math.log(4.0)


def test_experts_that_differ_in_their_member_have_names_that_say_so() -> None:
    standing = create({"kind": "pool", "config": {"truth": "classes"}}, 2).standing()
    assert standing is not None
    assert standing.names[2:6] == (
        "2_one-vs-rest_sigma_0.5",
        "3_one-vs-rest_sigma_1",
        "4_one-vs-rest_sigma_2",
        "5_one-vs-rest_sigma_1_half_life_500",
    )


def test_classes_are_two_unless_they_are_told() -> None:
    learner = create({"kind": "pool", "config": {"truth": "classes", "experts": ["softmax-aioli"]}}, 1)
    assert len(learner.predict([0.0]).probabilities or ()) == 2


def test_a_thousand_classes_are_known_by_their_bytes() -> None:
    """Before anything that large is made."""
    _, learner, config = parse_spec(spec(1000, [{"kind": "softmax-aioli", "half_lives": "learned"}]))
    assert learner.initial_bytes(config, 64) == 6 * 8 * (999 * 65) * (999 * 65 + 1)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"experts": ["aioli"]}, "expert 0, aioli, does not learn classes"),
        ({"experts": ["softmax-aioli", "last-label"]}, "expert 1, last-label, does not learn classes"),
        ({"truth": "labels", "classes": 2, "experts": ["softmax-aioli"]}, "softmax-aioli, does not learn labels"),
        ({"truth": "numbers", "classes": 2, "experts": ["one-vs-rest"]}, "one-vs-rest, does not learn numbers"),
        ({"truth": "numbers"}, '3 classes, but the truths are numbers: set `truth` to "classes"'),
        ({"experts": [{"kind": "softmax-aioli", "config": {"classes": 4}}]}, "of 4 classes, in a pool of 3: leave its"),
        ({"experts": [{"kind": "auto", "config": {"relevance": RELEVANCE, "classes": None}}]}, "in a pool of 3"),
        ({"experts": [{"kind": "auto"}]}, "experts.0: .*give relevance itself"),
        (
            {"experts": [{"kind": "softmax-aioli", "lags": 1}]},
            "experts.0.lags: classes are not numbers",
        ),
        ({"experts": [{"kind": "one-vs-rest", "half_lives": [16]}]}, "one-vs-rest has no half-life"),
        ({"experts": ["pool"]}, "cannot be an expert of a pool"),
        ({"classes": 1}, "classes: must be at least 2"),
        ({"classes": 1001}, "classes: must be at most 1000"),
        ({"classes": None}, "classes: must be a whole number, not null"),
        ({"loss": "squared"}, "by their log-loss, and not clipped: leave `loss` and `clip` out"),
        ({"clip": 2.0}, "by their log-loss, and not clipped: leave `loss` and `clip` out"),
    ],
)
def test_bad_configs_say_what_is_wrong(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        create({"kind": "pool", "config": {"truth": "classes", "classes": 3} | config}, 2)


def turning(n: int) -> tuple[F64, F64]:
    """Three classes, sectors that turn once in 377 rounds."""
    X = np.random.default_rng(0).normal(size=(n, 2))
    return X, np.floor((np.arctan2(X[:, 1], X[:, 0]) + np.arange(n) / 60.0) / (2.0 * math.pi / 3.0)) % 3.0


LEARNED = {"kind": "softmax-aioli", "seed": 3, "config": {"classes": 3, "hedge": 0.7, "half_life": "learned"}}


def test_a_learned_half_life_stands_for_a_pool_of_classes() -> None:
    X, y = turning(400)
    short = create(LEARNED, 2)
    grid = {"kind": "softmax-aioli", "config": {"hedge": 0.7}, "half_lives": "learned"}
    spelt = create(spec(3, [grid], share=0.001) | {"seed": 3}, 2)
    losses = short.run(X[:100], y[:100]).losses
    assert losses.tobytes() == spelt.run(X[:100], y[:100]).losses.tobytes()
    total = losses.sum() + short.run(X[100:], y[100:]).losses.sum()
    assert create(short.spec, 2).spec == short.spec
    assert restore(short.spec, short.state(), 2).predict(X[0]) == short.predict(X[0])
    told = short.describe()
    alone = {name: loss for name, loss in told.items() if name.startswith("loss_") and "softmax" in name}
    assert len(alone) == len(HALF_LIVES)
    assert min(alone, key=lambda name: alone[name]).endswith(("half_life_16", "half_life_64"))
    assert total <= told["best_loss"] + math.log(7.0) + 400.0 * math.log(1.0 / 0.999) + 1e-9
    assert total < 0.7 * alone["loss_5_softmax-aioli"]


def test_it_may_be_learned_by_an_expert() -> None:
    own = {"kind": "softmax-aioli", "config": {"half_life": "learned"}}
    assert ExpertSpec.model_validate(own).half_lives == list(HALF_LIVES)
    many = create(spec(4, [own, "one-vs-rest"]), 2)
    assert many.describe()["experts"] == len(HALF_LIVES) + 2
    with pytest.raises(ConfigError, match="600 experts"):
        create(spec(4, [own] * 100), 2)


def test_lags_are_refused_by_the_name_of_the_learner() -> None:
    for own in (spec(3, EXPERTS), {"kind": "softmax-aioli", "config": {"half_life": "learned"}}):
        with pytest.raises(ConfigError, match=f"^{own['kind']}: lags: classes are not numbers"):
            create(own | {"lags": 2}, 2)
