r"""One number from many forecasts: a mixture of them and of a stack, guarded by the mean and the last truth.

| symbol   | meaning                                                                                       | shape  |
|----------|-----------------------------------------------------------------------------------------------|--------|
| f        | forecasts of the regressions, the last truth and the mean, clipped to the WIDENED range of truths | (E + 2,) |
| e        | the regressions' errors in the last round                                                      | (E,)   |
| h        | features of the stack: (f - base, e), base = sum pi f                                          | (D,)   |
| A, b     | discounted sums of h h^T and h (y - base); the stack is base + h^T (A + ridge)^{-1} b          |        |
| v, n     | discounted sum of squared errors of each expert, and discounted number of rounds              | (N,)   |
| pi       | weights of the N = E + 3 experts, with the stack last, by Student's density of variance v / n  | (N,)   |
| M        | SPREAD times the distance of a guarded forecast to a truth, updated when that exceeds M        |        |
| L        | cumulative squared losses of the mixture, the last truth and the mean                          | (3,)   |

The answer averages the mixture, the last truth and the mean with weights prior exp(-L / (2 M^2)), prior = GUARD. Squared loss
is exp-concave with 1 / (2 M^2) as long as no distance exceeds M. The rounds in which a distance s exceeds M cost at most
sum s^2 <= 2 S^2, since s grows by a factor of at least sqrt(2) from one to the next; S is the largest distance. So, from the
second round on,

    loss <= loss of one of the three + 4 S^2 ln(1 / prior) + 2 S^2.

The answer is equivariant to shift and scale of the truths.

References: [cesabianchi2006] sections 2.3 (a rate that falls) and 3.3 (exp-concavity); [breiman1996] for the stack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.types import F64, StatePart

GUARD = np.array([0.98, 0.01, 0.01])
TRIVIAL_NUMBERS = ("last_value", "mean")
SPREAD = math.sqrt(2.0)
WIDENED = 0.25
FORGOTTEN = 0.002
"""Share of the stack's sums that is forgotten per round."""
RIDGE = 0.01
"""Ridge of the stack, as a share of its mean squared feature."""
ERRORS_HALF_LIFE = 100.0
DECAY_OF_ERRORS = 0.5 ** (1.0 / ERRORS_HALF_LIFE)
FIRST_ERRORS = 0.05
"""Prior rounds of each expert, with the largest error."""
DEGREES = 2.0
"""Degrees of freedom of Student's density."""
SHARE_OF_NUMBERS = 0.01
LEAST_VARIANCE = 1e-14
"""Smallest variance, as a share of the largest squared error."""
TINY = 1e-300


class NumberForecast(NamedTuple):
    """`value` is the answer, `guarded` the three forecasts that it averages; f has the stack as its last entry."""

    value: float
    guarded: F64
    f: F64
    h: F64
    base: float


@final
@dataclass(slots=True)
class NumberMixture(StatePart):
    """The symbols of the module's table; `low` and `high` are the range of truths, `largest` the largest squared error.

    Truths are relative to the first truth, which is 0.
    """

    A: F64
    b: F64
    e: F64
    v: F64
    pi: F64
    L: F64
    n: float
    M: float
    low: float
    high: float
    largest: float
    last: float
    mean: float

    @classmethod
    def empty(cls, regressions: int) -> NumberMixture:
        N, D = regressions + 3, 2 * regressions + 2
        zeros = np.zeros
        return cls(zeros((D, D)), zeros(D), zeros(regressions), zeros(N), np.full(N, 1.0 / N), zeros(3), *[0.0] * 7)

    def forecast(self, F: F64) -> NumberForecast:
        """The forecast from those of the regressions, shape (E,)."""
        margin = WIDENED * (self.high - self.low)
        low, high = self.low - margin, self.high + margin
        E = len(F)
        f = np.empty(E + 3)
        f[:E], f[E], f[E + 1] = F, self.last, self.mean
        f[:-1].clip(low, high, out=f[:-1])
        rest = self.pi[:-1]
        base = float(rest @ f[:-1]) / float(rest.sum())
        h = np.concatenate((f[:-1] - base, self.e))
        f[-1] = min(max(base + float(h @ self._stacked()), low), high)
        guarded = np.array([float(self.pi @ f), self.last, self.mean])
        value = float(self._guard() @ guarded)
        return NumberForecast(value, guarded, f, h, base)

    def _stacked(self) -> F64:
        D = len(self.b)
        diagonal = slice(None, None, D + 1)
        ridge = RIDGE * float(self.A.ravel()[diagonal].sum()) / D
        if ridge < TINY:
            return np.zeros(D)
        A = self.A.copy()
        A.ravel()[diagonal] += ridge
        return dposv(A, self.b, lower=1, overwrite_a=1)[1]

    def _guard(self) -> F64:
        if self.M * self.M < TINY:
            return GUARD
        weights = GUARD * np.exp(-(self.L - self.L.min()) / (2.0 * self.M * self.M))
        return weights / weights.sum()

    def learn(self, made: NumberForecast, t: int, y: float) -> None:
        """Learn the truth y of round t, relative to the first truth."""
        if t > 1:
            self._weigh(made, y)
        self.low, self.high = min(self.low, y), max(self.high, y)
        self.last = y
        self.mean += (y - self.mean) / t

    def _weigh(self, made: NumberForecast, y: float) -> None:
        _, guarded, f, h, base = made
        distances = guarded - y
        self.L = self.L + distances * distances
        farthest = float(np.abs(distances).max())
        if farthest > self.M:
            self.M = SPREAD * farthest
        errors = (f - y) ** 2
        self.largest = max(self.largest, float(errors.max()))
        if self.largest > 0.0:
            variance = (self.v + FIRST_ERRORS * self.largest) / (self.n + FIRST_ERRORS)
            variance = np.maximum(variance, LEAST_VARIANCE * self.largest)
            fit = -0.5 * np.log(variance / self.largest)
            fit -= 0.5 * (DEGREES + 1.0) * np.log1p(errors / (DEGREES * variance))
            pi = self.pi * np.exp(fit - fit.max())
            self.pi = (1.0 - SHARE_OF_NUMBERS) * (pi / pi.sum()) + SHARE_OF_NUMBERS / len(pi)
        self.v = DECAY_OF_ERRORS * self.v + errors
        self.n = DECAY_OF_ERRORS * self.n + 1.0
        self.A = (1.0 - FORGOTTEN) * self.A + np.multiply.outer(h, h)
        self.b = (1.0 - FORGOTTEN) * self.b + (y - base) * h
        self.e = y - f[: len(self.e)]
