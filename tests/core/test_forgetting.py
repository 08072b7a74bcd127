"""Learners that forget stored rounds, against dense sums over those that count, and learners that never saw the others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core import Gaussian, OnlineLearner, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, StateFormatError
from okl_core.linalg import guards, weighted_factor
from okl_core.second_order.forgetting import ALL_DIGITS, Memory, StoredRounds
from okl_core.second_order.row_sampling import Kors
from okl_core.second_order.second_order import SecondOrderRound
from okl_core.second_order.sketch import Sketch
from okl_core.second_order.space_and_rule import Decision
from okl_core.types import F64
from tests.core.newton_streams import STREAMS, stream_for
from tests.core.states import dense
from tests.oracles.kons import batch_moments

ALPHA = 0.1
KERNEL = Gaussian(sigma=0.5)

LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("kons", {"loss": "squared", "step": "adaptive"}),
    ("kons", {"loss": "logistic", "step": "adaptive", "clip": 4.0}),
    ("kons", {"loss": "squared-hinge", "step": "adaptive", "clip": 2.0}),
    ("sketched-kons", {"loss": "squared", "step": "adaptive", "oversampling": 1.0}),
    ("sketched-kons", {"loss": "squared-hinge", "step": "adaptive", "oversampling": 0.5}),
    ("kernel-ridge", {}),
    ("kernel-ridge", {"clip": 1.0}),
    ("kernel-aar", {}),
    ("kernel-aioli", {"regularization": ALPHA / 2.0, "comparator_norm": 3.0}),
]
learners = pytest.mark.parametrize(
    ("kind", "config"), LEARNERS, ids=lambda part: part if isinstance(part, str) else "-".join(map(str, part.values()))
)


Forgetting = dict[str, int]
"""A window or a half-life, as a config has it; empty for none."""


def learner_of(kind: str, config: dict[str, Any], forgetting: Forgetting) -> OnlineLearner:
    given = {"kernel": KERNEL.model_dump(), "regularization": ALPHA} | forgetting | config
    return create({"kind": kind, "config": given}, 2)


def stream_of(kind: str, config: dict[str, Any], stream: str, n: int) -> tuple[F64, F64]:
    return stream_for("logistic" if kind == "kernel-aioli" else config.get("loss", "squared"), stream, n)


def kept_before(t: int, W: int) -> list[int]:
    """The rounds (from 0) that a window of W keeps when round t is played: a quarter of it goes at once."""
    kept: list[int] = []
    for s in range(t):
        kept.append(s)
        if s + 1 > W and (s + 1 - W) % max(1, W // 4) == 0:
            kept = kept[-W:]
    return kept


def counts_before(t: int, forgetting: Forgetting) -> F64:
    """What each round before t (from 0) counts when it is played, shape (t,), 0 for those forgotten."""
    counts = np.zeros(t)
    if "window" in forgetting:
        counts[kept_before(t, forgetting["window"])] = 1.0
        return counts
    H = forgetting["half_life"]
    for s in range(t):
        counts[s] = 1.0
        if (s + 1) % (H // 4) == 0:
            counts *= 2.0 ** -(H // 4 / H)
            counts[: max(0, s + 1 - 10 * H)] = 0.0
    return counts


@pytest.mark.pairs
@pytest.mark.parametrize(
    ("name", "rounds", "stream"),
    [("window", W, stream) for W, stream in zip([1, 6, 40] * 2, STREAMS, strict=True)]
    + [("half_life", H, stream) for H, stream in zip([8, 9, 40] * 2, STREAMS, strict=True)],
)
@learners
def test_its_moments_are_those_of_the_rounds_that_count(
    kind: str, config: dict[str, Any], name: str, rounds: int, stream: str
) -> None:
    # The rounds that each forgets but for the longest half-life, which only weighs them.
    n, forgetting = (62 if name == "window" else 100), {name: rounds}
    X, y = stream_of(kind, config, stream, n)
    K = KERNEL.gram(X)
    learner = learner_of(kind, config, forgetting)
    w, c = np.zeros(len(y)), np.zeros(len(y))
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        counts = counts_before(t, forgetting)
        kept = np.flatnonzero(counts)
        known = counts[kept]
        m, q = batch_moments(K[np.ix_(kept, kept)], K[kept, t], 1.0, known * w[kept], known * c[kept], ALPHA)
        played = learner.play(x, truth)
        assert isinstance(played, SecondOrderRound)
        assert played.turn.moments.m == pytest.approx(m, rel=1e-9, abs=1e-9)
        assert played.turn.moments.q == pytest.approx(q, rel=1e-9, abs=1e-9)
        learner.learn(played)
        w[t], c[t] = played.turn.decision.w, truth
        if kind == "kernel-aioli":
            a = played.forecast.value
            c[t] = w[t] * a + truth / (1.0 + np.exp(truth * a))
        elif "loss" in config:
            c[t] = w[t] * played.forecast.value - played.turn.decision.g - (m - played.forecast.value) / q
    counts = counts_before(len(y), forgetting)
    kept = np.flatnonzero(counts)
    assert len(kept) < (rounds if name == "window" else 10 * rounds + 3) + max(1, rounds // 4)
    root = np.sqrt(counts[kept] * w[kept])
    D_K_D = root[:, None] * K[np.ix_(kept, kept)] * root
    log_det = np.linalg.slogdet(np.eye(len(kept)) + D_K_D / ALPHA)[1]
    assert learner.describe()["log_det"] == pytest.approx(log_det, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", ["kernel-ridge", "kernel-aar"])
@pytest.mark.parametrize("kernel", [KERNEL.model_dump(), {"kind": "laplacian"}, {"kind": "polynomial", "degree": 3}])
def test_a_fit_to_the_rounds_kept_is_that_of_a_learner_that_saw_no_others(kind: str, kernel: dict[str, Any]) -> None:
    # The inputs drift far from where they began, as a time stamp among them would.
    drift = 1e4 if kernel["kind"] == "gaussian" else 0.01
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (700, 2)) + drift * np.arange(700.0)[:, None] * [0.0, 1e-2]
    y = rng.normal(size=700)
    learner = learner_of(kind, {"kernel": kernel}, {"window": 60})
    for start, stop in itertools.pairwise([0, 59, 61, 200, 449, 700]):
        learner.run(X[start:stop], y[start:stop])
        kept = kept_before(stop, 60)
        fresh = learner_of(kind, {"kernel": kernel}, {})
        fresh.run(X[kept], y[kept])
        probes = X[kept[-5:]] + 0.1
        seen = [learner.predict(x).value for x in probes]
        np.testing.assert_allclose(seen, [fresh.predict(x).value for x in probes], rtol=1e-9, atol=1e-9)


@given(
    cuts=st.lists(st.integers(0, 200), max_size=6),
    forgetting=st.fixed_dictionaries({"window": st.integers(1, 150)})
    | st.fixed_dictionaries({"half_life": st.integers(8, 150)}),
    which=st.sampled_from(LEARNERS),
)
def test_a_run_is_its_updates_however_it_is_cut(
    cuts: list[int], forgetting: Forgetting, which: tuple[str, dict[str, Any]]
) -> None:
    X, y = stream_of(*which, "flips", 200)
    single, learner = (learner_of(*which, forgetting) for _ in range(2))
    values = [single.update(x, truth).forecast.value for x, truth in zip(X, y.tolist(), strict=True)]
    seen = [learner.run(X[a:b], y[a:b]).values for a, b in itertools.pairwise([0, *sorted(cuts), 200])]
    np.testing.assert_allclose(np.concatenate(seen), values, rtol=0.0, atol=1e-9)
    arrays = learner.state()
    for name, array in single.state().items():
        np.testing.assert_allclose(arrays[name], array, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("forgetting", [{"window": 50}, {"half_life": 8}], ids=["window", "half-life"])
@learners
def test_a_restored_learner_forgets_the_same(kind: str, config: dict[str, Any], forgetting: Forgetting) -> None:
    X, y = stream_of(kind, config, "saturated", 150)
    learner = learner_of(kind, config, forgetting)
    learner.run(X[:97], y[:97])
    again = restore(learner.spec, learner.state(), 2)
    for one in (learner, again):
        one.run(X[97:], y[97:])
    expected, found = learner.state(), again.state()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize(
    ("forgetting", "most"), [({"window": 80}, 100), ({"half_life": 8}, 84)], ids=["window", "half-life"]
)
@learners
def test_what_is_stored_does_not_grow(kind: str, config: dict[str, Any], forgetting: Forgetting, most: int) -> None:
    X, y = stream_of(kind, config, "random", 390)
    learner = learner_of(kind, config, forgetting)
    sizes, stored = [], []
    for start in range(0, 390, 30):
        learner.run(X[start : start + 30], y[start : start + 30])
        sizes.append(learner.nbytes)
        stored.append(learner.describe()["dictionary"])
    assert max(stored) <= most
    # The weight of every round is its own, and so is the number of those that have one.
    assert max(sizes[8:]) <= 1.2 * max(sizes[2:8])
    assert "bound_gradient" not in learner.describe()
    assert "bound" not in learner.describe()
    assert "comparator_loss" not in learner.describe()


@pytest.mark.parametrize("forgetting", [{"window": 100}, {"half_life": 32}], ids=["window", "half-life"])
def test_a_learner_that_forgets_follows_a_drift(forgetting: Forgetting) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (1000, 2))
    angle = np.arange(1000) / 200.0
    y = np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1]
    forgetful, plain = (
        learner_of("kernel-ridge", {}, given).run(X, y).losses[500:].mean() for given in (forgetting, {})
    )
    assert forgetful < 0.2 * plain


def test_weights_that_no_factorisation_takes_are_built_anew_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # With alpha below the rounding of w kappa the matrix of repeated inputs is singular to LAPACK.
    failures: list[int] = []

    def dpotrf(*args: Any, **kwargs: Any) -> Any:
        found = lapack(*args, **kwargs)
        failures.append(found[1])
        return found

    lapack = weighted_factor.dpotrf
    monkeypatch.setattr(weighted_factor, "dpotrf", dpotrf)
    # Such rounds are refused; those that are not come near it only in numbers that a test cannot play.
    monkeypatch.setattr(guards, "HEAVIEST", np.inf)
    config = {"regularization": 1e-17, "kernel": {"kind": "linear"}}
    learner = create({"kind": "kernel-ridge", "config": config | {"window": 16}}, 1)
    for t in range(60):
        learner.update(np.ones(1), 1.0 + 0.01 * (-1.0) ** t)
    assert any(failures)
    assert learner.predict(np.ones(1)).value == pytest.approx(1.0, abs=0.02)
    assert all(np.isfinite(array).all() for array in learner.state().values())


@pytest.mark.parametrize("fails", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize("memory", [Memory(100, 25, 1.0), Memory(100, 10, 0.7)], ids=["window", "half-life"])
def test_the_sampled_dictionary_forgets_its_oldest(
    memory: Memory, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fails:
        monkeypatch.setattr(weighted_factor, "dpotrf", lambda A, **_: (A, 1))
    rng = np.random.default_rng(0)
    X, scales = rng.uniform(-1.0, 1.0, (300, 2)), rng.uniform(0.5, 2.0, 300)
    sketch = Sketch(KERNEL, Kors(0.3, 2.0, 0.5), 0.1)
    state, coins = sketch.init(2), RoundRng(0)
    coins.begin()
    block = sketch.block(state, 1, X, KERNEL.gram(X))
    for j in range(300):
        coins.at(j + 1)
        block.thin(j, Decision(0.0, scales[j] ** 2, 0.0, 0.0), coins)
    block.settle()
    rounds, roots = state.rounds.view.astype(int), state.kept.roots.view.copy()
    assert np.count_nonzero(rounds > 200) > 20
    sketch.forget(state, memory, 300)
    kept = rounds[rounds > 200]
    np.testing.assert_array_equal(state.rounds.view, kept)
    np.testing.assert_allclose(state.points.coordinates(), X[kept - 1], atol=1e-12)
    np.testing.assert_allclose(state.kept.roots.view, np.sqrt(memory.factor) * roots[rounds > 200], rtol=1e-14)
    S, L = state.kept.roots.view, dense(state.kept.L)
    expected = S[:, None] * KERNEL.gram(X[kept - 1]) * S + 0.3 * np.eye(len(S))
    np.testing.assert_allclose(L @ L.T, expected, atol=1e-9 * expected.max())


def test_the_dictionary_of_the_scores_is_that_of_the_rounds_kept() -> None:
    X, y = stream_for("squared", "random", n=400)
    learner = learner_of("sketched-kons", {"step": "adaptive", "oversampling": 1.0}, {"window": 40})
    for start in range(0, 400, 30):
        learner.run(X[start : start + 30], y[start : start + 30])
        t, arrays = learner.t, learner.state()
        kept = kept_before(t, 40)
        sketch = {name.removeprefix("space.sketch."): array for name, array in arrays.items()}
        rounds = sketch["rounds"].astype(int)
        assert set(rounds - 1) <= set(kept)
        points = sketch["points.rows"][:, :2] * sketch["points.unit"] + sketch["points.origin"]
        np.testing.assert_allclose(points, X[rounds - 1], atol=1e-12)
        assert len(rounds) == len(sketch["kept.roots"]) > 0


@pytest.mark.parametrize("step", ["curvature", "half-curvature", "inverse-sqrt", 0.5])
@pytest.mark.parametrize("kind", ["kons", "sketched-kons"])
def test_a_window_needs_adaptive_steps(kind: str, step: str | float) -> None:
    with pytest.raises(ConfigError, match="window"):
        learner_of(kind, {"step": step}, {"window": 100})
    learner_of(kind, {"step": step}, {"half_life": 100})


@pytest.mark.parametrize("kind", ["kons", "sketched-kons", "kernel-ridge", "kernel-aar", "kernel-aioli"])
@pytest.mark.parametrize("half_life", [100, "learned"])
def test_it_forgets_in_one_way(kind: str, half_life: int | str) -> None:
    steps = {"step": "adaptive"} if "kons" in kind else {}
    with pytest.raises(ConfigError, match="either a window or a half_life"):
        create({"kind": kind, "config": steps | {"window": 100, "half_life": half_life}}, 2)


def test_light_rounds_count_for_little_before_they_go() -> None:
    """Nothing jumps where a round is forgotten: forecasts are nearly those of weights that fade for ever."""
    X, y = stream_for("squared", "random", 300)
    H = 8
    learner = learner_of("kernel-ridge", {}, {"half_life": H})
    K, counts = KERNEL.gram(X), np.zeros(300)
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        m, _ = batch_moments(K[:t, :t], K[:t, t], 1.0, counts[:t], counts[:t] * y[:t], ALPHA)
        assert learner.predict(x).value == pytest.approx(m, abs=0.02)
        learner.update(x, truth)
        counts[t] = 1.0
        if (t + 1) % (H // 4) == 0:
            counts *= 0.5**0.25


@pytest.mark.parametrize("W", range(1, 12))
def test_blocks_end_where_rounds_are_forgotten(W: int) -> None:
    window, half_life = Memory.of_window(W), Memory.of_half_life(W + 7)
    for t in range(100):
        due = [s for s in range(t + 1, t + 200) if window.is_due(s)]
        assert window.room(t) == due[0] - t
        assert len(kept_before(due[0], W)) == W
        assert half_life.room(t) == next(s for s in range(t + 1, t + 200) if s % ((W + 7) // 4) == 0) - t
    assert 10 * (W + 7) <= half_life.size < 10 * (W + 7) + half_life.chunk


@given(st.integers(1, 50))
def test_a_turn_ends_while_a_round_is_stored_and_takes_a_window_or_a_half_life_at_most(W: int) -> None:
    for memory, most in ((Memory.of_window(W), W), (Memory.of_half_life(W + 7), W + 7)):
        due = [t for t in range(1, 2 * memory.size + 300) if memory.is_due(t)]
        ends = [t for t in due if memory.ends_turn(t)]
        assert max(b - a for a, b in itertools.pairwise(ends)) <= most
        for t in range(1, 200):
            dropped_after = next(s for s in due if s - memory.size >= t)
            assert any(t <= s <= dropped_after for s in ends)


@pytest.mark.parametrize("conditioning", [np.inf, np.nan])
def test_a_conditioning_without_bound_is_handed_on_as_one_that_fades(conditioning: float) -> None:
    stored = StoredRounds()
    stored.inherit(conditioning)
    assert stored.inherited == ALL_DIGITS
    stored.inherit(1.0)
    assert stored.inherited == 0.5 * ALL_DIGITS


def test_a_state_that_forgets_nothing_has_no_array_for_it() -> None:
    without = learner_of("kernel-ridge", {}, {})
    assert not [name for name in without.state() if name.startswith("space.stored")]
    learner = learner_of("kernel-ridge", {}, {"window": 9})
    learner.update([0.0, 0.0], 1.0)
    arrays = learner.state()
    assert arrays["space.stored.J"] == [1.0]
    with pytest.raises(StateFormatError, match="stored"):
        restore(without.spec, {name: array for name, array in arrays.items() if name != "space.stored.b"}, 2)
    with pytest.raises(StateFormatError, match="1 rounds are stored with 0 values"):
        restore(learner.spec, arrays | {"space.stored.b": np.empty(0)}, 2)
