r"""The equations of a kernel OGD round, shared by a round alone and by the rounds of a block.

A round is decided by `projected_step`, which changes nothing; `absorb` carries it into the numbers of the state.

    f <- (1 - eta lambda) f - eta g k(x_t, .)
    if more than B points are stored:    f <- f - a k(s, .), for the oldest point s and its coefficient a
    if |f| > U:                          f <- (U / |f|) f

| symbol | meaning                                                       | in [kivinen2004] |
|--------|---------------------------------------------------------------|------------------|
| f      | the function learned, sum_i a_i k(x_i, .)                     | f_t, alpha_i     |
| m      | f(x_t)                                                        |                  |
| value  | the forecast: m, cut to [-C, C] for the squared loss          |                  |
| g      | l'(value)                                                     | l'               |
| eta    | step size of round t                                          | eta_t            |
| lambda | weight of \|f\|^2 / 2 in every loss                           | lambda           |
| kappa  | k(x_t, x_t); D is its supremum                                | X^2              |
| B      | stored points at most                                         | tau              |
| L      | largest \|l'\|                                                | C                |
| U      | radius of the ball that f is projected to                     |                  |

References: [kivinen2004].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.first_order.steps import folded, into_ball, recorded_slope
from okl_core.learners.kernel_ogd.kernel_ogd_state import KernelOgdConfig, KernelOgdState
from okl_core.losses import LOSSES


class OldestPoint(NamedTuple):
    """The oldest point s as it is before the round that may drop it."""

    coefficient: float
    f: float
    """f(s)."""
    k: float
    """k(s, x_t)."""
    kappa: float
    """k(s, s)."""


class KernelOgdStep(NamedTuple):
    """The step of a round: f becomes shrink f + weight k(x_t, .), without the oldest point if that is dropped."""

    value: float
    has_loss: bool
    """Is x_t stored?"""
    shrink: float
    weight: float
    norm2: float
    kappa: float
    bound_gradient: float


def projected_step(
    config: KernelOgdConfig,
    state: KernelOgdState,
    y: float,
    m: float,
    kappa: float,
    oldest: Callable[[], OldestPoint] | None,
    rng: RoundRng,
) -> KernelOgdStep:
    """Compute the step of the next round. Nothing changes. Raises DivergedError.

    `oldest` gives the point that is dropped if x_t is stored. It is None if none is dropped, or |f| is not kept.
    """
    lambda_, t = config.regularization, state.t + 1
    D = kappa if kappa > state.kappa else state.kappa
    eta = config.eta(t, D)
    value = config.value(m)
    slope, has_loss, g = recorded_slope(LOSSES[config.loss], value, y, kappa, rng)
    shrink, weight = 1.0 - eta * lambda_, -eta * g
    norm2, bound_gradient = state.norm2, state.bound_gradient
    if config.has_norm:
        # |g k(x_t, .) + lambda f|^2
        bound_gradient += 0.5 * eta * (g * g * kappa + lambda_ * (2.0 * g * m + lambda_ * norm2))
        # |shrink f + weight k(x_t, .)|^2
        norm2 = shrink * shrink * norm2 + weight * (2.0 * shrink * m + weight * kappa)
        if has_loss and oldest is not None:
            # The same without a k(s, .)
            a, f, k, own = oldest()
            a *= shrink
            norm2 += a * (a * own - 2.0 * (shrink * f + weight * k))
        back, norm2 = into_ball(norm2, math.inf if config.norm_bound is None else config.norm_bound)
        shrink, weight = back * shrink, back * weight
    # The squared losses are a fourth of slope^2, and must be finite before the round is learned.
    if not math.isfinite(m + weight + slope * slope + norm2 + bound_gradient):
        raise DivergedError(f"round {t} overflows; scale the inputs down, or take smaller steps")
    return KernelOgdStep(value, has_loss, shrink, weight, norm2, D, bound_gradient)


def absorb(state: KernelOgdState, step: KernelOgdStep) -> float:
    """Carry a played round into the numbers of the state. The caller sees to the points and the coefficients.

    Returns a factor for all coefficients: almost always 1, since `scale` takes up `shrink`.
    """
    state.t += 1
    state.norm2, state.kappa, state.bound_gradient = step.norm2, step.kappa, step.bound_gradient
    state.scale, factor = folded(state.scale * step.shrink)
    return factor
