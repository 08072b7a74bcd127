"""Feature maps with a fixed number of coordinates: the input itself, or random Fourier features of a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import DRAW_WORK
from okl_core.kernels.fourier import SpectralKernel, draw, farther, features, largest_angle
from okl_core.kernels.intercept import with_intercept
from okl_core.kernels.points import origin_from
from okl_core.types import F64, StatePart


@final
@dataclass(slots=True)
class DrawnFeatures(StatePart):
    """Random features: the origin of the inputs, shape (d,), and the frequencies in turns, (D, d); none before round 1.

    `farthest` is the largest |x - origin| of the learned inputs.

    Of a linear map only `farthest` is kept, the largest |phi|, and only once that is long enough to cost digits.
    """

    origin: F64
    frequencies: F64
    farthest: float = 0.0


@final
class LinearMap(NamedTuple):
    """The input itself, extended by a coordinate of 1 if there is an intercept."""

    intercept: bool

    def width(self, dim: int) -> int:
        """Return p, the number of features of an input in R^dim."""
        return dim + self.intercept

    def init(self, dim: int) -> None:
        """Return the state of the features before the first round: none for a linear map."""

    def drawn(self, known: DrawnFeatures | None, x: F64, rng: RoundRng) -> DrawnFeatures | None:
        """Return the state for the next round, whose input is x, drawing features if they are missing."""
        return known

    def phi(self, known: DrawnFeatures | None, X: F64) -> F64:
        """Return the features, shape (..., p), for X of shape (..., d)."""
        return with_intercept(X) if self.intercept else X

    def seen(self, known: DrawnFeatures | None, X: F64, square: float, long: float) -> DrawnFeatures | None:
        """Return the state after learning inputs of shape (..., d), the largest |phi|^2 of which is `square`.

        A |phi| is kept if its square is above `long`: ordinary inputs need no state.
        """
        if square <= long:
            return known
        farthest = math.sqrt(square)
        if known is not None and known.farthest >= farthest:
            return known
        return DrawnFeatures(np.empty(0), np.empty((0, 0)), farthest)

    def discounted(self, known: DrawnFeatures | None, factor: float, long: float) -> DrawnFeatures | None:
        """Return the state after A was discounted by this factor: a long input is forgotten as its part of A is."""
        if known is None or known.farthest * known.farthest * factor <= long:
            return None
        return DrawnFeatures(known.origin, known.frequencies, known.farthest * math.sqrt(factor))

    def longest(self, known: DrawnFeatures | None) -> float:
        """Return the largest |phi| that was kept, or 0."""
        return 0.0 if known is None else known.farthest

    def largest(self, known: DrawnFeatures | None) -> float:
        """Return the conditioning that phi adds to that of the products: none."""
        return 0.0

    def draw_work(self, known: DrawnFeatures | None) -> float:
        """Return the work of drawing features in the next round."""
        return 0.0


@final
class FourierMap(NamedTuple):
    """Random Fourier features of a kernel: D frequencies, each with a cosine and a sine."""

    kernel: SpectralKernel
    frequencies: int

    def width(self, dim: int) -> int:
        return 2 * self.frequencies

    def init(self, dim: int) -> DrawnFeatures:
        # Raises for a metric of another dimension, which would otherwise only fail in the first round.
        self.kernel.root_for(dim)
        return DrawnFeatures(np.zeros(dim), np.empty((0, dim)))

    def drawn(self, known: DrawnFeatures | None, x: F64, rng: RoundRng) -> DrawnFeatures | None:
        if known is None or len(known.frequencies):
            return known
        origin = origin_from(x, self.kernel.scale)
        return DrawnFeatures(origin, draw(self.kernel, len(x), self.frequencies, rng))

    def phi(self, known: DrawnFeatures | None, X: F64) -> F64:
        """Return the features, all 0 before the first round."""
        if known is None or not len(known.frequencies):
            return np.zeros((*X.shape[:-1], 2 * self.frequencies))
        Z = features(known.frequencies, np.atleast_2d(X - known.origin))
        return Z[0] if X.ndim == 1 else Z

    def seen(self, known: DrawnFeatures | None, X: F64, square: float, long: float) -> DrawnFeatures | None:
        if known is None:
            return None
        # A new object: a played round, or a copy of the state, may still hold the old one.
        return DrawnFeatures(known.origin, known.frequencies, farther(known.farthest, X - known.origin))

    def discounted(self, known: DrawnFeatures | None, factor: float, long: float) -> DrawnFeatures | None:
        """Return the same state: the features stay."""
        return known

    def longest(self, known: DrawnFeatures | None) -> float:
        """Return 0: with |phi| = 1, no feature is long."""
        return 0.0

    def largest(self, known: DrawnFeatures | None) -> float:
        """Return the largest angle: its rounding error, proportional to its size, carries over to the feature."""
        return 0.0 if known is None else largest_angle(known.frequencies, known.farthest)

    def draw_work(self, known: DrawnFeatures | None) -> float:
        if known is None or len(known.frequencies):
            return 0.0
        return DRAW_WORK * self.frequencies * len(known.origin)


FeatureMap = LinearMap | FourierMap
