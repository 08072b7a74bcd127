r"""A primal-dual interior-point method for a sum of losses of one number each, on a ball and between bounds.

    minimise  sum_t l(v_t, y_t) + (alpha / 2) |u|^2   over v = B u, |u| <= U and |v_t| <= C for all t.

The hinges get a variable more, l(v, y) = min xi or xi^2 over xi >= 0 and xi >= 1 - y v, so that all that is not smooth
is a row of linear constraints. Each row k has, in every round, a slack and a multiplier.

| symbol   | meaning                                                               | shape  |
|----------|-----------------------------------------------------------------------|--------|
| B        | rows of features                                                      | (n, r) |
| u, v, xi | the variables                                                         | (r,), (n,), (n,) |
| a, b     | slack k is offset_k + a_k v + b_k xi >= 0                             | (k, n) |
| S, Z     | slacks and their multipliers                                          | (k, n) |
| room     | (U^2 - \|u\|^2) / 2, the slack of the ball                            |        |
| lam      | its multiplier                                                        |        |
| p        | l'(v) - sum_k a_k Z_k; alpha u + lam u + B^T p = 0 at the optimum     | (n,)   |
| mu       | mean of slack times multiplier, 0 at the optimum                      |        |

A step eliminates all but u: one Cholesky factor of B^T diag(h) B + (alpha + lam) I + (lam / room) u u^T, h >= 0, with
which the predictor and the corrector are solved.

References: [mehrotra1992]; [boyd2004] section 11.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue]
from scipy.special import expit

from okl_core.losses import LOSSES, LossName
from okl_core.types import F64

STEPS = 100
"""Cap on the steps; 5 to 20 are usual."""

TO_THE_BORDER = 0.995
"""Share of the way to the nearest bound that a step may go."""

LEAST_CENTRING = 1e-6
"""mu goes down by this factor at most in a step."""

LEAST_MU = 1e-16
"""mu goes no further down: what is left is rounding, or the curvature of the loss, which needs more steps."""

SHORT = 0.1
"""A step that is cut to less goes to the centre instead, away from the border."""

LEAST_SIZE = 1e-6
"""Of a step; one that would have to be smaller has met rounding."""

STANDSTILL = 1e-13
"""Relative change of v below which the steps have come to their end."""


class Bounds(NamedTuple):
    """What restricts u and v: (alpha / 2) |u|^2 in the objective, |u| <= U, |v_t| <= C."""

    alpha: float
    U: float
    C: float


class Iterate(NamedTuple):
    """A point inside all bounds, shape (r,) and (n,), and the p that goes with it."""

    u: F64
    v: F64
    p: F64


@dataclass(slots=True)
class _Variables:
    """Letters of the module's table; also used for a direction."""

    u: F64
    v: F64
    xi: F64
    S: F64
    Z: F64
    lam: float

    def moved(self, size: float, by: _Variables) -> _Variables:
        return _Variables(
            self.u + size * by.u,
            self.v + size * by.v,
            self.xi + size * by.xi,
            self.S + size * by.S,
            self.Z + size * by.Z,
            self.lam + size * by.lam,
        )


