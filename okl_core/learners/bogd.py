r"""BOGD, budgeted online gradient descent: when the budget is used up, a random point is removed.

| symbol | meaning                                          | in [zhao2012] |
|--------|--------------------------------------------------|---------------|
| f      | the function learned, sum_i a_i k(x_i, .)        | f_t           |
| B      | budget: stored points at most                    | B             |
| eta    | step size of round t                             | eta           |
| lambda | weight of \|f\|^2 / 2 in every loss              | lambda        |
| g      | l'(value)                                        | l'            |
| c_max  | largest coefficient                              | eta gamma     |

References: [zhao2012].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.first_order.in_blocks import BLOCK, KernelSumBlock, KernelSumState, run_in_blocks
from okl_core.first_order.steps import FirstOrderConfig, GradientStep, gradient_step, kernel_sum
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Interval, Round


class BogdConfig(FirstOrderConfig):
    """Parameters of BOGD."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    budget: int = Field(default=400, ge=2, description="B: stored points; one more removes a random one.")
    regularization: float = Field(default=0.0, ge=0.0, description="lambda: adds (lambda / 2) |f|^2 to every loss.")
    coefficient_bound: float | None = Field(
        default=0.2, gt=0.0, description="c_max: no coefficient is larger. null: no bound."
    )

    @model_validator(mode="after")
    def _check_shrinkage(self) -> Self:
        if self.eta(1) * self.regularization > 1.0:
            raise ValueError(f"the first step is {self.eta(1)}; it must be at most 1 / regularization")
        return self


@dataclass(slots=True)
class BogdState(KernelSumState):
    """The function f = sum_i coefficients_i k(points_i, .)."""

    removed: int


@dataclass(slots=True)
class BogdRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    step: GradientStep
    slot: int
    """The slot that x_t takes if it is stored: that of the removed point, or the next free one."""


@final
@register
class Bogd(Learner[BogdConfig, BogdState, BogdRound]):
    r"""Kernel gradient descent on a budget that removes a random point: first-order, O(d B), follows drifting streams.

        f <- (1 - eta lambda) f - eta g k(x_t, .).

    If the round has a loss and B points are stored, one of them, drawn uniformly, is removed first, and the coefficients
    of the others are multiplied by B / (B - 1): the mean of f over the draw stays the same. Last, all coefficients are
    cut to [-c_max, c_max]. Time O(d B) a round and memory O(d B).

    Notes
    -----
    The regret, in the mean over the draws, is of the order of sqrt(T) + T / sqrt(B).

    Against the paper: lambda may be 0; c_max does not depend on eta; a coefficient above c_max is cut, where the paper
    scales all of them down.

    References: [zhao2012], with uniform sampling.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "bogd", "config": {"budget": 2, "coefficient_bound": 0.5}}, dim=1)
    >>> for x in ([0.0], [5.0], [10.0]):
    ...     _ = learner.update(np.array(x), 1.0)
    >>> learner.describe()["dictionary"], round(learner.predict(np.array([10.0])).value, 3)
    (2, 0.5)
    """

    kind: ClassVar[str] = "bogd"
    references: ClassVar[tuple[str, ...]] = ("zhao2012",)
    config_type = BogdConfig
    state_type = BogdState

    def loss(self, config: BogdConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: BogdConfig) -> Interval:
        return -config.forecast_bound, config.forecast_bound

    def init(self, config: BogdConfig, dim: int) -> BogdState:
        return BogdState(0, config.kernel.points(dim), GrowingArray(), removed=0)

    def conditioning(self, config: BogdConfig, state: BogdState) -> float:
        return max(1.0, config.kernel.mass(state.points, state.coefficients.view))

    def predict(self, config: BogdConfig, state: BogdState, x: F64) -> Forecast:
        m = kernel_sum(state.coefficients.view, config.kernel.row(state.points, x))
        return self.loss(config).forecast(config.value(m))

    def play(self, config: BogdConfig, state: BogdState, x: F64, y: float, rng: RoundRng) -> BogdRound:
        t, point = state.t + 1, state.points.encode(x)
        m = kernel_sum(state.coefficients.view, config.kernel.encoded_row(state.points, point))
        step = gradient_step(config, t, y, m, config.kernel.at(x), rng)
        slot = _slot(config, step, len(state.points), rng)
        loss = self.loss(config)
        forecast = loss.forecast(step.value)
        return BogdRound(t, x, y, forecast, loss.value(step.value, y), rng.choices(), point, step, slot)

    def learn(self, config: BogdConfig, state: BogdState, played: BogdRound) -> None:
        step, slot, size = played.step, played.slot, len(state.points)
        state.t += 1
        if step.has_loss and slot == size:
            state.points.append(played.x)
            state.coefficients.append(0.0)
        elif step.has_loss:
            state.points.replace(slot, played.point)
            state.removed += 1
        _absorb(config, state.t, state.coefficients.view, step, slot, is_removal=slot < size)

    def run(self, config: BogdConfig, state: BogdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        def play(start: int) -> list[float]:
            block = slice(start, start + rows_at_once(len(state.points), BLOCK))
            return _play_block(config, state, X[block], y[block], rng)

        return run_in_blocks(self.loss(config), state, y, play, rng)

    def describe(self, config: BogdConfig, state: BogdState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": state.points.nbytes + state.coefficients.nbytes,
            "removed": state.removed,
            "step_size": config.eta(max(1, state.t)),
        }


def _slot(config: BogdConfig, step: GradientStep, size: int, rng: RoundRng) -> int:
    """The slot that the input of a step takes if it is stored, among `size` points."""
    if not step.has_loss or size < config.budget:
        return size
    return rng.pick(int(size * rng.uniform(1)[0]))


def _absorb(config: BogdConfig, t: int, a: F64, step: GradientStep, slot: int, *, is_removal: bool) -> None:
    """Carry round t into the coefficients a, in place. An input that is stored has its slot already."""
    factor = 1.0 - config.eta(t) * config.regularization
    if is_removal:
        factor *= len(a) / (len(a) - 1)
    if factor != 1.0:
        a *= factor
    if not step.has_loss:
        return
    a[slot] = step.weight
    if config.coefficient_bound is not None:
        # np.clip takes twice as long for so few numbers.
        np.minimum(a, config.coefficient_bound, out=a)
        np.maximum(a, -config.coefficient_bound, out=a)


def _play_block(config: BogdConfig, state: BogdState, X: F64, y: F64, rng: RoundRng) -> list[float]:
    """Learn a block of rounds and return the forecasts. Raises DivergedError before anything has changed."""
    f = KernelSumBlock(config.kernel, state.points, state.coefficients, X, config.budget)
    values: list[float] = []
    removed = 0
    for i, (truth, kappa) in enumerate(zip(y.tolist(), config.kernel.diag(X).tolist(), strict=True)):
        t, size = state.t + 1 + i, len(f.a)
        rng.at(t)
        step = gradient_step(config, t, truth, f.value(i), kappa, rng)
        values.append(step.value)
        slot = _slot(config, step, size, rng)
        if step.has_loss:
            f.store(i, slot)
            removed += slot < size
        _absorb(config, t, f.a, step, slot, is_removal=slot < size)
    f.settle()
    state.t += len(values)
    state.removed += removed
    return values
