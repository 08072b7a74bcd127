"""Packing under a metric that is learned from the same stream: regression on functions that vary in few directions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar, NamedTuple, final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError, StateFormatError
from okl_core.learners.metric_packing_step import (
    MetricPackingConfig,
    Transition,
    at_once,
    last_phase_end,
    measure,
    metric_of,
    phase_after,
    phase_end,
    replay,
)
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.nearest import FARTHEST
from okl_core.losses import LOSSES, Loss
from okl_core.metrics.mahalanobis import Metric
from okl_core.packing.balls import Packing, Placement
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round

WORK_BLOCK = 32
"""Rounds of a block of `run` while there is work: some hundreds of rounds are played again in it."""

EIGEN_WORK = 20
"""What an eigenvector takes, for each of d^2 numbers and in the units of `LONG_WORK`."""

DISTANCE_WORK = 10
"""What a distance takes, for each input."""

FARTHEST_INPUT = 0.5 * FARTHEST
"""|x|^2 at most. No metric makes it larger, so that a stored round fits into each that is to come."""


@dataclass(slots=True)
class MetricPackingState(LearnerState):
    """The packing that predicts; all rounds so far, until the metric is final; and the work on the next packing."""

    packing: Packing
    X: GrowingArray
    """Shape (t, d), or (0, d)."""
    y: GrowingArray
    transition: Transition | None
    loss: float


class Work(NamedTuple):
    """What a round does for the packing to come."""

    slopes: F64 = np.empty(0)
    replayed: Sequence[Placement] = ()
    successor: Packing | None = None
    """Made at once."""


@dataclass(slots=True)
class MetricPackingRound(Round):
    placement: Placement
    work: Work


@final
@register
class MetricPacking(Learner[MetricPackingConfig, MetricPackingState, MetricPackingRound]):
    r"""Means over balls of a metric learned on the way: small where the function hardly changes, so that few balls do.

    Phase i has 2^i rounds, the first one with M = I. At its end the gradient outer product G of the function is estimated
    from all n rounds so far (`gradient_outer_product`, in units of `truth_range`), and with mu_1 its largest eigenvalue

        M = G + n^-alpha mu_1 I,   or I if G = 0,

    divided by its largest eigenvalue is the metric of a new packing (`packing.balls`) for the next phase. All
    rounds so far are played to it first, in order, unless `refeed` is false. `estimate` is that of `packing`.

    Time of a round: that of `packing`; an eighth of them, behind the end of each phase, bear a slice of the work as well:
    32 d `evaluation_points` + 2 n distances at most, or 18 rounds played again. With more than 16 inputs it is three
    fifths of them, and slices are smaller. Memory: 9/8 `memory` (d + 1) numbers, or 8/5 then, d + 3 a
    centre, or d^2 + 3 d + 3 with `estimate` "linear", twice that during the work; growing arrays may have as much to spare.

    Notes
    -----
    For independent inputs in the unit ball with truths in [0, 1], a smooth regression function f, and G estimated well
    enough, the regret against f is of the order

        (1 + sqrt(sum_j (|grad_{u_j} f| + |grad_V f|)^2 / (mu_j / mu_1))) T^(rho / (1 + rho))

    with rho the effective rank of the true G with 2 n^-alpha added to its eigenvalues: theorem 2. Of linear fits nothing is
    claimed.

    Against the paper: one sample in a ball is enough for a slope, since the number that it asks for leaves G = 0; gamma is
    relative to mu_1, and alpha is 1, since with alpha = 1/2 it outweighs small gradients; rounds are played again, which
    halves the regret; the work is spread, so that no round waits for it; and the last phase that fits into `memory` is
    followed by an endless one, where all rounds so far are in the packing and no longer stored. With `refeed` and
    `spread` false and `memory` null it is the published algorithm, but for the constants.

    The metric is M of `state()`: M = root^T root of "packing.metric.root", shape (d, d) or (d,) if diagonal;
    `okl_core.gradient.learned_metric` gives it.

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
        """What is not spread: the eigenvectors of a new metric, or all the work at the end of a phase."""
        d, transition = state.packing.metric.dim, state.transition
        if transition is not None:
            is_due = transition.packing is None and transition.rounds_left(state.t) <= rounds
            return float(EIGEN_WORK * d**3) if is_due else 0.0
        end = phase_end(phase_after(state.t))
        if config.spread or end > min(state.t + rounds, last_phase_end(config)):
            return 0.0
        points = config.evaluation_points * d + (len(state.packing) if config.refeed else 0)
        return float(EIGEN_WORK * d**3 + DISTANCE_WORK * points * end * d)

    def init(self, config: MetricPackingConfig, dim: int) -> MetricPackingState:
        return MetricPackingState(
            0, Packing.of(config, Metric.identity(dim)), GrowingArray(dim), GrowingArray(), transition=None, loss=0.0
        )

    def unpack(self, config: MetricPackingConfig, arrays: Mapping[str, F64]) -> MetricPackingState:
        state = super().unpack(config, arrays)
        dim, n = state.packing.metric.dim, len(state.y)
        if state.X.view.shape != (n, dim):
            raise StateFormatError(f"{n} truths with inputs of shape {state.X.view.shape}, the packing has {dim}")
        if state.transition is not None and not state.transition.fits(dim, n):
            raise StateFormatError(f"work on a metric that does not go with {n} rounds of {dim} inputs")
        state.packing.require_estimate(config)
        if state.transition is not None and state.transition.packing is not None:
            state.transition.packing.require_estimate(config)
        return state

    def predict(self, config: MetricPackingConfig, state: MetricPackingState, x: F64) -> Forecast:
        _check_size(ddot(x, x))
        return Forecast(state.packing.predict(config, x))

    def play(
        self, config: MetricPackingConfig, state: MetricPackingState, x: F64, y: float, rng: RoundRng
    ) -> MetricPackingRound:
        _check_size(ddot(x, x))
        placement = state.packing.place(x, rng)
        work = next(_work(config, state, x[None, :], np.array([y]), rng))
        return self._played(config, state, x, y, placement, work, rng)

    def _played(
        self,
        config: MetricPackingConfig,
        state: MetricPackingState,
        x: F64,
        y: float,
        placement: Placement,
        work: Work,
        rng: RoundRng,
    ) -> MetricPackingRound:
        value = state.packing.value(config, placement.centre, placement.z)
        loss = self.loss(config).value(value, y)
        return MetricPackingRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), placement, work)

    def learn(self, config: MetricPackingConfig, state: MetricPackingState, played: MetricPackingRound) -> None:
        state.packing.absorb(config, played.placement, played.y)
        _count(config, state, played.x[None, :], np.array([played.y]), played.loss)
        if played.work.successor is not None:
            _succeed(config, state, played.work.successor)
        elif state.transition is not None:
            _carry(config, state, state.transition, played.work)
        elif _is_phase_end(config, state.t):
            state.transition = Transition.begin(config, state.t, state.packing.metric.dim)

    def run(self, config: MetricPackingConfig, state: MetricPackingState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        _check_size(float(np.einsum("ij,ij->i", X, X).max(initial=0.0)))
        values, start = np.empty(len(y)), 0
        while start < len(y):
            is_quiet, rounds = _rounds_alike(config, state)
            block = slice(start, min(len(y), start + rounds))
            if is_quiet:
                values[block] = state.packing.run(config, X[block], y[block], rng, state.t + 1)
                losses = self.loss(config).values(values[block], y[block])
                _count(config, state, X[block], y[block], sum(losses.tolist()))
            else:
                values[block] = self._run_with_work(config, state, X[block], y[block], rng)
            start = block.stop
        return BlockInfo(state.t, values, self.loss(config).values(values, y), None, rng.finish())

    def _run_with_work(
        self, config: MetricPackingConfig, state: MetricPackingState, X: F64, y: F64, rng: RoundRng
    ) -> list[float]:
        """`play` and `learn` of rounds in order, no more than `_rounds_alike`; the forecasts."""
        values: list[float] = []
        placements, works = state.packing.place_block(X, rng), _work(config, state, X, y, rng)
        for x, truth in zip(X, y.tolist(), strict=True):
            rng.at(state.t + 1)
            placement, work = next(placements), next(works)
            played = self._played(config, state, x, truth, placement, work, rng)
            values.append(played.forecast.value)
            self.learn(config, state, played)
        return values

    def describe(self, config: MetricPackingConfig, state: MetricPackingState) -> dict[str, float]:
        packing = state.packing
        work = 0 if state.transition is None else state.transition.nbytes
        return {
            "t": state.t,
            "dictionary": len(packing),
            "bytes": packing.nbytes + state.X.nbytes + state.y.nbytes + work,
            "phase": _phase(config, state.t),
            "stored": len(state.y),
            "effective_rank": packing.rank,
            "radius": packing.radius,
            "top_share": 1.0 / float(packing.metric.eigenvalues.sum()),
            "loss": state.loss,
        }


def _check_size(square: float) -> None:
    if not square <= FARTHEST_INPUT:
        raise DivergedError(f"an input of length {square**0.5:g}: distances would overflow; scale it down")


def _phase(config: MetricPackingConfig, t: int) -> int:
    """The phase of round t + 1; the last one has no end."""
    last = last_phase_end(config)
    return phase_after(t if t < last else int(last))


def _is_phase_end(config: MetricPackingConfig, t: int) -> bool:
    """Is a metric learned at the end of round t?"""
    return t == phase_end(phase_after(t - 1)) and t <= last_phase_end(config)


def _rounds_alike(config: MetricPackingConfig, state: MetricPackingState) -> tuple[bool, int]:
    """Whether nothing but the packing changes in the next round, and how many rounds are like it; not too many."""
    if state.transition is not None:
        return False, min(WORK_BLOCK, state.transition.rounds_left(state.t))
    if state.t >= last_phase_end(config):
        return True, sys.maxsize
    quiet = phase_end(phase_after(state.t)) - state.t - 1
    return (True, quiet) if quiet else (False, 1)


def _work(config: MetricPackingConfig, state: MetricPackingState, X: F64, y: F64, rng: RoundRng) -> Iterator[Work]:
    """The work of each of the next rounds, X of shape (m, d), y of shape (m,); no more than `_rounds_alike`. Pure."""
    transition, m = state.transition, len(y)
    if transition is not None and transition.packing is None:
        size = transition.slopes_a_round
        pairs = range(transition.done, min(transition.v.size, transition.done + m * size))
        known = state.y.view[: transition.n]
        for slopes in measure(config, transition.columns(state.X.view), known, pairs, size, rng):
            yield Work(slopes=slopes)
    elif transition is not None and transition.packing is not None:
        packing = transition.packing
        for replayed in replay(packing, state.X.view[packing.t :], X, rng):
            yield Work(replayed=replayed)
    elif not config.spread and _is_phase_end(config, state.t + 1):
        yield Work(successor=at_once(config, np.vstack((state.X.view, X)), np.append(state.y.view, y), rng))
    else:
        yield from repeat(Work(), m)


def _carry(config: MetricPackingConfig, state: MetricPackingState, transition: Transition, work: Work) -> None:
    """Carry the work of the round into the state."""
    packing = transition.packing
    if packing is not None:
        for placement in work.replayed:
            packing.absorb(config, placement, state.y.view.item(packing.t))
        if packing.t == state.t:
            _succeed(config, state, packing)
        return
    transition.take(work.slopes)
    if transition.done == transition.v.size:
        packing = Packing.of(config, metric_of(config, transition.v, transition.n))
        if config.refeed:
            transition.begin_replay(packing)
        else:
            _succeed(config, state, packing)


def _count(config: MetricPackingConfig, state: MetricPackingState, X: F64, y: F64, loss: float) -> None:
    """Count rounds that the packing has absorbed, and store them if they are needed again."""
    if state.t < last_phase_end(config) or state.transition is not None:
        state.X.extend(X)
        state.y.extend(y)
    state.t += len(y)
    state.loss += loss


def _succeed(config: MetricPackingConfig, state: MetricPackingState, packing: Packing) -> None:
    """Go on with this packing."""
    state.packing, state.transition = packing, None
    if state.t >= last_phase_end(config):
        state.X, state.y = GrowingArray(packing.metric.dim), GrowingArray()
