"""The settings of a new session in the forms that Python programs have them in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import okl
from okl.client import Client
from okl.errors import WrongType
from okl.settings import settings_json

WORDS = ["no", "yes"]
LABELS: dict[str, Any] = {
    "a tuple": tuple(WORDS),
    "an array": np.array(WORDS),
    "pandas' unique": pd.Series([*WORDS, "no"]).unique(),
    "an index": pd.Index(WORDS),
    "categories": pd.Series(WORDS, dtype="category").cat.categories,
    "a series": pd.Series(WORDS, index=[3, 5]),
    "a series of polars": pl.Series(WORDS),
    "an array of Arrow": pa.array(WORDS),
    "keys": {"no": 1, "yes": 2}.keys(),
    "a generator": (word for word in WORDS),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_values_in_an_order(name: str) -> None:
    assert settings_json({"labels": LABELS[name]}) == {"labels": WORDS}


def test_labels_that_are_none(client: Client) -> None:
    assert settings_json({"labels": range(3), "dim": None}) == {"labels": [0, 1, 2], "dim": None}
    assert client.create("s", labels=None)["labels"] is None
    wrong = {"must have an order, which a set has not": set(WORDS), "must be a list or column": "yes"}
    for detail, labels in (wrong | {"must be a list or column of several values, not int": 2}).items():
        with pytest.raises(WrongType, match=f"^/labels: {detail}") as caught:
            client.session("t", labels=labels)
        assert caught.value.extra["errors"][0]["pointer"] == "/labels"
    with pytest.raises(WrongType, match=r"^/session/labels: must have an order"):
        client.put_template("t", "t-", session={"labels": set(WORDS)})


def test_labels_of_an_estimator(url: str) -> None:
    y = pd.Series(["yes", "no", "yes"])
    with okl.RemoteClassifier(url, "rain", labels=y.unique()) as model:
        model.learn_many([[1.0], [2.0], [3.0]], y)
        assert model.classes_.tolist() == ["yes", "no"]
    with okl.RemoteClassifier(url, "snow", labels=set(y)) as model, pytest.raises(WrongType, match=r"^/labels: "):
        model.learn_one([1.0], "yes")


FRAME = pd.DataFrame(
    {
        "size": [1.5],
        "rooms": pd.array([1], "Int64"),
        "new": [True],
        "known": pd.array([True], "boolean"),
        "at": pd.to_datetime(["2026-01-01"]),
        "took": [timedelta(1)],
        "name": pd.array(["a"], "string"),
        "kind": pd.Categorical(["a"]),
    }
)
OF_FRAME = {
    "size": "number",
    "rooms": "number",
    "new": "boolean",
    "known": "boolean",
    "at": "time",
    "took": "number",
    "name": "text",
    "kind": "category",
}
SCHEMAS: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "classes": (
        {"a": float, "b": int, "c": bool, "d": str, "e": np.float32},
        {"a": "number", "b": "number", "c": "boolean", "d": "text", "e": "number"},
    ),
    "dtypes": (FRAME.dtypes.to_dict(), OF_FRAME),
    "a series of dtypes": (FRAME.dtypes, OF_FRAME),
    "inside": (
        {"a": {"type": float}, "b": {"type": "category", "categories": np.array(["x", "y"])}},
        {"a": {"type": "number"}, "b": {"type": "category", "categories": ["x", "y"]}},
    ),
    "words": ({"a": "number"}, {"a": "number"}),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_has_types_of_python(name: str, client: Client) -> None:
    given, expected = SCHEMAS[name]
    assert settings_json({"schema": given}) == {"schema": expected}
    client.create("s", schema=given)


@pytest.mark.parametrize("wrong", [UUID, list, pl.Float64, np.floating, 5, [float]], ids=repr)
def test_what_is_no_type_of_a_field(wrong: Any) -> None:
    with pytest.raises(WrongType, match=r"^/schema/a~1b: .* by number, boolean, category, time or text, or by float,"):
        settings_json({"schema": {"a/b": wrong}})


def test_a_column_of_objects_needs_a_word() -> None:
    with pytest.raises(WrongType, match=r"^/schema/a: a column of object may hold anything; name its type: text, "):
        settings_json({"schema": {"a": np.dtype(object)}})


def test_a_schema_is_a_dictionary() -> None:
    assert settings_json({"schema": None}) == {"schema": None}
    for wrong in ([float], 5, "number"):
        with pytest.raises(WrongType, match=r"^/schema: must be a dictionary from fields to their types, not "):
            settings_json({"schema": wrong})
