"""A learner as a stranger would write it, and how one of its kind is noted as broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from okl_core.contract.learner import Learner
from okl_core.contract.rng import RoundRng
from okl_core.contract.subject import Check
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, Forecast, LearnerConfig, LearnerState, Round


class SleepyConfig(LearnerConfig):
    step_size: float = Field(default=0.1, gt=0.0, description="Step of the gradient.")
    attention: float = Field(default=0.7, gt=0.0, le=1.0, description="Probability to learn from a round.")


@dataclass(slots=True)
class Weights(LearnerState):
    w: F64


@dataclass(slots=True)
class SleepyRound(Round):
    step: float


class Sleepy(Learner[Any, Any, Any]):
    """Online gradient descent on the hinge loss that sleeps through some rounds."""

    kind: ClassVar[str] = "sleepy"
    references: ClassVar[tuple[str, ...]] = ()
    config_type = SleepyConfig
    state_type = Weights

    def loss(self, config: Any) -> Loss:
        return LOSSES["hinge"]

    def init(self, config: Any, dim: int) -> Any:
        return Weights(t=0, w=np.zeros(dim))

    def predict(self, config: Any, state: Any, x: F64) -> Forecast:
        return Forecast(float(np.tanh(state.w @ x)))

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        forecast = Sleepy.predict(self, config, state, x)
        step = config.step_size * y if rng.bernoulli(config.attention) and y * forecast.value < 1.0 else 0.0
        loss = self.loss(config).value(forecast.value, y)
        return SleepyRound(state.t + 1, x, y, forecast, loss, rng.choices(), step)

    def learn(self, config: Any, state: Any, played: Any) -> None:
        state.t += 1
        state.w += played.step * np.clip(played.x, -10.0, 10.0)

    def describe(self, config: Any, state: Any) -> dict[str, float]:
        return {"t": state.t, "dictionary": 0, "bytes": state.w.nbytes}


BROKEN: list[tuple[type[Sleepy], Check]] = []


def breaks(check: Check) -> Callable[[type[Sleepy]], type[Sleepy]]:
    """Class decorator: this learner must be caught by that check."""

    def note(cls: type[Sleepy]) -> type[Sleepy]:
        cls.kind = cls.__name__.lower()
        BROKEN.append((cls, check))
        return cls

    return note
