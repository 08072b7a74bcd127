r"""NOGD, Nystrom online gradient descent: a first-order learner on an embedding made from its first points.

| symbol | meaning                                                      | shape  |
|--------|--------------------------------------------------------------|--------|
| B      | budget: points stored, in the first phase                    |        |
| S, a   | the points stored, and their coefficients                    | (B, d) |
| K_S    | kernel matrix of S, = V Lambda V^T                           | (B, B) |
| k      | rank: V_k, Lambda_k belong to the k largest eigenvalues      |        |
| P      | Lambda_k^{-1/2} V_k^T                                        | (k, B) |
| z      | P (k(s, x_t))_{s in S}, the embedded input                   | (k,)   |
| w      | weights of z                                                 | (k,)   |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field, model_validator
from scipy.linalg.blas import daxpy, ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import embedding_work, rows_at_once
from okl_core.errors import StateFormatError
from okl_core.first_order import buffered
from okl_core.first_order.buffered import BufferedConfig, BufferedState, is_full
from okl_core.first_order.in_blocks import BLOCK, KernelSumState, run_in_blocks
from okl_core.first_order.leading_eigenvectors import leading_eigenvectors
from okl_core.first_order.steps import GradientStep, descend, gradient_step, kernel_sum
from okl_core.kernels.rounding import magnified
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, MAX_GRAM_POINTS, BlockInfo, Forecast, Interval, Round

NEGLIGIBLE = 1e-10
"""Eigenvalues below this share of the largest are taken for 0: their directions are made of rounding errors."""

RANK_SHARE = 0.2
"""The rank, as a share of the budget, where none is given: that of the published experiments."""


class NogdConfig(BufferedConfig):
    """Parameters of NOGD."""

    rank: int | None = Field(
        default=None, ge=1, le=MAX_GRAM_POINTS, description="k: dimensions, at most budget. null: a fifth of it."
    )

    @model_validator(mode="after")
    def _check_rank(self) -> NogdConfig:
        if self.rank is not None and self.rank > self.budget:
            raise ValueError(f"rank is {self.rank}; it must be at most the budget, {self.budget}")
        return self


@dataclass(slots=True)
class NogdState(BufferedState):
    """The state of gradient descent on an embedding; P and w are empty in the first phase."""

    P: F64
    w: F64

    def __post_init__(self) -> None:
        KernelSumState.__post_init__(self)
        if len(self.w) and self.P.shape != (len(self.w), len(self.points)):
            raise StateFormatError(f"{len(self.w)} weights of {len(self.points)} points with P of shape {self.P.shape}")


@dataclass(slots=True)
class NogdRound(Round):
    step: GradientStep
    z: F64
    """Empty in the first phase."""
    embedding: tuple[F64, F64] | None
    """P and the first w, from the round that stores the B-th point."""


@final
@register
class Nogd(Learner[NogdConfig, NogdState, NogdRound]):
    r"""Gradient descent on a Nystrom embedding: kernel gradient descent until B points are stored, then k weights.

    Once B points are stored, the learned function is replaced by the nearest one in the span of the k leading
    eigenvectors of their kernel matrix, w = Lambda_k^{1/2} V_k^T a. From then on

        value = w^T z(x_t),   w <- w - eta g z(x_t).

    Time O(d B + k B) a round and memory O(d B + k B); O(B^3) once, in the round that stores the B-th point. From then on
    the points stay the same: where a stream moves away from them all features tend to 0.

    Notes
    -----
    Each phase is gradient descent. If eta is a number, its regret against f is at most |f - f'|^2 / (2 eta) +
    (eta / 2) sum g^2 kappa, where f' is the function that it starts from; in the second phase f lies in the span.

    Against the paper: the second phase starts from the projection of the function learned; eigenvalues that are rounding
    errors are left out; forecasts of the squared loss are clipped.

    References: [lu2016].

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "nogd", "config": {"step_size": 0.5, "budget": 2, "rank": 2}}, dim=1)
    >>> for x in ([0.0], [1.0], [0.5]):
    ...     _ = learner.update(np.array(x), 1.0)
    >>> learner.describe()["rank"], learner.describe()["dictionary"]
    (2, 2)
    """

    kind: ClassVar[str] = "nogd"
    references: ClassVar[tuple[str, ...]] = ("lu2016",)
    config_type = NogdConfig
    state_type = NogdState

    def loss(self, config: NogdConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: NogdConfig) -> Interval:
        return -config.forecast_bound, config.forecast_bound

    def init(self, config: NogdConfig, dim: int) -> NogdState:
        return NogdState(0, config.kernel.points(dim), GrowingArray(), np.empty((0, 0)), np.empty(0))

    def conditioning(self, config: NogdConfig, state: NogdState) -> float:
        """From the points' coefficients, in the second phase with the longest row of P, 1 / sqrt(lambda_k)."""
        kernel, points = config.kernel, state.points
        if not is_full(config, state):
            return max(1.0, kernel.mass(points, state.coefficients.view))
        longest = float(np.einsum("ij,ij->i", state.P, state.P).max())
        largest = float(kernel.diag(points.coordinates()).max())
        return magnified(max(1.0, longest * largest), kernel.mass(points, state.w @ state.P))

    def extra_work(self, config: NogdConfig, state: NogdState, rounds: int) -> float:
        return embedding_work(config.budget) if buffered.fills_within(config, state, rounds) else 0.0

    def predict(self, config: NogdConfig, state: NogdState, x: F64) -> Forecast:
        row = buffered.encode(config, state, x).row
        m = ddot(state.w, state.P.dot(row)) if is_full(config, state) else kernel_sum(state.coefficients.view, row)
        return self.loss(config).forecast(config.value(m))

    def play(self, config: NogdConfig, state: NogdState, x: F64, y: float, rng: RoundRng) -> NogdRound:
        t, (point, row), kappa = state.t + 1, buffered.encode(config, state, x), config.kernel.at(x)
        z, embedding = state.w[:0], None
        if is_full(config, state):
            z = state.P.dot(row)
            step = gradient_step(config, t, y, ddot(state.w, z), kappa, rng)
        else:
            step = buffered.next_step(config, t, y, kernel_sum(state.coefficients.view, row), kappa, rng)
            if buffered.fills(config, state, step):
                embedding = _embed(config, *buffered.with_point(state, point, step.weight), rng)
        loss, forecast = self.loss(config).value(step.value, y), self.loss(config).forecast(step.value)
        return NogdRound(t, x, y, forecast, loss, rng.choices(), step, z, embedding)

    def learn(self, config: NogdConfig, state: NogdState, played: NogdRound) -> None:
        if is_full(config, state):
            state.t += 1
            if played.step.has_loss:
                daxpy(played.z, state.w, a=played.step.weight)
            return
        buffered.absorb(state, played.x, played.step)
        if played.embedding is not None:
            state.P, state.w = played.embedding[0], played.embedding[1].copy()

    def run(self, config: NogdConfig, state: NogdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        def play(start: int) -> list[float]:
            if is_full(config, state):
                return _play_block(config, state, X[start:], y[start:], rng)
            values = buffered.play_block(config, state, X[start:], y[start:], rng)
            if is_full(config, state):
                state.P, state.w = _embed(config, state.points.coordinates(), state.coefficients.view, rng)
            return values

        return run_in_blocks(self.loss(config), state, y, play, rng)

    def describe(self, config: NogdConfig, state: NogdState) -> dict[str, float]:
        size = state.points.nbytes + state.coefficients.nbytes + state.P.nbytes + state.w.nbytes
        told: dict[str, float] = {"t": state.t, "dictionary": len(state.points), "bytes": size, "rank": len(state.w)}
        return told | {"phase": 2 if is_full(config, state) else 1, "step_size": config.eta(max(1, state.t))}


def _play_block(config: NogdConfig, state: NogdState, X: F64, y: F64, rng: RoundRng) -> list[float]:
    """Learn a block of rounds of the second phase and return the forecasts."""
    n = rows_at_once(len(state.points), BLOCK)
    # The transposed product would give columns, which the rounds would then read with strides.
    Z = np.dot(config.kernel.block(state.points, X[:n]).T, state.P.T)
    w = state.w.copy()
    steps = descend(config, state.t, w, Z, config.kernel.diag(X[:n]).tolist(), y[:n].tolist(), rng)
    state.t, state.w = state.t + len(steps), w
    return [step.value for step in steps]


def _embed(config: NogdConfig, S: F64, a: F64, rng: RoundRng) -> tuple[F64, F64]:
    """P and the first w, for the points S, shape (B, d), with coefficients a, shape (B,)."""
    k = max(1, round(RANK_SHARE * len(S))) if config.rank is None else config.rank
    eigenvalues, V = leading_eigenvectors(config.kernel.gram(S), k, NEGLIGIBLE, rng)
    root = np.sqrt(np.maximum(eigenvalues, np.finfo(np.float64).tiny))  # even the largest may underflow
    return np.ascontiguousarray((V / root).T), root * (a @ V)
