"""A learner made of learners: experts run side by side, and their forecasts are weighted by how they have done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from okl_core.contract.lags import kept_lags, lag_rows, next_lags
from okl_core.contract.learner import Learner, register
from okl_core.contract.probabilities import given_probabilities, joined_probabilities
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.losses import LOSSES, Loss
from okl_core.pool.expert_specs import Truth
from okl_core.pool.experts import BLOCK
from okl_core.pool.pool_config import PoolConfig
from okl_core.pool.pool_state import PoolState
from okl_core.pool.resting import UsualLoss, awake_after, stretch_left
from okl_core.pool.units import UnitRound
from okl_core.types import F64, BlockInfo, Forecast, Interval, Round, Standing, Stored, Target

TARGETS: dict[Truth, Target] = {"labels": "binary", "numbers": "real", "classes": "class"}


@dataclass(slots=True)
class PoolRound(Round):
    turns: list[UnitRound | None]
    weights: F64
    """After the round."""
    expert_losses: F64
    usual: UsualLoss
    awake: F64
    """Of the next round."""


@final
@register
class Pool(Learner[PoolConfig, PoolState, PoolRound]):
    r"""Many learners in one, weighted by their losses: for when you do not know which learner to use.

    value = the Aggregating Algorithm's forecast from the experts', each clipped to [-C, C], or of K classes the mean of their
    probabilities with the weights; after the truth an expert's weight is multiplied by exp(-eta loss), and a share of all
    weight is spread evenly. Time and memory are those of the experts together; those with the same kernel and dictionary
    share it. With `resting` those that have lost nearly all weight rest at times.

    Notes
    -----
    N experts, squared loss, truths in [-C, C], share 0: the cumulative loss is at most that of the best expert, clipped, plus
    2 C^2 ln N (`aggregating`) or 8 C^2 ln N (`exponential`); logistic loss, or the log-loss of classes: plus ln N. With a
    share s, against the best sequence of experts that changes k times in T rounds:
    ((k + 1) ln N + k ln(1/s) + (T - k) ln(1/(1-s))) / eta. Nothing is assumed about inputs, truths or experts. `describe`
    has every expert's cumulative loss and weight. An expert at rest counts as if it had said what the pool says: then the
    bounds are those of experts that follow the pool at times.

    An expert's lags are the truths that the pool has learned when the round is learned, also for late truths; `lags` of
    the spec itself are kept with a waiting prediction.

    References: [vovk1998] theorem 1; [herbster1998] theorem 7; [cesabianchi2006] chapters 3, 5 and 9; [freund1997].

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
    references: ClassVar[tuple[str, ...]] = ("vovk1998", "herbster1998", "cesabianchi2006", "freund1997")
    config_type = PoolConfig
    state_type = PoolState

    def loss(self, config: PoolConfig) -> Loss:
        return LOSSES[config.loss]

    def target(self, config: PoolConfig) -> Target:
        return TARGETS[config.truth]

    def probability(self, config: PoolConfig, value: float) -> float | None:
        return config.weighing.probability(value)

    def truth_range(self, config: PoolConfig) -> Interval:
        return config.truth_range

    def initial_bytes(self, config: PoolConfig, dim: int) -> int:
        return config.team.initial_bytes(dim)

    def conditioning(self, config: PoolConfig, state: PoolState) -> float:
        """An expert counts as it does in the forecast: one that is wild has lost its weight, and those awake have it all."""
        awake = float(state.weights @ state.awake)
        return max(1.0, float(state.weights @ config.team.conditioning(state.cells)) / awake)

    def extra_work(self, config: PoolConfig, state: PoolState, rounds: int) -> float:
        return config.team.extra_work(state.cells, rounds)

    def init(self, config: PoolConfig, dim: int) -> PoolState:
        return PoolState.first(config.team, dim)

    def unpack(self, config: PoolConfig, arrays: Mapping[str, Stored]) -> PoolState:
        return PoolState.of(config.team, arrays)

    def predict(self, config: PoolConfig, state: PoolState, x: F64) -> Forecast:
        forecasts = config.team.predict(state.cells, state.awake, state.truths, x)
        return config.weighing.forecast(state.weights, config.weighing.taken(forecasts))

    def play(self, config: PoolConfig, state: PoolState, x: F64, y: float, rng: RoundRng) -> PoolRound:
        t = state.t + 1
        forecasts, turns = config.team.play(state.cells, state.awake, state.truths, x, y, t, rng)
        forecast, loss, losses, weights = _weigh(config, state, config.weighing.taken(forecasts), y)
        usual = state.usual.after(t, loss)
        awake = awake_after(t, state.awake, weights, config.team.unit_of, usual, config.rests, len(x), rng)
        return PoolRound(t, x, y, forecast, loss, rng.choices(), turns, weights, losses, usual, awake)

    def learn(self, config: PoolConfig, state: PoolState, played: PoolRound) -> None:
        config.team.learn(state.cells, played.turns)
        state.weights, state.usual, state.awake = played.weights, played.usual, played.awake
        if config.team.lags:
            state.truths = next_lags(state.truths, played.y)
        state.losses += played.expert_losses
        state.loss += played.loss
        state.t += 1

    def run(self, config: PoolConfig, state: PoolState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        experts, aggregation, parts = config.team, config.weighing, list[F64]()
        values, losses = np.empty(len(y)), np.empty(len(y))
        most, start = rows_at_once(experts.width, BLOCK), 0
        while start < len(y):
            rows = slice(start, start + stretch_left(state.t, config.rests, most))
            lags = lag_rows(state.truths, y[rows])
            of_experts = experts.run(state.cells, state.awake, lags[:-1], X[rows], y[rows], state.t + 1, rng)
            state.truths = kept_lags(lags[-1])
            forecasts: list[Forecast] = []
            for v, truth in zip(aggregation.taken(of_experts), y[rows].tolist(), strict=True):
                forecast, loss, theirs, state.weights = _weigh(config, state, v, truth)
                state.losses += theirs
                state.loss += loss
                state.usual = state.usual.after(state.t + len(forecasts) + 1, loss)
                losses[start + len(forecasts)] = loss
                forecasts.append(forecast)
            values[rows] = [forecast.value for forecast in forecasts]
            given = given_probabilities(forecasts)
            if given is not None:
                parts.append(given)
            state.t += len(of_experts)
            state.awake = awake_after(
                state.t, state.awake, state.weights, experts.unit_of, state.usual, config.rests, X.shape[1], rng
            )
            start = rows.stop
        return BlockInfo(state.t, values, losses, joined_probabilities(parts) if parts else None, rng.finish())

    def describe(self, config: PoolConfig, state: PoolState) -> dict[str, float]:
        experts = config.team
        points, nbytes = experts.sizes(state.cells)
        numbers: dict[str, float] = {
            "t": state.t,
            "dictionary": points,
            "bytes": nbytes + state.nbytes,
            "loss": state.loss,
            "experts": experts.count,
            "units": len(experts.units),
            "awake": int(state.awake.sum()),
            "leader": int(np.argmax(state.weights)),
            "best": int(np.argmin(state.losses)),
            "best_loss": float(state.losses.min()),
            "bound": _bound(config, state.t),
        }
        if config.truth == "classes":
            numbers["classes"] = config.classes
        for name, weight, loss in zip(experts.names, state.weights.tolist(), state.losses.tolist(), strict=True):
            numbers[f"weight_{name}"] = weight
            numbers[f"loss_{name}"] = loss
        return numbers

    def standing(self, config: PoolConfig, state: PoolState) -> Standing:
        return Standing(config.team.names, state.weights, state.losses, state.loss, _bound(config, state.t))


def _bound(config: PoolConfig, T: int) -> float:
    """Of the regret to the best expert after T rounds, its forecasts as they are taken: that of k = 0 changes."""
    return (math.log(config.team.count) - T * math.log1p(-config.share)) / config.weighing.eta


def _weigh(config: PoolConfig, state: PoolState, v: F64, y: float) -> tuple[Forecast, float, F64, F64]:
    """The forecast from the experts' as they are taken, its loss, their losses, and their weights after the round."""
    aggregation, p = config.weighing, state.weights
    forecast = aggregation.forecast(p, v)
    losses = aggregation.losses(v, forecast, y)
    return forecast, aggregation.loss(forecast, y), losses, aggregation.weigh(p, losses, state.losses + losses)
