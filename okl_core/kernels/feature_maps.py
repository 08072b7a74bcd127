"""Feature maps with a fixed number of coordinates: the input itself, or random Fourier features of a kernel."""

from __future__ import annotations

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

    `farthest` is the largest |x - origin| learned.
    """

    origin: F64
    frequencies: F64
    farthest: float = 0.0


@final
class LinearMap(NamedTuple):
    """The input itself, with one more coordinate of 1 for an intercept."""

    intercept: bool

    def width(self, dim: int) -> int:
        """p: the features of an input in R^dim."""
        return dim + self.intercept

    def init(self, dim: int) -> None:
        """What is drawn before the first round: nothing at all."""

    def drawn(self, known: DrawnFeatures | None, x: F64, rng: RoundRng) -> None:
        """What is drawn once the next round is played, whose input is x."""

    def phi(self, known: DrawnFeatures | None, X: F64) -> F64:
        """Shape (..., p), for X of shape (..., d)."""
        return with_intercept(X) if self.intercept else X

    def seen(self, known: DrawnFeatures | None, X: F64) -> None:
        """What is known after inputs of shape (..., d) were learned."""

    def largest(self, known: DrawnFeatures | None) -> float:
        """By how much rounding may have grown in phi: beside that of the products, not at all."""
        return 0.0

    def draw_work(self, known: DrawnFeatures | None) -> float:
        """What the next round takes to draw."""
        return 0.0


@final
class FourierMap(NamedTuple):
    """Random Fourier features of a kernel: D frequencies, each with a cosine and a sine."""

    kernel: SpectralKernel
    frequencies: int

    def width(self, dim: int) -> int:
        return 2 * self.frequencies

    def init(self, dim: int) -> DrawnFeatures:
        # A metric of another dimension would otherwise be found out in the first round only.
        self.kernel.root_for(dim)
        return DrawnFeatures(np.zeros(dim), np.empty((0, dim)))

    def drawn(self, known: DrawnFeatures | None, x: F64, rng: RoundRng) -> DrawnFeatures | None:
        if known is None or len(known.frequencies):
            return known
        origin = origin_from(x, self.kernel.scale)
        return DrawnFeatures(origin, draw(self.kernel, len(x), self.frequencies, rng))

    def phi(self, known: DrawnFeatures | None, X: F64) -> F64:
        """0 for an input that is asked about before the first round."""
        if known is None or not len(known.frequencies):
            return np.zeros((*X.shape[:-1], 2 * self.frequencies))
        Z = features(known.frequencies, np.atleast_2d(X - known.origin))
        return Z[0] if X.ndim == 1 else Z

    def seen(self, known: DrawnFeatures | None, X: F64) -> DrawnFeatures | None:
        if known is None:
            return None
        # A round that was played has the one before, and so may a copy of the state.
        return DrawnFeatures(known.origin, known.frequencies, farther(known.farthest, X - known.origin))

    def largest(self, known: DrawnFeatures | None) -> float:
        """The largest angle: one that has been rounded makes another feature, by as much as it is large."""
        return 0.0 if known is None else largest_angle(known.frequencies, known.farthest)

    def draw_work(self, known: DrawnFeatures | None) -> float:
        if known is None or len(known.frequencies):
            return 0.0
        return DRAW_WORK * self.frequencies * len(known.origin)


FeatureMap = LinearMap | FourierMap
