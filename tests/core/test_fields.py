"""From records to vectors: which fields are found, and how their columns are scaled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from okl_core.errors import StateFormatError
from okl_core.records.extension import EARNED_AT, MOST_CHARACTERS, MOST_COUNTED, Extension
from okl_core.records.fields import Field, Fields
from okl_core.records.kept import fields_of, json_of_fields
from okl_core.records.preparation import Preparation
from okl_core.records.record import (
    Raw,
    as_record,
    flatten,
)
from okl_core.records.scaling import FARTHEST, Scaling
from okl_core.records.survey import HASHED, MOST_CATEGORIES, MOST_FIELDS, SPARE, WIDE_HASHED, Declared, Survey
from okl_core.records.texts import cycles, place_of
from okl_core.types import F64
from tests.core.record_streams import raws

# -- fields -----------------------------------------------------------------------------------------------------------


def found(rows: Sequence[Any], **how: Any) -> Fields:
    return Survey(**how).fields([flatten(row) for row in rows])


KINDS: dict[str, tuple[list[Any], str]] = {
    "numbers": ([1, 2.5, -3], "number"),
    "numbers that are spelt": (["1", "2.5", "-3"], "number"),
    "numbers, most of them": ([1, 2, "n/a", 3], "number"),
    "booleans": ([True, False, True], "boolean"),
    "times": (["2026-11-22", "2026-11-23T10:00:00Z", "2026-11-24"], "time"),
    "categories": (["red", "blue", "red"], "category"),
    "codes": (["007", "008", "007"], "category"),
    "texts": ([f"comment number {i} of many" for i in range(MOST_CATEGORIES + 1)], "text"),
    "many categories": ([f"c{i % (MOST_CATEGORIES + 5)}" for i in range(100)], "category"),
}


@pytest.mark.parametrize(("column", "kind"), KINDS.values(), ids=KINDS)
def test_the_kind_is_that_of_most_values(column: list[Any], kind: str) -> None:
    fields = found([{"a": value} for value in column])
    assert [one.kind for one in fields.fields] == [kind]
    assert fields.spare == SPARE
    assert (fields.hashed > 0) == (kind == "text")
    assert all(len(fields.encode(flatten({"a": value}))) == fields.width for value in [*column, None, "other", 5, True])


def test_each_kind_has_its_columns() -> None:
    rows = [{"n": i, "b": i % 2 == 0, "c": ("x", "y")[i % 2], "t": f"2026-11-0{i + 1}"} for i in range(4)]
    fields = found(rows, is_strict=True)
    assert [(one.name, one.kind, one.width) for one in fields.fields] == [
        ("b", "boolean", 1), ("c", "category", 3), ("n", "number", 1), ("t", "time", 7),
    ]  # fmt: skip
    v = fields.encode(flatten(rows[1]))
    assert v[:5].tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]
    assert v[5:].tolist() == cycles(datetime(2026, 11, 2, tzinfo=UTC))
    assert fields.encode(flatten(rows[1] | {"c": "z"}))[1:4].tolist() == [0.0, 0.0, 1.0]


def test_what_is_missing_is_the_median_and_tells_it_where_that_was_seen() -> None:
    rows = [{"a": 1.0, "b": 5.0}, {"a": 9.0, "b": None}, {"a": 2.0}, {"a": 3.0, "b": 7.0}]
    fields = found(rows)
    a, b = fields.fields
    assert (a.has_indicator, a.centre, b.has_indicator, b.centre) == (False, 2.0, True, 5.0)
    assert fields.encode(flatten({"a": None, "b": None}))[:3].tolist() == [2.0, 5.0, 1.0]
    assert fields.encode(flatten({"b": 6.0}))[:3].tolist() == [2.0, 6.0, 0.0]
    assert fields.encode(flatten({"b": "no number"}))[:3].tolist() == [2.0, 5.0, 1.0]


def test_a_missing_boolean_is_the_mean_which_stays_finite() -> None:
    """A sum of numbers may overflow, and infinity cannot be restored."""
    assert found([{"a": True}, {"a": False}, {"a": True}, {"a": 3}]).fields[0].centre == 1.25
    fields = found([{"a": value} for value in (True, True, True, 1.7e308, 1.6e308)])
    assert (fields.fields[0].kind, fields.fields[0].centre) == ("boolean", 1.0)
    assert fields_of(json_of_fields(fields)) == fields


def test_rows_are_records_of_their_positions() -> None:
    X = np.random.default_rng(0).normal(size=(20, 12))
    X[3, 5] = np.nan
    fields = found(X[:, :5].tolist())
    assert fields.encode(X[0, :5]).tolist() == X[0, :5].tolist()
    assert fields.encode(X[0, :3]).tolist() == [*X[0, :3], *(one.centre for one in fields.fields[3:])]
    assert fields.encode(X[0]).tolist() == X[0, :5].tolist()
    some = Survey().fields(list(X))
    assert [one.name for one in some.fields] == [str(i) for i in range(12)]
    assert [one.has_indicator for one in some.fields] == [i == 5 for i in range(12)]
    for row in X:
        assert some.encode(row).tolist() == some.encode(as_record(row)).tolist()


def test_declared_fields_come_first_and_stay_what_they_are() -> None:
    declared = (("z", Declared("category")), ("c", Declared("category", ("x", "y"))), ("n", Declared("number")))
    rows = [{"c": "q", "n": "7", "z": i % 2, "a": 1.0} for i in range(4)]
    fields = found(rows, declared=declared)
    assert [(one.name, one.kind, one.categories, one.is_open) for one in fields.fields] == [
        ("z", "category", ("0", "1"), True),
        ("c", "category", ("x", "y"), True),
        ("n", "number", (), False),
        ("a", "number", (), False),
    ]
    closed = found(rows, declared=declared, is_strict=True)
    assert [one.name for one in closed.fields] == ["z", "c", "n"]
    assert (closed.fields[1].is_open, closed.spare) == (False, 0)


def test_rare_categories_are_one() -> None:
    column = ["often"] * 500 + ["rarely"] * 5 + [f"once {i}" for i in range(30)]
    (one,) = found([{"a": value} for value in column]).fields
    assert (one.kind, one.categories, one.is_open) == ("category", ("often",), True)


def test_a_text_is_its_words_by_hashing() -> None:
    rows = [{"a": f"word{i} and more of {i * i}"} for i in range(30)]
    fields = found(rows)
    assert (fields.hashed, fields.own) == (HASHED, 0)
    expected = np.zeros(HASHED)
    for word in ("two", "words"):
        place, sign = place_of(f"a={word}", HASHED)
        expected[place] += sign / math.sqrt(2.0)
    assert fields.encode(flatten({"a": "Two words!"}))[:HASHED] == pytest.approx(expected)
    assert not fields.encode(flatten({"a": None})).any()
    assert np.isfinite(fields.encode(flatten({"a": "\U0001f600" * 10_000}))).all()


def test_very_many_names_share_columns() -> None:
    rows = [{f"name {i * 7 + j}": 1.0 for j in range(7)} for i in range(MOST_FIELDS // 7 + 1)]
    fields = found(rows)
    assert (fields.is_wide, fields.width) == (True, WIDE_HASHED)
    hashed = found([{"a": 1.0}], hashed=16)
    place, sign = place_of("a", 16)
    assert hashed.encode(flatten({"a": 2.5, "b": None})).tolist() == [
        sign * 2.5 if i == place else 0.0 for i in range(16)
    ]
    place, sign = place_of("a=red", 16)
    assert hashed.encode(flatten({"a": "red"}))[place] == sign
    assert hashed.encode(flatten([1.0, 2.0])).tolist() == hashed.encode({"0": 1.0, "1": 2.0}).tolist()
    # Where many meet in a column the sum stays finite.
    crowded = hashed.encode({str(i): -1.7e308 for i in range(400)})
    assert np.isfinite(crowded).all()
    assert np.abs(crowded).max() > 1e308


@given(st.lists(raws, min_size=1, max_size=6), raws)
def test_whatever_comes_has_a_finite_vector(some: list[Raw], other: Raw) -> None:
    for survey in (Survey(), Survey(is_strict=True), Survey(hashed=8)):
        fields = survey.fields(some)
        for raw in (*some, other):
            v = fields.encode(raw)
            assert v.shape == (fields.width,)
            assert np.isfinite(v).all()


# -- what joins the fields later --------------------------------------------------------------------------------------


def test_a_frequent_category_or_field_earns_a_column() -> None:
    fields = found([{"a": ("x", "y")[i % 2]} for i in range(8)])
    prepared = Preparation(fields)
    for i in range(EARNED_AT):
        assert not prepared.vector(flatten({"a": "new", "n": 5.0}))[-SPARE:].any()
        prepared.see(flatten({"a": "new", "n": 3.0 + i}))
    assert prepared.extension.columns() == {("a", "new"): 0, ("n", None): 1}
    v = prepared.vector(flatten({"a": "new", "n": 5.0}))
    assert v[-SPARE:].tolist() == [1.0, 5.0 - (3.0 + EARNED_AT - 1), *[0.0] * (SPARE - 2)]
    assert v[:3].tolist() == [0.0, 0.0, 1.0]
    assert not prepared.vector(flatten({"a": "x"}))[-SPARE:].any()


def test_what_is_counted_has_a_bound() -> None:
    """A stream of strings that are never the same twice, some of them long."""
    fields, extension = found([{"a": ("x", "y")[i % 2]} for i in range(8)]), Extension()
    for i in range(100_000):
        extension.count(fields, {"a": f"never the same {i}", f"name {i}": "x" * (i % 1000), "often": 1.0})
    assert len(extension.counts) <= MOST_COUNTED
    assert all(len(name) + len(category or "") <= MOST_CHARACTERS for name, category in extension.counts)
    assert len(extension.encode()) < 2 * MOST_COUNTED * MOST_CHARACTERS
    assert extension.columns() == {("often", None): 0}
    assert extension.nbytes < 1 << 20


def test_no_more_columns_are_earned_than_are_spare() -> None:
    fields, extension = found([{"a": 1.0}] * 8), Extension()
    for _ in range(2 * EARNED_AT):
        extension.count(fields, {f"n{i}": 1.0 for i in range(3 * SPARE)})
    assert sorted(extension.columns().values()) == list(range(SPARE))


@given(st.lists(raws, min_size=1, max_size=30))
def test_what_joined_comes_back(some: list[Raw]) -> None:
    extension = Extension()
    for raw in some * (EARNED_AT // 2):
        extension.count(Fields(spare=SPARE), raw)
    again = Extension.decode(extension.encode())
    assert (again, again.encode()) == (extension, extension.encode())
    assert list(again.counts) == list(extension.counts)


@pytest.mark.parametrize("document", ["", "{", "[]", "[[[1]], []]", "3", '[[], [["a", null, "x"]]]'])
def test_other_documents_are_nothing_that_joined(document: str) -> None:
    with pytest.raises(StateFormatError):
        Extension.decode(document)


# -- scale ------------------------------------------------------------------------------------------------------------


def scaling_of(X: F64, radius: float | None = None) -> Scaling:
    return Scaling.found(X, np.ones(X.shape[1], dtype=bool), np.zeros(X.shape[1], dtype=bool), radius)


@given(hnp.arrays(np.float64, 7, elements=st.floats(-1e3, 1e3), unique=True), st.sampled_from([-1e300, 1e12, 1e300]))
def test_one_absurd_value_among_eight_spoils_nothing(column: F64, absurd: float) -> None:
    scaling = scaling_of(np.append(column, absurd)[:, None])
    assert column.min() <= scaling.low[0] < scaling.low[0] + scaling.span[0] <= column.max() * (1.0 + 1e-12) + 1e-9
    assert np.isfinite(scaling(np.array([absurd])))
    assert abs(scaling(np.array([absurd]))[0]) <= 2.0 + math.log1p(FARTHEST)


def test_ranges_are_from_quantile_to_quantile() -> None:
    X = np.arange(101.0)[:, None]
    scaling = scaling_of(X)
    assert (scaling.low[0], scaling.span[0]) == (5.0, 90.0)
    assert scaling(np.array([[5.0], [95.0], [185.0], [-85.0]]))[:, 0].tolist() == [0.0, 1.0, 2.0, -1.0]
    assert scaling(np.array([95.0 + 3.0 * 90.0]))[0] == pytest.approx(2.0 + math.log(3.0))
    assert scaling(np.array([5.0 - 3.0 * 90.0]))[0] == pytest.approx(-1.0 - math.log(3.0))


def test_few_ones_among_zeros_have_the_whole_range() -> None:
    column = np.zeros((100, 1))
    column[7] = 4.0
    assert scaling_of(column)(np.array([4.0])).tolist() == [1.0]


def test_the_span_of_a_constant_column_is_fixed_by_the_first_other_value() -> None:
    scaling = scaling_of(np.full((8, 2), 7.0))
    assert scaling.unknown == (0, 1)
    assert scaling(np.array([9.0, 7.0])).tolist() == [1.0, 0.0]
    after = scaling.seen(np.array([9.0, 7.0]))
    assert (after.unknown, after.span.tolist()) == ((1,), [2.0, 0.0])
    assert after(np.array([8.0, 6.0])).tolist() == [0.5, -1.0]
    assert after.seen(np.array([15.0, 7.0])).maps_alike(after)
    assert scaling.seen(np.full(2, 1e308)).seen(np.full(2, -1e308)).span.tolist() == [1e308, 1e308]


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.just(3)), elements=st.sampled_from([0.0, 1.0, 5.0])),
    hnp.arrays(
        np.float64, st.tuples(st.integers(1, 12), st.just(3)), elements=st.sampled_from([0.0, 1.0, 2.0, -9.0, 1e6])
    ),
    st.sampled_from([None, 1.0]),
)
def test_rows_are_one_by_one(first: F64, later: F64, radius: float | None) -> None:
    scaling = start = scaling_of(first, radius)
    expected = []
    for v in later:
        expected.append(scaling(v))
        scaling = scaling.seen(v)
    X, after = start.rows(later)
    np.testing.assert_array_equal(X, np.array(expected))
    assert after.maps_alike(scaling)


def test_columns_of_one_unit_have_one_span() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 17, (50, 20)).astype(float)
    X[:, 0] = rng.integers(0, 2, 50)
    assert (scaling_of(X).span == 16.0).all()
    assert scaling_of(X[:, :10]).span[0] == 1.0
    X[:, 1:15] *= 10.0 ** rng.integers(-3, 4, 14)
    assert len(set(scaling_of(X).span)) > 4


def test_what_is_no_measure_stays_as_it_is() -> None:
    rows = [{"n": float(i), "b": i % 2 == 0, "c": ("x", "y")[i % 2], "t": f"a text {i} of words"} for i in range(40)]
    raws = [flatten(row) for row in rows]
    fields = Survey().fields(raws)
    prepared = Preparation.found(fields, raws, None)
    v, u = fields.encode(raws[39]), prepared.vector(raws[39])
    assert u[:4].tolist() == v[:4].tolist()
    n = [one.name for one in fields.fields].index("n") + 3
    assert u[n - 1] > 1.0 or u[n] > 1.0
    hashed = slice(fields.own, fields.own + fields.hashed)
    assert ((u[hashed] == 0.0) == (v[hashed] == 0.0)).all()


@given(st.integers(1, 6), st.floats(0.1, 10.0), st.integers(0, 2**32 - 1))
def test_with_a_radius_ranges_go_into_the_ball(d: int, radius: float, seed: int) -> None:
    """The corners of the box to the sphere, its middle to 0; outside it goes on in a straight line."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(-5.0, 5.0, d)
    high = low + rng.uniform(0.1, 9.0, d)
    scaling = Scaling.of_ranges(low, high, radius)
    corners = np.where(rng.random((8, d)) < 0.5, low, high)
    np.testing.assert_allclose(np.linalg.norm(scaling(corners), axis=1), radius, rtol=1e-12)
    np.testing.assert_allclose(scaling((low + high) / 2.0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scaling(2.0 * high - low), 3.0 * scaling(high), rtol=1e-9)
    inside = rng.uniform(low, high, (20, d))
    assert (np.linalg.norm(scaling(inside), axis=1) <= radius * (1.0 + 1e-12)).all()


def test_a_scale_without_width_never_warns() -> None:
    """What overflows becomes infinite, which a learner refuses; it is no warning of numpy's."""
    scaling = Scaling.of_ranges(np.array([0.0]), np.array([5e-324]))
    assert math.isinf(scaling(np.array([1.0]))[0])
    assert np.isfinite(scaling_of(np.array([[0.0], [5e-324]]))(np.array([1e308]))).all()


# -- all of it --------------------------------------------------------------------------------------------------------


@given(st.lists(raws, min_size=1, max_size=8), st.lists(raws, min_size=1, max_size=8), st.sampled_from([None, 1.0]))
def test_many_inputs_are_one_by_one(first: list[Raw], later: list[Raw], radius: float | None) -> None:
    """What is looked at after a round depends on what was seen, in the same way."""
    survey = Survey()
    one = Preparation.found(survey.fields(first), first, radius)
    block = one.copy()
    expected = []
    for raw in later * 8:
        expected.append(one.vector(raw))
        one.see(raw)
    np.testing.assert_array_equal(block.learn_rows(later * 8), np.array(expected))
    assert block.extension == one.extension
    assert block.maps_alike(one)
    assert np.isfinite(expected).all()


def test_a_field_of_a_preparation_is_what_it_was() -> None:
    fields = Fields((Field("0"), Field("1", centre=2.0)))
    one, other = Preparation(fields), Preparation(Fields((Field("0"), Field("1", centre=3.0))))
    assert one.maps_alike(one.copy())
    assert not one.maps_alike(other)
    assert not one.maps_alike(None)
