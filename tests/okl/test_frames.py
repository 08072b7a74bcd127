"""What comes back of many rows is of the kind in which they came."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from okl.answers import Prediction, Predictions
from okl.client import Client
from okl.errors import WrongType
from okl.frames import Form, array_of
from okl.values import rows

COLUMNS: dict[str, list[Any]] = {
    "values": [1.0, None, 3.0],
    "labels": ["a", "b", None],
    "sets": [["a"], ["a", "b"], []],
}


def test_pandas_keeps_its_index() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
    for came in (frame, frame["a"]):
        found = Form.of(came).frame(COLUMNS)
        assert found.index.tolist() == ["x", "y", "z"]
        assert found.columns.tolist() == list(COLUMNS)
        assert found["values"].fillna(-1.0).tolist() == [1.0, -1.0, 3.0]
        column = Form.of(came).series("label", ["a", "b", "a"])
        assert isinstance(column, pd.Series)
        assert (column.name, column["z"]) == ("label", "a")


def test_polars_and_arrow() -> None:
    found = Form.of(pl.DataFrame({"a": [1.0, 2.0, 3.0]})).frame(COLUMNS)
    assert found.equals(pl.DataFrame(COLUMNS))
    assert Form.of(pl.Series([1, 2])).series("y", [1.0, 2.0]).equals(pl.Series("y", [1.0, 2.0]))
    assert Form.of(pa.table({"a": [1.0]})).frame({"values": [2.0]}).equals(pa.table({"values": [2.0]}))


@pytest.mark.parametrize("came", [[[1.0]], np.zeros((3, 1)), [{"a": 1}], None], ids=lambda came: type(came).__name__)
def test_arrays_otherwise(came: Any) -> None:
    found = Form.of(came).frame(COLUMNS)
    assert np.isnan(found["values"]).tolist() == [False, True, False]
    assert found["values"].dtype == np.float64
    assert found["sets"].dtype == object
    assert found["sets"].tolist() == COLUMNS["sets"]
    assert array_of([]).shape == (0,)
    np.testing.assert_array_equal(array_of([1, None, 3.5]), [1.0, np.nan, 3.5])
    assert array_of([True, None]).dtype == object
    assert array_of([1, 2]).dtype.kind == "i"
    assert array_of([1, 2.5]).dtype.kind == "f"
    assert array_of([[0.5, 0.5]]).shape == (1, 2)


def test_predictions_are_a_sequence_with_columns() -> None:
    found = Predictions(
        [Prediction("s", 1, label="a", probability=0.2), Prediction("s", 1, label="b", probability=0.9)]
    )
    assert found.columns() == {"labels": ["a", "b"], "probabilities": [0.2, 0.9]}
    assert (len(found), found[-1].label, [one.label for one in found[:1]]) == (2, "b", ["a"])
    assert "label='a'" in repr(found)
    assert Predictions([]).columns() == {}


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_rounds_of_a_frame(client: Client, library: Any) -> None:
    frame = library.DataFrame({"a": [float(i % 5) for i in range(1200)]})
    session = client.session("s", "ons", y_range=[0.0, 5.0])
    played = session.play(frame, frame["a"])
    back = played.to_frame()
    assert isinstance(back, library.DataFrame)
    assert back["values"].to_list() == played.values
    many = session.predict_many(frame)
    assert len(many) == 1200
    assert many.to_frame()["values"].to_list() == [one.value for one in many]


def test_batches_of_arrow_are_a_frame() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    records = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert rows(batch) == records
    assert rows(pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])) == records * 2
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    for one in (twice, pa.RecordBatchReader.from_batches(twice.schema, [twice])):
        with pytest.raises(WrongType, match="'a' names 2"):
            rows(one)


@pytest.mark.parametrize(
    ("labels", "column"),
    [([0, 0.5, None], [0.0, 0.5, None]), (["a", 1, None], ["a", "1", None]), ([True, 2, None], ["True", "2", None])],
    ids=str,
)
def test_labels_of_several_types(labels: list[Any], column: list[Any]) -> None:
    assert Form.of(pl.DataFrame({"a": [1, 2, 3]})).series("label", labels).to_list() == column
    assert Form.of(pl.DataFrame({"a": [1, 2, 3]})).frame({"label": labels})["label"].to_list() == column


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_sets_of_labels_of_several_types(library: Any) -> None:
    sets = [("a", 1, True), (), [True]]
    found = Form.of(library({"a": [1, 2, 3]})).frame({"sets": sets, "numbers": [[1, 0.5], [1], []]})
    columns = nw.from_native(found).to_dict(as_series=False)
    assert list(map(list, columns["sets"])) == [["a", "1", "True"], [], ["True"]]
    assert list(map(list, columns["numbers"])) == [[1.0, 0.5], [1.0], []]


def test_an_array_keeps_what_labels_are() -> None:
    assert array_of(["a", 1]).tolist() == ["a", 1]
    assert array_of([True, "a"]).tolist() == [True, "a"]
