"""What every learner does alike that is a rule of (m, q, y) on an engine, and the sums that it reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from okl_core.contract.learner import Learner
from okl_core.contract.rng import RoundRng
from okl_core.losses import probabilities
from okl_core.second_order.engine import Decision, Rule
from okl_core.types import F64, BlockInfo, Forecast, LearnerConfig, LearnerState, Round


class Turn(Protocol):
    """A round that an engine has played."""

    @property
    def q(self) -> float: ...
    @property
    def decision(self) -> Decision: ...


C = TypeVar("C", bound=LearnerConfig)
S = TypeVar("S", bound=LearnerState)
P = TypeVar("P", bound=Rule)
T = TypeVar("T", bound=Turn)


@dataclass(slots=True)
class RuleRound(Round, Generic[P, T]):
    turn: T
    rule: P


class RuleLearner(Learner[C, S, RuleRound[P, T]], Generic[C, S, P, T]):
    """A learner that an engine carries: by its rule alone, of type P, which may find out more than the engine asks for."""

    @abstractmethod
    def value(self, config: C, m: float, q: float) -> float:
        """The forecast's value from the moments of its input; the one that the rule decides on."""

    @abstractmethod
    def rule(self, config: C, state: S, X: F64, rng: RoundRng) -> P:
        """The rule for the rounds after the state, with the inputs X, shape (n, d). Changes nothing."""

    @abstractmethod
    def carry(self, config: C, state: S, rule: P, rounds: Sequence[tuple[float, float, Decision]]) -> None:
        """Carry into the state what it keeps beside the engine's: (loss, q, decision) of the rounds of a rule."""

    @abstractmethod
    def moments(self, config: C, state: S, x: F64) -> tuple[float, float]:
        """m and q of x, shape (d,), as the engine has them."""

    @abstractmethod
    def turn(self, config: C, state: S, x: F64, y: float, rule: P, rng: RoundRng) -> T:
        """One round, played by the engine; changes nothing."""

    @abstractmethod
    def absorb(self, config: C, state: S, x: F64, turn: T) -> None:
        """Carry a turn into the engine's state."""

    @abstractmethod
    def room(self, config: C, state: S) -> int:
        """Rounds that the engine's next block may have, at least 1."""

    @abstractmethod
    def block(self, config: C, state: S, X: F64, y: F64, rule: P, rng: RoundRng) -> list[tuple[float, Decision]]:
        """q and decision of a block of rounds, learned by the engine. X: (n, d)."""

    def predict(self, config: C, state: S, x: F64) -> Forecast:
        return self._forecast(config, self.value(config, *self.moments(config, state, x)))

    def play(self, config: C, state: S, x: F64, y: float, rng: RoundRng) -> RuleRound[P, T]:
        rule = self.rule(config, state, x[None, :], rng)
        turn = self.turn(config, state, x, y, rule, rng)
        value = turn.decision.value
        loss = self.loss(config).value(value, y)
        return RuleRound(state.t + 1, x, y, self._forecast(config, value), loss, rng.choices(), turn, rule)

    def learn(self, config: C, state: S, played: RuleRound[P, T]) -> None:
        turn = played.turn
        self.absorb(config, state, played.x, turn)
        self.carry(config, state, played.rule, [(played.loss, turn.q, turn.decision)])

    def run(self, config: C, state: S, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        loss = self.loss(config)
        values, losses = np.empty(len(y)), np.empty(len(y))
        start = 0
        while start < len(y):
            rows = slice(start, start + self.room(config, state))
            rule = self.rule(config, state, X[rows], rng)
            played = self.block(config, state, X[rows], y[rows], rule, rng)
            values[rows] = [decision.value for _, decision in played]
            losses[rows] = loss.values(values[rows], y[rows])
            costs = losses[rows].tolist()
            rounds = [(cost, q, decision) for cost, (q, decision) in zip(costs, played, strict=True)]
            self.carry(config, state, rule, rounds)
            start = rows.stop
        return BlockInfo(state.t, values, losses, probabilities(loss, values), rng.finish())

    def _forecast(self, config: C, value: float) -> Forecast:
        return Forecast(value, self.loss(config).probability(value))
