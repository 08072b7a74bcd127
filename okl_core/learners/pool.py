"""A learner made of learners: experts run side by side, and their forecasts are weighted by how they have done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import part_of, unpack
from okl_core.contract.workload import rows_at_once
from okl_core.errors import StateFormatError
from okl_core.losses import LOSSES, Loss
from okl_core.pool.experts import BLOCK, Cells
from okl_core.pool.pool_config import PoolConfig
from okl_core.pool.units import UnitRound
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round, Standing, Target


@dataclass(slots=True)
class PoolState(LearnerState):
    """The experts' states, their weights p, shape (N,), their cumulative losses, (N,), and that of the pool."""

    cells: Cells
    weights: F64
    losses: F64
    loss: float


@dataclass(slots=True)
class PoolRound(Round):
    turns: list[UnitRound]
    weights: F64
    """After the round."""
    expert_losses: F64


@final
@register
class Pool(Learner[PoolConfig, PoolState, PoolRound]):
    r"""Many learners in one, weighted by how they do: what to take if you do not know which learner to take.

    value = the Aggregating Algorithm's forecast from the experts', each clipped to [-C, C]; after the truth an expert's
    weight is multiplied by exp(-eta loss), and a share of all weight is spread evenly. Time and memory are those of
    the experts together; those with the same kernel and dictionary share it.

    Notes
    -----
    N experts, squared loss, truths in [-C, C], share 0: the cumulative loss is at most that of the best expert, clipped, plus
    2 C^2 ln N (`aggregating`) or 8 C^2 ln N (`exponential`); logistic loss: plus ln N. With a share s, against the best
    sequence of experts that changes k times in T rounds: ((k + 1) ln N + k ln(1/s) + (T - k) ln(1/(1-s))) / eta. Nothing
    is assumed about inputs, truths or experts. `describe` has every expert's cumulative loss and weight.

    An expert's lags are the truths that the pool has learned when the round is learned, also for late truths; `lags` of
    the spec itself are kept with a waiting prediction.

    References: [vovk1998] theorem 1; [herbster1998] theorem 7; [cesabianchi2006] chapters 3 and 5.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "pool", "config": {"truth": "numbers", "experts": [{"kind": "ons"}]}}, dim=1)
    >>> for y in (0.5, 0.6, 0.5, 0.6):
    ...     info = learner.update(np.array([1.0]), y)
    >>> round(info.forecast.value, 2)
    0.62
    """

    kind: ClassVar[str] = "pool"
    references: ClassVar[tuple[str, ...]] = ("vovk1998", "herbster1998", "cesabianchi2006")
    config_type = PoolConfig
    state_type = PoolState

    def loss(self, config: PoolConfig) -> Loss:
        return LOSSES[config.loss]

    def target(self, config: PoolConfig) -> Target:
        return "binary" if config.truth == "labels" else "real"

    def truth_range(self, config: PoolConfig) -> Interval:
        return config.truth_range

    def initial_bytes(self, config: PoolConfig, dim: int) -> int:
        return config.team.initial_bytes(dim)

    def conditioning(self, config: PoolConfig, state: PoolState) -> float:
        """An expert counts as it does in the forecast: one that is wild has lost its weight."""
        return max(1.0, float(state.weights @ config.team.conditioning(state.cells)))

    def extra_work(self, config: PoolConfig, state: PoolState, rounds: int) -> float:
        return config.team.extra_work(state.cells, rounds)

    def init(self, config: PoolConfig, dim: int) -> PoolState:
        experts = config.team
        N = experts.count
        return PoolState(0, experts.init(dim), np.full(N, 1.0 / N), np.zeros(N), 0.0)

    def unpack(self, config: PoolConfig, arrays: Mapping[str, F64]) -> PoolState:
        own = {name: array for name, array in arrays.items() if not name.startswith("cells.")}
        cells = part_of(arrays, "cells")
        kept = unpack(PoolNumbers, own)
        experts = config.team
        if kept.weights.shape != (experts.count,) or kept.losses.shape != (experts.count,):
            raise StateFormatError(f"the weights or the losses of the pool's {experts.count} experts are missing")
        return PoolState(kept.t, Cells.unpack_units(experts.units, cells, kept.t), kept.weights, kept.losses, kept.loss)

    def predict(self, config: PoolConfig, state: PoolState, x: F64) -> Forecast:
        values = _clipped(config, config.team.predict(state.cells, x))
        return self._forecast(config, config.weighing.value(state.weights, values))

    def play(self, config: PoolConfig, state: PoolState, x: F64, y: float, rng: RoundRng) -> PoolRound:
        values, turns = config.team.play(state.cells, x, y, state.t + 1, rng)
        value, losses, weights = _weigh(config, state, _clipped(config, values), y)
        loss = self.loss(config).value(value, y)
        forecast = self._forecast(config, value)
        return PoolRound(state.t + 1, x, y, forecast, loss, rng.choices(), turns, weights, losses)

    def learn(self, config: PoolConfig, state: PoolState, played: PoolRound) -> None:
        config.team.learn(state.cells, played.turns, played.y)
        state.weights = played.weights
        state.losses += played.expert_losses
        state.loss += played.loss
        state.t += 1

    def run(self, config: PoolConfig, state: PoolState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        experts, loss = config.team, self.loss(config)
        values = np.empty(len(y))
        step = rows_at_once(experts.count, BLOCK)
        for start in range(0, len(y), step):
            rows = slice(start, start + step)
            forecasts = _clipped(config, experts.run(state.cells, X[rows], y[rows], state.t + 1, rng))
            for j, truth in enumerate(y[rows].tolist()):
                value, losses, state.weights = _weigh(config, state, forecasts[j], truth)
                state.losses += losses
                state.loss += loss.value(value, truth)
                values[start + j] = value
            state.t += len(forecasts)
        given = None
        if config.truth == "labels":
            aggregation = config.weighing
            given = np.array([aggregation.probability(value) for value in values.tolist()], dtype=np.float64)
        return BlockInfo(state.t, values, loss.values(values, y), given, rng.finish())

    def describe(self, config: PoolConfig, state: PoolState) -> dict[str, float]:
        experts = config.team
        points, nbytes = experts.sizes(state.cells)
        numbers: dict[str, float] = {
            "t": state.t,
            "dictionary": points,
            "bytes": nbytes + state.weights.nbytes + state.losses.nbytes,
            "loss": state.loss,
            "experts": experts.count,
            "leader": int(np.argmax(state.weights)),
            "best": int(np.argmin(state.losses)),
            "best_loss": float(state.losses.min()),
        }
        if config.share == 0.0:
            numbers["bound"] = _bound(config)
        for name, weight, loss in zip(experts.names, state.weights.tolist(), state.losses.tolist(), strict=True):
            numbers[f"weight_{name}"] = weight
            numbers[f"loss_{name}"] = loss
        return numbers

    def standing(self, config: PoolConfig, state: PoolState) -> Standing:
        bound = _bound(config) if config.share == 0.0 else math.nan
        return Standing(config.team.names, state.weights, state.losses, state.loss, bound)

    def _forecast(self, config: PoolConfig, value: float) -> Forecast:
        return Forecast(value, config.weighing.probability(value) if config.truth == "labels" else None)


@dataclass(slots=True)
class PoolNumbers(LearnerState):
    """What a pool keeps beside its experts."""

    weights: F64
    losses: F64
    loss: float


def _bound(config: PoolConfig) -> float:
    """Of the regret to the best expert, clipped."""
    return math.log(config.team.count) / config.weighing.eta


def _clipped(config: PoolConfig, values: F64) -> F64:
    return np.clip(values, -config.clip, config.clip)


def _weigh(config: PoolConfig, state: PoolState, values: F64, y: float) -> tuple[float, F64, F64]:
    """The forecast from the experts', their losses, and their weights after the round."""
    aggregation, p = config.weighing, state.weights
    losses = aggregation.losses(values, y)
    return aggregation.value(p, values), losses, aggregation.weigh(p, losses, state.losses + losses)
