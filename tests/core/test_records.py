"""Inputs as they come: what is kept of them, and what their texts say."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.errors import StateFormatError
from okl_core.records.record import (
    MAX_DEPTH,
    MAX_NAME,
    NotANumberError,
    Raw,
    RecordError,
    as_record,
    flatten,
    from_bytes,
    size_of,
    to_bytes,
)
from okl_core.records.texts import MAX_WORDS, cycles, number_in, place_of, time_in, words
from tests.core.record_streams import inputs, raws

# -- inputs as they come ----------------------------------------------------------------------------------------------


def flat(x: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values by path, written down in the shortest way."""
    items = x.items() if isinstance(x, dict) else enumerate(x)
    found: dict[str, Any] = {}
    for key, value in items:
        own = (*path, str(key))
        found |= flat(value, own) if isinstance(value, dict | list) else {".".join(own): value}
    return found


@given(inputs)
def test_the_path_of_a_value_is_its_name(x: Any) -> None:
    try:
        raw = flatten(x)
    except RecordError as error:
        assert "second value" in str(error)  # noqa: PT017  (nothing else is wrong with these)
        return
    if isinstance(raw, dict):
        assert raw == flat(x)
        assert list(raw) == sorted(raw)
        assert {type(value) for value in raw.values()} <= {float, bool, str, type(None)}
    else:
        assert [None if math.isnan(value) else value for value in raw] == x


def test_a_list_of_numbers_and_nulls_is_a_row() -> None:
    raw = flatten([1, None, -0.5])
    assert isinstance(raw, np.ndarray)
    assert repr(raw) == "array([ 1. ,  nan, -0.5])"
    assert as_record(raw) == {"0": 1.0, "1": None, "2": -0.5}
    for x in ([1, True], [1, "2"], [1, [2]], [1, {}]):
        assert isinstance(flatten(x), dict)


def test_a_sparse_input_is_the_record_of_its_indices() -> None:
    assert flatten({"indices": [3, 70_000.0, 0], "values": [1, 0.5, -2]}) == {"0": -2.0, "3": 1.0, "70000": 0.5}
    assert flatten({"indices": 3, "values": [1]}) == {"indices": 3.0, "values.0": 1.0}


REFUSED: dict[str, tuple[Any, tuple[str | int, ...], str]] = {
    "NaN": ({"a": math.nan}, ("a",), "finite"),
    "NaN in a row": ([None, 1.0, math.nan], (2,), "finite"),
    "infinity": ([1.0, -math.inf], (1,), "finite"),
    "an integer beyond double precision": ([1, 2, 10**400], (2,), "finite"),
    "one in a record": ({"a": {"b": [0, 10**400]}}, ("a", "b", 1), "finite"),
    "bytes": ({"a": b"x"}, ("a",), "must be"),
    "a set": ([{1}], (0,), "must be"),
    "half a surrogate pair": ({"a": "\ud800"}, ("a",), "surrogate"),
    "half a pair in a name": ({"a": {"\udc00": 1}}, ("a",), "surrogate"),
    "two values of one name": ({"a": {"b": 1}, "a.b": 2}, ("a.b",), "second"),
    "a number and a text of one name": ({"a": {"0": 1, 0: 2}}, ("a", 0), "second"),
    "an index twice": ({"indices": [1, 1], "values": [1, 2]}, ("indices", 1), "twice"),
    "half an index": ({"indices": [0.5], "values": [1]}, ("indices", 0), "whole"),
    "an index that is true": ({"indices": [True], "values": [1]}, ("indices", 0), "whole"),
    "an infinite index": ({"indices": [math.inf], "values": [1]}, ("indices", 0), "whole"),
    "an index that is NaN": ({"indices": [math.nan], "values": [1]}, ("indices", 0), "whole"),
    "a huge index": ({"indices": [10**400], "values": [1]}, ("indices", 0), "whole"),
    "values that are text": ({"indices": [1], "values": ["1"]}, ("values", 0), "number"),
    "values that are too few": ({"indices": [1], "values": []}, ("values",), "as many"),
    "values that are none": ({"indices": [1], "values": None}, ("values",), "as many"),
}


