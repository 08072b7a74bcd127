"""Frozen learners against learners replayed to their round, and the reservoir against a coin in every round."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from scipy.stats import chisquare

from okl_core import FrozenLearner, OnlineLearner, ReservoirLearner, create, freeze, learner_kinds, register, restore
from okl_core.contract.frozen import RESERVOIR, FreezeRule
from okl_core.contract.learner import LearnerSpec
from okl_core.contract.rng import RoundRng
from okl_core.contract.subject import make_subject
from okl_core.errors import (
    ConfigError,
    DivergedError,
    FrozenError,
    LabelError,
    NonFiniteError,
    ReplayDivergence,
    ShapeError,
    StateError,
    StateFormatError,
)
from okl_core.types import F64
from tests.contract.broken import Sleepy

GAUSSIAN = {"kind": "gaussian", "sigma": 0.8}
SPECS: dict[str, dict[str, Any]] = {
    "mean": {"kind": "mean"},
    "kons": {"kind": "kons", "config": {"kernel": GAUSSIAN, "clip": 2.0}},
    "choices": {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 20, "pomd_budget": 6, "window": 4}},
    "coins": {"kind": "sketched-kons", "config": {"kernel": GAUSSIAN, "loss": "logistic", "oversampling": 1.0}},
    "lags": {"kind": "pomdr", "lags": 3, "config": {"kernel": GAUSSIAN, "budget": 20}},
}
D, ROUNDS = 3, 150
over_specs = pytest.mark.parametrize("name", SPECS)


def stream(name: str) -> tuple[F64, F64]:
    subject = make_subject(SPECS[name]["kind"], SPECS[name].get("config"), dim=D, rounds=ROUNDS)
    return subject.X, subject.y


def spec_of(name: str, seed: int = 0) -> LearnerSpec:
    return LearnerSpec.model_validate(SPECS[name] | {"seed": seed})


def after(spec: LearnerSpec, X: F64, y: F64, t: int) -> OnlineLearner:
    """A learner that has learned the first t rounds one by one."""
    learner = create(spec, X.shape[1])
    for x, truth in zip(X[:t], y[:t].tolist(), strict=True):
        learner.update(x, truth)
    return learner


def bytes_of(state: dict[str, F64]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.items()}


def without_bytes(numbers: dict[str, float]) -> dict[str, float]:
    """A restored learner may have other reserves."""
    return {name: value for name, value in numbers.items() if name != "bytes"}


def own_part(learner: ReservoirLearner) -> dict[str, bytes]:
    return {name: data for name, data in bytes_of(learner.state()).items() if not name.startswith(RESERVOIR)}


# -- which round is drawn ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [2, 7, 30])
def test_every_round_is_drawn_as_often(T: int) -> None:
    seeds = 900
    X, y = np.zeros((T, 1)), np.arange(1.0, T + 1.0)
    counts = np.zeros(T)
    for seed in range(seeds):
        learner = ReservoirLearner.create({"kind": "last-label", "seed": seed}, 1)
        learner.run(X, y)
        frozen = freeze(learner, "uniform")
        # The state before round r has seen r - 1 as its last truth.
        assert frozen.predict(X[0]).value == frozen.t == learner.kept_round - 1
        counts[frozen.t] += 1
    assert counts.sum() == seeds
    assert chisquare(counts).pvalue > 1e-4


def test_the_next_round_kept_is_one_over_t() -> None:
    """The jumps are the coins: round t takes the place of the one kept with probability 1 / t, independently."""
    seeds, T = 900, 16
    kept = np.zeros((seeds, T), dtype=bool)
    for seed in range(seeds):
        learner = ReservoirLearner.create({"kind": "mean", "seed": seed}, 1)
        for t in range(T):
            learner.update(np.zeros(1), 0.0)
            kept[seed, t] = learner.kept_round == t + 1
    expected = 1.0 / np.arange(1, T + 1)
    deviation = np.sqrt(expected * (1.0 - expected) / seeds)
    assert (np.abs(kept.mean(axis=0) - expected) <= 4.5 * deviation).all()
    both = (kept[:, 3] & kept[:, 9]).mean()
    assert both == pytest.approx(1 / 40, abs=4.5 * math.sqrt(1 / 40 / seeds))


def test_the_draw_depends_on_the_seed_and_the_number_of_rounds_alone() -> None:
    kept = []
    for name in ("mean", "kons"):
        X, y = stream(name)
        learner = ReservoirLearner.create(spec_of(name, seed=5), D)
        kept.append([])
        for x, truth in zip(X, y.tolist(), strict=True):
            learner.update(x, truth)
            kept[-1].append(learner.kept_round)
    assert kept[0] == kept[1]
    assert len(set(kept[0])) > 2


# -- the kept state ---------------------------------------------------------------------------------------------------


@over_specs
@pytest.mark.parametrize("seed", range(4))
def test_the_frozen_predictor_is_the_learner_at_that_round(name: str, seed: int) -> None:
    spec, (X, y) = spec_of(name, seed), stream(name)
    learner, plain = ReservoirLearner.create(spec, D), create(spec, D)
    for x, truth in zip(X, y.tolist(), strict=True):
        assert learner.predict(x) == plain.predict(x)
        assert learner.update(x, truth) == plain.update(x, truth)
    frozen = freeze(learner, "uniform")
    expected = after(spec, X, y, learner.kept_round - 1)
    assert bytes_of(frozen.state()) == bytes_of(expected.state())
    assert [frozen.predict(x) for x in X] == [expected.predict(x) for x in X]
    assert (frozen.t, frozen.lags.tolist()) == (expected.t, expected.lags.tolist())
    assert without_bytes(frozen.describe()) == without_bytes(expected.describe())
    assert own_part(learner) == bytes_of(plain.state())
    assert learner.describe() == plain.describe() | {"kept_round": learner.kept_round}
    kept = sum(array.nbytes for array in expected.state().values())
    assert learner.nbytes == plain.nbytes + kept


@pytest.mark.parametrize("kind", learner_kinds())
def test_every_learner_has_a_reservoir(kind: str) -> None:
    subject = make_subject(kind, rounds=60)
    spec, dim = subject.spec.model_copy(update={"seed": 1}), subject.dim
    single, block = ReservoirLearner.create(spec, dim), ReservoirLearner.create(spec, dim)
    block.run(subject.X, subject.y)
    for x, truth in subject.rounds():
        single.update(x, truth)
    expected = after(spec, subject.X, subject.y, single.kept_round - 1)
    assert bytes_of(freeze(single, "uniform").state()) == bytes_of(expected.state())
    frozen = freeze(block, "uniform")
    for x in subject.X:
        assert frozen.predict(x).value == pytest.approx(expected.predict(x).value, rel=1e-9, abs=1e-9)
    again = ReservoirLearner.restore(spec, block.state(), dim)
    assert bytes_of(again.state()) == bytes_of(block.state())


@over_specs
def test_the_last_state(name: str) -> None:
    spec, (X, y) = spec_of(name), stream(name)
    plain, learner = create(spec, D), ReservoirLearner.create(spec, D)
    for one in (plain, learner):
        one.run(X[:100], y[:100])
        frozen = freeze(one)
        before, said = bytes_of(frozen.state()), [frozen.predict(x) for x in X]
        assert said == [one.predict(x) for x in X]
        one.run(X[100:], y[100:])
        assert bytes_of(frozen.state()) == before
        assert [frozen.predict(x) for x in X] == said
        assert (frozen.t, frozen.rule) == (100, "last")


@over_specs
@pytest.mark.parametrize("cuts", [[0, ROUNDS], [0, 0, 1, 2, 40, 41, ROUNDS]], ids=["one block", "blocks"])
def test_blocks_keep_the_same_round(name: str, cuts: list[int]) -> None:
    spec, (X, y) = spec_of(name, seed=1), stream(name)
    single, block = ReservoirLearner.create(spec, D), ReservoirLearner.create(spec, D)
    infos = [single.update(x, truth) for x, truth in zip(X, y.tolist(), strict=True)]
    blocks = [block.run(X[i:j], y[i:j]) for i, j in pairwise(cuts)]
    np.testing.assert_allclose(
        np.concatenate([info.values for info in blocks]), [i.forecast.value for i in infos], rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        np.concatenate([info.losses for info in blocks]), [i.loss for i in infos], rtol=1e-9, atol=1e-9
    )
    assert [info.t for info in blocks] == cuts[1:]
    has_probability = infos[-1].forecast.probability is not None
    assert all((info.probabilities is not None) == has_probability for info in blocks if len(info.values))
    assert block.kept_round == single.kept_round
    state = block.state()
    assert state.keys() == single.state().keys()
    for part, array in single.state().items():
        np.testing.assert_allclose(state[part], array, rtol=1e-9, atol=1e-9)


@over_specs
def test_recorded_rounds_and_blocks_replay(name: str) -> None:
    """With the reservoir's coins of its own seed, and the learner's choices as they were recorded."""
    spec, (X, y) = spec_of(name, seed=3), stream(name)
    live, again = ReservoirLearner.create(spec, D), ReservoirLearner.create(spec, D)
    for x, truth in zip(X[:30], y[:30].tolist(), strict=True):
        before = bytes_of(live.state())
        played = live.play(x, truth)
        assert bytes_of(live.state()) == before
        live.learn(played)
        again.replay(x, truth, choices=played.choices, value=played.forecast.value)
    assert bytes_of(again.state()) == bytes_of(live.state())
    info = live.run(X[30:], y[30:])
    repeated = again.run(X[30:], y[30:], choices=info.choices)
    assert repeated.choices == info.choices
    assert bytes_of(again.state()) == bytes_of(live.state())


def test_choices_of_another_block_do_not_replay() -> None:
    spec, (X, y) = spec_of("choices"), stream("choices")
    choices = ReservoirLearner.create(spec, D).run(X, y).choices
    for wrong in (b"", choices[:2], choices[:-1], choices + b"\0"):
        with pytest.raises(ReplayDivergence):
            ReservoirLearner.create(spec, D).run(X, y, choices=wrong)


@over_specs
@pytest.mark.parametrize("rounds", [0, 1, 60])
def test_a_restored_reservoir_goes_on_bit_for_bit(name: str, rounds: int) -> None:
    spec, (X, y) = spec_of(name, seed=2), stream(name)
    live = ReservoirLearner.create(spec, D)
    live.run(X[:rounds], y[:rounds])
    again = ReservoirLearner.restore(spec, live.state(), D)
    assert bytes_of(again.state()) == bytes_of(live.state())
    for x, truth in zip(X[rounds:], y[rounds:].tolist(), strict=True):
        assert again.update(x, truth) == live.update(x, truth)
    assert again.kept_round == live.kept_round
    assert bytes_of(again.state()) == bytes_of(live.state())


def test_late_truths_in_a_block_with_lags() -> None:
    spec, (X, y) = spec_of("lags"), stream("lags")
    lags = np.where(np.random.default_rng(0).random((ROUNDS, 3)) < 0.5, 1.0, -1.0)
    single, block = ReservoirLearner.create(spec, D), ReservoirLearner.create(spec, D)
    values = [single.update(X[t], y.item(t), lags=lags[t]).forecast.value for t in range(ROUNDS)]
    assert block.run(X, y, lags=lags).values.tolist() == pytest.approx(values, rel=1e-9, abs=1e-9)
    assert block.lags.tolist() == single.lags.tolist()
    frozen = freeze(block, "uniform")
    assert frozen.predict(X[0], lags=lags[0]) == block.kept().predict(X[0], lags=lags[0])


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_bad_row_changes_nothing() -> None:
    spec, (X, y) = spec_of("choices"), stream("choices")
    learner = ReservoirLearner.create(spec, D)
    learner.run(X[:10], y[:10])
    before = bytes_of(learner.state())
    (
        bad_x,
        bad_y,
    ) = X.copy(), y.copy()
    bad_x[-1, 0], bad_y[-1] = math.nan, 0.5
    for error, arguments in ((NonFiniteError, (bad_x, y)), (LabelError, (X, bad_y)), (ShapeError, (X[:, :2], y))):
        with pytest.raises(error):
            learner.run(*arguments)
        assert bytes_of(learner.state()) == before
    with pytest.raises(ShapeError):
        learner.run(X, y, lags=np.zeros((3, 0)))
    for x, truth, error in ((bad_x[-1], 1.0, NonFiniteError), (X[0], 0.5, LabelError)):
        with pytest.raises(error):
            learner.update(x, truth)
    assert bytes_of(learner.state()) == before


class Tired(Sleepy):
    """Learns ten rounds of a block, and fails at the eleventh."""

    kind: ClassVar[str] = "tired"

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        if state.t == 10:
            raise DivergedError("round 11 is too much")
        return super().play(config, state, x, y, rng)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("seed", range(8))
def test_a_block_that_fails_keeps_what_belongs_to_the_rounds_it_learned(seed: int) -> None:
    register(Tired)
    spec = LearnerSpec(kind="tired", seed=seed)
    X, y = np.random.default_rng(seed).normal(size=(15, D)), np.ones(15)
    block, single = ReservoirLearner.create(spec, D), ReservoirLearner.create(spec, D)
    with pytest.raises(DivergedError):
        block.run(X, y)
    for t in range(10):
        single.update(X[t], y[t])
    assert block.t == 10
    assert bytes_of(block.state()) == bytes_of(single.state())
    before = bytes_of(single.state())
    with pytest.raises(DivergedError):
        single.update(X[10], y[10])
    assert bytes_of(single.state()) == before


def test_a_frozen_learner_learns_nothing() -> None:
    learner = create({"kind": "mean"}, 1)
    played = learner.play(np.zeros(1), 1.0)
    frozen = freeze(learner)
    before = bytes_of(frozen.state())
    for refuse in (
        lambda: frozen.update(np.zeros(1), 1.0),
        lambda: frozen.play(np.zeros(1), 1.0),
        lambda: frozen.learn(played),
        lambda: frozen.run(np.zeros((1, 1)), np.zeros(1)),
        lambda: frozen.replay(np.zeros(1), 1.0, choices=b"", value=0.0),
    ):
        with pytest.raises(FrozenError, match="frozen"):
            refuse()
    assert bytes_of(frozen.state()) == before
    again = FrozenLearner(restore(frozen.spec, frozen.state(), frozen.dim))
    assert again.predict(np.zeros(1)) == frozen.predict(np.zeros(1))


def test_there_must_be_something_to_draw() -> None:
    learner = create({"kind": "mean"}, 1)
    with pytest.raises(StateError, match="ReservoirLearner"):
        freeze(learner, "uniform")
    with pytest.raises(StateError, match="no round"):
        freeze(ReservoirLearner.create({"kind": "mean"}, 1), "uniform")
    with pytest.raises(ConfigError, match="median"):
        freeze(learner, cast(FreezeRule, "median"))
    learner.update(np.zeros(1), 1.0)
    with pytest.raises(StateError, match="without it"):
        ReservoirLearner(learner)


def test_a_state_of_anything_else_is_refused() -> None:
    spec, (X, y) = spec_of("kons"), stream("kons")
    learner = ReservoirLearner.create(spec, D)
    learner.run(X[:40], y[:40])
    state = learner.state()
    wrong = [
        learner.learner.state(),
        state | {f"{RESERVOIR}round": np.array(float(learner.kept_round + 1))},
        state | {f"{RESERVOIR}round": np.zeros(2)},
        {name: array for name, array in state.items() if name != f"{RESERVOIR}t"},
        {n: a for n, a in state.items() if not n.startswith(RESERVOIR)} | {f"{RESERVOIR}round": np.array(0.0)},
        ReservoirLearner.create(spec, D).state()
        | {name: array for name, array in state.items() if name.startswith(RESERVOIR)},
    ]
    for arrays in wrong:
        with pytest.raises(StateFormatError):
            ReservoirLearner.restore(spec, arrays, D)


# -- what it is for ---------------------------------------------------------------------------------------------------


def test_its_expected_loss_is_the_mean_loss_of_the_rounds() -> None:
    """Over many streams of one distribution; what it will lose on a new draw is known here."""
    T, streams = 20, 600
    uniform, last, rounds = np.empty(streams), np.empty(streams), np.empty(streams)
    for seed in range(streams):
        y = 1.0 + np.random.default_rng(seed).normal(size=T)
        learner = ReservoirLearner.create({"kind": "mean", "seed": seed}, 1)
        rounds[seed] = learner.run(np.zeros((T, 1)), y).losses.mean()
        risks: list[tuple[FreezeRule, F64]] = [("uniform", uniform), ("last", last)]
        for rule, expected in risks:
            value = freeze(learner, rule).predict(np.zeros(1)).value
            expected[seed] = (value - 1.0) ** 2 + 1.0
    spread = 4.0 * float(np.std(uniform - rounds)) / math.sqrt(streams)
    assert abs(float(np.mean(uniform - rounds))) < spread
    # The test sees the difference to the other rule, which is the better one here.
    assert float(np.mean(rounds - last)) > spread


@over_specs
def test_a_copied_reservoir_goes_on_bit_for_bit_and_apart(name: str) -> None:
    spec, (X, y) = spec_of(name, seed=2), stream(name)
    live = ReservoirLearner.create(spec, D)
    live.run(X[:60], y[:60])
    before = bytes_of(live.state())
    copied, other = live.copy(), live.copy()
    other.run(X[60:], y[60:])
    assert bytes_of(live.state()) == bytes_of(copied.state()) == before
    for x, truth in zip(X[60:], y[60:].tolist(), strict=True):
        assert copied.update(x, truth) == live.update(x, truth)
    assert bytes_of(copied.state()) == bytes_of(live.state())
    assert (copied.kept_round, other.kept_round) == (live.kept_round, live.kept_round)
    frozen = freeze(live)
    assert frozen.copy() is frozen
