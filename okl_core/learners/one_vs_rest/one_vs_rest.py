"""A learner of K classes made of K learners of two labels, each of which knows one class from the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import part_of, unpack
from okl_core.learners.one_vs_rest.apart import ApartRound, ClassStates
from okl_core.learners.one_vs_rest.classes import composed
from okl_core.learners.one_vs_rest.members import OneVsRestConfig
from okl_core.losses import Loss, log_loss
from okl_core.pool.bank import BankRound, BankState
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round, Stored, Target


@dataclass(slots=True)
class OneVsRestState(LearnerState):
    """`loss` is the cumulative log-loss of the forecasts."""

    members: ClassStates | BankState
    loss: float


@dataclass(slots=True)
class OneVsRestRound(Round):
    turns: ApartRound | BankRound
    """Those of the members, as `Classes` has them."""


@final
@register
class OneVsRest(Learner[OneVsRestConfig, OneVsRestState, OneVsRestRound]):
    r"""K classes with K learners of two labels: each separates one class from the rest; their probabilities are normalised.

    Member k learns the label +1 for the truth k and -1 for the others; with p_k its probability of +1

        q_k = p_k / (p_0 + ... + p_{K-1}),   loss = -log q_y,   value = max q.

    All K learn in every round: time and memory are K times those of one. Members on a dictionary have one in common, since it
    looks at the inputs alone, and each its own posterior.

    Notes
    -----
    The loss of a round is at most the sum of the members' logistic losses -log p_y - sum_{k != y} log(1 - p_k), since

        sum p <= 1 + sum_{k != y} p_k <= prod_{k != y} (1 + p_k) <= prod_{k != y} 1 / (1 - p_k).

    With members that bound their regret for logistic loss the cumulative loss is thus at most the sum over the classes of
    the loss of the best function for the class and of the member's regret to it. Nothing better follows: to the best K
    functions whose probabilities are scaled, too, there is no regret bound.

    Coins and choices are those of each member, independent of the others', or those of the dictionary in common.

    References: [rifkin2004] for how it compares with other reductions.

    Examples
    --------
    >>> from okl_core import create
    >>> spec = {"kind": "one-vs-rest", "config": {"classes": 3, "member": {"kind": "majority"}}}
    >>> learner = create(spec, dim=1)
    >>> for y in (0.0, 2.0, 2.0):
    ...     info = learner.update(np.array([1.0]), y)
    >>> forecast = learner.predict(np.array([1.0]))
    >>> [round(q, 2) for q in forecast.probabilities], forecast.label
    ([0.33, 0.11, 0.56], 2)
    """

    kind: ClassVar[str] = "one-vs-rest"
    references: ClassVar[tuple[str, ...]] = ("rifkin2004",)
    config_type = OneVsRestConfig
    state_type = OneVsRestState

    def loss(self, config: OneVsRestConfig) -> Loss:
        """The members'."""
        learner, own = config.member.parsed
        return learner.loss(own)

    def target(self, config: OneVsRestConfig) -> Target:
        return "class"

    def truth_range(self, config: OneVsRestConfig) -> Interval:
        return 0.0, config.classes - 1.0

    def input_radius(self, config: OneVsRestConfig) -> float | None:
        learner, own = config.member.parsed
        return learner.input_radius(own)

    def initial_bytes(self, config: OneVsRestConfig, dim: int) -> int:
        learner, own = config.member.parsed
        return config.classes * learner.initial_bytes(own, dim)

    def conditioning(self, config: OneVsRestConfig, state: OneVsRestState) -> float:
        return config.team.conditioning(state.members)

    def extra_work(self, config: OneVsRestConfig, state: OneVsRestState, rounds: int) -> float:
        return config.team.extra_work(state.members, rounds)

    def init(self, config: OneVsRestConfig, dim: int) -> OneVsRestState:
        return OneVsRestState(0, config.team.init(dim), 0.0)

    def unpack(self, config: OneVsRestConfig, arrays: Mapping[str, Stored]) -> OneVsRestState:
        own = {name: array for name, array in arrays.items() if not name.startswith("members.")}
        members = part_of(arrays, "members")
        kept = unpack(OneVsRestNumbers, own)
        return OneVsRestState(kept.t, config.team.unpack(members, kept.t), kept.loss)

    def predict(self, config: OneVsRestConfig, state: OneVsRestState, x: F64) -> Forecast:
        return composed(config.team.predict(state.members, x), state.t + 1)

    def play(self, config: OneVsRestConfig, state: OneVsRestState, x: F64, y: float, rng: RoundRng) -> OneVsRestRound:
        t = state.t + 1
        P, turns = config.team.play(state.members, x, int(y), t, rng)
        forecast = composed(P, t)
        assert forecast.probabilities is not None
        return OneVsRestRound(t, x, y, forecast, log_loss(forecast.probabilities[int(y)]), rng.choices(), turns)

    def learn(self, config: OneVsRestConfig, state: OneVsRestState, played: OneVsRestRound) -> None:
        config.team.learn(state.members, played.turns)
        state.loss += played.loss
        state.t += 1

    def run(self, config: OneVsRestConfig, state: OneVsRestState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        Q, losses = np.empty((len(y), config.classes)), np.empty(len(y))
        start = 0
        while start < len(y):
            rows = slice(start, start + config.team.room(state.members))
            Q[rows] = config.team.run(state.members, X[rows], y[rows], state.t + 1, rng)
            truths = y[rows].astype(int)
            losses[rows] = -np.log(Q[rows][np.arange(len(truths)), truths])
            state.loss += float(losses[rows].sum())
            state.t += len(truths)
            start = rows.stop
        return BlockInfo(state.t, Q.max(axis=1), losses, Q, rng.finish())

    def describe(self, config: OneVsRestConfig, state: OneVsRestState) -> dict[str, float]:
        points, nbytes = config.team.size(state.members)
        return {
            "t": state.t,
            "dictionary": points,
            "bytes": nbytes,
            "classes": config.classes,
            "loss": state.loss,
        }


@dataclass(slots=True)
class OneVsRestNumbers(LearnerState):
    """What is kept beside the members."""

    loss: float
