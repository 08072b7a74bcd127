r"""The equations of a B(AO)2KS round, shared by a round alone and by the rounds of a block.

A round is decided by `decide_round`, which changes nothing; `absorb` carries it into the numbers of the state.

    f_t = Proj_U(f' + lambda g)
    if y f_t(x_t) < 1:      f' <- Proj_U(f' + lambda (g + (b / p) (y k(x_t, .) - g))),  V joins S, and x_t if b = 1
    with probability M / t: x_t takes a slot of V, drawn uniformly; in the first M rounds the next free one
    if |S| > B:             f' <- 0, S is empty

| symbol   | meaning                                                                         | shape  |
|----------|---------------------------------------------------------------------------------|--------|
| V, M     | the reservoir: M past rounds, drawn uniformly from all                          | (M, d) |
| g        | (1/\|V\|) sum_{i in V} y_i k(x_i, .), minus the guess of the next gradient      |        |
| f'       | the function learned; S are the points it is made of                            |        |
| f_t      | the function that predicts                                                      |        |
| kappa    | k(x_t, x_t)                                                                     |        |
| e        | \|y k(x_t, .) - g\|, the error of the guess                                     |        |
| p, b     | e / (beta (e + \|g\|)), and a coin of that probability                          |        |
| lambda   | step size of round t                                                            |        |
| U        | radius of the ball that f' and f_t are projected to                             |        |
| B        | the largest \|S\| that does not start f' again                                  |        |

Between two changes of V a step adds a multiple of g to f', and sometimes one point: |f'|^2 and <f', g> follow as numbers.

References: [liao2021].
"""

from __future__ import annotations

import math
from typing import NamedTuple

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.first_order.steps import folded, into_ball
from okl_core.learners.bao2ks.bao2ks_state import Bao2ksConfig, Bao2ksState

ROUNDING = 1e-12
"""Share of kappa + |g|^2 below which a squared length is rounding: that of the guess's error, and of the guess."""


class Bao2ksView(NamedTuple):
    """What the decision of a round needs to know of it."""

    y: float
    kappa: float
    prime: float
    """f'(x_t)."""
    g: float
    """g(x_t)."""


class Bao2ksStep(NamedTuple):
    """The step of a round with loss: f' becomes shrink (f' + pull g + own k(x_t, .))."""

    pull: float
    own: float
    """0 where x_t does not join S."""
    shrink: float
    norm2: float
    """|f'|^2 after the step."""
    inner: float
    """<f', g> after the step."""


class Bao2ksDecision(NamedTuple):
    """What a round forecasts, and all that it will change."""

    value: float
    """f_t(x_t)."""
    step: Bao2ksStep | None
    """None without loss."""
    slot: int
    """The slot of V that x_t takes; -1: none."""


def optimistic_value(config: Bao2ksConfig, state: Bao2ksState, prime: float, g: float) -> float:
    """The forecast f_t(x_t), for f'(x_t) and g(x_t). Raises DivergedError."""
    rate = config.eta(state.t + 1)
    shrink, _ = _into_ball(config, state, state.norm2 + rate * (2.0 * state.inner + rate * state.guess2))
    return shrink * (prime + rate * g)


def decide_round(config: Bao2ksConfig, state: Bao2ksState, view: Bao2ksView, rng: RoundRng) -> Bao2ksDecision:
    """Decide the next round. Nothing changes. Raises DivergedError."""
    t = state.t + 1
    value = optimistic_value(config, state, view.prime, view.g)
    # Both are drawn whatever happens, so that the coins of a round do not depend on one another.
    coin, place = rng.uniforms(2)
    step = _optimistic_step(config, state, view, coin, rng) if rng.decide(view.y * value < 1.0) else None
    if t <= config.reservoir:
        return Bao2ksDecision(value, step, t - 1)
    slot = int(place * t)
    return Bao2ksDecision(value, step, rng.pick(slot + 1 if slot < config.reservoir else 0) - 1)


def _optimistic_step(
    config: Bao2ksConfig, state: Bao2ksState, view: Bao2ksView, coin: float, rng: RoundRng
) -> Bao2ksStep:
    """Compute the step of a round with loss."""
    y, kappa, prime, g = view
    N, p = state.guess2, 0.0
    # e^2 = |y k(x_t, .) - g|^2
    error2 = kappa - 2.0 * y * g + N
    if error2 > ROUNDING * (kappa + N):
        error = math.sqrt(error2)
        p = error / (config.thinning * (error + _length(N, kappa)))
    # b / p
    weight = 1.0 / p if rng.decide(coin < p) and p > 0.0 else 0.0
    rate = config.eta(state.t + 1)
    pull, own = rate * (1.0 - weight), rate * weight * y
    # <f' + pull g + own k(x_t, .), g>, and the squared norm of the same
    inner = state.inner + pull * N + own * g
    norm2 = state.norm2 + pull * (state.inner + inner + own * g) + own * (2.0 * prime + own * kappa)
    shrink, norm2 = _into_ball(config, state, norm2)
    return Bao2ksStep(pull, own, shrink, norm2, shrink * inner)


def _length(square: float, kappa: float) -> float:
    """|g| from |g|^2: the root, or a linear function where |g|^2 is rounding of kappa, which a root would magnify."""
    floor = ROUNDING * kappa
    return math.sqrt(square) if square > floor or square == 0.0 else square / math.sqrt(floor)


def _into_ball(config: Bao2ksConfig, state: Bao2ksState, norm2: float) -> tuple[float, float]:
    """The factor that projects a function of this squared norm to the ball of radius U, and the squared norm after it."""
    if not math.isfinite(norm2):
        raise DivergedError(f"round {state.t + 1} overflows; scale the inputs down, or take smaller steps")
    return into_ball(norm2, config.norm_bound)


def absorb(state: Bao2ksState, decision: Bao2ksDecision) -> tuple[float, float]:
    """Carry a played round into the numbers of the state. The caller sees to V, S and the coefficients.

    Returns the coefficient of x_t, 0 if it does not join S, and a factor for all other coefficients.
    """
    state.t += 1
    step = decision.step
    if step is None:
        return 0.0, 1.0
    state.violations += 1
    state.sampled += step.own != 0.0
    state.members[: state.t - 1] = 1.0
    state.pull += step.pull / state.scale
    own = step.own / state.scale
    state.norm2, state.inner = step.norm2, step.inner
    state.scale, factor = folded(state.scale * step.shrink)
    state.pull *= factor
    return factor * own, factor


def absorb_guess(state: Bao2ksState, margin: float, guess2: float) -> None:
    """Carry a new g into the state, by <f' / scale, g> and |g|^2. `pull` is 0: it belongs to the old g."""
    state.inner = state.scale * margin
    # Points of both labels may cancel, and rounding may then leave less than 0.
    state.guess2 = max(guess2, 0.0)


def restart(state: Bao2ksState) -> None:
    """Start f' again from 0, with S empty. The caller sees to the points and the coefficients."""
    state.members[:] = 0.0
    state.scale = 1.0
    state.pull = state.norm2 = state.inner = 0.0
    state.restarts += 1
