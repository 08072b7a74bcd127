r"""The engine in a Nystrom embedding that grows with its dictionary: a cost per round that does not grow with t.

| symbol   | meaning                                                                        | shape            |
|----------|--------------------------------------------------------------------------------|------------------|
| I        | the dictionary: points chosen online                                           | (\|I\|, d)       |
| L        | lower Cholesky factor of K_II                                                  | (\|I\|, \|I\|)   |
| phi(x)   | L^{-1} k_I(x): phi(x)^T phi(z) = k_I(x)^T K_II^{-1} k_I(z), the kernel projected on span I | (\|I\|,) |
| e        | kappa - phi^T phi, what the projection loses of an input                       |                  |
| P, u     | A^{-1} and A^{-1} s in the coordinates phi, of `okl_core.posterior`            |                  |

In [calandriello2017b] the embedding is Lambda^{-1/2} U^T k_I, from the eigenvectors of K_II: another basis of the same
space, in which a new point changes every coordinate, so that P and u must be carried over by a matrix Q in O(|I|^3). In
the basis of L a new point adds one coordinate, orthogonal to the others, and Q is the identity with a row of zeros: the
carry is exact and costs O(|I|^2), nothing is decomposed, and no sign is arbitrary.

References: [calandriello2017b] algorithms 1 and 2; [engel2004] for the deterministic dictionary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from okl_core.engine import Decision, Rule, require_finite
from okl_core.growing import Factor, GrowingArray
from okl_core.kernels import Gaussian, Kernel
from okl_core.posterior import Posterior, PosteriorBlock, Projection
from okl_core.rng import RoundRng
from okl_core.sampling import Kors, KorsBlock, Leverage, Sample
from okl_core.types import F64, LearnerConfig, LearnerState

BLOCK = 64
"""Rounds per block of `Nystrom.run` at most."""

INDEPENDENT = 1e-7
"""A point that keeps less than this share of kappa outside the span of the others adds no coordinate: its coordinate would
be the rounding error of L."""

STAIRS = 8
"""Steps in which a half-life discounts: one costs O(|I|^3)."""


class KorsDictionary(BaseModel):
    """Online row sampling by ridge leverage scores."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: Literal["kors"] = "kors"
    regularization: float = Field(default=1.0, gt=0.0, description="Of the leverage scores; smaller keeps more points.")
    oversampling: float = Field(
        default=1.0, gt=0.0, description="beta: a point is kept with probability min(beta tau, 1)."
    )
    accuracy: float = Field(default=0.5, gt=0.0, lt=1.0, description="epsilon, by which scores are overestimated.")


class AldDictionary(BaseModel):
    """Approximate linear dependence: no coins; a point is kept if it is far from the span of the others."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: Literal["ald"] = "ald"
    threshold: float = Field(default=0.1, gt=0.0, description="Distance to the span, as a share of the point's norm.")


Dictionary = Annotated[KorsDictionary | AldDictionary, Field(discriminator="kind")]


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
    outside: float
    """e, the part of kappa outside of the span."""
    leverage: Leverage | None
    is_kept: bool
    is_independent: bool

    @property
    def q(self) -> float:
        return self.projection.q


@final
class Nystrom(NamedTuple):
    """The recursion for one config and one alpha > 0."""

    config: NystromConfig
    alpha: float

    @property
    def _kors(self) -> Kors | None:
        chosen = self.config.dictionary
        if isinstance(chosen, AldDictionary):
            return None
        return Kors(self.config.kernel, chosen.regularization, chosen.oversampling, chosen.accuracy)

    @property
    def _stride(self) -> int:
        """Rounds between two discounts; 0 without forgetting."""
        return 0 if self.config.half_life is None else self.config.half_life // STAIRS

    def parts(self, dim: int) -> tuple[Sample, GrowingArray, Factor, Posterior, float]:
        """The fields of `NystromState` after `t`, before the first round. Raises ConfigError for an unresolved kernel."""
        sample = Kors(self.config.kernel).empty(dim)
        self.config.kernel.row(sample.points, np.zeros(dim))
        return sample, GrowingArray(), Factor(), Posterior(self.alpha, 0), 0.0

    def project(self, state: NystromState, phi: F64) -> Projection:
        """m and q of an input's phi: O(|I|^2). Raises DivergedError."""
        projection = state.posterior.project(phi)
        require_finite(state.t + 1, projection.m, projection.q)
        return projection

    def play(self, state: NystromState, x: F64, y: float, rule: Rule, rng: RoundRng) -> Turn:
        """One round; changes nothing. Raises DivergedError."""
        row = self.config.kernel.row(state.sample.points, x)
        phi = self._embed(state, row)
        projection = self.project(state, phi)
        decision = rule(projection.m, projection.q, y, state.t + 1)
        require_finite(state.t + 1, *decision)
        if self._is_full(state):
            return Turn(phi, projection, decision, 0.0, None, False, False)
        kappa = self.config.kernel.at(x)
        outside = max(kappa - projection.square, 0.0)
        kors, leverage = self._kors, None
        if kors is None:
            is_kept = rng.decide(self._is_far(outside, kappa))
        else:
            leverage = kors.leverage(state.sample, x, row=row)
            is_kept = rng.bernoulli(kors.probability(leverage.tau))
        is_independent = is_kept and rng.decide(outside > INDEPENDENT * kappa)
        return Turn(phi, projection, decision, outside, leverage, is_kept, is_independent)

    def absorb(self, state: NystromState, x: F64, turn: Turn) -> None:
        """Carry a played round into the state: O(|I|^2), and O(|I|^3) where it discounts."""
        state.posterior.absorb(turn.projection, turn.decision)
        state.log_det += math.log1p(turn.decision.w * turn.projection.q)
        state.t += 1
        if turn.is_kept:
            kors = self._kors
            if kors is None or turn.leverage is None:
                state.sample.points.append(x)
            else:
                kors.keep(state.sample, x, turn.leverage, kors.probability(turn.leverage.tau))
            self._extend(state, turn.phi, turn.outside, turn.is_independent)
            state.posterior.grow()
            if self.config.carry == "reset":
                state.posterior.reset(len(state.posterior))
        self._discount(state)

    def room(self, state: NystromState) -> int:
        """Rounds that the next block may have: at most BLOCK, and none after one that discounts."""
        return min(BLOCK, self._stride - state.t % self._stride) if self._stride else BLOCK

    def run(self, state: NystromState, X: F64, y: F64, rule: Rule, rng: RoundRng) -> list[tuple[float, Decision]]:
        """q and decision of at most `room` rounds in order, learned as one block; X: (n, d).

        Raises DivergedError before anything has changed.
        """
        played = _Block(self, state, X).run(y, rule, rng)
        self._discount(state)
        return played

    def embed(self, state: NystromState, x: F64) -> F64:
        """phi of x, shape (d,): O(|I|^2 + d |I|)."""
        return self._embed(state, self.config.kernel.row(state.sample.points, x))

    def _embed(self, state: NystromState, rows: F64) -> F64:
        """phi, from the kernel row of the dictionary, shape (|I|,), or rows, (|I|, n)."""
        independent = state.independent.view
        return state.L.solve((independent if rows.ndim == 1 else independent[:, None]) * rows)

    def _is_full(self, state: NystromState) -> bool:
        return self.config.budget is not None and len(state.sample) >= self.config.budget

    def _is_far(self, outside: float, kappa: float) -> bool:
        chosen = self.config.dictionary
        return isinstance(chosen, AldDictionary) and outside > chosen.threshold * chosen.threshold * kappa

    def _extend(self, state: NystromState, phi: F64, outside: float, is_independent: bool) -> None:
        """Give the newest point its row of L. One without a coordinate gets a row of the identity."""
        if is_independent:
            state.L.append(phi, math.sqrt(outside))
        else:
            state.L.append(np.zeros_like(phi), 1.0)
        state.independent.append(float(is_independent))

    def _discount(self, state: NystromState) -> None:
        if self._stride and state.t % self._stride == 0:
            state.posterior.discount(0.5 ** (self._stride / (self.config.half_life or 1)))


