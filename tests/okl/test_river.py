"""Every learner as an estimator of River: its own checks, and the forecasts of a session of the service."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import checks, datasets, evaluate, metrics, preprocessing

from okl.errors import WrongType
from okl.river import Classifier, Regressor
from okl_core import learner_kinds
from okl_core.errors import ConfigError, InputError, LabelError, ShapeError
from okl_core.records.record import RecordError
from service.session.session import Session
from tests.budget import TIMES
from tests.okl.kinds import CHECKED
from tests.service.definitions import define

CONFIGS: dict[str, dict[str, Any]] = {"one-vs-rest": {"classes": 7}, "softmax-aioli": {"classes": 7}}
"""River's checks show the seven labels of a stream one after the other, past the warm-up."""


def estimators(kinds: Iterable[str]) -> list[Classifier | Regressor]:
    """Of each kind the classifier and the regressor that there are."""
    found: list[Classifier | Regressor] = []
    for kind in kinds:
        for made in (Classifier, Regressor):
            with suppress(ConfigError):
                found.append(made(kind, CONFIGS.get(kind)))
    return found


def named(estimator: Classifier | Regressor) -> str:
    return f"{estimator.learner} {type(estimator).__name__}"


def test_every_kind_is_an_estimator() -> None:
    found = estimators(learner_kinds())
    assert {estimator.learner for estimator in found} == set(learner_kinds())
    regressors = {estimator.learner for estimator in found if isinstance(estimator, Regressor)}
    # They learn numbers from 0 to 1 unless told otherwise, so no labels -1 and 1.
    assert set(learner_kinds()) - {one.learner for one in found if isinstance(one, Classifier)} == {
        "metric-packing",
        "packing",
    }
    assert {"auto", "pool", "kons", "mean", "packing"} < regressors


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", estimators(CHECKED), ids=named)
def test_rivers_own_checks(estimator: Classifier | Regressor) -> None:
    """Each check on one of the streams that River has for it; with TIMES=2 on all."""
    assert not estimator._unit_test_skips() or estimator.learner == "foster-1d"
    found: dict[str, list[Callable[[Any], None]]] = {}
    for check in checks.yield_checks(estimator):
        found.setdefault(check.__name__, []).append(check)
    for name, several in found.items():
        # The first two are of the same rows, with labels of different types; a third has many classes.
        turn = CHECKED.index(estimator.learner) % len(several) if len(several) < 3 else 2
        for check in several if TIMES > 1 else [several[turn]]:
            if name not in estimator._unit_test_skips():
                check(estimator.clone())


def record(i: int) -> dict[str, Any]:
    return {"size": 1000.0 * (i % 7), "kind": "ab"[i % 2], "place": {"row": i % 3, "note": None if i % 5 else 2.5}}


@pytest.mark.parametrize("learner", ["auto", "nystrom-aioli"])
def test_forecasts_are_those_of_a_session(learner: str) -> None:
    """Through the stages of the warm-up, and after it."""
    config = {"truth": "classes"} if learner == "auto" else {}
    spec = {"kind": learner, "config": config}
    labels = ("no", "yes")
    session = Session(define(spec, labels=labels, scale="learned", is_strict=False, warmup_rounds=40))
    model = Classifier(learner, config | ({"classes": 2} if learner == "auto" else {}), warmup_rounds=40)
    for i in range(80):
        x, y = record(i), labels[i % 7 > 2]
        raw = session.read_input(x)
        forecast = session.forecast(raw)
        if i > 8:
            expected = forecast.probability if forecast.probabilities is None else forecast.probabilities[1]
            assert model.predict_proba_one(x)["yes"] == pytest.approx(expected, abs=1e-9)
        truth, task = session.read_truth(y)
        session.learn(session.play(raw, truth, task))
        model.learn_one(x, y)


def test_it_is_pickled_as_data_and_continues() -> None:
    for rounds in (0, 5, 20, 60):
        model = Classifier("pomdr", warmup_rounds=40)
        for i in range(rounds):
            model.learn_one(record(i), i % 7 > 2)
        blob = pickle.dumps(model)
        again = pickle.loads(blob)
        for i in range(rounds, rounds + 30):
            assert again.predict_one(record(i)) == model.predict_one(record(i))
            for one in (model, again):
                one.learn_one(record(i), i % 7 > 2)
        assert pickle.dumps(again._learning) == pickle.dumps(model._learning)


def test_a_label_with_an_unpaired_surrogate_is_pickled() -> None:
    # As `os.fsdecode` makes it of a file's name.
    model = Classifier("pomdr", warmup_rounds=8)
    for i in range(12):
        model.learn_one(record(i), ("\udcff.txt", "b.txt")[i % 2])
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_one(record(1)) == model.predict_one(record(1)) == "b.txt"


def test_many_is_one_by_one() -> None:
    one, many = Regressor("kernel-ridge", warmup_rounds=40), Regressor("kernel-ridge", warmup_rounds=40)
    frame, truths = pd.DataFrame([record(i) for i in range(90)]), pd.Series(np.arange(90) % 7 * 10.0)
    for x, y in zip(frame.to_dict("records"), truths, strict=True):
        one.learn_one(x, y)
    for start, end in ((0, 3), (3, 30), (30, 90)):
        many.learn_many(frame[start:end], truths[start:end])
    assert many.predict_many(frame).tolist() == pytest.approx([one.predict_one(x) for x in frame.to_dict("records")])


COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "whole numbers": (pd.array([1, None, 3], dtype="Int64"), [1, None, 3]),
    "booleans": (pd.array([True, None, False], dtype="boolean"), [True, None, False]),
    "texts": (pd.array(["a", None, "b"], dtype="string"), ["a", None, "b"]),
    "of Arrow": (pd.array([1.5, None, 3.0], dtype="double[pyarrow]"), [1.5, None, 3.0]),
    "spans of time": (pd.to_timedelta(["1s", None, "3s"]), [1.0, None, 3.0]),
    "decimals": ([Decimal(1), None, Decimal(3)], [1.0, None, 3.0]),
    "times": ([dt.time(6), None, dt.time(8)], ["06:00:00", None, "08:00:00"]),
    "several": ([[1, pd.NA], None, (3,)], [[1, None], None, [3]]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_records_hold_what_the_client_would_send(name: str) -> None:
    column, sent = COLUMNS[name]
    truths = pd.Series(["a", "b", "a"] * 8)
    told = []
    for values in (pd.Series(column), pd.Series(sent, dtype=object)):
        frame = pd.concat([pd.DataFrame({"c": values})] * 8, ignore_index=True)
        model = Classifier("auto")
        model.learn_many(frame, truths)
        told.append(model.predict_proba_many(frame).to_numpy())
    np.testing.assert_array_equal(*told)


def test_a_value_that_is_none_is_told_with_its_field() -> None:
    model = Classifier()
    for value, what in ((pd.Period("2026"), "a number"), (math.inf, "finite")):
        with pytest.raises(RecordError, match=rf"when\.it: must be .*{what}"):
            model.learn_one({"when": {"it": value}}, "a")


def test_it_works_in_a_pipeline_and_learns() -> None:
    """A stream of River, told raw or scaled: better than the more frequent label, which errs in 44 of 100."""
    for model in (Classifier(), preprocessing.StandardScaler() | Classifier("nystrom-aioli")):
        accuracy = evaluate.progressive_val_score(datasets.Phishing().take(500), model, metrics.Accuracy())
        assert accuracy.get() > 0.85


def test_truths_of_any_unit_reach_a_learner_of_a_range() -> None:
    model = Regressor("kons", {"kernel": {"kind": "gaussian", "sigma": 0.3}, "regularization": 0.01})
    for i in range(400):
        model.learn_one({"i": i % 10}, 5000.0 + 100.0 * (i % 10))
    assert model.predict_one({"i": 3}) == pytest.approx(5300.0, abs=30.0)


def test_labels_that_python_calls_equal_are_two() -> None:
    model = Classifier("frequencies")
    for label in (1, True, True, True):
        model.learn_one({"a": 1.0}, label)
    assert model.predict_one({"a": 1.0}) is True
    for _ in range(4):
        model.learn_one({"a": 1.0}, 1)
    assert model.predict_one({"a": 1.0}) is not True


@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_columns_need_distinct_names(names: list[Any]) -> None:
    model, frame = Classifier(), pd.DataFrame([[1.0, 2.0]], columns=names)
    with pytest.raises(WrongType, match=f"'{names[1]}' names 2"):
        model.learn_many(frame, pd.Series(["x"]))
    assert model.describe()["t"] == 0


@pytest.mark.parametrize("rounds", [-1, 0, 1])
def test_a_warm_up_has_two_rounds_at_least(rounds: int) -> None:
    with pytest.raises(ValueError, match=f"warmup_rounds must be at least 2, not {rounds}"):
        Regressor(warmup_rounds=rounds)


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(ConfigError, match="regressor has to learn numbers"):
        Regressor("aioli")
    with pytest.raises(ConfigError, match="widen its range"):
        Classifier("packing")
    model = Classifier("aioli")
    model.learn_one({"a": 1.0}, "x")
    model.learn_one({"a": 1.0}, "y")
    with pytest.raises(LabelError, match="one-vs-rest"):
        model.learn_one({"a": 1.0}, "z")
    with pytest.raises(LabelError, match="not \\('x',\\)"):
        Classifier().learn_one({"a": 1.0}, ("x",))
    with pytest.raises(ShapeError, match="takes 1 inputs, not 2"):
        Classifier("foster-1d").learn_one({"a": 1.0, "b": 2.0}, True)
    with pytest.raises(NotImplementedError, match="no probabilities"):
        Classifier("pomdr").predict_proba_one({"a": 1.0})
    late = Classifier("one-vs-rest", warmup_rounds=10)
    for i in range(10):
        late.learn_one({"a": float(i)}, "xy"[i % 2])
    with pytest.raises(LabelError, match="classes"):
        late.learn_one({"a": 1.0}, "z")
    assert late.predict_proba_one({"a": 1.0}).keys() == {"x", "y"}


def test_a_notebook_shows_it() -> None:
    model = Classifier()
    model.learn_one({"a": 1.0}, "<b>")
    shown = model._repr_html_()
    assert "<caption>okl.river.Classifier</caption>" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


@pytest.mark.parametrize("truth", [float("nan"), float("inf"), "3", "abc", [1.0], 10**400])
@pytest.mark.parametrize("rounds", [0, 15, 60], ids=["at first", "in the warm-up", "after it"])
def test_a_truth_that_is_no_number_is_refused_and_changes_nothing(truth: Any, rounds: int) -> None:
    model = Regressor("kons", {"loss": "squared", "clip": 1.0})
    for i in range(rounds):
        model.learn_one({"a": i % 7}, float(i % 5))
    before = model.predict_one({"a": 3})
    with pytest.raises(InputError, match="y"):
        model.learn_one({"a": 3}, truth)
    assert model.predict_one({"a": 3}) == before
    model.learn_one({"a": 3}, 2.0)
    assert math.isfinite(model.predict_one({"a": 3}))


def test_as_many_rows_as_truths() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    for truths in ([0.0, 1.0], [0.0, 1.0, 2.0, 3.0]):
        with pytest.raises(ShapeError, match="3 rows"):
            Regressor("kernel-ridge").learn_many(frame, pd.Series(truths))
