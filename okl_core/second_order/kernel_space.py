r"""The whole feature space of a kernel: A = alpha I + sum_s w_s phi_s phi_s^T and s, represented by kernel values.

A round joins one of two sets: J, the rounds with weight, or N, those that only change s.

| symbol | meaning                                                                      | shape      |
|--------|------------------------------------------------------------------------------|------------|
| A      | alpha I + sum_s w_s phi_s phi_s^T, never formed                              |            |
| s      | sum_s c_s phi_s; the function learned is A^{-1} s, never formed              |            |
| m      | phi_t^T A_{t-1}^{-1} s_{t-1}, the mean                                       |            |
| q      | phi_t^T A_{t-1}^{-1} phi_t, the variance                                     |            |
| kappa  | k(x_t, x_t)                                                                  |            |
| J, N   | points with w > 0; points with w = 0 and c != 0                              | (., d)     |
| D, L   | as in `weighted_factor`, for the points of J                                 |            |
| r      | L^{-1} (D^{-1} c_J - D K_JN c_N / alpha), row by row                         | (\|J\|,)   |
| c      | coefficients of N                                                            | (\|N\|,)   |
| z      | L^{-1} D k_J, k_J = (k(x_i, x_t))_{i in J}                                   | (\|J\|,)   |
| delta  | sqrt(alpha (1 + w q)), the new diagonal entry of L                           |            |
| rho    | (c / sqrt(w) - sqrt(w) m) / delta, the new entry of r                        |            |

Then m = z^T r + k_N^T c / alpha and alpha q = kappa - z^T z. L, J and N only ever grow; nothing is inverted, and nothing is
divided by a weight or a derivative that may be 0. Where the line between J and N is drawn does not affect exactness. With a
memory the sums run over the rounds that count: periodically old rounds are dropped, or all weights reduced, and L and r are
rebuilt.

References: [calandriello2017] lemmas 1 and 2, restated to cover rounds without a derivative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self, final

import numpy as np
from pydantic import Field, model_validator
from scipy.linalg import solve_triangular

from okl_core.contract.rng import RoundRng
from okl_core.contract.state import require_lengths
from okl_core.contract.workload import embedding_work, rows_at_once
from okl_core.errors import StateFormatError
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.linalg.weighted_factor import WeightedBlock, WeightedFactor
from okl_core.second_order.forgetting import HalfLife, LearnedHalfLife, Memory, StoredRounds, WindowRounds
from okl_core.second_order.sketch import Sampled, Sketch, SketchState
from okl_core.second_order.space_and_rule import Decision, Moments, Rule, SpaceState, T, decided
from okl_core.types import F64, LearnerConfig

BLOCK = 128
"""Maximum rounds per block: longer blocks no longer speed up the products, and work inside costs O(BLOCK^2) a round."""

NEGLIGIBLE = 1e-15
"""A weight with w kappa up to this share of alpha changes A by less than rounding; such a round joins N, or neither set."""


class KernelSpaceConfig(LearnerConfig):
    """Parameters of a learner in the whole feature space of a kernel."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    window: WindowRounds = None
    half_life: LearnedHalfLife = None

    @model_validator(mode="after")
    def _forgets_in_one_way(self) -> Self:
        if self.window is not None and self.half_life is not None:
            raise ValueError("give either a window or a half_life: each determines which rounds still count")
        return self

    @property
    def memory(self) -> Memory | None:
        """Which rounds count, and how much; None if all count fully, or if the half-life is "learned"."""
        if self.window is not None:
            return Memory.of_window(self.window)
        half_life = HalfLife.of(self.half_life).rounds
        return None if half_life is None else Memory.of_half_life(half_life)


@final
@dataclass(slots=True)
class KernelState(SpaceState):
    """Symbols as in the module's table; `trace` = sum_J w kappa."""

    J: Points
    factor: WeightedFactor
    r: GrowingArray
    N: Points
    c: GrowingArray
    trace: float
    stored: StoredRounds | None
    sketch: SketchState | None

    def __post_init__(self) -> None:
        require_lengths(J=self.J, factor=self.factor, r=self.r)
        require_lengths(N=self.N, c=self.c)
        if self.trace < 0.0:
            raise StateFormatError(f"'trace' is {self.trace}; it must not be negative")


class KernelRound(NamedTuple):
    moments: Moments
    z: F64
    decision: Decision
    sampled: Sampled | None


class Joined(NamedTuple):
    """The numbers of a round in J beside its point and factor row; b = c / sqrt(w)."""

    w: float
    q: float
    kappa: float
    b: float


