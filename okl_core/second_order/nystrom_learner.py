"""A rule on the engine in a Nystrom embedding."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import embedding_work
from okl_core.second_order.engine import Decision, Rule
from okl_core.second_order.nystrom import Nystrom, NystromConfig, NystromState, Turn
from okl_core.second_order.rule_learner import RuleLearner
from okl_core.types import F64

C = TypeVar("C", bound=NystromConfig)
S = TypeVar("S", bound=NystromState)


class NystromLearner(RuleLearner[C, S, Rule, Turn], Generic[C, S]):
    """See `RuleLearner` for what a learner adds."""

    @abstractmethod
    def engine(self, config: C) -> Nystrom:
        """The recursion of this config."""

    def moments(self, config: C, state: S, x: F64) -> tuple[float, float]:
        engine = self.engine(config)
        projection = engine.project(state, engine.embed(state, x))
        return projection.m, projection.q

    def turn(self, config: C, state: S, x: F64, y: float, rule: Rule, rng: RoundRng) -> Turn:
        return self.engine(config).play(state, x, y, rule, rng)

    def absorb(self, config: C, state: S, x: F64, turn: Turn) -> None:
        self.engine(config).absorb(state, x, turn)

    def conditioning(self, config: C, state: S) -> float:
        return self.engine(config).conditioning(state, state.posterior)

    def extra_work(self, config: C, state: S, rounds: int) -> float:
        is_due = self.engine(config).forgetting.is_due_within(state.t, rounds)
        return embedding_work(len(state.posterior) + rounds) if is_due else 0.0

    def room(self, config: C, state: S) -> int:
        return self.engine(config).room_after(state.t, len(state.sample))

    def block(self, config: C, state: S, X: F64, y: F64, rule: Rule, rng: RoundRng) -> list[tuple[float, Decision]]:
        return self.engine(config).run(state, X, y, rule, rng)

    def is_whole(self, config: C) -> bool:
        """Does A hold all rounds, so that sums over them mean something?"""
        return config.half_life is None and config.carry == "transport"

    def describe_engine(self, config: C, state: S) -> dict[str, float]:
        """What `describe` says of the engine's part."""
        numbers: dict[str, float] = {"t": state.t, "dictionary": len(state.sample), "bytes": state.nbytes}
        return numbers | {"log_det": state.log_det} if self.is_whole(config) else numbers
