r"""Regularised least squares as rules of (m, q, y): ridge regression, and the Aggregating Algorithm.

| symbol   | meaning                                                                     | in [zhdanov2013] |
|----------|-----------------------------------------------------------------------------|------------------|
| a        | regularization, A_0 = a I, A_t = A_{t-1} + phi_t phi_t^T                    | section 2        |
| Y        | clip, or the largest \|y\| so far                                           | section 4        |
| K_t      | kernel matrix of the first t inputs                                         | section 2        |
| gamma_t  | k_t^T (K_{t-1} + a I)^{-1} y = m, the forecast of ridge regression          | section 2        |
| d_t      | kappa_t - k_t^T (K_{t-1} + a I)^{-1} k_t = a q                              | theorem 1        |
| m, q     | phi_t^T A_{t-1}^{-1} s_{t-1}, s = sum y phi; phi_t^T A_{t-1}^{-1} phi_t     |                  |

On every stream, with the forecasts not clipped,

    sum (y_t - gamma_t)^2 / (1 + d_t / a) = min_f sum (y_t - f(x_t))^2 + a |f|^2,

so that the best function in hindsight is known in every round, and the regret against it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, final

from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, Loss
from okl_core.second_order.engine import Decision, Rule
from okl_core.second_order.rule_learner import RuleLearner
from okl_core.types import F64, REALS, Interval


class LeastSquaresConfig(Protocol):
    """`clip` is Y, or None."""

    @property
    def clip(self) -> float | None: ...


class LeastSquaresState(Protocol):
    """The cumulative loss, that of the best function in hindsight with its norm term, and max |y|."""

    log_det: float
    loss: float
    comparator_loss: float
    largest: float


class LeastSquares(ABC):
    """w = 1 and c = y in every round: A and s are those of the regularised least squares."""

    @abstractmethod
    def fitted(self, m: float, q: float) -> float:
        """The forecast before it is clipped."""

    @abstractmethod
    def bound(self, clip: float | None, state: LeastSquaresState) -> float | None:
        """What the loss may exceed that of the best function by, its norm term included; None if nothing bounds it."""

    def value(self, clip: float | None, m: float, q: float) -> float:
        value = self.fitted(m, q)
        return value if clip is None else min(max(value, -clip), clip)

    def rule(self, clip: float | None) -> Rule:
        def rule(m: float, q: float, y: float, t: int) -> Decision:
            value = self.value(clip, m, q)
            residual, error = y - m, y - value
            # What `carry` adds up must be finite before the round is learned.
            require_finite(t, residual * residual, error * error)
            return Decision(value, 1.0, y, residual)

        return rule

    def carry(self, state: LeastSquaresState, rounds: Sequence[tuple[float, float, Decision]]) -> None:
        for loss, q, (_, _, y, residual, _) in rounds:
            state.loss += loss
            state.comparator_loss += residual * residual / (1.0 + q)
            state.largest = max(state.largest, abs(y))

    def describe(self, clip: float | None, state: LeastSquaresState) -> dict[str, float]:
        """`comparator_loss` and `bound`, which hold as long as nothing is forgotten."""
        numbers = {"comparator_loss": state.comparator_loss}
        bound = self.bound(clip, state)
        return numbers if bound is None else numbers | {"bound": bound}


@final
class Ridge(LeastSquares):
    """gamma_t."""

    def fitted(self, m: float, q: float) -> float:
        return m

    def bound(self, clip: float | None, state: LeastSquaresState) -> float | None:
        return None if clip is None else 4.0 * clip * clip * state.log_det


@final
class Aar(LeastSquares):
    """What ridge regression would answer had it seen x_t already, with the truth 0."""

    def fitted(self, m: float, q: float) -> float:
        return m / (1.0 + q)

    def bound(self, clip: float | None, state: LeastSquaresState) -> float:
        return state.largest * state.largest * state.log_det


class LeastSquaresLearner(RuleLearner[Any, Any, Rule, Any]):
    """Either of the two on an engine: what does not depend on which."""

    fit: ClassVar[LeastSquares]

    def loss(self, config: LeastSquaresConfig) -> Loss:
        return LOSSES["squared"]

    def truth_range(self, config: LeastSquaresConfig) -> Interval:
        return REALS if config.clip is None else (-config.clip, config.clip)

    def value(self, config: LeastSquaresConfig, m: float, q: float) -> float:
        return self.fit.value(config.clip, m, q)

    def rule(self, config: LeastSquaresConfig, state: LeastSquaresState, X: F64, rng: RoundRng) -> Rule:
        return self.fit.rule(config.clip)

    def carry(
        self,
        config: LeastSquaresConfig,
        state: LeastSquaresState,
        rule: Rule,
        rounds: Sequence[tuple[float, float, Decision]],
    ) -> None:
        self.fit.carry(state, rounds)
