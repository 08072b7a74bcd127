"""What a caller may give as inputs and truths: all that numpy reads as real numbers, and what is refused."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest

from okl_core import OnlineLearner, ReservoirLearner, create, freeze, resolve
from okl_core.errors import InputError, LabelError, NonFiniteError, ShapeError
from okl_core.types import F64

KERNEL = {"kind": "gaussian", "sigma": 1.0}
SPEC = {"kind": "kernel-ridge", "config": {"kernel": KERNEL}}
X = np.random.default_rng(0).integers(-4, 5, size=(20, 3)) / 4.0
Y = np.random.default_rng(1).integers(-4, 5, size=20) / 4.0
"""Quarters: every type here has them exactly."""

PANDAS = pd.DataFrame(X, columns=["a", "b", "c"])
POLARS = pl.DataFrame(X, schema=["a", "b", "c"])
MANY: dict[str, tuple[Any, Any]] = {
    "lists": (X.tolist(), Y.tolist()),
    "tuples": (tuple(map(tuple, X.tolist())), tuple(Y.tolist())),
    "float32": (X.astype(np.float32), Y.astype(np.float32)),
    "long doubles": (X.astype(np.longdouble), Y.astype(np.longdouble)),
    "not contiguous": (np.repeat(X, 2, axis=0)[::2], np.repeat(Y, 3)[::3]),
    "column by column": (np.asfortranarray(X), Y),
    "backwards": (X[::-1][::-1], Y[::-1][::-1]),
    "another byte order": (X.astype(">f8"), Y.astype(">f8")),
    "objects": (X.astype(object), Y.astype(object)),
    "decimals and fractions": ([[Decimal(v) for v in row] for row in X.tolist()], [Fraction(v) for v in Y.tolist()]),
    "pandas": (PANDAS, pd.Series(Y)),
    "pandas, nullable": (PANDAS.astype("Float64"), pd.Series(Y, dtype="Float64")),
    "polars": (POLARS, pl.Series(Y)),
    "narwhals": (nw.from_native(PANDAS), nw.from_native(pl.Series(Y), series_only=True)),
    "numpy, masked nowhere": (np.ma.masked_invalid(X), np.ma.masked_invalid(Y)),
}


def learned(X: F64, y: F64) -> OnlineLearner:
    learner = create(SPEC, dim=3)
    learner.run(X, y)
    return learner


@pytest.mark.parametrize("name", MANY)
def test_rows_and_truths_of_any_type(name: str) -> None:
    given, truths = MANY[name]
    for make in (create, ReservoirLearner.create):
        mine, plain = make(SPEC, dim=3), make(SPEC, dim=3)
        mine.run(given, truths)
        plain.run(X, Y)
        state = mine.state()
        for key, array in plain.state().items():
            np.testing.assert_array_equal(state[key], array)
    waiting = {"kind": "kons", "config": {"kernel": KERNEL | {"sigma": "median"}}}
    assert resolve(waiting, given, truths) == resolve(waiting, X, Y)


def rows() -> dict[str, tuple[Any, Any]]:
    frame = PANDAS.assign(b=[True, False] * 10)
    return {
        "list": (X[0].tolist(), Y[0].item()),
        "numpy scalar": (X[0], Y[0]),
        "float32": (X[0].astype(np.float32), np.float32(Y[0])),
        "0-d array": (X[0], np.array(Y[0])),
        "int": ([1, 2, 3], 1),
        "numpy int": (np.array([1, 2, 3]), np.int32(1)),
        "boolean": ([True, False, True], True),
        "numpy boolean": (np.array([True, False, True]), np.bool_(True)),
        "row of pandas": (PANDAS.iloc[0], PANDAS["a"].iloc[0]),
        "row of mixed pandas": (frame.iloc[0], frame["a"].iloc[0]),
        "row of polars": (POLARS.row(0), POLARS["a"][0]),
        "a column as an input": (pl.Series(X[0]), Fraction(1, 2)),
        "every second": (np.repeat(X[0], 2)[::2], Decimal("0.5")),
    }


@pytest.mark.parametrize("name", rows())
def test_one_round_of_any_type(name: str) -> None:
    x, y = rows()[name]
    plain = np.array([float(value) for value in x])
    mine, theirs = learned(X, Y), learned(X, Y)
    assert mine.predict(x) == theirs.predict(plain)
    assert mine.update(x, y) == theirs.update(plain, float(y))
    assert mine.state().keys() == theirs.state().keys()
    assert freeze(mine).predict(x) == theirs.predict(plain)


NO_INPUTS: dict[str, tuple[Any, type[InputError]]] = {
    "None": (None, ShapeError),
    "text": ("1, 2, 3", InputError),
    "digits": (["1", "2", "3"], InputError),
    "digits among objects": (np.array(["1", 2, 3.0], dtype=object), InputError),
    "bytes": ([b"1", b"2", b"3"], InputError),
    "an object": ({"a": 1.0, "b": 2.0, "c": 3.0}, InputError),
    "a set": ({1.0, 2.0, 3.0}, InputError),
    "ragged": ([[1.0], [1.0, 2.0], [3.0]], ShapeError),
    "complex": ([1j, 2.0, 3.0], InputError),
    "dates": (np.array(["2026-01-01"] * 3, dtype="M8[D]"), InputError),
    "a date": ([datetime.date(2026, 1, 1), 1.0, 2.0], InputError),
    "time spans": (np.array([1, 2, 3], dtype="m8[s]"), InputError),
    "categories": (pd.Series(["a", "b", "c"], dtype="category"), InputError),
    "null": ([None, 1.0, 2.0], NonFiniteError),
    "NA": (pd.Series([None, 1, 2], dtype="Int64"), NonFiniteError),
    "null of polars": (pl.Series([None, 1.0, 2.0]), NonFiniteError),
    "masked": (np.ma.array([1.0, 2.0, 3.0], mask=[True, False, False]), NonFiniteError),
    "beyond doubles": ([10**400, 1, 2], NonFiniteError),
    "beyond doubles, long": (np.array([np.longdouble("1e4000"), 1.0, 2.0]), NonFiniteError),
    "too many axes": ([[1.0, 2.0, 3.0]], ShapeError),
    "a generator": ((value for value in (1.0, 2.0, 3.0)), InputError),
}


@pytest.mark.parametrize("name", NO_INPUTS)
def test_what_is_no_input(name: str) -> None:
    x, error = NO_INPUTS[name]
    learner = learned(X, Y)
    for call in (learner.predict, lambda x: learner.update(x, 0.5), freeze(learner).predict):
        with pytest.raises(error):
            call(x)
    if name != "masked":  # in a list numpy forgets the mask
        with pytest.raises(InputError):
            learner.run([x], [0.5])
    assert learner.t == 20


@pytest.mark.parametrize(
    "y", [None, "1", "yes", [0.5], np.array([0.5]), {}, 1j, b"1", datetime.date(2026, 1, 1), 10**400]
)
def test_what_is_no_truth(y: Any) -> None:
    learner = learned(X, Y)
    for call in (lambda: learner.update(X[0], y), lambda: learner.run(X[:1], [y])):
        with pytest.raises(InputError):
            call()
    labels = create("majority", dim=3)
    with pytest.raises(InputError):
        labels.update(X[0], y)
    assert learner.t == 20


def test_a_truth_is_what_it_counts() -> None:
    learner = create("majority", dim=1)
    learner.update([0.0], np.int8(1))
    with pytest.raises(LabelError):
        learner.update([0.0], False)  # 0, which is no label
