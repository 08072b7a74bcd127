r"""Improper regression on the softmax of K logits: AIOLI for more than two classes.

| symbol | meaning                                                                                          | shape    |
|--------|--------------------------------------------------------------------------------------------------|----------|
| v, p   | the logits played, the largest of which is 0, and their softmax                                  | (K,)     |
| H      | diag(p) - p p^T, the Hessian of the log-loss                                                     | (K, K)   |
| B, R   | bounds on the norm \|W\| of the comparators, and on the norm of the input                        |          |
| L      | log(1 + (K - 1) e^{sqrt(2) B R}): no competitor gives a class less than e^{-L}                   |          |
| kappa  | 2 (e^{-l} - 1 + l) / l^2 with l = L + log max p; at least 1 / (1 + l / 2)                         |          |
| m, Q   | mean and variance of the logits before the round, given the surrogates and the norm term         | (K,), (K, K) |
| c      | the diagonal of Q, less its mean                                                                 | (K,)     |
| Q'     | (Q^+ + kappa H)^+: the variance after the round                                                  | (K, K)   |
| h      | the hedge                                                                                        |          |
| U      | the `basis`; F, R: Q = U F^T F U^T = U R^T R U^T, with R triangular                              | (K, K - 1) |
| E      | sqrt(kappa) U^T diag(r) (I - r r^T), r = sqrt(p): E E^T = kappa U^T H U, as I - r r^T projects   | (K - 1, K) |
| Y, s, V | R E = Y diag(s) V^T                                                                             |          |

The surrogate of a round with the truth y is the parabola under its loss l_y(u) = log sum exp(u) - u_y that touches it at v,

    l_y(v) + (p - e_y)^T (u - v) + (kappa / 2) (u - v)^T H (u - v) <= l_y(u)   for all u that a comparator may give.

Proof: without the quadratic term, the difference of the two sides is KL(p, q) with q = softmax(u). (u - v)^T H (u - v) is the
variance under p of z = log(q / p), at most its mean square. KL(p, q) = E_p(e^z - 1 - z) and z >= -l, and the quotient
(e^z - 1 - z) / z^2 increases with z. The logits played are the root of

    v + h (2 Q p - c) = m.

With it the loss, for any truth, exceeds the growth of the surrogates' minimum by at most h tr(H Q): docs/theorems.md, 7. For
K = 2, c is 0 and h = 1 gives AIOLI, which hedges by the losses of all labels. For K > 2 the sum of all losses gives no such
hedge.

The update of a round is computed from the singular values of R E. Solving with I + kappa Q H would lose everything in Q below
10^-16 of its largest entry, as squaring always does, and with it the surplus and the small part of A^{-1}: inputs of norm
10^5 beside short ones were enough to break the bound.

References: [jezequel2020] for K = 2; [agarwal2022] for the rate.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
from scipy.linalg.lapack import dgesv  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import DivergedError
from okl_core.linalg import square_root
from okl_core.second_order.root_posterior import RootPosterior
from okl_core.types import F64

STEPS = 60
"""Maximum number of Newton steps with the same coefficients; half a dozen are usual."""
GROWTH, ROUGH = 16.0, 0.1
"""Factor between the scales of successive shrunken equations, and the tolerance to which these are solved."""
TOLERANCE, SETTLED = 1e-15, 1e-6
"""Change of p, and of v relative to its size, at which the iteration stops; below SETTLED it also stops where rounding keeps
the changes of p from falling."""
RISE = 2.0
"""Most that a logit may rise in a step, unless its class counts for nothing after it: e^v grows faster than its tangent."""
LARGEST = 1e10
"""Largest coefficients. Beyond, rounding hides the solution of the equation, and that of the equation shrunk to this size is
played. `step` computes the cost of a round for any logits played."""
CANCELLED, CALM, CALMEST = 0.02, 256.0, 1e4
"""Share of |phi| / sqrt(alpha) that counts as conditioning; the most of it, and the most amplification, that need not."""
FEW, STRETCH = 3, 150.0
"""The most classes, and the order of |phi| / sqrt(alpha), for which no rounding is amplified from round to round."""
NEWTON_WORK = 20.0
"""Approximate work of solving the equation, in products of K x K matrices."""
SMALL = 1e-4
"""Below this the quotient is computed by its series."""


@final
class Logits(NamedTuple):
    """The logits played; symbols as in the module's table."""

    v: F64
    p: F64
    kappa: float
    is_root: bool
    """False for the root of the equation shrunk to LARGEST."""


