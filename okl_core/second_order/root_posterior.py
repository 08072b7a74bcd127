r"""A and s in a fixed number of coordinates; A^{-1} is stored as S S^T, which no rounding makes indefinite.

| symbol | meaning                                                          | shape  |
|--------|------------------------------------------------------------------|--------|
| S      | a square root of A^{-1} = (alpha I + sum_s w_s phi_s phi_s^T)^{-1} | (p, p) |
| u      | A^{-1} s, the weights of the next round; s = sum_s c_s phi_s     | (p,)   |
| f      | S^T phi: q = f^T f                                               | (p,)   |
| v      | S f = A^{-1} phi                                                 | (p,)   |
| beta   | w / (e (e + 1)), e = sqrt(1 + w q)                               |        |

A round with weight is S <- S (I - beta f f^T), u <- u + (c - w m) v / (1 + w q); a round without weight is u <- u + c v.

The form is that of `linalg.square_root`. Subtracting from A^{-1} itself would lose its small part once some inputs are 10^8
times as large as others, and the weights would diverge.

References: [bierman1977].
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg.blas import ddot, dgemm, dtrsm  # pyright: ignore[reportAttributeAccessIssue]
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import StateFormatError
from okl_core.linalg import square_root
from okl_core.second_order.space_and_rule import Decision
from okl_core.types import F64, StatePart

CANCELLED = 0.03125
"""Share of |phi|^2 / (alpha cond(S)) that counts as conditioning. Between BLAS kernels, forecasts of inputs with offsets of
1e4 to 1e9 differ by up to a quarter of eps times that number; the replay tolerance allows twice eps times it."""


class RootProjection(NamedTuple):
    """m, q and f of an input; symbols as in the module's table."""

    m: float
    q: float
    f: F64


@final
@dataclass(slots=True)
class RootPosterior(StatePart):
    """S and u, for p features."""

    S: F64
    u: F64

    @classmethod
    def prior(cls, alpha: float, p: int) -> RootPosterior:
        """Return the posterior with A = alpha I, s = 0."""
        return cls(np.eye(p) / math.sqrt(alpha), np.zeros(p))

    @staticmethod
    def bytes_of(p: int) -> int:
        """Return the bytes that a posterior of p features takes."""
        return 8 * p * (p + 1)

    def __post_init__(self) -> None:
        if self.u.ndim != 1 or self.S.shape != (len(self.u), len(self.u)):
            raise StateFormatError(f"a root of shape {self.S.shape} with weights of shape {self.u.shape}")
        if not (np.isfinite(self.S).all() and np.isfinite(self.u).all()):
            raise StateFormatError("a root or weights that are not finite")

    def __len__(self) -> int:
        return len(self.u)

    def mean(self, phi: F64) -> float:
        """Return m alone: O(p)."""
        return ddot(self.u, phi)

    def project(self, phi: F64) -> RootProjection:
        """Return m, q and f of phi, shape (p,): O(p^2)."""
        f = square_root.project(self.S, phi)
        return RootProjection(ddot(self.u, phi), ddot(f, f), f)

    def absorb(self, projection: RootProjection, decision: Decision) -> None:
        """Update S and u with a round: O(p^2)."""
        _, q, f = projection
        if decision.w == 0.0 and decision.c == 0.0:
            return
        gain, beta = _steps(q, decision)
        square_root.step(self.S, self.u, f, gain, beta)

    def discount(self, factor: float, alpha: float) -> None:
        """A <- factor A + (1 - factor) alpha I, s <- factor s, 0 < factor < 1: O(p^3).

        With B = factor I + (1 - factor) alpha S^T S the new inverse is S B^{-1} S^T. The eigenvalues of B are in
        [factor, 1], so no digits are lost.
        """
        B = ((1.0 - factor) * alpha) * (self.S.T @ self.S)
        B[np.diag_indices_from(B)] += factor
        L, _ = dpotrf(B, lower=1)
        # S L^{-T}, solved as its transpose, since BLAS takes that Fortran-ordered view without a copy.
        dtrsm(1.0, L, self.S.T, lower=1, overwrite_b=1)
        self.u -= ((1.0 - factor) * alpha) * (self.S @ (self.u @ self.S))

    def conditioning(self, alpha: float, longest: float = 0.0) -> float:
        """Return the condition of S, the root of that of A, plus what the weights and the `longest` phi add: O(p^3).

        f = S^T phi is rounded by eps |S| |phi|, even where the entries of a long phi cancel. The next forecast multiplies
        that by |f|, which for a phi already learned is about |phi| times the smallest singular value of S.
        """
        condition, length = self.condition(), longest / math.sqrt(alpha)
        return condition + float(np.linalg.norm(self.u)) / math.sqrt(alpha) + CANCELLED * length * length / condition

    def condition(self) -> float:
        """Return the ratio of the largest singular value of S to the smallest: O(p^3)."""
        sigma = np.linalg.svd(self.S, compute_uv=False)
        return float(sigma[0] / sigma[-1]) if sigma[-1] > 0.0 else math.inf


