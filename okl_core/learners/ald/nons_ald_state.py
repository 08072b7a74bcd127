r"""The parameters and the state of NONS-ALD, in the letters of the table in `nons_ald`, and what its rounds cost at most.

For every f with |f(x_t)| <= C in all rounds the regret is at most (docs/theorems.md, theorem 9)

    (mu / 2) |f|^2 + `bound_gradient` + `bound_missed` |f| + `bound_square` |f|^2,

three sums over the rounds. With a = sqrt(alpha) before x_t may join, b = a if it does not and 0 if it does, w = eta g^2,
and q of the clip and of the step,

| sum              | a round adds                                                                              |
|------------------|-------------------------------------------------------------------------------------------|
| `bound_gradient` | g^2 q / (2 (1 + w q)) - h^2 / (2 q); y^2 as long as there is no point                       |
| `bound_missed`   | a \|h\| / q + b \|g\| (1 + 2 C eta \|g\|)                                                     |
| `bound_square`   | b^2 w / 2                                                                                  |

A shipped step has g^2 q (1 + w q) / 2 + 2 C w |g| q in place of the first term, and b w |g| q more in the second sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from pydantic import Field

from okl_core.contract.state import require_lengths
from okl_core.kernels.points import Points
from okl_core.learners.ald.ald_dictionary import AldConfig
from okl_core.linalg.cholesky import Factor
from okl_core.losses import LOSSES
from okl_core.second_order.forgetting import HalfLife, LearnedHalfLife
from okl_core.second_order.posterior import Posterior
from okl_core.types import LearnerState, StatePart


class NonsAldConfig(AldConfig):
    """Parameters of NONS-ALD."""

    budget: int = Field(
        default=400,
        ge=1,
        description="Points at most, an addition of ours; when they are used up the dictionary stays.",
    )
    clip: float = Field(default=1.0, ge=1e-50, description="C: forecasts are clipped to [-C, C], and truths lie there.")
    regularization: float = Field(default=1.0, gt=0.0, description="mu: A_0 = mu I.")
    step: Literal["textbook", "shipped"] = Field(
        default="textbook",
        description="Which inverse a round without a new point takes its step by: that of A with the round (textbook), or "
        "that before it, as the authors' program does (shipped).",
    )
    half_life: LearnedHalfLife = None

    @property
    def forgetting(self) -> HalfLife:
        return HalfLife.of(self.half_life)

    @property
    def eta(self) -> float:
        """The step parameter: the curvature of the loss for forecasts and truths in [-C, C]."""
        return LOSSES["squared"].curvature(self.clip)


class Cost(NamedTuple):
    """What a round adds to the three sums of the module's table."""

    gradient: float
    missed: float
    square: float


def cost_of_clip(h: float, q: float, alpha: float) -> Cost:
    if h == 0.0 or q == 0.0:
        return Cost(0.0, 0.0, 0.0)
    return Cost(-0.5 * h * h / q, abs(h) / q * math.sqrt(alpha), 0.0)


def cost_of_step(config: NonsAldConfig, g: float, q: float, alpha: float, *, is_damped: bool) -> Cost:
    """`alpha`: of the dictionary with x_t, if x_t has joined. `is_damped`: the step has its D."""
    w, b, size = config.eta * g * g, math.sqrt(alpha), abs(g)
    missed, square = b * size * (1.0 + 2.0 * config.clip * config.eta * size), 0.5 * w * alpha
    if is_damped:
        return Cost(0.5 * g * g * q / (1.0 + w * q), missed, square)
    gradient = 0.5 * g * g * q * (1.0 + w * q) + 2.0 * config.clip * w * size * q
    return Cost(gradient, missed + b * w * size * q, square)


@final
@dataclass(slots=True)
class Costs(StatePart):
    """The three sums."""

    gradient: float
    missed: float
    square: float

    def add(self, cost: Cost) -> None:
        self.gradient += cost.gradient
        self.missed += cost.missed
        self.square += cost.square


@dataclass(slots=True)
class NonsAldState(LearnerState):
    """The dictionary with its factor, and v and P in the basis of it."""

    points: Points
    L: Factor
    posterior: Posterior
    costs: Costs

    def __post_init__(self) -> None:
        require_lengths(points=self.points, L=self.L, posterior=self.posterior)
