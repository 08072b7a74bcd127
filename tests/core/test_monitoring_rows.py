"""Many rounds at once leave the same state as one by one, whatever the rounds, wherever they are cut in two: to the bit,
but for what bets on drift have made, which is a product of many factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from okl_core.contract.state import pack
from okl_core.errors import InputError, LabelError, NonFiniteError
from okl_core.monitoring.comparison import Comparison, cut, cuts
from okl_core.monitoring.drift import DriftAlarm
from okl_core.monitoring.plain import Plain, PlainClasses, PlainNumbers
from okl_core.monitoring.thinned import Thinned
from okl_core.monitoring.verdict import Verdict
from okl_core.types import F64

SEEDS = st.integers(0, 10_000)
CUTS = st.floats(0.0, 1.0)
ERRORS = st.sampled_from([0.0, 1e-300, 0.5, 1.0, 3.0, 1e8, 1e200, np.inf])


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def parts(rows: F64, cut_at: float) -> tuple[F64, F64]:
    at = round(cut_at * len(rows))
    return rows[:at], rows[at:]


@given(SEEDS, CUTS, st.sampled_from([0, 5, 63, 64, 200, 1023, 1024, 1025, 4000, 9000]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_alarms(seed: int, cut_at: float, n: int, is_of_numbers: bool) -> None:
    rng = np.random.default_rng(seed)
    rate = np.where(np.arange(n) % 700 < 350, 0.1, 0.9)
    errors = rng.exponential(rate + 0.01) if is_of_numbers else (rng.random(n) < rate).astype(float)
    one, many = (DriftAlarm(is_of_numbers=is_of_numbers, alpha=0.2) for _ in range(2))
    expected = [rise for error in errors.tolist() if (rise := one.add(error)) is not None]
    assert [rise for part in parts(errors, cut_at) for rise in many.run(part)] == expected
    first, second = pack(one), pack(many)
    np.testing.assert_allclose(second.pop("wealth"), first.pop("wealth"), rtol=1e-10, atol=0.0)
    same(first, second)


def test_alarms_are_raised_within_a_block() -> None:
    errors = np.tile(np.concatenate((np.zeros(200), np.ones(60))), 5)
    one, many = DriftAlarm(is_of_numbers=False), DriftAlarm(is_of_numbers=False)
    expected = [rise for error in errors.tolist() if (rise := one.add(error)) is not None]
    assert len(expected) >= 3
    assert many.run(errors) == expected


@given(SEEDS, CUTS, st.integers(0, 60), st.booleans(), st.lists(ERRORS, min_size=60, max_size=60))
@settings(max_examples=60, deadline=None)
def test_verdicts(seed: int, cut_at: float, n: int, is_of_numbers: bool, wild: list[float]) -> None:
    rng = np.random.default_rng(seed)
    truths = (
        rng.standard_normal(n) * 10.0 ** rng.integers(-5, 5) if is_of_numbers else rng.integers(0, 3, n).astype(float)
    )
    issued = rng.choice(truths, (n, 2)) if n else np.zeros((0, 2))
    own = np.array(wild[:n]) if is_of_numbers else (rng.random(n) < 0.3).astype(float)
    one, many = (Verdict(is_of_numbers=is_of_numbers) for _ in range(2))
    for error, pair, truth in zip(own.tolist(), issued.tolist(), truths.tolist(), strict=True):
        one.add(error, pair, truth)
    for rows in zip(parts(own, cut_at), parts(issued, cut_at), parts(truths, cut_at), strict=True):
        many.run(*rows)
    same(pack(one), pack(many))


@given(SEEDS, CUTS, st.integers(0, 60), st.sampled_from([0, 2, 7]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_plain_forecasters(seed: int, cut_at: float, n: int, classes: int, is_of_numbers: bool) -> None:
    rng = np.random.default_rng(seed)
    truths = rng.standard_normal(n) * 1e3 if is_of_numbers else rng.integers(0, 5, n).astype(float)
    one: Plain = PlainNumbers() if is_of_numbers else PlainClasses.of(classes)
    many: Plain = PlainNumbers() if is_of_numbers else PlainClasses.of(classes)
    said = []
    for truth in truths.tolist():
        said.append(one.forecasts())
        one.learn(truth)
    told = [many.run(part) for part in parts(truths, cut_at)]
    values = [row for part in told for row in part.values.tolist()]
    assert values == [[first.value, second.value] for first, second in said]
    given = [row for part in told for row in ([] if part.probabilities is None else part.probabilities.tolist())]
    assert given == ([] if is_of_numbers else [[first.probability, second.probability] for first, second in said])
    same(pack(one), pack(many))


@given(SEEDS, st.lists(st.integers(0, 90), max_size=6), st.sampled_from([(2, 3), (4, 4), (32, 5)]))
@settings(max_examples=80, deadline=None)
def test_thinned_rows(seed: int, sizes: list[int], shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    one, many = (Thinned(2, 1, width=shape[0], levels=shape[1]) for _ in range(2))
    for size in sizes:
        rows = rng.random((size, 3))
        for row in rows:
            one.add(row)
        many.run(rows)
        same(one.pack(), many.pack())


@given(st.lists(st.tuples(ERRORS, ERRORS), max_size=30))
def test_errors_that_are_cut(pairs: list[tuple[float, float]]) -> None:
    errors, scales = np.array(pairs).reshape(-1, 2).T
    assert cuts(errors, scales).tolist() == [cut(error, scale) for error, scale in pairs]


@pytest.mark.parametrize(
    ("error", "thing", "rows"),
    [
        (InputError, Comparison(), (np.array([0.5, 1.5]),)),
        (InputError, DriftAlarm(is_of_numbers=False), (np.array([0.5, 1.5]),)),
        (NonFiniteError, DriftAlarm(is_of_numbers=True), (np.array([0.5, np.nan]),)),
        (InputError, Verdict(is_of_numbers=False), (np.array([0.5, -1.0]), np.zeros((2, 2)), np.zeros(2))),
        (NonFiniteError, Verdict(is_of_numbers=True), (np.zeros(2), np.zeros((2, 2)), np.array([0.0, np.inf]))),
        (LabelError, PlainClasses.of(2), (np.array([1.0, 0.5]),)),
        (LabelError, PlainClasses.of(2), (np.array([1.0, 1000.0]),)),
        (LabelError, PlainClasses.of(2), (np.array([1.0, np.nan]),)),
        (NonFiniteError, PlainNumbers(), (np.array([1.0, np.nan]),)),
    ],
)
def test_a_bad_row_changes_nothing(error: type[Exception], thing: Any, rows: tuple[F64, ...]) -> None:
    before = pack(thing)
    with pytest.raises(error):
        thing.run(*rows)
    same(pack(thing), before)
