r"""Ahpatron: a Perceptron that also learns from small margins; when the budget is used up, half of its points stand for all.

| symbol  | meaning                                                         | shape    | in [liao2024] |
|---------|-----------------------------------------------------------------|----------|---------------|
| f       | the function learned, sum_i a_i k(x_i, .); value = f(x_t)       |          | f_t           |
| nu      | its norm, nu^2 = a^T K a                                        |          |               |
| B       | budget: stored points at most, even                             |          | B             |
| U       | radius of the ball that f stays in, sqrt(B) / 2                 |          | U             |
| lambda  | the weight of a new point, U / sqrt(4 B) = 1 / 4                |          | lambda        |
| epsilon | a round is learned if y_t f(x_t) < 1 - epsilon                  |          | epsilon       |
| eta     | ridge of the projection                                         |          | eta           |
| I, J    | the points that stay, the B / 2 oldest with \|a_i\| >= the median, and the others | (B / 2,) | |

A full dictionary gives its part J to I: a_I <- a_I + (K_II + eta I)^{-1} K_IJ a_J, scaled to the norm nu that f had.

References: [liao2024].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import KERNEL_WORK
from okl_core.errors import DivergedError
from okl_core.first_order.steps import kernel_sum
from okl_core.learners.ahpatron.ahpatron_state import AhpatronConfig, AhpatronState, Half, halved
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, Forecast, Round

WEIGHT = 0.25
"""lambda: U / sqrt(4 B) with U = sqrt(B) / 2, whatever B is."""

LARGEST_KAPPA = 1e100
"""Of an input; the norms of larger ones would overflow."""


@dataclass(slots=True)
class AhpatronRound(Round):
    is_learned: bool
    half: Half | None
    norm: float
    """|f| after the round, before it is scaled into the ball."""
    price: float
    """What the round adds to `bound`."""


@final
@register
class Ahpatron(Learner[AhpatronConfig, AhpatronState, AhpatronRound]):
    r"""A Perceptron with a margin on a budget: a full dictionary is halved, the removed half projected onto the rest.

    A round with y f(x) < 1 - epsilon adds y k(x_t, .) / 4; a full dictionary is halved before. Then f
    is scaled into the ball of radius sqrt(B) / 2. Time O(d B), in a round that halves O(d B^2 + B^3), once in B / 2 rounds
    that learn; memory O(d B).

    Notes
    -----
    Against every function of norm U at most the cumulative hinge loss exceeds by `bound` at most, our own (docs/theorems.md,
    theorem 8): with f~ for what a halving leaves of f, U^2 / (2 lambda) plus in every round

        lambda kappa / 2 + (U / lambda) |f~ - f| + y (f~ - f)(x_t)      if it is learned,
        its loss                                                        if not.

    Of [liao2024] the algorithm is the authors' program, U and lambda included; no constant of its mistake bound is claimed
    here. Against the program: the first round is one like others (the program counts it as a mistake; the function after it
    is the same), and any kernel is taken, where lambda is meant for k(x, x) = 1.

    References: [liao2024].

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "ahpatron", "config": {"budget": 2}}, dim=1)
    >>> for x in ([0.0], [5.0], [10.0]):
    ...     _ = learner.update(np.array(x), 1.0)
    >>> learner.describe()["dictionary"], round(learner.predict(np.array([10.0])).value, 3)
    (2, 0.25)
    """

    kind: ClassVar[str] = "ahpatron"
    references: ClassVar[tuple[str, ...]] = ("liao2024",)
    config_type = AhpatronConfig
    state_type = AhpatronState

    def loss(self, config: AhpatronConfig) -> Loss:
        return LOSSES["hinge"]

    def init(self, config: AhpatronConfig, dim: int) -> AhpatronState:
        return AhpatronState(0, config.kernel.points(dim), GrowingArray(), norm=0.0, halvings=0, price=0.0)

    def conditioning(self, config: AhpatronConfig, state: AhpatronState) -> float:
        # A solve with K_II + eta I may lift a rounding error by its condition.
        solved = config.budget / config.ridge if state.halvings else 1.0
        return max(1.0, config.kernel.mass(state.points, state.coefficients.view), solved)

    def extra_work(self, config: AhpatronConfig, state: AhpatronState, rounds: int) -> float:
        B = config.budget
        return B * B * (KERNEL_WORK + B / 24.0) if len(state.points) + rounds > B else 0.0

    def predict(self, config: AhpatronConfig, state: AhpatronState, x: F64) -> Forecast:
        value = kernel_sum(state.coefficients.view, config.kernel.row(state.points, x))
        return self.loss(config).forecast(value)

    def play(self, config: AhpatronConfig, state: AhpatronState, x: F64, y: float, rng: RoundRng) -> AhpatronRound:
        t, kappa = state.t + 1, config.kernel.at(x)
        row = config.kernel.row(state.points, x)
        value = kernel_sum(state.coefficients.view, row)
        if not kappa < LARGEST_KAPPA:
            raise DivergedError(f"round {t} overflows; scale the inputs down")
        is_learned = rng.decide(kappa > 0.0 and y * value < 1.0 - config.slack)
        loss = self.loss(config)
        price = cost = loss.value(value, y)
        half, norm = None, state.norm
        if is_learned:
            at_x, price = value, 0.5 * WEIGHT * kappa
            if len(state.points) >= config.budget:
                half = halved(config, state, rng)
                at_x, norm = kernel_sum(half.coefficients, row[half.kept]), half.norm
                price += config.radius / WEIGHT * half.moved + y * (at_x - value)
            norm = math.sqrt(max(norm * norm + WEIGHT * (WEIGHT * kappa + 2.0 * y * at_x), 0.0))
        forecast = loss.forecast(value)
        return AhpatronRound(t, x, y, forecast, cost, rng.choices(), is_learned, half, norm, price)

    def learn(self, config: AhpatronConfig, state: AhpatronState, played: AhpatronRound) -> None:
        state.t += 1
        state.price += played.price
        if not played.is_learned:
            return
        if (half := played.half) is not None:
            state.points.select(half.kept)
            state.coefficients.select(half.kept)
            state.coefficients.view[:] = half.coefficients
            state.halvings += 1
        state.points.append(played.x)
        state.coefficients.append(WEIGHT * played.y)
        state.norm = min(played.norm, config.radius)
        if played.norm > config.radius:
            state.coefficients.view[:] *= config.radius / played.norm

    def describe(self, config: AhpatronConfig, state: AhpatronState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": state.points.nbytes + state.coefficients.nbytes,
            "norm": state.norm,
            "halvings": state.halvings,
            "bound": config.radius**2 / (2.0 * WEIGHT) + state.price,
        }
