r"""One least-squares posterior for many truths: they share A^{-1}, which the inputs alone decide.

| symbol | meaning                                                              | shape  |
|--------|----------------------------------------------------------------------|--------|
| P      | A^{-1}, A = I + sum phi phi^T, the upper triangle                    | (p, p) |
| U      | P sum phi y^T, a column for each truth                               | (p, k) |
| m, q   | U^T phi and phi^T P phi: the means, and the variance that they share | (k,)   |
| Phi, Y | features, a column each, and truths of n rounds                      |        |
| M, S   | Phi^T U and Phi^T P Phi before the block                             |        |
| L      | lower Cholesky factor of I + S                                       | (n, n) |

Elimination in the order of the rounds is what learns them one after the other: with E = L^{-1} (Y - M) the forecasts, each
made before its round is learned, are Y_t - L_tt E_t, and

    P <- P - Z^T Z,  U <- U + Z^T E,  Z = L^{-1} (P Phi)^T.

So n rounds are a few products of matrices, whatever k is. A truth that was 0 in every round so far has a column of zeros: a
new class is learned as if it had been there from the start.

References: [zhdanov2013] section 2; [golub2013] section 4.2 for the factor.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from scipy.linalg.blas import dsymm, dsymv, dsyr, dsyrk, dtrsm  # pyright: ignore[reportAttributeAccessIssue]
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import NotPositiveDefiniteError, StateFormatError
from okl_core.types import F64


class SharedProjection(NamedTuple):
    """What the past says of a feature vector; the letters of the module's table, and g = P phi."""

    m: F64
    q: float
    g: F64

    def with_truths(self, count: int) -> SharedProjection:
        """The same with truths that were 0 in every round so far."""
        return self._replace(m=np.concatenate((self.m, np.zeros(count))))


@final
class SharedPosterior:
    """P and U. A round costs O(p^2 + p k)."""

    # BLAS wants columns: P.T is the Fortran-ordered view of the same numbers, with the lower triangle.
    __slots__ = ("P", "U")

    def __init__(self, size: int, truths: int) -> None:
        self.P = np.eye(size)
        self.U = np.zeros((size, truths))

    def __len__(self) -> int:
        return len(self.U)

    @property
    def nbytes(self) -> int:
        return self.P.nbytes + self.U.nbytes

    def project(self, phi: F64) -> SharedProjection:
        g = dsymv(1.0, self.P.T, phi, lower=1)
        return SharedProjection(phi @ self.U, max(float(phi @ g), 0.0), g)

    def absorb(self, projection: SharedProjection, y: F64) -> None:
        """Learn one round with the truths y, shape (k,)."""
        m, q, g = projection
        self.U += np.multiply.outer(g, (y - m) / (1.0 + q))
        dsyr(-1.0 / (1.0 + q), g, a=self.P.T, lower=1, overwrite_a=1)

    def learn(self, Phi: F64, Y: F64) -> F64:
        """Learn n rounds, Phi of shape (p, n) and Y of shape (n, k); their forecasts, (n, k).

        Raises NotPositiveDefiniteError before anything has changed.
        """
        Phi = np.asfortranarray(Phi)
        G = dsymm(1.0, self.P.T, Phi, lower=1)
        S = Phi.T @ G
        S.ravel()[:: len(S) + 1] += 1.0
        L, info = dpotrf(S, lower=1, clean=1)
        if info:
            raise NotPositiveDefiniteError("a posterior is lost to rounding; scale the inputs down")
        E = dtrsm(1.0, L, Y - Phi.T @ self.U, lower=1)
        # Z^T in place of G.
        Z = dtrsm(1.0, L, G, side=1, lower=1, trans_a=1, overwrite_b=1)
        dsyrk(-1.0, Z, beta=1.0, c=self.P.T, lower=1, overwrite_c=1)
        self.U += Z @ E
        return Y - np.diagonal(L)[:, None] * E

    def grow(self, count: int) -> None:
        """Add coordinates that were 0 for every input so far."""
        size = len(self.U)
        P = np.eye(size + count)
        P[:size, :size] = self.P
        self.P = P
        self.U = np.concatenate((self.U, np.zeros((count, self.U.shape[1]))))

    def add_truths(self, count: int) -> None:
        """Add truths that were 0 in every round so far."""
        self.U = np.hstack((self.U, np.zeros((len(self.U), count))))

    def discount(self, factor: float) -> None:
        """A <- factor A + (1 - factor) I, the sums of U likewise, 0 < factor < 1: O(p^3)."""
        full = np.triu(self.P)
        full = full + np.triu(full, 1).T
        # Its eigenvalues are at least `factor`: P = B^{-1} P is as stable as P.
        B = (1.0 - factor) * full
        B.ravel()[:: len(B) + 1] += factor
        L, info = dpotrf(B, lower=1)
        if info:
            raise NotPositiveDefiniteError("a posterior is lost to rounding; scale the inputs down")
        solved = dtrsm(1.0, L, dtrsm(1.0, L, np.hstack((full, factor * self.U)), lower=1), lower=1, trans_a=1)
        # In the order of rows, which BLAS needs to write into P, and a restored state has.
        self.P = np.ascontiguousarray(np.triu(solved[:, : len(full)]))
        self.U = np.ascontiguousarray(solved[:, len(full) :])

    def pack(self) -> dict[str, F64]:
        return {"P": self.P[np.triu_indices(len(self.U))], "U": self.U.copy()}

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> SharedPosterior:
        packed, U = arrays["P"], arrays["U"]
        if U.ndim != 2 or packed.shape != (len(U) * (len(U) + 1) // 2,):
            raise StateFormatError(f"{packed.shape} numbers are not the triangle of {U.shape} features and truths")
        posterior = cls(0, 0)
        posterior.P = np.zeros((len(U), len(U)))
        posterior.P[np.triu_indices(len(U))] = packed
        posterior.U = np.array(U, dtype=np.float64, order="C")
        return posterior
