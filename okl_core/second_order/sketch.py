r"""The sketch of KONS: a gradient joins A with a probability given by its leverage score.

| symbol  | meaning                                                                   | in [calandriello2017] |
|---------|---------------------------------------------------------------------------|-----------------------|
| gamma   | floor of the probabilities                                                | algorithm 3           |
| tau     | estimated leverage score of g sqrt(eta) phi_t, by `row_sampling`          | section 4             |
| beta    | oversampling: a gradient is kept with probability max(min(beta tau, 1), gamma) | algorithm 3      |
| z       | 1 for a gradient that is kept, else 0                                     | algorithm 3           |

Each round tosses two coins, one for the dictionary and one for the sketch, so that the two choices are independent.

References: [calandriello2017] algorithm 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.contract.state import require_lengths
from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.weighted_factor import WeightedFactor
from okl_core.second_order.forgetting import Memory
from okl_core.second_order.row_sampling import Kors, KorsBlock, Leverage
from okl_core.second_order.space_and_rule import Decision
from okl_core.types import F64, StatePart

BLOCK = 128
"""Points added at once when a factor is rebuilt."""


@final
@dataclass(slots=True)
class SketchState(StatePart):
    """The dictionary for the leverage scores, the rounds of its points, and the sum of all scores."""

    points: Points
    kept: WeightedFactor
    rounds: GrowingArray
    sum_tau: float

    def __post_init__(self) -> None:
        require_lengths(points=self.points, kept=self.kept, rounds=self.rounds)


class Sampled(NamedTuple):
    """The effect of a round on the dictionary; `leverage` is None if its point is not kept."""

    tau: float
    leverage: Leverage | None
    scale: float


@final
class Sketch(NamedTuple):
    kernel: Kernel
    kors: Kors
    floor: float
    """gamma."""

    def init(self, dim: int) -> SketchState:
        return SketchState(self.kernel.points(dim), WeightedFactor.empty(), GrowingArray(), 0.0)

    def toss(self, tau: float, decision: Decision, rng: RoundRng) -> tuple[Decision, bool]:
        """Return the decision, with w = 0 if z is 0, and whether the point joins the dictionary."""
        p = self.kors.probability(tau)
        u, v = rng.uniforms(2)
        is_sampled = rng.decide(u < p)
        z = rng.decide(v < max(p, self.floor))
        return decision if z else decision._replace(w=0.0), is_sampled

    def thin(
        self, state: SketchState, x: F64, kappa: float, decision: Decision, rng: RoundRng
    ) -> tuple[Decision, Sampled]:
        """Thin a decision on x, shape (d,); return it and its effect on the dictionary, without changing state."""
        scale = math.sqrt(decision.w)
        leverage = self.kors.leverage(state.kept, self.kernel.row(state.points, x), kappa, scale)
        decision, is_sampled = self.toss(leverage.tau, decision, rng)
        return decision, Sampled(leverage.tau, leverage if is_sampled else None, scale)

    def absorb(self, state: SketchState, t: int, x: F64, sampled: Sampled | None) -> None:
        """Update the dictionary with round t."""
        if sampled is None:
            return
        state.sum_tau += sampled.tau
        if sampled.leverage is not None:
            self.kors.keep(state.kept, sampled.leverage, self.kors.probability(sampled.tau), sampled.scale)
            state.points.append(x)
            state.rounds.append(t)

    def block(self, state: SketchState, t: int, X: F64, K: F64) -> SketchBlock:
        return SketchBlock(self, state, t, X, K)

    def forget(self, state: SketchState, memory: Memory, t: int) -> None:
        """Drop the points of rounds that no longer count, and reduce the others' weights like their rounds': O(|I|^3)."""
        first = memory.first_kept(state.rounds, t)
        if not first and memory.factor == 1.0:
            return
        X, roots = state.points.coordinates()[first:], math.sqrt(memory.factor) * state.kept.roots.view[first:]
        points, kept = self.kernel.points(state.points.dim), WeightedFactor.empty()
        for start in range(0, len(X), BLOCK):
            rows = slice(start, start + BLOCK)
            block = KorsBlock(self.kors, kept, self.kernel.gram(X[rows]), self.kernel.block(points, X[rows]))
            block.join_all(roots[rows])
            block.settle()
            points.extend(X[rows])
        state.points, state.kept = points, kept
        state.rounds.select(np.arange(first, len(state.rounds)))


@final
class SketchBlock:
    """A block of rounds with known inputs and their kernel matrix K, (n, n), thinned one by one.

    The state changes only in `settle`.
    """

    def __init__(self, sketch: Sketch, state: SketchState, t: int, X: F64, K: F64) -> None:
        self._sketch, self._state, self._t, self._X = sketch, state, t, X
        self._scores = KorsBlock(sketch.kors, state.kept, K, sketch.kernel.block(state.points, X))
        self._sampled: list[int] = []
        self._sum_tau = 0.0

    def thin(self, j: int, decision: Decision, rng: RoundRng) -> Decision:
        scale = math.sqrt(decision.w)
        tau = self._scores.score(j, scale)
        decision, is_sampled = self._sketch.toss(tau, decision, rng)
        self._sum_tau += tau
        if is_sampled:
            self._scores.keep(j, self._sketch.kors.probability(tau), scale)
            self._sampled.append(j)
        return decision

    def settle(self) -> None:
        state = self._state
        self._scores.settle()
        state.points.extend(self._X[self._sampled])
        for j in self._sampled:
            state.rounds.append(self._t + j)
        state.sum_tau += self._sum_tau
