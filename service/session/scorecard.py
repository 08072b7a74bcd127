"""Loss and error of a session's issued predictions: of each one, over all rounds, and over the last WINDOW."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from okl_core.contract.state import count_in
from okl_core.errors import DivergedError, StateFormatError
from okl_core.linalg.guards import LARGEST_TERM
from okl_core.losses import Loss, log_loss
from okl_core.monitoring.comparison import running
from okl_core.monitoring.plain import PlainForecast, PlainRows
from okl_core.types import F64, BlockInfo, Forecast, Stored

from .truths import Truths

LARGEST = 1e200
"""The most that a loss or squared error counts in the history, so that sums stay finite."""

LEAST_SURE = 1e-6
"""A trivial forecaster's probabilities are clipped to [LEAST_SURE, 1 - LEAST_SURE]."""

LEAST_LEFT = 1e-12
"""The least probability of a class that the forecast did not know."""

WINDOW = 500
"""Rounds that the windowed metrics cover."""


_LOSS_OVERFLOWS = "the loss overflows; scale the truths down"


class Issued(NamedTuple):
    """The part of a client's forecast that the metrics need.

    For a learner of classes, `value` is the probability of the truth, `label` the predicted class, and `sure` its
    probability. For other learners `value` is the forecast's; with two labels, `sure` is the second one's probability if the
    value does not determine it.
    """

    value: float
    label: int | None = None
    sure: float = math.nan

    @classmethod
    def of(cls, forecast: Forecast, y: float) -> Issued:
        if forecast.probabilities is None:
            return cls(forecast.value)
        known, k = forecast.probabilities, int(y)
        # A class that was not known then gets the probability that the known ones left.
        named = forecast.label
        value = known[k] if k < len(known) else max(1.0 - sum(known), LEAST_LEFT)
        return cls(value, named, known[named] if named is not None and known else math.nan)


@dataclass(frozen=True, slots=True)
class Judge:
    """Loss and error of forecasts; truths are in the learner's terms. Raises DivergedError if either is too large for a sum.

    `probability` is that of the learner's forecast with this value (`Learner.probability`).
    """

    loss: Loss
    truths: Truths
    probability: Callable[[float], float | None]

    def round(self, issued: Issued, y: float) -> tuple[float, float]:
        value, label, _ = issued
        try:
            loss = self.loss.value(value, y) if label is None else log_loss(value)
            is_mistake = (value >= 0.0) != (y > 0.0) if label is None else label != y
            error = float(is_mistake) if self.truths.is_classifier else ((value - y) * self.truths.unit) ** 2
        except OverflowError:
            loss = error = math.inf
        if not (loss <= LARGEST_TERM and error <= LARGEST_TERM):
            raise DivergedError(_LOSS_OVERFLOWS)
        return loss, error

    def trivial(self, forecast: PlainForecast, y: float) -> tuple[float, float]:
        """Loss and error of a trivial forecaster, both at most LARGEST, so that they can be summed."""
        value, sure = forecast.value, min(max(forecast.probability or 0.0, LEAST_SURE), 1.0 - LEAST_SURE)
        if not self.truths.is_classifier:
            off, loss = abs(value - y) * self.truths.unit, self.loss
            near = min(off, math.sqrt(LARGEST))
            return (min(loss.value(value, y), LARGEST) if near == off else LARGEST), near * near
        if self.truths.has_classes:
            is_right = value == y
            left = (1.0 - sure) / max(1, len(self.truths.names) - 1)
            return log_loss(sure if is_right else left), float(not is_right)
        side = 1.0 if value else -1.0
        # A loss that defines probabilities takes the logit as its score.
        score = side if self.loss.probability(0.0) is None else side * math.log(sure / (1.0 - sure))
        return self.loss.value(score, y), float(side != y)

    def trivial_rows(self, forecasts: PlainRows, y: F64) -> tuple[F64, F64]:
        """Losses and errors of both trivial forecasters in n rounds, shape (n, 2) each."""
        values, truths = forecasts.values, y[:, None]
        if not self.truths.is_classifier:
            off, most = np.abs(values - truths) * self.truths.unit, math.sqrt(LARGEST)
            with np.errstate(over="ignore"):
                losses = np.minimum(self._losses(values, y), LARGEST)
            return np.where(off <= most, losses, LARGEST), np.minimum(off, most) ** 2
        assert forecasts.probabilities is not None
        sure = np.clip(forecasts.probabilities, LEAST_SURE, 1.0 - LEAST_SURE)
        if self.truths.has_classes:
            is_wrong = values != truths
            left = (1.0 - sure) / max(1, len(self.truths.names) - 1)
            return -np.log(np.where(is_wrong, left, sure)), is_wrong.astype(np.float64)
        sides = np.where(values > 0.0, 1.0, -1.0)
        scores = sides if self.loss.probability(0.0) is None else sides * np.log(sure / (1.0 - sure))
        return self._losses(scores, y), (sides != truths).astype(np.float64)

    def _losses(self, values: F64, y: F64) -> F64:
        """Losses of two columns of forecasts, shape (n, 2)."""
        return np.column_stack([self.loss.values(column, y) for column in values.T])

    def sureness(self, issued: Issued, y: float) -> tuple[float, bool] | None:
        """A probability, of the second label or the predicted class, and whether that was the truth; None without one."""
        if issued.label is not None:
            return None if math.isnan(issued.sure) else (issued.sure, issued.label == y)
        if not self.truths.is_classifier:
            return None
        p = self.probability(issued.value) if math.isnan(issued.sure) else issued.sure
        return None if p is None else (p, y > 0.0)

    def sureness_rows(self, info: BlockInfo, y: F64) -> tuple[F64, NDArray[np.bool_]] | None:
        """As `sureness`, for n rounds, shape (n,) each."""
        Q = info.probabilities
        if Q is None or not self.truths.is_classifier:
            return None
        if not self.truths.has_classes:
            return Q, y > 0.0
        named = Q.argmax(axis=1)
        return Q[np.arange(len(y)), named], named == y

    def block(self, info: BlockInfo, y: F64) -> tuple[F64, F64]:
        """Losses and errors of n rounds, shape (n,) each."""
        values, Q = info.values, info.probabilities
        with np.errstate(over="ignore", divide="ignore"):
            losses = info.losses if self.truths.has_classes else self.loss.values(values, y)
            if self.truths.is_classifier:
                errors = mistakes(self.truths, values, Q, y).astype(np.float64)
            else:
                errors = ((values - y) * self.truths.unit) ** 2
        are_summable = (losses <= LARGEST_TERM) & (errors <= LARGEST_TERM)
        if not are_summable.all():
            raise DivergedError(_LOSS_OVERFLOWS, index=int(np.argmin(are_summable)))
        return losses, errors


