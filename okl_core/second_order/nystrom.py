r"""The engine on a dictionary: A_t = alpha I + sum_s w_s phi_s phi_s^T in an embedding that grows with the stream.

phi are the coordinates of `second_order.embedding`; P = A^{-1} and u = A^{-1} s, in these coordinates, are those of
`second_order.posterior`. A round costs the same early and late. A point that joins the dictionary gives P and u a coordinate.

References: [calandriello2017b] algorithms 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.errors import NumericalError
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.second_order.embedding import Dictionary, Embedded, Embedding, EmbeddingBlock, Growth, KorsDictionary
from okl_core.second_order.engine import Decision, Rule
from okl_core.second_order.forgetting import HalfLife
from okl_core.second_order.posterior import Posterior, PosteriorBlock, Projection
from okl_core.second_order.row_sampling import Sample
from okl_core.types import F64, LearnerConfig, LearnerState

BLOCK = 64
"""Rounds per block of `Nystrom.run` at most."""


class NystromConfig(LearnerConfig):
    """Parameters of the embedding and of its memory."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    dictionary: Dictionary = Field(default=KorsDictionary(), description="How points are chosen.")
    budget: int | None = Field(
        default=400, ge=1, description="Points at most; when they are used up the dictionary stays."
    )
    carry: Literal["transport", "reset"] = Field(
        default="transport",
        description="What a new point does to the learned function: keep it, or (as first published) start again.",
    )
    half_life: int | None = Field(
        default=None,
        ge=8,
        description="Forgetting: rounds in which the weight of a past round halves; none by default.",
    )


@dataclass(slots=True)
class NystromState(LearnerState):
    """`points.probability` and `points.L` are those of row sampling. `independent` is 1.0, or 0.0 for a point without a
    coordinate."""

    sample: Sample
    independent: GrowingArray
    L: Factor
    posterior: Posterior
    log_det: float

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.sample, self.independent, self.L, self.posterior))


class Turn(NamedTuple):
    """One round in the embedding, played but not learned."""

    phi: F64
    projection: Projection
    decision: Decision
    growth: Growth | None

    @property
    def q(self) -> float:
        return self.projection.q


@final
class Nystrom(NamedTuple):
    """The recursion for one config and one alpha > 0."""

    config: NystromConfig
    alpha: float

    @property
    def embedding(self) -> Embedding:
        return Embedding(self.config.kernel, self.config.dictionary, self.config.budget)

    @property
    def forgetting(self) -> HalfLife:
        return HalfLife(self.config.half_life)

    def parts(self, dim: int) -> tuple[Sample, GrowingArray, Factor, Posterior, float]:
        """The fields of `NystromState` after `t`, before the first round."""
        return *self.embedding.parts(dim), Posterior(self.alpha, 0), 0.0

    def project(self, state: NystromState, phi: F64) -> Projection:
        """m and q of an input's phi: O(|I|^2). Raises DivergedError."""
        projection = state.posterior.project(phi)
        require_finite(state.t + 1, projection.m, projection.q)
        return projection

    def embed(self, state: NystromState, x: F64) -> F64:
        """phi of x, shape (d,): O(|I|^2 + d |I|)."""
        embedding = self.embedding
        return embedding.coordinates(state, embedding.row(state, x))

    def play(self, state: NystromState, x: F64, y: float, rule: Rule, rng: RoundRng) -> Turn:
        """One round; changes nothing. Raises DivergedError."""
        embedding = self.embedding
        row = embedding.row(state, x)
        phi = embedding.coordinates(state, row)
        projection = self.project(state, phi)
        decision = rule(projection.m, projection.q, y, state.t + 1)
        require_finite(state.t + 1, *decision)
        require_bearable(state.t + 1, decision.w, projection.square, self.alpha)
        return Turn(phi, projection, decision, embedding.choose(state, x, row, projection.square, rng))

    def absorb(self, state: NystromState, x: F64, turn: Turn) -> None:
        """Carry a played round into the state: O(|I|^2), and O(|I|^3) where it discounts."""
        state.posterior.absorb(turn.projection, turn.decision)
        state.log_det += math.log1p(turn.decision.w * turn.projection.q)
        state.t += 1
        if turn.growth is not None:
            self.embedding.grow(state, x, turn.phi, turn.growth)
            state.posterior.grow()
            if self.config.carry == "reset":
                state.posterior.reset(len(state.posterior))
        self.discount(state.posterior, state.t)

    def conditioning(self, state: Embedded, posterior: Posterior) -> float:
        """The conditions of A and of the embedding, and the coefficients of the points in the function learned: O(|I|^2)."""
        a = state.L.solve_transposed(posterior.u) * state.independent.view
        kernel, condition = self.config.kernel, posterior.largest / posterior.alpha
        return condition + self.embedding.condition(state) + kernel.mass(state.sample.points, a)

    def room_after(self, t: int, points: int) -> int:
        """Rounds that a block after round t may have with so many points, and none after one that discounts."""
        return self.forgetting.room(t, rows_at_once(points, BLOCK))

    def run(self, state: NystromState, X: F64, y: F64, rule: Rule, rng: RoundRng) -> list[tuple[float, Decision]]:
        """q and decision of at most `room` rounds in order, learned as one block; X: (n, d).

        Raises DivergedError before anything has changed.
        """
        inputs = EmbeddingBlock(self.embedding, state, X)
        posterior = PosteriorBlock(state.posterior, inputs.Phi)
        try:
            played = self._play_block(state, inputs, posterior, y, rule, rng)
        except NumericalError:
            inputs.undo()
            raise
        posterior.settle()
        inputs.settle()
        for q, decision in played:
            state.log_det += math.log1p(decision.w * q)
        state.t += len(played)
        self.discount(state.posterior, state.t)
        return played

    def _play_block(
        self,
        state: NystromState,
        inputs: EmbeddingBlock,
        posterior: PosteriorBlock,
        y: F64,
        rule: Rule,
        rng: RoundRng,
    ) -> list[tuple[float, Decision]]:
        played: list[tuple[float, Decision]] = []
        for j, truth in enumerate(y.tolist()):
            t = state.t + 1 + j
            rng.at(t)
            m, q = posterior.moments(j)
            require_finite(t, m, q)
            decision = rule(m, q, truth, t)
            require_finite(t, *decision)
            require_bearable(t, decision.w, posterior.squares.item(j), self.alpha)
            posterior.absorb(j, q, decision)
            played.append((q, decision))
            added = inputs.choose(j, rng)
            if added is not None:
                posterior.grow(added)
                if self.config.carry == "reset":
                    posterior.reset(inputs.products())
        return played

    def discount(self, posterior: Posterior, t: int) -> None:
        """Forget a step's worth after round t, if it is time for one: O(|I|^3)."""
        factor = self.forgetting.factor(t)
        if factor is not None:
            posterior.discount(factor)
