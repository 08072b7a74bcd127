r"""A^{-1} = S S^T with weights u, where A gains a term w phi phi^T: S <- S (I - beta f f^T), f = S^T phi.

S is C-contiguous, shape (p, p), and written in place, as u is. The form is Potter's; no rounding makes S S^T lose its sign.

References: [bierman1977].
"""

from __future__ import annotations

import math

from scipy.linalg.blas import dgemv, dger  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.types import F64

# BLAS wants columns: S.T is the Fortran-ordered view of the same numbers.


def project(S: F64, phi: F64) -> F64:
    """f, shape (p,): f^T f = phi^T A^{-1} phi."""
    return dgemv(1.0, S.T, phi)


def shrinkage(w: float, q: float) -> float:
    """beta of a term with the weight w > 0, q = f^T f."""
    e = math.sqrt(1.0 + w * q)
    return w / (e * (e + 1.0))


def step(S: F64, u: F64, f: F64, gain: float, beta: float) -> None:
    """u <- u + gain A^{-1} phi, then S <- S (I - beta f f^T)."""
    v = dgemv(1.0, S.T, f, trans=1)
    u += gain * v
    dger(-beta, f, v, a=S.T, overwrite_a=1)
