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

so the loss of the best function in hindsight is known in every round, and with it the regret.

With weights omega_t both sides sum omega_t (y_t - .)^2, and the left side has omega_t q_t in place of q_t = d_t / a. With
D = log det A_T / a^p, for |y| <= Y and the largest omega, the regret is then at most

| rule             | omega <= 1 | 1 < omega < 2        | beyond              |
|------------------|------------|----------------------|---------------------|
| ridge, clipped   | 4 Y^2 D    | 4 omega Y^2 D        | 4 omega Y^2 D       |
| AAR              | Y^2 D      | Y^2 D / (2 - omega)  | none                |
| AAR, clipped     | Y^2 D      | the smaller of these | 8 omega Y^2 D       |

A round of AAR adds omega ((y - m / (1 + q))^2 - (y - m)^2 / (1 + omega q)) to the regret. For omega < 2 this is concave in m,
and at most y^2 omega q / (1 + omega q) / (2 - omega). Clipped forecasts have |y - clip(m)| <= min(2 Y, |y - m|), and
clip(m / (1 + q)) is within Y q / (1 + q) of clip(m).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self, final

from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_summable
from okl_core.losses import LOSSES
from okl_core.second_order.space_and_rule import Decision, Moments, Totals, each_weighted
from okl_core.types import F64, REALS, Interval

TruthBound = Annotated[float | None, Field(gt=0.0, description="Y: bound on predictions and truths; none by default.")]

NO_BOUND = sys.float_info.max
"""Stands for a Y without bound: its square is infinite."""


@final
@dataclass(slots=True)
class LeastSquaresTotals(Totals):
    """The loss of the best function in hindsight, with its norm term, and max |y|, or its equivalent with weights."""

    comparator_loss: float
    largest: float


@final
class LeastSquares(NamedTuple):
    """w = 1 and c = y in every round, so A and s are those of regularised least squares.

    With `shrinks` the forecast is that of the Aggregating Algorithm, m / (1 + q): the forecast of ridge regression if it had
    already seen x_t with the truth 0. Otherwise it is that of ridge regression, gamma_t = m.
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

    def after(self, totals: LeastSquaresTotals, t: int) -> Self:
        return self

    def along(self, totals: LeastSquaresTotals, t: int, weights: F64 | None) -> Iterator[Self]:
        return each_weighted(self, weights)

    def value(self, m: float, q: float) -> float:
        value = m / (1.0 + q) if self.shrinks else m
        return value if self.clip is None else min(max(value, -self.clip), self.clip)

    def is_idle(self, m: float, y: float) -> bool:
        return False

    def decide(self, moments: Moments, y: float, t: int, rng: RoundRng) -> Decision:
        value = self.value(moments.m, moments.q)
        residual, error = y - moments.m, y - value
        # The terms that `add` sums.
        require_summable(t, self.weight * residual * residual, self.weight * error * error)
        return Decision(value, 1.0, y, residual).times(self.weight)

    def totals(self) -> LeastSquaresTotals:
        return LeastSquaresTotals(0.0, 0.0, 0.0)

    def add(self, totals: LeastSquaresTotals, loss: float, q: float, decision: Decision) -> None:
        residual = decision.rho_delta
        totals.loss += self.weight * loss
        totals.comparator_loss += residual * residual / (1.0 + decision.w * q)
        totals.largest = max(totals.largest, self._largest(abs(decision.c / self.weight)))

    def _largest(self, size: float) -> float:
        """Return the Y for which the bound without weights equals that of this weighted rule with |y| = `size`."""
        omega = self.weight
        if omega <= 1.0:
            return size
        clipped = NO_BOUND if self.clip is None else self.clip * math.sqrt(omega)
        if not self.shrinks:
            return size if self.clip is None else clipped
        alone = size / math.sqrt(2.0 - omega) if omega < 2.0 else NO_BOUND
        return min(alone, math.sqrt(8.0) * clipped)

    def describe(self, totals: LeastSquaresTotals, log_det: float) -> dict[str, float]:
        """Return `comparator_loss`, and `bound`, by which the loss may exceed it; for ridge regression only with a clip."""
        numbers = {"comparator_loss": totals.comparator_loss}
        if self.shrinks:
            bound = totals.largest * totals.largest * log_det
            return numbers | {"bound": bound} if math.isfinite(bound) else numbers
        if self.clip is None:
            return numbers
        Y = max(self.clip, totals.largest)
        return numbers | {"bound": 4.0 * Y * Y * log_det}
