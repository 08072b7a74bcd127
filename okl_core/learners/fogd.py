"""FOGD, Fourier online gradient descent: a first-order learner on random features, at a cost that never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field
from scipy.linalg.blas import daxpy, ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import DRAW_WORK, rows_at_once
from okl_core.errors import StateFormatError
from okl_core.first_order.in_blocks import run_in_blocks
from okl_core.first_order.steps import FirstOrderConfig, GradientStep, descend, gradient_step
from okl_core.kernels.fourier import SpectralKernel, draw, farther, features, largest_angle
from okl_core.kernels.kernels import Gaussian
from okl_core.kernels.points import origin_from
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round

BLOCK = 64
"""Rounds per block of `run`: enough to hide the calls, while the features still fit into a cache."""


class FogdConfig(FirstOrderConfig):
    """Parameters of FOGD."""

    kernel: SpectralKernel = Field(default=Gaussian(), description="The kernel, one of a difference of inputs.")
    frequencies: int = Field(
        default=400, ge=1, le=2**24, description="D: random frequencies, each with a cosine and a sine."
    )


@dataclass(slots=True)
class FogdState(LearnerState):
    """The random features and their weights; frequencies and weights are empty before the first round."""

    origin: F64
    """The first input, as far as `origin_from` allows; the features are those of x - origin."""
    frequencies: F64
    """omega / (2 pi), shape (D, d)."""
    w: F64
    """Shape (2 D,)."""
    farthest: float
    """The largest |x - origin| so far."""

    def __post_init__(self) -> None:
        if len(self.w) != 2 * len(self.frequencies):
            raise StateFormatError(f"{len(self.w)} weights of {len(self.frequencies)} frequencies")


@dataclass(slots=True)
class FogdRound(Round):
    origin: F64
    frequencies: F64
    z: F64
    step: GradientStep


@final
@register
class Fogd(Learner[FogdConfig, FogdState, FogdRound]):
    r"""Gradient descent on random Fourier features: first-order, stores only weights, at the same cost every round.

        value = w^T z(x_t),   w <- w - eta g z(x_t),

    with the D random frequencies of `kernels.fourier`. Time O(d D) a round, memory O(d D).

    Notes
    -----
    If eta is a number (or `horizon` is given) the regret against all weights v is at most |v|^2 / (2 eta) +
    (eta / 2) sum g^2: with eta = U / (L sqrt(T)) that is U L sqrt(T) for |v| <= U. If the features approximate all kernel
    values to epsilon, which takes D of the order of log(1 / epsilon) / epsilon^2, a function f = sum_s a_s k(x_s, .) has
    weights v that approximate it to |a|_1 epsilon at every point.

    Against the paper: eta may fall with t; forecasts of the squared loss are clipped, and g is the derivative at the
    clipped value, which leaves the bound as it is.

    References: [lu2016]; [rahimi2007].

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "fogd", "config": {"step_size": 0.5}}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([0.0])).value, 12)
    0.5
    """

    kind: ClassVar[str] = "fogd"
    references: ClassVar[tuple[str, ...]] = ("lu2016", "rahimi2007")
    config_type = FogdConfig
    state_type = FogdState

    def loss(self, config: FogdConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: FogdConfig) -> Interval:
        return -config.forecast_bound, config.forecast_bound

    def initial_bytes(self, config: FogdConfig, dim: int) -> int:
        return 8 * config.frequencies * (dim + 2)

    def init(self, config: FogdConfig, dim: int) -> FogdState:
        # A metric of another dimension would otherwise be found out in the first round only.
        config.kernel.root_for(dim)
        return FogdState(0, np.zeros(dim), np.empty((0, dim)), np.empty(0), 0.0)

    def extra_work(self, config: FogdConfig, state: FogdState, rounds: int) -> float:
        """The first round draws the frequencies."""
        return DRAW_WORK * config.frequencies * len(state.origin) if state.t == 0 else 0.0

    def predict(self, config: FogdConfig, state: FogdState, x: F64) -> Forecast:
        m = ddot(state.w, features(state.frequencies, (x - state.origin)[None, :])[0]) if state.t else 0.0
        return self.loss(config).forecast(config.value(m))

    def play(self, config: FogdConfig, state: FogdState, x: F64, y: float, rng: RoundRng) -> FogdRound:
        origin, frequencies, w = _next_features(config, state, x, rng)
        z = features(frequencies, (x - origin)[None, :])[0]
        t, loss = state.t + 1, self.loss(config)
        step = gradient_step(config, t, y, ddot(w, z), 1.0, rng)
        forecast = loss.forecast(step.value)
        return FogdRound(t, x, y, forecast, loss.value(step.value, y), rng.choices(), origin, frequencies, z, step)

    def learn(self, config: FogdConfig, state: FogdState, played: FogdRound) -> None:
        if state.t == 0:
            state.origin, state.frequencies = played.origin.copy(), played.frequencies
            state.w = np.zeros(2 * config.frequencies)
        state.t += 1
        state.farthest = farther(state.farthest, played.x - state.origin)
        if played.step.has_loss:
            daxpy(played.z, state.w, a=played.step.weight)

    def run(self, config: FogdConfig, state: FogdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        def play(start: int) -> list[float]:
            block = slice(start, start + rows_at_once(2 * config.frequencies, BLOCK))
            rng.at(state.t + 1)
            origin, frequencies, w = _next_features(config, state, X[start], rng)
            H = X[block] - origin
            w, Z = w.copy(), features(frequencies, H)
            steps = descend(config, state.t, w, Z, [1.0] * len(Z), y[block].tolist(), rng)
            state.t += len(Z)
            state.origin, state.frequencies, state.w = origin.copy(), frequencies, w
            state.farthest = farther(state.farthest, H)
            return [step.value for step in steps]

        return run_in_blocks(self.loss(config), state, y, play, rng)

    def conditioning(self, config: FogdConfig, state: FogdState) -> float:
        """An angle that has been rounded makes another feature, by as much as it is large."""
        return 1.0 + largest_angle(state.frequencies, state.farthest)

    def describe(self, config: FogdConfig, state: FogdState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": 0,
            "bytes": state.origin.nbytes + state.frequencies.nbytes + state.w.nbytes,
            "norm": float(np.linalg.norm(state.w)),
            "step_size": config.eta(max(1, state.t)),
        }


def _next_features(config: FogdConfig, state: FogdState, x: F64, rng: RoundRng) -> tuple[F64, F64, F64]:
    """Origin, frequencies and weights of the next round, whose input is x. The first round draws the frequencies."""
    if state.t:
        return state.origin, state.frequencies, state.w
    kernel, D = config.kernel, config.frequencies
    return origin_from(x, kernel.scale), draw(kernel, len(x), D, rng), np.zeros(2 * D)
