r"""A packing: balls that cover the inputs and shrink over time. The ball with the nearest centre makes the forecast.

| symbol   | meaning                                                                      | shape  |
|----------|------------------------------------------------------------------------------|--------|
| M        | the metric, positive definite, divided by its largest eigenvalue             | (d, d) |
| z        | image of x with \|x - x'\|_M = \|z - z'\|, see `metrics.mahalanobis`         | (d,)   |
| eps_t    | radius of all balls in round t, see `packing.radius`                         |        |
| S        | the centres                                                                  |        |
| T_s      | rounds in the ball of the centre s, stored as their number and the sum of y  |        |

In round t, with s the nearest centre (the oldest on a tie),

    forecast = mean of y over T_s, or the middle of the truths' range if T_s is empty,
    |x_t - x_s|_M <= eps_t:  T_s <- T_s + {t},
    otherwise:               x_t becomes a centre, with T = {t}, or {} without `include_center`.

| algorithm 1                  | here                                                                              |
|------------------------------|-----------------------------------------------------------------------------------|
| 1, 2: M, S is empty          | `Packing.of`                                                                      |
| 4: eps_t                     | `Radius.at`                                                                       |
| 6-8: the first ball          | `Packing.place` finds no centre, so `Packing.absorb` opens it, with its own round |
| 9: s                         | `Packing.place`                                                                   |
| 10-14: the forecast          | `Packing.value`                                                                   |
| 16: is x_t within eps_t?     | `Packing._choose`                                                                 |
| 17: t joins T_s              | `Packing._join`                                                                   |
| 19: a new centre             | `Packing.absorb`, of x_t, where s is printed                                      |

`Packing.place_block` places a block of rounds. Instead of the mean the forecast may be a linear function of z, see
`packing.local_linear`, clipped to the truths' range.

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
"""Rounds per block of `Packing.run`: enough to hide the call overhead; each new centre costs a pass over the block."""


class Placement(NamedTuple):
    """Where a round belongs: inside the ball of the nearest centre, or outside it."""

    z: F64
    centre: int
    """Index of the nearest centre in S; -1 if there is none."""
    is_inside: bool


@final
@dataclass(slots=True)
class Packing(LearnerState):
    """S, with the size and the sum of truths of each T_s, under one metric. `t` counts the rounds absorbed."""

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
            and (self.counts.view >= 0.0).all()
            and (self.fits is None or (len(self.fits), self.fits.dim) == (n, d))
            # The first round opens a ball.
            and min(1, self.t) <= n <= self.t
        )
        if not fits_together:
            raise StateFormatError("the centres, counts, sums, metric and linear fits of a packing do not match")

    @classmethod
    def of(cls, config: PackingConfig, M: Sequence[float] | Rows) -> Packing:
        """Return an empty packing under the metric M, shape (d, d), or (d,) for a diagonal.

        Raise NotPositiveDefiniteError if M is not a metric, ConfigError for more inputs than the estimate supports.
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
        """Return the forecast for x, shape (d,), without changing state. Raise DivergedError."""
        z = self.metric.map(x)
        return self.value(config, self.centres.find(z)[0] if self.t else -1, z)

    def value(self, config: PackingConfig, centre: int, z: F64) -> float:
        """Return the forecast for z from the ball of a centre; `centre` is -1 if there is none."""
        count = self.counts.view.item(centre) if centre >= 0 else 0.0
        if not count:
            return config.middle
        mean = self.sums.view.item(centre) / count
        if self.fits is None:
            return mean
        low, high = config.truth_range
        # A rise of the whole range leaves it from any mean, so cutting it off there changes nothing and keeps it finite.
        rise = min(max(self.fits.rise(centre, z), -1.0), 1.0)
        return min(max(mean + rise * (high - low), low), high)

    def place(self, x: F64, rng: RoundRng) -> Placement:
        """Return where the next round, with the input x, belongs, without changing state. Raise DivergedError.

        Record two choices, except in the first round.
        """
        z = self.metric.map(x)
        if not self.t:
            return Placement(z, -1, False)
        nearest, square = self.centres.find(z)
        return self._choose(z, nearest, square, len(self), self.radius.at(self.t + 1), rng)

    def place_block(self, columns: F64, rng: RoundRng) -> Iterator[Placement]:  # columns: (d, n)
        """Place n rounds in order, one per column, each as if the rounds before it were absorbed, even if they are not."""
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
                # Only if strictly nearer, since ties go to the oldest centre.
                nearest[later][fresh < squares[later]] = size
                np.minimum(squares[later], fresh, out=squares[later])
            size += 1

    def _choose(self, z: F64, nearest: int, square: float, size: int, radius: float, rng: RoundRng) -> Placement:
        """Return the placement of a round, recording the nearest centre and whether the round is in its ball."""
        centre = rng.pick(nearest)
        if centre >= size:
            raise ReplayDivergence(f"centre {centre} was recorded, there are {size}")
        return Placement(z, centre, rng.decide(math.sqrt(square) <= radius))

    def absorb(self, config: PackingConfig, placement: Placement, y: float) -> None:
        """Learn a placed round with the truth y."""
        self.t += 1
        if placement.is_inside:
            self._join(config, placement, y)
            return
        # The round that opens the first ball always counts: its centre is the nearest, at distance 0.
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
        """Place and absorb n rounds in order, and return their forecasts. `t` is the number of the first round for `rng`.

        Raise DivergedError for an input that is too large; the blocks before it stay absorbed.
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
        """Place and absorb n rounds in order, one per column, without forecasts.

        Their choices are recorded in the current round of `rng`.
        """
        for start in range(0, len(y), BLOCK):
            rows = slice(start, start + BLOCK)
            for placement, truth in zip(self.place_block(columns[:, rows], rng), y[rows].tolist(), strict=True):
                self.absorb(config, placement, truth)

    def require_estimate(self, config: PackingConfig) -> None:
        """Raise StateFormatError if linear fits are present with the estimate "mean", or missing with "linear"."""
        if (self.fits is None) != (config.estimate == "mean"):
            raise StateFormatError(f"a packing with{'out' if self.fits is None else ''} linear fits")

    def pack(self) -> dict[str, Stored]:
        return pack(self)

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> Packing:
        return unpack(cls, arrays)
