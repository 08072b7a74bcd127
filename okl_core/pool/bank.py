"""Several second-order learners that share one dictionary and differ in rule, regularization and memory.

The dictionary depends only on the inputs, so learners with the same kernel and the same dictionary settings have the same
dictionary. A bank computes the kernel values, the coordinates and the random choices once for all of them. Each member may
have its own truths, like the classes of `one-vs-rest`.

References: [calandriello2017b] algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from okl_core.contract.learner import Learner
from okl_core.contract.rng import RoundRng
from okl_core.contract.state import unpack
from okl_core.errors import StateFormatError
from okl_core.linalg.guards import require_finite
from okl_core.pool.units import Unit
from okl_core.second_order.embedding import EmbeddingBlock, EmbeddingState, Growth
from okl_core.second_order.nystrom_space import NystromSpace
from okl_core.second_order.posterior import Posterior, PosteriorBlock, Projection
from okl_core.second_order.second_order import SecondOrder
from okl_core.second_order.space_and_rule import Decision, Rule
from okl_core.types import F64, LearnerConfig, LearnerState, Stored


class BankMember(NamedTuple):
    """A learner of a bank."""

    space: NystromSpace
    rule: Rule[Any]


def member_of(learner: Learner[Any, Any, Any], config: LearnerConfig) -> BankMember | None:
    """Return the learner as a member of a bank; None if it has no embedding, or resets with every new point."""
    if not isinstance(learner, SecondOrder):
        return None
    space, rule = learner.parts(config)
    return BankMember(space, rule) if isinstance(space, NystromSpace) and space.carry == "transport" else None


@final
class Posteriors(list[Posterior]):
    """One posterior per member."""

    @property
    def nbytes(self) -> int:
        return sum(posterior.nbytes for posterior in self)

    def pack(self) -> dict[str, Stored]:
        return {f"{i}.{name}": array for i, posterior in enumerate(self) for name, array in posterior.pack().items()}

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> Posteriors:
        members = sorted({int(name.partition(".")[0]) for name in arrays})
        if members != list(range(len(members))):
            raise StateFormatError(f"posteriors of the members {members}")
        parts = [{name: array for name, array in arrays.items() if name.startswith(f"{i}.")} for i in members]
        return cls(Posterior.unpack({name.partition(".")[2]: array for name, array in part.items()}) for part in parts)


@dataclass(slots=True)
class BankState(LearnerState):
    """`t` counts the rounds of the dictionary."""

    embedding: EmbeddingState
    posteriors: Posteriors
    learned: F64
    """Rounds that each member has learned, shape (members,); fewer than `t` if the member has rested."""

    def __post_init__(self) -> None:
        for posterior in self.posteriors:
            self.embedding.require_posterior(posterior)


class BankRound(NamedTuple):
    """One round of some members, played but not learned."""

    x: F64
    phi: F64
    members: Sequence[int]
    played: list[tuple[Projection, Decision]]
    """Projection and decision of each of `members`."""
    growth: Growth | None

    @property
    def values(self) -> list[float]:
        return [decision.value for _, decision in self.played]


@final
class Bank(Unit[BankState, BankRound]):
    """A unit whose members have the same embedding."""

    def __init__(self, places: Sequence[int], lags: int, kinds: str, members: Sequence[BankMember]) -> None:
        super().__init__(places, lags, kinds)
        self._members = members
        self._embedding = members[0].space.embedding

    def init(self, dim: int) -> BankState:
        posteriors = Posteriors(space.prior() for space, _ in self._members)
        return BankState(0, self._embedding.init(dim), posteriors, np.zeros(len(self._members)))

    def initial_bytes(self, dim: int) -> int:
        return 0

    def unpack(self, arrays: Mapping[str, Stored]) -> BankState:
        state = unpack(BankState, arrays)
        count = len(self._members)
        if len(state.posteriors) != count or state.learned.shape != (count,):
            raise StateFormatError(f"{len(state.posteriors)} posteriors for {count} members")
        if not ((state.learned >= 0.0) & (state.learned <= state.t)).all():
            raise StateFormatError(f"a member has learned {state.learned.max():.0f} rounds, its dictionary {state.t}")
        return state

    def predict(self, state: BankState, x: F64, members: Sequence[int]) -> list[float]:
        phi = self._embedding.locate(state.embedding, x).phi
        values = []
        for i in members:
            rule, posterior = self._members[i].rule, state.posteriors[i]
            values.append(rule.value(*posterior.moments(phi, rule.needs_variance)))
        require_finite(state.t + 1, *values)
        return values

    def play(self, state: BankState, x: F64, y: float, members: Sequence[int], rng: RoundRng) -> BankRound:
        return self.play_each(state, x, [y] * len(members), members, rng)

    def play_each(
        self, state: BankState, x: F64, truths: Sequence[float], members: Sequence[int], rng: RoundRng
    ) -> BankRound:
        """Run `play` with a separate truth for each of the members."""
        located, learned = self._embedding.locate(state.embedding, x), state.learned.tolist()
        played = []
        for i, y in zip(members, truths, strict=True):
            t, rule = int(learned[i]) + 1, self._members[i].rule
            played.append(state.posteriors[i].play(t, located.phi, located.kappa, y, rule, rng)[1:])
        growth = self._embedding.choose(state.embedding, state.t + 1, located, rng)
        return BankRound(x, located.phi, members, played, growth)

    def learn(self, state: BankState, played: BankRound) -> None:
        state.t += 1
        for i, (projection, decision) in zip(played.members, played.played, strict=True):
            state.posteriors[i].absorb(projection, decision)
        if played.growth is not None:
            self._embedding.grow(state.embedding, played.x, played.phi, played.growth)
            for posterior in state.posteriors:
                posterior.grow()
        self._count(state, played.members, 1)

    def run(self, state: BankState, X: F64, y: F64, members: Sequence[int], rng: RoundRng) -> F64:
        truths = np.broadcast_to(y[:, None], (len(y), len(members)))
        values = np.empty(truths.shape)
        start = 0
        while start < len(y):
            rows = slice(start, start + self.room(state, members))
            values[rows] = self.run_each(state, X[rows], truths[rows], members, rng)
            start = rows.stop
        return values

    def room(self, state: BankState, members: Sequence[int]) -> int:
        """Return the largest length of the next block of these members, at least 1."""
        # Each member needs its own arrays for the block.
        points = len(state.embedding.points) * len(members)
        return min(self._members[i].space.room_after(int(state.learned[i]), points) for i in members)

    def run_each(self, state: BankState, X: F64, truths: F64, members: Sequence[int], rng: RoundRng) -> F64:
        """Run one block that fits in `room`, with truths of shape (n, members). If it raises, nothing has changed."""
        first = state.t + 1
        inputs = EmbeddingBlock(self._embedding, state.embedding, first, X)
        blocks = [PosteriorBlock(state.posteriors[i], inputs.Phi) for i in members]
        players = [
            (block, int(state.learned[i]) + 1, self._members[i].rule) for block, i in zip(blocks, members, strict=True)
        ]
        values = np.empty(truths.shape)
        added: list[F64] = []
        for j, row in enumerate(truths.tolist()):
            kappa = inputs.kappa[j]
            rng.at(first + j)
            for i, ((block, t, rule), truth) in enumerate(zip(players, row, strict=True)):
                values[j, i] = block.play(j, t + j, kappa, truth, rule, rng)[1].value
            coordinate = inputs.choose(j, rng)
            if coordinate is not None:
                added.append(coordinate)
                for block in blocks:
                    block.grow(coordinate)
        for block in blocks:
            block.settle()
        if added:
            for i in set(range(len(self._members))).difference(members):
                state.posteriors[i].grow(len(added))
        inputs.settle()
        state.t += len(values)
        self._count(state, members, len(values))
        return values

    def conditioning(self, state: BankState) -> list[float]:
        pairs = zip(self._members, state.posteriors, strict=True)
        return [space.condition(state.embedding, posterior) for (space, _), posterior in pairs]

    def extra_work(self, state: BankState, rounds: int) -> float:
        """Return the extra work if all members played."""
        each, size = zip(self._members, state.learned.tolist(), strict=True), len(state.embedding.L) + rounds
        return sum(space.forgetting.discount_work(int(learned), rounds, size) for (space, _), learned in each)

    def size(self, state: BankState) -> tuple[int, int]:
        return len(state.embedding.points), state.nbytes

    def _count(self, state: BankState, members: Sequence[int], rounds: int) -> None:
        """Count `rounds` more learned rounds for these members, and discount the posteriors that are due."""
        for i in members:
            state.learned[i] += rounds
            self._members[i].space.discount(state.posteriors[i], int(state.learned[i]))
