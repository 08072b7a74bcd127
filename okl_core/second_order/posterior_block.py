r"""Rounds of a `posterior` played as one block: the Woodbury identity, a row at a time."""

from __future__ import annotations

import math
from typing import final

import numpy as np
from scipy.linalg.blas import dsymm, dsyrk, dtrsm  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.second_order.posterior import Posterior
from okl_core.second_order.space_and_rule import Decision, Moments, Rule, T
from okl_core.types import F64


@final
class PosteriorBlock:
    r"""n rounds whose features are known: what `Posterior` does one by one, from a few matrix products.

    P_b, the inverse before the b-th round with weight, is P - sum_{a < b} p_a p_a^T with p_a = scale_a P_a phi_a. Of the p's
    only their products with Phi are needed until the block ends: V.

    | symbol | meaning                                                                               | shape  |
    |--------|---------------------------------------------------------------------------------------|--------|
    | G      | P Phi, of the P before the block                                                      | (p, n) |
    | S      | Phi^T P Phi, of the P before the block                                                | (n, n) |
    | V      | row b: scale times the row j of Phi^T P Phi, P that of the b-th round with weight, at j;  | (n, n) |
    |        | scale = sqrt(w / (1 + w q)): with k of them, P now gives S - V_{:k}^T V_{:k}           |        |
    | row    | the row j of that, entries >= j                                                       | (n - j,) |
    | mu     | m of the inputs given all rounds so far; entries >= j                                 | (n,)   |
    """

    def __init__(self, posterior: Posterior, Phi: F64) -> None:  # Phi: (p, n)
        n = Phi.shape[1]
        self.posterior, self.Phi = posterior, Phi
        self.G = _times(posterior, Phi)
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
        """(j, rounds with weight before it, c) of every round with a coefficient only."""
        self.new_rows: list[F64] = []
        self.is_reset = False

    def play(self, j: int, t: int, kappa: float, y: float, rule: Rule[T], rng: RoundRng) -> tuple[float, Decision]:
        """q and decision of round t, the j-th of the block, which the rounds after it know. Raises DivergedError."""
        m, q = self.moments(j)
        require_finite(t, m, q)
        decision = rule.decide(Moments(m, q, kappa), y, t, rng)
        require_finite(t, *decision)
        require_bearable(t, decision.w, self.squares.item(j), self.posterior.alpha)
        self.absorb(j, q, decision)
        return q, decision

    def moments(self, j: int) -> tuple[float, float]:
        """m and q of the next input: O(n^2)."""
        V = self.V[: len(self.weighted)]
        self.row = self.S[j, j:] - V[:, j] @ V[:, j:]
        return self.mu.item(j), max(self.row.item(0), self.squares.item(j) / self.largest)

    def absorb(self, j: int, q: float, decision: Decision) -> None:
        """What round j, the one just asked about, does to the rest of the block: O(n)."""
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
        """Add a coordinate, shape (n,), 0 for all inputs that have been played: O(n^2)."""
        self.S += (coordinate / self.posterior.alpha)[:, None] * coordinate
        self.squares += coordinate * coordinate
        self.new_rows.append(coordinate)

    def reset(self, products: F64) -> None:
        """Forget all before the next round; `products` are Phi^T Phi of the present map, (n, n): O(n^2)."""
        self.S[...] = products / self.posterior.alpha
        self.mu[:] = 0.0
        self.weighted, self.scales, self.rho, self.passive = [], [], [], []
        self.largest = self.posterior.alpha
        self.is_reset = True

    def settle(self) -> None:
        """Carry the whole block into P and u."""
        posterior = self.posterior
        if self.new_rows:
            rows = np.array(self.new_rows)
            posterior.grow(len(rows))
            self.G = np.concatenate((self.G, rows / posterior.alpha))
            if self.is_reset:
                self.Phi = np.concatenate((self.Phi, rows))
        if self.is_reset:
            posterior.reset(len(posterior))
            self.G = self.Phi / posterior.alpha
        posterior.largest = self.largest
        count = len(self.weighted)
        if not len(posterior):
            return
        # With p_b = scale P_b phi_b, P_b the inverse before the b-th round with weight: G = p U, and P loses p p^T.
        V = self.V[:count]
        if count:
            U = np.triu(V[:, self.weighted], 1)
            U[np.diag_indices_from(U)] = 1.0 / np.array(self.scales)
            p = dtrsm(1.0, U.T, self.G[:, self.weighted].T, lower=1, trans_a=0)
            dsyrk(-1.0, p.T, beta=1.0, c=posterior.P.T, lower=1, overwrite_c=1)
            posterior.u += np.array(self.rho) @ p
            for j, before, c in self.passive:
                posterior.u += c * (self.G[:, j] - V[:before, j] @ p[:before])
        else:
            for j, _, c in self.passive:
                posterior.u += c * self.G[:, j]


def _times(posterior: Posterior, Phi: F64) -> F64:
    """P Phi, shape (p, n)."""
    if not Phi.size:
        return np.zeros_like(Phi)
    return dsymm(1.0, posterior.P.T, np.asfortranarray(Phi), lower=1)
