r"""The online Newton step as a rule of (m, q, y): what KONS, its sketch, its Nystrom form and linear ONS have in common.

| symbol | meaning                                                              | in [calandriello2017] |
|--------|----------------------------------------------------------------------|-----------------------|
| C      | bound on the predictions, of the learner and of those it competes with | section 2           |
| alpha  | regularization, A_0 = alpha I                                        | algorithm 1           |
| eta    | step size of round t                                                 | algorithm 1           |
| sigma  | curvature of the loss on [-C, C]; 0 if it has none                   | assumption 2          |
| L      | largest \|l'\| on [-C, C]                                            | assumption 1          |
| g      | l'(value), the derivative at the point played                        | algorithm 1           |
| w      | eta g^2, the weight of phi_t phi_t^T in A_t                          | lemma 1               |
| m, q   | phi_t^T u_t and phi_t^T A_{t-1}^{-1} phi_t, of the engine            | lemma 2               |
| h(m)   | sign(m) max(\|m\| - C, 0) = m - clip(m): what the projection takes off | lemma 2             |
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Protocol, Self

from pydantic import Field, model_validator

from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, LossName
from okl_core.second_order.engine import Decision, Rule
from okl_core.second_order.engine_learner import EngineConfig
from okl_core.types import REALS, Interval, LearnerConfig

BORDER = 1e-10
"""An m this near to +-C, relative to C, is +-C. A projection ends there, and when its input comes again rounding alone
would decide whether the round has a derivative or a projection, and is stored for it."""

Step = Literal["curvature", "half-curvature", "adaptive", "inverse-sqrt"] | Annotated[float, Field(gt=0.0)]


class NewtonConfig(LearnerConfig):
    """What every online Newton step is given. The default step size is that of [calandriello2017]."""

    loss: LossName = Field(default="squared", description="The loss; squared takes |y| <= clip, the others labels.")
    clip: float = Field(default=1.0, ge=1e-50, description="C: bound on the predictions.")
    regularization: float = Field(default=1.0, gt=0.0, description="alpha: A_0 = alpha I.")
    step: Step = Field(
        default="curvature",
        description="eta: the loss's curvature on [-C, C], half of it, its curvature at the point played (adaptive), "
        "1 / (L C sqrt(t)) (inverse-sqrt), or a number.",
    )

    @model_validator(mode="after")
    def _step_fits_loss(self) -> Self:
        if self.loss == "hinge" and self.step in ("curvature", "half-curvature", "adaptive"):
            raise ValueError('the hinge loss has no curvature; step must be "inverse-sqrt" or a number')
        return self

    @property
    def truth_range(self) -> Interval:
        """The truths that the loss's constants are made for."""
        return (-self.clip, self.clip) if self.loss == "squared" else REALS


class KernelNewtonConfig(EngineConfig, NewtonConfig):
    """What an online Newton step on the engine is given.

    A window needs adaptive steps. The quadratics of the others are flatter than the loss, with minima far beyond its own:
    it takes all of them to balance. Those of the last rounds alone throw the function from side to side, and its error is
    several times that of no window, under a drift too.
    """

    @model_validator(mode="after")
    def _step_fits_window(self) -> Self:
        if self.window is not None and self.step != "adaptive":
            raise ValueError(
                'a window needs step "adaptive": with others the function swings once rounds are forgotten'
            )
        return self


class BoundState(Protocol):
    """The cumulative loss and the running terms of the regret bound."""

    loss: float
    bound_gradient: float
    bound_step: float


def clipped(config: NewtonConfig, m: float) -> float:
    """m, projected to [-C, C]."""
    C = config.clip
    return m if abs(m) < C * (1.0 - BORDER) else math.copysign(C, m)


def newton_rule(config: NewtonConfig, rng: RoundRng) -> Rule:
    """The KONS row of the engine's table: w = eta g^2, c = w value - g - h(m) / q."""

    C = config.clip

    def rule(m: float, q: float, y: float, t: int) -> Decision:
        rng.at(t)
        value = clipped(config, m)
        g = _derivative(config, value, y, rng)
        w = _weight(config, value, g, y, t)
        # What `account` adds up, and the loss, must be finite before the round is learned.
        require_finite(t, w * q, g * g * (1.0 + q))
        h_over_q = (m - value) / q if q > 0.0 and abs(m) > C * (1.0 + BORDER) else 0.0
        rho_delta = -(g + h_over_q * (1.0 + w * q)) / math.sqrt(w) if w > 0.0 else 0.0
        return Decision(value, w, -g - h_over_q, rho_delta, g)

    return rule


def _derivative(config: NewtonConfig, value: float, y: float, rng: RoundRng) -> float:
    """g. The hinge's jumps at its kink, so that the side is a choice to record."""
    if config.loss == "hinge":
        return -y if rng.decide(y * value < 1.0) else 0.0
    return LOSSES[config.loss].derivative(value, y)


def _weight(config: NewtonConfig, value: float, g: float, y: float, t: int) -> float:
    """w = eta g^2."""
    loss, C = LOSSES[config.loss], config.clip
    if config.step == "adaptive":
        return loss.weight(value, y, C)
    if config.step == "curvature":
        return loss.curvature(C) * (g * g)
    if config.step == "half-curvature":
        return 0.5 * loss.curvature(C) * (g * g)
    if config.step == "inverse-sqrt":
        return (g * g) / (loss.lipschitz(C) * C * math.sqrt(t))
    return config.step * (g * g)


def account(config: NewtonConfig, state: BoundState, loss: float, q: float, decision: Decision) -> None:
    """Add a round to the cumulative loss and to the terms of the bound."""
    C, w, g = config.clip, decision.w, decision.g
    state.loss += loss
    state.bound_gradient += 0.5 * g * g * q / (1.0 + w * q)
    excess = 0.0 if config.step == "adaptive" else w - LOSSES[config.loss].curvature(C) * (g * g)
    if excess > 0.0:
        state.bound_step += 2.0 * C * C * excess
