r"""A and s in finitely many coordinates that may grow, A = alpha I + sum_s w_s phi_s phi_s^T kept inverted.

| symbol | meaning                                                    | shape  |
|--------|------------------------------------------------------------|--------|
| P      | A^{-1}, the upper triangle                                 | (p, p) |
| u      | A^{-1} s, the function learned; s = sum_s c_s phi_s        | (p,)   |
| phi    | features of an input                                       | (p,)   |
| g      | P phi                                                      | (p,)   |
| m, q   | phi^T u and phi^T P phi, the mean and variance of an input |        |
| w, c   | what a `Decision` says of a round                           |        |

A round with weight is P <- P - w g g^T / (1 + w q), u <- u + (c - w m) g / (1 + w q); one without is u <- u + c g. The map
may get new coordinates, which were 0 for every input so far: P then gets 1/alpha on the diagonal, and u a 0.

There are two inverses. This one, the inverse itself, moves half as many numbers in a round as the square root of
`root_posterior`, and suffices for features of a kernel, which are of about one length. Inputs are not: to subtract from
A^{-1} would lose its small part once some are 10^8 times as long as others.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import ddot, dsymv, dsyr  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.errors import StateFormatError
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.second_order.space_and_rule import Decision, Moments, Rule, T
from okl_core.types import F64


class Projection(NamedTuple):
    """What the past says of a feature vector; the letters of the module's table."""

    m: float
    q: float
    g: F64
    square: float
    """phi^T phi."""


@final
class Posterior:
    """P and u, and `largest`, a bound on the eigenvalues of A, by which q is kept off the 0 that it may round to."""

    # BLAS wants columns: P.T is the Fortran-ordered view of the same numbers, with the lower triangle.
    __slots__ = ("P", "alpha", "largest", "u")

    def __init__(self, alpha: float, size: int) -> None:
        self.alpha = alpha
        self.reset(size)

    def reset(self, size: int) -> None:
        """Forget all: A = alpha I, s = 0, in `size` dimensions."""
        self.P = np.eye(size) / self.alpha
        self.u = np.zeros(size)
        self.largest = self.alpha

    def __len__(self) -> int:
        return len(self.u)

    @property
    def nbytes(self) -> int:
        return self.P.nbytes + self.u.nbytes

    def project(self, phi: F64) -> Projection:
        """m, q and g of phi, shape (p,): O(p^2)."""
        if not len(phi):
            return Projection(0.0, 0.0, phi, 0.0)
        g = dsymv(1.0, self.P.T, phi, lower=1)
        square = ddot(phi, phi)
        return Projection(ddot(self.u, phi), max(ddot(phi, g), square / self.largest), g, square)

    def mean(self, phi: F64) -> float:
        """m alone: O(p)."""
        return ddot(self.u, phi) if len(phi) else 0.0

    def play(
        self, t: int, phi: F64, kappa: float, y: float, rule: Rule[T], rng: RoundRng
    ) -> tuple[Moments, Projection, Decision]:
        """Round t on phi, nothing changed: O(p^2). Raises DivergedError."""
        projection = self.project(phi)
        moments = Moments(projection.m, projection.q, kappa)
        require_finite(t, projection.m, projection.q)
        decision = rule.decide(moments, y, t, rng)
        require_finite(t, *decision)
        require_bearable(t, decision.w, projection.square, self.alpha)
        return moments, projection, decision

    def absorb(self, projection: Projection, decision: Decision) -> None:
        """Carry a round into P and u: O(p^2)."""
        _, q, g, square = projection
        w = decision.w
        if not len(g):
            return
        if w > 0.0:
            self.u += (decision.rho_delta * math.sqrt(w) / (1.0 + w * q)) * g
            dsyr(-w / (1.0 + w * q), g, a=self.P.T, lower=1, overwrite_a=1)
            self.largest += w * square
        elif decision.c != 0.0:
            self.u += decision.c * g

    def grow(self, count: int = 1) -> None:
        """Add coordinates that were 0 for every input so far: O(p^2)."""
        size = len(self.u)
        P = np.zeros((size + count, size + count))
        P[:size, :size] = self.P
        P[range(size, size + count), range(size, size + count)] = 1.0 / self.alpha
        self.P = P
        self.u = np.concatenate((self.u, np.zeros(count)))

    def discount(self, factor: float) -> None:
        """A <- factor A + (1 - factor) alpha I, s <- factor s, 0 < factor < 1: O(p^3)."""
        if not len(self.u):
            return
        full = self.full()
        # B has its eigenvalues in [factor, 1]: P = B^{-1} P is as stable as P itself, where inverting twice is not.
        B = ((1.0 - factor) * self.alpha) * full
        B[np.diag_indices_from(B)] += factor
        try:
            solver = cho_factor(B, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            # Rounding has made P indefinite by more than `factor`; what is below 0 of it was 0.
            eigenvalues, V = np.linalg.eigh(full)
            kept = np.maximum(eigenvalues, 0.0)
            inverse = 1.0 / (factor + (1.0 - factor) * self.alpha * kept)
            self.u = factor * (V * inverse) @ (V.T @ self.u)
            self.P = np.triu((V * (kept * inverse)) @ V.T)
        else:
            self.u = factor * cho_solve(solver, self.u, check_finite=False)
            self.P = np.triu(cho_solve(solver, full, check_finite=False))
        self.largest = factor * self.largest + (1.0 - factor) * self.alpha

    def full(self) -> F64:
        """P with both triangles; a copy."""
        P = self.P + self.P.T
        P[np.diag_indices_from(P)] *= 0.5
        return P

    def pack(self) -> dict[str, F64]:
        return {
            "P": self.P[np.triu_indices(len(self.u))],
            "u": self.u.copy(),
            "alpha": np.array(self.alpha),
            "largest": np.array(self.largest),
        }

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Posterior:
        packed, u = arrays["P"], np.array(arrays["u"], dtype=np.float64)
        size = len(u)
        if packed.shape != (size * (size + 1) // 2,):
            raise StateFormatError(f"{packed.shape} numbers are not the triangle of {size} features")
        posterior = cls(float(arrays["alpha"]), 0)
        posterior.P = np.zeros((size, size))
        posterior.P[np.triu_indices(size)] = packed
        posterior.u = u
        posterior.largest = float(arrays["largest"])
        return posterior
