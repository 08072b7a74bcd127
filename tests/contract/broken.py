"""A learner as a stranger would write it, and one that breaks each clause of the contract."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from okl_core.contract import checks
from okl_core.contract.learner import Learner
from okl_core.contract.rng import RoundRng
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerConfig, LearnerState, Round, Target


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


Check = Callable[[checks.Subject], None]
BROKEN: list[tuple[type[Sleepy], Check]] = []


def breaks(check: Check) -> Callable[[type[Sleepy]], type[Sleepy]]:
    """Class decorator: this learner must be caught by that check."""

    def note(cls: type[Sleepy]) -> type[Sleepy]:
        cls.kind = cls.__name__.lower()
        BROKEN.append((cls, check))
        return cls

    return note


@breaks(checks.check_identity)
class HasFields(Sleepy):
    """Keeps what it should not in the learner object."""

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        self.last = played.t


@breaks(checks.check_identity)
class HasNoSummary(Sleepy):
    __doc__ = None


class UndescribedConfig(SleepyConfig):
    momentum: float = 0.0


@breaks(checks.check_config_schema)
class Undescribed(Sleepy):
    """Has a field that says nothing."""

    config_type = UndescribedConfig


class LaxConfig(SleepyConfig, extra="ignore"):
    pass


@breaks(checks.check_config_schema)
class Lax(Sleepy):
    """Lets a misspelt field pass."""

    config_type = LaxConfig


@breaks(checks.check_predict_is_pure)
class LearnsInPredict(Sleepy):
    """Changes its state when asked."""

    def predict(self, config: Any, state: Any, x: F64) -> Forecast:
        state.w += 1e-12
        return super().predict(config, state, x)


@breaks(checks.check_play_is_pure)
class LearnsInPlay(Sleepy):
    """Changes its state before the round is durable."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        state.w += 1e-12 * y
        return super().play(config, state, x, y, rng)


@breaks(checks.check_inputs_are_copied)
class ScalesItsInput(Sleepy):
    """Writes into the input of the caller."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        x *= 0.5
        return super().play(config, state, x, y, rng)


@breaks(checks.check_forecast_is_blind)
class Peeks(Sleepy):
    """Knows the truth before it forecasts."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        played = super().play(config, state, x, y, rng)
        played.forecast = Forecast(played.forecast.value + 1e-3 * y)
        return played


@breaks(checks.check_update_is_play_and_learn)
class CountsTwice(Sleepy):
    """Counts a round twice."""

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        state.t += played.step > 0.0


