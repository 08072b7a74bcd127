r"""One least-squares posterior for many truths, which share A^{-1}, since it depends only on the inputs.

| symbol | meaning                                                              | shape  |
|--------|----------------------------------------------------------------------|--------|
| P      | A^{-1}, A = I + sum phi phi^T                                        | (p, p) |
| U      | P sum phi y^T, one column per truth                                  | (p, k) |
| m, q   | U^T phi and phi^T P phi: the means, and their common variance        | (k,)   |
| Phi, Y | features of n rounds as columns, and truths as rows                  |        |
| M, S   | Phi^T U and Phi^T P Phi before the block                             |        |
| L      | lower Cholesky factor of I + S                                       | (n, n) |

Elimination in the order of the rounds is the same as learning them one by one: with E = L^{-1} (Y - M), the forecasts, each
made before its round is learned, are Y_t - L_tt E_t, and

    P <- P - Z^T Z,  U <- U + Z^T E,  Z = L^{-1} (P Phi)^T.

So n rounds take a few matrix products for any k. A truth that was 0 in every round so far has a column of zeros, so a new
class is learned as if it had existed from the start.

References: [zhdanov2013] section 2; [golub2013] section 4.2 for the factor.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from scipy.linalg.blas import dtrsm  # pyright: ignore[reportAttributeAccessIssue]
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import NotPositiveDefiniteError, StateFormatError
from okl_core.linalg.symmetric import Symmetric
from okl_core.types import F64, Stored


class SharedProjection(NamedTuple):
    """The predictive moments for a feature vector, with the symbols of the module's table, and g = P phi."""

    m: F64
    q: float
    g: F64

    def with_truths(self, count: int) -> SharedProjection:
        """The same projection with `count` further truths that were 0 in every round so far."""
        return self._replace(m=np.concatenate((self.m, np.zeros(count))))


@final
class SharedPosterior:
    """The posterior (P, U). A round costs O(p^2 + p k)."""

    __slots__ = ("P", "U")

    def __init__(self, size: int, truths: int) -> None:
        self.P = Symmetric.diagonal(size, 1.0)
        self.U = np.zeros((size, truths))

    def __len__(self) -> int:
        return len(self.U)

    @property
    def nbytes(self) -> int:
        return self.P.nbytes + self.U.nbytes

    def project(self, phi: F64) -> SharedProjection:
        g = self.P.times(phi)
        return SharedProjection(phi @ self.U, max(float(phi @ g), 0.0), g)

    def absorb(self, projection: SharedProjection, y: F64) -> None:
        """Learn one round with the truths y, shape (k,)."""
        m, q, g = projection
        self.U += np.multiply.outer(g, (y - m) / (1.0 + q))
        self.P.add_outer(-1.0 / (1.0 + q), g)

    def learn(self, Phi: F64, Y: F64) -> F64:
        """Learn n rounds, Phi of shape (p, n) and Y of shape (n, k), and return their forecasts, (n, k).

        Raises NotPositiveDefiniteError before anything has changed.
        """
        Phi = np.asfortranarray(Phi)
        G = self.P.times_columns(Phi)
        S = Phi.T @ G
        S[np.diag_indices_from(S)] += 1.0
        L, info = dpotrf(S, lower=1, clean=1)
        if info:
            raise NotPositiveDefiniteError("a posterior is lost to rounding; scale the inputs down")
        E = dtrsm(1.0, L, Y - Phi.T @ self.U, lower=1)
        # This Z is Z^T of the module, and overwrites G.
        Z = dtrsm(1.0, L, G, side=1, lower=1, trans_a=1, overwrite_b=1)
        self.P.add_gram(-1.0, Z)
        self.U += Z @ E
        return Y - np.diagonal(L)[:, None] * E

    def grow(self, count: int) -> None:
        """Add coordinates that were 0 for every input so far."""
        self.P.grow(count, 1.0)
        self.U = np.concatenate((self.U, np.zeros((count, self.U.shape[1]))))

    def add_truths(self, count: int) -> None:
        """Add truths that were 0 in every round so far."""
        self.U = np.hstack((self.U, np.zeros((len(self.U), count))))

    def discount(self, factor: float) -> None:
        """A <- factor A + (1 - factor) I, and likewise for the sums in U, 0 < factor < 1. O(p^3)."""
        full = self.P.full()
        # The eigenvalues of B are at least `factor`, so the new P = B^{-1} P is as stable as the old one.
        B = (1.0 - factor) * full
        B[np.diag_indices_from(B)] += factor
        L, info = dpotrf(B, lower=1)
        if info:
            raise NotPositiveDefiniteError("a posterior is lost to rounding; scale the inputs down")
        solved = dtrsm(1.0, L, dtrsm(1.0, L, np.hstack((full, factor * self.U)), lower=1), lower=1, trans_a=1)
        self.P = Symmetric(solved[:, : len(full)].T)
        self.U = np.ascontiguousarray(solved[:, len(full) :])

    def pack(self) -> dict[str, Stored]:
        return {"P": self.P.pack(), "U": self.U.copy()}

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> SharedPosterior:
        U = np.array(arrays["U"], dtype=np.float64, order="C")
        if U.ndim != 2:
            raise StateFormatError(f"means of shape {U.shape} are not of features and truths")
        posterior = cls(0, 0)
        posterior.P, posterior.U = Symmetric.unpack(arrays["P"], len(U)), U
        return posterior
