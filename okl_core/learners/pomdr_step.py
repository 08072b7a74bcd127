r"""What POMDR is made of: its parameters, its state, and what a round with loss does to the function learned so far.

The letters are those of the table in `pomdr`. A step is decided without changing anything (`decide`) and then carried
into the state (`carry`). Neither computes a kernel row: one round at a time and a block of rounds share both.

References: [li2023] algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.rng import RoundRng
from okl_core.first_order.steps import SMALLEST_SCALE
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64, LearnerConfig, LearnerState

ALD_EXPONENT = 2.0 / 3.0
ALD_FACTOR = 10.0
"""The threshold of the experiments in [li2023]."""
FIRST_HORIZON = 1024
"""The horizon that an open-ended stream starts with; it doubles from there."""
ROUNDING = 1e-12
"""Share of kappa below which alpha is the rounding error of kappa - z^T z: such a gradient is always projected."""
VANISHED = 1e-14
"""Share of the largest possible |f'|^2 below which a merged function is 0, as far as rounding can tell."""
TIE = 1e-12
"""Kernel values this close, relative to the largest, are equal: the oldest point wins."""
CHUNK = 100
"""Columns of a Gram matrix computed at once, where half of it is enough."""


class PomdrConfig(LearnerConfig):
    """Parameters of POMDR. The defaults are those of the experiments in [li2023]."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    norm_bound: float = Field(default=25.0, gt=0.0, description="U: largest norm of the function learned.")
    budget: int = Field(default=400, ge=2, description="B: at this many stored points half are removed; even.")
    pomd_budget: int | None = Field(
        default=None,
        ge=1,
        description="B0: stored points that end the projections; below the budget. "
        "null: 15 ln(horizon), at most half the budget.",
    )
    window: int = Field(default=15, ge=1, description="M: past gradients averaged for the optimistic step.")
    ald_threshold: float | None = Field(
        default=None,
        ge=0.0,
        description="A gradient this close to the span of the stored points is projected onto it. "
        "null: min(1, ald_factor horizon^-ald_exponent) sqrt(D), with D the largest k(x, x).",
    )
    ald_exponent: float = Field(
        default=ALD_EXPONENT, gt=0.0, description="zeta: how fast the threshold falls with the horizon; 1 in theory."
    )
    ald_factor: float = Field(default=ALD_FACTOR, gt=0.0, description="Factor of that threshold; 1 in theory.")
    step_factor: float = Field(
        default=1.0,
        gt=0.0,
        description="c: multiplies the rate after the first removal; 1 in theory, 0.05 to 0.1 is often better.",
    )
    horizon: int | None = Field(
        default=None,
        ge=1,
        description="T: rounds expected. null: the power of two that holds the rounds so far, 1024 at least.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.budget % 2:
            raise ValueError(f"budget is {self.budget}; it must be even, since a removal keeps half of it")
        if self.pomd_budget is not None and self.pomd_budget >= self.budget:
            raise ValueError(f"pomd_budget is {self.pomd_budget}; it must be below the budget, {self.budget}")
        if self.ald_threshold is not None and (self.ald_exponent, self.ald_factor) != (ALD_EXPONENT, ALD_FACTOR):
            raise ValueError("give either ald_threshold, or ald_exponent and ald_factor")
        return self

    def horizon_at(self, t: int) -> int:
        """T as it stands in round t."""
        return self.horizon or max(FIRST_HORIZON, 1 << (t - 1).bit_length())

    def pomd_budget_at(self, t: int) -> int:
        """B0 as it stands in round t."""
        if self.pomd_budget is not None:
            return self.pomd_budget
        return max(1, min(math.ceil(15.0 * math.log(self.horizon_at(t))), self.budget // 2))

    def ald_threshold_at(self, t: int, D: float) -> float:
        """The threshold of the ALD test as it stands in round t."""
        if self.ald_threshold is not None:
            return self.ald_threshold
        return min(1.0, self.ald_factor * self.horizon_at(t) ** -self.ald_exponent) * math.sqrt(D)


@dataclass(slots=True)
class PomdrState(LearnerState):
    """What POMDR carries over. The factor and the ring are empty in phase 2."""

    points: Points
    """The M slots of the window, then S. Round r is in slot (r - 1) mod M; an unused slot repeats the first point."""
    labels: F64
    """(M,): y of each slot, 0 while it is unused."""
    coefficients: GrowingArray
    """(|S|,): a / scale."""
    nearest: GrowingArray
    """For each point of S after the first B/2: the most similar of those."""
    factor: Factor
    """L."""
    ring: GrowingArray
    """(|S|, M): k(x_i, slot)."""
    scale: float
    norm2: float
    """|f'|^2."""
    gain: float
    """G."""
    kappa: float
    """D; the largest kappa so far where the kernel has no bound."""
    phase: int
    t_bar: int
    """The first round of phase 2; 0 before."""
    removals: int
    violations: int
    """Rounds with loss."""
    ald_rounds: int
    """Violations whose gradient was projected."""
    sum_delta: float
    """Sum of max(kappa - 2 y g, 0), never projected, over the violations after round 1: A_T of the paper's tables."""


class Seen(NamedTuple):
    """A round with loss, in numbers: y, lambda_t, kappa, D, f'(x_t), g_t(x_t)."""

    y: float
    rate: float
    kappa: float
    D: float
    prime: float
    g: float


