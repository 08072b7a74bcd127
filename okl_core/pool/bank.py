"""Several second-order learners on one dictionary: they differ in rule, regularization and memory, and share the embedding.

The dictionary looks at the inputs alone, so learners with the same kernel and the same rule for it have the same one. A
bank computes the kernel values, the coordinates and the coins once for all of them. Members may have truths of their own, as
the classes of `one-vs-rest` have.

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
from okl_core.contract.workload import embedding_work
from okl_core.errors import StateFormatError
from okl_core.linalg.guards import require_finite
from okl_core.pool.units import Unit
from okl_core.second_order.embedding import EmbeddingBlock, EmbeddingState, Growth
from okl_core.second_order.nystrom_space import NystromSpace
from okl_core.second_order.posterior import Posterior, PosteriorBlock, Projection
from okl_core.second_order.second_order import SecondOrder
from okl_core.second_order.space_and_rule import Decision, Rule
from okl_core.types import F64, LearnerConfig, LearnerState


class BankMember(NamedTuple):
    """A learner of a bank."""

    space: NystromSpace
    rule: Rule[Any]


def member_of(learner: Learner[Any, Any, Any], config: LearnerConfig) -> BankMember | None:
    """The learner as a member of a bank; None if it has no embedding, or one that starts again with each point."""
    if not isinstance(learner, SecondOrder):
        return None
    space, rule = learner.parts(config)
    return BankMember(space, rule) if isinstance(space, NystromSpace) and space.carry == "transport" else None


@final
class Posteriors(list[Posterior]):
    """One of each member."""

    @property
    def nbytes(self) -> int:
        return sum(posterior.nbytes for posterior in self)

    def pack(self) -> dict[str, F64]:
        return {f"{i}.{name}": array for i, posterior in enumerate(self) for name, array in posterior.pack().items()}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Posteriors:
        members = sorted({int(name.partition(".")[0]) for name in arrays})
        if members != list(range(len(members))):
            raise StateFormatError(f"posteriors of the members {members}")
        parts = [{name: array for name, array in arrays.items() if name.startswith(f"{i}.")} for i in members]
        return cls(Posterior.unpack({name.partition(".")[2]: array for name, array in part.items()}) for part in parts)


@dataclass(slots=True)
class BankState(LearnerState):
    embedding: EmbeddingState
    posteriors: Posteriors


class BankRound(NamedTuple):
    """One round of all members, played but not learned."""

    x: F64
    phi: F64
    played: list[tuple[Projection, Decision]]
    growth: Growth | None

    @property
    def values(self) -> list[float]:
        return [decision.value for _, decision in self.played]


@final
class Bank(Unit[BankState, BankRound]):
    """Members with the same embedding."""

    def __init__(self, places: Sequence[int], lags: int, kinds: str, members: Sequence[BankMember]) -> None:
        super().__init__(places, lags, kinds)
        self._members = members
        self._embedding = members[0].space.embedding

    def init(self, dim: int) -> BankState:
        posteriors = Posteriors(Posterior(space.alpha, 0) for space, _ in self._members)
        return BankState(0, self._embedding.init(dim), posteriors)

    def initial_bytes(self, dim: int) -> int:
        return 0

    def unpack(self, arrays: Mapping[str, F64]) -> BankState:
        state = unpack(BankState, arrays)
        if len(state.posteriors) != len(self._members):
            raise StateFormatError(f"{len(state.posteriors)} posteriors for {len(self._members)} members")
        return state

    def predict(self, state: BankState, x: F64) -> list[float]:
        known = state.embedding
        phi = self._embedding.coordinates(known, self._embedding.kernel.row(known.points, x))
        values = []
        for (_, rule), posterior in zip(self._members, state.posteriors, strict=True):
            if rule.needs_variance:
                m, q, _, _ = posterior.project(phi)
            else:
                m, q = posterior.mean(phi), 0.0
            values.append(rule.value(m, q))
        require_finite(state.t + 1, *values)
        return values

    def play(self, state: BankState, x: F64, y: float, rng: RoundRng) -> BankRound:
        return self.play_each(state, x, [y] * len(self._members), rng)

    def play_each(self, state: BankState, x: F64, truths: Sequence[float], rng: RoundRng) -> BankRound:
        """`play` with a truth for each member."""
        embedding, known, t = self._embedding, state.embedding, state.t + 1
        row, kappa = embedding.kernel.row(known.points, x), embedding.kernel.at(x)
        phi = embedding.coordinates(known, row)
        each = zip(self._members, state.posteriors, truths, strict=True)
        played = [posterior.play(t, phi, kappa, y, rule, rng)[1:] for (_, rule), posterior, y in each]
        return BankRound(x, phi, played, embedding.choose(known, t, x, row, phi, kappa, rng))

    def learn(self, state: BankState, played: BankRound) -> None:
        state.t += 1
        for posterior, (projection, decision) in zip(state.posteriors, played.played, strict=True):
            posterior.absorb(projection, decision)
        if played.growth is not None:
            self._embedding.grow(state.embedding, played.x, played.phi, played.growth)
            for posterior in state.posteriors:
                posterior.grow()
        self._discount(state)

    def run(self, state: BankState, X: F64, y: F64, rng: RoundRng) -> F64:
        truths = np.broadcast_to(y[:, None], (len(y), len(self._members)))
        values = np.empty(truths.shape)
        start = 0
        while start < len(y):
            rows = slice(start, start + self.room(state))
            values[rows] = self.run_each(state, X[rows], truths[rows], rng)
            start = rows.stop
        return values

    def room(self, state: BankState) -> int:
        """Rounds that the next block may have, at least 1."""
        # Each member has arrays of its own for the block.
        points = len(state.embedding.points) * len(self._members)
        return min(space.room_after(state.t, points) for space, _ in self._members)

    def run_each(self, state: BankState, X: F64, truths: F64, rng: RoundRng) -> F64:
        """One block, for which there is room, with truths of shape (n, members). If it raises nothing has changed."""
        first = state.t + 1
        inputs = EmbeddingBlock(self._embedding, state.embedding, first, X)
        blocks = [PosteriorBlock(posterior, inputs.Phi) for posterior in state.posteriors]
        values = np.empty(truths.shape)
        for j, told in enumerate(truths.tolist()):
            t, kappa = first + j, inputs.kappa[j]
            rng.at(t)
            for i, (block, (_, rule), truth) in enumerate(zip(blocks, self._members, told, strict=True)):
                values[j, i] = block.play(j, t, kappa, truth, rule, rng)[1].value
            added = inputs.choose(j, rng)
            if added is not None:
                for block in blocks:
                    block.grow(added)
        for block in blocks:
            block.settle()
        inputs.settle()
        state.t += len(values)
        self._discount(state)
        return values

    def conditioning(self, state: BankState) -> list[float]:
        pairs = zip(self._members, state.posteriors, strict=True)
        return [space.condition(state.embedding, posterior) for (space, _), posterior in pairs]

    def extra_work(self, state: BankState, rounds: int) -> float:
        due = [space for space, _ in self._members if space.forgetting.is_due_within(state.t, rounds)]
        return len(due) * embedding_work(len(state.embedding.L) + rounds)

    def size(self, state: BankState) -> tuple[int, int]:
        return len(state.embedding.points), state.nbytes

    def _discount(self, state: BankState) -> None:
        for (space, _), posterior in zip(self._members, state.posteriors, strict=True):
            space.discount(posterior, state.t)
