"""Checks of inputs and truths: invalid ones are refused, and no valid one makes a learner diverge."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from okl_core.contract.agreement import TOLERANCE, Raises, clause, require, same_arrays
from okl_core.contract.facade import OnlineLearner
from okl_core.contract.learner import parse_spec
from okl_core.contract.subject import Subject
from okl_core.errors import InputError, LabelError, NonFiniteError, ShapeError
from okl_core.types import F64, REALS


@clause
def check_bad_input_changes_nothing(subject: Subject) -> None:
    """Wrong shapes, non-finite values and invalid truths raise the typed error and leave the state unchanged."""
    learner = subject.after(subject.half)
    x, y = subject.X[-1], float(subject.y[-1])
    before = learner.state()
    for error, bad, what in _bad_inputs(x):
        for name, call in {"predict": lambda x: learner.predict(x), "update": lambda x: learner.update(x, y)}.items():
            with Raises(error, f"{name} of {what}"):
                call(bad)
    bad_rows = subject.X[:5].copy()
    bad_rows[3, 0] = np.nan
    for error, X, truths, what in [
        (NonFiniteError, bad_rows, subject.y[:5], "a row with nan"),
        (ShapeError, subject.X[:5], subject.y[:4], "5 rows with 4 truths"),
        (ShapeError, subject.X[:5, :-1], subject.y[:5], "rows that are too short"),
    ]:
        with Raises(error, f"run of {what}"):
            learner.run(X, truths)
    for error, bad in _bad_truths(learner):
        with Raises(error, f"update with the truth {bad}"):
            learner.update(x, bad)
        with Raises(error, f"run with the truth {bad}"):
            learner.run(subject.X[:2], np.array([y, bad]))
    same_arrays(before, learner.state(), "a refused input changed the state")


def _bad_inputs(x: F64) -> Iterator[tuple[type[InputError], F64, str]]:
    yield ShapeError, x[:-1], "an input that is too short"
    yield ShapeError, np.append(x, 0.0), "an input that is too long"
    yield ShapeError, x[None, :], "an input with two axes"
    for value in (np.nan, np.inf, -np.inf):
        bad = x.copy()
        bad[-1] = value
        yield NonFiniteError, bad, f"an input with {value}"


def _bad_truths(learner: OnlineLearner) -> Iterator[tuple[type[InputError], float]]:
    if learner.target == "binary":
        yield from ((LabelError, bad) for bad in (0.0, 0.5, 2.0, math.nan, math.inf))
        return
    _, algorithm, config = parse_spec(learner.spec)
    low, high = algorithm.truth_range(config)
    if learner.target == "class":
        yield from ((LabelError, bad) for bad in (low - 1.0, low + 0.5, high + 1.0, math.nan, math.inf, -math.inf))
        return
    yield from ((NonFiniteError, bad) for bad in (math.nan, math.inf, -math.inf))
    if (low, high) != REALS:
        beyond = 0.001 * (high - low)
        yield from ((LabelError, bad) for bad in (low - beyond, high + beyond))


def _is_distribution(many: tuple[float, ...], t: int) -> bool:
    """Whether they sum to 1, up to the 1 / (t + 1) that may be reserved for a class not seen in t rounds."""
    return min(many, default=0.0) >= 0.0 and -TOLERANCE <= 1.0 - sum(many) <= 1.0 / (t + 1) + TOLERANCE


@clause
def check_extreme_inputs(subject: Subject) -> None:
    """Forecasts stay finite for inputs that are huge, tiny, repeated, or far from all earlier ones."""
    streams = {
        "huge": 1e8 * subject.X,
        # Half as long, since nothing grows when all inputs are nearly or exactly the same.
        "tiny": 1e-150 * subject.X[: subject.half],
        "repeated": np.repeat(subject.X[:1], subject.half, axis=0),
        "first": np.where(np.arange(len(subject.y))[:, None] == 0, 1e8, 1.0) * subject.X,
        "far": np.where(np.arange(len(subject.y))[:, None] % 7 == 6, 1e8, 1.0) * subject.X,
    }
    for what, X in streams.items():
        learner = subject.create()
        for t, (x, y) in enumerate(zip(X, subject.y.tolist(), strict=False)):
            info = learner.update(x, y)
            is_finite = math.isfinite(info.forecast.value) and math.isfinite(info.loss)
            require(is_finite, f"{what} inputs, round {t + 1}: {info}")
            probability, many = info.forecast.probability, info.forecast.probabilities
            require(probability is None or 0.0 <= probability <= 1.0, f"{what} inputs, round {t + 1}: {info}")
            is_distribution = many is None or _is_distribution(many, t)
            require(is_distribution, f"{what} inputs, round {t + 1}: the probabilities are not a distribution: {many}")
        for name, array in learner.state().items():
            require(bool(np.isfinite(array).all()), f"{what} inputs: {name!r} of the state is no longer finite")
