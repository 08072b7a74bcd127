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
nothing is divided by a weight or a derivative that may be 0. The split into J and N is exact wherever it is drawn. With a
window of rounds the sums run over those only: every so often the older ones are dropped, and L and r built anew.

References: [calandriello2017] lemmas 1 and 2, restated so that rounds without a derivative are covered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.workload import rows_at_once
from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.second_order.forgetting import Window
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


class Joined(NamedTuple):
    """What J keeps of a round beside its point, in the letters of the module's table; b = c / sqrt(w)."""

    w: float
    q: float
    kappa: float
    delta: float
    b: float


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
    window: Window | None

    @property
    def nbytes(self) -> int:
        parts = (self.J, self.N, self.sigma, self.L, self.r, self.c, self.window)
        return sum(part.nbytes for part in parts if part is not None)


Parts = tuple[Points, Points, GrowingArray, Factor, GrowingArray, GrowingArray, float, float, Window | None]


@final
class Engine(NamedTuple):
    """The recursion for one kernel and one alpha > 0."""

    kernel: Kernel
    alpha: float

    def parts(self, dim: int, window: int | None = None) -> Parts:
        """The fields of `EngineState` after `t`, before the first round, to remember the last `window` rounds (None: all)."""
        J, N = self.kernel.points(dim), self.kernel.points(dim)
        kept = None if window is None else Window(window)
        return J, N, GrowingArray(), Factor(), GrowingArray(), GrowingArray(), 0.0, 0.0, kept

    def condition(self, state: EngineState) -> float:
        """That of A, at most: alpha I <= A <= (alpha + sum_J w kappa) I."""
        return 1.0 + state.trace / self.alpha

    def mass(self, state: EngineState) -> float:
        """sum |a_i| k(x_i, x_i) of the function learned, sum_i a_i k(x_i, .): O(|J|^2)."""
        on_J = state.sigma.view * state.L.solve_transposed(state.r.view)
        return self.kernel.mass(state.J, on_J) + self.kernel.mass(state.N, state.c.view) / self.alpha

    def residual(self, state: EngineState) -> float:
        """The minimum of the quadratics of J and of alpha |f|^2."""
        return self.alpha * float(state.r.view @ state.r.view)

    def room(self, state: EngineState) -> int:
        """Rounds that the next block may have: at most BLOCK, and none after one that forgets."""
        most = rows_at_once((len(state.J) + len(state.N)), BLOCK)
        return most if state.window is None else min(most, state.window.room(state.t))

    def moments(self, state: EngineState, x: F64) -> Moments:
        """m, q, z and kappa of x, shape (d,): one triangular solve, O(|J|^2 + d |J| + d |N|). Raises DivergedError."""
        kappa = self.kernel.at(x)
        z = state.L.solve(state.sigma.view * self.kernel.row(state.J, x))
        m = float(z @ state.r.view)
        if len(state.N):
            m += float(self.kernel.row(state.N, x) @ state.c.view) / self.alpha
        q = self._variance(state.trace, kappa, kappa - float(z @ z))
        require_finite(state.t + 1, m, q)
        return Moments(m, q, z, kappa)

    def play(self, state: EngineState, x: F64, y: float, rule: Rule) -> tuple[Moments, Decision]:
        """Moments and decision of one round; changes nothing. Raises DivergedError."""
        moments = self.moments(state, x)
        decision = rule(moments.m, moments.q, y, state.t + 1)
        self._check(state.t + 1, moments.kappa, decision)
        return moments, decision

    def absorb(self, state: EngineState, x: F64, moments: Moments, decision: Decision) -> None:
        """Carry a played round into the state: O(|J|). A round with neither weight nor coefficient leaves only its t.

        With a window, every so often a rebuild of O(|J|^3), which costs a round O(|J|^2) in the mean.
        """
        m, q, z, kappa = moments
        w = decision.w
        state.t += 1
        if self._has_weight(w, kappa):
            root = math.sqrt(w)
            delta = math.sqrt(self.alpha * (1.0 + w * q))
            state.L.append(root * z, delta)
            state.r.append(decision.rho_delta / delta)
            _grow_J(state, state.t, x, Joined(w, q, kappa, delta, decision.rho_delta + root * m))
        elif decision.c != 0.0 and kappa > 0.0:
            r = state.r.view
            r -= (decision.c / self.alpha) * z
            _grow_N(state, state.t, x, decision.c)
        self._forget(state)

    def run(self, state: EngineState, X: F64, y: F64, rule: Rule) -> list[tuple[float, Decision]]:
        """q and decision of n rounds in order, learned as one block. X: (n, d).

        What `play` and `absorb` do one by one, from one kernel matrix and one solve. X has at most `room` rows. Raises
        DivergedError before anything has changed.
        """
        block = _Block(self, state, X)
        played: list[tuple[float, Decision]] = []
        for j, truth in enumerate(y.tolist()):
            m, q = block.moments(j)
            require_finite(state.t + 1 + j, m, q)
            decision = rule(m, q, truth, state.t + 1 + j)
            self._check(state.t + 1 + j, block.kappa[j], decision)
            block.absorb(j, q, decision)
            played.append((q, decision))
        block.settle()
        self._forget(state)
        return played

    def _variance(self, trace: float, kappa: float, alpha_q: float) -> float:
        """q, kept off the zero that alpha q = kappa - z^T z may round to: A <= (alpha + sum_J w kappa) I bounds it below."""
        return max(alpha_q / self.alpha, kappa / (self.alpha + trace))

    def _check(self, t: int, kappa: float, decision: Decision) -> None:
        """Raises DivergedError if the state cannot take this round."""
        require_finite(t, *decision, decision.c * kappa / self.alpha)
        require_bearable(
            t, decision.w if self._has_weight(decision.w, kappa) else float(decision.c != 0.0), kappa, self.alpha
        )

    def _has_weight(self, w: float, kappa: float) -> bool:
        return w * kappa > NEGLIGIBLE * self.alpha

    def _forget(self, state: EngineState) -> None:
        """Build J, N, L and r anew from the rounds that the window keeps, if it is time to.

        The order in which rounds enter is free: first those of J, then all of N.
        """
        window = state.window
        if window is None or not window.is_due(state.t):
            return
        i, k = window.forget(state.t)
        fresh = EngineState(0, *self.parts(state.J.dim))
        # Points decoded and stored again: the first kept is the new origin, so that distances stay exact under a drift.
        X, sigma, b = state.J.coordinates()[i:], state.sigma.view[i:], window.b.view
        for start in range(0, len(X), BLOCK):
            rows = slice(start, start + BLOCK)
            _Block(self, fresh, X[rows]).enter(sigma[rows], b[rows])
        if k < len(state.N):
            fresh.N.extend(state.N.coordinates()[k:])
            fresh.c.extend(state.c.view[k:])
            K_JN = self.kernel.block(fresh.J, fresh.N.coordinates())
            fresh.r.view[:] -= fresh.L.solve(fresh.sigma.view * (K_JN @ fresh.c.view)) / self.alpha
        state.J, state.N, state.sigma, state.L = fresh.J, fresh.N, fresh.sigma, fresh.L
        state.r, state.c, state.trace, state.log_det = fresh.r, fresh.c, fresh.trace, fresh.log_det


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
        self.V = np.empty((n, n))
        self.rho = np.empty(n)
        self.joined: list[tuple[int, Joined]] = []
        self.passed: list[tuple[int, float]] = []
        """(j, c) of the rounds of N."""

    def moments(self, j: int) -> tuple[float, float]:
        return self.mu.item(j), self.engine._variance(self.trace, self.kappa[j], self.S.item(j, j))

    def absorb(self, j: int, q: float, decision: Decision) -> None:
        """What round j does to the block and to r."""
        if self.engine._has_weight(decision.w, self.kappa[j]):
            self.join(j, decision.w, q, decision.rho_delta)
        elif decision.c != 0.0 and self.kappa[j] > 0.0:
            self.pass_by(j, decision.c)

    def join(self, j: int, w: float, q: float, rho_delta: float) -> None:
        """Round j joins J."""
        k, root, later = len(self.joined), math.sqrt(w), slice(j + 1, None)
        delta = math.sqrt(self.engine.alpha * (1.0 + w * q))
        v = np.multiply(self.S[j], root / delta, out=self.V[k])[later]
        self.rho[k] = rho = rho_delta / delta
        b = rho_delta + root * self.mu.item(j)
        self.S[later, later] -= v[:, None] * v
        self.mu[later] += rho * v
        self.trace += w * self.kappa[j]
        self.joined.append((j, Joined(w, q, self.kappa[j], delta, b)))

    def enter(self, sigma: F64, b: F64) -> None:
        """All rounds join J, with weights and b known, and the block is carried into the state."""
        state, alpha = self.state, self.engine.alpha
        D_S_D = sigma[:, None] * self.S * sigma
        D_S_D[np.diag_indices_from(D_S_D)] += alpha
        L, has_failed = dpotrf(D_S_D, lower=1, clean=1)
        if has_failed:
            # alpha is below rounding here. One by one they keep q off zero.
            for j, (root, b_j) in enumerate(zip(sigma.tolist(), b.tolist(), strict=True)):
                m, q = self.moments(j)
                self.join(j, root * root, q, b_j - root * m)
            self.settle()
            return
        rows = self.Z.T * sigma[:, None]
        state.r.extend(solve_triangular(L, b - rows @ self.r, lower=True, check_finite=False))
        for j, row in enumerate(np.hstack((rows, L))):
            state.L.append(row[: len(self.r) + j], row.item(len(self.r) + j))
        state.J.extend(self.X)
        state.sigma.extend(sigma)
        state.trace += float(sigma * sigma @ self.kappa)
        state.log_det += 2.0 * float(np.log(L.diagonal()).sum()) - len(L) * math.log(alpha)
        state.t += len(L)

    def pass_by(self, j: int, c: float) -> None:
        """Round j joins N."""
        alpha, k, later = self.engine.alpha, len(self.joined), slice(j + 1, None)
        self.mu[later] += (c / alpha) * self.S[j, later]
        self.r -= (c / alpha) * self.Z[:, j]
        self.rho[:k] -= (c / alpha) * self.V[:k, j]
        self.passed.append((j, c))

    def settle(self) -> None:
        """Carry the whole block into the state."""
        state, first = self.state, self.state.t + 1
        # A copy by rows: reading columns of Z one by one would touch a cache line for every entry.
        rows = self.Z.T[[j for j, _ in self.joined]]
        state.r.view[:] = self.r
        for k, (j, joined) in enumerate(self.joined):
            row = np.concatenate((rows[k], self.V[:k, j]))
            state.L.append(math.sqrt(joined.w) * row, joined.delta)
            _grow_J(state, first + j, self.X[j], joined)
        state.r.extend(self.rho[: len(self.joined)])
        for j, c in self.passed:
            _grow_N(state, first + j, self.X[j], c)
        state.t += len(self.X)


def _grow_J(state: EngineState, t: int, x: F64, joined: Joined) -> None:
    state.J.append(x)
    state.sigma.append(math.sqrt(joined.w))
    state.trace += joined.w * joined.kappa
    state.log_det += math.log1p(joined.w * joined.q)
    if state.window is not None:
        state.window.J.append(t)
        state.window.b.append(joined.b)


def _grow_N(state: EngineState, t: int, x: F64, c: float) -> None:
    state.N.append(x)
    state.c.append(c)
    if state.window is not None:
        state.window.N.append(t)
