"""The packing that learns its metric against the phased algorithm written out, and its state at every round."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.papers.metric_runs import directional_stream, measure
from okl_core import OnlineLearner, create, restore
from okl_core.contract.agreement import close_states, same_arrays, same_rounds
from okl_core.errors import ConfigError, DivergedError, ReplayDivergence, StateFormatError
from okl_core.learners.metric_packing.work_schedule import WorkSchedule
from okl_core.packing.learned_metric import learned_metric
from okl_core.types import F64, Round
from tests.core.packing_streams import ball, lattice, truths
from tests.oracles.metric_packing import delay, phased_packing
from tests.oracles.metric_packing import learned_metric as metric_by_hand

ROUNDS, POINTS = 300, 16
MODES = list(itertools.product((True, False), (True, False)))
"""refeed, spread."""


def learner_of(d: int, **config: Any) -> OnlineLearner:
    return create({"kind": "metric-packing", "config": {"evaluation_points": POINTS, **config}}, d)


def stream(n: int, d: int, seed: int = 0) -> tuple[F64, F64]:
    rng = np.random.default_rng(seed)
    X = ball(n, d, rng)
    return X, truths(X, rng)


def play_all(learner: OnlineLearner, X: F64, y: F64) -> list[Round]:
    rounds = []
    for x, truth in zip(X, y.tolist(), strict=True):
        rounds.append(learner.play(x, truth))
        learner.learn(rounds[-1])
    return rounds


@pytest.mark.pairs
@pytest.mark.parametrize(("refeed", "spread"), MODES)
@pytest.mark.parametrize(("d", "memory"), [(1, 8192), (1, 130), (3, 8192), (3, 130), (17, 130)])
def test_it_is_the_phased_algorithm(d: int, refeed: bool, spread: bool, memory: int) -> None:
    X, y = stream(ROUNDS, d)
    # With alpha = 1 a direction without slopes has the eigenvalue 1 / (n + 1): at t = n + 1 rounding decides the rank.
    config = {"refeed": refeed, "spread": spread, "memory": memory, "metric_regularization": 0.9}
    learner = learner_of(d, **config)
    values = [played.forecast.value for played in play_all(learner, X, y)]
    last = 126 if memory == 130 else ROUNDS

    def late(n: int) -> int:
        return delay(n, d, POINTS, refeed) if spread else 0

    expected = phased_packing(X, y, POINTS, refeed, late, last, 0.9)
    np.testing.assert_allclose(values, expected, rtol=0.0, atol=1e-9)
    blocked = learner_of(d, **config)
    np.testing.assert_allclose(blocked.run(X, y).values, expected, rtol=0.0, atol=1e-9)
    n = max(end for end in (126, 254, 510) if end <= last and end + late(end) <= len(y))
    np.testing.assert_allclose(
        learned_metric(learner), metric_by_hand(X[:n], y[:n], POINTS, alpha=0.9), rtol=0.0, atol=1e-9
    )


def test_parameters_of_the_metric_reach_it() -> None:
    X, y = stream(70, 2)
    learner = learner_of(2, bandwidth=2.0, difference_step=0.4, metric_regularization=0.5, evaluation_points=1000)
    learner.run(X, y)
    expected = metric_by_hand(X[:62], y[:62], 1000, c_eps=2.0, c_tau=0.4, alpha=0.5)
    np.testing.assert_allclose(learned_metric(learner), expected, rtol=0.0, atol=1e-9)
    euclidean = learner_of(2, min_count=80)
    euclidean.run(X, y)
    assert (learned_metric(euclidean) == np.eye(2)).all()


def test_work_is_done_within_an_eighth_of_a_phase() -> None:
    X, y = stream(2200, 2)
    learner = learner_of(2, evaluation_points=100)
    is_working = []
    for x, truth in zip(X, y.tolist(), strict=True):
        learner.update(x, truth)
        is_working.append("successor.n" in learner.state())
    for phase in range(3, 11):
        end, length = 2 ** (phase + 1) - 2, 2 ** (phase + 1)
        working = is_working[end - 1 : end + length - 1]
        assert working[0]
        assert sum(working) <= max(2, length // 8)


@pytest.mark.parametrize(("refeed", "spread"), MODES)
def test_restored_at_every_round_it_continues_bit_for_bit(refeed: bool, spread: bool) -> None:
    X, y = stream(150, 3)
    learner = learner_of(3, refeed=refeed, spread=spread, memory=100)
    again = learner
    for x, truth in zip(X, y.tolist(), strict=True):
        again = restore(learner.spec, again.state(), 3)
        same_rounds(learner.play(x, truth), again.play(x, truth), "a restored learner")
        learner.update(x, truth)
        again.update(x, truth)
        same_arrays(learner.state(), again.state(), "a restored learner")
        assert learner.describe() == pytest.approx({**again.describe(), "bytes": learner.describe()["bytes"]})


@pytest.mark.parametrize(("refeed", "spread"), MODES)
def test_recorded_choices_are_replayed_not_made_again(refeed: bool, spread: bool) -> None:
    X, y = stream(150, 2)
    live, other = (learner_of(2, refeed=refeed, spread=spread) for _ in range(2))
    rounds = play_all(live, X, y)
    # As on a processor whose products differ in the last bits: no test may fall to another side than the recorded one.
    moved = X * (1.0 + 1e-13 * np.random.default_rng(3).standard_normal(X.shape))
    for x, played in zip(moved, rounds, strict=True):
        other.replay(x, played.y, choices=played.choices, value=played.forecast.value)
    close_states(live.state(), other.state() | {"X": live.state()["X"]}, "replayed")


def test_choices_that_cannot_be_are_refused() -> None:
    X, y = stream(40, 2)
    learner = learner_of(2)
    play_all(learner, X[:30], y[:30])
    played = learner.play(X[30], y.item(30))
    before = learner.state()
    # Two for the round, and one for all slopes.
    for choices in (played.choices[:2] + b"\xff" * 20 + b"\x01", b"\x7f" + played.choices[1:], played.choices[:2]):
        with pytest.raises(ReplayDivergence):
            learner.play(X[30], y.item(30), choices=choices)
    same_arrays(before, learner.state(), "a refused replay")


@given(cuts=st.lists(st.integers(0, 300), max_size=6), mode=st.sampled_from(MODES), is_lattice=st.booleans())
def test_a_run_is_its_updates_however_it_is_cut(cuts: list[int], mode: tuple[bool, bool], is_lattice: bool) -> None:
    X, y = stream(300, 3)
    if is_lattice:
        X = lattice(300, 3, np.random.default_rng(1))
    single, learner = (learner_of(3, refeed=mode[0], spread=mode[1], memory=200) for _ in range(2))
    rounds = play_all(single, X, y)
    blocks = [learner.run(X[a:b], y[a:b]) for a, b in itertools.pairwise([0, *sorted(cuts), 300])]
    np.testing.assert_allclose(
        np.concatenate([block.values for block in blocks]), [r.forecast.value for r in rounds], rtol=0.0, atol=1e-9
    )
    assert b"".join(block.choices for block in blocks) == b"".join(r.choices for r in rounds)
    close_states(single.state(), learner.state(), "a run in blocks")


def test_memory_ends_the_phases() -> None:
    X, y = stream(400, 2)
    learner = learner_of(2, memory=100)
    stored = []
    for x, truth in zip(X, y.tolist(), strict=True):
        learner.update(x, truth)
        stored.append(learner.describe()["stored"])
    assert max(stored) <= 62 + 64 / 8
    assert stored[62 + 64 // 8] == 0.0
    seen = learner.describe()
    assert seen["phase"] == 6
    # All rounds are in the packing.
    assert learner.state()["packing.counts"].sum() == 400
    endless = learner_of(2, memory=None)
    endless.run(X, y)
    assert endless.describe()["stored"] == 400
    assert endless.describe()["phase"] == 8


def test_no_prediction_waits_for_the_new_packing() -> None:
    X, y = stream(70, 2)
    learner = learner_of(2)
    play_all(learner, X[:62], y[:62])
    before = learner.state()["packing.metric.root"]
    learner.update(X[62], y.item(62))
    assert (learner.state()["packing.metric.root"] == before).all()
    assert learner.describe()["bytes"] > 0
    at_once = learner_of(2, spread=False)
    play_all(at_once, X[:62], y[:62])
    assert "successor.n" not in at_once.state()
    # What the work leads to is the same, only later.
    play_all(learner, X[63:], y[63:])
    np.testing.assert_array_equal(learned_metric(learner), learned_metric(at_once))


@pytest.mark.parametrize("size", [1e-150, 1e8, 1e150])
def test_rows_of_any_size_do_no_harm(size: float) -> None:
    X, y = stream(140, 2)
    X[::9] *= size
    learner = learner_of(2)
    play_all(learner, X, y)
    learner.run(X, y)
    for array in learner.state().values():
        assert np.isfinite(array).all()


@pytest.mark.parametrize("bandwidth", [1e-100, 1e100])
@pytest.mark.parametrize("difference_step", [1e-100, 1e100])
def test_lengths_of_any_size_do_no_harm(bandwidth: float, difference_step: float) -> None:
    X, y = stream(140, 2)
    learner = learner_of(2, bandwidth=bandwidth, difference_step=difference_step)
    learner.run(X, y)
    assert np.isfinite(learned_metric(learner)).all()


@pytest.mark.parametrize("d", [2, 30])
def test_a_metric_is_positive_definite_however_little_is_added(d: int) -> None:
    X, _ = stream(140, d)
    # Every other direction has an eigenvalue of rounding, which may be below 0.
    learner = learner_of(d, metric_regularization=1e150)
    learner.run(X, 0.5 + 0.5 * np.sin(X[:, 0] + X[:, 1]))
    assert learner.describe()["phase"] == 7
    eigenvalues = np.linalg.eigvalsh(learned_metric(learner))
    assert eigenvalues[0] > 1e-13
    assert eigenvalues[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("high", [1e-200, 1e150])
def test_the_unit_of_the_truths_does_not_matter(high: float) -> None:
    X, y = stream(100, 2)
    learner, scaled = learner_of(2), learner_of(2, truth_range=[0.0, high])
    learner.run(X, y)
    scaled.run(X, high * y)
    np.testing.assert_allclose(learned_metric(scaled), learned_metric(learner), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("refeed", [True, False])
def test_the_memory_told_is_that_of_what_is_kept(refeed: bool) -> None:
    X, y = stream(300, 3)
    learner = learner_of(3, refeed=refeed, memory=130)
    for x, truth in zip(X, y.tolist(), strict=True):
        learner.update(x, truth)
        kept = sum(array.nbytes for array in learner.state().values() if array.ndim)
        assert kept <= learner.describe()["bytes"] <= 2 * kept + 4096


def test_an_input_that_the_next_metric_could_not_take_is_refused() -> None:
    X, y = stream(80, 2)
    learner = learner_of(2)
    play_all(learner, X[:60], y[:60])
    before = learner.state()
    huge = np.array([3e153, 0.0])
    for call in (
        lambda: learner.predict(huge),
        lambda: learner.update(huge, 0.5),
        lambda: learner.run(np.stack((X[60], huge)), np.array([0.5, 0.5])),
    ):
        with pytest.raises(DivergedError, match="scale it down"):
            call()
    same_arrays(before, learner.state(), "a refused input")


def test_truths_that_are_all_the_same_teach_no_metric() -> None:
    X, _ = stream(300, 3)
    learner = learner_of(3)
    learner.run(X, np.full(300, 0.1))
    assert (learned_metric(learner) == np.eye(3)).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"memory": 1}, "memory"),
        ({"memory": 10**400}, "memory"),
        ({"evaluation_points": 0}, "evaluation_points"),
        ({"min_count": 0}, "min_count"),
        ({"min_count": "printed"}, "min_count"),
        ({"metric_regularization": 0.0}, "metric_regularization"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"truth_range": [1.0, 0.0]}, "truth_range"),
    ],
)
def test_configs_that_cannot_work_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        learner_of(2, **config)


def test_damaged_work_is_refused() -> None:
    X, y = stream(70, 2)
    learner = learner_of(2)
    play_all(learner, X[:31], y[:31])
    arrays = learner.state()
    assert arrays["successor.v"].shape == (15, 2)
    for damage in (
        {"successor.v": np.zeros(30)},
        {"successor.n": np.array(31.0)},
        {"successor.v": np.zeros((3, 5))},
        {"successor.n": np.array(300.0)},
        {"X": arrays["X"][:-1]},
        {"y": arrays["y"][:-1]},
        {"X": arrays["X"][:, :1]},
        {"X": arrays["X"][0]},
        {"t": np.array(36.0)},
    ):
        with pytest.raises(StateFormatError):
            restore(learner.spec, arrays | damage, 2)


@pytest.mark.parametrize(
    ("d", "directions", "restart", "refeed"), [(5, 1, 40.0, 22.0), (10, 1, 40.0, 40.0), (10, 2, 65.0, 65.0)]
)
def test_few_directions_cost_few_errors(d: int, directions: int, restart: float, refeed: float) -> None:
    stream = directional_stream(8190, d, directions, seed=0)
    euclidean = measure(stream, "packing", {})
    empty = measure(stream, "metric-packing", {"refeed": False})
    full = measure(stream, "metric-packing", {})
    assert empty.regret <= restart
    assert full.regret <= refeed
    assert full.regret < empty.regret < euclidean.regret / 3.0
    assert min(empty.cosine, full.cosine) >= 0.95


@pytest.mark.parametrize(("dim", "slopes_a_round"), [(1, 8), (16, 124), (17, 17)])
def test_slopes_are_measured_in_fewer_rounds_up_to_16_inputs(dim: int, slopes_a_round: int) -> None:
    # 31 d slopes in 64 / 16 of the next 64 rounds, or in half of them.
    assert WorkSchedule.after(62, 31, dim).slopes_a_round == slopes_a_round


@pytest.mark.parametrize("dim", [1, 2, 16, 17, 300])
@pytest.mark.parametrize("points", [1, 16, 2048])
def test_the_schedule_ends_before_the_next_phase_does(dim: int, points: int) -> None:
    for phase in range(1, 16):
        n, end = 2 ** (phase + 1) - 2, 2 ** (phase + 2) - 2
        schedule = WorkSchedule.after(n, min(n, points), dim)
        known, done = schedule.metric_known, schedule.replay_done
        assert n < known < done < end
        measured = [schedule.measured(t) for t in range(n, known + 1)]
        assert (measured[0], measured[-1]) == (0, schedule.slopes)
        assert measured == sorted(set(measured))
        assert schedule.replayed(known) == 0
        assert schedule.replayed(done - 1) < done - 1
        assert schedule.replayed(done) == done
