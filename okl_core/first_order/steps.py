r"""What first-order learners share: step sizes, the derivative of a round, and gradient descent on given features.

| symbol | meaning                                                  |
|--------|----------------------------------------------------------|
| eta    | step size of round t                                     |
| c      | step factor                                              |
| T      | rounds: the horizon, or the power of two that holds t    |
| g      | l'(value), the derivative at the value predicted for x_t |
| kappa  | k(x_t, x_t)                                              |
| C      | bound on the predictions of the squared loss             |
| w      | weights of the features z(x_t)                           |
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator
from scipy.linalg.blas import daxpy, ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.losses import LOSSES, LossName
from okl_core.types import F64, LearnerConfig

ON_THE_KINK = 1e-10
"""A value this near the truth, relative to it, has no loss: rounding alone would decide."""
SMALLEST_SCALE = 1e-9
"""A common factor of coefficients is multiplied out below this, long before it could underflow."""
LARGEST = 1e150
"""Values and steps stay below: then no sum of them overflows, and no square."""

STEP_FACTOR = 10.0
"""The default: on data of some thousand rounds it errs little more than the best, for kernels with k(x, x) = 1."""

StepSize = Literal["inverse-sqrt", "horizon"] | Annotated[float, Field(gt=0.0)]


class StepConfig(LearnerConfig):
    """Parameters that give the size of a step against the gradient."""

    step_size: StepSize = Field(
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
            raise ValueError("step_factor has no part in a step_size that is a number")
        if self.step_size != "horizon" and self.horizon is not None:
            raise ValueError('horizon belongs to step_size "horizon"')
        return self

    def eta(self, t: int) -> float:
        """The step size of round t >= 1."""
        if isinstance(self.step_size, float):
            return self.step_size
        T = t if self.step_size == "inverse-sqrt" else self.horizon_at(t)
        return self.step_factor / math.sqrt(T)

    def horizon_at(self, t: int) -> int:
        """T as it stands in round t."""
        return 1 << (t - 1).bit_length() if self.horizon is None else self.horizon


class FirstOrderConfig(StepConfig):
    """Parameters of every learner that takes a step of given size against the gradient."""

    loss: LossName = Field(default="hinge", description="The loss; squared takes numbers, the others labels.")
    clip: float | None = Field(
        default=1.0,
        gt=0.0,
        description="C, for the squared loss: predictions, and truths, lie in [-C, C]. null: any numbers.",
    )

    @property
    def forecast_bound(self) -> float:
        """C where forecasts are clipped, else infinity."""
        return self.clip if self.loss == "squared" and self.clip is not None else math.inf

    def value(self, m: float) -> float:
        """The forecast where the learned function is m."""
        C = self.forecast_bound
        return m if -C <= m <= C else math.copysign(C, m)


class Step(NamedTuple):
    """What a round does: the learned function becomes that plus weight k(x_t, .), if it `has_loss`."""

    value: float
    has_loss: bool
    weight: float
    """-eta g; 0 without loss."""


class Slope(NamedTuple):
    """What a round's truth says of its value."""

    loss: float
    """l'(value)."""
    has_loss: bool
    """Does the round change anything? A choice, recorded."""
    g: float
    """The derivative to step along: 0 without loss."""


def slope_at(name: LossName, value: float, y: float, kappa: float, rng: RoundRng) -> Slope:
    """The slope of the loss `name`, of a round with kappa = k(x_t, x_t)."""
    slope = LOSSES[name].derivative(value, y)
    is_off_the_kink = name == "logistic" or abs(y - value) > ON_THE_KINK * abs(y)
    if not rng.decide(slope != 0.0 and kappa > 0.0 and is_off_the_kink):
        return Slope(slope, False, 0.0)
    # On replay the recorded outcome counts, even where this value is on the other side of the kink of the hinge.
    return Slope(slope, True, -y if name == "hinge" else slope)


def decide(config: FirstOrderConfig, t: int, y: float, m: float, kappa: float, rng: RoundRng) -> Step:
    """The step of round t, for m the learned function at x_t. Changes nothing. Raises DivergedError."""
    value = config.value(m)
    _, has_loss, g = slope_at(config.loss, value, y, kappa, rng)
    weight = -config.eta(t) * g
    if not abs(m) + abs(weight) * max(1.0, kappa) < LARGEST:
        raise DivergedError(f"round {t} overflows; scale the inputs down, or take smaller steps")
    return Step(value, has_loss, weight)


def descend(
    config: FirstOrderConfig, t: int, w: F64, Z: F64, kappas: list[float], truths: list[float], rng: RoundRng
) -> list[float]:
    """The rounds after round t with the features Z, shape (n, D), in order: w <- w - eta g z. The values played.

    Writes into w, shape (D,) with D >= 1. Raises DivergedError.
    """
    return [step.value for step in descent(config, t, w, Z, kappas, truths, rng)]


def descent(
    config: FirstOrderConfig, t: int, w: F64, Z: F64, kappas: list[float], truths: list[float], rng: RoundRng
) -> list[Step]:
    """The steps of `descend`."""
    steps: list[Step] = []
    for i, (y, kappa) in enumerate(zip(truths, kappas, strict=True)):
        t += 1
        rng.at(t)
        z = Z[i]
        step = decide(config, t, y, ddot(w, z), kappa, rng)
        steps.append(step)
        if step.has_loss:
            daxpy(z, w, a=step.weight)
    return steps
