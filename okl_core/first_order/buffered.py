r"""The first phase of learners that embed: kernel gradient descent, until as many points are stored as the budget has.

f <- f - eta g k(x_t, .) stores x_t with the coefficient -eta g, if there is a loss. At the end of the round that stores
the B-th point a learner makes of points and coefficients what it goes on with.

With `buffer` "first" every point is stored, with the g of a forecast of 0: so do the programs that the published tables
of NOGD come from.

References: [lu2016] algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.first_order.steps import FirstOrderConfig, Step, decide
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.kernels.rows import KernelRows
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64, LearnerState

BLOCK = 128
"""Rounds per block: enough to hide the calls, while the kernel values inside a block stay a small share."""


class BufferedConfig(FirstOrderConfig):
    """Parameters of a learner with a buffer."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    budget: int = Field(default=400, ge=2, description="B: points stored before they are embedded.")
    buffer: Literal["losses", "first"] = Field(
        default="losses",
        description="Which points are stored: those of rounds with a loss (losses), or the first B, each with the step "
        "that a forecast of 0 asks for (first).",
    )


@dataclass(slots=True)
class BufferedState(LearnerState):
    """f = sum_i coefficients_i k(points_i, .) until there are B points. From then on neither changes."""

    points: Points
    coefficients: GrowingArray


class Looked(NamedTuple):
    """An input as the points see it: encoded, with k(points_i, x), shape (s,)."""

    point: F64
    row: F64


def look(config: BufferedConfig, state: BufferedState, x: F64) -> Looked:
    point = state.points.encode(x)
    return Looked(point, config.kernel.encoded_row(state.points, point))


def is_full(config: BufferedConfig, state: BufferedState) -> bool:
    """Is the first phase over?"""
    return len(state.coefficients) >= config.budget


def value(state: BufferedState, row: F64) -> float:
    """f(x) of the first phase."""
    # scipy's calls of BLAS cost a third of numpy's, but take no empty arrays.
    return ddot(state.coefficients.view, row) if len(row) else 0.0


def decide_buffered(config: BufferedConfig, t: int, y: float, m: float, kappa: float, rng: RoundRng) -> Step:
    """`decide` for a round of the first phase."""
    if config.buffer == "losses":
        return decide(config, t, y, m, kappa, rng)
    return decide(config, t, y, 0.0, kappa, rng)._replace(value=config.value(m))


def fills(config: BufferedConfig, state: BufferedState, step: Step) -> bool:
    """Will this step end the first phase?"""
    return step.has_loss and len(state.coefficients) == config.budget - 1


def fills_within(config: BufferedConfig, state: BufferedState, rounds: int) -> bool:
    """May one of the next rounds end the first phase?"""
    return not is_full(config, state) and len(state.coefficients) + rounds >= config.budget


def with_point(state: BufferedState, point: F64, weight: float) -> tuple[F64, F64]:
    """Points (s + 1, d) and coefficients (s + 1,) with an encoded point more, to the bit as if it were stored."""
    points = np.vstack((state.points.coordinates(), state.points.decode(point)))
    return points, np.append(state.coefficients.view, weight)


def absorb(state: BufferedState, x: F64, step: Step) -> None:
    """Carry a round of the first phase into the state."""
    state.t += 1
    if step.has_loss:
        state.points.append(x)
        state.coefficients.append(step.weight)


def run_buffer(config: BufferedConfig, state: BufferedState, X: F64, y: F64, rng: RoundRng) -> list[float]:
    """Rounds of the first phase in order, until X, shape (n, d), is used up or the last of them fills the buffer.

    At most BLOCK. The values played. Raises DivergedError before anything has changed.
    """
    s = len(state.points)
    X = X[: rows_at_once(s, BLOCK)]
    y = y[: len(X)]
    size, last = s, min(s + len(X), config.budget)
    rows = KernelRows(config.kernel, state.points, X, last)
    a = np.empty(last)
    a[:s] = state.coefficients.view
    values: list[float] = []
    stored: list[int] = []
    for i, (truth, kappa) in enumerate(zip(y.tolist(), config.kernel.diag(X).tolist(), strict=True)):
        t = state.t + 1 + i
        rng.at(t)
        m = ddot(a[:size], rows.row(i, size)) if size else 0.0
        step = decide_buffered(config, t, truth, m, kappa, rng)
        values.append(step.value)
        if step.has_loss:
            rows.put(i, size)
            a[size] = step.weight
            stored.append(i)
            size += 1
            if size == config.budget:
                break
    state.t += len(values)
    state.points.extend(X[stored])
    state.coefficients.extend(a[s:size])
    return values