@final
class LogitMoments(NamedTuple):
    """Mean and variance of an input's logits; symbols as in the module's table."""

    F: F64
    """S^T (I x phi) for A^{-1} = S S^T, shape ((K - 1) p, K - 1)."""
    m: F64
    Q: F64


@final
class LogitStep(NamedTuple):
    """The update of S and u by a round, as `square_root.step_of_block` takes it, and the cost of the round."""

    gains: F64
    D: F64
    surplus: float
    """Excess of the loss over the growth of the surrogates' minimum in the round, for any logits played."""


def moments(posterior: RootPosterior, phi: F64, U: F64) -> LogitMoments:
    """Return the moments for features phi, shape (p,), with the `basis` U: O(K^2 p^2)."""
    S, u, K = posterior.S, posterior.u, len(U)
    F = (phi @ S.reshape(K - 1, len(phi), len(u))).T
    return LogitMoments(F, U @ (u.reshape(K - 1, len(phi)) @ phi), U @ (F.T @ F) @ U.T)


def round_work(K: int, n: int) -> float:
    """Return the multiplications of a round with n = (K - 1) p weights, the unit of `Learner.extra_work`."""
    return 2.0 * K * n * n + NEWTON_WORK * K**3


def basis(K: int) -> F64:
    """Return orthonormal columns that each sum to 0, shape (K, K - 1): logits with sum 0 are K - 1 numbers."""
    U = np.zeros((K, K - 1))
    for j in range(K - 1):
        U[: j + 1, j] = 1.0
        U[j + 1, j] = -(j + 1.0)
        U[:, j] /= math.sqrt((j + 1.0) * (j + 2.0))
    return U


def reach(K: int, norm: float, square: float) -> float:
    """Return L of comparators with norm at most `norm`, for an input with |x|^2 = `square`."""
    width = norm * math.sqrt(2.0 * square)
    # log(1 + (K - 1) e^width), where e^width may overflow.
    return width + math.log(K - 1.0 + math.exp(-width))


def curvature(below: float) -> float:
    """Return 2 (e^{-l} - 1 + l) / l^2 for l = `below` >= 0: decreasing from 1 at 0, at least 1 / (1 + l / 2)."""
    if below < SMALL:
        return 1.0 - max(below, 0.0) / 3.0
    return 2.0 * (math.expm1(-below) + below) / (below * below)


def amplified(K: int, hedge: float, length: float) -> float:
    """Return the conditioning that inputs of |phi| up to `length` sqrt(alpha) add.

    With h = 1 it is their rounding alone. With less, the forecasts of more than FEW classes make up for each other's errors
    so fully that long inputs amplify them for some fifty rounds, the more the more classes there are, until a change of
    10^-13 of the first input is one of 0.1. In streams of 4 to 50 classes with offsets or scales of 3 to 10^6, a change has
    grown by less than this.
    """
    power = _power(K, hedge)
    return CANCELLED * length + math.expm1(min(math.log(1e300), power * math.log1p(length / STRETCH)))


def longest_calm(K: int, hedge: float) -> float:
    """Return a |phi| / sqrt(alpha) up to which `amplified` adds nothing to the replay tolerance."""
    power = _power(K, hedge)
    # From an exponent of 1 on it is CALM; with a hedge near 1 the exponential would overflow.
    return CALM if power == 0.0 else min(CALM, STRETCH * math.expm1(min(1.0, math.log(CALMEST) / power)))


def _power(K: int, hedge: float) -> float:
    """Return the power of the length that rounding grows with; 0 if it does not grow from round to round."""
    return 0.0 if K <= FEW else 2.0 * (1.0 - hedge) * K


