"""A session of a service as an estimator with the methods of River and scikit-learn, neither of which need be installed.

All state is in the service: two estimators of the same name share one learner, and a pickle holds only address and name.
Therefore an estimator cannot be cloned, and has no `fit`: a session always continues from what it has learned.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import numpy as np

from okl._html import table
from okl._scores import decision_of, probabilities_of
from okl.answers import Label, Predictions, label_key
from okl.client import Client
from okl.frames import Form, array_of
from okl.masking import shown_url
from okl.routes import Learner
from okl.session import Session
from okl.values import column, rows
from okl_core.contract.truth_choice import for_truths
from okl_core.types import F64

Settings = Mapping[str, Any]


class _Remote:
    """Base of classifier and regressor."""

    _river_base: str
    _has_labels: bool
    _supervised = True
    """River's pipelines read this."""

    def __init__(
        self,
        service: Client | str,
        name: str,
        learner: Learner | None = None,
        *,
        key: str | None = None,
        **settings: Any,
    ) -> None:
        """`service` is a client or a URL. No request is sent before the first use, which also creates the session if it does
        not exist and `learner` or `settings` (see `Client.session`) are given.

        `key` goes with a URL. It is not pickled: a restored estimator uses the environment variable OKL_KEY.
        """
        self.client = service if isinstance(service, Client) else Client(service, key=key)
        self.name = name
        self.learner = learner
        self.settings: dict[str, Any] = dict(settings)
        self._session: Session | None = None
        self._known: list[Label] = []
        self._known_at = 0
        if (river := sys.modules.get("river.base")) is not None:
            # River's evaluation checks the type.
            getattr(river, self._river_base).register(type(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's connection; the session remains."""
        self.client.close()

    @property
    def session(self) -> Session:
        """The session, created if necessary. Raises the ServiceError that rejects its definition."""
        if self._session is None:
            self._session = self.client.session(self.name, self._spec(), **self.settings)
        return self._session

    def _spec(self) -> Learner | None:
        return None if self.learner is None else for_truths(self.learner, has_labels=self._has_labels)

    def learn_one(self, x: Any, y: Any) -> None:
        """Learn one record and its truth."""
        self.session.learn(x, y)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows in order; none are no error. Raises ValueError if there are not as many truths."""
        truths = column(y)
        if truths or rows(X):
            self.session.play(X, truths)

    def _forecasts(self, X: Any) -> Predictions:
        return self.session.predict_many(X)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_url(self.client.url)!r}, {self.name!r})"

    def _repr_html_(self) -> str:
        rows = {"service": shown_url(self.client.url), "session": self.name, "learner": self.learner}
        return table(f"okl.{type(self).__name__}", rows | self.settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.client.url, self.name, self.learner, self.settings)


def _restored(cls: type[_Remote], url: str, name: str, learner: Learner | None, settings: Settings) -> _Remote:
    return cls(url, name, learner, **settings)


@final
class RemoteClassifier(_Remote):
    """A session as a classifier: one record at a time as in River, many rows as in scikit-learn.

    Labels are strings, numbers or booleans. Without a learner, numeric labels must be declared with `labels=[0, 1]` or
    `classes` in the first `partial_fit`; otherwise they would be taken for numbers.

        model = okl.RemoteClassifier("http://127.0.0.1:8000", "clicks", labels=["no", "yes"])
        model.learn_one({"page": "home", "seconds": 4.2}, "no")
        model.predict_proba_one({"page": "home", "seconds": 31.0})
    """

    _river_base, _has_labels = "Classifier", True

    def predict_one(self, x: Any, **_: Any) -> Label | None:
        """The predicted label; None before the first truth if no labels were declared. No truth is expected."""
        return self.session.predict(x, wait=False).label

    def predict_proba_one(self, x: Any, **_: Any) -> dict[Label, float]:
        """The probability of each label so far. Raises NotImplementedError if the learner has no probabilities."""
        labels, [p] = self._probabilities(Predictions([self.session.predict(x, wait=False)]))
        return dict(zip(labels, p.tolist(), strict=True))

    def predict_many(self, X: Any) -> Any:
        """The predicted label of each row: a column of the data frame's library with its index, otherwise an array."""
        return Form.of(X).series("label", [forecast.label for forecast in self._forecasts(X)])

    def predict_proba_many(self, X: Any) -> Any:
        """Probabilities, one column per label: a data frame like that of X, otherwise an array of shape (n, K)."""
        return _table(*self._probabilities(self._forecasts(X)), Form.of(X))

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn the rows in order. `classes` declares the labels of a session that this call creates without labels."""
        if classes is not None and self._session is None and "labels" not in self.settings:
            self.settings["labels"] = column(classes, "/classes")
        self.learn_many(X, y)
        return self

    predict, predict_proba = predict_many, predict_proba_many

    def decision_function(self, X: Any) -> Any:
        """For two labels the score of the second, a column or an array; for more the log-probabilities, shaped like
        `predict_proba_many`.

        For two labels without a score it is the log-odds of the second.
        """
        forecasts, form = self._forecasts(X), Form.of(X)
        scores = [forecast.score for forecast in forecasts]
        if None not in scores:
            return form.series("score", scores)
        labels, P = self._probabilities(forecasts)
        decisions = np.array([decision_of(p) for p in P])
        return _table(labels, decisions, form) if decisions.ndim > 1 else form.series("score", decisions.tolist())

    @property
    def classes_(self) -> Any:
        """The labels so far, in the order of the probabilities, shape (K,)."""
        return array_of(self._labels())

    def _probabilities(self, forecasts: Predictions) -> tuple[list[Label], F64]:
        """The labels, and their probabilities for each forecast, shape (n, K)."""
        rows = [
            forecast.probabilities
            if forecast.probability is None
            else (1.0 - forecast.probability, forecast.probability)
            for forecast in forecasts
        ]
        if any(forecast.label is not None and row is None for forecast, row in zip(forecasts, rows, strict=True)):
            raise NotImplementedError("this learner tells no probabilities; docs/probabilities.md has those that do")
        if not self._knows(forecasts, rows):
            self._known = self._labels()
        self._known_at = max((forecast.t for forecast in forecasts), default=0)
        K = len(self._known)
        return self._known, np.array([probabilities_of(row or (), K) for row in rows]).reshape(len(rows), K)

    def _knows(self, forecasts: Predictions, rows: Sequence[Sequence[float] | None]) -> bool:
        """Whether the cached labels are still those of these probabilities.

        A session that was recreated or rolled back may have other labels: it is at an earlier round, or forecasts a label
        that is not the most probable of the cached ones.
        """
        if max((len(row) for row in rows if row is not None), default=0) != len(self._known) or not self._known:
            return False
        return all(
            forecast.t >= self._known_at
            and (row is None or forecast.label is None or max(row) in _of_label(row, self._known, forecast.label))
            for forecast, row in zip(forecasts, rows, strict=True)
        )

    def _labels(self) -> list[Label]:
        return self.session.describe()["labels"] or []


@final
class RemoteRegressor(_Remote):
    """A session as a regressor: one record at a time as in River, many rows as in scikit-learn.

    It takes the same inputs as `RemoteClassifier`.

        model = okl.RemoteRegressor("http://127.0.0.1:8000", "prices", y_range=[0.0, 100.0])
        model.learn_one({"rooms": 3}, 41.0)
        model.predict_one({"rooms": 2})
    """

    _river_base, _has_labels = "Regressor", False

    def predict_one(self, x: Any, **_: Any) -> float:
        """The predicted number; 0 if the session has none before its first truth. No truth is expected."""
        return self.session.predict(x, wait=False).value or 0.0

    def predict_many(self, X: Any) -> Any:
        """The predicted number of each row: a column of the data frame's library with its index, otherwise an array."""
        return Form.of(X).series("value", [forecast.value or 0.0 for forecast in self._forecasts(X)])

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn the rows in order."""
        self.learn_many(X, y)
        return self

    predict = predict_many


def _table(labels: Sequence[Label], values: F64, form: Form) -> Any:
    """Values of shape (n, K) with one column per label, as a data frame or an array."""
    if form.library is None:
        return values
    names = [str(label) for label in labels]
    if len(set(names)) < len(names):  # the labels "1" and 1 need different names
        names = [repr(label) for label in labels]
    frame = form.frame({name: values[:, k].tolist() for k, name in enumerate(names)})
    if form.index is not None:
        frame.columns = list(labels)  # pandas allows any column name, and River expects the labels
    return frame


def _of_label(row: Sequence[float], labels: Sequence[Label], label: Label) -> list[float]:
    """The probability of the label, empty if it is unknown."""
    return [p for p, known in zip(row, labels, strict=False) if label_key(known) == label_key(label)]
