r"""What B(AO)2KS is made of: its parameters, its state, and what a round decides, as numbers.

The letters are those of the table in `bao2ks`. One round at a time and a block of rounds share `decide`.

References: [liao2021].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

from pydantic import Field, model_validator

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.first_order.steps import SMALLEST_SCALE, StepConfig
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64, LearnerState

ROUNDING = 1e-12
"""Share of kappa + |guess|^2 below which a squared length is rounding: that of the guess's error, and of the guess."""


class Bao2ksConfig(StepConfig):
    """Parameters of B(AO)2KS. The defaults are those of the experiments in [li2023]."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    norm_bound: float = Field(default=30.0, gt=0.0, description="U: largest norm of the function learned.")
    budget: int = Field(
        default=400, ge=2, description="B: with more stored points than this the function starts again from 0."
    )
    reservoir: int = Field(
        default=10,
        ge=1,
        description="M: past gradients whose mean is the guess of the next one; ln(horizon) in theory.",
    )
    thinning: float = Field(
        default=6.0, ge=1.0, description="beta: a gradient is asked for with a probability of at most 1 / beta."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.budget <= self.reservoir:
            raise ValueError(
                f"budget is {self.budget}; it must be above the reservoir, {self.reservoir}, which is stored"
            )
        return self


@dataclass(slots=True)
class Bao2ksState(LearnerState):
    """f' = scale (sum_i coefficients_i k(points_i, .) + pull g), with g the guess."""

    points: Points
    """The M slots of V, then the points of S that are not in V. An unused slot repeats the first point."""
    labels: F64
    """(M,): y of each slot, 0 while it is unused."""
    members: F64
    """(M,): is the slot's point in S?"""
    coefficients: GrowingArray
    scale: float
    pull: float
    norm2: float
    """|f'|^2."""
    inner: float
    """<f', g>."""
    guess2: float
    """|g|^2."""
    violations: int
    """Rounds with loss."""
    sampled: int
    """Violations whose own gradient was asked for."""
    restarts: int

    @property
    def size(self) -> int:
        """|S|."""
        return int(self.members.sum()) + len(self.coefficients) - len(self.members)


class Move(NamedTuple):
    """What a round with loss does: f' becomes shrink (f' + pull g + own k(x_t, .)), with the numbers of the new f'."""

    pull: float
    own: float
    shrink: float
    norm2: float
    inner: float


class Seen(NamedTuple):
    """A round in numbers: y, kappa, f'(x_t) and g(x_t)."""

    y: float
    kappa: float
    prime: float
    g: float


class Decision(NamedTuple):
    value: float
    move: Move | None
    slot: int
    """Of V that x_t takes; -1: none."""


def forecast(config: Bao2ksConfig, state: Bao2ksState, prime: float, g: float) -> float:
    """f_t(x_t), for f'(x_t) and g(x_t). Raises DivergedError."""
    rate = config.eta(state.t + 1)
    shrink, _ = _into_ball(config, state, state.norm2 + rate * (2.0 * state.inner + rate * state.guess2))
    return shrink * (prime + rate * g)


def decide(config: Bao2ksConfig, state: Bao2ksState, seen: Seen, rng: RoundRng) -> Decision:
    """The next round. Changes nothing. Raises DivergedError."""
    t = state.t + 1
    value = forecast(config, state, seen.prime, seen.g)
    # Both are drawn whatever happens, so that the coins of a round do not depend on one another.
    coin, place = rng.uniforms(2)
    move = _move(config, state, seen, coin, rng) if rng.decide(seen.y * value < 1.0) else None
    if t <= config.reservoir:
        return Decision(value, move, t - 1)
    slot = int(place * t)
    return Decision(value, move, rng.pick(slot + 1 if slot < config.reservoir else 0) - 1)


def _move(config: Bao2ksConfig, state: Bao2ksState, seen: Seen, coin: float, rng: RoundRng) -> Move:
    """What a round with loss does."""
    y, kappa, prime, g = seen
    N, p = state.guess2, 0.0
    error2 = kappa - 2.0 * y * g + N
    if error2 > ROUNDING * (kappa + N):
        error = math.sqrt(error2)
        p = error / (config.thinning * (error + _length(N, kappa)))
    weight = 1.0 / p if rng.decide(coin < p) and p > 0.0 else 0.0
    rate = config.eta(state.t + 1)
    pull, own = rate * (1.0 - weight), rate * weight * y
    inner = state.inner + pull * N + own * g
    norm2 = state.norm2 + pull * (state.inner + inner + own * g) + own * (2.0 * prime + own * kappa)
    shrink, norm2 = _into_ball(config, state, norm2)
    return Move(pull, own, shrink, norm2, shrink * inner)


def _length(square: float, kappa: float) -> float:
    """|g| from |g|^2: its root, and linear where that is rounding of kappa, which the root would magnify to its own."""
    floor = ROUNDING * kappa
    return math.sqrt(square) if square > floor or square == 0.0 else square / math.sqrt(floor)


def take_stock(state: Bao2ksState, margin: float, guess2: float) -> None:
    """Carry in what the kernel says of a new V: <f' / scale, g> and |g|^2; nothing is pulled yet."""
    state.inner = state.scale * margin
    # Guesses of both labels cancel at one input, and what is left of 0 may be on either side.
    state.guess2 = max(guess2, 0.0)


def _into_ball(config: Bao2ksConfig, state: Bao2ksState, norm2: float) -> tuple[float, float]:
    """The factor that brings a function of this squared norm into the ball of radius U, and its squared norm then."""
    if norm2 <= config.norm_bound**2:
        return 1.0, max(norm2, 0.0)
    if not math.isfinite(norm2):
        raise DivergedError(f"round {state.t + 1} overflows; scale the inputs down, or take smaller steps")
    return config.norm_bound / math.sqrt(norm2), config.norm_bound**2


def carry(state: Bao2ksState, decision: Decision) -> tuple[float, float]:
    """Carry the numbers of a round into the state: all but V, S and the coefficients.

    The coefficient of x_t, 0 if it does not join S, and what the caller must multiply all others by.
    """
    state.t += 1
    move = decision.move
    if move is None:
        return 0.0, 1.0
    state.violations += 1
    state.sampled += move.own != 0.0
    state.members[: state.t - 1] = 1.0
    state.pull += move.pull / state.scale
    own = move.own / state.scale
    state.norm2, state.inner = move.norm2, move.inner
    state.scale *= move.shrink
    if state.scale >= SMALLEST_SCALE:
        return own, 1.0
    factor, state.scale = state.scale, 1.0
    state.pull *= factor
    return factor * own, factor


def restart(state: Bao2ksState) -> None:
    """f' = 0 and S is empty; the caller drops points and coefficients."""
    state.members[:] = 0.0
    state.scale = 1.0
    state.pull = state.norm2 = state.inner = 0.0
    state.restarts += 1
