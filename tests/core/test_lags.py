"""`lags: k`: the learner of d + k inputs that somebody feeds by hand with the truths before each round."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from okl_core import OnlineLearner, create, parse_spec, register, resolve, restore
from okl_core.contract.subject import small_stream
from okl_core.errors import (
    ConfigError,
    DivergedError,
    InputError,
    LabelError,
    NonFiniteError,
    ReplayDivergence,
    ShapeError,
    StateFormatError,
)
from okl_core.types import F64
from tests.contract.broken import Sleepy

GAUSSIAN = {"kind": "gaussian", "sigma": 0.8}
SPECS: dict[str, dict[str, Any]] = {
    "numbers": {"kind": "kons", "config": {"kernel": GAUSSIAN, "clip": 2.0}},
    "labels": {"kind": "kons", "config": {"kernel": GAUSSIAN, "loss": "logistic"}},
    "choices": {"kind": "pomdr", "config": {"kernel": GAUSSIAN, "budget": 20, "pomd_budget": 6, "window": 4}},
}
D, ROUNDS = 2, 70
KS = [1, 3, 64]

over_specs = pytest.mark.parametrize("name", SPECS)


def stream(name: str) -> tuple[F64, F64]:
    _, learner, config = parse_spec(SPECS[name])
    return small_stream(learner.target(config), learner.truth_range(config), D, ROUNDS)


def lags_by_hand(truths: list[float], k: int) -> list[float]:
    """The last k of the truths, newest first, and zeros for those that there are not."""
    return [truths[-i] if i <= len(truths) else 0.0 for i in range(1, k + 1)]


def fed_by_hand(name: str, k: int) -> tuple[OnlineLearner, list[float]]:
    """A learner of d + k inputs after the stream, and what it said."""
    learner = create(SPECS[name], D + k)
    X, y = stream(name)
    values = [
        learner.update(np.array([*x, *lags_by_hand(y[:t].tolist(), k)]), y.item(t)).forecast.value
        for t, x in enumerate(X)
    ]
    return learner, values


def state_without_lags(learner: OnlineLearner) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in learner.state().items() if name not in ("dim", "lags")}


@over_specs
@pytest.mark.parametrize("k", KS)
def test_each_round_is_given_the_last_truths(name: str, k: int) -> None:
    expected, values = fed_by_hand(name, k)
    learner = create(SPECS[name] | {"lags": k}, D)
    X, y = stream(name)
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        assert learner.lags.tolist() == lags_by_hand(y[:t].tolist(), k)
        assert learner.predict(x).value == values[t]
        assert learner.update(x, truth).forecast.value == values[t]
    assert state_without_lags(learner) == state_without_lags(expected)
    assert learner.state()["lags"].tolist() == lags_by_hand(y.tolist(), k)
    assert learner.describe() == expected.describe()
    assert learner.nbytes == expected.nbytes + 8 * k


@over_specs
@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("cuts", [[0, ROUNDS], [0, 0, 1, 3, 50, ROUNDS]], ids=["one block", "blocks"])
def test_a_block_makes_its_own(name: str, k: int, cuts: list[int]) -> None:
    expected, values = fed_by_hand(name, k)
    learner = create(SPECS[name] | {"lags": k}, D)
    X, y = stream(name)
    said, choices = [], b""
    for start, end in pairwise(cuts):
        info = learner.run(X[start:end], y[start:end])
        said += info.values.tolist()
        choices += info.choices
    assert said == pytest.approx(values, rel=1e-9, abs=1e-9)
    for part, array in (expected.state() | {"dim": np.array(float(learner.dim))}).items():
        np.testing.assert_allclose(learner.state()[part], array, rtol=1e-9, atol=1e-9)
    again = create(SPECS[name] | {"lags": k, "seed": 9}, D)
    again.run(X, y, choices=choices)
    assert again.lags.tolist() == learner.lags.tolist() == lags_by_hand(y.tolist(), k)


@over_specs
@settings(max_examples=25)
@given(data=st.data())
def test_late_truths_in_any_order(name: str, data: st.DataObject) -> None:
    """A forecast sees what was learned when it was made, and its round is learned from just that, whenever that is."""
    k = data.draw(st.integers(1, 4))
    learner, by_hand = create(SPECS[name] | {"lags": k}, D), create(SPECS[name], D + k)
    X, y = stream(name)
    learned: list[float] = []
    waiting: list[tuple[int, F64, list[float]]] = []
    for row in range(20):
        forecast = learner.predict(X[row])
        inputs = [*X[row], *lags_by_hand(learned, k)]
        assert forecast == by_hand.predict(np.array(inputs))
        waiting.append((row, learner.lags, inputs))
        for _ in range(data.draw(st.integers(0, min(2, len(waiting))))):
            t, lags, inputs = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            truth = y.item(t)
            assert learner.update(X[t], truth, lags=lags) == by_hand.update(np.array(inputs), truth)
            learned.append(truth)
    assert learner.lags.tolist() == lags_by_hand(learned, k)
    assert state_without_lags(learner) == state_without_lags(by_hand)


@over_specs
def test_a_block_of_late_rounds(name: str) -> None:
    X, y = stream(name)
    lags = np.random.default_rng(3).permutation(np.lib.stride_tricks.sliding_window_view(y, 2))[: ROUNDS - 1]
    single, block = create(SPECS[name] | {"lags": 2}, D), create(SPECS[name] | {"lags": 2}, D)
    values = [single.update(X[t], y.item(t), lags=lags[t]).forecast.value for t in range(ROUNDS - 1)]
    info = block.run(X[:-1], y[:-1], lags=lags)
    assert info.values.tolist() == pytest.approx(values, rel=1e-9, abs=1e-9)
    assert block.lags.tolist() == single.lags.tolist() == [y[-2], y[-3]]


@over_specs
def test_a_restored_learner_goes_on_bit_for_bit(name: str) -> None:
    spec = SPECS[name] | {"lags": 3}
    X, y = stream(name)
    learner = create(spec, D)
    learner.run(X[:40], y[:40])
    again = restore(spec, learner.state(), D)
    for x, truth in zip(X[40:], y[40:].tolist(), strict=True):
        assert again.update(x, truth) == learner.update(x, truth)
    assert again.state().keys() == learner.state().keys()
    assert all(array.tobytes() == again.state()[name].tobytes() for name, array in learner.state().items())


@over_specs
def test_a_recorded_late_round_replays(name: str) -> None:
    live, again = create(SPECS[name] | {"lags": 2}, D), create(SPECS[name] | {"lags": 2, "seed": 5}, D)
    X, y = stream(name)
    lags = live.lags
    for t in range(ROUNDS):
        played = live.play(X[t], y.item(t), lags=lags)
        live.learn(played)
        value, choices = played.forecast.value, played.choices
        again.replay(X[t], y.item(t), choices=choices, value=value, lags=lags)
        if t % 3 == 0:
            lags = live.lags
    assert state_without_lags(live) == state_without_lags(again)
    played = live.play(X[0], y.item(0), lags=lags)
    with pytest.raises(ReplayDivergence):
        again.replay(X[0], y.item(0), choices=played.choices, value=played.forecast.value, lags=lags * 0.0)


def test_without_lags_nothing_is_kept() -> None:
    learner = create(SPECS["numbers"] | {"lags": 0}, D)
    learner.update(np.zeros(D), 1.0)
    assert len(learner.lags) == 0
    assert "lags" not in learner.state()
    assert learner.nbytes == learner.describe()["bytes"]


def test_lags_are_not_to_be_written_to() -> None:
    learner = create({"kind": "mean", "lags": 2}, D)
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            learner.lags[0] = 1.0
        learner.update(np.zeros(D), 1.0)
    mine = np.array([3.0, 4.0])
    again = restore({"kind": "mean", "lags": 2}, learner.state() | {"lags": mine}, D)
    mine[:] = 0.0
    learner.state()["lags"][:] = 7.0
    assert again.lags.tolist() == [3.0, 4.0]
    assert learner.lags.tolist() == [1.0, 1.0]


class TestMedian:
    SPEC: ClassVar[dict[str, Any]] = {"kind": "kons", "lags": 2, "config": {"kernel": GAUSSIAN | {"sigma": "median"}}}

    def test_it_is_that_of_inputs_and_lags(self) -> None:
        X, y = stream("numbers")
        rows = np.array([[*x, *lags_by_hand(y[:t].tolist(), 2)] for t, x in enumerate(X)])
        expected = pytest.approx(np.median(pdist(rows)[pdist(rows) > 0.0]), rel=1e-12)
        resolved = resolve(self.SPEC, X, y)
        assert resolved.config["kernel"]["sigma"] == expected
        assert resolved.lags == 2
        assert resolve(self.SPEC, X, lags=rows[:, D:]) == resolved
        assert resolve(resolved, X) == resolved

    def test_it_needs_the_truths(self) -> None:
        X, y = stream("numbers")
        for arguments in ({}, {"y": y[:-1]}, {"lags": np.zeros((ROUNDS, 3))}):
            with pytest.raises(ShapeError) as caught:
                resolve(self.SPEC, X, **arguments)
            assert caught.value.field == "y"


class TestBorder:
    @pytest.mark.parametrize("lags", [-1, 65, 1.5, "3", True, None])
    def test_the_number_of_lags(self, lags: Any) -> None:
        with pytest.raises(ConfigError, match="lags") as caught:
            create({"kind": "mean", "lags": lags}, D)
        assert [path for path, _ in caught.value.errors] == [("lags",)]
        create({"kind": "mean", "lags": 64}, D)

    @pytest.mark.parametrize("k", [3, 4])
    def test_a_metric_has_room_for_fewer_lags_than_its_size(self, k: int) -> None:
        spec = {"kind": "kernel-ridge", "config": {"kernel": GAUSSIAN | {"metric": np.eye(3).tolist()}}}
        create(spec | {"lags": 2}, 1)
        with pytest.raises(
            ConfigError, match="lags are inputs too: with x they are 3, so there is room for 2"
        ) as caught:
            parse_spec(spec | {"lags": k})
        assert [path for path, _ in caught.value.errors] == [("lags",)]

    def test_messages_speak_of_the_inputs_of_the_user(self) -> None:
        learner = create({"kind": "mean", "lags": 3}, D)
        with pytest.raises(ShapeError, match=r"shape \(5,\), this learner takes \(2,\)"):
            learner.predict(np.zeros(D + 3))
        with pytest.raises(ShapeError, match=r"takes \(n, 2\)"):
            learner.run(np.zeros((4, D + 3)), np.zeros(4))
        with pytest.raises(NonFiniteError, match=r"x\[1\]"):
            learner.update(np.array([0.0, np.nan]), 1.0)
        with pytest.raises(NonFiniteError, match=r"X\[1\]\[0\]"):
            learner.run(np.array([[0.0, 0.0], [np.inf, 0.0]]), np.zeros(2))

    @pytest.mark.parametrize(
        ("spec", "lags", "error"),
        [
            ({"kind": "mean", "lags": 2}, [0.0], ShapeError),
            ({"kind": "mean", "lags": 2}, [[0.0, 0.0]], ShapeError),
            ({"kind": "mean"}, [0.0], ShapeError),
            ({"kind": "mean", "lags": 2}, [0.0, np.nan], LabelError),
            ({"kind": "mean", "lags": 2}, [1e151, 0.0], LabelError),
            ({"kind": "majority", "lags": 2}, [0.5, 0.0], LabelError),
            (SPECS["numbers"] | {"lags": 2}, [2.1, 0.0], LabelError),
        ],
        ids=str,
    )
    def test_lags_handed_back(self, spec: dict[str, Any], lags: list[float], error: type[InputError]) -> None:
        learner = create(spec, D)
        for call in (
            lambda: learner.predict(np.zeros(D), lags=np.array(lags)),
            lambda: learner.update(np.zeros(D), 1.0, lags=np.array(lags)),
            lambda: learner.run(np.zeros((1, D)), np.ones(1), lags=np.array([lags])),
        ):
            with pytest.raises(error) as caught:
                call()
            assert caught.value.field == "lags"
        assert learner.t == 0

    def test_no_lags_may_be_handed_back_to_a_learner_without(self) -> None:
        learner = create({"kind": "mean"}, D)
        learner.update(np.zeros(D), 3.0, lags=learner.lags)
        learner.run(np.zeros((2, D)), np.full(2, 3.0), lags=np.empty((2, 0)))
        assert learner.predict(np.zeros(D), lags=learner.lags).value == 3.0

    def test_a_truth_that_could_not_be_an_input_is_refused(self) -> None:
        learner = create({"kind": "mean", "lags": 64}, D)
        for y in (1.1e150, -1e200):
            with pytest.raises(LabelError):
                learner.update(np.zeros(D), y)
            with pytest.raises(LabelError):
                learner.run(np.zeros((2, D)), np.array([0.0, y]))
        learner.run(np.zeros((65, D)), np.full(65, 1e150))
        learner.update(np.full(D, 1e153), -1e150)

    @pytest.mark.parametrize(
        "lags", [None, np.zeros(3), np.zeros((1, 2)), np.array([0.5, 1.0]), np.array([1.0, np.nan]), np.array([])]
    )
    def test_another_state_is_refused(self, lags: F64 | None) -> None:
        spec = {"kind": "majority", "lags": 2}
        arrays = create(spec, D).state()
        del arrays["lags"]
        with pytest.raises(StateFormatError, match="lags"):
            restore(spec, arrays if lags is None else arrays | {"lags": lags}, D)
        with pytest.raises(StateFormatError, match="lags"):
            restore({"kind": "majority"}, arrays | {"lags": np.zeros(2)}, D)


@pytest.fixture
def tired(own_registry: None) -> None:
    """A learner that fails in round 5."""

    class Tired(Sleepy):
        kind = "tired"

        def play(self, config: Any, state: Any, x: F64, y: float, rng: Any) -> Any:
            if state.t == 4:
                raise DivergedError("round 5 is too much")
            return super().play(config, state, x, y, rng)

    register(Tired)


@pytest.mark.usefixtures("tired")
def test_a_run_that_fails_keeps_the_lags_of_what_it_learned() -> None:
    learner = create({"kind": "tired", "lags": 3}, D)
    y = np.array([1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    with pytest.raises(DivergedError):
        learner.run(np.zeros((6, D)), y)
    assert learner.t == 4
    assert learner.lags.tolist() == [1.0, -1.0, -1.0]
    with pytest.raises(DivergedError):
        learner.update(np.zeros(D), 1.0)
    assert learner.lags.tolist() == [1.0, -1.0, -1.0]
