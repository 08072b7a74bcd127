"""Every learner as a scikit-learn classifier or regressor, and displays of a run.

from okl.sklearn import Classifier
Classifier().fit(X, y)                                         # `auto`: no parameters, raw columns
Classifier("nystrom-aioli", {"budget": 100}).partial_fit(...)  # a learner and its config
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
except ImportError as error:
    raise ImportError("the estimators of scikit-learn need it: pip install 'okl[sklearn]'") from error
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from okl._displays import CalibrationDisplay, ProgressiveDisplay
from okl._estimating import (
    RecordLearner,
    has_probabilities,
    learns_many_labels,
    rows_of,
    spec_of,
)
from okl._scores import decision_of
from okl_core import LearnerSpec
from okl_core.records.record import Raw
from okl_core.records.warmup import ROUNDS
from okl_core.types import F64

__all__ = ["CalibrationDisplay", "Classifier", "ProgressiveDisplay", "Regressor"]

TRIVIAL = ("frequencies", "last-label", "majority", "mean")
"""Learners that ignore the inputs."""

POOR_CLASSIFIERS = (*TRIVIAL, "bao2ks")
POOR_REGRESSORS = (*TRIVIAL, "aogd-ald", "kons", "nons-ald", "ons", "packing", "sketched-kons")
"""Learners whose default configs miss the scores that scikit-learn requires after one pass over its small data sets: an
accuracy of 0.83, an R² of 0.5."""


class _SklearnLearner(BaseEstimator):
    """Base of classifier and regressor."""

    _has_labels: bool
    _learning: RecordLearner

    def __init__(
        self,
        learner: str = "auto",
        config: Mapping[str, Any] | None = None,
        *,
        lags: int = 0,
        seed: int = 0,
        warmup_rounds: int = ROUNDS,
    ) -> None:
        self.learner = learner
        self.config = config
        self.lags = lags
        self.seed = seed
        self.warmup_rounds = warmup_rounds

    def _spec(self) -> LearnerSpec:
        return spec_of(self.learner, self.config, self.seed, self.lags, has_labels=self._has_labels)

    def _rounds(self, X: Any, y: Any, *, reset: bool) -> tuple[Sequence[Raw], NDArray[Any]]:
        """Validated inputs as records, and truths, shape (n,)."""
        if reset:
            self._by_name = _has_records(X)
        if self._by_name:
            self._check_named(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            y = column_or_1d(y, warn=True)
            check_consistent_length(X, y)
            return rows_of(X), y
        X, y = validate_data(
            self, X, y, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", y_numeric=not self._has_labels
        )
        return list(X), y

    def _check_named(self, X: Any) -> None:
        """The first fit decides how fields are called: numbers alone would be other fields than those with names."""
        if not hasattr(X, "columns") or not len(X):
            raise ValueError("X must be a data frame with rows, as in the first fit, where a column was not numeric.")

    def _inputs(self, X: Any) -> Sequence[Raw]:
        check_is_fitted(self)
        if self._by_name:
            self._check_named(X)
            validate_data(self, X, reset=False, skip_check_array=True)
            return rows_of(X)
        rows: Any = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return list(rows)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learning")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _tells_probabilities(estimator: Classifier) -> bool:
    return has_probabilities(estimator._spec())


@final
class Classifier(ClassifierMixin, _SklearnLearner):
    """Classifier that learns each row once, in order.

    X is an array, in which NaN marks a missing value, or a data frame with columns of any type. No scaler is needed: the
    first rows determine the scale of each column. A binary learner takes two labels; `learner="auto"` takes any number.

    Parameters
    ----------
    learner : str
        Kind of the learner; `okl_core.learner_kinds()` lists them.
    config : dict, optional
        Parameters of the learner, described on its page of the documentation.
    lags : int
        Number of most recent truths to use as additional inputs.
    seed : int
        Seed of the learner's random choices.
    warmup_rounds : int
        Number of first rounds that determine fields, scales and learner; at least 2.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from okl.sklearn import Classifier
    >>> X = [[float(i % 10)] for i in range(100)]
    >>> y = ["low" if i % 10 < 5 else "high" for i in range(100)]
    >>> Classifier().fit(X, y).predict([[1.0], [8.0]]).tolist()
    ['low', 'high']
    """

    _has_labels = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = learns_many_labels(self._spec())
        tags.classifier_tags.poor_score = self.learner in POOR_CLASSIFIERS
        return tags

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn the rows in order, from scratch."""
        rows, truths = self._rounds(X, y, reset=True)
        learning = self._begun(truths)
        learning.learn(rows, self._indices(truths), is_all=True)
        self._learning = learning
        return self

    def partial_fit(self, X: Any, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Continue learning with these rows. `classes` lists all labels and is required in the first call."""
        is_first = not hasattr(self, "_learning")
        rows, truths = self._rounds(X, y, reset=is_first)
        if is_first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            learning = self._begun(np.asarray(classes))
        else:
            if classes is not None and not np.array_equal(_distinct(np.asarray(classes)), self.classes_):
                detail = f"`classes={classes!r}` is not the same as on the last call, which were {self.classes_!r}"
                raise ValueError(detail)
            learning = self._learning
        learning.learn(rows, self._indices(truths))
        self._learning = learning
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The predicted label of each row, shape (n,)."""
        rows = self._inputs(X)
        learning = self._learning
        return self.classes_[[learning.label_index(learning.forecast(row)) for row in rows]]

    @available_if(_tells_probabilities)
    def predict_proba(self, X: Any) -> F64:
        """The probabilities of the labels, in the order of `classes_`, shape (n, K)."""
        rows = self._inputs(X)
        P = [self._learning.probabilities(self._learning.forecast(row)) for row in rows]
        return np.array(P, dtype=np.float64).reshape(len(rows), len(self.classes_))

    def decision_function(self, X: Any) -> F64:
        """For two labels the score of the second, shape (n,); for more the log-probabilities, shape (n, K)."""
        decisions = []
        for row in self._inputs(X):
            forecast = self._learning.forecast(row)
            if forecast.probabilities is None:
                decisions.append(forecast.value)
                continue
            p = self._learning.probabilities(forecast)
            assert p is not None
            decisions.append(decision_of(p))
        return np.array(decisions, dtype=np.float64)

    def _begun(self, labels: NDArray[Any]) -> RecordLearner:
        classes = _distinct(labels)
        check_classification_targets(labels)
        self.classes_ = classes
        spec = self._spec()
        if len(self.classes_) > 2 and not learns_many_labels(spec):
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(labels)}. "
                "sklearn.multiclass.OneVsRestClassifier, or the learner one-vs-rest, makes one of more labels of it."
            )
        return RecordLearner(spec, range(len(self.classes_)), self.warmup_rounds)

    def _indices(self, truths: NDArray[Any]) -> list[int]:
        classes = self.classes_
        if classes.dtype.kind == truths.dtype.kind and truths.dtype.kind in "mM":
            unit = np.result_type(classes, truths)  # `tolist` makes dates of days, but integers of nanoseconds
            classes, truths = classes.astype(unit), truths.astype(unit)
        known = set(classes.tolist())
        if new := [label for label in _distinct(truths).tolist() if label not in known]:
            raise ValueError(f"y has labels that are not in `classes`: {new!r}")
        return np.searchsorted(classes, truths).tolist()


