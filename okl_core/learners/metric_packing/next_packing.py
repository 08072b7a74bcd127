r"""The next packing: the metric learned from all rounds so far, and the packing under it, both made piece by piece.

| symbol   | meaning                                                                            | shape  |
|----------|------------------------------------------------------------------------------------|--------|
| n        | rounds that the metric is learned from                                             |        |
| Delta, A | slopes along d axes at m evaluation points, and whether each has enough samples    | (m, d) |
| v        | gradients, Delta A                                                                 | (m, d) |
| G        | the gradient outer product, the mean of v v^T; mu_1 is its largest eigenvalue      | (d, d) |
| M        | the metric, G + n^-alpha mu_1 I; or I if G = 0                                     | (d, d) |

`metrics.gradient_outer_product` says how Delta and A are estimated.

References: [kuzborskij2017] section 4, appendix A.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from okl_core.contract.rng import RoundRng
from okl_core.contract.state import part_of, prefixed
from okl_core.errors import ReplayDivergence, StateFormatError
from okl_core.learners.metric_packing.metric_packing_config import MetricPackingConfig
from okl_core.learners.metric_packing.work_schedule import WorkSchedule
from okl_core.metrics.gradient_outer_product import Scales, outer_product, slopes, stride
from okl_core.packing.balls import Packing, Placement
from okl_core.types import F64, Stored

SMALLEST_SHARE = 1e-12
"""The smallest n^-alpha: far above what rounding leaves of an eigenvalue 0, in units of the largest."""


class Piece(NamedTuple):
    """What one round adds to the next packing: slopes, or replayed rounds; or the whole packing at once."""

    slopes: F64 = np.empty(0)
    replayed: Sequence[Placement] = ()
    packing: Packing | None = None


NO_WORK = Piece()


@final
class NextPacking:
    """The next packing as far as it has been made. `schedule` says how far that is at the end of round t.

    At first there are `measured(t)` entries of v. When all of v is there, so are the metric and the packing, which has
    absorbed the first `replayed(t)` rounds.
    """

    __slots__ = ("packing", "schedule", "v")

    def __init__(self, n: int, v: F64, packing: Packing | None = None) -> None:
        self.v = v
        self.packing = packing
        self.schedule = WorkSchedule.after(n, *v.shape)

    @classmethod
    def begin(cls, config: MetricPackingConfig, n: int, dim: int) -> NextPacking:
        """The start, at the end of a phase with round n."""
        return cls(n, np.zeros((_points(config, n), dim)))

    @property
    def nbytes(self) -> int:
        return self.v.nbytes + (0 if self.packing is None else self.packing.nbytes)

    def end(self, config: MetricPackingConfig) -> int:
        """The round at whose end the packing is complete."""
        return self.schedule.replay_done if config.refeed else self.schedule.metric_known

    def alike(self, t: int) -> int:
        """How many rounds after round t have pieces of one kind."""
        return (self.schedule.metric_known if self.packing is None else self.schedule.replay_done) - t

    def require_progress(self, config: MetricPackingConfig, t: int, dim: int) -> None:
        """Raises StateFormatError if it has not been made exactly as far as after round t, for inputs in R^dim."""
        n, packing, schedule = self.schedule.n, self.packing, self.schedule
        if n not in range(1, t + 1) or self.v.shape != (_points(config, n), dim) or t >= self.end(config):
            raise StateFormatError(f"work that began after round {n} does not go with {t} rounds of {dim} inputs")
        expected = None if t < schedule.metric_known else (schedule.replayed(t), dim)
        if expected != (None if packing is None else (packing.t, packing.metric.dim)):
            raise StateFormatError(f"the next packing is not as far as after {t} rounds of {dim} inputs")
        if packing is not None:
            packing.require_estimate(config)

    def pieces(
        self,
        config: MetricPackingConfig,
        t: int,
        X: F64,  # (d, t)
        y: F64,  # (t,)
        upcoming: F64,  # (d, k)
        rng: RoundRng,
    ) -> Iterator[Piece]:
        """The pieces of the k rounds after round t, no more than are `alike`. Changes nothing.

        X and y are the inputs and truths of the rounds so far, `upcoming` the inputs of the k rounds.
        """
        rounds, schedule = range(t, t + upcoming.shape[1]), self.schedule
        if self.packing is None:
            n, done = schedule.n, schedule.measured
            pairs = range(done(rounds.start), done(rounds.stop))
            Delta, A = _slopes(config, X[:, :n], y[:n], pairs)
            for before in rounds:
                part = slice(done(before) - pairs.start, done(before + 1) - pairs.start)
                yield Piece(slopes=np.where(_recorded(A[part], rng), Delta[part], 0.0))
        else:
            first, last = schedule.replayed(rounds.start), schedule.replayed(rounds.stop)
            # The last of the replayed rounds may be among the k rounds themselves.
            columns = np.hstack((X[:, first:last], upcoming[:, : max(0, last - t)]))
            placements = self.packing.place_block(columns, rng)
            for before in rounds:
                count = schedule.replayed(before + 1) - schedule.replayed(before)
                yield Piece(replayed=list(islice(placements, count)))

    def absorb(self, config: MetricPackingConfig, t: int, y: F64, piece: Piece) -> Packing | None:  # y: (t,)
        """Carry the piece of round t into it, y the truths so far. Returns the packing once it is complete."""
        if self.packing is None:
            self.v.flat[self.schedule.measured(t - 1) : self.schedule.measured(t)] = piece.slopes
            if t == self.schedule.metric_known:
                self.packing = Packing.of(config, _metric(config, self.v, self.schedule.n))
        else:
            for placement in piece.replayed:
                self.packing.absorb(config, placement, y.item(self.packing.t))
        return self.packing if t == self.end(config) else None

    def pack(self) -> dict[str, Stored]:
        arrays = {"n": np.array(float(self.schedule.n)), "v": self.v.copy()}
        packed = {} if self.packing is None else self.packing.pack()
        return arrays | prefixed("packing", packed)

    @classmethod
    def unpack(cls, arrays: dict[str, Stored]) -> NextPacking:
        packed = part_of(arrays, "packing")
        packing = Packing.unpack(packed) if packed else None
        return cls(int(arrays["n"].item()), np.array(arrays["v"], dtype=np.float64, order="C"), packing)


def packing_at_once(config: MetricPackingConfig, X: F64, y: F64, rng: RoundRng) -> Packing:  # X: (d, n), y: (n,)
    """The packing under the metric of n rounds, with all of them or empty. Choices belong to the round that `rng` is at."""
    d, n = X.shape
    m = _points(config, n)
    Delta, A = _slopes(config, X, y, range(m * d))
    v = np.where(_recorded(A, rng), Delta, 0.0).reshape(m, d)
    packing = Packing.of(config, _metric(config, v, n))
    if config.refeed:
        packing.refeed(config, X, y, rng)
    return packing


def _points(config: MetricPackingConfig, n: int) -> int:
    """m, the number of evaluation points among n rounds."""
    return -(-n // stride(n, config.evaluation_points))


def _slopes(config: MetricPackingConfig, X: F64, y: F64, pairs: range) -> tuple[F64, NDArray[np.bool_]]:
    """Delta and A of these pairs of point and axis, for truths in units of their range. X: (d, n), y: (n,)."""
    d, n = X.shape
    low, high = config.interval
    scales = Scales.of(n, d, config.bandwidth, config.difference_step, config.min_count)
    return slopes(X, (y - low) / (high - low), stride(n, config.evaluation_points), pairs, scales)


def _recorded(flags: NDArray[np.bool_], rng: RoundRng) -> NDArray[np.bool_]:
    """The outcomes of many tests, recorded as one choice with a bit for each."""
    bits = rng.pick(int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little"))
    if bits >> len(flags):
        raise ReplayDivergence(f"{bits:#x} was recorded for {len(flags)} slopes")
    packed = np.frombuffer(bits.to_bytes(-(-len(flags) // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=len(flags), bitorder="little").astype(np.bool_)


def _metric(config: MetricPackingConfig, v: F64, n: int) -> F64:
    """M / mu_1, shape (d, d), from v of shape (m, d); or the diagonal of I, shape (d,)."""
    G = outer_product(v)
    mu_1 = float(np.linalg.eigvalsh(G)[-1])
    if not mu_1 > np.finfo(np.float64).tiny:
        return np.ones(len(G))
    return G / mu_1 + max(n**-config.metric_regularization, SMALLEST_SHARE) * np.eye(len(G))
