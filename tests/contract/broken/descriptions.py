"""Learners that are not what they say they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from okl_core.contract.checks import check_announcements, check_config_schema, check_describe, check_identity
from tests.contract.broken.sleepy import Sleepy, SleepyConfig, breaks


@breaks(check_identity)
class HasFields(Sleepy):
    """Keeps what it should not in the learner object."""

    def learn(self, config: Any, state: Any, played: Any) -> None:
        super().learn(config, state, played)
        self.last = played.t


@breaks(check_identity)
class HasNoSummary(Sleepy):
    __doc__ = None


class UndescribedConfig(SleepyConfig):
    momentum: float = 0.0


@breaks(check_config_schema)
class Undescribed(Sleepy):
    """Has a field that says nothing."""

    config_type = UndescribedConfig


class LaxConfig(SleepyConfig, extra="ignore"):
    pass


@breaks(check_config_schema)
class Lax(Sleepy):
    """Lets a misspelt field pass."""

    config_type = LaxConfig


@breaks(check_describe)
class DescribesNan(Sleepy):
    """Divides by the rounds, of which there are none yet."""

    def describe(self, config: Any, state: Any) -> dict[str, float]:
        return {**super().describe(config, state), "rate": 1.0 / state.t if state.t else math.nan}


@breaks(check_describe)
class DescribesScalars(Sleepy):
    """Leaves a number as NumPy made it."""

    def describe(self, config: Any, state: Any) -> dict[str, float]:
        return {**super().describe(config, state), "largest": np.abs(state.w).max(initial=0.0)}


@breaks(check_describe)
class DescribesLittle(Sleepy):
    """Does not say how large it is."""

    def describe(self, config: Any, state: Any) -> dict[str, float]:
        return {"t": state.t}


@breaks(check_announcements)
class ForgetsItsWork(Sleepy):
    """Announces work of the next round that the next hundred do not have."""

    def extra_work(self, config: Any, state: Any, rounds: int) -> float:
        return 1e9 if rounds == 1 else 0.0


@breaks(check_announcements)
class IsBetterThanExact(Sleepy):
    """Says that rounding errors shrink."""

    def conditioning(self, config: Any, state: Any) -> float:
        return 0.5
