r"""A primal-dual interior-point method for a sum of losses over linear functions, in a ball and between bounds.

    minimise  sum_t l(v_t, y_t) + (alpha / 2) |u|^2   over v = B u, |u| <= U and |v_t| <= C for all t.        (1)

A loss that is a maximum of lines, l(v, y) = h(max_k (b_k + c_k v)), gets a variable xi more, its argument: it costs h(xi),
and xi is above each line. So all costs are smooth, and the rest are rows of linear constraints on each round's v and xi,

    S_k = s_k + d_k v + e_k xi >= 0:    C - v,    C + v,    xi - b_k - c_k v.                                 (2)

| symbol | meaning                                                              | shape            |
|--------|----------------------------------------------------------------------|------------------|
| B      | rows of features                                                     | (n, r)           |
| u, v   | the function, in features and in values                              | (r,), (n,)       |
| xi     | argument of h; unused where l itself is smooth                       | (n,)             |
| S, Z   | slacks and multipliers of the rows of (2)                            | (k, n)           |
| R, lam | slack (U^2 - \|u\|^2) / 2 and multiplier of the ball                 |                  |
| p      | l'(v) - sum_k d_k Z_k: multipliers of v = B u                        | (n,)             |
| mu     | what each slack times its multiplier should be; 0 at the optimum     |                  |

Optimal for mu, that is for (1) with the barrier -mu (sum log S + log R) in the place of its bounds, is a point with

    (alpha + lam) u + B^T p = 0,    h'(xi) = sum_k e_k Z_k,    S Z = mu,    R lam = mu.                       (3)

A step solves (3), linearised, for smaller and smaller mu: a predictor for mu = 0 shows how far it can go down and what the
linearisation misses, a corrector takes both into account.

References: [boyd2004] section 11.7 for the equations; [mehrotra1992] for predictor and corrector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.losses import Loss
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


class FunctionClass(NamedTuple):
    """The functions to choose from: (alpha / 2) |u|^2 in the objective, |u| <= U, |v_t| <= C."""

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
    """u, v, xi, S, Z and lam of the module's table, or a direction in them."""

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
    """Iterates towards the solution of (1), ever better points, until rounding or STEPS end it."""

    def __init__(self, B: F64, y: F64, loss: Loss, restricted: FunctionClass) -> None:
        self.problem = _Problem.of(B, y, loss, restricted)

    def __iter__(self) -> Iterator[Iterate]:
        at = self.problem.start()
        for _ in range(STEPS):
            yield Iterate(at.u, at.v, self.problem.p(at))
            moved = self._step(at)
            if moved is None:
                return
            at = moved

    def _step(self, at: _Variables) -> _Variables | None:
        """The next point; None if rounding leaves no direction, or nothing moves any more."""
        problem, newton = self.problem, _NewtonSystem.of(self.problem, at)
        if newton is None:
            return None
        nothing = np.zeros_like(at.S)
        predictor = newton.direction(0.0, nothing, 0.0)
        if not problem.pairs:
            return self._descend(at, predictor)
        mu = problem.mu(at)
        ahead = problem.mu(at.moved(min(1.0, problem.longest(at, predictor)), predictor))
        target = max(mu * max((ahead / mu) ** 3, LEAST_CENTRING), LEAST_MU)
        # (S + dS)(Z + dZ) = S Z + ... + dS dZ, and dR = -u^T du - |du|^2 / 2: what the predictor's linear terms missed.
        missed_ball = -predictor.lam * float(at.u @ predictor.u) - 0.5 * at.lam * float(predictor.u @ predictor.u)
        step = newton.direction(target, predictor.S * predictor.Z, missed_ball)
        if target == LEAST_MU and np.abs(step.v).max() <= STANDSTILL * np.abs(at.v).max():
            return None
        size = TO_THE_BORDER * problem.longest(at, step)
        if size < SHORT and at.S.size:
            step = newton.direction(mu, nothing, 0.0)
            size = TO_THE_BORDER * problem.longest(at, step)
        return at.moved(self._safe(at, step, min(1.0, size), newton), step)

    def _safe(self, at: _Variables, step: _Variables, size: float, newton: _NewtonSystem) -> float:
        """The size, halved until what is left of the gradient is no larger: the curvature of a loss may mislead a step."""
        problem = self.problem
        if not problem.has_xi:
            allowed = max(newton.length(problem.gradient(at)), math.sqrt(problem.mu(at) * problem.pairs))
            while newton.length(problem.gradient(at.moved(size, step))) > allowed and size > LEAST_SIZE:
                size *= 0.5
        return size

    def _descend(self, at: _Variables, step: _Variables) -> _Variables | None:
        """The Newton step, halved until the objective goes down: for a smooth loss without bounds. None at its end."""
        problem, size = self.problem, 1.0
        before = problem.loss.values(at.v, problem.y).sum()
        rounding = np.finfo(np.float64).eps * (before + 0.5 * problem.alpha * float(at.u @ at.u))
        while size > LEAST_SIZE:
            moved = at.moved(size, step)
            gain = before - problem.loss.values(moved.v, problem.y).sum()
            if gain + 0.5 * problem.alpha * float((at.u - moved.u) @ (at.u + moved.u)) > rounding:
                return moved
            size *= 0.5
        return None


