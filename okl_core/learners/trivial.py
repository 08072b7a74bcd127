"""The trivial forecasters, which look at past truths only: what any learner must beat to have learned something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from okl_core.contract.arguments import check_new_classes
from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.errors import StateFormatError
from okl_core.losses import LOSSES, Loss, log_loss
from okl_core.types import (
    F64,
    MAX_CLASSES,
    BlockInfo,
    Forecast,
    Interval,
    LearnerConfig,
    LearnerState,
    Round,
    Target,
)


class TrivialConfig(LearnerConfig):
    """The config of a learner without parameters."""


@dataclass(slots=True)
class PastTruths(LearnerState):
    """The sum of the truths so far, and the last of them; 0 before the first round."""

    total: float
    last: float


class _Trivial(Learner[TrivialConfig, PastTruths, Round]):
    """A learner whose forecast is a function of `PastTruths`."""

    references: ClassVar[tuple[str, ...]] = ()
    config_type = TrivialConfig
    state_type = PastTruths

    def loss(self, config: TrivialConfig) -> Loss:
        return LOSSES["squared"]

    def init(self, config: TrivialConfig, dim: int) -> PastTruths:
        return PastTruths(t=0, total=0.0, last=0.0)

    def play(self, config: TrivialConfig, state: PastTruths, x: F64, y: float, rng: RoundRng) -> Round:
        forecast = self.predict(config, state, x)
        return Round(state.t + 1, x, y, forecast, self.loss(config).value(forecast.value, y), rng.choices())

    def learn(self, config: TrivialConfig, state: PastTruths, played: Round) -> None:
        state.t += 1
        state.total += played.y
        state.last = played.y

    def describe(self, config: TrivialConfig, state: PastTruths) -> dict[str, float]:
        return {"t": state.t, "dictionary": 0, "bytes": 24, "mean": state.total / max(1, state.t)}


@final
@register
class LastLabel(_Trivial):
    """Repeat the last truth; 0 in the first round."""

    kind: ClassVar[str] = "last-label"

    def target(self, config: TrivialConfig) -> Target:
        return "any"

    def predict(self, config: TrivialConfig, state: PastTruths, x: F64) -> Forecast:
        return Forecast(state.last)


@final
@register
class Majority(_Trivial):
    """Predict the label seen more often so far, with the probability (n₊ + 1/2) / (n + 1) of Krichevsky-Trofimov.

    The value is 0 on ties, which counts as the second label; the lighter form in `monitoring.plain` takes the first.
    """

    kind: ClassVar[str] = "majority"
    references: ClassVar[tuple[str, ...]] = ("krichevsky1981",)

    def target(self, config: TrivialConfig) -> Target:
        return "binary"

    def gives_probabilities(self, config: TrivialConfig) -> bool:
        return True

    def predict(self, config: TrivialConfig, state: PastTruths, x: F64) -> Forecast:
        positives = (state.t + state.total) / 2.0
        return Forecast(float(np.sign(state.total)), (positives + 0.5) / (state.t + 1.0))


@final
@register
class Mean(_Trivial):
    """Predict the mean of the truths so far; 0 in the first round."""

    kind: ClassVar[str] = "mean"

    def target(self, config: TrivialConfig) -> Target:
        return "any"

    def predict(self, config: TrivialConfig, state: PastTruths, x: F64) -> Forecast:
        return Forecast(state.total / state.t if state.t else 0.0)


class FrequenciesConfig(LearnerConfig):
    """The number of classes."""

    classes: int | None = Field(
        default=None,
        ge=2,
        le=MAX_CLASSES,
        description="K: truths are 0 to K - 1. Without it a truth of K is one class more than there were.",
    )


@dataclass(slots=True)
class ClassCounts(LearnerState):
    """How often each class was the truth, shape (K,)."""

    counts: F64

    def require_config(self, config: FrequenciesConfig) -> None:
        n = self.counts
        if n.ndim != 1 or config.classes not in (None, len(n)) or not ((n >= 0.0).all() and n.sum() == self.t):
            raise StateFormatError(f"counts of shape {n.shape} are not those of {self.t} rounds")


@final
@register
class Frequencies(Learner[FrequenciesConfig, ClassCounts, Round]):
    """Predict each class with its share of the truths so far: `majority` for more than two labels.

    Of K classes that are known beforehand class k has the probability (n_k + 1/2) / (n + K/2) of Krichevsky-Trofimov. Where
    they are not, it has n_k / (n + 1), and 1 / (n + 1) is left for a class never seen, by the rule of succession.
    """

    kind: ClassVar[str] = "frequencies"
    references: ClassVar[tuple[str, ...]] = ("krichevsky1981",)
    config_type = FrequenciesConfig
    state_type = ClassCounts

    def loss(self, config: FrequenciesConfig) -> Loss:
        return LOSSES["logistic"]

    def target(self, config: FrequenciesConfig) -> Target:
        return "class"

    def truth_range(self, config: FrequenciesConfig) -> Interval:
        return 0.0, (config.classes or MAX_CLASSES) - 1.0

    def init(self, config: FrequenciesConfig, dim: int) -> ClassCounts:
        return ClassCounts(t=0, counts=np.zeros(config.classes or 0))

    def predict(self, config: FrequenciesConfig, state: ClassCounts, x: F64) -> Forecast:
        n, K = state.counts, len(state.counts)
        P = n / (state.t + 1.0) if config.classes is None else (n + 0.5) / (state.t + K / 2.0)
        return Forecast(float(P.max(initial=0.0)), None, tuple(P.tolist()))

    def play(self, config: FrequenciesConfig, state: ClassCounts, x: F64, y: float, rng: RoundRng) -> Round:
        forecast, k = self.predict(config, state, x), int(y)
        given = forecast.probabilities or ()
        check_new_classes(np.array([y]), len(given))
        loss = log_loss(given[k] if k < len(given) else 1.0 / (state.t + 1.0))
        return Round(state.t + 1, x, y, forecast, loss, rng.choices())

    def learn(self, config: FrequenciesConfig, state: ClassCounts, played: Round) -> None:
        k = int(played.y)
        counts = state.counts if k < len(state.counts) else np.append(state.counts, 0.0)
        counts[k] += 1.0
        state.counts = counts
        state.t += 1

    def run(self, config: FrequenciesConfig, state: ClassCounts, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        check_new_classes(y, len(state.counts))
        played = [self.play_and_learn(config, state, x, truth, rng) for x, truth in zip(X, y.tolist(), strict=True)]
        Q = np.zeros((len(y), len(state.counts)))
        for j, turn in enumerate(played):
            given = turn.forecast.probabilities or ()
            Q[j, : len(given)] = given
        values, losses = [turn.forecast.value for turn in played], [turn.loss for turn in played]
        return BlockInfo(state.t, np.array(values), np.array(losses), Q, rng.finish())

    def describe(self, config: FrequenciesConfig, state: ClassCounts) -> dict[str, float]:
        return {"t": state.t, "dictionary": 0, "bytes": state.counts.nbytes, "classes": len(state.counts)}
