r"""The kernel, projected onto the span of a dictionary that grows online.

| symbol   | meaning                                                                                    | shape            |
|----------|--------------------------------------------------------------------------------------------|------------------|
| I        | the dictionary: points chosen online                                                       | (\|I\|, d)       |
| L        | lower Cholesky factor of K_II                                                              | (\|I\|, \|I\|)   |
| phi(x)   | L^{-1} k_I(x): phi(x)^T phi(z) = k_I(x)^T K_II^{-1} k_I(z), the projected kernel           | (\|I\|,)         |
| e        | kappa - phi^T phi, the squared norm that an input loses in the projection                  |                  |

In [calandriello2017b] the embedding is Lambda^{-1/2} U^T k_I, from the eigenvectors of K_II. This is another basis of the
same space, in which a new point changes every coordinate, so a matrix Q must transport what was learned, in O(|I|^3). In the
basis of L a new point adds one coordinate, orthogonal to the others, and Q is the identity with a row of zeros: the
transport is exact and costs O(|I|^2), nothing is decomposed, and no sign is arbitrary.

References: [calandriello2017b] algorithms 1 and 2; [engel2004] for the deterministic dictionary.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, final

import numpy as np
from pydantic import Field
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.errors import StateFormatError
from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_bearable, require_finite, require_single
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.linalg.weighted_factor import WeightedFactor
from okl_core.second_order.posterior import Posterior
from okl_core.second_order.row_sampling import Kors, KorsBlock, Leverage
from okl_core.types import F64, Parameters, StatePart

INDEPENDENT, SINGLE_INDEPENDENT = 1e-6, 1e-4
"""A point with less than this share of kappa outside the span of the others adds no coordinate. Rounding in L grows with the
inverse of this share: far below it, two ways to compute a forecast would no longer agree to 1e-9 (to 1e-3 with L in single
precision)."""


class KorsDictionary(Parameters):
    """Online row sampling by ridge leverage scores."""

    kind: Literal["kors"] = "kors"
    regularization: float = Field(
        default=1.0, gt=0.0, description="Regularization of the leverage scores; smaller keeps more points."
    )
    oversampling: float = Field(
        default=1.0, gt=0.0, description="beta: a point is kept with probability min(beta tau, 1)."
    )
    accuracy: float = Field(default=0.5, gt=0.0, lt=1.0, description="epsilon, by which scores are overestimated.")

    @cached_property
    def kors(self) -> Kors:
        return Kors(self.regularization, self.oversampling, self.accuracy)


class AldDictionary(Parameters):
    """Approximate linear dependence: without random choices, a point is kept if it is far from the span of the others."""

    kind: Literal["ald"] = "ald"
    threshold: float = Field(
        default=0.1, gt=0.0, lt=1.0, description="Distance to the span, as a share of the point's norm."
    )


Dictionary = Annotated[KorsDictionary | AldDictionary, Field(discriminator="kind")]


@final
@dataclass(slots=True)
class EmbeddingState(StatePart):
    """The dictionary I and its factor L. `independent` is 1.0, or 0.0 for a point without a coordinate.

    `kept` is the points' factor for row sampling; None with `AldDictionary`, and once the budget is used up.
    """

    points: Points
    independent: GrowingArray
    L: Factor
    kept: WeightedFactor | None

    def __post_init__(self) -> None:
        count = len(self.points)
        if self.independent.view.shape != (count,) or len(self.L) != count:
            raise StateFormatError(
                f"{count} points have {len(self.independent)} coordinates and {len(self.L)} rows of L"
            )
        if self.kept is not None and len(self.kept) != count:
            raise StateFormatError(f"{count} points, and {len(self.kept)} that row sampling keeps")

    def require_posterior(self, posterior: Posterior) -> None:
        """Raise StateFormatError if the posterior has another number of coordinates."""
        if len(posterior) != len(self.points):
            raise StateFormatError(f"a posterior in {len(posterior)} coordinates for {len(self.points)} points")


class Located(NamedTuple):
    """An input as the dictionary sees it."""

    row: F64
    """k_I(x), shape (|I|,)."""
    phi: F64
    kappa: float


class Growth(NamedTuple):
    """A point that was chosen, but is not in the dictionary yet."""

    leverage: Leverage | None
    outside: float
    """e of the point."""
    is_independent: bool


@final
class Embedding(NamedTuple):
    """The dictionary's rule and the coordinates.

    `budget`: maximum number of points; `floats`: precision of points and factors.
    """

    kernel: Kernel
    dictionary: Dictionary
    budget: int | None
    floats: FloatType = DOUBLE

    @property
    def independent(self) -> float:
        """The least share of kappa outside the span for a point to get a coordinate."""
        return INDEPENDENT if self.floats is DOUBLE else SINGLE_INDEPENDENT

    def init(self, dim: int) -> EmbeddingState:
        kept = WeightedFactor.empty(self.floats) if isinstance(self.dictionary, KorsDictionary) else None
        points = self.kernel.points(dim, floats=self.floats)
        return EmbeddingState(points, GrowingArray(), Factor(self.floats), kept)

    def coordinates(self, state: EmbeddingState, rows: F64) -> F64:
        """Return phi, from the kernel row of the dictionary, shape (|I|,), or rows, (|I|, n): O(|I|^2) each.

        Raise DivergedError.
        """
        if self.floats is not DOUBLE and not self.kernel.translation_invariant:
            require_single(float(np.abs(rows).max(initial=0.0)))
        independent = state.independent.view
        return state.L.solve((independent if rows.ndim == 1 else independent[:, None]) * rows)

    def locate(self, state: EmbeddingState, x: F64) -> Located:
        """Return the kernel row, phi and kappa of x, shape (d,): O(|I|^2 + d |I|). Raise DivergedError."""
        # First, since it refuses an x whose row overflows.
        kappa = self.kernel.at(x)
        row = self.kernel.row(state.points, x)
        return Located(row, self.coordinates(state, row), kappa)

    def condition(self, state: EmbeddingState) -> float:
        """Return the condition of K_II with its points scaled to kappa = 1, to within a factor |I|."""
        norms = np.sqrt(self.kernel.diag(state.points.coordinates()))
        return max(1.0, state.L.inverse_norm(state.independent.view * norms))

    def room(self, state: EmbeddingState) -> float:
        """Return how many points the budget still allows, possibly infinity."""
        return math.inf if self.budget is None else self.budget - len(state.points)

    def choose(self, state: EmbeddingState, t: int, located: Located, rng: RoundRng) -> Growth | None:
        """Choose whether to keep the input of round t, without changing state; None if not kept. Raise DivergedError."""
        if self.room(state) <= 0:
            return None
        row, phi, kappa = located
        self.require_bearable(t, kappa)
        outside, leverage = lost(kappa, phi), None
        chosen = self.dictionary
        if isinstance(chosen, KorsDictionary) and state.kept is not None:
            leverage = chosen.kors.leverage(state.kept, row, kappa)
            is_kept = rng.bernoulli(chosen.kors.probability(leverage.tau))
        else:
            is_kept = rng.decide(self.is_far(outside, kappa))
        return Growth(leverage, *self.coordinate_of(outside, kappa, rng)) if is_kept else None

    def coordinate_of(self, outside: float, kappa: float, rng: RoundRng) -> tuple[float, bool]:
        """Return e of a point that joins, and whether it adds a coordinate.

        A replay with other arithmetic follows the recorded outcome, and then needs an e with which that is possible.
        """
        least = self.independent * kappa
        is_independent = rng.decide(outside > least)
        return max(outside, least) if is_independent else outside, is_independent

    def grow(self, state: EmbeddingState, x: F64, phi: F64, growth: Growth) -> None:
        """Add a chosen point: O(|I|)."""
        chosen = self.dictionary
        if isinstance(chosen, KorsDictionary) and state.kept is not None and growth.leverage is not None:
            chosen.kors.keep(state.kept, growth.leverage, chosen.kors.probability(growth.leverage.tau))
        extend(state, x, phi, growth.outside, growth.is_independent)
        self.drop_unused(state)

    def drop_unused(self, state: EmbeddingState) -> None:
        """Free the factor for row sampling, a third of the state, once the budget is used up and no point can be added."""
        if self.room(state) <= 0:
            state.kept = None

    def require_bearable(self, t: int, kappa: float) -> None:
        """Raise DivergedError for a point that is too large for the leverage scores."""
        chosen = self.dictionary
        require_finite(t, kappa)
        if self.floats is not DOUBLE:
            require_single(kappa)
        if isinstance(chosen, KorsDictionary):
            require_bearable(t, 1.0, kappa, chosen.regularization, self.floats)

    def is_far(self, outside: float, kappa: float) -> bool:
        """Whether a point passes the test of approximate linear dependence."""
        chosen = self.dictionary
        if not isinstance(chosen, AldDictionary):
            return False
        return outside > max(chosen.threshold * chosen.threshold, self.independent) * kappa


def lost(kappa: float, phi: F64) -> float:
    """Return e = kappa - phi^T phi, at least 0."""
    # scipy's ddot takes no empty arrays.
    return max(kappa - (ddot(phi, phi) if len(phi) else 0.0), 0.0)


def extend(state: EmbeddingState, x: F64, phi: F64, outside: float, is_independent: bool) -> None:
    """Add the point x to the dictionary, and its row to L: a row of the identity if it has no coordinate."""
    state.points.append(x)
    state.independent.append(float(is_independent))
    if is_independent:
        state.L.append(phi, math.sqrt(outside))
    else:
        state.L.append(np.zeros_like(phi), 1.0)


@final
class EmbeddingBlock:
    r"""A block of n known inputs, some of which join the dictionary; the state changes only in `settle`.

    | symbol | meaning                                                                              | shape       |
    |--------|--------------------------------------------------------------------------------------|-------------|
    | K      | kernel matrix of the inputs                                                          | (n, n)      |
    | Phi    | their coordinates before the block                                                   | (\|I\|, n)  |
    | E      | K - Phi^T Phi - C^T C: residual kernel of the inputs after the last one that joined  | (n, n)      |
    | C      | coordinates added by points of the block, one per row, 0 up to the point itself      | (., n)      |
    """

    def __init__(self, embedding: Embedding, state: EmbeddingState, t: int, X: F64) -> None:
        self._embedding, self._state, self._t, self._X = embedding, state, t, X
        self._grown = state
        rows = embedding.kernel.block(state.points, X)
        self.kappa: list[float] = embedding.kernel.diag(X).tolist()
        self.Phi = embedding.coordinates(state, rows)
        self._C: list[F64] = []
        self._room = embedding.room(state)
        self._scores: KorsBlock | None = None
        if self._room > 0:
            # Rounded like the stored points: in single precision distinct inputs may become equal.
            kept = None if embedding.floats is DOUBLE else state.points.alike(X)
            self._K = embedding.kernel.gram(X, kept)
            self._E = self._K - self.Phi.T @ self.Phi
            chosen = embedding.dictionary
            if isinstance(chosen, KorsDictionary) and state.kept is not None:
                self._scores = KorsBlock(chosen.kors, state.kept, self._K, rows)

    def choose(self, j: int, rng: RoundRng) -> F64 | None:
        """Return the coordinate that input j adds, shape (n,), or None if it does not join: O(n^2), plus O(|I|^2) if so."""
        if self._room <= 0:
            return None
        self._embedding.require_bearable(self._t + j, self.kappa[j])
        if not self._is_kept(j, rng):
            return None
        self._room -= 1
        coordinate = self._join(j, rng)
        self._C.append(coordinate)
        return coordinate

    def _is_kept(self, j: int, rng: RoundRng) -> bool:
        if self._scores is None:
            return rng.decide(self._embedding.is_far(max(self._E.item(j, j), 0.0), self.kappa[j]))
        probability = self._scores.kors.probability(self._scores.score(j))
        is_kept = rng.bernoulli(probability)
        if is_kept:
            self._scores.keep(j, probability)
        return is_kept

    def _join(self, j: int, rng: RoundRng) -> F64:
        """Add input j to the dictionary that `settle` will store."""
        embedding, x, kappa = self._embedding, self._X[j], self.kappa[j]
        if self._grown is self._state:
            self._grown = copied(self._state)
        # Recomputed in the order of operations of a single round: all later coordinates depend on these bits, and if K_II is
        # nearly singular, other bits would give other coordinates.
        phi = embedding.coordinates(self._grown, embedding.kernel.row(self._grown.points, x))
        outside, is_independent = embedding.coordinate_of(lost(kappa, phi), kappa, rng)
        extend(self._grown, x, phi, outside, is_independent)
        coordinate = np.zeros(len(self._X))
        if is_independent:
            # By substitution, as in `coordinates`, since E accumulates the rounding of every point so far.
            left, old = self._K[j, j + 1 :].copy(), len(self.Phi)
            left -= phi[:old] @ self.Phi[:, j + 1 :]
            if self._C:
                left -= phi[old:] @ np.array(self._C)[:, j + 1 :]
            np.multiply(left, 1.0 / math.sqrt(outside), out=coordinate[j + 1 :])
            self._E -= coordinate[:, None] * coordinate
        return coordinate

    def products(self) -> F64:
        """Return phi^T phi in the current dictionary, shape (n, n), valid for the inputs after the last one that joined."""
        return self._K - self._E

    def settle(self) -> None:
        """Write the points that joined into the state."""
        if self._grown is self._state:
            return
        grown = self._grown
        self._state.points, self._state.independent, self._state.L = grown.points, grown.independent, grown.L
        if self._scores is not None:
            self._scores.settle()
        self._embedding.drop_unused(self._state)


def copied(state: EmbeddingState) -> EmbeddingState:
    """Return a copy that may grow; it shares the factor for row sampling."""
    points, independent, L = copy.deepcopy((state.points, state.independent, state.L))
    return EmbeddingState(points, independent, L, state.kept)
