"""A rule on the engine of the whole feature space."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, NamedTuple, TypeVar

from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import embedding_work
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.second_order.engine import Decision, Engine, EngineState, Moments, Rule
from okl_core.second_order.rule_learner import RuleLearner
from okl_core.types import F64, LearnerConfig


class EngineConfig(LearnerConfig):
    """What every learner on the engine is given, beside its alpha."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    window: int | None = Field(
        default=None, ge=1, description="Forgetting: rounds to remember, and up to a quarter more; all by default."
    )


class EngineTurn(NamedTuple):
    moments: Moments
    decision: Decision

    @property
    def q(self) -> float:
        return self.moments.q


C = TypeVar("C", bound=EngineConfig)
S = TypeVar("S", bound=EngineState)
P = TypeVar("P", bound=Rule)


class EngineLearner(RuleLearner[C, S, P, EngineTurn], Generic[C, S, P]):
    """See `RuleLearner` for what a learner adds."""

    def projected_to(self, config: C) -> float | None:
        """C, if the rule moves the function to where its values are within [-C, C]."""
        return None

    def conditioning(self, config: C, state: S) -> float:
        """The condition of A, and the coefficients; with projections, a multiple.

        A projection carries the error of an input that is well known to others that are not: the root of the condition times
        as large at most, and another one back again. How much of that happens shows in what the quadratics of all rounds
        leave at their common minimum, alpha |r|^2: a few C^2 a round, but far more where projections contradict each other.
        An estimate, then, checked by bench.replay: with many of these it is chaos.
        """
        engine = self.engine(config)
        condition, C = engine.condition(state), self.projected_to(config)
        grown = condition + engine.mass(state)
        return grown if C is None else grown * min(condition, max(1.0, engine.residual(state) / C / C))

    @abstractmethod
    def engine(self, config: C) -> Engine:
        """The recursion of this config."""

    def moments(self, config: C, state: S, x: F64) -> tuple[float, float]:
        found = self.engine(config).moments(state, x)
        return found.m, found.q

    def turn(self, config: C, state: S, x: F64, y: float, rule: P, rng: RoundRng) -> EngineTurn:
        return EngineTurn(*self.engine(config).play(state, x, y, rule))

    def absorb(self, config: C, state: S, x: F64, turn: EngineTurn) -> None:
        self.engine(config).absorb(state, x, turn.moments, turn.decision)

    def extra_work(self, config: C, state: S, rounds: int) -> float:
        """A window that forgets is built anew."""
        is_due = state.window is not None and state.window.room(state.t) <= rounds
        return embedding_work(len(state.J) + rounds) if is_due else 0.0

    def room(self, config: C, state: S) -> int:
        return self.engine(config).room(state)

    def block(self, config: C, state: S, X: F64, y: F64, rule: P, rng: RoundRng) -> list[tuple[float, Decision]]:
        return self.engine(config).run(state, X, y, rule)

    def describe_engine(self, state: S) -> dict[str, float]:
        """What `describe` says of the engine's part."""
        return {
            "t": state.t,
            "dictionary": len(state.J) + len(state.N),
            "bytes": state.nbytes,
            "active": len(state.J),
            "passive": len(state.N),
            "log_det": state.log_det,
        }
