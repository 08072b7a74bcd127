"""PROS-N-KONS as its definition reads: eigenvectors of K_II, dense projections and solves, the dictionary's A^I inverted.

References: [calandriello2017b] algorithm 1; [calandriello2017] algorithm 2 and equation 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from okl_core.types import F64
from tests.oracles.kons import Derivative, Weight

DROPPED = 1e-12
"""Eigenvalues below this share of the largest are 0."""


@dataclass
class Run:
    values: list[float] = field(default_factory=list)
    dictionary: list[int] = field(default_factory=list)
    """Rounds (from 0) whose input was kept."""


@dataclass(frozen=True)
class RowSampling:
    """Coins with probability min(beta tau, 1)."""

    regularization: float
    oversampling: float
    accuracy: float
    uniforms: F64
    """One a round."""

    def keeps(self, K: F64, dictionary: list[int], probability: list[float], t: int) -> float | None:
        """The probability with which round t is kept, None if it is not."""
        # phi^T (A^I)^{-1} phi by the push-through identity, with S = diag(1 / sqrt(p)).
        S = 1.0 / np.sqrt(np.array(probability))
        chosen = np.array(dictionary, dtype=int)
        inner = S[:, None] * K[np.ix_(chosen, chosen)] * S + self.regularization * np.eye(len(chosen))
        k = S * K[chosen, t]
        s = (K[t, t] - k @ np.linalg.solve(inner, k)) / self.regularization
        p = min(self.oversampling * (1.0 + self.accuracy) * s / (1.0 + s), 1.0)
        return p if self.uniforms[t] < p else None


@dataclass(frozen=True)
class LinearDependence:
    """A round is kept if its distance to the span of the dictionary is more than a share of its norm."""

    threshold: float

    def keeps(self, K: F64, dictionary: list[int], probability: list[float], t: int) -> float | None:
        chosen = np.array(dictionary, dtype=int)
        k = K[chosen, t]
        distance2 = K[t, t] - k @ np.linalg.lstsq(K[np.ix_(chosen, chosen)], k, rcond=None)[0]
        return 1.0 if distance2 > self.threshold**2 * K[t, t] else None


class Embedding:
    """phi(x) = Lambda^{-1/2} U^T k_I(x)."""

    def __init__(self, K_I: F64) -> None:
        values, vectors = np.linalg.eigh(K_I)
        kept = values > DROPPED * values.max(initial=0.0)
        self.map = (vectors[:, kept] / np.sqrt(values[kept])).T

    def __call__(self, k: F64) -> F64:
        return self.map @ k

    def onto(self, other: Embedding, K_other_self: F64) -> F64:
        """Q: coordinates of the same function in the other embedding."""
        return other.map @ K_other_self @ self.map.T


def pros_n_kons(
    K: F64,  # (T, T)
    y: F64,
    *,
    C: float,
    alpha: float,
    derivative: Derivative,
    weight: Weight,
    choice: RowSampling | LinearDependence,
    carry: Literal["transport", "reset"],
    budget: float = math.inf,
    discount: Callable[[int], float] = lambda t: 1.0,
) -> Run:
    """Every round of a stream. `discount(t)` is the factor of A and s after round t."""
    run, probability = Run(), []
    chosen = run.dictionary
    phi = Embedding(np.zeros((0, 0)))
    A, upsilon = np.zeros((0, 0)), np.zeros(0)
    for t in range(len(y)):
        x = phi(K[chosen, t])
        value, omega, g = 0.0, upsilon, 0.0
        if len(x):
            direction = np.linalg.solve(A, x)
            m, q = x @ upsilon, x @ direction
            value = float(np.clip(m, -C, C))
            omega = upsilon - (m - value) / q * direction if q > 0.0 else upsilon
        g = derivative(t + 1, value, y[t])
        A = A + weight(t + 1, value, g, y[t]) * np.outer(x, x)
        # The coefficient vector A^{-1} g is taken with the A that has the round in it.
        upsilon = omega - np.linalg.solve(A, g * x) if len(x) else omega
        run.values.append(value)
        p = choice.keeps(K, chosen, probability, t) if len(chosen) < budget else None
        if p is not None:
            old, phi = phi, Embedding(K[np.ix_([*chosen, t], [*chosen, t])])
            size = len(phi.map)
            if carry == "reset":
                A, upsilon = alpha * np.eye(size), np.zeros(size)
            else:
                Q = old.onto(phi, K[np.ix_([*chosen, t], chosen)])
                A = alpha * np.eye(size) + Q @ (A - alpha * np.eye(len(A))) @ Q.T
                upsilon = Q @ upsilon
            chosen.append(t)
            probability.append(p)
        factor = discount(t + 1)
        if factor != 1.0 and len(A):
            s = A @ upsilon
            A = factor * A + (1.0 - factor) * alpha * np.eye(len(A))
            upsilon = np.linalg.solve(A, factor * s)
    return run
