"""The parameters and the state of kernel OGD, in the letters of the table in `kernel_ogd_round`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.state import require_indices
from okl_core.first_order.in_blocks import KernelSumState
from okl_core.first_order.steps import ClippedConfig
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES

KernelStepSize = Literal["inverse-sqrt", "inverse-t"] | Annotated[float, Field(gt=0.0)]


class KernelOgdConfig(ClippedConfig):
    """Parameters of kernel OGD."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    step_size: KernelStepSize = Field(
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

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.step_size == "inverse-sqrt":
            if self.norm_bound is not None and LOSSES[self.loss].target == "real" and self.clip is None:
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
        """Is |f| kept? With a budget only for a norm bound, since each dropped point costs it a kernel row."""
        return self.norm_bound is not None or self.budget is None

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
class KernelOgdState(KernelSumState):
    """f = scale sum_i coefficients_i k(points_i, .). With a budget the points are a ring once there are B of them."""

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

    def __post_init__(self) -> None:
        KernelSumState.__post_init__(self)
        require_indices("oldest", np.array(self.oldest), max(0, len(self.points) - 1))

    @classmethod
    def empty(cls, config: KernelOgdConfig, dim: int) -> KernelOgdState:
        """The state before the first round."""
        return cls(
            t=0,
            points=config.kernel.points(dim),
            coefficients=GrowingArray(),
            oldest=0,
            scale=1.0,
            norm2=0.0,
            kappa=1.0 if config.kernel.translation_invariant else 0.0,
            dropped=0,
            bound_gradient=0.0,
        )
