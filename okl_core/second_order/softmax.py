r"""Improper regression on the softmax of K logits: what AIOLI becomes for more than two classes.

| symbol | meaning                                                                                          | shape    |
|--------|--------------------------------------------------------------------------------------------------|----------|
| v, p   | the logits played, which sum to 0, and their softmax                                             | (K,)     |
| H      | diag(p) - p p^T, the Hessian of the log-loss                                                     | (K, K)   |
| B, R   | bounds on the norm \|W\| of those it competes with, and of the input                             |          |
| L      | log(1 + (K - 1) e^{sqrt(2) B R}): no competitor gives a class less than e^{-L}                   |          |
| kappa  | 2 (e^{-l} - 1 + l) / l^2 with l = L + log max p; at least 1 / (1 + l / 2)                         |          |
| m, Q   | mean and variance of the logits before the round: those of the surrogates and the norm alone     | (K,), (K, K) |
| c      | the diagonal of Q, less its mean                                                                 | (K,)     |
| Q'     | (Q^+ + kappa H)^+: the variance after the round                                                  | (K, K)   |
| h      | the hedge                                                                                        |          |
| U      | the `basis`; F, R: Q = U F^T F U^T = U R^T R U^T, with R triangular                              | (K, K - 1) |
| E      | sqrt(kappa) U^T diag(r) (I - r r^T), r = sqrt(p): E E^T = kappa U^T H U, as I - r r^T projects   | (K - 1, K) |
| Y, s, V | R E = Y diag(s) V^T                                                                             |          |

The surrogate of a round with the truth y is the parabola under its loss l_y(u) = log sum exp(u) - u_y that touches it at v,

    l_y(v) + (p - e_y)^T (u - v) + (kappa / 2) (u - v)^T H (u - v) <= l_y(u)   for all u that a competitor may give.

For the difference of the two sides without the parabola is KL(p, q) with q = softmax(u), and (u - v)^T H (u - v) is the
variance under p of z = log(q / p), at most its mean square, while KL(p, q) = E_p(e^z - 1 - z) and z >= -l: the quotient
(e^z - 1 - z) / z^2 grows with z. The logits played are the root of

    v + h (2 Q p - c) = m.

With it no truth costs more than h tr(H Q) over what the surrogates' minimum grows by: docs/theorems.md, 7. For K = 2 c is 0,
and h = 1 is AIOLI, which leans to the losses of all labels. For K > 2 the sum of all losses is no such lean.

What a round leaves comes from the singular values of R E. To solve with I + kappa Q H would lose in Q, as in all squares,
what is 10^-16 of its largest, and with it the surplus and the small part of A^{-1}: inputs of norm 10^5 beside short ones
were enough for a bound that did not hold.

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

STEPS = 20
"""Newton steps at most; half a dozen are usual."""
GROWTH, ROUGH = 16.0, 0.1
"""Of the logits from one shrunken equation to the next, and how well these are solved."""
TOLERANCE = 1e-12
"""Of the equation, relative to its coefficients."""
ROUNDING = 1e-15
"""Of the function that is made least, relative to the same."""
LARGEST = 1e10
"""Of the coefficients: beyond, rounding hides the logits that solve the equation, and those of one shrunk to this are played.
`step` tells what a round costs whatever was played."""
NEWTON_WORK = 20.0
"""Of the equation, in products of K x K matrices, about."""
SMALL = 1e-4
"""Below it the quotient is its series."""


@final
class Logits(NamedTuple):
    """What was played; the letters of the module's table."""

    v: F64
    p: F64
    kappa: float
    is_root: bool
    """Or of the equation shrunk to LARGEST."""


@final
class LogitMoments(NamedTuple):
    """What the past says of an input's logits; the letters of the module's table."""

    F: F64
    """S^T (I x phi) for A^{-1} = S S^T, shape ((K - 1) p, K - 1)."""
    m: F64
    Q: F64


@final
class LogitStep(NamedTuple):
    """What a round does to S and u, as `square_root.step_of_block` takes it, and what it costs."""

    gains: F64
    D: F64
    surplus: float
    """By how much the loss exceeds what the round adds to the minimum of the surrogates, whatever was played."""


def moments(posterior: RootPosterior, phi: F64, U: F64) -> LogitMoments:
    """Of the features phi, shape (p,), with the `basis` U: O(K^2 p^2)."""
    S, u, K = posterior.S, posterior.u, len(U)
    F = (phi @ S.reshape(K - 1, len(phi), len(u))).T
    return LogitMoments(F, U @ (u.reshape(K - 1, len(phi)) @ phi), U @ (F.T @ F) @ U.T)


def round_work(K: int, n: int) -> float:
    """What a round of n = (K - 1) p numbers takes, in multiplications: as `Learner.extra_work` counts."""
    return 2.0 * K * n * n + NEWTON_WORK * K**3


def basis(K: int) -> F64:
    """Orthonormal columns that sum to 0 each, shape (K, K - 1): logits of one sum are K - 1 numbers."""
    U = np.zeros((K, K - 1))
    for j in range(K - 1):
        U[: j + 1, j] = 1.0
        U[j + 1, j] = -(j + 1.0)
        U[:, j] /= math.sqrt((j + 1.0) * (j + 2.0))
    return U


