r"""The engine of the second-order kernel learners: A_t = alpha I + sum_s w_s phi_s phi_s^T, kept in the kernel's terms.

KONS, its sketch, kernel ridge regression, the kernel Aggregating Algorithm and kernel AIOLI all predict from the same
two scalars, m and q of the table, and differ by one `Rule` that turns them and the truth into a `Decision`. The round
is then carried into one of two sets: J, the rounds with weight, or N, those that only move s.

| symbol | meaning                                                                      | shape      |
|--------|------------------------------------------------------------------------------|------------|
| A      | alpha I + sum_s w_s phi_s phi_s^T, never formed                              |            |
| s      | sum_s c_s phi_s; the function learned is A^{-1} s, never formed              |            |
| m      | phi_t^T A_{t-1}^{-1} s_{t-1}, the mean                                       |            |
| q      | phi_t^T A_{t-1}^{-1} phi_t, the variance                                     |            |
| kappa  | k(x_t, x_t)                                                                  |            |
| J, N   | points with w > 0; points with w = 0 and c != 0                              | (., d)     |
| sigma  | sqrt(w_i) of J; D = diag(sigma)                                              | (\|J\|,)   |
| L      | lower Cholesky factor of D K_JJ D + alpha I                                  | (\|J\|, .) |
| r      | L^{-1} (D^{-1} c_J - D K_JN c_N / alpha), row by row                         | (\|J\|,)   |
| c      | coefficients of N                                                            | (\|N\|,)   |
| z      | L^{-1} (sigma * k_J), k_J = (k(x_i, x_t))_{i in J}                           | (\|J\|,)   |
| delta  | sqrt(alpha (1 + w q)), the new diagonal entry of L                           |            |
| rho    | (c / sqrt(w) - sqrt(w) m) / delta, the new entry of r                        |            |

Then m = z^T r + k_N^T c / alpha and alpha q = kappa - z^T z. L, sigma, J and N only ever grow; nothing is inverted, and
nothing is divided by a weight or a derivative that may be 0. The split into J and N is exact wherever it is drawn.

References: [calandriello2017] lemmas 1 and 2, restated so that rounds without a derivative are covered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from okl_core.dictionary import Points
from okl_core.errors import DivergedError
from okl_core.growing import Factor, GrowingArray
from okl_core.kernels import Kernel
from okl_core.types import F64, LearnerState

BLOCK = 128
"""Rounds per block of `Engine.run`: longer blocks no longer speed the products up, and rounds inside cost O(BLOCK^2)."""

NEGLIGIBLE = 1e-15
"""A weight with w kappa below this share of alpha changes A by less than rounding: the round joins N, if any."""


class Moments(NamedTuple):
    """What the past says of an input; the letters of the module's table."""

    m: float
    q: float
    z: F64
    kappa: float


class Decision(NamedTuple):
    """What a learner makes of a round.

    `c` is the coefficient for N, where w counts as 0. `rho_delta` is that for J, c / sqrt(w) - sqrt(w) m, in a closed
    form of the learner's that does not cancel; it is ignored if w is 0. `g` is the loss's derivative at `value`, for
    learners that account for it.
    """

    value: float
    w: float
    c: float
    rho_delta: float
    g: float = 0.0


Rule = Callable[[float, float, float, int], Decision]
"""(m, q, y, t) -> Decision: all that a learner adds to the engine. Called once a round, in order."""


@dataclass(slots=True)
class EngineState(LearnerState):
    """The recursion, in the letters of the module's table; `trace` = sum_J w kappa, `log_det` = log det(A / alpha)."""

    J: Points
    N: Points
    sigma: GrowingArray
    L: Factor
    r: GrowingArray
    c: GrowingArray
    trace: float
    log_det: float

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.J, self.N, self.sigma, self.L, self.r, self.c))


