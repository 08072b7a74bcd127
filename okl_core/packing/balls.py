r"""A packing: balls that cover the inputs and shrink with time. The ball whose centre is nearest makes the forecast.

| symbol   | meaning                                                                      | shape  |
|----------|------------------------------------------------------------------------------|--------|
| M        | the metric, positive definite, divided by its largest eigenvalue             | (d, d) |
| z        | image of x with \|x - x'\|_M = \|z - z'\|, see `metrics.mahalanobis`         | (d,)   |
| eps_t    | radius of all balls in round t, see `packing.radius`                         |        |
| S        | the centres                                                                  |        |
| T_s      | rounds in the ball of the centre s; kept are their number and the sum of y   |        |

In round t, with s the nearest centre (of several the oldest),

    forecast = mean of y over T_s, or the middle of the truths' range if T_s is empty,
    |x_t - x_s|_M <= eps_t:  T_s <- T_s + {t},
    otherwise:               x_t becomes a centre, with T = {t}, or {} without `include_center`.

In place of the mean there may be a linear function of z, that of `packing.local_linear`, cut off at the ends of the truths'
range.

References: [kuzborskij2017] algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.contract.state import pack, unpack
from okl_core.errors import ReplayDivergence, StateFormatError
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.nearest import Nearest, squared_distances
from okl_core.metrics.mahalanobis import Metric, Rows, factored
from okl_core.packing.local_linear import LocalLinear
from okl_core.packing.packing_config import PackingConfig
from okl_core.packing.radius import Radius
from okl_core.types import F64, LearnerState, Stored

BLOCK = 512
"""Rounds per block of `Packing.run`: enough to hide the calls; each centre opened inside costs a pass over the block."""


class Placement(NamedTuple):
    """Where a round belongs: into the ball of the nearest centre, or outside of it."""

    z: F64
    centre: int
    """The place of the nearest centre in S; -1 if there is none."""
    is_inside: bool


@final
@dataclass(slots=True)
class Packing(LearnerState):
    """S, and of each T_s the size and the sum of the truths, under one metric. `t` counts the rounds absorbed."""

    metric: Metric
    radius: Radius
    centres: Nearest
    """z of every centre, oldest first."""
    counts: GrowingArray
    """|T_s| of every centre."""
    sums: GrowingArray
    """Sum of y over T_s of every centre."""
    fits: LocalLinear | None
    """None if the forecasts are means."""

    def __post_init__(self) -> None:
        n, d = len(self.centres), self.metric.dim
        fits_together = (
            self.counts.view.shape == self.sums.view.shape == (n,)
            and self.radius.eigenvalues.shape == (d,)
            and self.centres.dim == d
            and (self.fits is None or (len(self.fits), self.fits.dim) == (n, d))
            # The first round opens a ball.
            and min(1, self.t) <= n <= self.t
        )
        if not fits_together:
            raise StateFormatError("the centres, counts, sums, metric and linear fits of a packing do not go together")

    @classmethod
    def of(cls, config: PackingConfig, M: Sequence[float] | Rows) -> Packing:
        """An empty packing under the metric M, shape (d, d), or (d,) for a diagonal.

        Raises NotPositiveDefiniteError for what is no metric, ConfigError for more inputs than the estimate is for.
        """
        dim = len(M)
        config.check_inputs(dim)
        root, eigenvalues = factored(M)
        fits = LocalLinear(dim) if config.estimate == "linear" else None
        return cls(0, Metric(root), Radius(eigenvalues), Nearest(dim), GrowingArray(), GrowingArray(), fits)

    def __len__(self) -> int:
        """|S|."""
        return len(self.counts)

    @property
    def nbytes(self) -> int:
        kept = (self.metric, self.radius, self.centres, self.counts, self.sums, self.fits)
        return sum(part.nbytes for part in kept if part is not None)

    def predict(self, config: PackingConfig, x: F64) -> float:
        """The forecast for x, shape (d,). Changes nothing. Raises DivergedError."""
        z = self.metric.map(x)
        return self.value(config, self.centres.find(z)[0] if self.t else -1, z)

    def value(self, config: PackingConfig, centre: int, z: F64) -> float:
        """The forecast for z of the ball of a centre, or without any if `centre` is -1."""
        count = self.counts.view.item(centre) if centre >= 0 else 0.0
        if not count:
            return config.middle
        mean = self.sums.view.item(centre) / count
        if self.fits is None:
            return mean
        low, high = config.truth_range
        # A step of the whole range leads out of it from anywhere, and is finite for any z.
        rise = min(max(self.fits.rise(centre, z), -1.0), 1.0)
        return min(max(mean + rise * (high - low), low), high)

    def place(self, x: F64, rng: RoundRng) -> Placement:
        """Where the next round, with the input x, belongs. Changes nothing. Raises DivergedError.

        Records two choices, none in the first round.
        """
        z = self.metric.map(x)
        if not self.t:
            return Placement(z, -1, False)
        nearest, square = self.centres.find(z)
        return self._choose(z, nearest, square, len(self), self.radius.at(self.t + 1), rng)

    def place_block(self, columns: F64, rng: RoundRng) -> Iterator[Placement]:  # columns: (d, n)
        """`place` for n rounds in order, one a column: each as if those before it were absorbed, whether they are or not."""
        Z = self.metric.map_block(columns)
        n = Z.shape[1]
        size = len(self)
        nearest, squares = np.full(n, -1, dtype=np.intp), np.full(n, np.inf)
        if size:
            nearest, squares = self.centres.find_block(Z)
        for j, (z, radius) in enumerate(zip(Z.T, self.radius.during(self.t + 1, n), strict=True)):
            if size:
                placement = self._choose(z, nearest.item(j), squares.item(j), size, radius, rng)
            else:
                placement = Placement(z, -1, False)
            yield placement
            if placement.is_inside:
                continue
            if j + 1 < n:
                fresh, later = squared_distances(Z[:, j + 1 :], z), slice(j + 1, None)
                # Only if strictly nearer: of several the oldest.
                nearest[later][fresh < squares[later]] = size
                np.minimum(squares[later], fresh, out=squares[later])
            size += 1

    def _choose(self, z: F64, nearest: int, square: float, size: int, radius: float, rng: RoundRng) -> Placement:
        """The centre whose ball a round may belong to, and whether it does."""
        centre = rng.pick(nearest)
        if centre >= size:
            raise ReplayDivergence(f"centre {centre} was recorded, there are {size}")
        return Placement(z, centre, rng.decide(math.sqrt(square) <= radius))

    def absorb(self, config: PackingConfig, placement: Placement, y: float) -> None:
        """Carry a placed round with the truth y into the packing."""
        self.t += 1
        if placement.is_inside:
            self._join(config, placement, y)
            return
        # The first centre is at distance 0 of itself: its round is inside in any case.
        is_counted = config.include_center or placement.centre < 0
        self.centres.append(placement.z)
        self.counts.append(float(is_counted))
        self.sums.append(y if is_counted else 0.0)
        if self.fits is not None:
            self.fits.append(placement.z, config.slope_regularization)

    def _join(self, config: PackingConfig, placement: Placement, y: float) -> None:
        """T_s <- T_s + {t}."""
        s = placement.centre
        if self.fits is not None:
            count = self.counts.view.item(s)
            low, high = config.truth_range
            residual = (y - self.sums.view.item(s) / count) / (high - low) if count else 0.0
            self.fits.absorb(s, placement.z, residual, count)
        self.counts.view[s] += 1.0
        self.sums.view[s] += y

    def run(self, config: PackingConfig, X: F64, y: F64, rng: RoundRng, t: int) -> list[float]:  # X: (n, d)
        """Place and absorb n rounds in order; their forecasts. `t` is the number of the first round for `rng`.

        Raises DivergedError for an input that is too large; the blocks before it have been absorbed then.
        """
        values: list[float] = []
        for start in range(0, len(y), BLOCK):
            rows = slice(start, start + BLOCK)
            rng.at(t + start)
            placements = self.place_block(X[rows].T, rng)
            for j, (placement, truth) in enumerate(zip(placements, y[rows].tolist(), strict=True), start=start + 1):
                values.append(self.value(config, placement.centre, placement.z))
                self.absorb(config, placement, truth)
                rng.at(t + j)
        return values

    def refeed(self, config: PackingConfig, columns: F64, y: F64, rng: RoundRng) -> None:  # columns: (d, n)
        """Place and absorb n rounds in order, one a column, without forecasts.

        Their choices belong to the round that `rng` is at.
        """
        for start in range(0, len(y), BLOCK):
            rows = slice(start, start + BLOCK)
            for placement, truth in zip(self.place_block(columns[:, rows], rng), y[rows].tolist(), strict=True):
                self.absorb(config, placement, truth)

    def require_estimate(self, config: PackingConfig) -> None:
        """Raises StateFormatError if it has linear fits for means, or none for linear forecasts."""
        if (self.fits is None) != (config.estimate == "mean"):
            raise StateFormatError(f"a packing with{'out' if self.fits is None else ''} linear fits")

    def pack(self) -> dict[str, Stored]:
        return pack(self)

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> Packing:
        return unpack(cls, arrays)
