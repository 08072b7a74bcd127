r"""A second-order learner is a space and a rule: A_t = alpha I + sum_s w_s phi_s phi_s^T, s_t = sum_s c_s phi_s.

The space holds A and s for one feature map phi, and computes the moments m and q of an input from them. The rule is the
algorithm: it forecasts from the moments, and decides the weight w and the coefficient c of the round.

| symbol | meaning                                                        |
|--------|----------------------------------------------------------------|
| m      | phi_t^T A_{t-1}^{-1} s_{t-1}, the mean of the input            |
| q      | phi_t^T A_{t-1}^{-1} phi_t, the variance of the input          |
| kappa  | \|phi_t\|^2, before any projection of phi_t                      |
| w      | weight of phi_t phi_t^T in A_t                                 |
| c      | coefficient of phi_t in s_t                                    |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_finite
from okl_core.losses import Loss
from okl_core.types import F64, Interval, StatePart


class Moments(NamedTuple):
    """The moments of an input; symbols as in the module's table."""

    m: float
    q: float
    kappa: float


class Decision(NamedTuple):
    """A rule's decision on a round.

    `rho_delta` is c / sqrt(w) - sqrt(w) m in a closed form without cancellation; it is ignored if w is 0. `c` itself is read
    only if w is 0 or negligible, or if a sketch makes it 0: a rule whose c depends on w may give its value at w = 0. `g` is
    the loss's derivative at `value`, regardless of the round's weight, for rules that account for it.
    """

    value: float
    w: float
    c: float
    rho_delta: float
    g: float = 0.0

    def times(self, weight: float) -> Decision:
        """Return the decision with the round's quadratic times `weight`, for rules without projection: it has no weight."""
        if weight == 1.0:
            return self
        value, w, c, rho_delta, g = self
        return Decision(value, weight * w, weight * c, math.sqrt(weight) * rho_delta, g)


@dataclass(slots=True)
class Totals(StatePart):
    """The running sums of a rule: the cumulative loss and the terms of its bound."""

    loss: float


@dataclass(slots=True)
class SpaceState(StatePart):
    """The state of a space; log_det = log det(A / alpha), as long as nothing is forgotten."""

    log_det: float


T = TypeVar("T", bound=Totals)
S = TypeVar("S", bound=SpaceState)


class Rule(Protocol[T]):
    """An algorithm that works on moments. T: its running totals."""

    @property
    def weight(self) -> float:
        """omega, the weight of a round's loss in A, in s and in the totals; it does not affect the forecast."""
        ...

    def weighted(self, weight: float) -> Self:
        """Return the same rule for a round of this weight."""
        ...

    def after(self, totals: T, t: int) -> Self:
        """Return the rule of round t + 1, which may depend on the weights of the t rounds so far."""
        ...

    def along(self, totals: T, t: int, weights: F64 | None) -> Iterator[Self]:
        """Yield the rules of the rounds after t, whose weights, shape (n,), are 1 by default. It may yield more than n."""
        ...

    @property
    def loss(self) -> Loss: ...

    @property
    def truth_range(self) -> Interval:
        """The range in which a truth must lie."""
        ...

    @property
    def needs_variance(self) -> bool:
        """Whether `value` depends on q; if not, a forecast may be cheaper."""
        ...

    def value(self, m: float, q: float) -> float:
        """Return the forecast."""
        ...

    def is_idle(self, m: float, y: float) -> bool:
        """Whether `decide` returns w = c = 0 for any q, so that a space need not compute q; False if unknown."""
        ...

    def decide(self, moments: Moments, y: float, t: int, rng: RoundRng) -> Decision:
        """Decide on round t, given its truth. May raise DivergedError."""
        ...

    def totals(self) -> T:
        """Return the running totals before the first round."""
        ...

    def add(self, totals: T, loss: float, q: float, decision: Decision) -> None:
        """Add a round, its loss and its decision, to the totals."""

    def describe(self, totals: T, log_det: float) -> dict[str, float]:
        """Return the statistics that hold if nothing is forgotten, such as the regret bound; log_det = log det(A / alpha)."""
        ...


R = TypeVar("R", bound=Rule[Any])


def each_weighted(rule: R, weights: F64 | None) -> Iterator[R]:
    """What `along` returns for rules that do not depend on the weights so far."""
    return repeat(rule) if weights is None else map(rule.weighted, weights.tolist())


class PlayedRound(Protocol):
    """A round that a space has played but not absorbed."""

    @property
    def moments(self) -> Moments: ...
    @property
    def decision(self) -> Decision: ...


P = TypeVar("P", bound=PlayedRound)


class SpaceBlock(Protocol):
    """A block of rounds with known inputs, played in order; the space's state changes only in `settle`."""

    def play(self, j: int, y: float, rule: Rule[T], rng: RoundRng) -> tuple[float, Decision]:
        """Play the j-th round, taking it into account in those after it; return q and decision. Raise DivergedError."""
        ...

    def settle(self) -> None:
        """Update the state with the whole block."""


class Space(Protocol[S, P]):
    """A feature map, with A and s in its coordinates. S: the state, P: a played round. `t` is always the next round."""

    @property
    def state_type(self) -> type[S]: ...

    @property
    def is_whole(self) -> bool:
        """Whether A and s cover all rounds, so that sums over the rounds are meaningful."""
        ...

    def init(self, dim: int) -> S:
        """Return the state before the first round, for inputs in R^dim."""
        ...

    def initial_bytes(self, dim: int) -> int:
        """Return a lower bound on the bytes of the state after the first round."""
        ...

    def moments(self, state: S, t: int, x: F64, needs_variance: bool) -> Moments:
        """Return the moments of x, shape (d,), where q may be 0 if it is not needed. Raise DivergedError."""
        ...

    def play(self, state: S, t: int, x: F64, y: float, rule: Rule[T], rng: RoundRng) -> P:
        """Play round t without changing state. Raise DivergedError."""
        ...

    def absorb(self, state: S, t: int, x: F64, played: P) -> None:
        """Update the state with round t."""

    def room(self, state: S, t: int) -> int:
        """Return the largest length of a block from round t on, at least 1."""
        ...

    def block(self, state: S, t: int, X: F64, rng: RoundRng) -> SpaceBlock:
        """Prepare the rounds from t on, with the inputs X, shape (n, d), to be played as one block."""
        ...

    def extra_work(self, state: S, t: int, rounds: int) -> float:
        """Return the work that one of the next rounds may take beyond the usual; see `Learner.extra_work`."""
        ...

    def conditioning(self, state: S) -> float:
        """See `Learner.conditioning`."""
        ...

    def describe(self, state: S) -> dict[str, float]:
        """Return `dictionary`, `bytes`, and further statistics."""
        ...


def decided(t: int, moments: Moments, y: float, rule: Rule[T], rng: RoundRng) -> Decision:
    """Return the rule's decision on round t. Raise DivergedError for numbers that are not finite."""
    require_finite(t, moments.m, moments.q)
    decision = rule.decide(moments, y, t, rng)
    require_finite(t, *decision)
    return decision
