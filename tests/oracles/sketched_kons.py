"""The coins of Sketched-KONS as its definition reads: A^I of the dictionary dense, in an explicit feature space.

References: [calandriello2017] algorithms 2 and 3, equation 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from okl_core.types import F64
from tests.oracles.kons import LongF, Weight


@dataclass
class SketchedWeight:
    """z w, for `online_newton` to take as the weight: A is then A~. Called once a round, in order."""

    Phi: LongF
    weight: Weight
    alpha: float
    gamma: float
    beta: float
    epsilon: float
    coins: F64
    """(T, 2): of the dictionary, and of the sketch."""
    tau: list[float] = field(default_factory=list)
    is_kept: list[bool] = field(default_factory=list)
    """Did round t join the dictionary?"""
    z: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.A_I = np.longdouble(self.alpha) * np.eye(self.Phi.shape[1], dtype=np.longdouble)

    def __call__(self, t: int, value: float, g: float, y: float) -> float:
        w = self.weight(t, value, g, y)
        phi = np.sqrt(np.longdouble(w)) * self.Phi[t - 1]
        s = float(phi @ np.linalg.solve(self.A_I.astype(np.float64), phi.astype(np.float64)))
        tau = (1.0 + self.epsilon) * s / (1.0 + s)
        p = min(self.beta * tau, 1.0)
        u, v = self.coins[t - 1]
        self.tau.append(tau)
        self.is_kept.append(bool(u < p))
        if u < p:
            self.A_I += np.outer(phi, phi) / p
        self.z.append(bool(v < max(p, self.gamma)))
        return w if self.z[-1] else 0.0
