r"""A and s in finitely many coordinates that may grow; A = alpha I + sum_s w_s phi_s phi_s^T is stored inverted.

| symbol | meaning                                                    | shape  |
|--------|------------------------------------------------------------|--------|
| P      | A^{-1}                                                     | (p, p) |
| u      | A^{-1} s, the learned function; s = sum_s c_s phi_s        | (p,)   |
| phi    | features of an input                                       | (p,)   |
| g      | P phi                                                      | (p,)   |
| m, q   | phi^T u and phi^T P phi, the mean and variance of an input |        |
| w, c   | the weight and coefficient in the `Decision` of a round    |        |

A round with weight is P <- P - w g g^T / (1 + w q), u <- u + (c - w m) g / (1 + w q); a round without weight is
u <- u + c g. The map may get new coordinates, which were 0 for every input so far: P then gets 1/alpha on the diagonal,
and u a 0.

There are two representations of the inverse. This one, the inverse itself, moves half as many numbers in a round as the
square root in `root_posterior`. It suffices for features of a kernel, which have similar lengths. Raw inputs may not: once
some are 10^8 times as long as others, subtracting from A^{-1} loses its small part.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
from scipy.linalg.blas import ddot, dsymv, dtrsm  # pyright: ignore[reportAttributeAccessIssue]
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError, StateFormatError
from okl_core.linalg.guards import require_bearable
from okl_core.linalg.precision import DOUBLE, FloatType
from okl_core.linalg.symmetric import Symmetric
from okl_core.second_order.space_and_rule import Decision, Moments, Rule, T, decided
from okl_core.types import F64, Stored


class Projection(NamedTuple):
    """Mean, variance and P phi of a feature vector; symbols as in the module's table."""

    m: float
    q: float
    g: F64
    square: float
    """phi^T phi."""


NOTHING: F64 = np.empty(0)
"""g of a round that changes nothing."""


