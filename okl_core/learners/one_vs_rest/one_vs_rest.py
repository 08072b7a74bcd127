"""A learner of K classes made of K learners of two labels, each of which knows one class from the rest."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from okl_core.contract.learner import Learner, register, require_dims
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import part_of, unpack
from okl_core.contract.workload import rows_at_once
from okl_core.learners.one_vs_rest.members import Members, OneVsRestConfig, composed, named, scaled
from okl_core.losses import Loss, log_loss
from okl_core.pool.experts import BLOCK
from okl_core.types import (
    F64,
    BlockInfo,
    Forecast,
    Interval,
    LearnerState,
    Round,
    Target,
)


@dataclass(slots=True)
class OneVsRestState(LearnerState):
    """`loss` is the cumulative log-loss of the forecasts."""

    members: Members
    loss: float


@dataclass(slots=True)
class OneVsRestRound(Round):
    turns: list[Round]


@final
@register
class OneVsRest(Learner[OneVsRestConfig, OneVsRestState, OneVsRestRound]):
    r"""K classes by K learners of two labels: each tells one class from the rest, and their probabilities are scaled.

    Member k learns the label +1 for the truth k and -1 for the others; with p_k its probability of +1

        q_k = p_k / (p_0 + ... + p_{K-1}),   loss = -log q_y,   value = max q.

    All K learn in every round: time and memory are K times those of one.

    Notes
    -----
    The loss of a round is at most the sum of the members' logistic losses -log p_y - sum_{k != y} log(1 - p_k), since

        sum p <= 1 + sum_{k != y} p_k <= prod_{k != y} (1 + p_k) <= prod_{k != y} 1 / (1 - p_k).

    With members that bound their regret for logistic loss the cumulative loss is thus at most the sum over the classes of
    the loss of the best function for the class and of the member's regret to it. Nothing better follows: to the best K
    functions whose probabilities are scaled, too, there is no regret bound.

    Coins and choices are those of each member, independent of the others'.

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
        learner, own = config.member.parsed
        return max(learner.conditioning(own, member) for member in state.members)

    def extra_work(self, config: OneVsRestConfig, state: OneVsRestState, rounds: int) -> float:
        """The long rounds of several classes may be the same one."""
        learner, own = config.member.parsed
        return sum(learner.extra_work(own, member, rounds) for member in state.members)

    def init(self, config: OneVsRestConfig, dim: int) -> OneVsRestState:
        learner, own = config.member.parsed
        require_dims(learner, dim)
        return OneVsRestState(0, Members(learner.init(own, dim) for _ in range(config.classes)), 0.0)

    def unpack(self, config: OneVsRestConfig, arrays: Mapping[str, F64]) -> OneVsRestState:
        own = {name: array for name, array in arrays.items() if not name.startswith("members.")}
        members = part_of(arrays, "members")
        kept = unpack(OneVsRestNumbers, own)
        return OneVsRestState(kept.t, Members.unpack_classes(config, members, kept.t), kept.loss)

    def predict(self, config: OneVsRestConfig, state: OneVsRestState, x: F64) -> Forecast:
        learner, own = config.member.parsed
        return composed([learner.predict(own, member, x) for member in state.members], state.t + 1)

    def play(self, config: OneVsRestConfig, state: OneVsRestState, x: F64, y: float, rng: RoundRng) -> OneVsRestRound:
        (learner, own), t = config.member.parsed, state.t + 1
        forks = rng.begin_forks(dict.fromkeys(config.streams, t), t, 1)
        turns: list[Round] = []
        for k, (member, fork) in enumerate(zip(state.members, forks, strict=True)):
            with named(k):
                turns.append(learner.play(own, member, x, 1.0 if k == y else -1.0, fork))
        rng.end_forks(forks, t, 1)
        forecast = composed([turn.forecast for turn in turns], t)
        assert forecast.probabilities is not None
        return OneVsRestRound(t, x, y, forecast, log_loss(forecast.probabilities[int(y)]), rng.choices(), turns)

    def learn(self, config: OneVsRestConfig, state: OneVsRestState, played: OneVsRestRound) -> None:
        learner, own = config.member.parsed
        for member, turn in zip(state.members, played.turns, strict=True):
            learner.learn(own, member, turn)
        state.loss += played.loss
        state.t += 1

    def run(self, config: OneVsRestConfig, state: OneVsRestState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        Q, losses = np.empty((len(y), config.classes)), np.empty(len(y))
        step = rows_at_once(config.classes, BLOCK)
        for start in range(0, len(y), step):
            rows = slice(start, start + step)
            Q[rows] = self._learn_block(config, state, X[rows], y[rows], rng)
            truths = y[rows].astype(int)
            losses[rows] = -np.log(Q[rows][np.arange(len(truths)), truths])
            state.loss += float(losses[rows].sum())
            state.t += len(truths)
        return BlockInfo(state.t, Q.max(axis=1), losses, Q, rng.finish())

    def _learn_block(self, config: OneVsRestConfig, state: OneVsRestState, X: F64, y: F64, rng: RoundRng) -> F64:
        """The probabilities of n rounds that the members learn, shape (n, K). If it raises nothing has changed."""
        (learner, own), t = config.member.parsed, state.t + 1
        forks = rng.begin_forks(dict.fromkeys(config.streams, t), t, len(y))
        P = np.empty((len(y), config.classes))
        before = copy.deepcopy(list(state.members))
        try:
            for k, (member, fork) in enumerate(zip(state.members, forks, strict=True)):
                with named(k):
                    P[:, k] = learner.run(own, member, X, np.where(y == k, 1.0, -1.0), fork).probabilities
            rng.end_forks(forks, t, len(y))
            return scaled(P, t)
        except BaseException:
            # Whatever it is: members at different rounds would never come together again.
            state.members[:] = before
            raise

    def describe(self, config: OneVsRestConfig, state: OneVsRestState) -> dict[str, float]:
        learner, own = config.member.parsed
        told = [learner.describe(own, member) for member in state.members]
        return {
            "t": state.t,
            "dictionary": sum(numbers["dictionary"] for numbers in told),
            "bytes": sum(numbers["bytes"] for numbers in told),
            "classes": config.classes,
            "loss": state.loss,
        }


@dataclass(slots=True)
class OneVsRestNumbers(LearnerState):
    """What is kept beside the members."""

    loss: float
