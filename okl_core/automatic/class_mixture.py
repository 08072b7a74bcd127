r"""Class probabilities from regressions: a stack of their logarithms, mixed with each regression and trivial forecasts.

| symbol | meaning                                                                              | shape  |
|--------|--------------------------------------------------------------------------------------|--------|
| K      | number of classes; those seen so far, if it grows                                    |        |
| F      | the regressions' forecasts of the one-hot truth                                      | (E, K) |
| Z      | logarithms of F, clipped at FLOOR and scaled to sum 1, and of class frequencies with HALF_LIVES | (D, K) |
| w      | the stack's weights: p_k is proportional to exp((w^T Z)_k)                           | (D,)   |
| A      | (1 - FORGOTTEN)-discounted sum of Cov_p(Z), plus PRIOR I: the Hessian of the log-loss | (D, D) |
| Q      | probabilities of the stack, of each regression, of the majority and of the last label | (N, K) |
| pi     | their weights in the mixture q = pi^T Q                                              | (N,)   |

The stack learns by a Newton step, w <- w - A^{-1} (Z p - Z_y). The mixture is Bayesian with a fixed share s: pi_i is
multiplied by Q_{i,y}, and a share s of all weight returns to the prior. So the cumulative log-loss on known classes is at
most that of expert i plus

    ln(1 / pi_i) + T ln(1 / (1 - s)),    with initial weights 1/2 for the stack, 1 / (2 (N - 1)) for each other expert.

References: [cesabianchi2006] section 9.2 (mixture forecasters), section 5.2 (share); [genest1986] for pools of logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.types import F64, StatePart

FLOOR = 0.01
"""Lower limit of a regression's forecast; smaller values say nothing about probability."""

HALF_LIVES = np.array([1.0, 8.0, 64.0])
"""Half-lives of the discounted class frequencies, in rounds."""

DECAY = 0.5 ** (1.0 / HALF_LIVES)

PRIOR = 2.0
FORGOTTEN = 0.004
FIRST_WEIGHT = 1.5
"""Initial weight of the first regression in the stack; all others start at 0."""

UNIFORM = 1e-3
"""Share of the stack's probability that is spread evenly, so that its loss is bounded."""

SHARE = 1e-3

HALF_COUNT = 0.5
"""Prior count of a class, in rounds."""

FRESH_COUNT = 0.1
"""Prior count of a class in the discounted frequencies."""

TRIVIAL = ("majority", "last_label")


class ClassForecast(NamedTuple):
    """A forecast of the mixture, with the symbols of the module's table, and q = pi^T Q."""

    q: F64
    Q: F64
    Z: F64
    p: F64


@final
@dataclass(slots=True)
class ClassMixture(StatePart):
    """The stack (w, A), the weights pi, and the class frequencies.

    `counts`, shape (K,), and `fresh`, shape (3, K), count the classes without and with forgetting. `last` is the last
    class, or -1; `stays` counts the rounds that repeated it.
    """

    w: F64
    A: F64
    pi: F64
    counts: F64
    fresh: F64
    last: float
    stays: float

    @classmethod
    def empty(cls, regressions: int, classes: int) -> ClassMixture:
        D = regressions + len(HALF_LIVES)
        w = np.zeros(D)
        w[0] = FIRST_WEIGHT
        prior = first_weights(1 + regressions + len(TRIVIAL))
        return cls(w, PRIOR * np.eye(D), prior, np.zeros(classes), np.zeros((len(HALF_LIVES), classes)), -1.0, 0.0)

    def forecast(self, base: F64, logs: F64) -> ClassForecast:
        """The forecast from the regressions' `scaled_forecasts` and their logarithms, shape (E, K) each, K >= 1."""
        E, K = base.shape
        fresh = self.fresh + FRESH_COUNT
        fresh /= np.add.reduce(fresh, axis=1, keepdims=True)
        Z = np.concatenate((logs, np.log(fresh, out=fresh)))
        s = self.w @ Z
        s -= np.maximum.reduce(s)
        p = np.exp(s, out=s)
        p /= np.add.reduce(p)
        Q = np.empty((E + 3, K))
        np.multiply(p, 1.0 - UNIFORM, out=Q[0])
        Q[0] += UNIFORM / K
        Q[1 : E + 1] = base
        majority = np.add(self.counts, HALF_COUNT, out=Q[E + 1])
        majority /= np.add.reduce(majority)
        Q[E + 2] = self._of_last(majority)
        return ClassForecast(self.pi @ Q, Q, Z, p)

    def _of_last(self, majority: F64) -> F64:
        """Probabilities of the last-label expert: the rate of repeats for the last class, frequencies for the rest."""
        K, last = len(majority), int(self.last)
        if last < 0 or K == 1:
            return majority
        stay = (self.stays + HALF_COUNT) / (self.counts.sum() - 1.0 + 2.0 * HALF_COUNT)
        q = majority * ((1.0 - stay) / (1.0 - majority[last]))
        q[last] = stay
        return q

    def learn(self, made: ClassForecast, y: int) -> None:
        """Learn a truth y whose class was known when the forecast was made."""
        _, Q, Z, p = made
        pi = self.pi * Q[:, y]
        pi *= (1.0 - SHARE) / pi.sum()
        pi += SHARE * 0.5 / (len(pi) - 1)
        pi[0] += SHARE * (0.5 - 0.5 / (len(pi) - 1))
        self.pi = pi
        mean = Z @ p
        self.A *= 1.0 - FORGOTTEN
        self.A += (Z * p) @ Z.T
        self.A -= np.multiply.outer(mean, mean)
        self.A.ravel()[:: len(mean) + 1] += FORGOTTEN * PRIOR
        # A >= PRIOR I, so the factorisation succeeds.
        self.w = self.w - dposv(self.A, mean - Z[:, y], lower=1)[1]
        self.count(y)

    def count(self, y: int) -> None:
        """Count the truth y in the frequencies; for a new class, that is all there is to learn."""
        if y == len(self.counts):
            self.counts = np.append(self.counts, 0.0)
            self.fresh = np.hstack((self.fresh, np.zeros((len(HALF_LIVES), 1))))
        self.stays += float(y == self.last)
        self.last = float(y)
        self.counts[y] += 1.0
        self.fresh *= DECAY[:, None]
        self.fresh[:, y] += 1.0


def scaled_forecasts(F: F64) -> F64:
    """The regressions' forecasts, shape (..., E, K), clipped at FLOOR and scaled to sum 1."""
    base = np.maximum(F, FLOOR)
    base /= base.sum(axis=-1, keepdims=True)
    return base


def first_weights(count: int) -> F64:
    """Initial weights of the experts: half for the stack, the rest shared evenly."""
    weights = np.full(count, 0.5 / (count - 1))
    weights[0] = 0.5
    return weights