@final
class Posterior:
    """P and u, and `largest`, a bound on the eigenvalues of A, which keeps q from rounding to 0."""

    __slots__ = ("P", "alpha", "largest", "u")

    def __init__(self, alpha: float, size: int, floats: FloatType = DOUBLE) -> None:
        self.alpha = alpha
        self._begin(size, floats)

    def reset(self) -> None:
        """Forget everything: A = alpha I, s = 0, in the same coordinates."""
        self._begin(len(self), self.P.floats)

    def _begin(self, size: int, floats: FloatType) -> None:
        self.P = Symmetric.diagonal(size, 1.0 / self.alpha, floats)
        self.u = np.zeros(size)
        self.largest = self.alpha

    def __len__(self) -> int:
        return len(self.u)

    @property
    def nbytes(self) -> int:
        return self.P.nbytes + self.u.nbytes

    def project(self, phi: F64) -> Projection:
        """Return m, q and g of phi, shape (p,): O(p^2)."""
        return self._projected(phi, self.mean(phi))

    def _projected(self, phi: F64, m: float) -> Projection:
        if not len(phi):
            return Projection(0.0, 0.0, phi, 0.0)
        g = self.P.times(phi)
        square = ddot(phi, phi)
        return Projection(m, max(ddot(phi, g), square / self.largest), g, square)

    def moments(self, phi: F64, needs_variance: bool) -> tuple[float, float]:
        """Return m and q of phi; 0 for q, in O(p), if it is not needed."""
        m = self.mean(phi)
        return m, self._projected(phi, m).q if needs_variance else 0.0

    def mean(self, phi: F64) -> float:
        """Return m alone: O(p)."""
        return ddot(self.u, phi) if len(phi) else 0.0

    def play(
        self, t: int, phi: F64, kappa: float, y: float, rule: Rule[T], rng: RoundRng
    ) -> tuple[Moments, Projection, Decision]:
        """Play round t on phi without changing state: O(p^2). An idle round costs O(p), with q = 0. Raise DivergedError."""
        m = self.mean(phi)
        projection = Projection(m, 0.0, NOTHING, 0.0) if rule.is_idle(m, y) else self._projected(phi, m)
        moments = Moments(projection.m, projection.q, kappa)
        decision = decided(t, moments, y, rule, rng)
        require_bearable(
            t, decision.w, projection.square, self.alpha, self.P.floats, needs_variance=rule.needs_variance
        )
        return moments, projection, decision

    def absorb(self, projection: Projection, decision: Decision) -> None:
        """Update P and u with a round: O(p^2)."""
        _, q, g, square = projection
        w = decision.w
        if not len(g):
            return
        if w > 0.0:
            self.u += (decision.rho_delta * math.sqrt(w) / (1.0 + w * q)) * g
            self.P.add_outer(-w / (1.0 + w * q), g)
            self.largest += w * square
        elif decision.c != 0.0:
            self.u += decision.c * g

    def grow(self, count: int = 1) -> None:
        """Add coordinates that were 0 for every input so far: O(p^2)."""
        self.P.grow(count, 1.0 / self.alpha)
        self.u = np.concatenate((self.u, np.zeros(count)))

    def discount(self, factor: float) -> None:
        """A <- factor A + (1 - factor) alpha I, s <- factor s, 0 < factor < 1: O(p^3)."""
        if not len(self.u):
            return
        rest, floats = (1.0 - factor) * self.alpha, self.P.floats
        # B = factor I + rest P has its eigenvalues in [factor, 1], and P <- B^{-1} P = (I - factor B^{-1}) / rest.
        B = self.P.lower()
        B *= rest
        B[np.diag_indices_from(B)] += factor
        L, has_failed = dpotrf(B, lower=1, overwrite_a=1)
        if has_failed:
            # Rounding has made P indefinite, by more than `factor` allows; negative eigenvalues stand for 0.
            lower = self.P.lower()
            if not np.isfinite(lower).all():
                raise DivergedError("the inverse overflows; scale the inputs down, or raise the regularization")
            eigenvalues, V = np.linalg.eigh(lower, UPLO="L")
            kept = np.maximum(eigenvalues, 0.0)
            inverse = 1.0 / (factor + rest * kept)
            self.u = factor * (V * inverse) @ (V.T @ self.u)
            self.P = Symmetric((V * (kept * inverse)) @ V.T, floats)
        else:
            inverted, _ = dpotri(L, lower=1, overwrite_c=1)
            self.u = dsymv(factor, inverted, self.u, lower=1)
            inverted *= -factor / rest
            inverted[np.diag_indices_from(inverted)] += 1.0 / rest
            self.P = Symmetric(inverted, floats)
        self.largest = factor * self.largest + (1.0 - factor) * self.alpha

    def pack(self) -> dict[str, Stored]:
        return {
            "P": self.P.pack(),
            "u": self.u.copy(),
            "alpha": np.array(self.alpha),
            "largest": np.array(self.largest),
        }

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> Posterior:
        u = np.array(arrays["u"], dtype=np.float64)
        alpha, largest = float(arrays["alpha"]), float(arrays["largest"])
        if not (alpha > 0.0 and largest > 0.0):
            raise StateFormatError(f"alpha is {alpha}, the largest eigenvalue {largest}: both must be above 0")
        posterior = cls(alpha, 0)
        posterior.P = Symmetric.unpack(arrays["P"], len(u))
        # Otherwise a NaN could go unnoticed until a half-life discounts, since a round without weight uses neither.
        if not (np.isfinite(arrays["P"]).all() and np.isfinite(u).all()):
            raise StateFormatError("a posterior that is not finite")
        posterior.u = u
        posterior.largest = largest
        return posterior


