"""Experts of a pool that rest: who does, that all ways of playing agree, and what a member of a bank knows afterwards."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from okl_core import Gaussian, create, restore
from okl_core.contract.rng import RoundRng
from okl_core.errors import ReplayDivergence
from okl_core.pool import resting
from okl_core.pool.bank import Bank
from okl_core.pool.expert_specs import ExpertSpec
from okl_core.pool.experts import Experts
from okl_core.pool.resting import FIRST, STRETCH, UsualLoss, awake_after, stretches_a_turn
from okl_core.types import F64

RESTING: dict[str, Any] = {
    "kind": "pool",
    "seed": 3,
    "config": {
        "resting": 4,
        "experts": [
            {"kind": "pros-n-kons", "config": {"loss": "squared"}, "sigmas": [0.2, 50.0]},
            {"kind": "pros-n-kons", "config": {"loss": "squared", "regularization": 1e4}, "sigmas": [0.2]},
            {"kind": "pros-n-kons", "config": {"loss": "squared", "half_life": 80}, "lags": 2, "sigmas": [50.0]},
            {"kind": "fogd", "config": {"loss": "hinge"}, "sigmas": [9.0]},
        ],
    },
}
"""The first and the third are members of one bank."""


def stream(n: int, turns: bool = False) -> tuple[F64, F64]:
    """Labels that a function of a short length scale tells; with `turns` all change their sign half-way."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 2))
    y = np.where(np.sin(9.0 * X[:, 0]) * np.cos(6.0 * X[:, 1]) > 0.0, 1.0, -1.0)
    return X, np.where(np.arange(n) < n // 2, y, -y) if turns else y


def who_plays(X: F64, y: F64, spec: dict[str, Any]) -> tuple[F64, dict[str, F64]]:
    """`awake` of every stretch, shape (stretches, N), and the last state."""
    learner = create(spec, 2)
    awake = []
    for start in range(0, len(y), STRETCH):
        awake.append(learner.state()["awake"])
        learner.run(X[start : start + STRETCH], y[start : start + STRETCH])
    state = learner.state()
    assert learner.describe()["awake"] == state["awake"].sum()
    return np.array(awake), state


def test_experts_that_have_lost_play_one_stretch_in_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "FIRST", STRETCH)
    monkeypatch.setattr(resting, "UNUSUAL", np.inf)
    awake, state = who_plays(*stream(1600), RESTING)
    # The units are two banks and one with lags, then what shares nothing: fogd and two trivial ones.
    learned = [*state["cells.0.learned"], *state["cells.1.learned"], *state["cells.2.learned"]]
    rounds = np.array([learned[0], learned[2], learned[1], learned[3], *(state[f"cells.{i}.t"] for i in (3, 4, 5))])
    assert rounds.tolist() == (STRETCH * awake.sum(axis=0)).tolist()
    leader = int(np.argmax(rounds))
    assert rounds[leader] == 1600.0
    assert rounds.min() < 900.0
    # The leader's dictionary has seen all inputs, its other member has not.
    assert leader == 0
    assert learned[1] < 900.0 < state["cells.0.t"] == 1600.0
    # From the second on every one of four stretches has a turn of each expert.
    assert (np.lib.stride_tricks.sliding_window_view(awake, 4, axis=0).sum(axis=-1) >= 1.0).all()


def test_all_wake_when_the_stream_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "FIRST", STRETCH)
    X, y = stream(2560, turns=True)
    awake, _ = who_plays(X, y, RESTING)
    assert awake[21].all()
    assert not awake[15:20].all(axis=1).any()
    steady, _ = who_plays(*stream(2560), RESTING)
    assert steady[20:].all(axis=1).sum() <= 1


CALM = UsualLoss(1.0, 1.0, 1.0 * STRETCH)
"""The last stretch was as all before it."""

WEIGHTS = st.lists(st.tuples(st.booleans(), st.floats(0.0, 1.0)), min_size=1, max_size=6)


