"""A rule on the engine of explicit features, of which there are as many at every round."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from pydantic import Field
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import embedding_work, rows_at_once
from okl_core.errors import DivergedError
from okl_core.kernels.intercept import InterceptConfig
from okl_core.linalg.guards import require_finite
from okl_core.second_order.engine import Decision, Rule
from okl_core.second_order.forgetting import HalfLife
from okl_core.second_order.linear_root import Moments, Root, RootBlock, RootRounds
from okl_core.second_order.rule_learner import RuleLearner
from okl_core.types import F64, LearnerConfig, LearnerState

WIDE = 128
"""Features from which on a block of rounds is faster than its rounds one by one."""
BLOCK = 64
"""Rounds per block: longer blocks no longer speed the products up, and rounds inside cost O(BLOCK^2)."""
LONGEST = 1e13
"""|phi| is at most so many sqrt(alpha). A longer one is known to rounding of its own length only: when its direction comes
again the weights of all others would be off by eps |phi| / sqrt(alpha) and more, beyond 1e-3, and for good."""


class RootConfig(LearnerConfig):
    """What every learner on explicit features is given, beside its alpha."""

    half_life: int | None = Field(
        default=None,
        ge=8,
        description="Forgetting: rounds in which the weight of a past round halves; none by default.",
    )


class LinearConfig(RootConfig, InterceptConfig):
    """What every linear learner is given."""


@dataclass(slots=True)
class LinearState(LearnerState):
    """A^{-1} and the weights; `log_det` = log det(A / alpha)."""

    root: Root
    log_det: float


class LinearTurn(NamedTuple):
    moments: Moments
    decision: Decision

    @property
    def q(self) -> float:
        return self.moments.q


C = TypeVar("C", bound=RootConfig)
S = TypeVar("S", bound=LinearState)
P = TypeVar("P", bound=Rule)


class LinearLearner(RuleLearner[C, S, P, LinearTurn], Generic[C, S, P]):
    """See `RuleLearner` for what a learner adds."""

    has_variance: ClassVar[bool] = True
    """Does `value` look at q? Where it does not, a forecast costs O(p)."""

    @abstractmethod
    def alpha(self, config: C) -> float:
        """A_0 = alpha I."""

    @abstractmethod
    def width(self, config: C, dim: int) -> int:
        """p: the features of an input in R^dim."""

    def initial_bytes(self, config: C, dim: int) -> int:
        p = self.width(config, dim)
        return 8 * p * (p + 1)

    @abstractmethod
    def features(self, config: C, state: S, X: F64, rule: P | None) -> F64:
        """phi of X, shape (..., d): the inputs of the rule's rounds, or one that is only asked about."""

    def moments(self, config: C, state: S, x: F64) -> tuple[float, float]:
        phi = self.features(config, state, x, None)
        m, q = state.root.moments(phi)[:2] if self.has_variance else (state.root.mean(phi), 0.0)
        require_finite(state.t + 1, m, q)
        return m, q

    def turn(self, config: C, state: S, x: F64, y: float, rule: P, rng: RoundRng) -> LinearTurn:
        phi = self.features(config, state, x, rule)
        _require_bearable(state.t + 1, ddot(phi, phi), self.alpha(config))
        moments = state.root.moments(phi)
        return LinearTurn(moments, _decide(state.t + 1, moments, y, rule))

    def absorb(self, config: C, state: S, x: F64, turn: LinearTurn) -> None:
        moments, decision = turn
        state.root.absorb(moments, decision)
        state.log_det += math.log1p(decision.w * moments.q)
        state.t += 1
        self._forget(config, state)

    def conditioning(self, config: C, state: S) -> float:
        """The condition of the root, the root of that of A, and the weights: O(p^3)."""
        return state.root.condition() + float(np.linalg.norm(state.root.u)) / math.sqrt(self.alpha(config))

    def extra_work(self, config: C, state: S, rounds: int) -> float:
        is_due = HalfLife(config.half_life).is_due_within(state.t, rounds)
        return embedding_work(len(state.root)) if is_due else 0.0

    def room(self, config: C, state: S) -> int:
        return HalfLife(config.half_life).room(state.t, rows_at_once(len(state.root), BLOCK))

    def block(self, config: C, state: S, X: F64, y: F64, rule: P, rng: RoundRng) -> list[tuple[float, Decision]]:
        """Raises DivergedError before anything has changed."""
        Phi = self.features(config, state, X, rule)
        squares = np.einsum("ij,ij->i", Phi, Phi)
        longest = int(squares.argmax())
        _require_bearable(state.t + 1 + longest, squares.item(longest), self.alpha(config))
        rounds = (RootBlock if len(state.root) >= WIDE else RootRounds)(state.root, Phi)
        played: list[tuple[float, Decision]] = []
        for j, truth in enumerate(y.tolist()):
            moments = rounds.moments(j)
            decision = _decide(state.t + 1 + j, moments, truth, rule)
            rounds.absorb(moments, decision)
            played.append((moments.q, decision))
        rounds.settle()
        for q, decision in played:
            state.log_det += math.log1p(decision.w * q)
        state.t += len(played)
        self._forget(config, state)
        return played

    def is_whole(self, config: C) -> bool:
        """Does A hold all rounds, so that sums over them mean something?"""
        return config.half_life is None

    def describe_engine(self, config: C, state: S) -> dict[str, float]:
        """What `describe` says of the engine's part."""
        root = state.root
        numbers: dict[str, float] = {"t": state.t, "dictionary": 0, "bytes": root.nbytes, "features": len(root)}
        return numbers | {"log_det": state.log_det} if self.is_whole(config) else numbers

    def _forget(self, config: C, state: S) -> None:
        """Forget a step's worth, if it is time for one: O(p^3)."""
        if config.half_life is None:
            return
        factor = HalfLife(config.half_life).factor(state.t)
        if factor is not None:
            state.root.discount(factor, self.alpha(config))


def _require_bearable(t: int, square: float, alpha: float) -> None:
    """Raises DivergedError for a round with |phi|^2 = `square` that S could not tell from the others any more."""
    if not square <= LONGEST * LONGEST * alpha:
        raise DivergedError(
            f"round {t}: an input of norm {math.sqrt(square):.1e} is above {LONGEST:.0e} times the root of alpha; "
            "scale the inputs down, or raise the regularization"
        )


def _decide(t: int, moments: Moments, y: float, rule: Rule) -> Decision:
    """The rule's decision. Raises DivergedError."""
    m, q, _ = moments
    require_finite(t, m, q)
    decision = rule(m, q, y, t)
    require_finite(t, *decision)
    return decision
