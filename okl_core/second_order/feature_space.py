"""The space of a fixed number of explicit features: linear features or random Fourier features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.errors import DivergedError, StateFormatError
from okl_core.kernels.feature_maps import DrawnFeatures, FeatureMap
from okl_core.linalg.guards import require_finite
from okl_core.second_order.forgetting import HalfLife
from okl_core.second_order.root_posterior import RootBlock, RootPosterior, RootProjection, RootRounds
from okl_core.second_order.space_and_rule import Decision, Moments, Rule, SpaceState, T, decided
from okl_core.types import F64

WIDE = 128
"""Number of features from which on a block of rounds is faster than playing its rounds one by one."""
BLOCK = 64
"""Rounds per block: longer blocks no longer speed up the products, and the work inside a block grows like BLOCK^2."""
LONGEST = 1e13
"""Bound on |phi| / sqrt(alpha). A longer phi is known only up to rounding of its own length: when its direction recurs, all
other weights would be off by eps |phi| / sqrt(alpha) or more, above 1e-3, permanently."""
LONG = 256.0
"""Value of |phi| / sqrt(alpha) up to which no `longest` is kept: it would add less than 1e-10 to the replay tolerance."""
PROJECTED = 0.03125
"""Share of |phi|^2 / alpha that counts as conditioning where forecasts are clipped: a step along one long input is rounded by
eps |phi| / alpha in all directions, and another long input multiplies that while its forecast stays of order 1. Between BLAS
kernels, forecasts differ by up to half of eps |phi|^2 / alpha; the replay tolerance allows twice eps times it."""


@final
@dataclass(slots=True)
class FeatureState(SpaceState):
    posterior: RootPosterior
    drawn: DrawnFeatures | None

    def __post_init__(self) -> None:
        # Empty before the first round.
        if self.drawn is not None and 2 * len(self.drawn.frequencies) not in (0, len(self.posterior)):
            raise StateFormatError(f"{len(self.posterior)} weights of {len(self.drawn.frequencies)} frequencies")


class FeatureRound(NamedTuple):
    moments: Moments
    projection: RootProjection
    decision: Decision
    drawn: DrawnFeatures | None


@final
class FeatureSpace(NamedTuple):
    """The space of one feature map, with alpha > 0. `is_clipped`: whether forecasts are, however long an input is."""

    map: FeatureMap
    alpha: float
    forgetting: HalfLife
    is_clipped: bool = False
    state_type = FeatureState

    @property
    def is_whole(self) -> bool:
        return self.forgetting.rounds is None

    @property
    def long_square(self) -> float:
        """|phi|^2 up to which an input costs no digits that count."""
        return LONG * LONG * self.alpha

    def square(self, x: F64) -> float:
        """Return |phi|^2 of an input, shape (d,), for features that are not drawn."""
        phi = self.map.phi(None, x)
        return ddot(phi, phi)

    def init(self, dim: int) -> FeatureState:
        drawn = self.map.init(dim)
        return FeatureState(0.0, RootPosterior.prior(self.alpha, self.map.width(dim)), drawn)

    def initial_bytes(self, dim: int) -> int:
        return RootPosterior.bytes_of(self.map.width(dim))

    def moments(self, state: FeatureState, t: int, x: F64, needs_variance: bool) -> Moments:
        phi = self.map.phi(state.drawn, x)
        if needs_variance:
            m, q, _ = state.posterior.project(phi)
        else:
            m, q = state.posterior.mean(phi), 0.0
        require_finite(t, m, q)
        return Moments(m, q, ddot(phi, phi))

    def play(self, state: FeatureState, t: int, x: F64, y: float, rule: Rule[T], rng: RoundRng) -> FeatureRound:
        """O(p^2)."""
        drawn = self.map.drawn(state.drawn, x, rng)
        phi = self.map.phi(drawn, x)
        square = ddot(phi, phi)
        self.require_bearable(t, square * max(rule.weight, 1.0))
        projection = state.posterior.project(phi)
        moments = Moments(projection.m, projection.q, square)
        return FeatureRound(moments, projection, decided(t, moments, y, rule, rng), drawn)

    def absorb(self, state: FeatureState, t: int, x: F64, played: FeatureRound) -> None:
        """O(p^2), or O(p^3) in a round that discounts."""
        moments, projection, decision, drawn = played
        state.drawn = self.map.seen(drawn, x, moments.kappa, self.long_square)
        state.posterior.absorb(projection, decision)
        state.log_det += math.log1p(decision.w * moments.q)
        self.discount(state, t)

    def room(self, state: FeatureState, t: int) -> int:
        return self.forgetting.room(t - 1, rows_at_once(len(state.posterior), BLOCK))

    def block(self, state: FeatureState, t: int, X: F64, rng: RoundRng) -> FeatureBlock:
        """Raise DivergedError for inputs that are too large for the state."""
        rng.at(t)
        drawn = self.map.drawn(state.drawn, X[0], rng)
        Phi = self.map.phi(drawn, X)
        squares = np.einsum("ij,ij->i", Phi, Phi)
        longest = int(squares.argmax())
        self.require_bearable(t + longest, squares.item(longest))
        return FeatureBlock(self, state, t, X, Phi, squares.tolist(), drawn)

    def discount(self, state: FeatureState, t: int) -> None:
        """Discount the posterior after round t, if it is due: O(p^3)."""
        factor = self.forgetting.factor(t)
        if factor is not None:
            state.posterior.discount(factor, self.alpha)
            state.drawn = self.map.discounted(state.drawn, factor, self.long_square)

    def extra_work(self, state: FeatureState, t: int, rounds: int) -> float:
        """Return the work of discounting, with a half-life, and of drawing features in the first round."""
        discount = self.forgetting.discount_work(t - 1, rounds, len(state.posterior))
        return self.map.draw_work(state.drawn) + discount

    def conditioning(self, state: FeatureState) -> float:
        longest = self.map.longest(state.drawn)
        stepped = PROJECTED * longest * longest / self.alpha if self.is_clipped else 0.0
        return state.posterior.conditioning(self.alpha, longest) + self.map.largest(state.drawn) + stepped

    def describe(self, state: FeatureState) -> dict[str, float]:
        return {"dictionary": 0, "bytes": state.nbytes, "features": len(state.posterior)}

    def require_bearable(self, t: int, square: float) -> None:
        """Raise DivergedError for a round with |phi|^2 = `square` that would swamp all others in S.

        For a weight above 1, `square` is |phi|^2 times the weight.
        """
        if not square <= LONGEST * LONGEST * self.alpha:
            raise DivergedError(
                f"round {t}: an input of norm {math.sqrt(square):.1e} is above {LONGEST:.0e} times the root of alpha; "
                "scale the inputs down, or raise the regularization"
            )


@final
class FeatureBlock:
    """A block of rounds with known features; see `SpaceBlock`."""

    def __init__(
        self,
        space: FeatureSpace,
        state: FeatureState,
        t: int,
        X: F64,
        Phi: F64,
        squares: list[float],
        drawn: DrawnFeatures | None,
    ) -> None:
        self._space, self._state, self._t, self._X, self._drawn = space, state, t, X, drawn
        self._squares = squares
        self._rounds = (RootBlock if len(state.posterior) >= WIDE else RootRounds)(state.posterior, Phi)
        self._log_det = 0.0

    def play(self, j: int, y: float, rule: Rule[T], rng: RoundRng) -> tuple[float, Decision]:
        t = self._t + j
        rng.at(t)
        if rule.weight > 1.0:
            self._space.require_bearable(t, self._squares[j] * rule.weight)
        projection = self._rounds.project(j)
        m, q, _ = projection
        decision = decided(t, Moments(m, q, self._squares[j]), y, rule, rng)
        self._rounds.absorb(projection, decision)
        self._log_det += math.log1p(decision.w * q)
        return q, decision

    def settle(self) -> None:
        self._rounds.settle()
        self._state.drawn = self._space.map.seen(self._drawn, self._X, max(self._squares), self._space.long_square)
        self._state.log_det += self._log_det
        self._space.discount(self._state, self._t + len(self._squares) - 1)
