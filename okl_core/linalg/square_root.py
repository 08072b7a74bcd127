r"""A square root S of the inverse of a matrix A that gains rank-one terms, A <- A + w phi phi^T: Potter's form.

| symbol | meaning                                                                            | shape  |
|--------|------------------------------------------------------------------------------------|--------|
| S      | A^{-1} = S S^T                                                                     | (p, p) |
| f      | S^T phi, so that q = f^T f = phi^T A^{-1} phi                                      | (p,)   |
| beta   | w / (e (e + 1)) with e = sqrt(1 + w q): S <- S (I - beta f f^T) for the new A      |        |
| u      | weights A^{-1} s, for an s of the caller's choice                                  | (p,)   |

S S^T stays positive semi-definite, however S is rounded. S is C-contiguous; S and u are updated in place.

A term of rank k, A <- A + Phi E E^T Phi^T with Phi of shape (p, k), is S <- S (I - F D F^T) with F = S^T Phi and, for the
singular values s of F E = Y diag(s) V^T and e = sqrt(1 + s^2), D = E V diag(1 / (e (e + 1))) V^T E^T. Taking s^2 as the
eigenvalues of E^T F^T F E would lose the small ones to rounding.

References: [bierman1977].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.blas import dgemv, dger  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.types import F64

# BLAS expects Fortran order: S.T is a Fortran-ordered view of the same numbers.


def project(S: F64, phi: F64) -> F64:
    """Return f for phi, shape (p,)."""
    return dgemv(1.0, S.T, phi)


def shrinkage(w: float, q: float) -> float:
    """Return beta for a term of weight w > 0."""
    e = math.sqrt(1.0 + w * q)
    return w / (e * (e + 1.0))


def step(S: F64, u: F64, f: F64, gain: float, beta: float) -> None:
    """u <- u + gain S f, which is u + gain A^{-1} phi for the old A; then S <- S (I - beta f f^T)."""
    v = dgemv(1.0, S.T, f, trans=1)
    u += gain * v
    dger(-beta, f, v, a=S.T, overwrite_a=1)


def shrinkage_of_block(E_V: F64, s: F64) -> F64:
    """Return D for a term of rank k, shape (k, k), from E V and s."""
    e = np.hypot(1.0, s)
    return (E_V / (e * (e + 1.0))) @ E_V.T


def step_of_block(S: F64, u: F64, F: F64, gains: F64, D: F64) -> None:
    """u <- u + S F gains, then S <- S (I - F D F^T); F of shape (p, k)."""
    G = S @ F
    u += G @ gains
    S -= G @ (D @ F.T)