@final
class PosteriorBlock:
    r"""A block of n rounds with known features: the updates of `Posterior`, by a few matrix products.

    P_b, the inverse before the b-th round with weight, is P - sum_{a < b} p_a p_a^T with p_a = scale_a P_a phi_a. Until the
    block ends, only the products of the p's with Phi are needed: V.

    | symbol | meaning                                                                               | shape  |
    |--------|---------------------------------------------------------------------------------------|--------|
    | G      | P Phi, with the P before the block                                                    | (p, n) |
    | S      | Phi^T P Phi, with the P before the block                                              | (n, n) |
    | V      | row b: scale times row j of Phi^T P_b Phi, where round j is the b-th with weight;     | (n, n) |
    |        | scale = sqrt(w / (1 + w q)). After k of them, Phi^T P Phi = S - V_{:k}^T V_{:k}       |        |
    | row    | row j of the current Phi^T P Phi, entries >= j                                        | (n - j,) |
    | mu     | m of the inputs given all rounds so far; entries >= j                                 | (n,)   |
    """

    def __init__(self, posterior: Posterior, Phi: F64) -> None:  # Phi: (p, n)
        n = Phi.shape[1]
        self.posterior, self.Phi = posterior, Phi
        self.G = posterior.P.times_columns(Phi)
        self.S = Phi.T @ self.G
        self.mu = posterior.u @ Phi
        self.squares = np.einsum("ij,ij->j", Phi, Phi)
        self.largest = posterior.largest
        self.V = np.empty((n, n))
        self.row = np.empty(0)
        self.weighted: list[int] = []
        self.scales: list[float] = []
        self.rho: list[float] = []
        self.passive: list[tuple[int, int, float]] = []
        """(j, number of rounds with weight before it, c) of every round with a coefficient but no weight."""
        self.new_rows: list[F64] = []
        self.is_reset = False

    def play(self, j: int, t: int, kappa: float, y: float, rule: Rule[T], rng: RoundRng) -> tuple[float, Decision]:
        """Play round t, the j-th of the block, and update the rounds after it; return q and the decision.

        Raise DivergedError.
        """
        m, q = self.moments(j)
        decision = decided(t, Moments(m, q, kappa), y, rule, rng)
        square, alpha, floats = self.squares.item(j), self.posterior.alpha, self.posterior.P.floats
        require_bearable(t, decision.w, square, alpha, floats, needs_variance=rule.needs_variance)
        self.absorb(j, q, decision)
        return q, decision

    def moments(self, j: int) -> tuple[float, float]:
        """Return m and q of the next input: O(n^2)."""
        V = self.V[: len(self.weighted)]
        self.row = self.S[j, j:] - V[:, j] @ V[:, j:]
        return self.mu.item(j), max(self.row.item(0), self.squares.item(j) / self.largest)

    def absorb(self, j: int, q: float, decision: Decision) -> None:
        """Update the rest of the block with round j, for which `moments` was just called: O(n)."""
        w = decision.w
        if w > 0.0:
            root = math.sqrt(1.0 + w * q)
            scale, rho = math.sqrt(w) / root, decision.rho_delta / root
            v = np.multiply(self.row, scale, out=self.V[len(self.weighted), j:])
            self.mu[j:] += rho * v
            self.weighted.append(j)
            self.scales.append(scale)
            self.rho.append(rho)
            self.largest += w * self.squares.item(j)
        elif decision.c != 0.0:
            self.mu[j:] += decision.c * self.row
            self.passive.append((j, len(self.weighted), decision.c))

    def grow(self, coordinate: F64) -> None:
        """Add a coordinate, shape (n,), which is 0 for all inputs played so far: O(n^2)."""
        self.S += (coordinate / self.posterior.alpha)[:, None] * coordinate
        self.squares += coordinate * coordinate
        self.new_rows.append(coordinate)

    def reset(self, products: F64) -> None:
        """Forget everything before the next round; `products` is Phi^T Phi of the current map, (n, n): O(n^2)."""
        self.S[...] = products / self.posterior.alpha
        self.mu[:] = 0.0
        self.weighted, self.scales, self.rho, self.passive = [], [], [], []
        self.largest = self.posterior.alpha
        self.is_reset = True

    def settle(self) -> None:
        """Update P and u with the whole block."""
        posterior = self.posterior
        if self.new_rows:
            rows = np.array(self.new_rows)
            posterior.grow(len(rows))
            self.G = np.concatenate((self.G, rows / posterior.alpha))
            if self.is_reset:
                self.Phi = np.concatenate((self.Phi, rows))
        if self.is_reset:
            posterior.reset()
            self.G = self.Phi / posterior.alpha
        posterior.largest = self.largest
        count = len(self.weighted)
        if not len(posterior):
            return
        # With the columns p_b = scale P_b phi_b, G restricted to rounds with weight is p U, and P decreases by p p^T.
        V = self.V[:count]
        if count:
            U = np.triu(V[:, self.weighted], 1)
            U[np.diag_indices_from(U)] = 1.0 / np.array(self.scales)
            p = dtrsm(1.0, U.T, self.G[:, self.weighted].T, lower=1, trans_a=0)
            posterior.P.add_gram(-1.0, p.T)
            posterior.u += np.array(self.rho) @ p
            for j, before, c in self.passive:
                posterior.u += c * (self.G[:, j] - V[:before, j] @ p[:before])
        else:
            for j, _, c in self.passive:
                posterior.u += c * self.G[:, j]