@final
class _Problem(NamedTuple):
    """(1) with the rows of (2), the lines last."""

    B: F64
    y: F64
    loss: Loss
    alpha: float
    U: float
    s: F64
    d: F64
    e: F64
    c: F64
    """Slopes of the lines."""

    @classmethod
    def of(cls, B: F64, y: F64, loss: Loss, restricted: FunctionClass) -> _Problem:
        alpha, U, C = restricted
        b, c = loss.lines(y)
        sides = np.array([[-1.0], [1.0]]) if math.isfinite(C) else np.empty((0, 1))
        bounds = np.repeat(sides, len(y), axis=1)
        s, d = np.vstack((np.full_like(bounds, C), -b)), np.vstack((bounds, -c))
        return cls(B, y, loss, alpha, U, s, d, np.vstack((np.zeros_like(bounds), np.ones_like(c))), c)

    @property
    def has_xi(self) -> bool:
        return len(self.c) > 0

    @property
    def has_ball(self) -> bool:
        return math.isfinite(self.U)

    @property
    def pairs(self) -> int:
        """Of a slack and its multiplier."""
        return self.d.size + self.has_ball

    def start(self) -> _Variables:
        """u = 0, inside all bounds."""
        n, r = self.B.shape
        u, v, xi, multiplier = np.zeros(r), np.zeros(n), np.zeros(n), 0.5
        if self.has_xi:
            xi = 1.0 - self.s[-len(self.c) :].min(axis=0)
            # So that h'(xi) = sum e Z from the start, about.
            multiplier = float(self.loss.slopes(xi, self.y)[0].max()) / len(self.c)
        S = self.s + self.e * xi
        Z = np.full_like(S, multiplier)
        typical = float((S * Z).mean()) if S.size else 1.0
        return _Variables(u, v, xi, S, Z, typical / self.room(u) if self.has_ball else 0.0)

    def slopes(self, at: _Variables) -> tuple[F64, F64, F64, F64]:
        """l', l'' and h', h''. Where there are lines v costs nothing itself; elsewhere xi does, xi^2 / 2, and stays 0."""
        if self.has_xi:
            nothing = np.zeros_like(at.v)
            return nothing, nothing, *self.loss.slopes(at.xi, self.y)
        return *self.loss.slopes(at.v, self.y), at.xi, np.ones_like(at.xi)

    def p(self, at: _Variables) -> F64:
        return self.slopes(at)[0] - (self.d * at.Z).sum(axis=0)

    def gradient(self, at: _Variables) -> F64:
        """(alpha + lam) u + B^T p, the first line of (3)."""
        return (self.alpha + at.lam) * at.u + self.B.T @ self.p(at)

    def room(self, u: F64) -> float:
        """R."""
        return 0.5 * (self.U**2 - float(u @ u)) if self.has_ball else 1.0

    def mu(self, at: _Variables) -> float:
        """The mean of slack times multiplier."""
        return (float((at.S * at.Z).sum()) + at.lam * self.room(at.u)) / self.pairs

    def longest(self, at: _Variables, step: _Variables) -> float:
        """How far along a direction all slacks and multipliers stay >= 0; not above 1 / TO_THE_BORDER."""
        longest = 1.0 / TO_THE_BORDER
        for value, change in ((at.S, step.S), (at.Z, step.Z), (np.array(at.lam), np.array(step.lam))):
            falls = change < 0.0
            if falls.any():
                longest = min(longest, float((value[falls] / -change[falls]).min()))
        square = float(step.u @ step.u)
        if self.has_ball and square > 0.0:
            # The root of |u + size du|^2 = U^2.
            half = float(at.u @ step.u)
            longest = min(longest, (math.sqrt(half * half + 2.0 * square * self.room(at.u)) - half) / square)
        return longest


