r"""The kernel projected on the span of a dictionary that grows online.

| symbol   | meaning                                                                                    | shape            |
|----------|--------------------------------------------------------------------------------------------|------------------|
| I        | the dictionary: points chosen online                                                       | (\|I\|, d)       |
| L        | lower Cholesky factor of K_II                                                              | (\|I\|, \|I\|)   |
| phi(x)   | L^{-1} k_I(x): phi(x)^T phi(z) = k_I(x)^T K_II^{-1} k_I(z), the kernel projected on span I | (\|I\|,)         |
| e        | kappa - phi^T phi, what the projection loses of an input                                   |                  |

In [calandriello2017b] the embedding is Lambda^{-1/2} U^T k_I, from the eigenvectors of K_II: another basis of the same
space, in which a new point changes every coordinate, so that what was learned must be carried over by a matrix Q in
O(|I|^3). In the basis of L a new point adds one coordinate, orthogonal to the others, and Q is the identity with a row of
zeros: the carry is exact and costs O(|I|^2), nothing is decomposed, and no sign is arbitrary.

References: [calandriello2017b] algorithms 1 and 2; [engel2004] for the deterministic dictionary.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple, Protocol, final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.kernels.kernels import Kernel
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.second_order.row_sampling import Kors, KorsBlock, Leverage, Sample
from okl_core.types import F64

INDEPENDENT = 1e-6
"""A point that keeps less than this share of kappa outside the span of the others adds no coordinate. Rounding in L grows
with the inverse of what is kept: far below, two ways to compute a forecast would no longer agree to 1e-9."""


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
    threshold: float = Field(
        default=0.1, gt=0.0, lt=1.0, description="Distance to the span, as a share of the point's norm."
    )


Dictionary = Annotated[KorsDictionary | AldDictionary, Field(discriminator="kind")]


class Embedded(Protocol):
    """What a state keeps of the embedding. `independent` is 1.0, or 0.0 for a point without a coordinate."""

    t: int
    sample: Sample
    independent: GrowingArray
    L: Factor


class Growth(NamedTuple):
    """A point that is kept, and is not in the dictionary yet."""

    leverage: Leverage | None
    outside: float
    """e of the point."""
    is_independent: bool


@final
class Embedding(NamedTuple):
    """The dictionary's rule and the coordinates. `budget`: points at most."""

    kernel: Kernel
    dictionary: Dictionary
    budget: int | None

    @property
    def kors(self) -> Kors | None:
        chosen = self.dictionary
        if isinstance(chosen, AldDictionary):
            return None
        return Kors(self.kernel, chosen.regularization, chosen.oversampling, chosen.accuracy)

    def parts(self, dim: int) -> tuple[Sample, GrowingArray, Factor]:
        """The fields of `Embedded`, before the first round."""
        return Kors(self.kernel).empty(dim), GrowingArray(), Factor()

    def row(self, state: Embedded, x: F64) -> F64:
        """k_I(x), shape (|I|,)."""
        return self.kernel.row(state.sample.points, x)

    def coordinates(self, state: Embedded, rows: F64) -> F64:
        """phi, from the kernel row of the dictionary, shape (|I|,), or rows, (|I|, n): O(|I|^2) each."""
        independent = state.independent.view
        return state.L.solve((independent if rows.ndim == 1 else independent[:, None]) * rows)

    def condition(self, state: Embedded) -> float:
        """The largest share that a point with a coordinate keeps outside the span of those before it, inverted."""
        kept = state.independent.view > 0.0
        if not kept.any():
            return 1.0
        kappas = self.kernel.diag(state.sample.points.coordinates()[kept])
        return max(1.0, float((kappas / np.square(state.L.diagonal()[kept])).max()))

    def room(self, state: Embedded) -> float:
        """Points that the budget still allows, perhaps infinitely many."""
        return math.inf if self.budget is None else self.budget - len(state.sample)

    def choose(self, state: Embedded, x: F64, row: F64, square: float, rng: RoundRng) -> Growth | None:
        """Is x, with its row and phi^T phi, kept? None if it is not. Changes nothing. Raises DivergedError."""
        if self.room(state) <= 0:
            return None
        kappa, kors, leverage = self.kernel.at(x), self.kors, None
        self.require_bearable(state.t + 1, kappa)
        outside = max(kappa - square, 0.0)
        if kors is None:
            is_kept = rng.decide(self.is_far(outside, kappa))
        else:
            leverage = kors.leverage(state.sample, x, row=row)
            is_kept = rng.bernoulli(kors.probability(leverage.tau))
        return Growth(leverage, outside, rng.decide(outside > INDEPENDENT * kappa)) if is_kept else None

    def grow(self, state: Embedded, x: F64, phi: F64, growth: Growth) -> None:
        """Add a point that was chosen: O(|I|)."""
        kors = self.kors
        if kors is None or growth.leverage is None:
            state.sample.points.append(x)
        else:
            kors.keep(state.sample, x, growth.leverage, kors.probability(growth.leverage.tau))
        self.extend(state, phi, growth.outside, growth.is_independent)

    def require_bearable(self, t: int, kappa: float) -> None:
        """Raises DivergedError for a point that the leverage scores cannot take."""
        chosen = self.dictionary
        require_finite(t, kappa)
        if isinstance(chosen, KorsDictionary):
            require_bearable(t, 1.0, kappa, chosen.regularization)

    def is_far(self, outside: float, kappa: float) -> bool:
        chosen = self.dictionary
        if not isinstance(chosen, AldDictionary):
            return False
        return outside > max(chosen.threshold * chosen.threshold, INDEPENDENT) * kappa

    def extend(self, state: Embedded, phi: F64, outside: float, is_independent: bool) -> None:
        """Give the newest point its row of L. One without a coordinate gets a row of the identity."""
        if is_independent:
            state.L.append(phi, math.sqrt(outside))
        else:
            state.L.append(np.zeros_like(phi), 1.0)
        state.independent.append(float(is_independent))