def mistakes(truths: Truths, values: F64, probabilities: F64 | None, y: F64) -> NDArray[np.bool_]:
    """Which of a classifier's n forecasts predicted another label than the truth, shape (n,)."""
    if truths.has_classes and probabilities is not None:
        return probabilities.argmax(axis=1) != y
    return (values >= 0.0) != (y > 0.0)


def forecasts_of(values: F64, given: F64 | None) -> list[Forecast]:
    """The forecasts of a block, one by one, from its values and probabilities."""
    values = values.tolist()
    if given is None:
        return [Forecast(value) for value in values]
    if given.ndim == 1:
        return [Forecast(value, p) for value, p in zip(values, given.tolist(), strict=True)]
    return [Forecast(value, None, tuple(p)) for value, p in zip(values, given.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class Tally:
    """Totals and means over all rounds, and means over the last `window`; the means are None before the first round."""

    rounds: int = 0
    loss: float = 0.0
    mean_loss: float | None = None
    error: float = 0.0
    mean_error: float | None = None
    window: int = 0
    window_loss: float | None = None
    window_error: float | None = None
    window_coverage: float | None = None


class Scorecard:
    """Running metrics of one session.

    The `error` of a round is 1 or 0 (mistake or not) for a classifier, the squared error for a regressor. `is_kept`: whether
    the round's interval held the truth; None without intervals.
    """

    __slots__ = ("_errors", "_kept", "_losses", "error", "loss", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        self.loss = 0.0
        self.error = 0.0
        self._losses = np.zeros(WINDOW)
        self._errors = np.zeros(WINDOW)
        self._kept = np.full(WINDOW, np.nan)

    def add(self, loss: float, error: float, is_kept: bool | None = None) -> None:
        slot = self.rounds % WINDOW
        self._losses[slot] = loss
        self._errors[slot] = error
        self._kept[slot] = np.nan if is_kept is None else is_kept
        self.loss += loss
        self.error += error
        self.rounds += 1

    def run(self, losses: F64, errors: F64, kept: NDArray[np.bool_] | None) -> None:
        """Add n rounds, shape (n,) each; bit for bit the same as `add` of each. `kept` is None without intervals."""
        slots = np.arange(self.rounds, self.rounds + len(losses))[-WINDOW:] % WINDOW
        self._losses[slots] = losses[-WINDOW:]
        self._errors[slots] = errors[-WINDOW:]
        self._kept[slots] = np.nan if kept is None else kept[-WINDOW:]
        self.loss = running(self.loss, losses).item(-1)
        self.error = running(self.error, errors).item(-1)
        self.rounds += len(losses)

    def windows(self, errors: F64, ends: Sequence[int]) -> list[tuple[int, float]]:
        """The window's number of rounds and mean error after each of `ends` more rounds, whose errors have shape (n,)."""
        n = min(self.rounds, WINDOW)
        joined = np.concatenate((np.roll(self._errors[:n], -(self.rounds % n) if n else 0), errors))
        parts = [joined[max(0, n + end - WINDOW) : n + end] for end in ends]
        return [(len(part), float(part.mean())) for part in parts]

    def copy(self) -> Scorecard:
        return Scorecard.unpack(self.pack())

    def tally(self) -> Tally:
        n = min(self.rounds, WINDOW)
        if not n:
            return Tally()
        kept = float(self._kept[:n].mean())
        return Tally(
            self.rounds,
            loss=self.loss,
            mean_loss=self.loss / self.rounds,
            error=self.error,
            mean_error=self.error / self.rounds,
            window=n,
            window_loss=float(self._losses[:n].mean()),
            window_error=float(self._errors[:n].mean()),
            window_coverage=None if math.isnan(kept) else kept,
        )

    def pack(self) -> dict[str, F64]:
        n = min(self.rounds, WINDOW)
        rows = [self._losses[:n], self._errors[:n]]
        if not np.isnan(self._kept[:n]).all():
            rows.append(self._kept[:n])
        return {"totals": np.array([float(self.rounds), self.loss, self.error]), "window": np.stack(rows)}

    @classmethod
    def unpack(cls, arrays: Mapping[str, Stored]) -> Scorecard:
        try:
            totals, window = arrays["totals"], arrays["window"]
            card = cls()
            card.rounds, card.loss, card.error = count_in(totals[0]), float(totals[1]), float(totals[2])
            n = window.shape[1]
            if not (np.isfinite(totals).all() and np.isfinite(window[:2]).all()):
                raise ValueError("a loss or an error is not finite")
            card._losses[:n], card._errors[:n] = window[:2]
            if len(window) > 2:
                [card._kept[:n]] = window[2:]
        except (KeyError, ValueError, IndexError) as error:
            raise StateFormatError(f"the metrics cannot be read: {error}") from error
        return card
