r"""`ogd-logistic`: projected gradient descent on the logistic loss of a linear function.

| symbol | meaning                                                                     | in [zinkevich2003] |
|--------|-----------------------------------------------------------------------------|--------------------|
| theta  | the weights, \|theta\| <= B                                                 | x                  |
| g      | l'(value), the derivative of the loss in the forecast for phi_t: \|g\| < 1  |                    |
| eta    | step size of round t, B / (R sqrt(t))                                       | eta                |
| R      | the largest \|phi\| so far, or a given bound on it                          |                    |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
from pydantic import Field
from scipy.linalg.blas import daxpy, ddot, dscal  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.kernels.intercept import InterceptConfig
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, Loss, probabilities
from okl_core.types import F64, BlockInfo, Forecast, LearnerState, Round

BLOCK = 1024  # rounds whose features are made at once in a `run`


class OgdLogisticConfig(InterceptConfig):
    """Parameters of gradient descent."""

    comparator_norm: float = Field(
        default=1.0, gt=0.0, description="B: bound on the norm of the weights, and of the comparator's."
    )
    input_norm: float | None = Field(
        default=None, gt=0.0, description="R: bound on the norm of the inputs. null: the largest so far."
    )


@dataclass(slots=True)
class OgdLogisticState(LearnerState):
    """The weights, the largest |phi| so far, the cumulative loss, and the sum of eta g^2 |phi|^2 / 2 for the bound."""

    theta: F64
    largest: float
    loss: float
    bound_gradient: float


class ProjectedStep(NamedTuple):
    """The forecast of a round, and what the round does: theta <- shrink (theta + weight phi), weight = -eta g.

    `largest` is the largest |phi|, this one included, `gradient` eta g^2 |phi|^2 / 2.
    """

    value: float
    loss: float
    weight: float
    shrink: float
    largest: float
    gradient: float


@dataclass(slots=True)
class OgdLogisticRound(Round):
    """A round with its features and its step."""

    phi: F64
    step: ProjectedStep


@final
@register
class OgdLogistic(Learner[OgdLogisticConfig, OgdLogisticState, OgdLogisticRound]):
    r"""Gradient descent on the logistic loss of a linear function, projected onto a ball: O(d) a round, a reference.

    phi is the input, with one more coordinate of 1 for the intercept, and

        value = phi_t^T theta,   theta <- Proj_B(theta - eta g phi_t),   eta = B / (R sqrt(t)).

    It needs no horizon. Time and memory O(d).

    Notes
    -----
    The step sizes never grow, so the regret against every v with |v| <= B is at most

        2 B^2 / eta_T + sum_t eta_t g_t^2 |phi_t|^2 / 2 <= 3 B R sqrt(T),

    R the largest |phi| of all rounds, or the given bound on it. `describe` reports the left side as `bound`.

    References: [zinkevich2003] theorem 1, with the diameter 2 B.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "ogd-logistic", "config": {"intercept": False}}, dim=1)
    >>> round(learner.update(np.array([2.0]), 1.0).loss, 4)
    0.6931
    >>> learner.predict(np.array([2.0])).value
    1.0
    """

    kind: ClassVar[str] = "ogd-logistic"
    references: ClassVar[tuple[str, ...]] = ("zinkevich2003",)
    config_type = OgdLogisticConfig
    state_type = OgdLogisticState

    def loss(self, config: OgdLogisticConfig) -> Loss:
        return LOSSES["logistic"]

    def init(self, config: OgdLogisticConfig, dim: int) -> OgdLogisticState:
        return OgdLogisticState(0, np.zeros(dim + config.intercept), 0.0, 0.0, 0.0)

    def predict(self, config: OgdLogisticConfig, state: OgdLogisticState, x: F64) -> Forecast:
        value = ddot(state.theta, config.phi(x))
        require_finite(state.t + 1, value)
        return self.loss(config).forecast(value)

    def play(
        self, config: OgdLogisticConfig, state: OgdLogisticState, x: F64, y: float, rng: RoundRng
    ) -> OgdLogisticRound:
        phi = config.phi(x)
        step = _step(config, state, phi, y)
        forecast = self.loss(config).forecast(step.value)
        return OgdLogisticRound(state.t + 1, x, y, forecast, step.loss, rng.choices(), phi, step)

    def learn(self, config: OgdLogisticConfig, state: OgdLogisticState, played: OgdLogisticRound) -> None:
        _absorb(state, played.phi, played.step)

    def run(self, config: OgdLogisticConfig, state: OgdLogisticState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        values, losses = np.empty(len(y)), np.empty(len(y))
        step = rows_at_once(len(state.theta), BLOCK)
        for start in range(0, len(y), step):
            rows = slice(start, start + step)
            values[rows], losses[rows] = _run_block(config, state, config.phi(X[rows]), y[rows].tolist())
        return BlockInfo(state.t, values, losses, probabilities(self.loss(config), values), rng.finish())

    def describe(self, config: OgdLogisticConfig, state: OgdLogisticState) -> dict[str, float]:
        B = config.comparator_norm
        eta = _eta(config, max(1, state.t), state.largest)
        return {
            "t": state.t,
            "dictionary": 0,
            "bytes": state.theta.nbytes,
            "features": len(state.theta),
            "loss": state.loss,
            "norm": float(np.linalg.norm(state.theta)),
            "step_size": eta,
            "bound": (2.0 * B * B / eta if eta else 0.0) + state.bound_gradient,
        }


def _eta(config: OgdLogisticConfig, t: int, largest: float) -> float:
    """The step size of round t; 0 as long as all inputs were 0."""
    R = largest if config.input_norm is None else config.input_norm
    return config.comparator_norm / (R * math.sqrt(t)) if R else 0.0


def _step(config: OgdLogisticConfig, state: OgdLogisticState, phi: F64, y: float) -> ProjectedStep:
    """The step of the next round. Changes nothing. Raises DivergedError if it overflows."""
    loss, B, theta = LOSSES["logistic"], config.comparator_norm, state.theta
    value, norm = ddot(theta, phi), math.sqrt(ddot(phi, phi))
    largest = max(state.largest, norm)
    g = loss.derivative(value, y)
    weight = -_eta(config, state.t + 1, largest) * g
    move = weight * norm
    square = ddot(theta, theta) + 2.0 * weight * value + move * move
    require_finite(state.t + 1, value, square)
    shrink = B / math.sqrt(square) if square > B * B else 1.0
    return ProjectedStep(value, loss.value(value, y), weight, shrink, largest, 0.5 * abs(g * norm * move))


def _run_block(
    config: OgdLogisticConfig, state: OgdLogisticState, Phi: F64, y: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Play and absorb n rounds with the features Phi, shape (n, p), in order; their forecasts and losses."""
    values, losses = [], []
    for phi, truth in zip(Phi, y, strict=True):
        step = _step(config, state, phi, truth)
        _absorb(state, phi, step)
        values.append(step.value)
        losses.append(step.loss)
    return values, losses


def _absorb(state: OgdLogisticState, phi: F64, step: ProjectedStep) -> None:
    """Carry a round's step into the state."""
    if step.weight:
        daxpy(phi, state.theta, a=step.weight)
        if step.shrink < 1.0:
            dscal(step.shrink, state.theta)
    state.largest = step.largest
    state.loss += step.loss
    state.bound_gradient += step.gradient
    state.t += 1
