r"""Kernel Online Row Sampling: a dictionary that keeps a point with the probability that its leverage asks for.

| symbol  | meaning                                                                          | in [calandriello2017] |
|---------|----------------------------------------------------------------------------------|-----------------------|
| phi_t   | feature of round t, times a scale of the caller's                                | section 4             |
| alpha   | regularization                                                                   | algorithm 2           |
| I       | the dictionary: the sampled points, with the probabilities p_i they came in with | algorithm 2           |
| A^I     | alpha I + sum_{i in I} phi_i phi_i^T / p_i, an estimate of alpha I + sum phi_s phi_s^T | section 4       |
| s_t     | phi_t^T (A^I)^{-1} phi_t                                                         | equation 4            |
| tau     | (1 + epsilon) s / (1 + s), an overestimate of the ridge leverage score of round t | equation 4           |
| beta    | oversampling: the point is kept with probability min(beta tau, 1)                | algorithm 2           |
| L       | lower Cholesky factor of S K_II S + alpha I, S = diag(scale_i / sqrt(p_i))        | (\|I\|, \|I\|)         |

With beta >= 3 log(T / delta) / epsilon^2, with probability 1 - delta and in all rounds:
(1 - epsilon) A <= A^I <= (1 + epsilon) A; tau is between the leverage score and rho = (1 + epsilon) / (1 - epsilon) times
it; and |I| <= 3 rho beta d_onl, the online effective dimension. The factor only grows: points are never dropped or
weighted anew, unless the oldest are forgotten.

References: [calandriello2017] algorithm 2, theorem 2, whose bound on |I| is corrected.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np

from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64

BLOCK = 64
"""Points that enter a factor built anew at once."""


@final
class Sample:
    """A sampled dictionary: points, scale_i / sqrt(p_i), p_i, and the factor L."""

    __slots__ = ("L", "points", "probability", "weight")

    def __init__(self, points: Points, weight: GrowingArray, probability: GrowingArray, L: Factor) -> None:
        self.points, self.weight, self.probability, self.L = points, weight, probability, L

    def __len__(self) -> int:
        return len(self.points)

    @property
    def nbytes(self) -> int:
        return self.points.nbytes + self.weight.nbytes + self.probability.nbytes + self.L.nbytes

    def pack(self) -> dict[str, F64]:
        points = {f"points.{name}": array for name, array in self.points.pack().items()}
        return points | {
            "weight": self.weight.pack(),
            "probability": self.probability.pack(),
            "L": self.L.pack(),
        }

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Sample:
        prefix = "points."
        points = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
        return cls(
            Points.unpack(points),
            GrowingArray.unpack(arrays["weight"]),
            GrowingArray.unpack(arrays["probability"]),
            Factor.unpack(arrays["L"]),
        )


class Leverage(NamedTuple):
    """What the dictionary says of a point, for `Kors.keep` to take."""

    tau: float
    """The estimated leverage score, of the scaled feature."""
    z: F64
    """L^{-1} S k_I, shape (|I|,)."""
    residual: float
    """kappa - z^T z = alpha phi^T (A^I)^{-1} phi of the feature without its scale, at least 0."""


@final
class Kors(NamedTuple):
    """The sampler for one kernel. alpha, beta > 0, 0 < epsilon < 1.

    Examples
    --------
    >>> from okl_core.kernels.kernels import Gaussian
    >>> kors = Kors(Gaussian(), regularization=1.0, oversampling=4.0, accuracy=0.5)
    >>> sample = kors.empty(dim=1)
    >>> x = np.array([0.0])
    >>> first = kors.leverage(sample, x)
    >>> first.tau, kors.probability(first.tau)
    (0.75, 1.0)
    >>> kors.keep(sample, x, first, 1.0)
    >>> round(kors.leverage(sample, x).tau, 12)
    0.5
    """

    kernel: Kernel
    regularization: float = 1.0
    oversampling: float = 4.0
    accuracy: float = 0.5

    def empty(self, dim: int) -> Sample:
        return Sample(self.kernel.points(dim), GrowingArray(), GrowingArray(), Factor())

    def leverage(self, sample: Sample, x: F64, scale: float = 1.0, row: F64 | None = None) -> Leverage:
        """The estimate for scale phi(x), x of shape (d,). `row`: the kernel row of the points, if it is known already.

        Time O(|I|^2 + d |I|).
        """
        row = self.kernel.row(sample.points, x) if row is None else row
        z = sample.L.solve(sample.weight.view * row)
        residual = max(self.kernel.at(x) - float(z @ z), 0.0)
        return Leverage(self.estimate(residual, scale), z, residual)

    def estimate(self, residual: float, scale: float = 1.0) -> float:
        """tau from alpha phi^T (A^I)^{-1} phi of the feature without its scale."""
        s = scale * scale * residual / self.regularization
        # s / (1 + s), for s that may overflow too.
        return (1.0 + self.accuracy) / (1.0 + 1.0 / s) if s > 0.0 else 0.0

    def probability(self, tau: float) -> float:
        return min(self.oversampling * tau, 1.0)

    def keep(self, sample: Sample, x: F64, leverage: Leverage, probability: float, scale: float = 1.0) -> None:
        """Add the point with this probability in (0, 1]. Time O(|I|)."""
        weight = scale / math.sqrt(probability)
        sample.L.append(weight * leverage.z, math.sqrt(self.regularization + weight * weight * leverage.residual))
        sample.points.append(x)
        sample.weight.append(weight)
        sample.probability.append(probability)

    def without(self, sample: Sample, count: int) -> Sample:
        """The dictionary without its oldest `count` points, the others with their old probabilities. Time O(|I|^3)."""
        X, weights = sample.points.coordinates()[count:], sample.weight.view[count:]
        kept, probabilities = self.empty(sample.points.dim), sample.probability.view[count:]
        for start in range(0, len(X), BLOCK):
            rows = slice(start, start + BLOCK)
            kernels = self.kernel.gram(X[rows]), self.kernel.block(kept.points, X[rows])
            block = KorsBlock(self, kept, X[rows], *kernels)
            for j, (weight, p) in enumerate(zip(weights[rows].tolist(), probabilities[rows].tolist(), strict=True)):
                block.keep(j, p, weight * math.sqrt(p))
            block.settle()
        return kept


@final
class KorsBlock:
    """n points whose inputs are known, asked about one by one: the same as `Kors`, from one kernel matrix and one solve.

    X: (n, d); K: (n, n), its kernel matrix; rows: (|I|, n), the kernel between the dictionary and X.
    """

    def __init__(self, kors: Kors, sample: Sample, X: F64, K: F64, rows: F64) -> None:
        self.kors, self.sample, self.X = kors, sample, X
        self.Z = sample.L.solve(sample.weight.view[:, None] * rows)
        self.residual = K - self.Z.T @ self.Z
        self.V = np.empty_like(K)
        self.kept: list[tuple[int, float, float, float]] = []

    def tau(self, j: int, scale: float = 1.0) -> float:
        """The estimate for point j; the points before it have been asked about, and kept or not."""
        return self.kors.estimate(max(self.residual.item(j, j), 0.0), scale)

    def keep(self, j: int, probability: float, scale: float = 1.0) -> None:
        """Add point j. Time O(n^2)."""
        weight = scale / math.sqrt(probability)
        delta = math.sqrt(self.kors.regularization + weight * weight * max(self.residual.item(j, j), 0.0))
        later = slice(j + 1, None)
        v = np.multiply(self.residual[j], weight / delta, out=self.V[len(self.kept)])[later]
        self.residual[later, later] -= v[:, None] * v
        self.kept.append((j, weight, probability, delta))

    def settle(self, *, has_points: bool = False) -> None:
        """Carry the kept points into the sample, which may have the points themselves already."""
        sample = self.sample
        for k, (j, weight, probability, delta) in enumerate(self.kept):
            # V holds v = (weight / delta) residual_j, of which L's rows take the column.
            sample.L.append(weight * np.concatenate((self.Z[:, j], self.V[:k, j])), delta)
            if not has_points:
                sample.points.append(self.X[j])
            sample.weight.append(weight)
            sample.probability.append(probability)