@final
class RootRounds:
    """A block of n rounds with known features, learned one by one on a copy, so that a failed round changes nothing."""

    def __init__(self, root: RootPosterior, Phi: F64) -> None:  # Phi: (n, p)
        self.root, self.Phi = root, Phi
        self.learned = copy.deepcopy(root)

    def project(self, j: int) -> RootProjection:
        """Return m, q and f of round j, after the rounds before it: O(p^2)."""
        return self.learned.project(self.Phi[j])

    def absorb(self, projection: RootProjection, decision: Decision) -> None:
        """Update the copy with a round: O(p^2)."""
        self.learned.absorb(projection, decision)

    def settle(self) -> None:
        """Replace S and u by those of the copy."""
        self.root.S, self.root.u = self.learned.S, self.learned.u


@final
class RootBlock:
    r"""A block of n rounds with known features, like `RootRounds`, but updating S once, by matrix products.

    After k rounds S has become S (I - sum_i beta_i h_i f_i^T), and u has become u + S d.

    | symbol | meaning                                         | shape  |
    |--------|-------------------------------------------------|--------|
    | F0     | Phi S_0, with S_0 the S before the block        | (n, p) |
    | F      | f of the rounds with weight                     | (k, p) |
    | H      | beta h of the same rounds, where S_0 h = v      | (k, p) |
    | d      | sum of the steps of u so far is S_0 d           | (p,)   |
    """

    def __init__(self, root: RootPosterior, Phi: F64) -> None:  # Phi: (n, p)
        self.root = root
        self.F0 = Phi @ root.S
        self.mu = Phi @ root.u
        self.F, self.H = np.empty_like(self.F0), np.empty_like(self.F0)
        self.d = np.zeros(len(root))
        self.k = 0

    def project(self, j: int) -> RootProjection:
        """Return m, q and f of round j, after the rounds before it: O(p j)."""
        f0, k = self.F0[j], self.k
        f = f0 - (self.H[:k] @ f0) @ self.F[:k]
        return RootProjection(self.mu.item(j) + ddot(self.d, f0), ddot(f, f), f)

    def absorb(self, projection: RootProjection, decision: Decision) -> None:
        """Update the block with a round: O(p k)."""
        _, q, f = projection
        if decision.w == 0.0 and decision.c == 0.0:
            return
        k = self.k
        gain, beta = _steps(q, decision)
        h = f - (self.F[:k] @ f) @ self.H[:k]
        self.d += gain * h
        if decision.w > 0.0:
            self.F[k] = f
            np.multiply(h, beta, out=self.H[k])
            self.k += 1

    def settle(self) -> None:
        """Update S and u with the whole block."""
        root, k = self.root, self.k
        root.u += root.S @ self.d
        if k:
            # Subtract F^T (S H^T)^T from S^T in place: the transpose of a C-ordered array is Fortran-ordered, as BLAS needs.
            G = root.S @ self.H[:k].T
            dgemm(-1.0, self.F[:k].T, G.T, beta=1.0, c=root.S.T, overwrite_c=1)


def _steps(q: float, decision: Decision) -> tuple[float, float]:
    """Return the factor of v in the step of u, and beta."""
    w = decision.w
    if w == 0.0:
        return decision.c, 0.0
    return decision.rho_delta * math.sqrt(w) / (1.0 + w * q), square_root.shrinkage(w, q)
