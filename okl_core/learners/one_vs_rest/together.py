"""All classes' learners on one dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.learners.one_vs_rest.classes import Classes, require_round, scaled
from okl_core.losses import probabilities
from okl_core.pool.bank import Bank, BankMember, BankRound, BankState
from okl_core.types import F64, Stored


@final
class Together(Classes[BankState, BankRound]):
    """K learners that differ in what they are told alone, on one dictionary with one set of coins."""

    def __init__(self, K: int, kind: str, member: BankMember) -> None:
        self._K, self._loss = K, member.rule.loss
        self._bank, self._all = Bank(range(K), 0, kind, [member] * K), range(K)

    def init(self, dim: int) -> BankState:
        return self._bank.init(dim)

    def unpack(self, arrays: Mapping[str, Stored], t: int) -> BankState:
        state = self._bank.unpack(arrays)
        require_round("the classes' learner", state.t, t)
        return state

    def predict(self, state: BankState, x: F64) -> list[float | None]:
        return self._probabilities(self._bank.predict(state, x, self._all))

    def play(self, state: BankState, x: F64, y: int, t: int, rng: RoundRng) -> tuple[list[float | None], BankRound]:
        truths = [-1.0] * self._K
        truths[y] = 1.0
        played = self._bank.play_each(state, x, truths, self._all, rng)
        return self._probabilities(played.values), played

    def learn(self, state: BankState, played: BankRound) -> None:
        self._bank.learn(state, played)

    def room(self, state: BankState) -> int:
        return self._bank.room(state, self._all)

    def run(self, state: BankState, X: F64, y: F64, t: int, rng: RoundRng) -> F64:
        truths = np.where(y[:, None] == np.arange(self._K), 1.0, -1.0)
        values = self._bank.run_each(state, X, truths, self._all, rng)
        P = probabilities(self._loss, values.ravel())
        assert P is not None
        return scaled(P.reshape(values.shape), t)

    def conditioning(self, state: BankState) -> float:
        return max(self._bank.conditioning(state))

    def extra_work(self, state: BankState, rounds: int) -> float:
        return self._bank.extra_work(state, rounds)

    def size(self, state: BankState) -> tuple[float, float]:
        return self._bank.size(state)

    def _probabilities(self, values: Sequence[float]) -> list[float | None]:
        return [self._loss.probability(value) for value in values]
