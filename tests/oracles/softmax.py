"""`softmax-aioli` as dense algebra on the whole matrix W, one entry after the other: slow, and without a square root."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.special import logsumexp, softmax

from okl_core.types import F64


def least_quotient(L: float, p: F64) -> float:
    """kappa by its definition, as the least of (e^z - 1 - z) / (z^2 / 2) over a grid of z from the lowest on."""
    z = np.linspace(-(L + math.log(p.max())), 3.0, 20_001)
    z = z[np.abs(z) > 1e-3]
    return float((2.0 * (np.expm1(z) - z) / (z * z)).min()) if len(z) else 1.0


def surplus_in_fractions(root: F64, m: F64, v: F64, p: F64, kappa: float, y: int) -> float:
    """(g - s)^T Q' (g - s) / 2 - s^T Q s / 2 with Q s = m - v and Q = root root^T, of the numbers as they are, p scaled to
    sum to 1."""
    L, K = [[Fraction(a) for a in row] for row in root.tolist()], len(p)
    total, kap = sum(map(Fraction, p.tolist())), Fraction(kappa)
    q = [Fraction(a) / total for a in p.tolist()]
    classes = range(K)
    Q = [[_dot(L[i], L[j]) for j in classes] for i in classes]
    H = [[(q[i] if i == j else 0) - q[i] * q[j] for j in classes] for i in classes]
    system = [[(i == j) + kap * sum(Q[i][k] * H[k][j] for k in classes) for j in classes] for i in classes]
    g = [q[i] - (i == y) for i in classes]
    r = [Fraction(a) - Fraction(b) for a, b in zip(m.tolist(), v.tolist(), strict=True)]
    after_r, after_g = _solved(system, r), _solved(system, [_dot(row, g) for row in Q])
    return float(_dot(g, after_g) / 2 - _dot(g, after_r) - kap / 2 * _dot(r, [_dot(row, after_r) for row in H]))


def _dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def _solved(A: list[list[Fraction]], b: list[Fraction]) -> list[Fraction]:
    """Gauss and Jordan."""
    rows = [[*row, value] for row, value in zip(A, b, strict=True)]
    for i in range(len(rows)):
        k = max(range(i, len(rows)), key=lambda j: abs(rows[j][i]))
        rows[i], rows[k] = rows[k], rows[i]
        rows[i] = [a / rows[i][i] for a in rows[i]]
        for j, row in enumerate(rows):
            if j != i:
                rows[j] = [a - row[i] * c for a, c in zip(row, rows[i], strict=True)]
    return [row[-1] for row in rows]


class DenseSoftmax:
    """A (K p x K p) and b of the surrogates; `X` has the features, the intercept among them."""

    def __init__(self, K: int, p: int, norm: float, lam: float, hedge: float) -> None:
        self.K, self.norm, self.hedge = K, norm, hedge
        self.prior = 2.0 * lam * np.eye(K * p)
        self.A, self.b, self.constant = self.prior, np.zeros(K * p), 0.0

    def moments(self, phi: F64) -> tuple[F64, F64]:
        """m and Q of the logits."""
        P, Phi = np.linalg.inv(self.A), np.kron(np.eye(self.K), phi[:, None])
        centred = np.eye(self.K) - 1.0 / self.K
        return Phi.T @ P @ self.b, centred @ Phi.T @ P @ Phi @ centred

    def left(self, v: F64, phi: F64) -> F64:
        """What the logits v leave of the equation of the round."""
        m, Q = self.moments(phi)
        return v + self.hedge * (2.0 * Q @ softmax(v) - (np.diag(Q) - np.diag(Q).mean())) - m

    def kappa(self, phi: F64, p: F64) -> float:
        reach = math.sqrt(2.0) * self.norm * float(np.linalg.norm(phi))
        return least_quotient(float(np.logaddexp(0.0, math.log(self.K - 1.0) + reach)), p)

    def least(self) -> float:
        """The minimum over W of the surrogates and lambda |W|^2."""
        return self.constant - 0.5 * float(self.b @ np.linalg.solve(self.A, self.b))

    def learn(self, v: F64, phi: F64, y: int, kappa: float) -> float:
        """By how much the loss exceeds what the minimum grows by."""
        before, p, loss = self.least(), softmax(v), float(logsumexp(v) - v[y])
        H, g = np.diag(p) - np.outer(p, p), p - np.eye(self.K)[y]
        self.A = self.A + kappa * np.kron(H, np.outer(phi, phi))
        self.b += np.kron(kappa * H @ v - g, phi)
        self.constant += loss - float(g @ v) + 0.5 * kappa * float(v @ H @ v)
        return loss - (self.least() - before)

    def discount(self, factor: float) -> None:
        """All surrogates so far count `factor` times as much; the norm as before."""
        self.A = factor * self.A + (1.0 - factor) * self.prior
        self.b = factor * self.b
