"""Every learner as a classifier or regressor of River.

from okl.river import Classifier
model = Classifier()                                   # `auto`: no parameter, raw records
model = Classifier("pomdr", {"norm_bound": 10.0})      # a learner, and its config
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, final

try:
    from river import base
except ImportError as error:
    raise ImportError("the estimators of River need it: pip install 'okl[river]'") from error

from okl._estimating import (
    Label,
    RecordLearner,
    has_probabilities,
    learns_many_labels,
    plain,
    raw_of,
    rows_of,
    spec_of,
)
from okl_core import Forecast
from okl_core.records.record import Raw
from okl_core.records.warmup import ROUNDS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Classifier", "Regressor"]

UNSEEN = {False: 0.5, True: 0.5}
"""What a classifier of two labels says before the first truth."""


class _RiverLearner(base.Estimator):
    """What classifier and regressor share."""

    _has_labels: bool

    def __init__(
        self,
        learner: str = "auto",
        config: Mapping[str, Any] | None = None,
        lags: int = 0,
        seed: int = 0,
        warmup_rounds: int = ROUNDS,
    ) -> None:
        self.learner = learner
        self.config = config
        self.lags = lags
        self.seed = seed
        self.warmup_rounds = warmup_rounds
        self._spec = spec_of(learner, config, seed, lags, has_labels=self._has_labels)
        self._learning = RecordLearner(self._spec, [] if self._has_labels else None, warmup_rounds)

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """One round, of a record and its truth. Raises InputError for what the learner does not take."""
        self._learning.learn([raw_of(x)], [plain(y)])

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """The rounds of the rows, in order: the same as one by one, and faster."""
        self._learning.learn(rows_of(X), [plain(truth) for truth in y])

    def describe(self) -> dict[str, float]:
        """Numbers to look at: rounds, stored points, bytes and what else the learner tells."""
        return self._learning.learner.describe() | {"t": self._learning.t}

    def _unit_test_skips(self) -> set[str]:
        return TAKES_ONE_INPUT if self.learner == "foster-1d" else set()

    def _repr_html_(self) -> str:
        learning = self._learning
        found = learning.preparation
        rows: dict[str, object] = {
            "learner": self.learner,
            **learning.spec.config,
            "rounds": f"{learning.t:,}",
            "columns": "not found yet" if found is None else found.width,
            "memory": f"{learning.nbytes:,} bytes",
        }
        if learning.labels:
            rows["labels"] = ", ".join(map(str, learning.labels[:20]))
        body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table><caption>okl.river.{type(self).__name__}</caption><tbody>{body}</tbody></table>"


@final
class Classifier(_RiverLearner, base.MiniBatchClassifier):
    """A learner of labels, which may be strings, numbers or booleans.

    The records may be as they come: numbers, strings, booleans, times, nulls and nested objects; their fields and the scale
    of these are found from the first rounds. A learner of two labels takes two; `learner="auto"` takes as many as come.

    Parameters
    ----------
    learner
        The learner's kind; `okl_core.learner_kinds()` lists them.
    config
        Its parameters, as its page of the documentation has them.
    lags
        So many of the last truths become further inputs.
    seed
        Of its coins.
    warmup_rounds
        The first rounds, from which fields, scale and learner are found.

    Examples
    --------
    >>> from okl.river import Classifier
    >>> model = Classifier()
    >>> for light, label in [(3.0, "empty"), (480.0, "taken")] * 20:
    ...     model.learn_one({"light": light}, label)
    >>> model.predict_one({"light": 450.0})
    'taken'
    """

    _has_labels = True

    @property
    def _multiclass(self) -> bool:
        return learns_many_labels(self._spec)

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """The label; None before the first truth."""
        return self._said(raw_of(x))

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Of each label so far.

        A learner whose loss defines no probability raises NotImplementedError, as River has it for classifiers that tell
        labels alone.
        """
        return self._told(raw_of(x))

    def _said(self, raw: Raw) -> Label | None:
        labels = self._learning.labels
        return labels[self._learning.place(self._learning.forecast(raw))] if labels else None

    def _told(self, raw: Raw) -> dict[Any, float]:
        if not has_probabilities(self._spec):
            raise NotImplementedError(f"{self.learner} tells no probabilities; docs/probabilities.md has those that do")
        labels = self._learning.labels
        if not labels:
            return {} if self._multiclass else dict(UNSEEN)
        return dict(zip(labels, self._probabilities(self._learning.forecast(raw)), strict=True))

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The label of each row."""
        import pandas as pd

        return pd.Series([self._said(raw) for raw in rows_of(X)], index=X.index, dtype=object)

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """A column a label, a row a row."""
        import pandas as pd

        return pd.DataFrame([self._told(raw) for raw in rows_of(X)], index=X.index)

    def _probabilities(self, forecast: Forecast) -> list[float]:
        found = self._learning.probabilities(forecast)
        assert found is not None  # `has_probabilities`
        return found.tolist()


@final
class Regressor(_RiverLearner, base.MiniBatchRegressor):
    """A learner of numbers.

    Records are taken as `Classifier` takes them. A learner that takes numbers of a range (a `clip`, a `truth_range`) gets
    the truths in units of its own, found from the first rounds.

    Parameters
    ----------
    learner
        The learner's kind; `okl_core.learner_kinds()` lists them.
    config
        Its parameters, as its page of the documentation has them.
    lags
        So many of the last truths become further inputs.
    seed
        Of its coins.
    warmup_rounds
        The first rounds, from which fields, scale and learner are found.

    Examples
    --------
    >>> from okl.river import Regressor
    >>> model = Regressor("kernel-ridge", {"regularization": 0.1})
    >>> for i in range(40):
    ...     model.learn_one({"i": float(i % 10)}, 3.0 * (i % 10))
    >>> round(model.predict_one({"i": 5.0}))
    15
    """

    _has_labels = False

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> float:
        """The number; 0 before the first truth."""
        return self._learning.value(raw_of(x))

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The number of each row."""
        import pandas as pd

        return pd.Series([self._learning.value(raw) for raw in rows_of(X)], index=X.index, dtype=float)


TAKES_ONE_INPUT = {
    "check_learn_one",
    "check_pickling",
    "check_shuffle_features_no_impact",
    "check_emerging_features",
    "check_disappearing_features",
    "check_radically_disappearing_features",
    "check_predict_one_pure",
    "check_no_state_aliasing_with_input",
    "check_clone_is_independent",
    "check_predict_many_matches_predict_one",
    "check_learn_many_matches_learn_one",
    "check_predict_proba_many_matches_predict_proba_one",
    "check_predict_proba_one",
    "check_predict_proba_one_binary",
    "check_classifier_tracks_seen_labels",
    "check_bounded_memory_growth",
}
"""River's checks that learn from records of several fields: `foster-1d` takes one input and refuses them."""
