"""Learners whose state is not all there is, or not theirs alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from okl_core.contract.checks import (
    check_copies,
    check_inputs_are_copied,
    check_replay,
    check_state_arrays,
    check_state_bytes,
    check_state_is_everything,
)
from okl_core.contract.rng import RoundRng
from okl_core.types import F64, LearnerState
from tests.contract.broken.sleepy import Sleepy, Weights, breaks


@breaks(check_inputs_are_copied)
class ScalesItsInput(Sleepy):
    """Writes into the input of the caller."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        x *= 0.5
        return super().play(config, state, x, y, rng)


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


@breaks(check_state_is_everything)
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


@breaks(check_copies)
class SharesItsState(Sleepy):
    """Learns in its copies, too."""

    state_type = SharedState

    def init(self, config: Any, dim: int) -> Any:
        return SharedState(t=0, w=Shared(dim))


@breaks(check_replay)
class TossesAgain(Sleepy):
    """Does not take the recorded outcome of its coin."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        played = super().play(config, state, x, y, rng)
        rng.begin()
        played.choices = bytes([rng.bernoulli(config.attention)])
        return played


@breaks(check_replay)
class KeepsNoRecord(Sleepy):
    """Tosses coins and does not say how they fell."""

    def play(self, config: Any, state: Any, x: F64, y: float, rng: RoundRng) -> Any:
        played = super().play(config, state, x, y, rng)
        played.choices = b""
        return played


@dataclass(slots=True)
class LastInput(Weights):
    last: F64


@breaks(check_inputs_are_copied)
class KeepsTheInput(Sleepy):
    """Holds on to the input of the caller."""

    state_type = LastInput

    def init(self, config: Any, dim: int) -> Any:
        return LastInput(t=0, w=np.zeros(dim), last=np.zeros(dim))

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        state.last = played.x


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


@breaks(check_state_arrays)
class PacksIntegers(Sleepy):
    """Packs something else than float64."""

    state_type = CountsState

    def init(self, config: Any, dim: int) -> Any:
        return CountsState(t=0, w=Counts(dim))


@breaks(check_state_bytes)
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
