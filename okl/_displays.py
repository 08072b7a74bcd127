"""Displays of a progressive (test-then-train) run in scikit-learn's style: each row is predicted, then learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier

from okl_core.types import F64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 10
WINDOW = 200
"""Number of rounds in the windowed error."""


def progressive(estimator: Any, X: Any, y: ArrayLike, *, probability: bool = False) -> tuple[Any, F64 | None]:
    """Forecasts of a fresh clone of the estimator, each made before its row is learned; the first row is not forecast.

    Shape (n - 1,) each; the probabilities are those of the second of two labels.
    """
    learner: Any = clone(estimator)
    truths = np.asarray(y)
    classes = {"classes": np.unique(truths)} if is_classifier(learner) else {}
    predictions, probabilities = [], []
    for i in range(len(truths)):
        row = X.iloc[i : i + 1] if hasattr(X, "iloc") else X[i : i + 1]
        if i == 0:  # Nothing has been learned yet, so there is nothing to judge.
            learner.partial_fit(row, truths[:1], **classes)
            continue
        predictions.append(learner.predict(row)[0])
        if probability:
            probabilities.append(learner.predict_proba(row)[0, 1])
        learner.partial_fit(row, truths[i : i + 1])
    return np.array(predictions), np.array(probabilities) if probability else None


@final
class ProgressiveDisplay:
    """Learning curve of one pass: the cumulative error and the windowed error.

    The error is the share of mistakes for labels and the mean absolute error for numbers. Create one with `from_estimator` or
    `from_predictions`; `plot` needs matplotlib.

    Attributes
    ----------
    rounds : ndarray of shape (n,)
    mean, windowed : ndarray of shape (n,)
        Error over all rounds so far, and over the last `window`.
    """

    def __init__(self, rounds: F64, mean: F64, windowed: F64, *, metric: str, window: int, name: str | None) -> None:
        self.rounds, self.mean, self.windowed = rounds, mean, windowed
        self.metric, self.window, self.name = metric, window, name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, window: int = WINDOW, ax: Axes | None = None, **how: Any
    ) -> Self:
        """Run a fresh clone of the estimator that predicts each row, then learns it; the first row is not judged."""
        predictions, _ = progressive(estimator, X, y)
        name = getattr(estimator, "learner", type(estimator).__name__)
        return cls.from_predictions(np.asarray(y)[1:], predictions, window=window, name=name, ax=ax, **how)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        window: int = WINDOW,
        name: str | None = None,
        ax: Axes | None = None,
        **how: Any,
    ) -> Self:
        """Use forecasts made before their truths were seen, in order, shape (n,) each. Raises ValueError."""
        truths, predictions = np.asarray(y_true), np.asarray(y_pred)
        if truths.shape != predictions.shape or truths.ndim != 1 or not len(truths):
            shapes = f"y_true has shape {truths.shape}, y_pred {predictions.shape}"
            raise ValueError(f"{shapes}; (n,) each is needed, n at least 1")
        is_number = predictions.dtype.kind == "f"
        errors = np.abs(truths - predictions) if is_number else (truths != predictions).astype(float)
        rounds = np.arange(1, len(errors) + 1, dtype=float)
        sums = np.concatenate(([0.0], np.cumsum(errors)))
        first = np.maximum(0, np.arange(1, len(errors) + 1) - window)
        windowed = (sums[1:] - sums[first]) / (rounds - first)
        metric = "mean absolute error" if is_number else "share of mistakes"
        return cls(rounds, sums[1:] / rounds, windowed, metric=metric, window=window, name=name).plot(ax=ax, **how)

    def plot(self, ax: Axes | None = None, *, name: str | None = None, **how: Any) -> Self:
        """Draw on these axes, or on new ones; `how` is passed to matplotlib's `plot`."""
        self.ax_ = ax = _axes(ax)
        self.figure_ = ax.figure
        name = name or self.name
        look: dict[str, Any] = {"label": name, **how}
        (self.line_,) = ax.plot(self.rounds, self.mean, **look)
        (self.windowed_line_,) = ax.plot(self.rounds, self.windowed, color=self.line_.get_color(), alpha=0.4)
        ax.set(xlabel="rounds", ylabel=f"{self.metric} (pale: of the last {self.window})")
        if name:
            ax.legend()
        return self


@final
class CalibrationDisplay:
    """Calibration of one pass: the observed frequency of the second label against its forecast probability.

    Attributes
    ----------
    prob_pred, prob_true : ndarray of shape (b,)
        Mean probability and share of the label in each bin that is not empty.
    counts : ndarray of shape (b,)
        Rounds in each bin.
    """

    def __init__(self, prob_pred: F64, prob_true: F64, counts: F64, *, name: str | None) -> None:
        self.prob_pred, self.prob_true, self.counts, self.name = prob_pred, prob_true, counts, name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, n_bins: int = BINS, ax: Axes | None = None, **how: Any
    ) -> Self:
        """Run a fresh clone of the estimator that predicts each row, then learns it; the first row is not judged."""
        truths = np.asarray(y)
        labels = np.unique(truths)
        if len(labels) != 2:
            raise ValueError(f"calibration is of two labels; y has {len(labels)}")
        _, probabilities = progressive(estimator, X, y, probability=True)
        assert probabilities is not None
        name = getattr(estimator, "learner", type(estimator).__name__)
        return cls.from_predictions(truths[1:] == labels[1], probabilities, n_bins=n_bins, name=name, ax=ax, **how)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        n_bins: int = BINS,
        name: str | None = None,
        ax: Axes | None = None,
        **how: Any,
    ) -> Self:
        """Use truths (1 or True for the second label) and the label's probabilities, shape (n,) each. Raises ValueError."""
        truths, probabilities = np.asarray(y_true, dtype=float), np.asarray(y_prob, dtype=float)
        if truths.shape != probabilities.shape or truths.ndim != 1 or not len(truths):
            shapes = f"y_true has shape {truths.shape}, y_prob {probabilities.shape}"
            raise ValueError(f"{shapes}; (n,) each is needed, n at least 1")
        if not ((probabilities >= 0.0) & (probabilities <= 1.0)).all():
            raise ValueError("y_prob are probabilities, from 0 to 1")
        bins = np.minimum((probabilities * n_bins).astype(int), n_bins - 1)
        counts = np.bincount(bins, minlength=n_bins).astype(float)
        is_used = counts > 0.0
        sums = [np.bincount(bins, values, minlength=n_bins)[is_used] for values in (probabilities, truths)]
        counts = counts[is_used]
        return cls(sums[0] / counts, sums[1] / counts, counts, name=name).plot(ax=ax, **how)

    def plot(self, ax: Axes | None = None, *, name: str | None = None, **how: Any) -> Self:
        """Draw on these axes, or on new ones; `how` is passed to matplotlib's `plot`."""
        self.ax_ = ax = _axes(ax)
        self.figure_ = ax.figure
        name = name or self.name
        ax.plot([0.0, 1.0], [0.0, 1.0], linestyle=":", color="black", label="perfectly calibrated")
        look: dict[str, Any] = {"marker": "s", "label": name, **how}
        (self.line_,) = ax.plot(self.prob_pred, self.prob_true, **look)
        ax.set(xlabel="mean probability", ylabel="share of the label")
        ax.legend()
        return self


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("a display is drawn with matplotlib: pip install 'okl[plot]'") from error
    return plt.subplots()[1]