def reach(K: int, norm: float, square: float) -> float:
    """L of competitors with norm at most `norm`, for an input with |x|^2 = `square`."""
    width = norm * math.sqrt(2.0 * square)
    # log(1 + (K - 1) e^width), where e^width may overflow.
    return width + math.log(K - 1.0 + math.exp(-width))


def curvature(below: float) -> float:
    """2 (e^{-l} - 1 + l) / l^2 for l = `below` >= 0: from 1 at 0 down, at least 1 / (1 + l / 2)."""
    if below < SMALL:
        return 1.0 - max(below, 0.0) / 3.0
    return 2.0 * (math.expm1(-below) + below) / (below * below)


def hedged(m: F64, Q: F64, L: float, hedge: float, t: int) -> Logits:
    """The logits of round t, from m, shape (K,), and Q, (K, K), both without a part along (1, ..., 1).

    With v = m + h c - 2 h Q s the equation is s = p: the least of s^T (2 h Q) s / 2 + log sum exp(v), a convex function of s,
    found by Newton's steps. Raises DivergedError for numbers that are not finite.
    """
    if not (np.isfinite(m).all() and np.isfinite(Q).all()):
        raise DivergedError(f"round {t}: the logits are not finite; raise the regularization, or scale the inputs down")
    K, G = len(m), (2.0 * hedge) * Q
    centre = m + hedge * (Q.diagonal() - Q.diagonal().mean())
    largest = max(1.0, float(np.abs(G).max()), float(np.abs(centre).max()))
    is_root = largest <= LARGEST
    if not is_root:
        G, centre, largest = G * (LARGEST / largest), centre * (LARGEST / largest), LARGEST
    s = np.full(K, 1.0 / K)
    # Far from one, the equation is stiff: it is solved for logits shrunk so far that it is not, and these are let grow.
    shrunk = GROWTH * largest
    while shrunk > 1.0:
        shrunk = max(1.0, shrunk / GROWTH)
        s = _least(s, centre / shrunk, G / shrunk, ROUGH if shrunk > 1.0 else TOLERANCE)
    v, p, _, _ = _at(s, centre, G)
    return Logits(v, p, curvature(L + math.log(p.max())), is_root)


def _least(s: F64, centre: F64, G: F64, tolerance: float) -> F64:
    """Newton's steps from s to the least of s^T G s / 2 + log sum exp(centre - G s)."""
    one, size = np.eye(len(s)), 1.0 + float(np.abs(centre).max()) + float(np.abs(G).max())
    _, p, H, value = _at(s, centre, G)
    for _ in range(STEPS):
        r = s - p
        left = G @ r
        if float(np.maximum.reduce(np.abs(left))) <= tolerance * size:
            break
        step = dgesv(one + H @ G, r)[2]
        gain, slack = float(left @ step), ROUNDING * len(s) * size
        tried = _at(s - step, centre, G)
        while tried[-1] > value - 0.1 * gain + slack:
            if gain <= slack:
                # Nothing is gained any more that rounding would not take.
                return s
            step, gain = 0.5 * step, 0.5 * gain
            tried = _at(s - step, centre, G)
        s, (_, p, H, value) = s - step, tried
    return s


def _at(s: F64, centre: F64, G: F64) -> tuple[F64, F64, F64, float]:
    """v = centre - G s, p, H, and the function that is made least."""
    drop = G @ s
    v = centre - drop
    top = float(np.maximum.reduce(v))
    p = np.exp(v - top)
    total = float(np.add.reduce(p))
    p /= total
    H = -p[:, None] * p
    H.ravel()[:: len(p) + 1] += p
    return v, p, H, 0.5 * float(s @ drop) + top + math.log(total)


def step(told: LogitMoments, played: Logits, U: F64, y: int) -> LogitStep:
    """Of the truth y: O(K^3 p), with p features.

    The surplus is (g - s)^T Q' (g - s) / 2 - s^T Q s / 2 with g = p - e_y and Q s = m - v. For the root it is at most
    hedge tr(H Q).
    """
    v, p, kappa, is_root = played
    # Nothing depends on what is added to all classes: counted from the likeliest, its own small part keeps its digits.
    top, r = p.argmax(), math.sqrt(kappa) * np.sqrt(p)
    ahead, moved = U - U[top], told.m - v
    moved -= moved[top]
    g = p.copy()
    g[y] -= 1.0
    R = np.linalg.qr(told.F, mode="r")
    E, bent, pull = (r[:, None] * (ahead - p @ ahead)).T, r * (moved - p @ moved), ahead.T @ g
    Y, s, Vt = np.linalg.svd(R @ E, full_matrices=False)
    a, h, left = Y.T @ (R @ pull), Vt @ bent, 1.0 / (1.0 + s * s)
    unseen = bent - Vt.T @ h
    over = float(left @ (0.5 * a * a + s * a * h - 0.5 * h * h) - 0.5 * (unseen @ unseen) - g @ moved)
    # (I + E E^T R^T R)^{-1} (-E bent - pull), as Woodbury has it.
    E_V = E @ Vt.T
    gains = E_V @ (left * (s * a - h)) - E @ unseen - pull
    # What such rounds take from the bound may be no more than what rounding has added before.
    over = over if is_root else max(over, 0.0)
    return LogitStep(gains, square_root.shrinkage_of_block(E_V, s), over)