@final
class EmbeddingBlock:
    """Points whose inputs are known, chosen one by one: E is K - Phi^T Phi, what the span leaves of those after j; (n, n).

    Phi, shape (|I|, n), are their coordinates before the block; those that points of the block add are what `choose` gives.
    """

    def __init__(self, embedding: Embedding, state: Embedded, X: F64) -> None:
        self._embedding, self._state, self._X = embedding, state, X
        self._size = len(state.L)
        rows = embedding.kernel.block(state.sample.points, X)
        self.Phi = embedding.coordinates(state, rows)
        self._added: list[F64] = []
        self._room = embedding.room(state)
        self._kors: KorsBlock | None = None
        if self._room > 0:
            self._K = embedding.kernel.gram(X)
            self._E = self._K - self.Phi.T @ self.Phi
            kors = embedding.kors
            if kors is not None:
                self._kors = KorsBlock(kors, state.sample, X, self._K, rows)

    def choose(self, j: int, rng: RoundRng) -> F64 | None:
        """The coordinate that point j adds, shape (n,), 0 up to itself; None if it is not kept.

        O(n^2) and O(|I|^2) if it is; the dictionary has it at once.
        """
        embedding, state, x = self._embedding, self._state, self._X[j]
        if self._room <= 0:
            return None
        kappa = self._K.item(j, j)
        embedding.require_bearable(state.t + 1 + j, kappa)
        if self._kors is None:
            is_kept = rng.decide(embedding.is_far(max(self._E.item(j, j), 0.0), kappa))
        else:
            probability = self._kors.kors.probability(self._kors.tau(j))
            is_kept = rng.bernoulli(probability)
            if is_kept:
                self._kors.keep(j, probability)
        if not is_kept:
            return None
        self._room -= 1
        # Anew, in the order of operations of a single round: the coordinates of all points to come hang on these bits, and
        # K_II may be so near to singular that other bits would be other coordinates.
        phi = embedding.coordinates(state, embedding.row(state, x))
        outside = max(kappa - (ddot(phi, phi) if len(phi) else 0.0), 0.0)
        is_independent = rng.decide(outside > INDEPENDENT * kappa)
        state.sample.points.append(x)
        embedding.extend(state, phi, outside, is_independent)
        coordinate = np.zeros(len(self._X))
        if is_independent:
            # Not from E, whose entries carry the rounding of every point so far, multiplied with each that is nearly
            # dependent: by substitution, as `coordinates` would.
            left, old = self._K[j, j + 1 :].copy(), len(self.Phi)
            left -= phi[:old] @ self.Phi[:, j + 1 :]
            if self._added:
                left -= phi[old:] @ np.array(self._added)[:, j + 1 :]
            np.multiply(left, 1.0 / math.sqrt(outside), out=coordinate[j + 1 :])
            self._E -= coordinate[:, None] * coordinate
        self._added.append(coordinate)
        return coordinate

    def products(self) -> F64:
        """phi^T phi of the points after the one chosen last, shape (n, n), in the present dictionary."""
        return self._K - self._E

    def settle(self) -> None:
        """Make the points that were chosen part of the state for good."""
        if self._kors is not None:
            self._kors.settle(has_points=True)

    def undo(self) -> None:
        """Take the points that were chosen out of the state again."""
        for part in (self._state.sample.points, self._state.independent, self._state.L):
            part.truncate(self._size)