@given(WEIGHTS, st.integers(FIRST // STRETCH, 500), st.integers(2, 64))
@example([(True, 0.01), (True, 0.02), (False, 0.97)], 100, 16)
def test_some_expert_plays_whoever_has_lost(told: list[tuple[bool, float]], stretch: int, every: int) -> None:
    """The pool may do better than each expert awake, as where they err to either side: then one at rest leads."""
    awake = np.array([is_awake for is_awake, _ in told], dtype=np.float64)
    awake[0] = 1.0
    weights = np.array([weight for _, weight in told])
    rng = RoundRng(0)
    rng.begin()
    unit_of = np.arange(len(told))
    plays = awake_after(stretch * STRETCH, awake, weights, unit_of, CALM, every, 1, rng)
    least = 0.05 * weights.max()
    assert plays.all() if (weights * awake).max() < least else (plays * weights).max() >= least


@pytest.mark.parametrize("every", [4, 16, 24, 64])
def test_every_unit_has_its_turn_while_the_turns_become_rarer(every: int) -> None:
    for unit in range(20):
        stretches = range(FIRST // STRETCH, 2000)
        turns = [stretch for stretch in stretches if (stretch + unit) % stretches_a_turn(stretch * STRETCH, every) == 0]
        assert all(b - a < 2 * stretches_a_turn(b * STRETCH, every) for a, b in itertools.pairwise(turns))
        assert set(np.diff(turns[-5:])) == {every}


LENGTHS = {1023: 4, 1024: 5, 12287: 15, 12288: 16, 13312: 16, 28671: 16, 28672: 32, 10**9: 100}


def test_a_turn_becomes_longer_with_the_rounds_that_begin_it() -> None:
    assert {t: stretches_a_turn(t, 100) for t in LENGTHS} == LENGTHS


@pytest.mark.parametrize(("dim", "first"), [(1, 1024), (64, 1024), (80, 1280)])
def test_experts_that_have_many_inputs_to_learn_play_longer(dim: int, first: int) -> None:
    weights, usual, rng = np.array([0.9, 0.1, 0.0]), CALM, RoundRng(0)
    for t in (first - STRETCH, first):
        rng.begin()
        # The last of them has its turn one stretch later.
        units = np.array([0, 1, -1 - t // STRETCH])
        assert awake_after(t, np.ones(3), weights, units, usual, 16, dim, rng).all() == (t < first)


def test_choices_by_which_all_would_rest_are_no_replay() -> None:
    weights, usual, rng = np.array([0.9, 0.1]), CALM, RoundRng(0)
    rng.begin(replay=bytes(3))
    with pytest.raises(ReplayDivergence, match="all experts"):
        awake_after(101 * STRETCH, np.ones(2), weights, np.arange(2), usual, 16, 1, rng)


def test_the_usual_loss_is_that_of_some_thousands_of_rounds() -> None:
    usual = UsualLoss(0.5, 0.25, 0.0)
    assert usual.after(4096, 1.5).mean == 0.5 + 1.0 / 4096.0
    assert usual.after(10**6, 1.5) == usual.after(4096 * 64 + 1, 1.5) == UsualLoss(0.5 + 2.0**-12, 0.25 + 2.0**-11, 1.5)


def test_a_stretch_is_unusual_by_the_mean_and_its_deviation() -> None:
    rng = np.random.default_rng(0)
    usual, alarms = UsualLoss(0.0, 0.0, 0.0), 0
    losses = rng.exponential(size=100 * STRETCH)
    for t, loss in enumerate(losses.tolist(), start=1):
        usual = usual.after(t, loss)
        if t == 20 * STRETCH:
            # As long as nothing is left out the numbers are those of all rounds.
            assert usual.mean == pytest.approx(losses[:t].mean())
            assert usual.square == pytest.approx((losses[:t] ** 2).mean())
        if t % STRETCH == 0:
            assert usual.stretch == pytest.approx(losses[t - STRETCH : t].sum())
            alarms += usual.has_changed()
    assert alarms <= 3
    for other in (1.6, 0.4):
        stretch = usual
        for t in range(len(losses) + 1, len(losses) + STRETCH + 1):
            stretch = stretch.after(t, other)
        assert stretch.has_changed()


def test_with_experts_at_rest_every_way_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By update, by run in blocks of any length, restored, and replayed by its choices."""
    monkeypatch.setattr(resting, "FIRST", STRETCH)
    X, y = stream(700, turns=True)
    learner = create(RESTING, 2)
    infos = [learner.update(x, truth) for x, truth in zip(X, y.tolist(), strict=True)]
    values = np.array([info.forecast.value for info in infos])
    assert learner.state()["awake"].min() == 0.0
    other = create(RESTING, 2)
    played = [other.run(X[a:b], y[a:b]) for a, b in itertools.pairwise([0, 100, 500, 501])]
    again = restore(RESTING, other.state(), 2)
    played.append(again.run(X[501:], y[501:]))
    assert np.concatenate([part.values for part in played]) == pytest.approx(values, abs=1e-9)
    for name, array in learner.state().items():
        assert again.state()[name] == pytest.approx(array, rel=1e-7, abs=1e-9), name
    replayed = create(RESTING, 2).run(X, y, choices=b"".join(part.choices for part in played))
    assert replayed.values == pytest.approx(values, abs=1e-9)
    assert replayed.choices == b"".join(part.choices for part in played)


def dense(X: F64, y: F64, sigma: float, alpha: float, threshold: float, plays: list[bool], sees: list[bool]) -> F64:
    """Forecasts of ridge regression on a dictionary, NaN where it does not play; `sees`: rounds that the dictionary has."""
    points: list[F64] = []
    A, s = np.zeros((0, 0)), np.zeros(0)
    values = np.full(len(y), np.nan)
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        if not sees[t]:
            continue
        near = np.array(points).reshape(-1, X.shape[1])
        K = np.exp(-((near[:, None] - near) ** 2).sum(axis=-1) / (2.0 * sigma**2))
        phi = np.linalg.solve(np.linalg.cholesky(K), np.exp(-((near - x) ** 2).sum(axis=-1) / (2.0 * sigma**2)))
        if plays[t]:
            values[t] = phi @ np.linalg.solve(A, s)
            A, s = A + np.outer(phi, phi), s + truth * phi
        if 1.0 - phi @ phi > threshold**2:
            points.append(x)
            A = np.block([[A, np.zeros((len(A), 1))], [np.zeros((1, len(A))), alpha * np.eye(1)]])
            s = np.append(s, 0.0)
    return values


def test_a_pool_that_is_dropped_leaves_nothing() -> None:
    learner = create("pool", 2)
    learner.predict([0.0, 0.0])
    gc.collect()
    before = sum(isinstance(one, Bank) for one in gc.get_objects())
    del learner
    gc.collect()
    assert sum(isinstance(one, Bank) for one in gc.get_objects()) < before


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([(1, 1), (1, 0), (0, 1), (0, 0)]), min_size=2, max_size=6), st.booleans())
def test_a_member_knows_the_rounds_that_it_has_played(stretches: list[tuple[int, int]], in_blocks: bool) -> None:
    """Its dictionary has the inputs of all rounds in which any member played."""
    alphas, length, lags = (0.3, 5.0), 20, np.zeros(0)
    kernel = Gaussian(sigma=0.5).model_dump()
    configs = [{"kernel": kernel, "dictionary": {"kind": "ald", "threshold": 0.3}, "regularization": a} for a in alphas]
    team = Experts([ExpertSpec(kind="nystrom-ridge", config=config) for config in configs], ())
    assert len(team.units) == 1
    X, y = stream(length * len(stretches))
    cells, rng, told = team.init(2), RoundRng(0), []
    for i, stretch in enumerate(stretches):
        awake, rows = np.array(stretch, dtype=np.float64), slice(i * length, (i + 1) * length)
        rng.begin()
        if in_blocks:
            told.append(team.run(cells, awake, np.zeros((length, 0)), X[rows], y[rows], rows.start + 1, rng))
            continue
        for t in range(rows.start, rows.stop):
            values, rounds = team.play(cells, awake, lags, X[t], y.item(t), t + 1, rng)
            team.learn(cells, rounds)
            told.append(values[None])
    plays = np.repeat(np.array(stretches, dtype=bool), length, axis=0)
    sees = plays.any(axis=1).tolist()
    for i, alpha in enumerate(alphas):
        expected = dense(X, y, 0.5, alpha, 0.3, plays[:, i].tolist(), sees)
        np.testing.assert_allclose(np.vstack(told)[:, i], expected, atol=1e-9)


def test_those_awake_count_as_they_do_in_the_forecast() -> None:
    """They have all weight there: the conditioning was too low by what those at rest have of it."""
    X, y = stream(100)
    learner = create(RESTING, 2)
    learner.run(X, y)
    state, share = learner.state(), 1.0 / len(learner.state()["weights"])
    equal = state | {"weights": np.full_like(state["weights"], share)}
    assert equal["awake"].all()
    alone = equal | {"awake": np.eye(len(state["weights"]))[0]}
    all_awake, one_awake = (restore(learner.spec, arrays, 2).conditioning for arrays in (equal, alone))
    assert one_awake == pytest.approx(all_awake / share)
