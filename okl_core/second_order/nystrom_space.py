r"""The space of a dictionary that grows with the stream: A and s in the coordinates of an `embedding`.

A point that joins the dictionary adds one coordinate to A^{-1} and A^{-1} s, kept in the `posterior`. The cost of a round
depends on the dictionary, not on the number of past rounds.

References: [calandriello2017b] algorithms 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Protocol, final

import numpy as np
from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.kernels.kernels import Kernel
from okl_core.kernels.rounding import magnified
from okl_core.linalg.guards import require_finite
from okl_core.linalg.precision import FloatType, PrecisionName
from okl_core.second_order.embedding import AldDictionary, Dictionary, Embedding, EmbeddingBlock, EmbeddingState, Growth
from okl_core.second_order.forgetting import HalfLife
from okl_core.second_order.posterior import Posterior, PosteriorBlock, Projection
from okl_core.second_order.space_and_rule import Decision, Moments, Rule, SpaceState, T
from okl_core.types import F64

BLOCK = 64
"""Maximum rounds per block."""

Budget = Annotated[
    int | None, Field(ge=1, description="Maximum number of points; once it is reached, the dictionary stays fixed.")
]
DEFAULT_BUDGET = 400

Precision = Annotated[
    PrecisionName,
    Field(
        description="Precision of the dictionary, its factors and the learned inverse: float64 (double), or float32 "
        "(single), with half the memory, and less time from some 200 points on, but fewer correct digits in forecasts: too "
        "few for a replay on another processor with an ald threshold below 0.03 or, except in nystrom-aioli, a "
        "regularization below 0.1 without an ald threshold of 0.1 or more."
    ),
]

Carry = Annotated[
    Literal["transport", "reset"],
    Field(
        description="What a new point does to the learned function: keep it (transport), or, as first published, reset it."
    ),
]


@final
@dataclass(slots=True)
class NystromState(SpaceState):
    embedding: EmbeddingState
    posterior: Posterior

    def __post_init__(self) -> None:
        self.embedding.require_posterior(self.posterior)


class NystromRound(NamedTuple):
    moments: Moments
    decision: Decision
    phi: F64
    projection: Projection
    growth: Growth | None


class DictionaryConfig(Protocol):
    """Parameters of every learner on a dictionary."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def dictionary(self) -> Dictionary: ...
    @property
    def budget(self) -> int | None: ...
    @property
    def carry(self) -> Literal["transport", "reset"]: ...
    @property
    def half_life(self) -> int | Literal["learned"] | None: ...
    @property
    def precision(self) -> PrecisionName: ...


INVERTED = 0.03125
"""Share of kappa / alpha that counts as conditioning: A^{-1} begins as I / alpha, and rounding errors of that size stay in q.
Between BLAS kernels, forecasts of nystrom-aioli, whose rounds are light, differ by up to 0.2 eps kappa / alpha; the replay
tolerance allows twice eps times it."""

STEADY_ALPHA, STEADY_THRESHOLD, FAR_THRESHOLD = 0.1, 0.03, 0.1
"""Regularization and distances between points from which single precision has digits enough; see `lost_digits`."""


def lost_digits(config: DictionaryConfig, alpha: float | None = None) -> tuple[str, ...]:
    """Return a caution if single precision leaves a replay on another processor too few digits, else an empty tuple.

    Measured on 250 rounds of noise, of which BLAS for Prescott replayed what BLAS for Haswell had recorded. With points
    closer than STEADY_THRESHOLD even the dictionary may not be the same. From there on forecasts differed by more than
    `LARGEST_TOLERANCE` only for alpha below STEADY_ALPHA, and never with points FAR_THRESHOLD apart. Without `alpha`, for a
    rule that weights rounds lightly, only the points count.
    """
    if config.precision == "double":
        return ()
    chosen = config.dictionary
    threshold = chosen.threshold if isinstance(chosen, AldDictionary) else STEADY_THRESHOLD
    if threshold < STEADY_THRESHOLD:
        what, remedy = f"an ald threshold of {threshold:g}", f"{FAR_THRESHOLD:g} or more"
    elif alpha is not None and alpha < STEADY_ALPHA and threshold < FAR_THRESHOLD:
        what, remedy = f"regularization {alpha:g}", f"{STEADY_ALPHA:g} or more"
    else:
        return ()
    return (
        f"single precision with {what} may differ on another processor by more than a replay tolerates: take {remedy}, or "
        "double precision",
    )


