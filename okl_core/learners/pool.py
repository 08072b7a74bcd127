"""A learner made of learners: experts run side by side, and their forecasts are weighted by how they have done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, final

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.learner import Learner, parse_spec, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import unpack
from okl_core.contract.workload import rows_at_once
from okl_core.errors import StateFormatError
from okl_core.losses import LOSSES, Loss
from okl_core.pool.aggregation import Aggregation, AggregationName, MixedLoss
from okl_core.pool.expert_specs import ExpertSpec, Truth, default_experts, trivial_experts
from okl_core.pool.experts import BLOCK, Cells, Experts
from okl_core.pool.units import UnitRound
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerConfig, LearnerState, Round, Target

LARGEST_LOG_ODDS = 300.0
"""Weights underflow near exp(-745): those of experts lost to it count for nothing beside a loss that is far smaller."""


class PoolConfig(LearnerConfig):
    """Parameters of a pool. None is needed."""

    truth: Truth = Field(default="labels", description="What it learns: labels -1 and 1, or numbers in [-clip, clip].")
    experts: list[ExpertSpec] | None = Field(
        default=None,
        min_length=1,
        fail_fast=True,
        description="The learners; by default kernel and linear ones of many length scales, with and without forgetting "
        "and lags. The trivial forecasters are always among them.",
    )
    aggregation: AggregationName = Field(
        default="aggregating", description="Vovk's Aggregating Algorithm, or exponential weights and the weighted mean."
    )
    loss: MixedLoss = Field(
        default="squared", description="By which experts are weighed; logistic reads forecasts as logarithms of odds."
    )
    clip: float = Field(
        default=1.0,
        ge=1e-50,
        le=1e50,
        description="C: forecasts are clipped to [-C, C]; with logistic loss these are log odds, and 1 is little.",
    )
    share: float = Field(
        default=0.001, ge=0.0, lt=1.0, description="Weight given back to all experts in each round; 0 never forgets."
    )

    @model_validator(mode="after")
    def _experts_fit(self) -> Self:
        if self.truth == "numbers" and self.loss == "logistic":
            raise ValueError("logistic loss is for labels; with numbers the loss is squared")
        if self.truth == "labels" and self.loss == "squared" and self.clip < 1.0:
            raise ValueError(f"clip is {self.clip}; with labels and squared loss it must be at least 1")
        if self.loss == "logistic" and self.clip > LARGEST_LOG_ODDS:
            raise ValueError(f"clip is {self.clip}; with logistic loss it must be at most {LARGEST_LOG_ODDS:g}")
        for i, expert in enumerate(self.all_experts()):
            _, learner, config = parse_spec({"kind": expert.kind, "config": expert.config})
            target = learner.target(config)
            if target not in ("any", "binary" if self.truth == "labels" else "real") and not (
                self.truth == "labels" and target == "real"
            ):
                raise ValueError(f"expert {i}, {expert.kind}, does not learn {self.truth}")
            low, high = learner.truth_range(config)
            if target != "binary" and not (low <= self.truth_range[0] and self.truth_range[1] <= high):
                raise ValueError(
                    f"expert {i}, {expert.kind}, takes truths from {low} to {high}, not from {self.truth_range[0]} to "
                    f"{self.truth_range[1]}: widen its `clip` or `truth_range`"
                )
        return self

    @property
    def truth_range(self) -> Interval:
        largest = self.clip if self.truth == "numbers" else 1.0
        return -largest, largest

    @property
    def dim(self) -> int | None:
        return next((expert.dim for expert in self.all_experts() if expert.dim is not None), None)

    def all_experts(self) -> list[ExpertSpec]:
        chosen = default_experts(self.truth, self.clip) if self.experts is None else self.experts
        expanded = [one for expert in chosen for one in expert.expand()]
        return expanded + [trivial for trivial in trivial_experts(self.truth) if trivial not in expanded]

    @cached_property
    def team(self) -> Experts:
        """All experts at work."""
        return Experts(self.all_experts())

    @cached_property
    def weighing(self) -> Aggregation:
        return Aggregation(self.loss, self.aggregation, self.clip, self.share)


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
        prefix = "cells."
        own = {name: array for name, array in arrays.items() if not name.startswith(prefix)}
        cells = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
        kept = unpack(_Kept, own)
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
            numbers["bound"] = float(np.log(experts.count)) / config.weighing.eta
        for name, weight, loss in zip(experts.names, state.weights.tolist(), state.losses.tolist(), strict=True):
            numbers[f"weight_{name}"] = weight
            numbers[f"loss_{name}"] = loss
        return numbers

    def _forecast(self, config: PoolConfig, value: float) -> Forecast:
        return Forecast(value, config.weighing.probability(value) if config.truth == "labels" else None)


@dataclass(slots=True)
class _Kept(LearnerState):
    """What a pool keeps beside its experts."""

    weights: F64
    losses: F64
    loss: float


def _clipped(config: PoolConfig, values: F64) -> F64:
    return np.clip(values, -config.clip, config.clip)


def _weigh(config: PoolConfig, state: PoolState, values: F64, y: float) -> tuple[float, F64, F64]:
    """The forecast from the experts', their losses, and their weights after the round."""
    aggregation, p = config.weighing, state.weights
    losses = aggregation.losses(values, y)
    return aggregation.value(p, values), losses, aggregation.weigh(p, losses, state.losses + losses)