def hedged(m: F64, Q: F64, L: float, hedge: float, t: int) -> Logits:
    """Compute the logits of round t, from m, shape (K,), and Q, (K, K), both without a part along (1, ..., 1).

    The root of v + 2 h Q p = m + h c is where v^T (2 h Q)^+ v / 2 - v^T (2 h Q)^+ (m + h c) + log sum exp(v) is least, a
    convex function of v, found by Newton's method. Raise DivergedError for numbers that are not finite.
    """
    if not (np.isfinite(m).all() and np.isfinite(Q).all()):
        raise DivergedError(f"round {t}: the logits are not finite; raise the regularization, or scale the inputs down")
    G = (2.0 * hedge) * Q
    centre = m + hedge * (Q.diagonal() - Q.diagonal().mean())
    largest = max(1.0, float(np.abs(G).max()), float(np.abs(centre).max()))
    is_root = largest <= LARGEST
    if not is_root:
        G, centre, largest = G * (LARGEST / largest), centre * (LARGEST / largest), LARGEST
    v, shrunk = np.zeros(len(m)), largest / GROWTH
    # With large coefficients the equation is stiff: solve it with the coefficients shrunk, then let them grow step by step.
    while shrunk > 1.0:
        v = _root(v, centre / shrunk, G / shrunk, ROUGH)
        shrunk /= GROWTH
    v = _root(v, centre, G, TOLERANCE)
    p = _softmax(v)
    return Logits(v, p, curvature(L + math.log(p.max())), is_root)


def _root(v: F64, centre: F64, G: F64, tolerance: float) -> F64:
    """Solve v + G p = centre, up to a constant, by Newton's method from v. The largest logit of v and of the result is 0.

    The unknown is v, not p: v = centre - G p turns the rounding of p into errors of eps |G|, which hid how far from the root
    an iteration in p had stopped.
    """
    one, free, last = np.eye(len(v)), -math.log(max(1.0, float(np.abs(G).max()))), math.inf
    for _ in range(STEPS):
        p = _softmax(v)
        H = -p[:, None] * p
        H.ravel()[:: len(p) + 1] += p
        left = centre - v - G @ p
        # Measured from the likeliest class, differences of the classes that count keep their digits.
        left -= left[v.argmax()]
        step = dgesv(one + G @ H, left)[2]
        moved, size = step - p @ step, float(np.abs(step).max()) / (1.0 - float(v.min()))
        share = float((moved / np.maximum(RISE, free - v)).max())
        v = v + step / max(1.0, share)
        v -= v.max()
        if share > 1.0:
            last = math.inf
            continue
        change = float(np.abs(p * moved).max())
        if max(change, size) <= tolerance:
            break
        if max(change, size) <= SETTLED and change >= 0.5 * last:
            break
        last = change
    return v


def _softmax(v: F64) -> F64:
    """Return the softmax of v, the largest of which is 0."""
    p = np.exp(v)
    return p / np.add.reduce(p)


def step(prior: LogitMoments, played: Logits, U: F64, y: int) -> LogitStep:
    """Compute the step for the truth y: O(K^3 p), with p features.

    The surplus is (g - s)^T Q' (g - s) / 2 - s^T Q s / 2 with g = p - e_y and Q s = m - v. For the root it is at most
    hedge tr(H Q).
    """
    v, p, kappa, is_root = played
    # Nothing depends on a constant added to all classes; measured from the likeliest, its small part keeps its digits.
    top, r = v.argmax(), math.sqrt(kappa) * np.sqrt(p)
    ahead, moved = U - U[top], prior.m - prior.m[top] - v
    g = p.copy()
    g[y] -= 1.0
    R = np.linalg.qr(prior.F, mode="r")
    E, bent, pull = (r[:, None] * (ahead - p @ ahead)).T, r * (moved - p @ moved), ahead.T @ g
    Y, s, Vt = np.linalg.svd(R @ E, full_matrices=False)
    a, h, left = Y.T @ (R @ pull), Vt @ bent, 1.0 / (1.0 + s * s)
    unseen = bent - Vt.T @ h
    over = float(left @ (0.5 * a * a + s * a * h - 0.5 * h * h) - 0.5 * (unseen @ unseen) - g @ moved)
    # (I + E E^T R^T R)^{-1} (-E bent - pull), by the Woodbury identity.
    E_V = E @ Vt.T
    gains = E_V @ (left * (s * a - h)) - E @ unseen - pull
    # Off the root, a negative surplus may only undo earlier rounding errors, so it does not lower the bound.
    over = over if is_root else max(over, 0.0)
    return LogitStep(gains, square_root.shrinkage_of_block(E_V, s), over)