@final
class InteriorPoint:
    """The problem of the module's head. Iterating gives ever better points, until rounding or STEPS end it."""

    def __init__(self, B: F64, y: F64, loss: LossName, bounds: Bounds) -> None:
        self.B, self.y, self.loss, (self.alpha, self.U, self.C) = B, y, loss, bounds
        ones, zeros = np.ones_like(y), np.zeros_like(y)
        rows: list[tuple[F64, F64, F64]] = []
        if math.isfinite(self.C):
            rows += [(self.C * ones, -ones, zeros), (self.C * ones, ones, zeros)]
        self.has_xi = loss in ("hinge", "squared-hinge")
        if self.has_xi:
            rows += [(zeros, zeros, ones), (-ones, y, ones)]
        self.offset, self.a, self.b = np.array(rows).reshape(-1, 3, len(y)).swapaxes(0, 1)
        self.has_ball = math.isfinite(self.U)
        self.pairs = self.a.size + self.has_ball

    def __iter__(self) -> Iterator[Iterate]:
        at = self._start()
        for _ in range(STEPS):
            yield Iterate(at.u, at.v, self._p(at))
            moved = self._step(at)
            if moved is None:
                return
            at = moved

    def _start(self) -> _Variables:
        n, r = self.B.shape
        v, xi = np.zeros(n), np.full(n, 2.0 if self.has_xi else 0.0)
        S = self.offset + self.b * xi
        # Half the slope of the cost in xi for each of its two rows, so that its multipliers balance from the start.
        Z = np.full_like(S, 0.5 * float(self._cost(xi)[0].max()) if self.has_xi else 0.5)
        u, typical = np.zeros(r), float((S * Z).mean()) if S.size else 1.0
        return _Variables(u, v, xi, S, Z, typical / self._room(u) if self.has_ball else 0.0)

    def _slopes(self, v: F64) -> tuple[F64, F64]:
        """l' and l'' in v of a loss without xi."""
        if self.loss == "squared":
            return 2.0 * (v - self.y), np.full_like(v, 2.0)
        if self.loss == "logistic":
            s = expit(-self.y * v)
            return -self.y * s, s * (1.0 - s)
        return np.zeros_like(v), np.zeros_like(v)

    def _cost(self, xi: F64) -> tuple[F64, F64]:
        """First and second derivative of the hinges' cost in xi."""
        if self.loss == "hinge":
            return np.ones_like(xi), np.zeros_like(xi)
        return 2.0 * xi, np.full_like(xi, 2.0)

    def _p(self, at: _Variables) -> F64:
        return self._slopes(at.v)[0] - (self.a * at.Z).sum(axis=0)

    def _room(self, u: F64) -> float:
        return 0.5 * (self.U**2 - float(u @ u)) if self.has_ball else 1.0

    def _mu(self, at: _Variables) -> float:
        return (float((at.S * at.Z).sum()) + at.lam * self._room(at.u)) / max(1, self.pairs)

    def _step(self, at: _Variables) -> _Variables | None:
        """None if rounding leaves no direction, or nothing moves any more."""
        newton, nothing = _Newton.of(self, at), np.zeros_like(at.S)
        if newton is None:
            return None
        ahead = newton.direction(0.0, nothing, 0.0)
        if not self.pairs:
            return self._damped(at, ahead)
        mu = self._mu(at)
        reached = self._mu(at.moved(min(1.0, self._longest(at, ahead)), ahead)) / mu
        target = max(mu * max(reached**3, LEAST_CENTRING), LEAST_MU)
        missed = ahead.lam * -float(at.u @ ahead.u) - 0.5 * at.lam * float(ahead.u @ ahead.u)
        step = newton.direction(target, ahead.S * ahead.Z, missed)
        if target == LEAST_MU and np.abs(step.v).max() <= STANDSTILL * np.abs(at.v).max():
            return None
        size = TO_THE_BORDER * self._longest(at, step)
        if size < SHORT and at.S.size:
            step = newton.direction(mu, nothing, 0.0)
            size = TO_THE_BORDER * self._longest(at, step)
        return at.moved(self._safe(at, step, min(1.0, size), newton), step)

    def _safe(self, at: _Variables, step: _Variables, size: float, newton: _Newton) -> float:
        """The size, halved until what is left of the gradient is no larger: its curvature may mislead a logistic loss."""
        if self.loss == "logistic":
            allowed = max(newton.length(self._gradient(at)), math.sqrt(self._mu(at) * self.pairs))
            while newton.length(self._gradient(at.moved(size, step))) > allowed and size > LEAST_SIZE:
                size *= 0.5
        return size

    def _gradient(self, at: _Variables) -> F64:
        return (self.alpha + at.lam) * at.u + self.B.T @ self._p(at)

    def _damped(self, at: _Variables, step: _Variables) -> _Variables | None:
        """The Newton step, halved until the objective goes down: for a smooth loss without bounds. None at its end."""
        losses, size = LOSSES[self.loss], 1.0
        before = losses.values(at.v, self.y).sum()
        rounding = np.finfo(np.float64).eps * (before + 0.5 * self.alpha * float(at.u @ at.u))
        while size > LEAST_SIZE:
            moved = at.moved(size, step)
            gain = before - losses.values(moved.v, self.y).sum()
            if gain + 0.5 * self.alpha * float((at.u - moved.u) @ (at.u + moved.u)) > rounding:
                return moved
            size *= 0.5
        return None

    def _longest(self, at: _Variables, step: _Variables) -> float:
        """How far along a direction all slacks and multipliers stay >= 0; not above 1 / TO_THE_BORDER."""
        longest = 1.0 / TO_THE_BORDER
        for value, change in ((at.S, step.S), (at.Z, step.Z), (np.array(at.lam), np.array(step.lam))):
            falls = change < 0.0
            if falls.any():
                longest = min(longest, float((value[falls] / -change[falls]).min()))
        square = float(step.u @ step.u)
        if self.has_ball and square > 0.0:
            half = float(at.u @ step.u)
            longest = min(longest, (math.sqrt(half * half + 2.0 * square * self._room(at.u)) - half) / square)
        return longest