@final
class _Block:
    """Rounds whose inputs are known: E is K_BB - Phi^T Phi, what the span leaves of the inputs after j; (n, n)."""

    def __init__(self, engine: Nystrom, state: NystromState, X: F64) -> None:
        self.engine, self.state, self.X = engine, state, X
        kernel, points = engine.config.kernel, state.sample.points
        rows = kernel.block(points, X)
        self.Phi = engine._embed(state, rows)
        self.posterior = PosteriorBlock(state.posterior, self.Phi)
        self.room = math.inf if engine.config.budget is None else engine.config.budget - len(state.sample)
        self.kept: list[tuple[int, float, bool]] = []
        """(j, e, has a coordinate) of every point that joined the dictionary."""
        self.new_rows: list[F64] = []
        self.kors: KorsBlock | None = None
        if self.room > 0:
            self.K = kernel.gram(X)
            self.E = self.K - self.Phi.T @ self.Phi
            kors = engine._kors
            if kors is not None:
                self.kors = KorsBlock(kors, state.sample, X, self.K, rows)

    def run(self, y: F64, rule: Rule, rng: RoundRng) -> list[tuple[float, Decision]]:
        state, posterior = self.state, self.posterior
        played: list[tuple[float, Decision]] = []
        for j, truth in enumerate(y.tolist()):
            t = state.t + 1 + j
            rng.at(t)
            m, q = posterior.moments(j)
            require_finite(t, m, q)
            decision = rule(m, q, truth, t)
            require_finite(t, *decision)
            posterior.absorb(j, q, decision)
            played.append((q, decision))
            if len(self.kept) < self.room:
                self._choose(j, rng)
        self._settle(played)
        return played

    def _choose(self, j: int, rng: RoundRng) -> None:
        engine, kappa = self.engine, self.K.item(j, j)
        outside = max(self.E.item(j, j), 0.0)
        if self.kors is None:
            is_kept = rng.decide(engine._is_far(outside, kappa))
        else:
            probability = self.kors.kors.probability(self.kors.tau(j))
            is_kept = rng.bernoulli(probability)
            if is_kept:
                self.kors.keep(j, probability)
        if not is_kept:
            return
        is_independent = rng.decide(outside > INDEPENDENT * kappa)
        coordinate = np.zeros(len(self.X))
        if is_independent:
            np.multiply(self.E[j, j + 1 :], 1.0 / math.sqrt(outside), out=coordinate[j + 1 :])
        self.E -= coordinate[:, None] * coordinate
        self.posterior.grow(coordinate)
        if engine.config.carry == "reset":
            self.posterior.reset(self.K - self.E)
        self.new_rows.append(coordinate)
        self.kept.append((j, outside, is_independent))

    def _settle(self, played: list[tuple[float, Decision]]) -> None:
        """Carry the whole block into the state."""
        engine, state = self.engine, self.state
        self.posterior.settle()
        if self.kors is not None:
            self.kors.settle()
        for k, (j, outside, is_independent) in enumerate(self.kept):
            if self.kors is None:
                state.sample.points.append(self.X[j])
            phi = np.concatenate((self.Phi[:, j], [row[j] for row in self.new_rows[:k]]))
            engine._extend(state, phi, outside, is_independent)
        for q, decision in played:
            state.log_det += math.log1p(decision.w * q)
        state.t += len(played)
