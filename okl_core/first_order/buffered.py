r"""The first phase of learners that embed: kernel gradient descent until B points are stored.

A round with loss takes the step f <- f - eta g k(x_t, .), which stores x_t with the coefficient -eta g. In the round that
stores the B-th point the learner computes an embedding of the points, and the second phase begins.

With `buffer` "first" every point is stored, with g evaluated at a forecast of 0, as in the programs behind the published
tables of NOGD.

References: [lu2016].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.first_order.in_blocks import BLOCK, KernelSumBlock, KernelSumState
from okl_core.first_order.steps import FirstOrderConfig, GradientStep, gradient_step
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.types import F64, MAX_GRAM_POINTS


class BufferedConfig(FirstOrderConfig):
    """Parameters of a learner that stores B points before it embeds."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    budget: int = Field(default=400, ge=2, le=MAX_GRAM_POINTS, description="B: points stored before they are embedded.")
    buffer: Literal["losses", "first"] = Field(
        default="losses",
        description="Which points are stored: those of rounds with a loss (losses), or the first B, each with the step "
        "that a forecast of 0 asks for (first).",
    )


@dataclass(slots=True)
class BufferedState(KernelSumState):
    """The function f = sum_i coefficients_i k(points_i, .) of the first phase, which the second phase leaves unchanged."""


class EncodedInput(NamedTuple):
    """An input x in the encoding of the stored points, with its kernel row k(points_i, x), shape (s,)."""

    point: F64
    row: F64


def encode(config: BufferedConfig, state: BufferedState, x: F64) -> EncodedInput:
    """Encode an input and compute its kernel row."""
    point = state.points.encode(x)
    return EncodedInput(point, config.kernel.encoded_row(state.points, point))


def is_full(config: BufferedConfig, state: BufferedState) -> bool:
    """Whether the first phase is over."""
    return len(state.coefficients) >= config.budget


def next_step(config: BufferedConfig, t: int, y: float, m: float, kappa: float, rng: RoundRng) -> GradientStep:
    """Compute the step of a round of the first phase; see `gradient_step`."""
    if config.buffer == "losses":
        return gradient_step(config, t, y, m, kappa, rng)
    return gradient_step(config, t, y, 0.0, kappa, rng)._replace(value=config.value(m))


def fills(config: BufferedConfig, state: BufferedState, step: GradientStep) -> bool:
    """Whether this step will end the first phase."""
    return step.has_loss and len(state.coefficients) == config.budget - 1


def fills_within(config: BufferedConfig, state: BufferedState, rounds: int) -> bool:
    """Whether one of the next `rounds` rounds may end the first phase."""
    return not is_full(config, state) and len(state.coefficients) + rounds >= config.budget


def with_point(state: BufferedState, point: F64, weight: float) -> tuple[F64, F64]:
    """Return the points (s + 1, d) and coefficients (s + 1,) exactly as they will be once the encoded point is stored."""
    points = np.vstack((state.points.coordinates(), state.points.decode(point)))
    return points, np.append(state.coefficients.view, weight)


def absorb(state: BufferedState, x: F64, step: GradientStep) -> None:
    """Carry a played round of the first phase into the state."""
    state.t += 1
    if step.has_loss:
        state.points.append(x)
        state.coefficients.append(step.weight)


def play_block(config: BufferedConfig, state: BufferedState, X: F64, y: F64, rng: RoundRng) -> list[float]:
    """Learn a block of rounds of the first phase, with inputs X, shape (n, d), and return the forecasts.

    The block ends early if the first phase does. Raise DivergedError before anything has changed.
    """
    X = X[: rows_at_once(len(state.points), BLOCK)]
    f = KernelSumBlock(config.kernel, state.points, state.coefficients, X, config.budget)
    values: list[float] = []
    for i, kappa in enumerate(config.kernel.diag(X).tolist()):
        t, size = state.t + 1 + i, len(f.a)
        rng.at(t)
        step = next_step(config, t, y.item(i), f.value(i), kappa, rng)
        values.append(step.value)
        if step.has_loss:
            f.store(i, size)
            f.a[size] = step.weight
            if size + 1 == config.budget:
                break
    f.settle()
    state.t += len(values)
    return values
