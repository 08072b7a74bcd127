"""The trivial forecasters, which look at past truths only: what any learner must beat to have learned something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, Forecast, LearnerConfig, LearnerState, Round, Target


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
    """Predict the label seen more often so far, with the probability (n₊ + 1/2) / (n + 1) of Krichevsky-Trofimov."""

    kind: ClassVar[str] = "majority"
    references: ClassVar[tuple[str, ...]] = ("krichevsky1981",)

    def target(self, config: TrivialConfig) -> Target:
        return "binary"

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