@final
class KernelSpace(NamedTuple):
    """The space of one kernel, with alpha > 0.

    `memory`: which rounds count; `sketch`: which gradients join J; `projected_to`: C, if the rule projects the function's
    values to [-C, C].
    """

    kernel: Kernel
    alpha: float
    memory: Memory | None = None
    sketch: Sketch | None = None
    projected_to: float | None = None
    state_type = KernelState

    @property
    def is_whole(self) -> bool:
        return self.memory is None

    def init(self, dim: int) -> KernelState:
        stored = None if self.memory is None else StoredRounds()
        sketch = None if self.sketch is None else self.sketch.init(dim)
        factor, points = WeightedFactor.empty(), self.kernel.points
        return KernelState(0.0, points(dim), factor, GrowingArray(), points(dim), GrowingArray(), 0.0, stored, sketch)

    def initial_bytes(self, dim: int) -> int:
        return 0

    def moments(self, state: KernelState, t: int, x: F64, needs_variance: bool) -> Moments:
        moments, _ = self._look(state, x)
        require_finite(t, moments.m, moments.q)
        return moments

    def _look(self, state: KernelState, x: F64) -> tuple[Moments, F64]:
        """Return the moments of x, shape (d,), and z: one triangular solve, O(|J|^2 + d |J| + d |N|)."""
        kappa = self.kernel.at(x)
        z = state.factor.solve(self.kernel.row(state.J, x))
        m = float(z @ state.r.view)
        if len(state.N):
            m += float(self.kernel.row(state.N, x) @ state.c.view) / self.alpha
        q = self.variance(state.trace, kappa, kappa - float(z @ z))
        return Moments(m, q, kappa), z

    def play(self, state: KernelState, t: int, x: F64, y: float, rule: Rule[T], rng: RoundRng) -> KernelRound:
        moments, z = self._look(state, x)
        decision, sampled = decided(t, moments, y, rule, rng), None
        if self.sketch is not None and state.sketch is not None:
            decision, sampled = self.sketch.thin(state.sketch, x, moments.kappa, decision, rng)
        self.check(t, moments.kappa, decision, rule)
        return KernelRound(moments, z, decision, sampled)

    def absorb(self, state: KernelState, t: int, x: F64, played: KernelRound) -> None:
        """O(|J|); with a memory, an occasional rebuild in O(|J|^3), which amortises to O(|J|^2) per round."""
        (m, q, kappa), z, decision, sampled = played
        w = decision.w
        if self.has_weight(w, kappa):
            root, delta = math.sqrt(w), math.sqrt(self.alpha * (1.0 + w * q))
            state.factor.append(z, root, delta)
            state.r.append(decision.rho_delta / delta)
            state.J.append(x)
            note_J(state, t, Joined(w, q, kappa, decision.rho_delta + root * m))
        elif decision.c != 0.0 and kappa > 0.0:
            r = state.r.view
            r -= (decision.c / self.alpha) * z
            state.N.append(x)
            note_N(state, t, decision.c)
        if self.sketch is not None and state.sketch is not None:
            self.sketch.absorb(state.sketch, t, x, sampled)
        self.forget(state, t)

    def room(self, state: KernelState, t: int) -> int:
        """Return the length of the next block: at most BLOCK, and none beyond a round that forgets."""
        most = rows_at_once(len(state.J) + len(state.N), BLOCK)
        return most if self.memory is None else min(most, self.memory.room(t - 1))

    def block(self, state: KernelState, t: int, X: F64, rng: RoundRng) -> KernelBlock:
        return KernelBlock(self, state, t, X)

    def variance(self, trace: float, kappa: float, alpha_q: float) -> float:
        """Return q, bounded away from 0 by A <= (alpha + sum_J w kappa) I, since alpha q = kappa - z^T z may round to 0."""
        return max(alpha_q / self.alpha, kappa / (self.alpha + trace))

    def check(self, t: int, kappa: float, decision: Decision, rule: Rule[T]) -> None:
        """Raise DivergedError if the numbers of this round are too large for the state."""
        require_finite(t, decision.c * kappa / self.alpha)
        weight = decision.w if self.has_weight(decision.w, kappa) else float(decision.c != 0.0)
        require_bearable(t, weight, kappa, self.alpha, needs_variance=rule.needs_variance)

    def has_weight(self, w: float, kappa: float) -> bool:
        return w * kappa > NEGLIGIBLE * self.alpha

    def forget(self, state: KernelState, t: int) -> None:
        """Rebuild J, N, L and r after round t from the rounds that still count, if that is due.

        Rounds may enter in any order: first those of J, then all of N.
        """
        memory, stored = self.memory, state.stored
        if memory is None or stored is None or not memory.is_due(t):
            return
        if memory.ends_turn(t):
            stored.inherit(self._own_conditioning(state))
        i, k = stored.forget(memory, t)
        fresh = KernelSpace(self.kernel, self.alpha).init(state.J.dim)
        # Points are decoded and stored again: the first one kept becomes the origin, so distances stay exact under drift.
        X, b = state.J.coordinates()[i:], stored.b.view
        roots = math.sqrt(memory.factor) * state.factor.roots.view[i:]
        for start in range(0, len(X), BLOCK):
            rows = slice(start, start + BLOCK)
            KernelBlock(self, fresh, t, X[rows]).enter(roots[rows], b[rows])
        if k < len(state.N):
            fresh.N.extend(state.N.coordinates()[k:])
            fresh.c.extend(memory.factor * state.c.view[k:])
            K_JN = self.kernel.block(fresh.J, fresh.N.coordinates())
            fresh.r.view[:] -= fresh.factor.solve(K_JN @ fresh.c.view) / self.alpha
        state.J, state.N, state.factor = fresh.J, fresh.N, fresh.factor
        state.r, state.c, state.trace, state.log_det = fresh.r, fresh.c, fresh.trace, fresh.log_det
        if self.sketch is not None and state.sketch is not None:
            self.sketch.forget(state.sketch, memory, t)

    def extra_work(self, state: KernelState, t: int, rounds: int) -> float:
        """Return the work of rebuilding the state and the sketch's dictionary, if rounds are forgotten."""
        if self.memory is None or self.memory.room(t - 1) > rounds:
            return 0.0
        points = 0 if state.sketch is None else len(state.sketch.points) + rounds
        return embedding_work(len(state.J) + rounds) + embedding_work(points)

    def conditioning(self, state: KernelState) -> float:
        """Return the conditioning of the stored rounds; with a memory, at least the one inherited by `StoredRounds`."""
        own = self._own_conditioning(state)
        return own if state.stored is None else max(own, state.stored.inherited)

    def _own_conditioning(self, state: KernelState) -> float:
        """Return the condition of A plus the coefficients; with projections a multiple of it: O(|J|^2 + d |J| + d |N|).

        A projection carries the error of a well-determined input over to others that are not, amplified by at most the root
        of the condition; another projection carries it back. How often that happens shows in the residual of all rounds'
        quadratics at their common minimum, alpha |r|^2: a few C^2 per round, but far more if projections contradict each
        other. The result is an estimate, checked by bench.replay; with many contradictions the errors are chaotic.
        """
        # alpha I <= A <= (alpha + sum_J w kappa) I.
        condition, r, C = 1.0 + state.trace / self.alpha, state.r.view, self.projected_to
        with np.errstate(over="ignore", invalid="ignore"):
            on_J = state.factor.roots.view * state.factor.L.solve_transposed(r)
            residual = 0.0 if C is None else self.alpha * float(r @ r) / C / C
        mass = self.kernel.mass(state.J, on_J) + self.kernel.mass(state.N, state.c.view) / self.alpha
        return (condition + mass) * min(condition, max(1.0, residual))

    def describe(self, state: KernelState) -> dict[str, float]:
        numbers: dict[str, float] = {
            "dictionary": len(state.J) + len(state.N),
            "bytes": state.nbytes,
            "active": len(state.J),
            "passive": len(state.N),
            "log_det": state.log_det,
        }
        if state.sketch is not None:
            numbers["sampled"] = len(state.sketch.points)
            if self.is_whole:
                numbers["sum_tau"] = state.sketch.sum_tau
        return numbers


