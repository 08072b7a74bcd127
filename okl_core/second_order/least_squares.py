r"""Regularised least squares: the rules of ridge regression and of the Aggregating Algorithm.

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

With weights omega_t the sums on both sides are those of omega_t (y_t - .)^2, and q_t on the left is omega_t q_t. Then with
D = log det A_T / a^p the regret is at most, for |y| <= Y and the largest omega,

| rule             | omega <= 1 | 1 < omega < 2        | beyond              |
|------------------|------------|----------------------|---------------------|
| ridge, clipped   | 4 Y^2 D    | 4 omega Y^2 D        | 4 omega Y^2 D       |
| AAR              | Y^2 D      | Y^2 D / (2 - omega)  | none                |
| AAR, clipped     | Y^2 D      | the smaller of these | 8 omega Y^2 D       |

A round of AAR adds omega ((y - m / (1 + q))^2 - (y - m)^2 / (1 + omega q)) to it: below omega = 2 concave in m, at most
y^2 omega q / (1 + omega q) / (2 - omega). Of what is clipped |y - clip(m)| <= min(2 Y, |y - m|), and clip(m / (1 + q)) is
within Y q / (1 + q) of clip(m).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self, final

from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES
from okl_core.second_order.space_and_rule import Decision, Moments, Totals
from okl_core.types import REALS, Interval

TruthBound = Annotated[float | None, Field(gt=0.0, description="Y: bound on predictions and truths; none by default.")]

NO_BOUND = sys.float_info.max
"""A Y that stands for none: its square is not finite."""


@final
@dataclass(slots=True)
class LeastSquaresTotals(Totals):
    """The loss of the best function in hindsight with its norm term, and max |y|, or what takes its place with weights."""

    comparator_loss: float
    largest: float


@final
class LeastSquares(NamedTuple):
    """w = 1 and c = y in every round: A and s are those of the regularised least squares.

    `shrinks`: the forecast is that of the Aggregating Algorithm, m / (1 + q): what ridge regression would answer had it seen
    x_t already, with the truth 0. Otherwise it is that of ridge regression, gamma_t = m.
    """

    clip: float | None
    shrinks: bool
    weight: float = 1.0
    loss = LOSSES["squared"]

    @property
    def truth_range(self) -> Interval:
        return REALS if self.clip is None else (-self.clip, self.clip)

    @property
    def needs_variance(self) -> bool:
        return self.shrinks

    def weighted(self, weight: float) -> Self:
        return self._replace(weight=weight)

    def value(self, m: float, q: float) -> float:
        value = m / (1.0 + q) if self.shrinks else m
        return value if self.clip is None else min(max(value, -self.clip), self.clip)

    def is_idle(self, m: float, y: float) -> bool:
        return False

    def decide(self, moments: Moments, y: float, t: int, rng: RoundRng) -> Decision:
        value = self.value(moments.m, moments.q)
        residual, error = y - moments.m, y - value
        # What `add` adds up must be finite before the round is learned.
        require_finite(t, self.weight * residual * residual, self.weight * error * error)
        return Decision(value, 1.0, y, residual).times(self.weight)

    def totals(self) -> LeastSquaresTotals:
        return LeastSquaresTotals(0.0, 0.0, 0.0)

    def add(self, totals: LeastSquaresTotals, loss: float, q: float, decision: Decision) -> None:
        residual = decision.rho_delta
        totals.loss += self.weight * loss
        totals.comparator_loss += residual * residual / (1.0 + decision.w * q)
        totals.largest = max(totals.largest, self._largest(abs(decision.c / self.weight)))

    def _largest(self, size: float) -> float:
        """The Y of which the bound without weights is that of a round with |y| = `size`."""
        omega = self.weight
        if omega <= 1.0:
            return size
        clipped = NO_BOUND if self.clip is None else self.clip * math.sqrt(omega)
        if not self.shrinks:
            return size if self.clip is None else clipped
        alone = size / math.sqrt(2.0 - omega) if omega < 2.0 else NO_BOUND
        return min(alone, math.sqrt(8.0) * clipped)

    def describe(self, totals: LeastSquaresTotals, log_det: float) -> dict[str, float]:
        """`bound`: what the loss may exceed `comparator_loss` by; that of ridge regression needs a clip."""
        numbers = {"comparator_loss": totals.comparator_loss}
        if self.shrinks:
            bound = totals.largest * totals.largest * log_det
            return numbers | {"bound": bound} if math.isfinite(bound) else numbers
        if self.clip is None:
            return numbers
        Y = max(self.clip, totals.largest)
        return numbers | {"bound": 4.0 * Y * Y * log_det}
