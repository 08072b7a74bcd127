"""A learner composed of a space and a rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Generic

import numpy as np

from okl_core.contract.learner import C, Learner
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import unpack
from okl_core.losses import Loss, probabilities
from okl_core.second_order.space_and_rule import P, Rule, S, Space, T
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round, Stored


@dataclass(slots=True)
class SecondOrderState(LearnerState, Generic[S, T]):
    """The state of the space, and the running totals of the rule."""

    space: S
    totals: T


@dataclass(slots=True)
class SecondOrderRound(Round, Generic[P, T]):
    turn: P
    rule: Rule[T]


class SecondOrder(Learner[C, SecondOrderState[S, T], SecondOrderRound[P, T]], Generic[C, S, P, T]):
    """The base of all second-order learners. Subclasses are final and only define their space and their rule."""

    state_type: ClassVar[type[LearnerState]] = SecondOrderState
    takes_weights: ClassVar[bool] = True

    @abstractmethod
    def space(self, config: C) -> Space[S, P]:
        """Return the space of this config."""

    @abstractmethod
    def rule(self, config: C) -> Rule[T]:
        """Return the rule of this config."""

    def parts(self, config: C) -> tuple[Space[S, P], Rule[T]]:
        """Return the space and the rule, created once per config."""
        parts = vars(config).get(self.kind)
        if parts is None:
            # Stored like a cached property: in the instance's dict, without becoming a field.
            parts = vars(config)[self.kind] = self.space(config), self.rule(config)
        return parts

    def loss(self, config: C) -> Loss:
        return self.rule(config).loss

    def truth_range(self, config: C) -> Interval:
        return self.rule(config).truth_range

    def init(self, config: C, dim: int) -> SecondOrderState[S, T]:
        return SecondOrderState(0, self.space(config).init(dim), self.rule(config).totals())

    def initial_bytes(self, config: C, dim: int) -> int:
        return self.space(config).initial_bytes(dim)

    def unpack(self, config: C, arrays: Mapping[str, Stored]) -> SecondOrderState[S, T]:
        space, totals = self.space(config).state_type, type(self.rule(config).totals())
        return unpack(SecondOrderState, arrays, {"space": space, "totals": totals})

    def predict(self, config: C, state: SecondOrderState[S, T], x: F64) -> Forecast:
        space, rule = self.parts(config)
        m, q, _ = space.moments(state.space, state.t + 1, x, rule.needs_variance)
        value = rule.after(state.totals, state.t).value(m, q)
        return rule.loss.forecast(value)

    def play(self, config: C, state: SecondOrderState[S, T], x: F64, y: float, rng: RoundRng) -> SecondOrderRound[P, T]:
        return self.play_weighted(config, state, x, y, 1.0, rng)

    def play_weighted(
        self, config: C, state: SecondOrderState[S, T], x: F64, y: float, weight: float, rng: RoundRng
    ) -> SecondOrderRound[P, T]:
        (space, rule), t = self.parts(config), state.t + 1
        rule = rule.after(state.totals, state.t)
        if weight != 1.0:
            rule = rule.weighted(weight)
        played = space.play(state.space, t, x, y, rule, rng)
        value = played.decision.value
        forecast = rule.loss.forecast(value)
        return SecondOrderRound(t, x, y, forecast, rule.loss.value(value, y), rng.choices(), played, rule)

    def learn(self, config: C, state: SecondOrderState[S, T], played: SecondOrderRound[P, T]) -> None:
        turn = played.turn
        self.parts(config)[0].absorb(state.space, played.t, played.x, turn)
        played.rule.add(state.totals, played.loss, turn.moments.q, turn.decision)
        state.t += 1

    def run(self, config: C, state: SecondOrderState[S, T], X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        return self._run(config, state, X, y, None, rng)

    def run_weighted(
        self, config: C, state: SecondOrderState[S, T], X: F64, y: F64, weights: F64, rng: RoundRng
    ) -> BlockInfo:
        return self._run(config, state, X, y, weights, rng)

    def _run(
        self, config: C, state: SecondOrderState[S, T], X: F64, y: F64, weights: F64 | None, rng: RoundRng
    ) -> BlockInfo:
        space, rule = self.parts(config)
        loss, rules = rule.loss, rule.along(state.totals, state.t, weights)
        values, losses = np.empty(len(y)), np.empty(len(y))
        start = 0
        while start < len(y):
            rows = slice(start, start + space.room(state.space, state.t + 1))
            block = space.block(state.space, state.t + 1, X[rows], rng)
            truths = y[rows].tolist()
            block_rules = list(islice(rules, len(truths)))
            played = [block.play(j, truth, block_rules[j], rng) for j, truth in enumerate(truths)]
            block.settle()
            state.t += len(played)
            values[rows] = [decision.value for _, decision in played]
            losses[rows] = loss.values(values[rows], y[rows])
            for round_rule, cost, (q, decision) in zip(block_rules, losses[rows].tolist(), played, strict=True):
                round_rule.add(state.totals, cost, q, decision)
            start = rows.stop
        return BlockInfo(state.t, values, losses, probabilities(loss, values), rng.finish())

    def extra_work(self, config: C, state: SecondOrderState[S, T], rounds: int) -> float:
        return self.space(config).extra_work(state.space, state.t + 1, rounds)

    def conditioning(self, config: C, state: SecondOrderState[S, T]) -> float:
        return self.space(config).conditioning(state.space)

    def describe(self, config: C, state: SecondOrderState[S, T]) -> dict[str, float]:
        space, rule = self.parts(config)
        numbers = {"t": state.t, "loss": state.totals.loss} | space.describe(state.space)
        log_det = state.space.log_det
        return numbers | {"log_det": log_det} | rule.describe(state.totals, log_det) if space.is_whole else numbers
