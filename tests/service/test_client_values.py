"""What the client makes of arrays, rows, frames, dates and missing values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from okl.client import Client
from okl.errors import NotFinite, WrongType
from okl.values import as_json, column, row, rows
from tests.service.definitions import MEAN, RIDGE

DAY = dt.datetime(2026, 1, 1, 6, 30)


class Ours(np.ndarray):
    """An array of a class that numpy does not know."""


Answer = Enum("Answer", {"YES": "yes"}, type=str)


VALUES: dict[str, tuple[Any, Any]] = {
    "float32": (np.float32(0.5), 0.5),
    "int64": (np.int64(3), 3),
    "numpy's boolean": (np.bool_(True), True),
    "numpy's text": (np.str_("a"), "a"),
    "0-d array": (np.array(2.0), 2.0),
    "long double": (np.longdouble(0.5), 0.5),
    "long doubles": (np.array([0.5], dtype=np.longdouble), [0.5]),
    "a masked one": (np.ma.masked, None),
    "an array of ours": (np.ones(2).view(Ours), [1.0, 1.0]),
    "a text of an enum": (Answer.YES, "yes"),
    "decimal": (Decimal("0.5"), 0.5),
    "NaN": (float("nan"), None),
    "numpy's NaN": (np.float32("nan"), None),
    "NaT": (pd.NaT, None),
    "numpy's NaT": (np.datetime64("NaT"), None),
    "no time span": (np.timedelta64("NaT"), None),
    "NA": (pd.NA, None),
    "masked": (np.ma.array([1.0, 2.0], mask=[False, True]), [1.0, None]),
    "date": (DAY.date(), "2026-01-01"),
    "datetime": (DAY, "2026-01-01T06:30:00"),
    "with a zone": (DAY.replace(tzinfo=dt.UTC), "2026-01-01T06:30:00+00:00"),
    "time": (DAY.time(), "06:30:00"),
    "timestamp": (pd.Timestamp(DAY), "2026-01-01T06:30:00"),
    "datetime64": (np.datetime64(DAY, "s"), "2026-01-01T06:30:00"),
    "datetime64s": (np.array([DAY], dtype="M8[s]"), ["2026-01-01T06:30:00"]),
    "time span": (dt.timedelta(minutes=1), 60.0),
    "pandas' time span": (pd.Timedelta(minutes=1), 60.0),
    "timedelta64": (np.timedelta64(1, "m"), 60.0),
    "inside": ({"a": [np.int8(1), (float("nan"),)], 2: None}, {"a": [1, [None]], "2": None}),
}


@pytest.mark.parametrize("name", VALUES)
def test_one_value(name: str) -> None:
    given, expected = VALUES[name]
    found = as_json(given)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("value", [float("inf"), -np.inf, np.float32("inf"), [np.array([np.inf])]])
def test_json_has_no_infinity(value: Any) -> None:
    with pytest.raises(NotFinite):
        as_json(value)


@pytest.mark.parametrize(
    "value", [{1}, b"1", 1j, np.array([1j]), object(), iter([1])], ids=lambda value: type(value).__name__
)
def test_json_has_nothing_for_it(value: Any) -> None:
    with pytest.raises(WrongType):
        as_json([value])


NAN, INF = float("nan"), float("inf")
LIST, FAR = "must be a list", {"v": [0.5] * 3}
PLACES: dict[str, tuple[Any, Any, str, str]] = {
    "a field": (row, {"n": 1.0, "v": INF}, "/x/v", "must be finite, not inf; a missing value is None"),
    "a field of a name with a slash": (row, {"a/b~": -np.inf}, "/x/a~1b~0", "must be finite, not -inf"),
    "a type": (row, {"user": UUID(int=1)}, "/x/user", "a value of type UUID has no JSON form; pass a number, a string"),
    "inside": (row, {"a": [1, {"b": (0.5, {1})}]}, "/x/a/1/b/1", "a value of type set"),
    "an array": (row, np.array([1.0, INF]), "/x/1", "must be finite"),
    "a row of a frame": (row, pd.DataFrame({"v": [1.0], "w": [INF]}), "/x/w", "must be finite"),
    "a series": (row, pd.Series({"v": 1.0, "w": INF}), "/x/w", "must be finite"),
    "fields of an array": (row, np.array([(0.5, INF)], dtype=[("n", float), ("v", float)])[0], "/x/v", "must be"),
    "a number": (row, INF, "/x", "must be finite"),
    "two rows": (row, pd.DataFrame({"v": [1.0, 2.0]}), "/x", "must be one row of a frame; this frame has 2"),
    "rows of dictionaries": (rows, [FAR, FAR, {"v": [0.5, INF]}], "/x/2/v/1", "must be finite"),
    "rows of arrays": (rows, [np.zeros(2), np.array([0.0, INF])], "/x/1/1", "must be finite"),
    "rows of series": (rows, [pd.Series({"v": 1.0}), pd.Series({"v": INF})], "/x/1/v", "must be finite"),
    "rows of an iterator": (rows, iter([[1.0], [INF]]), "/x/1/0", "must be finite"),
    "rows of an array": (rows, np.array([[NAN, 0.0], [0.0, INF]]), "/x/1/1", "must be finite"),
    "rows of a frame": (rows, pd.DataFrame({"n": [1, 2], "v": [0.0, INF]}), "/x/1/v", "must be finite"),
    "rows of polars": (rows, pl.DataFrame({"n": [1, 2], "v": [0.0, INF]}), "/x/1/v", "must be finite"),
    "rows without names": (rows, pd.DataFrame([[1.0, 2.0], [3.0, INF]]), "/x/1/1", "must be finite"),
    "a frame among rows": (rows, [[1.0], pd.DataFrame({"v": [1.0, 2.0]})], "/x/1", "must be one row"),
    "no rows": (rows, {"v": INF}, "/x", LIST),
    "a set of rows": (rows, {1.0}, "/x", "must have an order"),
    "a truth": (column, [1.0, 2.0, INF], "/y/2", "must be finite"),
    "a truth of a column": (column, pl.Series([1.0, INF]), "/y/1", "must be finite"),
    "no truths": (column, {"v": INF}, "/y", LIST),
    "two columns": (
        column,
        pd.DataFrame({"a": [1], "b": [2]}),
        "/y",
        "must be one column of a frame; this frame has 2",
    ),
    "a class": (row, {"a": float}, "/x/a", "a value of type type"),
    "a dtype": (row, {"a": np.dtype(float)}, "/x/a", "a value of type Float64DType"),
}


@pytest.mark.parametrize("name", PLACES)
def test_an_error_points_to_the_place(name: str) -> None:
    read, value, pointer, detail = PLACES[name]
    with pytest.raises((NotFinite, WrongType)) as caught:
        read(value)
    [error] = caught.value.extra["errors"]
    assert error["pointer"] == pointer
    assert error["detail"].startswith(detail)
    assert str(caught.value) == caught.value.detail == f"{pointer}: {error['detail']}"


def test_the_place_of_a_deep_value_is_found_in_time() -> None:
    deep: Any = INF
    for _ in range(200):
        deep = {"a": deep}
    with pytest.raises(NotFinite) as caught:
        row(deep)
    assert caught.value.extra["errors"][0]["pointer"] == "/x" + "/a" * 200


def test_calls_point_to_the_place(client: Client) -> None:
    """Before a request is sent, the errors are those that the service would have answered."""
    session = client.session("s", "mean")
    frame = pd.DataFrame({"a": np.zeros(2600), "feat_3": np.zeros(2600)})
    frame.loc[2500, "feat_3"] = INF
    calls: dict[str, Callable[[], Any]] = {
        "/x/2500/feat_3": lambda: session.play(frame, [0.0] * 2600),
        "/x/2500/a": lambda: session.predict_many([{"a": 0.0}] * 2500 + [{"a": INF}]),
        "/y/1": lambda: session.play([[0.0]] * 2, [0.0, INF]),
        "/weight/1": lambda: session.play([[0.0]] * 2, [0.0, 0.0], weight=[1.0, INF]),
        "/weight": lambda: session.learn([0.0], 1.0, weight=INF),
        "/x/user": lambda: session.predict({"user": UUID(int=1)}),
        "/y": lambda: session.update("p", INF),
        "/update/y": lambda: session.step("p", INF, [0.0]),
        "/update/x/0": lambda: client.step("s", 0.0, x=[INF], next_x=[0.0]),
        "/predict/x/0": lambda: session.step("p", 0.0, [INF]),
        "/sessions/1/y": lambda: client.update_several({"s": 0.0, "t": INF}, id="p"),
        "/sessions": lambda: client.predict_several("s", [0.0]),
        "/ids": lambda: client.predict_many("s", [[0.0]], "p"),
        "/steps/0/predict/x/a": lambda: client.step_several([{"session": "s", "predict": {"x": {"a": INF}}}]),
        "/y_range/1": lambda: client.create("t", y_range=[0.0, INF]),
        "/learner/config/a": lambda: client.create("t", {"kind": "mean", "config": {"a": INF}}),
    }
    for pointer, call in calls.items():
        with pytest.raises((NotFinite, WrongType), match=f"^{pointer}: ") as caught:
            call()
        assert [error["pointer"] for error in caught.value.extra["errors"]] == [pointer]
    missing: dict[str, Callable[[], Any]] = {
        "/y": lambda: session.learn([0.0], NAN),
        "/y/1501": lambda: session.play(np.zeros((1600, 1)), pd.Series([0.0] * 1501 + [None] + [0.0] * 98)),
        "/y/0": lambda: client.rounds("s", [[0.0]], [None]),
        "/weight/1": lambda: session.play([[0.0]] * 2, [0.0, 0.0], weight=[1.0, NAN]),
        "/weight": lambda: session.learn([0.0], 1.0, weight=NAN),
        "/update/y": lambda: session.step("p", pd.NaT, [0.0]),
        "/sessions/1/y": lambda: client.update_several({"s": 0.0, "t": pd.NA}, id="p"),
    }
    for pointer, call in missing.items():
        with pytest.raises(WrongType) as caught:
            call()
        assert str(caught.value) == f"{pointer}: is missing (None, NaN or NaT); leave out rounds without one"
        assert [error["pointer"] for error in caught.value.extra["errors"]] == [pointer]
    pairs: Any = [("s", 0.0)]
    with pytest.raises(WrongType, match=r"^/sessions: must be a mapping from sessions to truths, not list"):
        client.update_several(pairs, id="p")
    assert session.describe()["t"] == 0
    with session.stream() as stream, pytest.raises(WrongType, match=r"^/update/x/a: a value of type set"):
        stream.one({"update": {"x": {"a": {1}}, "y": 0.0}, "predict": {"x": [0.0]}})


RECORDS = [
    {"n": 1, "b": True, "v": 0.5, "when": "2026-01-01T06:30:00", "word": "x"},
    {"n": 2, "b": False, "v": None, "when": None, "word": None},
]
COLUMNS = {"n": [1, 2], "b": [True, False], "v": [0.5, None], "when": [DAY, None], "word": ["x", None]}
FRAMES: dict[str, Any] = {
    "pandas": pd.DataFrame(COLUMNS),
    "pandas, nullable": pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas, categories": pd.DataFrame(COLUMNS).astype({"word": "category"}),
    "polars": pl.DataFrame(COLUMNS),
    "narwhals": nw.from_native(pl.DataFrame(COLUMNS)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_its_records(name: str) -> None:
    frame = FRAMES[name]
    assert rows(frame) == RECORDS
    assert row(frame.head(1)) == RECORDS[0]
    assert column(frame["n"]) == [1, 2]
    assert column(frame["v"]) == [0.5, None]
    with pytest.raises(WrongType, match="has 2"):
        row(frame)


def test_rows_of_frames() -> None:
    frame = FRAMES["pandas"]
    assert [row(frame.iloc[i]) for i in range(2)] == rows([frame.iloc[0], frame.iloc[1]]) == RECORDS
    assert rows(FRAMES["polars"].rows(named=True)) == RECORDS
    assert row(FRAMES["polars"].row(0)) == list(RECORDS[0].values())


@pytest.mark.parametrize("one", [np.array(1.0), np.float64(1.0), 1.0, "a", b"a", {"a": 1}], ids=repr)
def test_many_are_several(one: Any) -> None:
    for read in (rows, column):
        with pytest.raises(WrongType, match="list"):
            read(one)


@pytest.mark.parametrize("take", [rows, column, lambda frame: row(frame.iloc[:1]), lambda frame: row(frame.iloc[0])])
def test_two_columns_of_one_name_are_refused(take: Any) -> None:
    """As JSON objects the rows would silently lose one of them."""
    with pytest.raises(WrongType, match="'a' names 2"):
        take(pd.DataFrame([[1, 2, 3], [4, 5, 6]], columns=["a", "b", "a"]))


def test_without_names_rows_are_lists() -> None:
    X = np.array([[1.0, np.nan], [3.0, 4.0]])
    expected = [[1.0, None], [3.0, 4.0]]
    for given in (X, X.T.copy().T, X.tolist(), list(X), pd.DataFrame(X), iter(X.tolist()), X.astype(np.float32)):
        assert rows(given) == expected
    assert row(X[1]) == row(pd.DataFrame(X).iloc[1]) == row(pd.Series(X[1])) == row(pl.Series(X[1])) == [3.0, 4.0]


def test_fields_of_arrays_are_names() -> None:
    X = np.array([(0.5, "a", DAY), (np.nan, "b", "NaT")], dtype=[("num", float), ("w", "U3"), ("when", "M8[s]")])
    expected = [{"num": 0.5, "w": "a", "when": "2026-01-01T06:30:00"}, {"num": None, "w": "b", "when": None}]
    assert rows(X) == rows(list(X)) == rows(X.view(np.recarray)) == [row(x) for x in X] == expected
    assert rows(pa.array([{"a": 1}, {"a": None}])) == [{"a": 1}, {"a": None}]


class Relation:
    """A lazy frame that is not collected, as those of DuckDB and Ibis are."""

    def __narwhals_lazyframe__(self) -> Relation:
        return self

    def _with_version(self, version: Any) -> Relation:
        return self


def test_a_lazy_frame_has_to_be_collected() -> None:
    lazy = pl.DataFrame(COLUMNS).lazy()
    for read in (row, rows, column):
        with pytest.raises(WrongType, match=r"LazyFrame has no rows yet; pass what its collect\(\) returns"):
            read(lazy)
        with pytest.raises(WrongType, match="a Relation has no rows yet; materialize it first"):
            read(Relation())


def test_truths_have_no_names() -> None:
    words = ["a", "b"]
    series = pd.Series(words, index=["one", "two"]), pl.Series(words), pa.array(words), pa.chunked_array([words])
    for given in (*series, np.array(words), tuple(words)):
        assert column(given) == words
    for wrong in (None, 1.0, "ab", {"a": 1}):
        with pytest.raises(WrongType, match="list"):
            column(wrong)
        with pytest.raises(WrongType, match="list"):
            rows(wrong)


def test_calls_with_frames(client: Client) -> None:
    """The same rounds as lists and as frames: the same session."""
    X = np.random.default_rng(0).integers(-8, 9, size=(12, 2)) / 8.0
    frames = {
        "numpy": (X.astype(np.float32), X[:, 0]),
        "pandas": (pd.DataFrame(X, columns=["a", "b"]), pd.Series(X[:, 0])),
        "polars": (pl.DataFrame(X, schema=["a", "b"]), pl.Series(X[:, 0])),
    }
    client.create("lists", RIDGE)
    weights = [2.0, 0.5] * 4
    client.rounds("lists", X[:8].tolist(), X[:8, 0].tolist(), weight=weights)
    client.rounds("lists", X[8:].tolist(), X[8:, 0].tolist())
    expected = client.predict("lists", X[3].tolist(), wait=False)["value"]
    for name, (given, truths) in frames.items():
        client.create(name, RIDGE)
        client.rounds(
            name, given[:8], truths[:8], weight=type(truths)(weights) if name != "numpy" else np.array(weights)
        )
        for i in range(8, 12):
            x = given.iloc[i] if name == "pandas" else given.row(i, named=True) if name == "polars" else given[i]
            if i % 2:
                client.update(name, truths[i], x=x)
            else:
                client.step(name, truths[i], id=client.predict(name, x)["id"], next_x=x, wait=False)
        last = given[3:4] if name != "numpy" else given[3]
        assert client.predict(name, last, wait=False)["value"] == pytest.approx(expected, rel=1e-9)


def test_a_learner_may_be_a_word(client: Client) -> None:
    assert client.create("s", "mean")["learner"] == client.create("t", MEAN)["learner"]