@final
class Regressor(RegressorMixin, _SklearnLearner):
    """Regressor that learns each row once, in order; it takes the rows that `Classifier` takes.

    Truths are rescaled for a learner that accepts a limited range (`clip`, `truth_range`); the first rows fix the scale.

    Parameters
    ----------
    learner : str
        Kind of the learner; `okl_core.learner_kinds()` lists them.
    config : dict, optional
        Parameters of the learner, described on its page of the documentation.
    lags : int
        Number of most recent truths to use as additional inputs.
    seed : int
        Seed of the learner's random choices.
    warmup_rounds : int
        Number of first rounds that determine fields, scales and learner; at least 2.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from okl.sklearn import Regressor
    >>> X = [[float(i % 10)] for i in range(100)]
    >>> y = [3.0 * (i % 10) for i in range(100)]
    >>> round(Regressor().fit(X, y).predict([[5.0]])[0])
    15
    """

    _has_labels = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.regressor_tags is not None
        tags.regressor_tags.poor_score = self.learner in POOR_REGRESSORS
        return tags

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn the rows in order, from scratch."""
        rows, truths = self._rounds(X, y, reset=True)
        learning = RecordLearner(self._spec(), None, self.warmup_rounds)
        learning.learn(rows, truths.tolist(), is_all=True)
        self._learning = learning
        return self

    def partial_fit(self, X: Any, y: ArrayLike) -> Self:
        """Continue learning with these rows."""
        is_first = not hasattr(self, "_learning")
        rows, truths = self._rounds(X, y, reset=is_first)
        learning = RecordLearner(self._spec(), None, self.warmup_rounds) if is_first else self._learning
        learning.learn(rows, truths.tolist())
        self._learning = learning
        return self

    def predict(self, X: Any) -> F64:
        """The predicted number of each row, shape (n,)."""
        return np.array([self._learning.value(row) for row in self._inputs(X)], dtype=np.float64)


def _distinct(labels: NDArray[Any]) -> NDArray[Any]:
    """The sorted labels, each once. Raises ValueError if they cannot be sorted."""
    try:
        return np.unique(labels)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels.flat}))
        raise ValueError(f"labels must be of types that can be sorted together, not {kinds}") from error


def _has_records(X: Any) -> bool:
    """Whether X is a data frame with a column that is not numeric."""
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return False
    kinds = X.dtypes
    return any(not _is_number(kind) for kind in kinds)


def _is_number(kind: Any) -> bool:
    if hasattr(kind, "is_numeric"):
        return bool(kind.is_numeric())
    return getattr(kind, "kind", "O") in "iufb" or bool(getattr(kind, "_is_numeric", False))
