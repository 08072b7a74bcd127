"""Several online Newton learners on one dictionary: they differ in loss, steps and memory, and share the embedding.

The dictionary looks at the inputs alone, so learners with the same kernel and the same rule for it have the same one. A
bank computes the kernel values, the coordinates and the coins once for all of them.

References: [calandriello2017b] algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.contract.state import unpack
from okl_core.contract.workload import embedding_work
from okl_core.errors import NumericalError, StateFormatError
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.second_order.embedding import Embedding, EmbeddingBlock, Growth
from okl_core.second_order.engine import Decision
from okl_core.second_order.forgetting import HalfLife
from okl_core.second_order.newton import NewtonConfig, clipped, newton_rule
from okl_core.second_order.nystrom import Nystrom, NystromConfig
from okl_core.second_order.posterior import Posterior, PosteriorBlock, Projection
from okl_core.second_order.row_sampling import Sample
from okl_core.types import F64, LearnerState


class MemberConfig(NystromConfig, NewtonConfig):
    """What a member is given: an online Newton step in an embedding."""


@final
class Posteriors(list[Posterior]):
    """One of each member."""

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
    sample: Sample
    independent: GrowingArray
    L: Factor
    posteriors: Posteriors

    @property
    def nbytes(self) -> int:
        shared = self.sample.nbytes + self.independent.nbytes + self.L.nbytes
        return shared + sum(posterior.nbytes for posterior in self.posteriors)


class BankTurn(NamedTuple):
    """One round of all members, played but not learned."""

    x: F64
    phi: F64
    played: list[tuple[Projection, Decision]]
    growth: Growth | None

    @property
    def values(self) -> list[float]:
        return [decision.value for _, decision in self.played]


@final
class Bank(NamedTuple):
    """Members with the same kernel, dictionary and budget, which carry by `transport`."""

    members: Sequence[MemberConfig]

    @property
    def embedding(self) -> Embedding:
        first = self.members[0]
        return Embedding(first.kernel, first.dictionary, first.budget)

    def init(self, dim: int) -> BankState:
        posteriors = Posteriors(Posterior(member.regularization, 0) for member in self.members)
        return BankState(0, *self.embedding.parts(dim), posteriors=posteriors)

    def unpack(self, arrays: Mapping[str, F64]) -> BankState:
        """The state that `pack` gave as arrays. Raises StateFormatError."""
        state = unpack(BankState, arrays)
        if len(state.posteriors) != len(self.members):
            raise StateFormatError(f"{len(state.posteriors)} posteriors for {len(self.members)} members")
        return state

    def conditioning(self, state: BankState) -> list[float]:
        """That of every member."""
        pairs = zip(self.members, state.posteriors, strict=True)
        return [self._engine(member).conditioning(state, posterior) for member, posterior in pairs]

    def extra_work(self, state: BankState, rounds: int) -> float:
        """As that of a learner."""
        due = [member for member in self.members if HalfLife(member.half_life).is_due_within(state.t, rounds)]
        return len(due) * embedding_work(len(state.L) + rounds)

    def predict(self, state: BankState, x: F64) -> list[float]:
        """The members' forecasts for x, shape (d,)."""
        phi = self.embedding.coordinates(state, self.embedding.row(state, x))
        values = [
            clipped(member, float(posterior.u @ phi))
            for member, posterior in zip(self.members, state.posteriors, strict=True)
        ]
        require_finite(state.t + 1, *values)
        return values

    def play(self, state: BankState, x: F64, y: float, rng: RoundRng) -> BankTurn:
        """One round; changes nothing. Raises DivergedError."""
        embedding, t = self.embedding, state.t + 1
        row = embedding.row(state, x)
        phi = embedding.coordinates(state, row)
        played = []
        for member, posterior in zip(self.members, state.posteriors, strict=True):
            projection = posterior.project(phi)
            decision = newton_rule(member, rng)(projection.m, projection.q, y, t)
            require_finite(t, projection.m, projection.q, *decision)
            require_bearable(t, decision.w, projection.square, posterior.alpha)
            played.append((projection, decision))
        return BankTurn(x, phi, played, embedding.choose(state, x, row, played[0][0].square, rng))

    def learn(self, state: BankState, turn: BankTurn) -> None:
        """Carry a played round into the state."""
        state.t += 1
        for posterior, (projection, decision) in zip(state.posteriors, turn.played, strict=True):
            posterior.absorb(projection, decision)
        if turn.growth is not None:
            self.embedding.grow(state, turn.x, turn.phi, turn.growth)
            for posterior in state.posteriors:
                posterior.grow()
        self._discount(state)

    def run(self, state: BankState, X: F64, y: F64, rng: RoundRng) -> F64:
        """The members' forecasts in n rounds in order, shape (n, members). Raises DivergedError."""
        values = np.empty((len(y), len(self.members)))
        start = 0
        while start < len(y):
            # Each member has arrays of its own for the block.
            points = len(state.sample) * len(self.members)
            rooms = (self._engine(member).room_after(state.t, points) for member in self.members)
            rows = slice(start, start + min(rooms))
            values[rows] = self._run_block(state, X[rows], y[rows], rng)
            self._discount(state)
            start = rows.stop
        return values

    def _run_block(self, state: BankState, X: F64, y: F64, rng: RoundRng) -> F64:
        inputs = EmbeddingBlock(self.embedding, state, X)
        blocks = [PosteriorBlock(posterior, inputs.Phi) for posterior in state.posteriors]
        try:
            values = self._play_block(state, inputs, blocks, y, rng)
        except NumericalError:
            inputs.undo()
            raise
        for block in blocks:
            block.settle()
        inputs.settle()
        state.t += len(y)
        return values

    def _play_block(
        self, state: BankState, inputs: EmbeddingBlock, blocks: Sequence[PosteriorBlock], y: F64, rng: RoundRng
    ) -> F64:
        rules = [newton_rule(member, rng) for member in self.members]
        values = np.empty((len(y), len(blocks)))
        for j, truth in enumerate(y.tolist()):
            t = state.t + 1 + j
            rng.at(t)
            for i, (block, rule) in enumerate(zip(blocks, rules, strict=True)):
                m, q = block.moments(j)
                decision = rule(m, q, truth, t)
                require_finite(t, m, q, *decision)
                require_bearable(t, decision.w, block.squares.item(j), block.posterior.alpha)
                block.absorb(j, q, decision)
                values[j, i] = decision.value
            added = inputs.choose(j, rng)
            if added is not None:
                for block in blocks:
                    block.grow(added)
        return values

    def _discount(self, state: BankState) -> None:
        for member, posterior in zip(self.members, state.posteriors, strict=True):
            self._engine(member).discount(posterior, state.t)

    def _engine(self, member: MemberConfig) -> Nystrom:
        return Nystrom(member, member.regularization)
