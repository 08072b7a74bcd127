"""States that no learner can have: `restore` refuses them, whatever is wrong, and a round never meets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from okl_core import OnlineLearner, ReservoirLearner, create, restore
from okl_core.errors import DivergedError, StateFormatError
from okl_core.types import Stored

SMALL = {"budget": 6}
RELEVANCE = {"kind": "relevance", "smooth": [1.0, 1.0], "steps": [0.5, 0.5], "pairs": [0.5, 0.5]}
AUTO_CLASSES = {"truth": "classes", "relevance": RELEVANCE}
AUTO_NUMBERS = {"truth": "numbers", "relevance": RELEVANCE}
METRIC = {"kind": "gaussian", "sigma": 1.0, "metric": [[1.0, 0.0], [0.0, 2.0]]}


def taught(kind: str, config: dict[str, Any], rounds: int = 12) -> OnlineLearner:
    """A learner that has met a few rounds; inputs and truths are such that any learner takes them."""
    rng = np.random.default_rng(0)
    learner = create({"kind": kind, "config": config}, 1 if kind == "foster-1d" else 2)
    X = 0.5 * np.tanh(rng.normal(size=(rounds, learner.dim)))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    if learner.target == "class" or "packing" in kind:
        y = (y > 0.0) * 1.0
        y[:2] = 0.0, 1.0
    learner.run(X, y)
    return learner


def refused(learner: OnlineLearner, name: str, made_up: Stored, match: str | None = None) -> None:
    arrays = learner.state()
    assert name in arrays
    with pytest.raises(StateFormatError, match=match):
        restore(learner.spec, arrays | {name: made_up}, learner.dim)


@pytest.mark.parametrize(
    ("kind", "config", "name"),
    [
        ("nogd", SMALL, "w"),
        ("ftrl-logistic", {}, "theta"),
        ("ogd-logistic", {}, "theta"),
        ("bao2ks", {}, "members"),
        ("bao2ks", {}, "labels"),
        ("pomdr", {}, "labels"),
        ("auto", AUTO_CLASSES, "classes.counts"),
        ("auto", AUTO_CLASSES, "classes.pi"),
        ("auto", AUTO_NUMBERS, "numbers.pi"),
    ],
)
def test_an_array_of_another_shape_is_refused(kind: str, config: dict[str, Any], name: str) -> None:
    """They were taken, or raised TypeError."""
    refused(taught(kind, config), name, np.array(1.0))


def test_an_origin_that_is_no_point_is_refused() -> None:
    refused(taught("kons", {}), "space.N.origin", np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bao2ks", "members"),
        ("packing", "packing.radius.eigenvalues"),
        ("metric-packing", "packing.radius.eigenvalues"),
        ("foster-1d", "mixture.L"),
        ("foster-1d", "mixture.M"),
        ("mean", "total"),
        ("fogd", "w"),
    ],
)
@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_numbers_that_are_not_finite_are_refused(kind: str, name: str, wrong: float) -> None:
    """They raised OverflowError and ZeroDivisionError, or warnings of NumPy."""
    learner = taught(kind, {})
    refused(learner, name, np.full_like(learner.state()[name], wrong), f"{name}' has numbers that are not finite")


@pytest.mark.parametrize("made_up", [np.ones(2, dtype=complex), np.array(["a", "b"]), np.zeros(2, dtype="M8[s]")])
def test_numbers_that_are_not_real_are_refused(made_up: Any) -> None:
    """NumPy would drop the imaginary part with a warning."""
    refused(taught("ogd-logistic", {"intercept": False}), "theta", made_up, "not of real numbers")


@pytest.mark.parametrize(
    ("kind", "config", "name", "wrong"),
    [
        ("aogd-ald", {}, "gain", 0.0),
        ("aogd-ald", SMALL, "oldest", 100.0),
        ("aogd-ald", SMALL, "oldest", -1.0),
        ("aogd-ald", {}, "phase", 3.0),
        ("kernel-ogd", SMALL, "oldest", 100.0),
        ("bao2ks", {}, "members", 100.0),
        ("bao2ks", {}, "scale", 0.0),
        ("pomdr", {}, "scale", 0.0),
        ("pomdr", SMALL, "nearest", 100.0),
        ("foster-1d", {}, "mixture.M", 0.0),
        ("foster-1d", {}, "mixture.M", -1.0),
        ("packing", {}, "packing.counts", -1.0),
        ("kons", {}, "space.trace", -1.0),
        ("kons", {}, "space.J.unit", 0.0),
        ("skegd", SMALL, "chosen", 100.0),
        ("skegd", SMALL, "rows", 1e6),
        ("fogd", {}, "t", 0.0),
        ("aioli", {}, "t", 0.0),
        ("fogd", {}, "w", 1e300),
        ("ogd-logistic", {}, "theta", 1e300),
        ("ftrl-logistic", {}, "theta", 1e300),
    ],
)
def test_numbers_out_of_range_are_refused(kind: str, config: dict[str, Any], name: str, wrong: float) -> None:
    """They led to warnings, IndexError, ZeroDivisionError or, in SciPy's sparse matrices, writes beyond an array."""
    learner = taught(kind, config)
    refused(learner, name, np.full_like(learner.state()[name], wrong))


