"""A session of a service as an estimator, with the methods of River and of scikit-learn."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import datasets, evaluate, metrics, preprocessing
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score

import okl
from okl import errors
from okl.client import Client
from okl.river import Classifier, Regressor
from okl.sklearn import Classifier as SklearnClassifier

X, Y = load_breast_cancer(return_X_y=True)
FEW = 120


def record(i: int) -> dict[str, Any]:
    return {"size": 1000.0 * (i % 7), "kind": "ab"[i % 2], "place": {"row": i % 3, "note": None if i % 5 else 2.5}}


def test_it_says_what_the_local_one_does(client: Client) -> None:
    """As River has it: a record at a time, labels that nobody has declared."""
    local, remote = Classifier(), okl.RemoteClassifier(client, "s", "auto")
    assert remote.predict_one(record(0)) is None
    assert remote.predict_proba_one(record(0)) == {}
    for i in range(60):
        x, y = record(i), ("few", "some", "many")[i % 7 // 3]
        local.learn_one(x, y)
        remote.learn_one(x, y)
        if i > 8 and i % 7 == 0:
            assert remote.predict_one(x) == local.predict_one(x)
            assert remote.predict_proba_one(x) == pytest.approx(local.predict_proba_one(x), abs=1e-9)
    assert remote.classes_.tolist() == ["few", "some", "many"]
    assert sum(remote.predict_proba_one(record(5)).values()) == pytest.approx(1.0)
    many = pd.DataFrame([record(i) for i in range(9)], index=range(10, 19))
    said = remote.predict_many(many)
    assert (said.tolist(), said.index.tolist()) == (local.predict_many(many).tolist(), many.index.tolist())
    assert remote.predict_proba_many(many).to_numpy() == pytest.approx(local.predict_proba_many(many).to_numpy())
    scores = remote.decision_function(many)
    assert scores.index.tolist() == many.index.tolist()
    assert scores.columns.tolist() == ["few", "some", "many"]
    assert scores.to_numpy() == pytest.approx(np.log(remote.predict_proba(many).to_numpy()))


def test_numbers_are_those_of_the_local_one(client: Client) -> None:
    local, remote = Regressor(), okl.RemoteRegressor(client, "s", "auto")
    assert remote.predict_one(record(0)) == 0.0
    for i in range(40):
        local.learn_one(record(i), 5.0 * (i % 7))
        remote.learn_one(record(i), 5.0 * (i % 7))
    frame = pl.DataFrame({"size": [0.0, 1000.0], "kind": ["a", "b"]})
    found = remote.predict_many(frame)
    assert isinstance(found, pl.Series)
    assert found.to_list() == pytest.approx([local.predict_one(row) for row in frame.to_dicts()])
    assert remote.partial_fit(frame, [1.0, 2.0]).session.describe()["t"] == 42
    assert remote.predict([[1.0]]).shape == (1,)


def test_arrays_as_in_scikit_learn(client: Client) -> None:
    local = SklearnClassifier("nystrom-aioli").partial_fit(X[:FEW], Y[:FEW], classes=[0, 1])
    with okl.RemoteClassifier(client.url, "s", "nystrom-aioli") as remote:
        remote.partial_fit(X[:50], Y[:50], [0, 1]).partial_fit(X[50:FEW], Y[50:FEW])
        assert remote.session.describe()["t"] == FEW
        assert remote.classes_.tolist() == [0, 1]
        assert accuracy_score(Y, remote.predict(X)) > 0.85
        # A session and an estimator find the scale of the same rounds.
        assert remote.predict_proba(X[:9]) == pytest.approx(local.predict_proba(X[:9]), abs=1e-9)
        as_in_scikit_learn(remote)


def as_in_scikit_learn(remote: okl.RemoteClassifier) -> None:
    P, scores = remote.predict_proba(X), remote.decision_function(X)
    assert (P.shape, scores.shape) == ((len(X), 2), (len(X),))
    assert P.sum(axis=1) == pytest.approx(1.0)
    assert ((scores >= 0.0) == (P[:, 1] >= 0.5)).all()
    assert remote.predict(X[:0]).shape == (0,)
    assert remote.predict_proba(X[:0]).shape == (0, 2)


def test_river_evaluates_it(client: Client) -> None:
    model = preprocessing.StandardScaler() | okl.RemoteClassifier(client, "s", "nystrom-aioli", labels=[False, True])
    accuracy = evaluate.progressive_val_score(datasets.Phishing().take(200), model, metrics.Accuracy())
    assert accuracy.get() > 0.7


def test_pickled_it_is_an_address_and_a_name(client: Client) -> None:
    model = okl.RemoteClassifier(client, "s", "aioli", labels=["no", "yes"])
    model.learn_one({"a": 1.0}, "yes")
    with pickle.loads(pickle.dumps(model)) as again:
        assert (again.client.url, again.name, again.settings) == (client.url, "s", {"labels": ["no", "yes"]})
        again.learn_one({"a": 1.0}, "yes")
    assert model.session.describe()["t"] == 2
    assert repr(again) == f"RemoteClassifier({client.url!r}, 's')"


def test_a_notebook_shows_what_the_client_has(client: Client) -> None:
    model = okl.RemoteClassifier(client, "s", "aioli", labels=["<b>", "yes"])
    played = model.session.play([{"a": 1.0}, {"a": 2.0}], ["<b>", "yes"])
    shown = [thing._repr_html_() for thing in (model, model.session, played)]
    assert "&lt;b&gt;" in shown[0]
    assert "<b>" not in shown[0]
    assert all(f"<th>session</th><td>{model.name}</td>" in table for table in shown)
    assert all(f"<td>{client.url}</td>" in table for table in shown[:2])
    assert f"<th>mistakes</th><td>{played.mistakes}</td>" in shown[2]
    assert "None" not in "".join(shown)


def test_what_it_is_not(client: Client) -> None:
    model = okl.RemoteClassifier(client, "s", "pomdr", labels=["no", "yes"])
    with pytest.raises(TypeError, match="Cannot clone"):
        clone(model)
    assert not hasattr(model, "fit")
    for i in range(12):
        model.learn_one([float(i)], ["no", "yes"][i % 2])
    with pytest.raises(NotImplementedError, match="no probabilities"):
        model.predict_proba_one([1.0])
    assert model.decision_function([[1.0]]).shape == (1,)
    with pytest.raises(errors.SessionNotFound):
        okl.RemoteRegressor(client, "nobody").predict_one({"a": 1.0})


def test_before_the_first_truth(client: Client) -> None:
    model = okl.RemoteClassifier(client, "s", "auto")
    assert model.predict_proba([[1.0]]).shape == (1, 0)
    assert model.decision_function([[1.0]]).tolist() == [0.0]
    model.learn_one([1.0], "a")
    assert model.decision_function([[1.0]]).tolist() == [0.0]


def test_a_session_that_was_made_anew_or_rolled_back_has_other_labels(client: Client) -> None:
    model = okl.RemoteClassifier(client, "s", "auto")

    def learn(*labels: str) -> None:
        model.learn_many([[float(i % len(labels))] for i in range(30)], list(labels) * (30 // len(labels)))

    learn("a", "b")
    client.checkpoint("s", "two")
    learn("a", "b", "c")
    assert list(model.predict_proba_one([2.0])) == ["a", "b", "c"]
    client.roll_back("s", "two")
    learn("a", "b", "d")
    assert list(model.predict_proba_one([2.0])) == ["a", "b", "d"]
    client.delete("s")
    with pytest.raises(errors.SessionNotFound):
        model.predict_proba_one([2.0])
    client.create("s", "auto", labels=["b", "a"])
    model.learn_one([0.0], "a")
    assert list(model.predict_proba_one([0.0])) == ["b", "a"]
    requests: list[str] = []
    asked = client.send
    client.send = lambda call: (requests.append(call.path), asked(call))[1]  # type: ignore[method-assign]
    model.predict_proba_one([0.0])
    assert requests == ["/sessions/s/predict"]


def test_labels_that_are_numbers_name_the_columns(client: Client) -> None:
    model = okl.RemoteClassifier(client, "s", "aioli", labels=[0, 0.5])
    frame = pd.DataFrame({"a": [0.0, 1.0] * 20}, index=[7] * 40)
    model.learn_many(frame, (label for label in [0, 0.5] * 20))
    model.learn_many(frame, pd.DataFrame({"label": [0, 0.5] * 20}))
    assert model.session.describe()["t"] == 80
    assert model.predict_proba_many(frame).columns.tolist() == [0, 0.5]
    assert model.predict_many(frame).tolist() == [0, 0.5] * 20
    assert model.predict_many(pl.from_pandas(frame)).to_list() == [0, 0.5] * 20
    assert model.predict_proba_many(pl.from_pandas(frame)).columns == ["0", "0.5"]
    with pytest.raises(errors.WrongType, match="this frame has 2"):
        model.learn_many(frame, pd.DataFrame({"a": [1.0] * 40, "b": [1.0] * 40}))


def test_labels_of_the_same_text_have_a_column_each(client: Client) -> None:
    model = okl.RemoteClassifier(client, "s", labels=["1", 1, "no"])
    model.learn_many([[0.0], [1.0], [2.0]] * 4, ["1", 1, "no"] * 4)
    of_polars, of_pandas = (model.predict_proba_many(library.DataFrame({"a": [1.0]})) for library in (pl, pd))
    assert of_polars.columns == ["'1'", "1", "'no'"]
    assert of_pandas.columns.tolist() == ["1", 1, "no"]
    assert of_polars.to_numpy() == pytest.approx(of_pandas.to_numpy())


def test_neither_library_is_loaded() -> None:
    program = "import sys, okl; okl.RemoteClassifier; print({'river', 'sklearn', 'pandas'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "set()"


def test_labels_are_those_of_the_session_that_is_there(client: Client) -> None:
    """It is made anew with its labels the other way round, after as many rounds, and after fewer."""
    remote = okl.RemoteClassifier(client, "s", "aioli", labels=["no", "yes"])

    def learn(rounds: int) -> dict[Any, float]:
        for i in range(rounds):
            remote.learn_one([float(i % 2)], ["no", "yes"][i % 2])
        return remote.predict_proba_one([1.0])

    before = learn(20)
    for rounds in (20, 10):
        client.delete("s")
        client.create("s", "aioli", labels=["yes", "no"])
        after = learn(rounds)
        assert after["yes"] > 0.5 < before["yes"]
        assert list(after) == ["yes", "no"]


def test_labels_of_a_session_that_was_rolled_back(client: Client) -> None:
    remote = okl.RemoteClassifier(client, "s", "auto")
    for i in range(20):
        remote.learn_one([float(i % 2)], "ab"[i % 2])
    client.checkpoint("s", "two")
    for third in "cd":
        for i in range(20):
            remote.learn_one([float(i % 3)], ("a", "b", third)[i % 3])
        assert list(remote.predict_proba_one([2.0])) == ["a", "b", third]
        client.roll_back("s", "two")


def test_truths_in_other_forms(client: Client) -> None:
    remote = okl.RemoteClassifier(client, "s", "auto")
    remote.learn_many([[1.0], [2.0]], pd.DataFrame({"y": ["a", "b"]}))
    remote.learn_many([[1.0], [2.0]], iter("ab"))
    assert remote.session.describe()["t"] == 4
    with pytest.raises(errors.WrongType, match="one column"):
        remote.learn_many([[1.0]], pd.DataFrame({"y": ["a"], "z": ["b"]}))


@pytest.mark.parametrize("truths", [0, 1, 3])
def test_as_many_truths_as_rows(client: Client, truths: int) -> None:
    remote = okl.RemoteRegressor(client, "s", "mean")
    remote.learn_many([], [])
    with pytest.raises(ValueError, match="2 inputs and"):
        remote.learn_many([[1.0], [2.0]], [1.0] * truths)
    with pytest.raises(ValueError, match="2 inputs and"):
        remote.partial_fit(pd.DataFrame({"a": [1.0, 2.0]}), [1.0] * truths)