@dataclass(slots=True)
class Step:
    """What a round with loss does to f'. `beta`, `merged`: None where nothing is projected, or removed."""

    weight: float
    """lambda_t y_t."""
    beta: F64 | None
    z: F64 | None
    """With sqrt(alpha), the row that L grows by if the point is stored in phase 1."""
    root_alpha: float
    nearest: int
    """The most similar of the first B/2 points; -1 for one of these."""
    gain: float
    delta: float
    """Not projected."""
    norm2: float
    shrink: float
    """The factor that keeps f' in the ball."""
    merged: F64 | None = None
    """The coefficients of the B/2 points that a removal keeps."""


def rate(config: PomdrConfig, state: PomdrState, D: float) -> float:
    """lambda_t; 0 as long as every kappa was 0."""
    U = config.step_factor * config.norm_bound if state.removals else config.norm_bound
    largest = 3.0 * D + state.gain
    return U / math.sqrt(largest) if largest > 0.0 else 0.0


def decide(
    config: PomdrConfig,
    state: PomdrState,
    seen: Seen,
    k: F64,  # k_S(x_t); in phase 2 only its first B/2 entries are looked at
    average: Callable[[F64], float],  # beta -> (1/M_t) sum_r y_{t-r} (beta . k_S(x_{t-r}))
    rng: RoundRng,
) -> Step:
    """What the gradient of a round with loss does. Changes nothing."""
    y, _, kappa, D, prime, g = seen
    size, half, U = len(state.coefficients), config.budget // 2, config.norm_bound
    beta = z = None
    root_alpha, square, inner, nearest = 0.0, kappa, y * g, -1
    if state.phase == 1:
        z = state.factor.solve(k)
        projected = float(z.dot(z))
        alpha = max(kappa - projected, 0.0)
        root_alpha = math.sqrt(alpha)
        if rng.decide(root_alpha <= config.ald_threshold_at(state.t + 1, D) or alpha <= ROUNDING * kappa):
            beta = state.factor.solve_transposed(z)
            square, inner = projected, y * average(beta)
    if beta is None and size >= half:
        nearest = rng.pick(_most_similar(k[:half]))
    weight = y * seen.rate
    norm2 = max(state.norm2 + weight * weight * square + 2.0 * weight * prime, 0.0)
    shrink = 1.0
    if norm2 > U * U:
        shrink, norm2 = U / math.sqrt(norm2), U * U
    gain = state.gain + max(square - 2.0 * inner, 0.0)
    step = Step(weight, beta, z, root_alpha, nearest, gain, max(kappa - 2.0 * y * g, 0.0), norm2, shrink)
    if state.phase == 2 and size + 1 == config.budget:
        step.merged, step.norm2 = _merge(config, state, step, rng)
    return step


def _most_similar(k: F64) -> int:
    """The oldest of the largest entries, where rounding cannot break the tie of a point that is stored twice."""
    largest = k.item(k.argmax())
    return int((k >= largest - TIE * abs(largest)).argmax())


def _merge(config: PomdrConfig, state: PomdrState, step: Step, rng: RoundRng) -> tuple[F64, float]:
    """The coefficients of the kept half and |f'|^2, once every removed point gave its own to the nearest kept one."""
    M, half, U = config.window, config.budget // 2, config.norm_bound
    a = step.shrink * np.append(state.scale * state.coefficients.view, step.weight)
    receivers = np.append(state.nearest.view, step.nearest).astype(np.intp)
    merged, mass = a[:half].copy(), np.abs(a[:half])
    np.add.at(merged, receivers, a[half:])
    np.add.at(mass, receivers, np.abs(a[half:]))
    kept = state.points.coordinates()[M : M + half]
    norm2 = max(_squared_norm(config.kernel, kept, merged), 0.0)
    largest = float(mass @ np.sqrt(config.kernel.diag(kept)))
    if rng.decide(norm2 > VANISHED * largest * largest):
        merged *= U / math.sqrt(norm2)
        norm2 = U * U
    return merged, norm2


def _squared_norm(kernel: Kernel, X: F64, a: F64) -> float:  # X: (n, d), a: (n,)
    """a^T K a, from little more than a triangle of K."""
    total = 0.0
    for start in range(0, len(a), CHUNK):
        own = slice(start, start + CHUNK)
        weights = 2.0 * a[: start + CHUNK]
        weights[own] *= 0.5
        total += float(weights @ kernel.block(X[: start + CHUNK], X[own]) @ a[own])
    return total


def carry(config: PomdrConfig, state: PomdrState, step: Step) -> None:
    """Carry a step into the state, all but the points, the ring and t, which the caller moves on."""
    state.violations += 1
    state.norm2 = step.norm2
    state.gain = step.gain
    if state.t > 0:
        state.sum_delta += step.delta
    weight = step.weight / state.scale
    if step.beta is not None:
        state.ald_rounds += 1
        state.coefficients.view[:] += weight * step.beta
    else:
        state.coefficients.append(weight)
        if step.nearest >= 0:
            state.nearest.append(float(step.nearest))
    state.scale *= step.shrink
    if step.merged is not None:
        state.coefficients = GrowingArray.unpack(step.merged)
        state.nearest.truncate(0)
        state.scale = 1.0
        state.gain = 0.0
        state.removals += 1
    elif state.scale < SMALLEST_SCALE:
        state.coefficients.view[:] *= state.scale
        state.scale = 1.0
    if state.phase == 1 and step.beta is None and step.z is not None:
        if len(state.coefficients) >= config.pomd_budget_at(state.t + 1):
            state.phase, state.t_bar = 2, state.t + 2
            state.factor, state.ring = Factor(), GrowingArray(config.window)
        else:
            state.factor.append(step.z, step.root_alpha)
