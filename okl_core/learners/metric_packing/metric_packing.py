"""`metric-packing`: regression by packing, under a metric learned from the same stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.learners.metric_packing.metric_packing_config import MetricPackingConfig
from okl_core.learners.metric_packing.metric_packing_state import MetricPackingState
from okl_core.learners.metric_packing.next_packing import NO_WORK, Piece
from okl_core.learners.metric_packing.phases import phase_of
from okl_core.linalg.nearest import FARTHEST
from okl_core.losses import LOSSES, Loss
from okl_core.packing.balls import Placement
from okl_core.types import F64, BlockInfo, Forecast, Interval, Round

FARTHEST_INPUT = 0.5 * FARTHEST
"""The largest |x|^2. No metric makes it larger, so that a stored round fits into each packing that is to come."""


@dataclass(slots=True)
class MetricPackingRound(Round):
    """A round with its place in the packing that predicts, and its piece of work on the next packing."""

    placement: Placement
    piece: Piece


@final
@register
class MetricPacking(Learner[MetricPackingConfig, MetricPackingState, MetricPackingRound]):
    r"""Regression by means over balls of a metric learned on the way, for functions of few directions.

    Phase i has 2^i rounds; in the first M = I. At the end of each phase the gradient outer product G of the function is
    estimated from all n rounds so far (`metrics.gradient_outer_product`, truths in units of `truth_range`), and

        M = G + n^-alpha mu_1 I,   or I if G = 0,   with mu_1 the largest eigenvalue of G,

    divided by its largest eigenvalue, is the metric of a new packing for the next phase. Unless `refeed` is false all rounds
    so far are replayed to that packing first, in order. What a packing forecasts is said at `packing`.

    A round takes the time of one of `packing`. In an eighth of the rounds, those after the end of each phase, a piece of the
    work on the next packing is added (`work_schedule`): at most 32 d `evaluation_points` + 2 n distances, or 18 replayed
    rounds. With more than 16 inputs it is three fifths of the rounds, and smaller pieces. Memory: (d + 1) 9/8 `memory`
    numbers for stored rounds, 8/5 in place of 9/8 with more than 16 inputs; and d + 3 numbers a centre, d^2 + 3 d + 3 with
    linear fits, twice during the work. Growing arrays may take up to twice as much.

    Notes
    -----
    For independent inputs in the unit ball, truths in [0, 1], a smooth regression function f, and G estimated well enough,
    the regret against f is of the order

        (1 + sqrt(sum_j (|grad_{u_j} f| + |grad_V f|)^2 / (mu_j / mu_1))) T^(rho / (1 + rho)),

    rho the effective rank of the true G with 2 n^-alpha added to its eigenvalues (theorem 2). For linear fits nothing is
    claimed.

    Differences from the paper: one sample in a ball is enough for a slope, since the published number leaves G = 0. The
    regularization is relative to mu_1, and alpha is 1, since alpha = 1/2 outweighs small gradients. Rounds are replayed,
    which halves the regret. The work is spread, so that no round waits for all of it. After the last phase end within
    `memory` there is one phase without end, whose packing has all rounds; none are stored then. With `refeed` and `spread`
    false and `memory` null it is the published algorithm, but for the constants.

    `packing.learned_metric` returns the metric of a learner.

    References: [kuzborskij2017] section 4, theorem 2; [trivedi2014] for the estimate.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "metric-packing"}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    0.25
    >>> learner.predict(np.array([0.2])).value
    1.0
    """

    kind: ClassVar[str] = "metric-packing"
    references: ClassVar[tuple[str, ...]] = ("kuzborskij2017", "trivedi2014")
    config_type = MetricPackingConfig
    state_type = MetricPackingState

    def loss(self, config: MetricPackingConfig) -> Loss:
        return LOSSES["squared"]

    def truth_range(self, config: MetricPackingConfig) -> Interval:
        return config.interval

    def input_radius(self, config: MetricPackingConfig) -> float | None:
        return 1.0

    def initial_bytes(self, config: MetricPackingConfig, dim: int) -> int:
        # What a warm-up would find out at its end only.
        config.check_inputs(dim)
        return 0

    def extra_work(self, config: MetricPackingConfig, state: MetricPackingState, rounds: int) -> float:
        return state.extra_work(config, rounds)

    def init(self, config: MetricPackingConfig, dim: int) -> MetricPackingState:
        return MetricPackingState.before_round_1(config, dim)

    def predict(self, config: MetricPackingConfig, state: MetricPackingState, x: F64) -> Forecast:
        _require_near(ddot(x, x))
        return Forecast(state.packing.predict(config, x))

    def play(
        self, config: MetricPackingConfig, state: MetricPackingState, x: F64, y: float, rng: RoundRng
    ) -> MetricPackingRound:
        _require_near(ddot(x, x))
        placement = state.packing.place(x, rng)
        piece = next(state.pieces(config, x[:, None], np.array([y]), rng))
        return self._played(config, state, x, y, placement, piece, rng)

    def learn(self, config: MetricPackingConfig, state: MetricPackingState, played: MetricPackingRound) -> None:
        state.packing.absorb(config, played.placement, played.y)
        state.absorb(config, played.x[:, None], np.array([played.y]), played.piece)
        state.loss += played.loss

    def run(self, config: MetricPackingConfig, state: MetricPackingState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        _require_near(float(np.einsum("ij,ij->i", X, X).max(initial=0.0)))
        values, start = np.empty(len(y)), 0
        while start < len(y):
            quiet = state.quiet_rounds(config)
            rounds = slice(start, min(len(y), start + (quiet or state.pieces_at_once())))
            run = self._run_quiet if quiet else self._run_with_pieces
            values[rounds] = run(config, state, X[rounds], y[rounds], rng)
            start = rounds.stop
        return BlockInfo(state.t, values, self.loss(config).values(values, y), None, rng.finish())

    def describe(self, config: MetricPackingConfig, state: MetricPackingState) -> dict[str, float]:
        packing = state.packing
        # The last phase has no end.
        phase_round = 1 + min(state.t, config.last_phase_end)
        return {
            "t": state.t,
            "dictionary": len(packing),
            "bytes": state.nbytes,
            "phase": phase_of(int(phase_round)),
            "stored": len(state.y),
            "effective_rank": packing.radius.rank(packing.t + 1),
            "radius": packing.radius.at(packing.t + 1),
            "top_share": 1.0 / float(packing.radius.eigenvalues.sum()),
            "loss": state.loss,
        }

    def _run_quiet(
        self, config: MetricPackingConfig, state: MetricPackingState, X: F64, y: F64, rng: RoundRng
    ) -> F64:  # X: (n, d), y: (n,)
        """`play` and `learn` of quiet rounds in order; the forecasts."""
        values = np.array(state.packing.run(config, X, y, rng, state.t + 1))
        state.absorb(config, X.T, y, NO_WORK)
        state.loss = sum(self.loss(config).values(values, y).tolist(), state.loss)
        return values

    def _run_with_pieces(
        self, config: MetricPackingConfig, state: MetricPackingState, X: F64, y: F64, rng: RoundRng
    ) -> F64:  # X: (n, d), y: (n,)
        """`play` and `learn` of rounds with pieces of work in order, no more than `pieces_at_once`; the forecasts."""
        placements, pieces = state.packing.place_block(X.T, rng), state.pieces(config, X.T, y, rng)
        values = np.empty(len(y))
        for j, truth in enumerate(y.tolist()):
            rng.at(state.t + 1)
            played = self._played(config, state, X[j], truth, next(placements), next(pieces), rng)
            values[j] = played.forecast.value
            self.learn(config, state, played)
        return values

    def _played(
        self,
        config: MetricPackingConfig,
        state: MetricPackingState,
        x: F64,
        y: float,
        placement: Placement,
        piece: Piece,
        rng: RoundRng,
    ) -> MetricPackingRound:
        value = state.packing.value(config, placement.centre, placement.z)
        loss = self.loss(config).value(value, y)
        return MetricPackingRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), placement, piece)


def _require_near(square: float) -> None:
    """Raises DivergedError for an input with |x|^2 = `square` whose distances could overflow."""
    if not square <= FARTHEST_INPUT:
        raise DivergedError(f"an input of length {square**0.5:g}: distances would overflow; scale it down")
