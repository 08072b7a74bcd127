"""Every learner as an estimator of scikit-learn: its own checks, frames as they come, and the displays."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from okl.sklearn import CalibrationDisplay, Classifier, ProgressiveDisplay, Regressor
from okl_core import learner_kinds
from okl_core.errors import ConfigError, LabelError
from tests.okl.kinds import CHECKED

mpl.use("agg")

X, Y = load_breast_cancer(return_X_y=True)
FEW = 150


def estimators(kinds: Iterable[str]) -> list[Classifier | Regressor]:
    found: list[Classifier | Regressor] = []
    for kind in kinds:
        for made in (Classifier, Regressor):
            estimator = made(kind)
            try:
                estimator._spec()
            except ConfigError:
                continue
            found.append(estimator)
    return found


def named(estimator: Classifier | Regressor) -> str:
    return f"{estimator.learner} {type(estimator).__name__}"


def test_every_kind_is_an_estimator() -> None:
    assert {estimator.learner for estimator in estimators(learner_kinds())} == set(learner_kinds())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", estimators(CHECKED), ids=named)
def test_scikit_learns_own_checks(estimator: Classifier | Regressor) -> None:
    found: list[dict[str, Any]] = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    if estimator.learner == "foster-1d":
        # The checks that fit more than one column, each refused with the same words.
        assert all(
            "takes 1 inputs" in str(error) + str(error.__cause__ or error.__context__) for error in failed.values()
        )
    else:
        assert failed == {}


@pytest.mark.parametrize("learner", ["auto", "pomdr", "one-vs-rest"])
def test_it_is_pickled_and_continues(learner: str) -> None:
    for rows in (5, 60):
        one = Classifier(learner, warmup_rounds=50).partial_fit(X[:rows], Y[:rows], classes=[0, 1])
        again = pickle.loads(pickle.dumps(one))
        for model in (one, again):
            model.partial_fit(X[rows:FEW], Y[rows:FEW])
        assert (one.decision_function(X) == again.decision_function(X)).all()


@pytest.mark.parametrize(
    ("learner", "config"), [("softmax-aioli", {"half_life": "learned"}), ("pool", {"truth": "classes"})]
)
def test_a_pool_of_classes_has_as_many_as_there_are_labels(learner: str, config: dict[str, Any]) -> None:
    labels = np.array(["a", "b", "c"])[(Y[:FEW] > 0) * (1 + (X[:FEW, 0] > np.median(X[:FEW, 0])))]
    one = Classifier(learner, config).fit(X[:FEW], labels)
    again = pickle.loads(pickle.dumps(one))
    assert one.predict_proba(X[:5]).shape == (5, 3)
    assert (one.predict_proba(X[:FEW]) == again.predict_proba(X[:FEW])).all()


def test_a_clone_has_learned_nothing() -> None:
    fitted = Classifier("aioli", {"comparator_norm": 5.0}, seed=3).fit(X[:FEW], Y[:FEW])
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not again.__sklearn_is_fitted__()
    again.set_params(learner="pomdr", config=None)
    assert not hasattr(again, "predict_proba")
    assert hasattr(fitted, "predict_proba")


def test_raw_columns_need_no_scaler() -> None:
    """The more frequent label has 0.63."""
    assert cross_val_score(Classifier("nystrom-aioli"), X, Y, cv=3).min() > 0.9


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_with_words_and_gaps(library: Any) -> None:
    colour = ["red", "blue", None] * 60
    frame = library.DataFrame({"colour": colour, "size": [float(i % 5) for i in range(180)]})
    y = np.array(["hot" if one == "red" else "cold" for one in colour])
    model = Classifier().fit(frame, y)
    assert model.score(frame, y) > 0.95
    assert model.feature_names_in_.tolist() == ["colour", "size"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"size": "length"}) if library is pd else frame.rename({"size": "length"}))


@pytest.mark.parametrize("learner", ["kons", "pros-n-kons", "packing"])
def test_truths_whose_difference_overflows_are_told(learner: str) -> None:
    with pytest.raises(LabelError, match=r"^y has truths from -1e\+308 to 1e\+308, too far apart: scale them down"):
        Regressor(learner).fit(X[:2], [1e308, -1e308])


def test_a_missing_number_is_no_error() -> None:
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    assert Classifier("nystrom-aioli").fit(holes, Y).score(holes, Y) > 0.9


def test_labels_must_be_known() -> None:
    with pytest.raises(ValueError, match="first call"):
        Classifier().partial_fit(X[:9], Y[:9])
    with pytest.raises(ValueError, match="not in `classes`"):
        Classifier().partial_fit(X[:FEW], Y[:FEW], classes=[0, 5])
    model = Classifier()
    with pytest.raises(ValueError, match="not in `classes`"):
        model.partial_fit(X[:9], [0, 1, 2] * 3, classes=[0, 1])
    assert not model.__sklearn_is_fitted__()
    model.partial_fit(X[:9], Y[:9], classes=[0, 1])
    with pytest.raises(ValueError, match="same as on the last call"):
        model.partial_fit(X[:9], Y[:9], classes=[0, 2])
    with pytest.raises(ValueError, match=r"not in `classes`: \['a'\]"):
        model.partial_fit(X[:1], np.array(["a"], dtype=object))


def test_labels_of_types_that_cannot_be_sorted_are_refused() -> None:
    labels = np.array(["a", 1, "a"], dtype=object)
    with pytest.raises(ValueError, match="sorted together, not int, str"):
        Classifier().fit(X[:3], labels)
    model = Classifier().partial_fit(X[:9], Y[:9], classes=[0, 1])
    with pytest.raises(ValueError, match="sorted together, not int, str"):
        model.partial_fit(X[:9], Y[:9], classes=labels)


@pytest.mark.parametrize(("first", "then"), [("M8[D]", "M8[ns]"), ("M8[ns]", "M8[D]"), ("m8[s]", "m8[ns]")])
def test_times_are_labels_in_any_unit(first: str, then: str) -> None:
    labels = np.array([0, 86_400], dtype="M8[s]" if first[0] == "M" else "m8[s]")
    truths, classes = labels[Y[:FEW]], labels.astype(first)
    one, other = (Classifier("aioli").partial_fit(X[:50], truths[:50].astype(first), classes) for _ in "ab")
    one.partial_fit(X[50:FEW], truths[50:].astype(first))
    other.partial_fit(X[50:FEW], truths[50:].astype(then))
    assert other.predict(X).tolist() == one.predict(X).tolist()
    assert set(other.predict(X).tolist()) == set(other.classes_.tolist())
    with pytest.raises(ValueError, match="not in `classes`"):
        other.partial_fit(X[:1], labels[1:].astype(then.replace("D", "h")) + 1)


def test_a_warm_up_has_two_rounds_at_least() -> None:
    for model in (Classifier(warmup_rounds=0), Regressor(warmup_rounds=-1)):
        with pytest.raises(ValueError, match="warmup_rounds must be at least 2"):
            model.fit(X[:FEW], Y[:FEW])


def test_the_learning_curve_is_that_of_the_mistakes() -> None:
    estimator = Classifier("aioli")
    shown = ProgressiveDisplay.from_estimator(estimator, X[:FEW], Y[:FEW], window=20)
    model, errors = Classifier("aioli"), []
    for i in range(FEW):
        if i:
            errors.append(float(model.predict(X[i : i + 1])[0] != Y[i]))
        model.partial_fit(X[i : i + 1], Y[i : i + 1], classes=[0, 1])
    assert shown.mean[-1] == pytest.approx(np.mean(errors))
    assert shown.windowed[-1] == pytest.approx(np.mean(errors[-20:]))
    assert not estimator.__sklearn_is_fitted__()
    again = shown.plot(ax=shown.ax_, name="again")
    assert again.line_.get_label() == "again"
    numbers = ProgressiveDisplay.from_predictions([1.0, 2.0], [1.5, 2.5])
    assert numbers.mean.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="at least 1"):
        ProgressiveDisplay.from_predictions([], [])


def test_calibration_is_that_of_scikit_learn() -> None:
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(0)
    told = rng.random(500)
    came = rng.random(500) < told**2
    shown = CalibrationDisplay.from_predictions(came, told, n_bins=7)
    share, mean = calibration_curve(came, told, n_bins=7)
    assert shown.prob_true == pytest.approx(share)
    assert shown.prob_pred == pytest.approx(mean)
    assert CalibrationDisplay.from_estimator(Classifier("aioli"), X[:FEW], Y[:FEW]).counts.sum() == FEW - 1
    with pytest.raises(ValueError, match="from 0 to 1"):
        CalibrationDisplay.from_predictions([1], [2.0])


def test_the_first_fit_decides_how_fields_are_called() -> None:
    """A text column that is empty in a frame, or a numeric one with a None, makes no other fields of the columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(0.0, 10.0, 400), "s": ["k"] * 400})
    model = Regressor("kernel-ridge").fit(frame, 3.0 * frame["a"])
    asked = pd.DataFrame({"a": [1.0, 5.0, 9.0], "s": [None] * 3})
    expected = model.predict(asked)
    assert np.ptp(expected) > 5.0
    np.testing.assert_array_equal(model.predict(asked.astype({"s": float})), expected)
    with pytest.raises(ValueError, match="must be a data frame"):
        model.predict(np.ones((3, 2)))
    numeric = Regressor("kernel-ridge").fit(frame[["a"]], 3.0 * frame["a"])
    with_none = pd.DataFrame({"a": [1.0, None, 9.0]}, dtype=object)
    np.testing.assert_array_equal(numeric.predict(with_none), numeric.predict(with_none.astype(float)))
    with pytest.raises(ValueError, match="could not convert"):
        numeric.predict(pd.DataFrame({"a": ["x"]}))