@pytest.mark.parametrize(
    ("kind", "config", "name"),
    [
        ("ahpatron", {}, "coefficients"),
        ("ahpatron", {}, "points.rows"),
        ("aogd-ald", {}, "coefficients"),
        ("aogd-ald", {}, "points.rows"),
        ("bogd", {}, "points.rows"),
        ("kernel-ogd", {}, "points.rows"),
        ("nogd", {}, "coefficients"),
        ("nogd", SMALL, "points.rows"),
        ("nogd", SMALL, "w"),
        ("nons-ald", {}, "points.rows"),
        ("bao2ks", {}, "coefficients"),
        ("pomdr", {}, "coefficients"),
        ("pomdr", SMALL, "nearest"),
        ("fogd", {}, "w"),
        ("skegd", SMALL, "coefficients"),
        ("skegd", SMALL, "rows"),
        ("kons", {}, "space.J.rows"),
        ("kons", {}, "space.r"),
        ("kons", {}, "space.c"),
        ("sketched-kons", {}, "space.sketch.points.rows"),
        ("fourier-aioli", {}, "space.drawn.frequencies"),
    ],
)
@pytest.mark.parametrize("change", ["shorter", "longer"])
def test_related_arrays_of_different_lengths_are_refused(
    kind: str, config: dict[str, Any], name: str, change: str
) -> None:
    """They were taken, and a later round raised an error of BLAS."""
    learner = taught(kind, config)
    array = learner.state()[name]
    refused(learner, name, array[:-1] if change == "shorter" else np.concatenate((array, array[-1:])))


@pytest.mark.parametrize("round", [np.inf, np.nan, 2j])
def test_a_reservoir_of_no_round_is_refused(round: Any) -> None:
    learner = ReservoirLearner.create({"kind": "mean"}, 1)
    learner.update([0.0], 1.0)
    with pytest.raises(StateFormatError, match="no reservoir"):
        ReservoirLearner.restore(learner.spec, learner.state() | {"reservoir/round": np.array(round)})


def test_a_dimension_that_is_not_that_of_the_metric_is_refused() -> None:
    learner = taught("kons", {"kernel": METRIC})
    with pytest.raises(StateFormatError, match="with its dimension, 3,"):
        restore(learner.spec, learner.state() | {"dim": np.array(3.0)})


@pytest.mark.parametrize("kind", ["mean", "last-label", "ahpatron", "packing"])
def test_a_block_whose_forecasts_overflow_is_refused(kind: str) -> None:
    """`predict` refused them, and `run` returned them."""
    learner = taught(kind, {})
    name = {"mean": "total", "last-label": "last", "ahpatron": "coefficients", "packing": "packing.sums"}[kind]
    broken = OnlineLearner(learner.spec, _with(learner, name), learner.dim)
    x, truth = np.zeros(learner.dim), 1.0
    with pytest.raises(DivergedError, match="forecast of round 13 is"):
        broken.predict(x)
    with pytest.raises(DivergedError, match="forecast of round 13 is") as refusal:
        broken.run([x, x], [truth, truth])
    assert refusal.value.index == 0


def _with(learner: OnlineLearner, name: str) -> Any:
    """The learner's state with an array that is not finite, which `restore` would refuse."""
    from okl_core.contract.learner import parse_spec

    _, algorithm, config = parse_spec(learner.spec)
    arrays = learner.state()
    del arrays["dim"]
    return algorithm.unpack(config, arrays | {name: np.full_like(arrays[name], np.inf)})


@pytest.mark.parametrize("axis", [0, 1])
def test_an_embedding_with_a_row_or_column_too_many_is_refused(axis: int) -> None:
    learner = taught("nogd", SMALL | {"rank": 3})
    P = learner.state()["P"]
    refused(learner, "P", np.concatenate((P, np.take(P, [0], axis)), axis), "of 6 points with P of shape")
