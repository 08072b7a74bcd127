r"""The online Newton step: the rule of KONS, its sketch, its Nystrom form and linear ONS.

| symbol | meaning                                                              | in [calandriello2017] |
|--------|----------------------------------------------------------------------|-----------------------|
| C      | bound on the predictions of the learner and of the comparators       | section 2             |
| alpha  | regularization, A_0 = alpha I                                        | algorithm 1           |
| eta    | step size of round t                                                 | algorithm 1           |
| sigma  | curvature of the loss on [-C, C]; 0 if it has none                   | assumption 2          |
| L      | largest \|l'\| on [-C, C]                                            | assumption 1          |
| g      | l'(value), the derivative at the point played                        | algorithm 1           |
| w      | eta g^2, the weight of phi_t phi_t^T in A_t                          | lemma 1               |
| m, q   | phi_t^T u_t and phi_t^T A_{t-1}^{-1} phi_t, of the engine            | lemma 2               |
| h(m)   | sign(m) max(\|m\| - C, 0) = m - clip(m), removed by the projection   | lemma 2               |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Self, final

from pydantic import Field, model_validator

from okl_core.contract.learned_half_life import LEARNED
from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, Loss, LossName
from okl_core.second_order.kernel_space import KernelSpaceConfig
from okl_core.second_order.space_and_rule import Decision, Moments, Totals, each_weighted
from okl_core.types import F64, REALS, Interval, LearnerConfig

BORDER = 1e-10
"""An m within this distance of +-C, relative to C, counts as +-C. A projection ends there; when its input recurs, rounding
alone would decide whether the round has a derivative or a projection, for which it is stored."""

CALM_ALPHA, CALM_ROUNDS = 1.0, 256
"""With a regularization or a memory of at least this, squared hinge does not amplify rounding; see `NewtonConfig.swings`."""

Step = Literal["curvature", "half-curvature", "adaptive", "inverse-sqrt"] | Annotated[float, Field(gt=0.0)]


class NewtonConfig(LearnerConfig):
    """Parameters of every online Newton step. The default step size is that of [calandriello2017]."""

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
        has_curvature = LOSSES[self.loss].curvature(self.clip) > 0.0
        if self.step in ("curvature", "half-curvature", "adaptive") and not has_curvature:
            raise ValueError(f'the {self.loss} loss has no curvature; step must be "inverse-sqrt" or a number')
        return self

    @property
    def rule(self) -> NewtonRule:
        return NewtonRule(LOSSES[self.loss], self.clip, self.step)

    def swings(self, rounds: int | Literal["learned"] | None, is_bounded: bool) -> tuple[str, ...]:
        """Return a caution if the steps amplify rounding with a memory of this many rounds, else an empty tuple.

        Just short of its margin, squared hinge has almost no weight, and if most rounds lie beyond the margin, a short memory
        forgets A down to alpha I. A round then turns the distance s to the margin into (1 - 2 q) s: it overshoots, by more
        than s if q is above 1. Two runs that differ by 1e-16 may differ by 0.2 after 300 rounds. With alpha >= k(x, x), q is
        at most 1; `is_bounded`: k(x, x) is 1. With alpha 0.1, runs of 500 rounds were also calm for half-lives of 256 rounds
        or more. With C at most 1, no prediction exceeds the margin.
        """
        is_short = rounds is not None and (rounds == LEARNED or rounds < CALM_ROUNDS)
        is_calm = self.clip <= 1.0 or (is_bounded and self.regularization >= CALM_ALPHA)
        if not is_short or self.loss != "squared-hinge" or is_calm:
            return ()
        remedy = f"{CALM_ALPHA:g} or more" if is_bounded else "k(x, x) or more"
        return (
            f"squared-hinge loss with a short memory and regularization {self.regularization:g} may amplify rounding from "
            f"round to round, until a replay on another processor differs: take {remedy}, or logistic loss",
        )


class KernelNewtonConfig(NewtonConfig, KernelSpaceConfig):
    """Parameters of an online Newton step in the whole feature space.

    A window needs adaptive steps. The quadratics of other steps are flatter than the loss, with minima far beyond its own:
    only all of them together balance. Those of the last rounds alone make the function swing, with several times the error
    of no window, even under drift. A half-life forgets gradually, so other steps work too, though worse the shorter it is.
    """

    @model_validator(mode="after")
    def _step_fits_window(self) -> Self:
        if self.window is not None and self.step != "adaptive":
            raise ValueError(
                'a window needs step "adaptive": with others the function swings once rounds are forgotten'
            )
        return self

    @property
    def cautions(self) -> tuple[str, ...]:
        if self.kernel.translation_invariant or self.step not in ("curvature", "half-curvature"):
            memory = self.half_life if self.window is None else self.window
            return self.swings(memory, self.kernel.translation_invariant)
        return (
            f'step "{self.step}" with a kernel that is not bounded may amplify rounding from round to round, until a replay '
            'on another processor differs: take step "adaptive"',
        )


@final
@dataclass(slots=True)
class NewtonTotals(Totals):
    """The running terms of the regret bound."""

    bound_gradient: float
    bound_step: float


@final
class NewtonRule(NamedTuple):
    """w = eta g^2, c = w value - g - h(m) / q; the decision has this c at w = 0, as a sketch leaves w out of both.

    `issued`: the forecast, if it was made before some of the rounds in m and q; nothing is projected then, c = w value - g.

    A weight omega multiplies eta g^2 and g, but not the projection. The term of `bound_gradient` is then
    1/2 omega^2 g^2 q / (1 + w q), where w includes omega: at most the largest omega times what the logarithm bounds.
    """

    loss: Loss
    clip: float
    step: Step
    weight: float = 1.0
    issued: float | None = None
    needs_variance = False

    @property
    def truth_range(self) -> Interval:
        """The truths for which the loss's constants hold."""
        return (-self.clip, self.clip) if self.loss.target == "real" else REALS

    def weighted(self, weight: float) -> Self:
        return self._replace(weight=weight)

    def after(self, totals: NewtonTotals, t: int) -> Self:
        return self

    def along(self, totals: NewtonTotals, t: int, weights: F64 | None) -> Iterator[Self]:
        return each_weighted(self, weights)

    def at(self, issued: float) -> Self:
        """Return the same rule for a round whose forecast has already been issued."""
        return self._replace(issued=issued)

    def value(self, m: float, q: float) -> float:
        """Return m, projected to [-C, C]."""
        C = self.clip
        return m if abs(m) < C * (1.0 - BORDER) else math.copysign(C, m)

    def is_idle(self, m: float, y: float) -> bool:
        """Whether y m is beyond the margin of the loss; not for a loss with a kink, whose side is a recorded choice."""
        return self.loss.has_margin and 1.0 <= y * m <= self.clip > 1.0 and not self.loss.kink and self.issued is None

    def decide(self, moments: Moments, y: float, t: int, rng: RoundRng) -> Decision:
        m, q, _ = moments
        value = self.value(m, q) if self.issued is None else self.issued
        g = self._derivative(value, y, rng)
        w, heavy = self.weight * self._weight(value, g, y, t), self.weight * g
        # The terms that `add` sums, and the loss, must be finite before the round is learned.
        require_finite(t, w * q, heavy * heavy * (1.0 + q))
        if self.issued is not None:
            rho_delta = -(heavy + w * (m - value)) / math.sqrt(w) if w > 0.0 else 0.0
            return Decision(value, w, w * value - heavy, rho_delta, g)
        h_over_q = (m - value) / q if q > 0.0 and abs(m) > self.clip * (1.0 + BORDER) else 0.0
        rho_delta = -(heavy + h_over_q * (1.0 + w * q)) / math.sqrt(w) if w > 0.0 else 0.0
        return Decision(value, w, -heavy - h_over_q, rho_delta, g)

    def _derivative(self, value: float, y: float, rng: RoundRng) -> float:
        """Return g, recording the side of a kink as a choice."""
        if self.loss.kink:
            return self.loss.side(value, y, rng.decide(self.loss.derivative(value, y) != 0.0))
        return self.loss.derivative(value, y)

    def _weight(self, value: float, g: float, y: float, t: int) -> float:
        """Return w = eta g^2."""
        loss, C, step = self.loss, self.clip, self.step
        if step == "adaptive":
            return loss.weight(value, y, C)
        if step == "curvature":
            return loss.curvature(C) * (g * g)
        if step == "half-curvature":
            return 0.5 * loss.curvature(C) * (g * g)
        if step == "inverse-sqrt":
            return (g * g) / (loss.lipschitz(C) * C * math.sqrt(t))
        return step * (g * g)

    def totals(self) -> NewtonTotals:
        return NewtonTotals(0.0, 0.0, 0.0)

    def add(self, totals: NewtonTotals, loss: float, q: float, decision: Decision) -> None:
        w, g, omega = decision.w, decision.g, self.weight
        totals.loss += omega * loss
        totals.bound_gradient += 0.5 * (omega * g) * (omega * g) * q / (1.0 + w * q)
        excess = 0.0 if self.step == "adaptive" else w - omega * self.loss.curvature(self.clip) * (g * g)
        if excess > 0.0:
            totals.bound_step += 2.0 * self.clip * self.clip * excess

    def describe(self, totals: NewtonTotals, log_det: float) -> dict[str, float]:
        return {"bound_gradient": totals.bound_gradient, "bound_step": totals.bound_step}