@pytest.mark.parametrize(("x", "path", "why"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_place_in_a_record_is_told_with_its_path(x: Any, path: tuple[str | int, ...], why: str) -> None:
    with pytest.raises(RecordError, match=why) as caught:
        flatten(x)
    assert caught.value.path == path
    assert isinstance(caught.value, NotANumberError) == (why == "finite")


def test_depth_and_names_have_a_limit() -> None:
    x: Any = 1.0
    for _ in range(MAX_DEPTH):
        x = {"a": x}
    assert flatten(x) == {".".join("a" * MAX_DEPTH): 1.0}
    with pytest.raises(RecordError, match="nested"):
        flatten({"a": x})
    flatten({"a" * MAX_NAME: 1})
    for name in ({"a" * (MAX_NAME + 1): 1}, {"a" * MAX_NAME: {"b": 1}}):
        with pytest.raises(RecordError, match="name"):
            flatten(name)


def same(one: Raw, other: Raw) -> bool:
    """1 and true are equal to Python, -0.0 and 0.0 too."""
    if isinstance(one, dict) and isinstance(other, dict):
        return repr(sorted(one.items())) == repr(sorted(other.items()))
    return not isinstance(one, dict) and not isinstance(other, dict) and one.tobytes() == other.tobytes()


@given(raws, raws)
def test_bytes_are_equal_if_and_only_if_inputs_are(one: Raw, other: Raw) -> None:
    assert (to_bytes(one) == to_bytes(other)) == same(one, other)


@given(raws, st.randoms())
def test_an_input_comes_back_whatever_the_order_of_its_names(raw: Raw, shuffler: Any) -> None:
    assert same(from_bytes(to_bytes(raw)), raw)
    assert size_of(from_bytes(to_bytes(raw))) == size_of(raw) >= 0
    if isinstance(raw, dict):
        names = list(raw)
        shuffler.shuffle(names)
        assert to_bytes({name: raw[name] for name in names}) == to_bytes(raw)


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    for blob in (data, b"\x00" + data, b"\x01" + data):
        try:
            from_bytes(blob)
        except StateFormatError:
            continue


# -- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelt", "number"),
    [("1", 1.0), ("-2.5e3", -2500.0), ("+7", 7.0), ("0.1", 0.1), ("007", None), ("1e999", None), ("nan", None), ("", None),
     ("1_0", None), (" 1", None), ("٣", None), ("0x1", None), ("1" * 302, None)],
)  # fmt: skip
def test_a_string_spells_a_number_as_json_would(spelt: str, number: float | None) -> None:
    assert number_in(spelt) == number


@pytest.mark.parametrize(
    ("spelt", "time"),
    [
        ("2026-11-22", datetime(2026, 11, 22, tzinfo=UTC)),
        ("2026-11-22T10:30Z", datetime(2026, 11, 22, 10, 30, tzinfo=UTC)),
        ("2026-11-22 10:30:15,250", datetime(2026, 11, 22, 10, 30, 15, 250_000, tzinfo=UTC)),
        ("2026-11-22T10:30:15+02:00", datetime(2026, 11, 22, 8, 30, 15, tzinfo=UTC)),
        ("2026-02-30", None),
        ("2026", None),
        ("22.11.2026", None),
        ("0000-01-01", None),
    ],
)
def test_times_are_those_of_iso_8601(spelt: str, time: datetime | None) -> None:
    assert time_in(spelt) == time


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_its_day_and_three_points_of_a_circle(time: datetime) -> None:
    days, *circle = cycles(time)
    assert days == pytest.approx((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86400.0)
    for i in (0, 2, 4):
        assert math.hypot(circle[i], circle[i + 1]) == pytest.approx(1.0)
    hour = math.atan2(circle[1], circle[0]) / (2.0 * math.pi) % 1.0 * 24.0
    assert math.cos((hour - time.hour - time.minute / 60.0 - time.second / 3600.0) * math.pi / 12.0) == pytest.approx(
        1.0
    )


@pytest.mark.parametrize("spelt", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31"])
def test_the_ends_of_the_calendar_are_times(spelt: str) -> None:
    time = time_in(spelt)
    assert time is None or np.isfinite(cycles(time)).all()


def test_words_of_a_text_have_a_limit() -> None:
    assert list(words("Don't STOP, é!")) == ["don", "t", "stop", "é"]
    assert len(list(words("a " * 5000))) == MAX_WORDS


def test_hashing_is_the_same_in_every_process_and_even() -> None:
    assert [place_of(key, 32) for key in ("a", "é", "\U0001f600")] == [
        place_of(key, 32) for key in ("a", "é", "\U0001f600")
    ]
    places = np.array([place_of(f"word {i}", 32) for i in range(32_000)])
    counts = np.bincount(places[:, 0].astype(int), minlength=32)
    assert np.abs(counts - 1000.0).max() < 200.0
    assert abs(places[:, 1].mean()) < 0.05
