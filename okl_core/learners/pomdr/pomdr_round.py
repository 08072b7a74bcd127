r"""The equations of a POMDR round, shared by a round alone and by the rounds of a block.

A round with loss is decided by `mirror_step`, which changes nothing; `absorb` carries it into the state.

    phase 1 (POMD), x_t near span S:             grad~ = -y sum_i beta_i k(x_i, .)                     eq. (5), (6)
    phase 1 otherwise, and phase 2 (OMDR):       grad~ = -y k(x_t, .), and x_t joins S                 eq. (7), (8)
    both phases:                                 f' <- Proj_U(f' - lambda_t grad~),  G <- G + delta~   eq. (10)
    x_t is near span S: sqrt(alpha) <= threshold, or alpha <= 1e-6 kappa, which rounding would magnify too much
    once S has B0 points, in phase 1:            the next round begins phase 2
    once S has B points, in phase 2:             half of them are removed: `pomdr_removal`             eq. (9)

========= ========================================================== ========== ===============
letter    meaning                                                    shape      in [li2023]
========= ========================================================== ========== ===============
S, a      stored points, oldest first; f' = sum_i a_i k(x_i, .)      (|S|,)     eq. (3)
g_t       (1/M_t) sum_{r<=M_t} y_{t-r} k(x_{t-r}, .), M_t=min(t-1,M) function   before theorem 1
kappa, D  k(x_t, x_t) and its supremum                               scalar
lambda_t  c U / sqrt(3 D + G), with c = 1 before a removal           scalar     eq. (10)
G         sum of delta~ since the last removal                       scalar     eq. (10)
L, z      K_S = L L^T, z = L^{-1} k_S(x_t)                           (|S|,)     eq. (4)
alpha     |k(x_t, .) - its projection onto span S|^2 = kappa - z^T z scalar     eq. (4)
beta      L^{-T} z: coefficients of the projection                   (|S|,)     eq. (4)
grad~, u  -y k(x_t, .) or its projection, = -y u                     function   eq. (6)
delta~    max(|grad~|^2 + 2 <grad~, g_t>, 0)                         scalar     eq. (10)
U, M      radius of the ball of f', length of the window             scalar
B0, B     stored points that end phase 1, that start a removal       scalar     section "OMDR"
========= ========================================================== ========== ===============

=========== ==================================================================================
algorithm 1 here
=========== ==================================================================================
2-7         `Pomdr.play`: lambda_t by `learning_rate`, f_t(x_t), loss; in a block `PomdrBlock._play`
8           `PomdrState.phase`
9, 10       `row_of` (z, alpha) and `mirror_step` (beta)
11, 12      `mirror_step`
13, 15, 20  `absorb`, with the weight, beta and shrink of `PomdrStep`
16, 21      `absorb` (coefficients) and `Pomdr.learn` (points)
17          `_absorb_row`
22          `mirror_step`, by `remove`
=========== ==================================================================================

References: [li2023] algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.first_order.steps import folded, into_ball
from okl_core.learners.pomdr.pomdr_removal import Removal, most_similar, remove
from okl_core.learners.pomdr.pomdr_state import OMDR, POMD, PomdrConfig, PomdrState
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.second_order.embedding import INDEPENDENT
from okl_core.types import F64


class PomdrView(NamedTuple):
    """What a step needs to know of a round with loss."""

    y: float
    rate: float
    """lambda_t."""
    kappa: float
    D: float
    prime: float
    """f'(x_t)."""
    g: float
    """g_t(x_t)."""
    k: F64
    """k_S(x_t), shape (|S|,); in phase 2 only its first B/2 entries are read."""


class FactorRow(NamedTuple):
    """The row by which L grows if x_t joins S in phase 1: z = L^{-1} k, and sqrt(alpha), with alpha = kappa - |z|^2."""

    z: F64
    root_alpha: float


class PomdrStep(NamedTuple):
    """The step of a round with loss: f' becomes shrink (f' + weight u)."""

    weight: float
    """lambda_t y."""
    beta: F64 | None
    """The coefficients of u, shape (|S|,), if it is a projection; None if it is k(x_t, .), and x_t joins S."""
    row: FactorRow | None
    """None unless x_t joins S in phase 1."""
    nearest: int
    """The most similar of the first B/2 points, if x_t joins S behind them; else -1."""
    delta: float
    """delta~."""
    unprojected_delta: float
    """delta~ if u were k(x_t, .)."""
    norm2: float
    """|f'|^2 after the step."""
    shrink: float
    """The factor that projects to the ball of radius U."""
    removal: Removal | None
    """f' after a removal, if x_t is the B-th point of S."""