@final
class _NewtonSystem(NamedTuple):
    r"""(3) linearised at a point, all but du eliminated, and factored.

    With w = Z / S, and Z+ = mu / S, lam+ = mu / R the multipliers that hold S Z = mu and R lam = mu where the point is,

        Z + dZ = Z+ - w dS,    lam + dlam = lam+ + (lam / R) u^T du,    dS = d dv + e dxi,    dv = B du,       (4)
        inner dxi = -(rho + across dv),    inner = h'' + sum e w,  across = sum d e w,  rho = h' - sum e Z+,    (5)
        H du = -((alpha + lam+) u + B^T g),    g = l' - sum d Z+ - across rho / inner,                          (6)
        H = B^T diag(l'' + sum d^2 w - across^2 / inner) B + (alpha + lam) I + (lam / R) u u^T.

    Of two terms that nearly cancel in the diagonal, the lines' weights leave, by Lagrange's identity,

        sum_k c_k^2 w_k - across^2 / inner = (h'' sum_k c_k^2 w_k + sum_{j < k} (c_j - c_k)^2 w_j w_k) / inner.  (7)
    """

    problem: _Problem
    at: _Variables
    slope: F64
    """l'."""
    cost: F64
    """h'."""
    w: F64
    across: F64
    inner: F64
    factor: F64
    """Lower Cholesky factor of H."""

    @classmethod
    def of(cls, problem: _Problem, at: _Variables) -> _NewtonSystem | None:
        """None if H has no factor."""
        slope, h, cost, cost_change = problem.slopes(at)
        w, c, bounds = at.Z / at.S, problem.c, len(at.S) - len(problem.c)
        h, lines = h + w[:bounds].sum(axis=0), w[bounds:]
        across, inner = -(c * lines).sum(axis=0), cost_change + lines.sum(axis=0)
        pairs = sum((c[j] - c[k]) ** 2 * lines[j] * lines[k] for k in range(len(c)) for j in range(k))
        h += (cost_change * (c * c * lines).sum(axis=0) + pairs) / inner
        H = problem.B.T @ (h[:, None] * problem.B)
        if problem.has_ball:
            H += (at.lam / problem.room(at.u)) * np.outer(at.u, at.u)
        H[np.diag_indices_from(H)] += problem.alpha + at.lam
        factor, has_failed = dpotrf(H, lower=1)
        if has_failed:
            # Nothing but rounding holds some direction of u.
            H[np.diag_indices_from(H)] += len(H) * np.finfo(np.float64).eps * float(H.diagonal().max())
            factor, has_failed = dpotrf(H, lower=1, overwrite_a=1)
        return None if has_failed else cls(problem, at, slope, cost, w, across, inner, factor)

    def length(self, gradient: F64) -> float:
        """Of the Newton step that a gradient asks for, in the norm of H."""
        return math.sqrt(max(0.0, float(gradient @ cho_solve((self.factor, True), gradient, check_finite=False))))

    def direction(self, mu: float, missed: F64, missed_ball: float) -> _Variables:
        """To where S Z = mu and R lam = mu, less the second-order terms of both that are known to be missed."""
        problem, at = self.problem, self.at
        Z = (mu - missed) / at.S
        room = problem.room(at.u)
        lam = (mu - missed_ball) / room if problem.has_ball else 0.0
        rho = self.cost - (problem.e * Z).sum(axis=0)
        g = self.slope - (problem.d * Z).sum(axis=0) - self.across * rho / self.inner
        gradient = (problem.alpha + lam) * at.u + problem.B.T @ g
        du = -cho_solve((self.factor, True), gradient, check_finite=False)
        dv = problem.B @ du
        dxi = -(rho + self.across * dv) / self.inner
        dS = problem.d * dv + problem.e * dxi
        dlam = lam - at.lam + at.lam * float(at.u @ du) / room
        return _Variables(du, dv, dxi, dS, Z - at.Z - self.w * dS, dlam)
