"""Every learner as a River classifier or regressor.

from okl.river import Classifier
model = Classifier()                                   # `auto`: no parameters, raw records
model = Classifier("pomdr", {"norm_bound": 10.0})      # a learner and its config
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

try:
    from river import base
except ImportError as error:
    raise ImportError("the estimators of River need it: pip install 'okl[river]'") from error

from okl._estimating import (
    RecordLearner,
    has_probabilities,
    learns_many_labels,
    plain,
    raw_of,
    rows_of,
    spec_of,
)
from okl._html import table
from okl.answers import Label
from okl_core import Forecast
from okl_core.records.record import Raw
from okl_core.records.warmup import ROUNDS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Classifier", "Regressor"]

UNSEEN = {False: 0.5, True: 0.5}
"""Forecast of a binary classifier before the first truth."""


class _RiverLearner(base.Estimator):
    """Base of classifier and regressor."""

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
        """Learn one record and its truth. Raises InputError if the learner does not accept them."""
        self._learning.learn([raw_of(x)], [plain(y)])

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Learn the rows in order; equivalent to `learn_one` on each, and faster."""
        self._learning.learn(rows_of(X), [plain(truth) for truth in y])

    def describe(self) -> dict[str, float]:
        """Diagnostics: rounds, stored points, bytes and further numbers of the learner."""
        return self._learning.learner.describe() | {"t": self._learning.t}

    def _unit_test_skips(self) -> set[str]:
        return TAKES_ONE_INPUT if self.learner == "foster-1d" else set()

    def _repr_html_(self) -> str:
        learning = self._learning
        preparation = learning.preparation
        rows: dict[str, object] = {
            "learner": self.learner,
            **learning.spec.config,
            "rounds": f"{learning.t:,}",
            "columns": "not found yet" if preparation is None else preparation.width,
            "memory": f"{learning.nbytes:,} bytes",
        }
        if learning.labels:
            rows["labels"] = ", ".join(map(str, learning.labels[:20]))
        return table(f"okl.river.{type(self).__name__}", rows)


@final
class Classifier(_RiverLearner, base.MiniBatchClassifier):
    """Classifier whose labels may be strings, numbers or booleans.

    Records may be raw: numbers, strings, booleans, times, nulls and nested objects. Their fields and scales are determined
    from the first rounds. A binary learner takes two labels; `learner="auto"` takes any number.

    Parameters
    ----------
    learner
        Kind of the learner; `okl_core.learner_kinds()` lists them.
    config
        Parameters of the learner, described on its page of the documentation.
    lags
        Number of most recent truths to use as additional inputs.
    seed
        Seed of the learner's random choices.
    warmup_rounds
        Number of first rounds that determine fields, scales and learner; at least 2.

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
        """The predicted label; None before the first truth."""
        return self._label_of(raw_of(x))

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of each label seen so far.

        Raises NotImplementedError, as River's classifiers without probabilities do, if the learner forecasts none.
        """
        return self._probabilities_of(raw_of(x))

    def _label_of(self, raw: Raw) -> Label | None:
        labels = self._learning.labels
        return labels[self._learning.label_index(self._learning.forecast(raw))] if labels else None

    def _probabilities_of(self, raw: Raw) -> dict[Any, float]:
        if not has_probabilities(self._spec):
            raise NotImplementedError(f"{self.learner} tells no probabilities; docs/probabilities.md has those that do")
        labels = self._learning.labels
        if not labels:
            return {} if self._multiclass else dict(UNSEEN)
        return dict(zip(labels, self._probabilities(self._learning.forecast(raw)), strict=True))

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The label of each row."""
        import pandas as pd

        return pd.Series([self._label_of(raw) for raw in rows_of(X)], index=X.index, dtype=object)

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """The probabilities: one column per label, one row per row of X."""
        import pandas as pd

        return pd.DataFrame([self._probabilities_of(raw) for raw in rows_of(X)], index=X.index)

    def _probabilities(self, forecast: Forecast) -> list[float]:
        p = self._learning.probabilities(forecast)
        assert p is not None  # `has_probabilities`
        return p.tolist()


@final
class Regressor(_RiverLearner, base.MiniBatchRegressor):
    """Regressor on raw records, which it prepares as `Classifier` does.

    Truths are rescaled for a learner that accepts a limited range (`clip`, `truth_range`); the first rounds fix the scale.

    Parameters
    ----------
    learner
        Kind of the learner; `okl_core.learner_kinds()` lists them.
    config
        Parameters of the learner, described on its page of the documentation.
    lags
        Number of most recent truths to use as additional inputs.
    seed
        Seed of the learner's random choices.
    warmup_rounds
        Number of first rounds that determine fields, scales and learner; at least 2.

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
        """The predicted number; 0 before the first truth."""
        return self._learning.value(raw_of(x))

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The predicted number of each row."""
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
"""River's checks on records of several fields, which `foster-1d` refuses: it takes a single input."""