def learning_rate(config: PomdrConfig, state: PomdrState, D: float) -> float:
    """lambda_t of the next round; 0 as long as every kappa was 0."""
    U = config.step_factor * config.norm_bound if state.removals else config.norm_bound
    largest = 3.0 * D + state.gain
    return U / math.sqrt(largest) if largest > 0.0 else 0.0


def row_of(state: PomdrState, kappa: float, k: F64) -> FactorRow:
    """Line 10: eq. (4)."""
    z = state.factor.solve(k)
    return FactorRow(z, math.sqrt(max(kappa - float(z.dot(z)), 0.0)))


def mirror_step(
    config: PomdrConfig,
    state: PomdrState,
    view: PomdrView,
    guess_product: Callable[[F64], float],  # beta -> <sum_i beta_i k(x_i, .), g_t>
    kept: Callable[[], F64],  # the first B/2 points, (B/2, d)
    rng: RoundRng,
) -> PomdrStep:
    """Compute the step of a round with loss. Nothing changes."""
    y, rate, kappa, D, prime, g, k = view
    half, size = config.budget // 2, len(state.coefficients)
    # |u|^2 and <u, g_t> for u = k(x_t, .). Lines 15, 20: eq. (7), (8)
    square, inner = kappa, g
    beta = row = None
    if state.phase == POMD:
        z, root_alpha = row = row_of(state, kappa, k)
        # Line 11: the ALD condition, eq. (5)
        threshold = max(config.ald_threshold_at(state.t + 1, D), math.sqrt(INDEPENDENT * kappa))
        if rng.decide(root_alpha <= threshold):
            # Lines 9, 12: eq. (6)
            beta, row = state.factor.solve_transposed(z), None
            square, inner = float(z.dot(z)), guess_product(beta)
    nearest = rng.pick(most_similar(k[:half])) if beta is None and size >= half else -1
    # delta~ = max(|grad~|^2 + 2 <grad~, g_t>, 0)
    delta = max(square - 2.0 * y * inner, 0.0)
    unprojected_delta = max(kappa - 2.0 * y * g, 0.0)
    # |f' + weight u|^2, where <f', u> = f'(x_t): u is k(x_t, .), or its projection onto span S, in which f' lies.
    weight = y * rate
    # Not weight^2 first: where every kappa so far is tiny it is infinite, and an input of 0 would make a NaN of it.
    shrink, norm2 = into_ball(state.norm2 + weight * (weight * square + 2.0 * prime), config.norm_bound)
    removal = None
    # Line 22: eq. (9)
    if state.phase == OMDR and size + 1 == config.budget:
        a = shrink * np.append(state.scale * state.coefficients.view, weight)
        removal = remove(config, a, np.append(state.nearest.view, nearest).astype(np.intp), kept(), rng)
    return PomdrStep(weight, beta, row, nearest, delta, unprojected_delta, norm2, shrink, removal)


def absorb(config: PomdrConfig, state: PomdrState, step: PomdrStep) -> float:
    """Carry a round with loss into f' and G. The caller sees to the points, the window and t.

    Returns the factor that the old coefficients were multiplied by: almost always 1, since `scale` takes up `shrink`.
    """
    if step.row is not None:
        # First, since the factor may refuse the row: then nothing has changed.
        _absorb_row(config, state, step.row)
    state.violations += 1
    if state.t > 0:
        state.sum_delta += step.unprojected_delta
    if step.removal is not None:
        state.coefficients = GrowingArray.unpack(step.removal.coefficients)
        state.nearest.truncate(0)
        state.scale, state.norm2, state.gain = 1.0, step.removal.norm2, 0.0
        state.removals += 1
        return 1.0
    state.norm2 = step.norm2
    state.gain += step.delta
    weight = step.weight / state.scale
    if step.beta is not None:
        state.ald_rounds += 1
        state.coefficients.view[:] += weight * step.beta
    else:
        state.coefficients.append(weight)
        if step.nearest >= 0:
            state.nearest.append(float(step.nearest))
    state.scale, factor = folded(state.scale * step.shrink)
    if factor != 1.0:
        state.coefficients.view[:] *= factor
    return factor


def _absorb_row(config: PomdrConfig, state: PomdrState, row: FactorRow) -> None:
    """Let a point join S in phase 1: L grows by its row, or it is the B0-th point and phase 2 begins."""
    if len(state.coefficients) + 1 >= config.pomd_budget_at(state.t + 1):
        state.phase, state.t_bar = OMDR, state.t + 2
        state.factor, state.ring = Factor(), GrowingArray(config.window)
    else:
        state.factor.append(*row)
