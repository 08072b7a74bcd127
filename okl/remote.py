"""A session of a service as an estimator, with the methods of River and of scikit-learn; neither need be installed.

The service learns, the estimator holds nothing: two of the same name are one learner, and to pickle it is to write down the
address and the name. So it cannot be cloned, and there is no `fit`: a session goes on from what it has learned.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, final

import numpy as np

from okl._estimating import truth_of
from okl._scores import F64, decision_of, probabilities_of
from okl.answers import Label, Predictions
from okl.client import Client
from okl.frames import Form, array_of
from okl.routes import Learner
from okl.session import Session
from okl.values import column
from okl_core.errors import UnknownKind

Settings = Mapping[str, Any]


class _Remote:
    """What classifier and regressor share."""

    _river_base: str
    _has_labels: bool
    _supervised = True
    """The pipelines of River ask."""

    def __init__(
        self,
        service: Client | str,
        name: str,
        learner: Learner | None = None,
        *,
        key: str | None = None,
        **settings: Any,
    ) -> None:
        """`service` is a client, or the url of one; no request is made yet. `learner` and `settings` are those of
        `Client.session`: where they are given the session is made when it is first used, if it is not there.

        `key` goes with a url. It is not pickled: a restored estimator takes the one in the environment's OKL_KEY.
        """
        self.client = service if isinstance(service, Client) else Client(service, key=key)
        self.name = name
        self.learner = learner
        self.settings: dict[str, Any] = dict(settings)
        self._session: Session | None = None
        self._known: list[Label] = []
        self._known_at = 0
        if (river := sys.modules.get("river.base")) is not None:
            # Its evaluation asks for the class.
            getattr(river, self._river_base).register(type(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's connection; the session stays."""
        self.client.close()

    @property
    def session(self) -> Session:
        """The session, made if need be. Raises the ServiceError that refuses its definition."""
        if self._session is None:
            self._session = self.client.session(self.name, self._spec(), **self.settings)
        return self._session

    def _spec(self) -> Learner | None:
        """A learner that learns either labels or numbers, such as `auto`, gets told which."""
        if self.learner is None:
            return None
        spec: dict[str, Any] = {"kind": self.learner} if isinstance(self.learner, str) else dict(self.learner)
        with suppress(UnknownKind):  # the service may know others
            truth = truth_of(spec["kind"], has_labels=self._has_labels)
            spec["config"] = truth | dict(spec.get("config") or {})
        return spec

    def learn_one(self, x: Any, y: Any) -> None:
        """One round of a record and its truth."""
        self.session.learn(x, y)

    def learn_many(self, X: Any, y: Any) -> None:
        """The rounds of the rows, in order."""
        if truths := column(y):
            self.session.play(X, truths)

    def _forecasts(self, X: Any) -> Predictions:
        return self.session.predict_many(X)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.client.url!r}, {self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.client.url, self.name, self.learner, self.settings)


def _restored(made: type[_Remote], url: str, name: str, learner: Learner | None, settings: Settings) -> _Remote:
    return made(url, name, learner, **settings)


