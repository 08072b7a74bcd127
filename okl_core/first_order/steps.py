r"""Shared code of first-order learners: step sizes, the derivative of a round, and gradient descent on given features.

| symbol | meaning                                                  |
|--------|----------------------------------------------------------|
| eta    | step size of round t                                     |
| c      | step factor                                              |
| T      | rounds: the horizon, or the smallest power of two >= t   |
| m      | the learned function at x_t                              |
| value  | the forecast: m, clipped to [-C, C] for the squared loss |
| g      | l'(value), the derivative of the loss of round t         |
| kappa  | k(x_t, x_t)                                              |
| w      | weights of the features z(x_t)                           |
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator
from scipy.linalg.blas import daxpy, ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.losses import LOSSES, Loss, LossName
from okl_core.types import F64, LearnerConfig

ON_THE_KINK = 1e-10
"""A forecast within this relative distance of the truth counts as having no loss; for labels, a margin y a of 1."""
SMALLEST_SCALE = 1e-9
"""Below this, a scale shared by all coefficients is multiplied into them, long before it could underflow."""
LARGEST = 1e150
"""Bound on values and steps: neither their sums nor their squares then overflow."""

STEP_FACTOR = 10.0
"""Default of c. With k(x, x) = 1, its error is little above that of the best c on data sets of a few thousand rounds."""

GradientStepSize = Literal["inverse-sqrt", "horizon"] | Annotated[float, Field(gt=0.0)]


class StepConfig(LearnerConfig):
    """Parameters that determine the size of a gradient step."""

    step_size: GradientStepSize = Field(
        default="inverse-sqrt",
        description="eta of round t: step_factor / sqrt(t) (inverse-sqrt), step_factor / sqrt(T) (horizon), or a number.",
    )
    step_factor: float = Field(
        default=STEP_FACTOR, gt=0.0, description="c: multiplies the step sizes that are not a number."
    )
    horizon: int | None = Field(
        default=None,
        ge=1,
        description='T, for the step size "horizon": rounds expected. null: the power of two that holds the rounds so far.',
    )

    @model_validator(mode="after")
    def _check_step(self) -> Self:
        if isinstance(self.step_size, float) and self.step_factor != STEP_FACTOR:
            raise ValueError("step_factor has no effect if step_size is a number")
        if self.step_size != "horizon" and self.horizon is not None:
            raise ValueError('horizon belongs to step_size "horizon"')
        return self

    def eta(self, t: int) -> float:
        """Return the step size of round t >= 1."""
        if isinstance(self.step_size, float):
            return self.step_size
        T = t if self.step_size == "inverse-sqrt" else self.horizon_at(t)
        return self.step_factor / math.sqrt(T)

    def horizon_at(self, t: int) -> int:
        """Return T in round t."""
        return self.horizon or open_horizon(t)


def open_horizon(t: int, first: int = 1) -> int:
    """Return the T of round t in a stream without a known end: the smallest power of two >= t, but at least `first`."""
    return max(first, 1 << (t - 1).bit_length())


class ClippedConfig(LearnerConfig):
    """The loss of a learner, and how far its forecasts may go."""

    loss: LossName = Field(default="hinge", description="The loss; squared takes numbers, the others labels.")
    clip: float | None = Field(
        default=1.0,
        gt=0.0,
        description="C, for the squared loss: predictions, and truths, lie in [-C, C]. null: any numbers.",
    )

    @property
    def forecast_bound(self) -> float:
        """C if forecasts are clipped, else infinity."""
        return math.inf if self.clip is None or LOSSES[self.loss].target != "real" else self.clip

    def value(self, m: float) -> float:
        """Return the forecast, given the value m of the learned function."""
        C = self.clip
        if C is None or LOSSES[self.loss].target != "real" or -C <= m <= C:
            return m
        return math.copysign(C, m)


class FirstOrderConfig(ClippedConfig, StepConfig):
    """Parameters of a learner that takes gradient steps f <- f - eta g k(x_t, .)."""


def kernel_sum(a: F64, row: F64) -> float:
    """Return f(x) = sum_i a_i k(x_i, x) for coefficients and a kernel row, shapes (s,)."""
    # scipy's BLAS calls cost a third of numpy's, but reject empty arrays.
    return ddot(a, row) if len(row) else 0.0


def into_ball(norm2: float, U: float) -> tuple[float, float]:
    """Return the factor that projects a function with |f|^2 = `norm2` to the ball of radius U, and |f|^2 after that.

    Rounding may have left less than 0; a NaN stays one.
    """
    return (U / math.sqrt(norm2), U * U) if norm2 > U * U else (1.0, max(norm2, 0.0))


def folded(scale: float) -> tuple[float, float]:
    """Return the scale that coefficients keep, and the factor to multiply into them: 1 unless the scale is below a limit."""
    return (scale, 1.0) if scale >= SMALLEST_SCALE else (1.0, scale)


class RecordedSlope(NamedTuple):
    """The derivative of a round's loss, and whether the round takes a step along it."""

    at_value: float
    """l'(value)."""
    has_loss: bool
    """A recorded choice: replay follows it, even if rounding puts the value on the other side of a kink."""
    g: float
    """The derivative on the recorded side; 0 without loss."""


def recorded_slope(loss: Loss, value: float, y: float, kappa: float, rng: RoundRng) -> RecordedSlope:
    """Compute the slope of a round with the forecast `value` and kappa = k(x_t, x_t). Record one choice."""
    slope = loss.derivative(value, y)
    has_loss = slope != 0.0 and kappa > 0.0
    if has_loss and loss.has_flat_part:
        # Rounding alone would decide where the derivative jumps to 0 or passes through it.
        has_loss = abs(y - value) > ON_THE_KINK * abs(y)
    has_loss = rng.decide(has_loss)
    return RecordedSlope(slope, has_loss, loss.side(value, y, has_loss))


class GradientStep(NamedTuple):
    """A round's forecast and step: with `has_loss`, `weight` k(x_t, .) is added to the learned function."""

    value: float
    has_loss: bool
    weight: float
    """-eta g; 0 without loss."""


def gradient_step(config: FirstOrderConfig, t: int, y: float, m: float, kappa: float, rng: RoundRng) -> GradientStep:
    """Compute the step of round t, given the value m of the learned function at x_t. Raise DivergedError on overflow."""
    loss, value = LOSSES[config.loss], config.value(m)
    _, has_loss, g = recorded_slope(loss, value, y, kappa, rng)
    weight = -config.eta(t) * g
    if not abs(m) + abs(weight) * max(1.0, kappa) < LARGEST:
        raise DivergedError(f"round {t} overflows; scale the inputs down, or take smaller steps")
    return GradientStep(value, has_loss, weight)


def descend(
    config: FirstOrderConfig,
    t: int,
    w: F64,  # (D,), D >= 1
    Z: F64,  # (n, D)
    kappas: list[float],
    truths: list[float],
    rng: RoundRng,
) -> list[GradientStep]:
    """Take the steps w <- w - eta g z of the n rounds after round t, with the features Z, in place.

    Raise DivergedError on overflow.
    """
    steps: list[GradientStep] = []
    for i, (y, kappa) in enumerate(zip(truths, kappas, strict=True)):
        t += 1
        rng.at(t)
        z = Z[i]
        step = gradient_step(config, t, y, ddot(w, z), kappa, rng)
        steps.append(step)
        if step.has_loss:
            daxpy(z, w, a=step.weight)
    return steps
