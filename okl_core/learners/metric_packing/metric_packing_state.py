"""The state of `metric-packing`: the packing that predicts, the stored rounds, and the next packing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from okl_core.contract.rng import RoundRng
from okl_core.errors import StateFormatError
from okl_core.learners.metric_packing.metric_packing_config import MetricPackingConfig
from okl_core.learners.metric_packing.next_packing import NO_WORK, NextPacking, Piece, packing_at_once
from okl_core.learners.metric_packing.phases import phase_end
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.growing_columns import GrowingColumns
from okl_core.packing.balls import Packing
from okl_core.types import F64, LearnerState

PIECES = 32
"""Rounds whose pieces of work are made at once in a `run`: some hundreds of rounds are replayed in them."""

EIGEN_WORK = 20
"""What an eigenvector takes, for each of d^2 numbers and in the units of `LONG_WORK`."""

DISTANCE_WORK = 10
"""What a distance takes, for each input."""


@dataclass(slots=True)
class MetricPackingState(LearnerState):
    """Everything that `metric-packing` keeps. Rounds are stored until the packing under the last metric predicts."""

    packing: Packing
    X: GrowingColumns
    """The inputs of all rounds so far, one a column; none once they are no longer stored."""
    y: GrowingArray
    """Their truths."""
    successor: NextPacking | None
    """The next packing, while there is work on it."""
    loss: float

    @classmethod
    def before_round_1(cls, config: MetricPackingConfig, dim: int) -> MetricPackingState:
        return cls(0, Packing.of(config, np.ones(dim)), GrowingColumns(dim), GrowingArray(), successor=None, loss=0.0)

    @property
    def nbytes(self) -> int:
        stored = self.X.nbytes + self.y.nbytes
        return self.packing.nbytes + stored + (0 if self.successor is None else self.successor.nbytes)

    def require_config(self, config: MetricPackingConfig) -> None:
        """Raise StateFormatError if its parts are not those of one moment."""
        dim, stored = self.packing.metric.dim, self.t if self._is_storing(config) else 0
        if self.X.view.shape != (dim, stored) or len(self.y) != stored:
            detail = f"inputs of shape {self.X.view.shape} and {len(self.y)} truths"
            raise StateFormatError(f"{detail} are stored after {self.t} rounds of {dim} inputs, not {stored} rounds")
        self.packing.require_estimate(config)
        if self.successor is not None:
            self.successor.require_progress(config, self.t, dim)

    def extra_work(self, config: MetricPackingConfig, rounds: int) -> float:
        """The most work of one of the next rounds that is not spread: eigenvectors of a metric, or all of a packing."""
        d, last = self.packing.metric.dim, self.t + rounds
        if self.successor is not None:
            return float(EIGEN_WORK * d**3) if self.t < self.successor.schedule.metric_known <= last else 0.0
        n = phase_end(self.t + 1)
        if config.spread or n > min(last, config.last_phase_end):
            return 0.0
        points = config.evaluation_points * d + (len(self.packing) if config.refeed else 0)
        return float(EIGEN_WORK * d**3 + DISTANCE_WORK * points * n * d)

    def quiet_rounds(self, config: MetricPackingConfig) -> int:
        """How many rounds from the next one on have no piece of work; 0 if the next one has one."""
        if self.successor is not None:
            return 0
        if self.t >= config.last_phase_end:
            return sys.maxsize
        return phase_end(self.t + 1) - self.t - (not config.spread)

    def pieces_at_once(self) -> int:
        """How many rounds `pieces` may be asked for if the next round is not quiet."""
        return 1 if self.successor is None else min(PIECES, self.successor.alike(self.t))

    def pieces(self, config: MetricPackingConfig, columns: F64, y: F64, rng: RoundRng) -> Iterator[Piece]:
        """The pieces of work of the next k rounds, with inputs `columns`, shape (d, k), and truths y. Changes nothing.

        k is 1, or at most `quiet_rounds` or `pieces_at_once`, whichever applies.
        """
        if self.successor is not None:
            yield from self.successor.pieces(config, self.t, self.X.view, self.y.view, columns, rng)
        elif config.spread or self.quiet_rounds(config):
            yield from repeat(NO_WORK, len(y))
        else:
            X, truths = np.hstack((self.X.view, columns)), np.append(self.y.view, y)
            yield Piece(packing=packing_at_once(config, X, truths, rng))

    def absorb(self, config: MetricPackingConfig, columns: F64, y: F64, piece: Piece) -> None:
        """Carry rounds that the packing has absorbed into the rest of the state: one with its piece of work, or quiet ones.

        `columns`, shape (d, k), are their inputs, y, shape (k,), their truths. The cumulative loss is the caller's.
        """
        if self._is_storing(config):
            self.X.extend(columns)
            self.y.extend(y)
        self.t += len(y)
        dim, complete = self.packing.metric.dim, piece.packing
        if self.successor is not None:
            complete = self.successor.absorb(config, self.t, self.y.view, piece)
        elif config.spread and self.t == phase_end(self.t) and self.t <= config.last_phase_end:
            self.successor = NextPacking.begin(config, self.t, dim)
        if complete is not None:
            self.packing, self.successor = complete, None
            if not self._is_storing(config):
                self.X, self.y = GrowingColumns(dim), GrowingArray()

    def _is_storing(self, config: MetricPackingConfig) -> bool:
        return self.t < config.last_phase_end or self.successor is not None
