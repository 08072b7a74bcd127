r"""Packing the inputs with balls that shrink: the forecast is that of the ball whose centre is nearest, a mean of its truths.

| symbol   | meaning                                                                      | shape  |
|----------|------------------------------------------------------------------------------|--------|
| M        | the metric, positive definite, divided by its largest eigenvalue             | (d, d) |
| lambda_m | its eigenvalues, 1 = lambda_1 >= ... >= lambda_d                             | (d,)   |
| z        | root x with root^T root = M: \|x - x'\|_M = \|z - z'\|                       | (d,)   |
| kappa    | kappa(r, t) = max {m : lambda_m >= t^(-2 / (1 + r))}                         |        |
| rho_t    | effective rank, min {r : kappa(r, t) <= r}                                   |        |
| eps_t    | radius of all balls in round t, t^(-1 / (1 + rho_t))                         |        |
| S        | the centres                                                                  |        |
| T_s      | rounds in the ball of the centre s; kept are their number and the sum of y   |        |

In round t, s is the nearest centre, the oldest of several, and the forecast the mean of T_s, or the middle of the truths'
range if T_s is empty. If |x_t - x_s|_M <= eps_t then t joins T_s, otherwise x_t becomes a centre. In place of the mean
there may be a linear function of z, that of `packing.local_linear`, cut off at the ends of the truths' range.

References: [kuzborskij2017] equations (5), (6), algorithm 1, theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, Self, final

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.lags import LARGEST_TRUTH
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, ReplayDivergence, StateFormatError
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.nearest import Nearest, squared_distances
from okl_core.metrics.mahalanobis import Metric, effective_rank
from okl_core.packing.local_linear import LocalLinear
from okl_core.types import F64, Interval, LearnerConfig

BLOCK = 512
"""Rounds per block of `Packing.run`: enough to hide the calls; each centre opened inside costs a pass over the block."""

SMALLEST_SLOPE_REGULARIZATION = 1e-12
"""With less, rounding would decide where the rounds of a ball do not tell the slope."""


MOST_LINEAR = 100
"""Inputs at most for linear fits, of which every centre has one of d^2 numbers. A ball has fewer rounds than that anyway."""


class PackingConfig(LearnerConfig):
    """What every learner is given that packs."""

    include_center: bool = Field(
        default=True,
        description="Does the round that opens a ball count in it? The proof says so, the printed algorithm not; it helps.",
    )
    truth_range: list[float] = Field(
        default=[0.0, 1.0],
        min_length=2,
        max_length=2,
        description="[low, high] of the truths. Where nothing is known the answer is their middle.",
    )
    estimate: Literal["mean", "linear"] = Field(
        default="mean",
        description="What a ball forecasts: the mean of its truths, as published, or a linear function fitted to them, which "
        "errs less but has no guarantee.",
    )
    slope_regularization: float = Field(
        default=0.01,
        ge=SMALLEST_SLOPE_REGULARIZATION,
        description="lambda: times the squared slope, measured in the metric, it is added to the squared errors of a linear "
        "fit.",
    )

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        low, high = self.truth_range
        if not -LARGEST_TRUTH <= low < high <= LARGEST_TRUTH:
            raise ValueError(f"truth_range is [low, high] with low below high, both within +-{LARGEST_TRUTH:g}")
        return self

    @property
    def interval(self) -> Interval:
        low, high = self.truth_range
        return low, high

    def check_inputs(self, dim: int) -> None:
        """Raises ConfigError for more inputs than the estimate is for."""
        if self.estimate == "linear" and dim > MOST_LINEAR:
            told = f"linear fits are for {MOST_LINEAR} inputs at most, not for {dim}: take means"
            raise ConfigError(f"estimate: {told}", [(("config", "estimate"), told)])

    @property
    def middle(self) -> float:
        """The answer where nothing is known."""
        low, high = self.truth_range
        return 0.5 * (low + high)


def most_centres(eigenvalues: F64, rounds: int) -> float:
    """What |S| is at most after so many rounds with inputs in the unit ball. Eigenvalues as in `effective_rank`.

    References: [kuzborskij2017] lemma 2.
    """
    eps = rounds ** (-1.0 / (1.0 + effective_rank(eigenvalues, rounds)))
    roots = np.sqrt(eigenvalues)
    return float(np.prod(8.0 * math.sqrt(2.0) / eps * roots[roots >= eps]))


def regret_bound(eigenvalues: F64, gradients: F64, rounds: int, centres: float) -> float:
    """The regret at most against a differentiable f with values in [0, 1], truths in [0, 1], inputs in the unit ball.

        (8 ln(eT) + 1) |S| + 4 sqrt(sum_i g_i^2 / lambda_i) T^(rho_T / (1 + rho_T))

    `gradients`: g_i, shape (d,), the largest slopes of f along the eigenvectors of M; `centres`: |S|, or `most_centres`.
    The 1 is for the rounds that opened balls, which the proof leaves out.

    References: [kuzborskij2017] proof of theorem 1.
    """
    rho = effective_rank(eigenvalues, rounds)
    slope = math.sqrt(float(np.sum(gradients**2 / eigenvalues)))
    return balls_bound(rounds, centres) + 4.0 * slope * rounds ** (rho / (1.0 + rho))


def balls_bound(rounds: int, centres: float) -> float:
    """The first term of `regret_bound`: what the means of the balls lose to the best constants in them."""
    return (8.0 * math.log(math.e * max(1, rounds)) + 1.0) * centres


_ARRAYS = {"metric.root", "metric.eigenvalues", "t", "centres", "counts", "sums"}
"""What a packing packs to."""
_FITS = {"fits.means", "fits.slopes", "fits.roots"}
"""And with linear fits."""


class Placement(NamedTuple):
    """Where a round belongs: to the ball of the nearest centre, or outside. In an empty packing `centre` is -1."""

    z: F64
    centre: int
    is_inside: bool


@final
class Packing:
    """S with the numbers of rounds and sums of truths of every T_s, under one metric. `t` counts the rounds.

    `fits` are None if the forecasts are means.
    """

    __slots__ = ("centres", "counts", "fits", "metric", "sums", "t")

    def __init__(self, metric: Metric, fits: LocalLinear | None = None) -> None:
        self.metric = metric
        self.fits = fits
        self.centres = Nearest(metric.dim)
        self.counts = GrowingArray()
        self.sums = GrowingArray()
        self.t = 0

    @classmethod
    def of(cls, config: PackingConfig, metric: Metric) -> Packing:
        """An empty one. Raises ConfigError for more inputs than the estimate is for."""
        config.check_inputs(metric.dim)
        return cls(metric, LocalLinear(metric.dim) if config.estimate == "linear" else None)

    def __len__(self) -> int:
        """Number of centres."""
        return len(self.centres)

    @property
    def nbytes(self) -> int:
        fits = 0 if self.fits is None else self.fits.nbytes
        return self.centres.nbytes + self.counts.nbytes + self.sums.nbytes + self.metric.nbytes + fits

    @property
    def rank(self) -> int:
        """Effective rank in the next round."""
        return self.metric.rank(self.t + 1)

    @property
    def radius(self) -> float:
        """Of the balls in the next round."""
        return self.metric.radius(self.t + 1)

    def predict(self, config: PackingConfig, x: F64) -> float:
        """The forecast for x, shape (d,); pure. Raises DivergedError."""
        z = self.metric.map(x)
        return self.value(config, self.centres.find(z)[0] if len(self.centres) else -1, z)

    def value(self, config: PackingConfig, centre: int, z: F64) -> float:
        """The forecast from the ball of this centre; -1: there is none."""
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
        """Where the next round belongs, two choices unless it is the first; pure. Raises DivergedError."""
        z = self.metric.map(x)
        if not len(self.centres):
            return Placement(z, -1, False)
        nearest, square = self.centres.find(z)
        return Placement(z, *self._choose(nearest, square, len(self.centres), self.t + 1, rng))

    def place_block(self, X: F64, rng: RoundRng) -> Iterator[Placement]:  # X: (n, d)
        """`place` for n rounds in order, each as if those before it were absorbed, whether they are or not."""
        Z = self.metric.map_block(X)
        t, size = self.t, len(self.centres)
        nearest, squares = np.full(len(X), -1, dtype=np.intp), np.full(len(X), np.inf)
        if size:
            nearest, squares = self.centres.find_block(Z)
        for j in range(len(X)):
            t += 1
            choice = self._choose(nearest.item(j), squares.item(j), size, t, rng) if size else (-1, False)
            placement = Placement(Z[:, j], *choice)
            yield placement
            if placement.is_inside:
                continue
            if j + 1 < len(X):
                fresh, later = squared_distances(Z[:, j + 1 :], Z[:, j]), slice(j + 1, None)
                # Only if strictly nearer: of several the oldest.
                nearest[later][fresh < squares[later]] = size
                np.minimum(squares[later], fresh, out=squares[later])
            size += 1

    def _choose(self, nearest: int, square: float, size: int, t: int, rng: RoundRng) -> tuple[int, bool]:
        centre = rng.pick(nearest)
        if centre >= size:
            raise ReplayDivergence(f"centre {centre} was recorded, there are {size}")
        return centre, rng.decide(math.sqrt(square) <= self.metric.radius(t))

    def absorb(self, config: PackingConfig, placement: Placement, y: float) -> None:
        """Carry a placed round into the packing."""
        self.t += 1
        if placement.is_inside:
            self._join(config, placement, y)
            return
        # The first centre is at distance 0 of itself: it has its round in any case.
        is_counted = config.include_center or placement.centre < 0
        self.centres.append(placement.z)
        self.counts.append(float(is_counted))
        self.sums.append(y if is_counted else 0.0)
        if self.fits is not None:
            self.fits.append(placement.z, config.slope_regularization)

    def _join(self, config: PackingConfig, placement: Placement, y: float) -> None:
        i = placement.centre
        if self.fits is not None:
            count = self.counts.view.item(i)
            low, high = config.truth_range
            residual = (y - self.sums.view.item(i) / count) / (high - low) if count else 0.0
            self.fits.absorb(i, placement.z, residual, count)
        self.counts.view[i] += 1.0
        self.sums.view[i] += y

    def run(self, config: PackingConfig, X: F64, y: F64, rng: RoundRng, t: int) -> list[float]:  # X: (n, d)
        """n rounds in order, placed and absorbed; the forecasts. `t` is the first one's number for `rng`.

        Raises DivergedError; the rounds of the blocks before have been absorbed then.
        """
        values: list[float] = []
        for start in range(0, len(y), BLOCK):
            rows = slice(start, start + BLOCK)
            values += self._run_block(config, X[rows], y[rows], rng, t + start)
        return values

    def _run_block(self, config: PackingConfig, X: F64, y: F64, rng: RoundRng, t: int) -> list[float]:
        values: list[float] = []
        rng.at(t)
        for j, (placement, truth) in enumerate(zip(self.place_block(X, rng), y.tolist(), strict=True), start=1):
            values.append(self.value(config, placement.centre, placement.z))
            self.absorb(config, placement, truth)
            rng.at(t + j)
        return values

    def require_estimate(self, config: PackingConfig) -> None:
        """Raises StateFormatError if it does not have what the config's forecasts are made of."""
        if (self.fits is None) != (config.estimate == "mean"):
            raise StateFormatError(f"a packing with{'out' if self.fits is None else ''} linear fits")

    def pack(self) -> dict[str, F64]:
        metric = {f"metric.{name}": array for name, array in self.metric.pack().items()}
        balls = {"centres": self.centres.pack(), "counts": self.counts.pack(), "sums": self.sums.pack()}
        fits = {} if self.fits is None else {f"fits.{name}": array for name, array in self.fits.pack().items()}
        return metric | {"t": np.array(float(self.t))} | balls | fits

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Packing:
        has_fits = not _FITS.isdisjoint(arrays)
        if unknown := set(arrays) - (_ARRAYS | _FITS):
            raise StateFormatError(f"arrays that no packing has: {', '.join(sorted(unknown))}")
        packing = cls(Metric.unpack({name: arrays[f"metric.{name}"] for name in ("root", "eigenvalues")}))
        packing.t = int(arrays["t"].item())
        packing.centres = Nearest.unpack(arrays["centres"])
        packing.counts, packing.sums = (GrowingArray.unpack(arrays[name]) for name in ("counts", "sums"))
        sizes = {len(packing.centres), len(packing.counts), len(packing.sums)}
        if len(sizes) > 1 or packing.centres.dim != packing.metric.dim:
            raise StateFormatError("centres, counts, sums and metric of a packing do not fit")
        if has_fits:
            fits = packing.fits = LocalLinear.unpack(
                {name: arrays[f"fits.{name}"] for name in ("means", "slopes", "roots")}
            )
            if (len(fits), fits.dim) != (len(packing), packing.metric.dim):
                raise StateFormatError("the linear fits of a packing do not go with its centres")
        return packing
