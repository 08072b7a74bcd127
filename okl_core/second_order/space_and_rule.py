r"""A second-order learner is a space and a rule: A_t = alpha I + sum_s w_s phi_s phi_s^T, s_t = sum_s c_s phi_s.

The space holds A and s for one feature map phi, and says of an input what they know of it: the moments m and q. The rule
is the algorithm: it forecasts from the moments, and decides the weight w and the coefficient c of the round.

| symbol | meaning                                                        |
|--------|----------------------------------------------------------------|
| m      | phi_t^T A_{t-1}^{-1} s_{t-1}, the mean of the input            |
| q      | phi_t^T A_{t-1}^{-1} phi_t, the variance of the input          |
| kappa  | \|phi_t\|^2; of a projected phi_t, that before the projection    |
| w      | weight of phi_t phi_t^T in A_t                                 |
| c      | coefficient of phi_t in s_t                                    |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_finite
from okl_core.losses import Loss
from okl_core.types import F64, Interval, StatePart


class Moments(NamedTuple):
    """What the past says of an input; the letters of the module's table."""

    m: float
    q: float
    kappa: float


class Decision(NamedTuple):
    """What a rule makes of a round.

    `rho_delta` is c / sqrt(w) - sqrt(w) m in a closed form that does not cancel; it is ignored if w is 0. `g` is the loss's
    derivative at `value`, for rules that account for it, whatever the round's weight.
    """

    value: float
    w: float
    c: float
    rho_delta: float
    g: float = 0.0

    def times(self, weight: float) -> Decision:
        """That of the round's quadratic times `weight`. Not for a rule that projects: the projection has none."""
        if weight == 1.0:
            return self
        value, w, c, rho_delta, g = self
        return Decision(value, weight * w, weight * c, math.sqrt(weight) * rho_delta, g)


@dataclass(slots=True)
class Totals(StatePart):
    """What a rule adds up: the cumulative loss, and what its bound is made of."""

    loss: float


@dataclass(slots=True)
class SpaceState(StatePart):
    """What a space keeps; log_det = log det(A / alpha), as long as nothing is forgotten."""

    log_det: float


T = TypeVar("T", bound=Totals)
S = TypeVar("S", bound=SpaceState)


class Rule(Protocol[T]):
    """An algorithm of moments. T: its running totals."""

    @property
    def weight(self) -> float:
        """omega: what the loss of a round counts, in A, in s and in the totals; the forecast does not know it."""
        ...

    def weighted(self, weight: float) -> Self:
        """The same rule for a round of this weight."""
        ...

    @property
    def loss(self) -> Loss: ...

    @property
    def truth_range(self) -> Interval:
        """Between what a truth must lie."""
        ...

    @property
    def needs_variance(self) -> bool:
        """Does `value` look at q? Where it does not, a forecast may be cheaper."""
        ...

    def value(self, m: float, q: float) -> float:
        """The forecast."""
        ...

    def is_idle(self, m: float, y: float) -> bool:
        """Does `decide` say w = c = 0 for this mean, whatever q is? Then a space need not know q. It may say no for yes."""
        ...

    def decide(self, moments: Moments, y: float, t: int, rng: RoundRng) -> Decision:
        """What round t does, once its truth is known. May raise DivergedError."""
        ...

    def totals(self) -> T:
        """The running totals before the first round."""
        ...

    def add(self, totals: T, loss: float, q: float, decision: Decision) -> None:
        """Add a round, its loss and its decision, to the totals."""

    def describe(self, totals: T, log_det: float) -> dict[str, float]:
        """What the totals say as long as nothing is forgotten, the regret bound among it. log_det = log det(A / alpha)."""
        ...


class PlayedRound(Protocol):
    """A round that a space has played and not absorbed."""

    @property
    def moments(self) -> Moments: ...
    @property
    def decision(self) -> Decision: ...


P = TypeVar("P", bound=PlayedRound)


class SpaceBlock(Protocol):
    """Rounds whose inputs are known, played in order; the space's state changes in `settle` only."""

    def play(self, j: int, y: float, rule: Rule[T], rng: RoundRng) -> tuple[float, Decision]:
        """q and decision of the j-th round, which the rounds after it know. Raises DivergedError."""
        ...

    def settle(self) -> None:
        """Carry the whole block into the state."""


class Space(Protocol[S, P]):
    """A feature map, with A and s in its coordinates. S: the state, P: a round played. `t` is always the round to come."""

    @property
    def state_type(self) -> type[S]: ...

    @property
    def is_whole(self) -> bool:
        """Do A and s hold all rounds, so that sums over them mean something?"""
        ...

    def init(self, dim: int) -> S:
        """The state before the first round, for inputs in R^dim."""
        ...

    def initial_bytes(self, dim: int) -> int:
        """What the state takes once a round is learned, at least."""
        ...

    def moments(self, state: S, t: int, x: F64, needs_variance: bool) -> Moments:
        """The moments of x, shape (d,), q of 0 if it is not needed. Raises DivergedError."""
        ...

    def play(self, state: S, t: int, x: F64, y: float, rule: Rule[T], rng: RoundRng) -> P:
        """Round t, nothing changed. Raises DivergedError."""
        ...

    def absorb(self, state: S, t: int, x: F64, played: P) -> None:
        """Carry round t into the state."""

    def room(self, state: S, t: int) -> int:
        """Rounds that a block from round t on may have, at least 1."""
        ...

    def block(self, state: S, t: int, X: F64, rng: RoundRng) -> SpaceBlock:
        """The rounds from t on with the inputs X, shape (n, d), to be played as one block."""
        ...

    def extra_work(self, state: S, t: int, rounds: int) -> float:
        """What one of the next rounds may take beyond a usual one; see `Learner.extra_work`."""
        ...

    def conditioning(self, state: S) -> float:
        """See `Learner.conditioning`."""
        ...

    def describe(self, state: S) -> dict[str, float]:
        """`dictionary`, `bytes`, and what else there is to say."""
        ...


def decided(t: int, moments: Moments, y: float, rule: Rule[T], rng: RoundRng) -> Decision:
    """What the rule makes of round t. Raises DivergedError for numbers that are not finite."""
    require_finite(t, moments.m, moments.q)
    decision = rule.decide(moments, y, t, rng)
    require_finite(t, *decision)
    return decision
