"""What a round of kernel OGD decides and what it changes, as numbers: a round at a time and a block of rounds share both.

References: [kivinen2004].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.first_order.steps import SMALLEST_SCALE, slope_at
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, LossName
from okl_core.types import LearnerConfig, LearnerState

StepSize = Literal["inverse-sqrt", "inverse-t"] | Annotated[float, Field(gt=0.0)]


class KernelOgdConfig(LearnerConfig):
    """Parameters of kernel OGD."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    loss: LossName = Field(default="hinge", description="The loss; squared takes numbers, the others labels.")
    step_size: StepSize = Field(
        default="inverse-sqrt",
        description="eta of round t: step_factor / sqrt(t), times U / (L sqrt(D)) if there is a norm_bound "
        "(inverse-sqrt), 1 / (lambda t) (inverse-t), or a number.",
    )
    step_factor: float = Field(default=1.0, gt=0.0, description="Multiplies the step sizes of inverse-sqrt.")
    regularization: float = Field(default=0.0, ge=0.0, description="lambda: adds (lambda / 2) |f|^2 to every loss.")
    norm_bound: float | None = Field(
        default=25.0, gt=0.0, description="U: largest norm of the function learned. null: no bound."
    )
    budget: int | None = Field(
        default=None, ge=1, description="B: stored points; one more drops the oldest. null: all are kept."
    )
    clip: float | None = Field(
        default=1.0,
        gt=0.0,
        description="C, for the squared loss: predictions, and truths, lie in [-C, C]. null: any numbers.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.step_size == "inverse-sqrt":
            if self.norm_bound is not None and self.loss == "squared" and self.clip is None:
                raise ValueError("the squared loss has no Lipschitz constant: give a clip, or step_size as a number")
        elif self.step_factor != 1.0:
            raise ValueError('step_factor belongs to step_size "inverse-sqrt"')
        if self.step_size == "inverse-t" and not self.regularization:
            raise ValueError('step_size "inverse-t" is 1 / (regularization t); give a regularization')
        if isinstance(self.step_size, float) and self.step_size * self.regularization > 1.0:
            raise ValueError(f"step_size is {self.step_size}; it must be at most 1 / regularization")
        return self

    @property
    def has_norm(self) -> bool:
        """Is |f| kept? A dropped point costs it a kernel row, which is paid for a norm bound only."""
        return self.norm_bound is not None or self.budget is None

    @property
    def forecast_bound(self) -> float:
        """C where forecasts are clipped, else infinity."""
        return self.clip if self.loss == "squared" and self.clip is not None else math.inf

    def eta(self, t: int, D: float) -> float:
        """The step size of round t, where D is the largest k(x, x) so far; at most 1 / lambda."""
        if isinstance(self.step_size, float):
            return self.step_size
        if self.step_size == "inverse-t":
            return 1.0 / (self.regularization * t)
        eta = self.step_factor / math.sqrt(t)
        if self.norm_bound is not None:
            largest = self.norm_bound * math.sqrt(D)
            L = LOSSES[self.loss].lipschitz(min(largest, self.forecast_bound))
            # As long as D = 0 every function is 0.
            eta *= self.norm_bound / (L * math.sqrt(D)) if D > 0.0 else 0.0
        return min(eta, 1.0 / self.regularization) if self.regularization else eta


@dataclass(slots=True)
class KernelOgdState(LearnerState):
    """f = scale sum_i coefficients_i k(points_i, .). With a budget the points are a ring once there are B of them."""

    points: Points
    coefficients: GrowingArray
    oldest: int
    """Index of the point that is dropped next."""
    scale: float
    norm2: float
    """|f|^2; 0 where it is not kept."""
    kappa: float
    """D: the largest k(x, x) so far, 1 where the kernel has that bound."""
    dropped: int
    bound_gradient: float
    """1/2 sum eta |g k(x_t, .) + lambda f|^2; 0 where |f| is not kept."""


class Oldest(NamedTuple):
    """The point that a round drops, before the round: its coefficient, f and k(., x_t) at it, its k(x, x)."""

    coefficient: float
    f: float
    k: float
    kappa: float


class Step(NamedTuple):
    """What a round does: f becomes shrink f + weight k(x_t, .), without the oldest point where one is dropped."""

    value: float
    is_stored: bool
    shrink: float
    weight: float
    norm2: float
    kappa: float
    bound_gradient: float


def decide(
    config: KernelOgdConfig,
    state: KernelOgdState,
    y: float,
    m: float,
    kappa: float,
    drop: Callable[[], Oldest] | None,
    rng: RoundRng,
) -> Step:
    """The step of the next round, for m = f(x_t) and kappa = k(x_t, x_t). Changes nothing. Raises DivergedError.

    `drop` gives the point that goes if x_t is stored; None where none does, or where |f| is not kept.
    """
    C, lambda_, t = config.forecast_bound, config.regularization, state.t + 1
    D = kappa if kappa > state.kappa else state.kappa
    eta = config.eta(t, D)
    value = m if -C <= m <= C else math.copysign(C, m)
    slope, is_stored, g = slope_at(config.loss, value, y, kappa, rng)
    shrink, weight = 1.0 - eta * lambda_, -eta * g
    norm2, bound_gradient = state.norm2, state.bound_gradient
    if config.has_norm:
        bound_gradient += 0.5 * eta * (g * g * kappa + lambda_ * (2.0 * g * m + lambda_ * norm2))
        norm2 = shrink * shrink * norm2 + weight * (2.0 * shrink * m + weight * kappa)
        if is_stored and drop is not None:
            a, f, k, own = drop()
            a *= shrink
            norm2 += a * (a * own - 2.0 * (shrink * f + weight * k))
        if norm2 < 0.0:
            norm2 = 0.0
        U = config.norm_bound
        if U is not None and norm2 > U * U:
            back = U / math.sqrt(norm2)
            shrink, weight, norm2 = back * shrink, back * weight, U * U
    # The squared losses are a fourth of slope^2, and must be finite before the round is learned.
    if not math.isfinite(m + weight + slope * slope + norm2 + bound_gradient):
        raise DivergedError(f"round {t} overflows; scale the inputs down, or take smaller steps")
    return Step(value, is_stored, shrink, weight, norm2, D, bound_gradient)


def carry(state: KernelOgdState, step: Step) -> float:
    """Carry the numbers of a step into the state, all but the points and coefficients. The new factor of the latter."""
    state.t += 1
    state.norm2, state.kappa, state.bound_gradient = step.norm2, step.kappa, step.bound_gradient
    state.scale *= step.shrink
    if state.scale >= SMALLEST_SCALE:
        return 1.0
    factor, state.scale = state.scale, 1.0
    return factor
