"""Learners whose rounds depend on what they may not, or depend on the way to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from okl_core.contract.checks import (
    check_extreme_inputs,
    check_forecast_is_blind,
    check_play_is_pure,
    check_predict_is_pure,
    check_probabilities,
    check_run_equals_updates,
    check_same_seed_same_run,
    check_update_is_play_and_learn,
)
from okl_core.contract.rng import RoundRng
from okl_core.types import F64, BlockInfo, Forecast, Interval, Target
from tests.contract.broken.sleepy import Sleepy, Weights, breaks


@breaks(check_predict_is_pure)
class LearnsInPredict(Sleepy):
    """Changes its state when asked."""

    def predict(self, config: Any, state: Any, x: F64) -> Forecast:
        state.w += 1e-12
        return super().predict(config, state, x)


@breaks(check_play_is_pure)
class LearnsInPlay(Sleepy):
    """Changes its state before the round is durable."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        state.w += 1e-12 * y
        return super().play(config, state, x, y, rng)


@breaks(check_forecast_is_blind)
class Peeks(Sleepy):
    """Knows the truth before it forecasts."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        played = super().play(config, state, x, y, rng)
        played.forecast = Forecast(played.forecast.value + 1e-3 * y)
        return played


@breaks(check_probabilities)
class Unsure(Sleepy):
    """Promises probabilities that its forecasts do not have."""

    def gives_probabilities(self, config: Any) -> bool:
        return True


@breaks(check_update_is_play_and_learn)
class CountsTwice(Sleepy):
    """Counts a round twice."""

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        state.t += played.step > 0.0


@breaks(check_run_equals_updates)
class RunsAhead(Sleepy):
    """Forecasts a whole block before it learns from any of it."""

    def run(self, config: Any, state: Any, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        values = np.array([self.predict(config, state, x).value for x in X])
        return super().run(config, state, X, y, rng)._replace(values=values)


@breaks(check_run_equals_updates)
class RunsWithoutCoins(Sleepy):
    """Forgets to record the choices of a block."""

    def run(self, config: Any, state: Any, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        return super().run(config, state, X, y, rng)._replace(choices=b"")


_DICE = np.random.default_rng(0)


@breaks(check_same_seed_same_run)
class RollsDice(Sleepy):
    """Takes randomness from elsewhere."""

    def init(self, config: Any, dim: int) -> Any:
        return Weights(t=0, w=_DICE.normal(size=dim))


@breaks(check_extreme_inputs)
class Diverges(Sleepy):
    """Goes to infinity for large inputs."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        with np.errstate(invalid="ignore"):
            return super().play(config, state, x, y, rng)

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        if np.abs(played.x).max() > 100.0:
            state.w[:] = np.inf


@breaks(check_extreme_inputs)
class Generous(Sleepy):
    """Gives its classes probabilities that sum to more than one."""

    def target(self, config: Any) -> Target:
        return "class"

    def truth_range(self, config: Any) -> Interval:
        return 0.0, 2.0

    def predict(self, config: Any, state: Any, x: F64) -> Forecast:
        return Forecast(0.5, None, (0.5, 0.4, 0.3))

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        played = super().play(config, state, x, y, rng)
        played.forecast = self.predict(config, state, x)
        return played
