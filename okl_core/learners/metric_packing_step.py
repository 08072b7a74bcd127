r"""From the end of a phase to the packing under the metric that it taught: the work, in pieces that fit into a round.

Phase i = 1, 2, ... has 2^i rounds, so it ends with round 2^(i+1) - 2. What is known then, n rounds, is where the slopes of
the function are taken; they give M = G + gamma I, and a new packing under M takes the place of the old one, empty or after
all rounds so far were played to it again. Meanwhile the old one goes on. One in `SHARE` rounds of the next phase is for the
slopes, half of them with more than `FEW` inputs, and about one in `SHARE` is for playing rounds again.

References: [kuzborskij2017] section 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.errors import ReplayDivergence, StateFormatError
from okl_core.metrics.gradient_outer_product import BANDWIDTH, DIFFERENCE_STEP, outer_product, scales, slopes, stride
from okl_core.metrics.mahalanobis import Metric
from okl_core.packing.balls import BLOCK, Packing, PackingConfig, Placement
from okl_core.types import F64

SHARE = 16
"""One of so many rounds of a phase goes into the slopes, and one into playing rounds again."""

FEW, HALF = 16, 2
"""With more inputs than the first, one in as many rounds as the second is for the slopes: their work grows with the inputs,
and no round should take much longer."""

ROWS = SHARE + 2
"""Rounds played again in a round. In n / SHARE rounds, or half as many again where the slopes took half of a phase, these are
all: n, those that came during the slopes, and those that come meanwhile, one a round."""

EXTREME = 1e100
"""Of the two lengths at most, and one in so many at least: slopes and their squares stay finite."""

SMALLEST_SHARE = 1e-12
"""Of the smallest eigenvalue of a metric in the largest: far above what rounding leaves of zero."""


MOST_STORED = 2**53
"""Larger numbers of rounds are not all floating-point numbers."""


class MetricPackingConfig(PackingConfig):
    """Parameters of the packing that learns its metric."""

    bandwidth: float = Field(
        default=BANDWIDTH, ge=1.0 / EXTREME, le=EXTREME, description="c_eps: eps = c_eps n^(-1 / (2 (d + 1)))."
    )
    difference_step: float = Field(
        default=DIFFERENCE_STEP, ge=1.0 / EXTREME, le=EXTREME, description="c_tau: tau = c_tau eps^(1/4)."
    )
    min_count: Annotated[int, Field(ge=1)] | Literal["published"] = Field(
        default=1,
        description="Inputs that two balls of radius eps / 2 must hold for a slope to count. published: 2 d ln(2 n), which "
        "from d = 5 on leaves none in thousands of rounds.",
    )
    metric_regularization: float = Field(
        default=1.0,
        gt=0.0,
        description="alpha: n^-alpha of the largest eigenvalue is added to all of them. Below 1 the packing cannot get flat.",
    )
    evaluation_points: int = Field(default=128, ge=1, le=2048, description="Inputs at most at which slopes are taken.")
    refeed: bool = Field(
        default=True, description="Play all rounds so far to a new packing. false: it starts empty, as published."
    )
    memory: int | None = Field(
        default=8192,
        ge=2,
        le=MOST_STORED,
        description="Rounds that may be stored. The last phase that fits into them teaches the final metric, after which "
        "none are stored. null: no end.",
    )
    spread: bool = Field(
        default=True,
        description="Spread the work at the end of a phase over an eighth of the next, or 3/5 with more than 16 inputs. "
        "false: all in its last round, as published.",
    )


def last_phase_end(config: MetricPackingConfig) -> float:
    """The last round at whose end a metric is learned."""
    return math.inf if config.memory is None else 2.0 ** ((config.memory + 2).bit_length() - 1) - 2.0


def phase_after(t: int) -> int:
    """The phase of round t + 1."""
    return (t + 2).bit_length() - 1


def phase_end(phase: int) -> int:
    """T(phase)."""
    return 2 ** (phase + 1) - 2


@final
class Transition:
    """How far the work is: the slopes v at the evaluation points, shape (m, d), of which the first `done` are there.

    Then comes the packing under the new metric, if rounds are played to it again; it has had the first `packing.t`.
    """

    __slots__ = ("_columns", "done", "n", "packing", "v")

    def __init__(self, n: int, v: F64, done: int = 0, packing: Packing | None = None) -> None:
        self.n = n
        self.v = v
        self.done = done
        self.packing = packing
        self._columns: F64 | None = None

    @classmethod
    def begin(cls, config: MetricPackingConfig, n: int, dim: int) -> Transition:
        return cls(n, np.zeros((-(-n // stride(n, config.evaluation_points)), dim)))

    @property
    def nbytes(self) -> int:
        # The columns are counted whether they are there or not: a restored learner tells the same.
        rest = 8 * self.v.shape[1] * self.n if self.packing is None else self.packing.nbytes
        return self.v.nbytes + rest

    def fits(self, dim: int, stored: int) -> bool:
        """Can it go on with so many rounds of inputs in R^dim?"""
        played = 0 if self.packing is None else self.packing.t
        is_of_dim = self.packing is None or self.packing.metric.dim == dim
        return is_of_dim and self.v.shape[1] == dim and 0 < len(self.v) <= self.n <= stored and played < stored

    def columns(self, X: F64) -> F64:  # X: (n or more, d)
        """The n inputs as columns, for which distances take a third of the time; copied once."""
        if self._columns is None:
            self._columns = np.ascontiguousarray(X[: self.n].T)
        return self._columns

    @property
    def slopes_a_round(self) -> int:
        share = SHARE if self.v.shape[1] <= FEW else HALF
        return -(-self.v.size // max(1, (self.n + 2) // share))

    def rounds_left(self, t: int) -> int:
        """So many rounds from t + 1 on are for slopes, or for playing rounds again, whichever it is now."""
        if self.packing is None:
            return -(-(self.v.size - self.done) // self.slopes_a_round)
        return -(-(t - self.packing.t) // (ROWS - 1))

    def take(self, values: F64) -> None:
        """Put the next slopes in."""
        self.v.flat[self.done : self.done + len(values)] = values
        self.done += len(values)

    def begin_replay(self, packing: Packing) -> None:
        self.packing, self._columns = packing, None

    def pack(self) -> dict[str, F64]:
        arrays = {"n": np.array(float(self.n)), "v": self.v.copy(), "done": np.array(float(self.done))}
        if self.packing is not None:
            arrays |= {f"packing.{name}": array for name, array in self.packing.pack().items()}
        return arrays

    @classmethod
    def unpack(cls, arrays: dict[str, F64]) -> Transition:
        of_packing = {name.removeprefix("packing."): a for name, a in arrays.items() if name.startswith("packing.")}
        if arrays["v"].ndim != 2:
            raise StateFormatError(f"slopes of shape {arrays['v'].shape}")
        packing = Packing.unpack(of_packing) if of_packing else None
        v = np.array(arrays["v"], order="C")
        done = int(arrays["done"].item())
        if (packing is None) == (done == v.size):
            raise StateFormatError(f"{done} of {v.size} slopes, and {'no' if packing is None else 'a'} packing")
        return cls(int(arrays["n"].item()), v, done, packing)


def measure(
    config: MetricPackingConfig,
    columns: F64,  # (d, n)
    y: F64,  # (n,)
    pairs: range,
    size: int,
    rng: RoundRng,
) -> Iterator[F64]:
    """The slopes of these pairs, `size` at a time, 0 where there are too few inputs; one choice each. Pure."""
    d, n = columns.shape
    at = scales(n, d, config.bandwidth, config.difference_step, config.min_count)
    low, high = config.interval
    values, is_supported = slopes(columns, (y - low) / (high - low), stride(n, config.evaluation_points), pairs, at)
    for start in range(0, len(pairs), size):
        part = slice(start, start + size)
        yield np.where(_recorded(is_supported[part], rng), values[part], 0.0)


def _recorded(flags: NDArray[np.bool_], rng: RoundRng) -> NDArray[np.bool_]:
    """Record the outcomes of many tests as one choice."""
    bits = rng.pick(int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little"))
    if bits >> len(flags):
        raise ReplayDivergence(f"{bits:#x} was recorded for {len(flags)} slopes")
    packed = np.frombuffer(bits.to_bytes(-(-len(flags) // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=len(flags), bitorder="little").astype(np.bool_)


def metric_of(config: MetricPackingConfig, v: F64, n: int) -> Metric:  # v: (m, d)
    """M from the slopes; the identity if there are none."""
    G = outer_product(v)
    largest = float(np.linalg.eigvalsh(G)[-1])
    if not largest > np.finfo(np.float64).tiny:
        return Metric.identity(len(G))
    share = max(n**-config.metric_regularization, SMALLEST_SHARE)
    return Metric.of(G / largest + share * np.eye(len(G)))


def replay(packing: Packing, stored: F64, X: F64, rng: RoundRng) -> Iterator[list[Placement]]:  # (n, d), (m, d)
    """For each of m rounds, whose inputs are X, where the rounds belong that it plays to `packing` again.

    Those are rounds that it has not had: first the n stored ones, then these m themselves. Pure.
    """
    n, m = len(stored), len(X)
    placements = packing.place_block(np.vstack((stored[: m * ROWS], X))[: m * ROWS], rng)
    done = 0
    for known in range(n + 1, n + m + 1):
        count = min(ROWS, known - done)
        yield list(islice(placements, count))
        done += count


def at_once(config: MetricPackingConfig, X: F64, y: F64, rng: RoundRng) -> Packing:  # X: (n, d), y: (n,)
    """The packing under the metric of n rounds, empty or with all of them. Pure."""
    v = Transition.begin(config, *X.shape).v
    [values] = measure(config, np.ascontiguousarray(X.T), y, range(v.size), v.size, rng)
    packing = Packing.of(config, metric_of(config, values.reshape(v.shape), len(y)))
    if config.refeed:
        for start in range(0, len(y), BLOCK):
            rows = slice(start, start + BLOCK)
            for placement, truth in zip(packing.place_block(X[rows], rng), y[rows].tolist(), strict=True):
                packing.absorb(config, placement, truth)
    return packing