@final
class RemoteClassifier(_Remote):
    """A session that learns labels, as a classifier: one record at a time as in River, many rows as in scikit-learn.

    Labels are strings, numbers or booleans. Without a learner those that are numbers must be declared: `labels=[0, 1]`,
    or `classes` of the first `partial_fit`.

        model = okl.RemoteClassifier("http://127.0.0.1:8000", "clicks", labels=["no", "yes"])
        model.learn_one({"page": "home", "seconds": 4.2}, "no")
        model.predict_proba_one({"page": "home", "seconds": 31.0})
    """

    _river_base, _has_labels = "Classifier", True

    def predict_one(self, x: Any, **_: Any) -> Label | None:
        """The label; None where the session has none to tell before its first truth. Nothing waits for a truth."""
        return self.session.predict(x, wait=False).label

    def predict_proba_one(self, x: Any, **_: Any) -> dict[Label, float]:
        """Of each label so far. Raises NotImplementedError where the learner tells no probabilities."""
        labels, [p] = self._probabilities(Predictions([self.session.predict(x, wait=False)]))
        return dict(zip(labels, p.tolist(), strict=True))

    def predict_many(self, X: Any) -> Any:
        """The label of each row: a column of the library that the frame is of, with its index, else an array."""
        return Form.of(X).series("label", [one.label for one in self._forecasts(X)])

    def predict_proba_many(self, X: Any) -> Any:
        """A column a label, a row a row, as `predict_many`; without a frame an array of shape (n, K)."""
        return _table(*self._probabilities(self._forecasts(X)), Form.of(X))

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """The rounds of the rows, in order. `classes` are the labels of the session where it is made by this call and none
        were declared."""
        if classes is not None and self._session is None and "labels" not in self.settings:
            self.settings["labels"] = column(classes)
        self.learn_many(X, y)
        return self

    predict, predict_proba = predict_many, predict_proba_many

    def decision_function(self, X: Any) -> Any:
        """Of two labels the score of the second, a column or an array; of more the logarithm of their probabilities, as
        `predict_proba_many`.

        Of two labels without a score it is the logarithm of what the second has over the first.
        """
        told, form = self._forecasts(X), Form.of(X)
        scores = [one.score for one in told]
        if None not in scores:
            return form.series("score", scores)
        labels, P = self._probabilities(told)
        decisions = np.array([decision_of(p) for p in P])
        return _table(labels, decisions, form) if decisions.ndim > 1 else form.series("score", decisions.tolist())

    @property
    def classes_(self) -> Any:
        """The labels so far, in the order of the probabilities, shape (K,)."""
        return array_of(self._labels())

    def _probabilities(self, told: Predictions) -> tuple[list[Label], F64]:
        """The labels, and their probabilities in each row, shape (n, K)."""
        rows = [
            one.probabilities if one.probability is None else (1.0 - one.probability, one.probability) for one in told
        ]
        if any(one.label is not None and row is None for one, row in zip(told, rows, strict=True)):
            raise NotImplementedError("this learner tells no probabilities; docs/probabilities.md has those that do")
        if not self._knows(told, rows):
            self._known = self._labels()
        self._known_at = max((one.t for one in told), default=0)
        K = len(self._known)
        return self._known, np.array([probabilities_of(row or (), K) for row in rows]).reshape(len(rows), K)

    def _knows(self, told: Predictions, rows: Sequence[Sequence[float] | None]) -> bool:
        """Are the labels that were asked for before still those of these probabilities?

        A session that was made anew or rolled back may have others: it is at an earlier round, or tells a label that is not
        the most probable of those known.
        """
        if max((len(row) for row in rows if row is not None), default=0) != len(self._known) or not self._known:
            return False
        return all(
            one.t >= self._known_at
            and (row is None or one.label is None or max(row) in _of_label(row, self._known, one.label))
            for one, row in zip(told, rows, strict=True)
        )

    def _labels(self) -> list[Label]:
        return self.session.describe()["labels"] or []


@final
class RemoteRegressor(_Remote):
    """A session that learns numbers, as a regressor: one record at a time as in River, many rows as in scikit-learn.

    What it takes is what `RemoteClassifier` takes.

        model = okl.RemoteRegressor("http://127.0.0.1:8000", "prices", y_range=[0.0, 100.0])
        model.learn_one({"rooms": 3}, 41.0)
        model.predict_one({"rooms": 2})
    """

    _river_base, _has_labels = "Regressor", False

    def predict_one(self, x: Any, **_: Any) -> float:
        """The number; 0 where the session has none to tell before its first truth. Nothing waits for a truth."""
        return self.session.predict(x, wait=False).value or 0.0

    def predict_many(self, X: Any) -> Any:
        """The number of each row: a column of the library that the frame is of, with its index, else an array."""
        return Form.of(X).series("value", [one.value or 0.0 for one in self._forecasts(X)])

    def partial_fit(self, X: Any, y: Any) -> Self:
        """The rounds of the rows, in order."""
        self.learn_many(X, y)
        return self

    predict = predict_many


def _table(labels: Sequence[Label], values: F64, form: Form) -> Any:
    """A column a label, as a frame or an array, shape (n, K)."""
    if form.library is None:
        return values
    made = form.frame({str(label): values[:, k].tolist() for k, label in enumerate(labels)})
    if form.index is not None:
        made.columns = list(labels)  # pandas has columns of any name, River the labels
    return made


def _of_label(row: Sequence[float], labels: Sequence[Label], label: Label) -> list[float]:
    """Its probability, if it is one of these."""
    return [p for p, one in zip(row, labels, strict=False) if one == label]
