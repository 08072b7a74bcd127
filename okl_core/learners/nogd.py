r"""Nystrom online gradient descent: a first-order learner on an embedding made from its first points.

| symbol | meaning                                                      | shape  |
|--------|--------------------------------------------------------------|--------|
| B      | budget: points stored, in the first phase                    |        |
| S, a   | the points stored, and their coefficients                    | (B, d) |
| K_S    | kernel matrix of S, = V Lambda V^T                           | (B, B) |
| k      | rank: V_k and Lambda_k are those of the k largest eigenvalues |        |
| P      | Lambda_k^{-1/2} V_k^T                                        | (k, B) |
| z      | P (k(s, x_t))_{s in S}, the embedded input                   | (k,)   |
| w      | weights of z                                                 | (k,)   |

References: [lu2016].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
from pydantic import Field, model_validator
from scipy.linalg import eigh
from scipy.linalg.blas import daxpy, ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import embedding_work, rows_at_once
from okl_core.first_order.buffered import (
    BLOCK,
    BufferedConfig,
    BufferedState,
    absorb,
    decide_buffered,
    fills,
    fills_within,
    is_full,
    look,
    run_buffer,
    value,
    with_point,
)
from okl_core.first_order.steps import Step, decide, descend
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss, probabilities
from okl_core.types import F64, BlockInfo, Forecast, Interval, Round

NEGLIGIBLE = 1e-10
"""Eigenvalues below this share of the largest are taken for 0: their directions are made of rounding errors."""

RANK_SHARE = 0.2
"""The rank, as a share of the budget, where none is given: that of the published experiments."""


class NogdConfig(BufferedConfig):
    """Parameters of NOGD."""

    rank: int | None = Field(
        default=None, ge=1, description="k: dimensions of the embedding, at most budget. null: a fifth of it."
    )

    @model_validator(mode="after")
    def _check_rank(self) -> NogdConfig:
        if self.rank is not None and self.rank > self.budget:
            raise ValueError(f"rank is {self.rank}; it must be at most the budget, {self.budget}")
        return self


@dataclass(slots=True)
class NogdState(BufferedState):
    """P and w are empty until the buffer is full."""

    P: F64
    w: F64


class Embedding(NamedTuple):
    """P, and the weights that start."""

    P: F64
    w: F64


@dataclass(slots=True)
class NogdRound(Round):
    step: Step
    z: F64
    """Empty in the first phase."""
    embedding: Embedding | None
    """That of the round that fills the buffer."""


@final
@register
class Nogd(Learner[NogdConfig, NogdState, NogdRound]):
    r"""Gradient descent on a Nystrom embedding: kernel gradient descent until B points are stored, then k weights.

    Once B points are stored the learned function is carried to the span of the k leading eigenvectors of their kernel
    matrix, w = Lambda_k^{1/2} V_k^T a, the nearest function there; from then on

        value = w^T z(x_t),   w <- w - eta g z(x_t).

    Time O(d B + k B) a round and memory O(d B + k B); O(B^3) once, in the round that fills the buffer. Points and
    embedding then stay as they are: a stream that moves away from its first points is met with features near 0.

    Notes
    -----
    Within a phase it is gradient descent, with its regret: at most |f|^2 / (2 eta) + (eta / 2) sum g^2 kappa against
    every f, in the second phase f - f' for f' the function carried over, and f in the span.

    Against the paper, where the weights start from is corrected to the projection of the function learned so far;
    eigenvalues that are rounding errors are left out; forecasts of the squared loss are clipped.

    References: [lu2016] algorithm 2.

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
        points = config.kernel.points(dim)
        return NogdState(0, points, GrowingArray(), np.empty((0, 0)), np.empty(0))

    def conditioning(self, config: NogdConfig, state: NogdState) -> float:
        """The points' coefficients, and 1 / sqrt(lambda_k): the largest row of P."""
        if not is_full(config, state):
            return max(1.0, config.kernel.mass(state.points, state.coefficients.view))
        longest = math.sqrt(float(np.einsum("ij,ij->i", state.P, state.P).max()))
        return max(1.0, longest * math.sqrt(config.kernel.diag(state.points.coordinates()).max())) + config.kernel.mass(
            state.points, state.w @ state.P
        )

    def extra_work(self, config: NogdConfig, state: NogdState, rounds: int) -> float:
        return embedding_work(config.budget) if fills_within(config, state, rounds) else 0.0

    def predict(self, config: NogdConfig, state: NogdState, x: F64) -> Forecast:
        row = look(config, state, x).row
        m = ddot(state.w, state.P.dot(row)) if is_full(config, state) else value(state, row)
        return self._forecast(config, config.value(m))

    def play(self, config: NogdConfig, state: NogdState, x: F64, y: float, rng: RoundRng) -> NogdRound:
        t, (point, row), kappa = state.t + 1, look(config, state, x), config.kernel.at(x)
        z, embedding = state.w[:0], None
        if is_full(config, state):
            z = state.P.dot(row)
            step = decide(config, t, y, ddot(state.w, z), kappa, rng)
        else:
            step = decide_buffered(config, t, y, value(state, row), kappa, rng)
            if fills(config, state, step):
                embedding = _embed(config, *with_point(state, point, step.weight), rng)
        loss, forecast = self.loss(config).value(step.value, y), self._forecast(config, step.value)
        return NogdRound(t, x, y, forecast, loss, rng.choices(), step, z, embedding)

    def learn(self, config: NogdConfig, state: NogdState, played: NogdRound) -> None:
        if not is_full(config, state):
            absorb(state, played.x, played.step)
            if played.embedding is not None:
                state.P, w = played.embedding
                state.w = w.copy()
            return
        state.t += 1
        if played.step.has_loss:
            daxpy(played.z, state.w, a=played.step.weight)

    def run(self, config: NogdConfig, state: NogdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        loss, values, start = self.loss(config), np.empty(len(y)), 0
        while start < len(y):
            if is_full(config, state):
                block = slice(start, start + rows_at_once(len(state.points), BLOCK))
                played = self._run_embedded(config, state, X[block], y[block], rng)
            else:
                played = run_buffer(config, state, X[start:], y[start:], rng)
                if is_full(config, state):
                    state.P, state.w = _embed(config, state.points.coordinates(), state.coefficients.view, rng)
            values[start : start + len(played)] = played
            start += len(played)
        return BlockInfo(state.t, values, loss.values(values, y), probabilities(loss, values), rng.finish())

    def describe(self, config: NogdConfig, state: NogdState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": state.points.nbytes + state.coefficients.nbytes + state.P.nbytes + state.w.nbytes,
            "phase": 2 if is_full(config, state) else 1,
            "rank": len(state.w),
            "step_size": config.eta(max(1, state.t)),
        }

    def _run_embedded(self, config: NogdConfig, state: NogdState, X: F64, y: F64, rng: RoundRng) -> list[float]:
        # The transposed product would give columns, which the rounds would then read with strides.
        Z = np.dot(config.kernel.block(state.points, X).T, state.P.T)
        w, kappas = state.w.copy(), config.kernel.diag(X).tolist()
        values = descend(config, state.t, w, Z, kappas, y.tolist(), rng)
        state.t, state.w = state.t + len(values), w
        return values

    def _forecast(self, config: NogdConfig, value: float) -> Forecast:
        return Forecast(value, self.loss(config).probability(value))


def _embed(config: NogdConfig, S: F64, a: F64, rng: RoundRng) -> Embedding:
    """P and w from points (B, d) and coefficients (B,). The rank is a choice, since rounding moves small eigenvalues."""
    B = len(S)
    k = max(1, round(RANK_SHARE * B)) if config.rank is None else config.rank
    # Symmetric, it is its transpose, which LAPACK overwrites.
    K = config.kernel.gram(S).T
    eigenvalues, V = eigh(K, subset_by_index=(B - k, B - 1), check_finite=False, overwrite_a=True)
    k = rng.pick(max(1, int(np.count_nonzero(eigenvalues > NEGLIGIBLE * eigenvalues[-1]))))
    # Largest first, and with the largest entry positive: an eigenvector's sign is free.
    # Even the largest eigenvalue may underflow, and on replay the rank is that of another machine.
    root = np.sqrt(np.maximum(eigenvalues[: -k - 1 : -1], np.finfo(np.float64).tiny))
    V = V[:, : -k - 1 : -1]
    V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(k)] < 0.0, -1.0, 1.0)
    return Embedding(np.ascontiguousarray((V / root).T), root * (a @ V))