@breaks(checks.check_run_equals_updates)
class RunsAhead(Sleepy):
    """Forecasts a whole block before it learns from any of it."""

    def run(self, config: Any, state: Any, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        values = np.array([self.predict(config, state, x).value for x in X])
        return super().run(config, state, X, y, rng)._replace(values=values)


@breaks(checks.check_run_equals_updates)
class RunsWithoutCoins(Sleepy):
    """Forgets to record the choices of a block."""

    def run(self, config: Any, state: Any, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        return super().run(config, state, X, y, rng)._replace(choices=b"")


class Momentum:
    """Packs its weights and forgets the velocity."""

    def __init__(self, dim: int) -> None:
        self.w, self.velocity = np.zeros(dim), np.zeros(dim)

    def __matmul__(self, x: F64) -> float:
        return float(self.w @ x)

    def __iadd__(self, step: F64) -> Momentum:
        self.velocity = 0.9 * self.velocity + step
        self.w = self.w + self.velocity
        return self

    nbytes = 0

    def pack(self) -> dict[str, F64]:
        return {"w": self.w.copy()}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Momentum:
        momentum = cls(len(arrays["w"]))
        momentum.w = arrays["w"].copy()
        return momentum


@dataclass(slots=True)
class MomentumState(LearnerState):
    w: Momentum


@breaks(checks.check_state_is_everything)
class Forgets(Sleepy):
    """Has more state than it packs."""

    state_type = MomentumState

    def init(self, config: Any, dim: int) -> Any:
        return MomentumState(t=0, w=Momentum(dim))


class Shared(Momentum):
    """Is the same object in every copy of a state."""

    def __deepcopy__(self, memo: object) -> Shared:
        return self


@dataclass(slots=True)
class SharedState(LearnerState):
    w: Shared


@breaks(checks.check_copies)
class SharesItsState(Sleepy):
    """Learns in its copies, too."""

    state_type = SharedState

    def init(self, config: Any, dim: int) -> Any:
        return SharedState(t=0, w=Shared(dim))


@breaks(checks.check_replay)
class TossesAgain(Sleepy):
    """Does not take the recorded outcome of its coin."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        played = super().play(config, state, x, y, rng)
        rng.begin()
        played.choices = bytes([rng.bernoulli(config.attention)])
        return played


@breaks(checks.check_replay)
class KeepsNoRecord(Sleepy):
    """Tosses coins and does not say how they fell."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        played = super().play(config, state, x, y, rng)
        played.choices = b""
        return played


_DICE = np.random.default_rng(0)


@breaks(checks.check_same_seed_same_run)
class RollsDice(Sleepy):
    """Takes randomness from elsewhere."""

    def init(self, config: Any, dim: int) -> Any:
        return Weights(t=0, w=_DICE.normal(size=dim))


@dataclass(slots=True)
class LastInput(Weights):
    last: F64


@breaks(checks.check_inputs_are_copied)
class KeepsTheInput(Sleepy):
    """Holds on to the input of the caller."""

    state_type = LastInput

    def init(self, config: Any, dim: int) -> Any:
        return LastInput(t=0, w=np.zeros(dim), last=np.zeros(dim))

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        state.last = played.x


@dataclass(slots=True)
class OwnLags(Weights):
    lags: F64


@breaks(checks.check_lags)
class CallsItsOwnLags(Sleepy):
    """Has an array of the name that is the library's."""

    state_type = OwnLags

    def init(self, config: Any, dim: int) -> Any:
        return OwnLags(t=0, w=np.zeros(dim), lags=np.zeros(2))


@breaks(checks.check_describe)
class DescribesNan(Sleepy):
    """Divides by the rounds, of which there are none yet."""

    def describe(self, config: Any, state: Any) -> dict[str, float]:
        return {**super().describe(config, state), "rate": 1.0 / state.t if state.t else math.nan}


@breaks(checks.check_describe)
class DescribesLittle(Sleepy):
    """Does not say how large it is."""

    def describe(self, config: Any, state: Any) -> dict[str, float]:
        return {"t": state.t}


@breaks(checks.check_announcements)
class ForgetsItsWork(Sleepy):
    """Announces work of the next round that the next hundred do not have."""

    def extra_work(self, config: Any, state: Any, rounds: int) -> float:
        return 1e9 if rounds == 1 else 0.0


@breaks(checks.check_announcements)
class IsBetterThanExact(Sleepy):
    """Says that rounding errors shrink."""

    def conditioning(self, config: Any, state: Any) -> float:
        return 0.5


class Counts(Momentum):
    """Packs integers, in Fortran order."""

    def __iadd__(self, step: F64) -> Counts:
        self.w = self.w + np.sign(step)
        return self

    def pack(self) -> dict[str, Any]:
        return {"w": self.w.astype(np.int64)}


@dataclass(slots=True)
class CountsState(LearnerState):
    w: Counts


@breaks(checks.check_state_arrays)
class PacksIntegers(Sleepy):
    """Packs something else than float64."""

    state_type = CountsState

    def init(self, config: Any, dim: int) -> Any:
        return CountsState(t=0, w=Counts(dim))


@breaks(checks.check_state_bytes)
class RestoresAnything(Sleepy):
    """Takes a state with a missing part for a good one."""

    class Tolerant(Momentum):
        def pack(self) -> dict[str, F64]:
            return {"w": self.w.copy(), "velocity": self.velocity.copy()}

        @classmethod
        def unpack(cls, arrays: dict[str, F64]) -> Momentum:
            momentum = cls(3)
            momentum.w = arrays.get("w", momentum.w).copy()
            momentum.velocity = arrays.get("velocity", momentum.velocity).copy()
            return momentum

    @dataclass(slots=True)
    class State(LearnerState):
        w: RestoresAnything.Tolerant

    state_type = State

    def init(self, config: Any, dim: int) -> Any:
        return self.State(t=0, w=self.Tolerant(dim))


@breaks(checks.check_extreme_inputs)
class Diverges(Sleepy):
    """Goes to infinity for large inputs."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        with np.errstate(invalid="ignore"):
            return super().play(config, state, x, y, rng)

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        if np.abs(played.x).max() > 100.0:
            state.w[:] = np.inf


@breaks(checks.check_extreme_inputs)
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