@final
class Engine(NamedTuple):
    """The recursion for one kernel and one alpha > 0."""

    kernel: Kernel
    alpha: float

    def parts(self, dim: int) -> tuple[Points, Points, GrowingArray, Factor, GrowingArray, GrowingArray, float, float]:
        """The fields of `EngineState` after `t`, before the first round. Raises ConfigError for an unresolved kernel."""
        J, N = self.kernel.points(dim), self.kernel.points(dim)
        # A kernel that still waits for data would otherwise be found out in the first round only.
        self.kernel.row(J, np.zeros(dim))
        return J, N, GrowingArray(), Factor(), GrowingArray(), GrowingArray(), 0.0, 0.0

    def moments(self, state: EngineState, x: F64) -> Moments:
        """m, q, z and kappa of x, shape (d,): one triangular solve, O(|J|^2 + d |J| + d |N|). Raises DivergedError."""
        kappa = self.kernel.at(x)
        z = state.L.solve(state.sigma.view * self.kernel.row(state.J, x))
        m = float(z @ state.r.view)
        if len(state.N):
            m += float(self.kernel.row(state.N, x) @ state.c.view) / self.alpha
        q = self._variance(state.trace, kappa, kappa - float(z @ z))
        _require_finite(state.t + 1, m, q)
        return Moments(m, q, z, kappa)

    def play(self, state: EngineState, x: F64, y: float, rule: Rule) -> tuple[Moments, Decision]:
        """Moments and decision of one round; changes nothing. Raises DivergedError."""
        moments = self.moments(state, x)
        decision = rule(moments.m, moments.q, y, state.t + 1)
        _require_finite(state.t + 1, *decision)
        return moments, decision

    def absorb(self, state: EngineState, x: F64, moments: Moments, decision: Decision) -> None:
        """Carry a played round into the state: O(|J|). A round with neither weight nor coefficient leaves only its t."""
        _, q, z, kappa = moments
        w = decision.w
        if self._has_weight(w, kappa):
            delta = math.sqrt(self.alpha * (1.0 + w * q))
            state.L.append(math.sqrt(w) * z, delta)
            state.r.append(decision.rho_delta / delta)
            self._grow_J(state, x, w, q, kappa)
        elif decision.c != 0.0 and kappa > 0.0:
            r = state.r.view
            r -= (decision.c / self.alpha) * z
            state.N.append(x)
            state.c.append(decision.c)
        state.t += 1

    def run(self, state: EngineState, X: F64, y: F64, rule: Rule) -> list[tuple[float, Decision]]:
        """q and decision of at most BLOCK rounds in order, learned as one block. X: (n, d).

        What `play` and `absorb` do one by one, from one kernel matrix and one solve. Raises DivergedError before
        anything has changed.
        """
        block = _Block(self, state, X)
        played: list[tuple[float, Decision]] = []
        for j, truth in enumerate(y.tolist()):
            m, q = block.moments(j)
            decision = rule(m, q, truth, state.t + 1 + j)
            _require_finite(state.t + 1 + j, m, q, *decision)
            block.absorb(j, q, decision)
            played.append((q, decision))
        block.settle(played)
        return played

    def _variance(self, trace: float, kappa: float, alpha_q: float) -> float:
        """q, kept off the zero that alpha q = kappa - z^T z may round to: A <= (alpha + sum_J w kappa) I bounds it below."""
        return max(alpha_q / self.alpha, kappa / (self.alpha + trace))

    def _has_weight(self, w: float, kappa: float) -> bool:
        return w * kappa > NEGLIGIBLE * self.alpha

    def _grow_J(self, state: EngineState, x: F64, w: float, q: float, kappa: float) -> None:
        state.J.append(x)
        state.sigma.append(math.sqrt(w))
        state.trace += w * kappa
        state.log_det += math.log1p(w * q)


@final
class _Block:
    r"""n rounds whose inputs are known: S = K_BB - Z^T Z is the posterior covariance, alpha q on its diagonal.

    | symbol | meaning                                                                | shape      |
    |--------|------------------------------------------------------------------------|------------|
    | Z      | L^{-1} D K_JB, of the rounds before the block                          | (\|J\|, n) |
    | S      | covariance of the inputs given all rounds so far; rows and columns > j | (n, n)     |
    | mu     | m of the inputs given all rounds so far; entries > j                   | (n,)       |
    | V      | row b: (sqrt(w) / delta) S_{j,:} of the b-th round that joined J       | (n, n)     |
    """

    def __init__(self, engine: Engine, state: EngineState, X: F64) -> None:
        kernel, n = engine.kernel, len(X)
        self.engine, self.state, self.X = engine, state, X
        self.S = kernel.gram(X)
        self.kappa: list[float] = self.S.diagonal().tolist()
        self.Z = state.L.solve(state.sigma.view[:, None] * kernel.block(state.J, X))
        self.S -= self.Z.T @ self.Z
        self.r = state.r.view.copy()
        self.mu = self.r @ self.Z
        if len(state.N):
            self.mu += state.c.view @ kernel.block(state.N, X) / engine.alpha
        self.trace = state.trace
        self.joined: list[int] = []
        self.V = np.empty((n, n))
        self.rho = np.empty(n)
        self.delta: list[float] = []

    def moments(self, j: int) -> tuple[float, float]:
        return self.mu.item(j), self.engine._variance(self.trace, self.kappa[j], self.S.item(j, j))

    def absorb(self, j: int, q: float, decision: Decision) -> None:
        """What round j does to the block and to r."""
        alpha, k, w, c = self.engine.alpha, len(self.joined), decision.w, decision.c
        later = slice(j + 1, None)
        if self.engine._has_weight(w, self.kappa[j]):
            delta = math.sqrt(alpha * (1.0 + w * q))
            v = np.multiply(self.S[j], math.sqrt(w) / delta, out=self.V[k])[later]
            self.rho[k] = rho = decision.rho_delta / delta
            self.S[later, later] -= v[:, None] * v
            self.mu[later] += rho * v
            self.joined.append(j)
            self.delta.append(delta)
            self.trace += w * self.kappa[j]
        elif c != 0.0:
            self.mu[later] += (c / alpha) * self.S[j, later]
            self.r -= (c / alpha) * self.Z[:, j]
            self.rho[:k] -= (c / alpha) * self.V[:k, j]

    def settle(self, played: list[tuple[float, Decision]]) -> None:
        """Carry the whole block into the state."""
        engine, state, joined = self.engine, self.state, self.joined
        # A copy by rows: reading columns of Z one by one would touch a cache line for every entry.
        rows = self.Z.T[joined]
        state.r.view[:] = self.r
        for k, j in enumerate(joined):
            q, decision = played[j]
            row = np.concatenate((rows[k], self.V[:k, j]))
            state.L.append(math.sqrt(decision.w) * row, self.delta[k])
            engine._grow_J(state, self.X[j], decision.w, q, self.kappa[j])
        state.r.extend(self.rho[: len(joined)])
        for j in sorted(set(range(len(played))) - set(joined)):
            if played[j][1].c != 0.0 and self.kappa[j] > 0.0:
                state.N.append(self.X[j])
                state.c.append(played[j][1].c)
        state.t += len(played)


def _require_finite(t: int, *numbers: float) -> None:
    if not all(map(math.isfinite, numbers)):
        raise DivergedError(f"round {t} overflows; scale the inputs down, or raise the regularization")