@final
class NystromSpace(NamedTuple):
    """The space of one embedding, with alpha > 0. `carry`: whether a new point keeps or resets A and s."""

    embedding: Embedding
    alpha: float
    carry: Carry
    forgetting: HalfLife
    state_type = NystromState

    @classmethod
    def of(cls, config: DictionaryConfig, alpha: float) -> NystromSpace:
        floats = FloatType.of(config.precision)
        embedding = Embedding(config.kernel, config.dictionary, config.budget, floats)
        return cls(embedding, alpha, config.carry, HalfLife.of(config.half_life))

    @property
    def is_whole(self) -> bool:
        return self.forgetting.rounds is None and self.carry == "transport"

    def init(self, dim: int) -> NystromState:
        return NystromState(0.0, self.embedding.init(dim), self.prior())

    def prior(self) -> Posterior:
        """Return the posterior before the first round."""
        return Posterior(self.alpha, 0, self.embedding.floats)

    def initial_bytes(self, dim: int) -> int:
        return 0

    def moments(self, state: NystromState, t: int, x: F64, needs_variance: bool) -> Moments:
        """O(|I|^2 + d |I|)."""
        _, phi, kappa = self.embedding.locate(state.embedding, x)
        m, q = state.posterior.moments(phi, needs_variance)
        require_finite(t, m, q)
        return Moments(m, q, kappa)

    def play(self, state: NystromState, t: int, x: F64, y: float, rule: Rule[T], rng: RoundRng) -> NystromRound:
        located = self.embedding.locate(state.embedding, x)
        moments, projection, decision = state.posterior.play(t, located.phi, located.kappa, y, rule, rng)
        growth = self.embedding.choose(state.embedding, t, located, rng)
        return NystromRound(moments, decision, located.phi, projection, growth)

    def absorb(self, state: NystromState, t: int, x: F64, played: NystromRound) -> None:
        """O(|I|^2), or O(|I|^3) in a round that discounts."""
        moments, decision, phi, projection, growth = played
        state.posterior.absorb(projection, decision)
        state.log_det += math.log1p(decision.w * moments.q)
        if growth is not None:
            self.embedding.grow(state.embedding, x, phi, growth)
            state.posterior.grow()
            if self.carry == "reset":
                state.posterior.reset()
        self.discount(state.posterior, t)

    def room(self, state: NystromState, t: int) -> int:
        """Return the length of the next block: at most BLOCK, and none beyond a round that discounts."""
        return self.room_after(t - 1, len(state.embedding.points))

    def room_after(self, t: int, points: int) -> int:
        """Return the largest length of a block after round t, for this many points."""
        return self.forgetting.room(t, rows_at_once(points, BLOCK))

    def block(self, state: NystromState, t: int, X: F64, rng: RoundRng) -> NystromBlock:
        return NystromBlock(self, state, t, X)

    def discount(self, posterior: Posterior, t: int) -> None:
        """Discount the posterior after round t, if it is due: O(|I|^3)."""
        factor = self.forgetting.factor(t)
        if factor is not None:
            posterior.discount(factor)

    def extra_work(self, state: NystromState, t: int, rounds: int) -> float:
        return self.forgetting.discount_work(t - 1, rounds, len(state.posterior) + rounds)

    def conditioning(self, state: NystromState) -> float:
        return self.condition(state.embedding, state.posterior)

    def condition(self, known: EmbeddingState, posterior: Posterior) -> float:
        """Return the condition of A, the digits its inverse lost, and the conditioning of the learned function: O(|I|^2)."""
        # Weights of huge truths overflow in single precision.
        with np.errstate(over="ignore", invalid="ignore"):
            a = known.L.solve_transposed(posterior.u) * known.independent.view
            mass = self.embedding.kernel.mass(known.points, a)
        mass = math.inf if math.isnan(mass) else mass
        largest = float(self.embedding.kernel.diag(known.points.coordinates()).max(initial=0.0))
        of_A = (posterior.largest + INVERTED * largest) / posterior.alpha
        of_f = magnified(self.embedding.condition(known), mass)
        return (of_A + of_f) * self.embedding.floats.rounding

    def describe(self, state: NystromState) -> dict[str, float]:
        return {"dictionary": len(state.embedding.points), "bytes": state.nbytes}


@final
class NystromBlock:
    """A block of rounds with known inputs; see `SpaceBlock`."""

    def __init__(self, space: NystromSpace, state: NystromState, t: int, X: F64) -> None:
        self._space, self._state, self._t = space, state, t
        self._inputs = EmbeddingBlock(space.embedding, state.embedding, t, X)
        self._posterior = PosteriorBlock(state.posterior, self._inputs.Phi)
        self._log_det = 0.0
        self._last = t + len(X) - 1

    def play(self, j: int, y: float, rule: Rule[T], rng: RoundRng) -> tuple[float, Decision]:
        t = self._t + j
        rng.at(t)
        q, decision = self._posterior.play(j, t, self._inputs.kappa[j], y, rule, rng)
        self._log_det += math.log1p(decision.w * q)
        added = self._inputs.choose(j, rng)
        if added is not None:
            self._posterior.grow(added)
            if self._space.carry == "reset":
                self._posterior.reset(self._inputs.products())
        return q, decision

    def settle(self) -> None:
        self._posterior.settle()
        self._inputs.settle()
        self._state.log_det += self._log_det
        self._space.discount(self._state.posterior, self._last)