def note_J(state: KernelState, t: int, joined: Joined) -> None:
    """Record round t in J, except for its point, factor row and entry of r."""
    w, q, kappa, b = joined
    state.trace += w * kappa
    state.log_det += math.log1p(w * q)
    if state.stored is not None:
        state.stored.J.append(t)
        state.stored.b.append(b)


def note_N(state: KernelState, t: int, c: float) -> None:
    """Record round t in N, except for its point."""
    state.c.append(c)
    if state.stored is not None:
        state.stored.N.append(t)


@final
class KernelBlock:
    r"""A block of n rounds with known inputs, as the posterior of their values: alpha q on the diagonal of S, m in mu.

    | symbol | meaning                                                                | shape      |
    |--------|------------------------------------------------------------------------|------------|
    | Z, S, U | as in `WeightedBlock`; S is the covariance given all rounds so far     |            |
    | mu     | m of the inputs given all rounds so far; entries > j                   | (n,)       |
    """

    def __init__(self, space: KernelSpace, state: KernelState, t: int, X: F64) -> None:
        kernel, n = space.kernel, len(X)
        self.space, self.state, self.t, self.X = space, state, t, X
        K = kernel.gram(X)
        self.kappa: list[float] = K.diagonal().tolist()
        self.sketch = None
        if space.sketch is not None and state.sketch is not None:
            self.sketch = space.sketch.block(state.sketch, t, X, K)
        self.inputs = WeightedBlock(state.factor, K, kernel.block(state.J, X))
        self.r = state.r.view.copy()
        self.mu = self.r @ self.inputs.Z
        if len(state.N):
            self.mu += state.c.view @ kernel.block(state.N, X) / space.alpha
        self.trace = state.trace
        self.rho = np.empty(n)
        self.joined: list[tuple[int, Joined]] = []
        self.passed: list[tuple[int, float]] = []
        """(j, c) of the rounds of N."""

    def moments(self, j: int) -> Moments:
        kappa = self.kappa[j]
        return Moments(self.mu.item(j), self.space.variance(self.trace, kappa, self.inputs.variance(j)), kappa)

    def play(self, j: int, y: float, rule: Rule[T], rng: RoundRng) -> tuple[float, Decision]:
        space, t = self.space, self.t + j
        rng.at(t)
        moments = self.moments(j)
        _, q, kappa = moments
        decision = decided(t, moments, y, rule, rng)
        if self.sketch is not None:
            decision = self.sketch.thin(j, decision, rng)
        space.check(t, kappa, decision, rule)
        if space.has_weight(decision.w, kappa):
            self.join(j, decision.w, q, decision.rho_delta)
        elif decision.c != 0.0 and kappa > 0.0:
            self.pass_by(j, decision.c)
        return q, decision

    def join(self, j: int, w: float, q: float, rho_delta: float) -> None:
        """Add round j to J."""
        root, delta = math.sqrt(w), math.sqrt(self.space.alpha * (1.0 + w * q))
        self.rho[len(self.joined)] = rho = rho_delta / delta
        joined = Joined(w, q, self.kappa[j], rho_delta + root * self.mu.item(j))
        self.mu[j + 1 :] += rho * self.inputs.join(j, root, delta)
        self.trace += w * self.kappa[j]
        self.joined.append((j, joined))

    def pass_by(self, j: int, c: float) -> None:
        """Add round j to N."""
        step, k, later = c / self.space.alpha, len(self.joined), slice(j + 1, None)
        self.mu[later] += step * self.inputs.S[j, later]
        self.r -= step * self.inputs.Z[:, j]
        self.rho[:k] -= step * self.inputs.U[:k, j]
        self.passed.append((j, c))

    def enter(self, roots: F64, b: F64) -> None:
        """Add all rounds to J, given their weights and b, and write the block into the state."""
        state, alpha = self.state, self.space.alpha
        L = self.inputs.join_all(roots, alpha)
        if L is None:
            # alpha is below rounding here; one by one, `variance` bounds q away from 0.
            for j, (root, b_j) in enumerate(zip(roots.tolist(), b.tolist(), strict=True)):
                m, q, _ = self.moments(j)
                self.join(j, root * root, q, b_j - root * m)
            self.settle()
            return
        self.inputs.settle()
        # The rows of r solve L rho = b - D Z^T r.
        state.r.extend(solve_triangular(L, b - roots * self.mu, lower=True, check_finite=False))
        state.J.extend(self.X)
        state.trace += float(roots * roots @ self.kappa)
        state.log_det += sum(2.0 * math.log(diagonal) - math.log(alpha) for _, _, diagonal in self.inputs.joined)

    def settle(self) -> None:
        state = self.state
        self.inputs.settle()
        state.r.view[:] = self.r
        state.r.extend(self.rho[: len(self.joined)])
        state.J.extend(self.X[[j for j, _ in self.joined]])
        state.N.extend(self.X[[j for j, _ in self.passed]])
        for j, joined in self.joined:
            note_J(state, self.t + j, joined)
        for j, c in self.passed:
            note_N(state, self.t + j, c)
        if self.sketch is not None:
            self.sketch.settle()
        self.space.forget(state, self.t + len(self.X) - 1)