@final
class _Newton(NamedTuple):
    """The linearised conditions at a point, factored."""

    problem: InteriorPoint
    at: _Variables
    slope: F64
    cost: F64
    w: F64
    across: F64
    inner: F64
    factor: F64

    @classmethod
    def of(cls, problem: InteriorPoint, at: _Variables) -> _Newton | None:
        w = at.Z / at.S
        slope, h = problem._slopes(at.v)
        cost, free = problem._cost(at.xi)
        across, inner = np.zeros_like(h), free
        if problem.has_xi:
            # Of its two rows only the last knows v. Written so, nothing cancels where its weight is large.
            free = free + w[-2]
            across, inner = problem.y * w[-1], free + w[-1]
            h = h + w[:-2].sum(axis=0) + w[-1] * free / inner
        else:
            h = h + w.sum(axis=0)
        H = problem.B.T @ (h[:, None] * problem.B)
        if problem.has_ball:
            H += (at.lam / problem._room(at.u)) * np.outer(at.u, at.u)
        H[np.diag_indices_from(H)] += problem.alpha + at.lam
        factor, failed = dpotrf(H, lower=1)
        if failed:
            # Nothing but rounding holds some direction of u.
            H[np.diag_indices_from(H)] += len(H) * np.finfo(np.float64).eps * float(H.diagonal().max())
            factor, failed = dpotrf(H, lower=1, overwrite_a=1)
        return None if failed else cls(problem, at, slope, cost, w, across, inner, factor)

    def length(self, gradient: F64) -> float:
        """Of the Newton step that a gradient asks for, in the norm of H."""
        return math.sqrt(max(0.0, float(gradient @ cho_solve((self.factor, True), gradient, check_finite=False))))

    def direction(self, target: float, missed: F64, missed_lam: float) -> _Variables:
        """To where slack times multiplier is `target`, less the second-order terms `missed`."""
        problem, at = self.problem, self.at
        Z = (target - missed) / at.S
        g = self.slope - (problem.a * Z).sum(axis=0)
        rho = self.cost - (problem.b * Z).sum(axis=0)
        if problem.has_xi:
            g = g - self.across * rho / self.inner
        room = problem._room(at.u)
        lam = (target - missed_lam) / room if problem.has_ball else 0.0
        gradient = (problem.alpha + lam) * at.u + problem.B.T @ g
        du = -cho_solve((self.factor, True), gradient, check_finite=False)
        dv = problem.B @ du
        dxi = -(rho + self.across * dv) / self.inner if problem.has_xi else np.zeros_like(dv)
        dS = problem.a * dv + problem.b * dxi
        dlam = lam - at.lam + at.lam * float(at.u @ du) / room
        return _Variables(du, dv, dxi, dS, Z - at.Z - self.w * dS, dlam)
