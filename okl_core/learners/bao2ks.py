r"""B(AO)2KS: optimistic mirror descent on the hinge loss that looks at few gradients, and restarts at its budget.

| symbol   | meaning                                                                         | shape  |
|----------|---------------------------------------------------------------------------------|--------|
| V, M     | the reservoir: M past rounds, drawn uniformly from all                          | (., d) |
| g        | (1/\|V\|) sum_{i in V} y_i k(x_i, .), minus the guess of the next gradient      |        |
| f'       | the function learned; S are the points it is made of                            |        |
| f_t      | f' + lambda g, projected: what predicts                                         |        |
| kappa    | k(x_t, x_t)                                                                     |        |
| e        | \|y k(x_t, .) - g\|, the error of the guess                                     |        |
| p, b     | e / (beta (e + \|g\|)), and a coin of that probability                          |        |
| lambda   | step size of round t                                                            |        |
| U        | radius of the ball that f' and f_t are projected to                             |        |
| B        | restart: f' = 0 and S is empty at the start of a round with \|S\| > B           |        |

Between two changes of V all that a round with loss does to f' is a multiple of g, and sometimes one point: the squared
norms and <f', g> follow as numbers.

References: [liao2021].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import KERNEL_WORK, rows_at_once
from okl_core.errors import DivergedError
from okl_core.learners.bao2ks_block import Block
from okl_core.learners.bao2ks_step import (
    Bao2ksConfig,
    Bao2ksState,
    Decision,
    Seen,
    carry,
    decide,
    forecast,
    restart,
    take_stock,
)
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Round

FEW = 8
"""Rounds below which a block takes longer than its rounds one by one."""

BLOCK = 128
"""Rounds per block of `run`: enough to hide the calls, while the kernel values inside a block stay a small share."""


@dataclass(slots=True)
class Bao2ksRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    decision: Decision


@final
@register
class Bao2ks(Learner[Bao2ksConfig, Bao2ksState, Bao2ksRound]):
    r"""Optimistic mirror descent with a reservoir of past gradients, for two classes; at its budget it starts again.

        f_t <- Proj_U(f' + lambda g);    if y f_t(x_t) < 1:    f' <- Proj_U(f' + lambda (g + (b/p) (y k(x_t, .) - g))),

    where only b needs the gradient of the round. Every point of V joins S then, and x_t if b = 1. Afterwards x_t takes a
    slot of V: the next free one, later a random one with probability M / t. Time and memory O(d (B + 2 M)) a round; a round
    that changes V O(d M B), which happens M (1 + ln(T / M)) times in the mean.

    Notes
    -----
    With A_T = sum kappa_t - y^T K y / T and B of the order of sqrt(A_T T ln T) the regret is O((A_T T ln T)^{1/4}) with high
    probability ([li2023], table 1).

    Against the paper: where the guess is right to rounding, p is 0. `reservoir` is given, and not derived from T.

    References: [liao2021], with one kernel; [li2023] for the experiments.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "bao2ks"}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([0.0])).value, 4)
    7.0711
    """

    kind: ClassVar[str] = "bao2ks"
    references: ClassVar[tuple[str, ...]] = ("liao2021",)
    config_type = Bao2ksConfig
    state_type = Bao2ksState

    def loss(self, config: Bao2ksConfig) -> Loss:
        return LOSSES["hinge"]

    def init(self, config: Bao2ksConfig, dim: int) -> Bao2ksState:
        M = config.reservoir
        return Bao2ksState(
            t=0,
            points=config.kernel.points(dim),
            labels=np.zeros(M),
            members=np.zeros(M),
            coefficients=GrowingArray.unpack(np.zeros(M)),
            scale=1.0,
            pull=0.0,
            norm2=0.0,
            inner=0.0,
            guess2=0.0,
            violations=0,
            sampled=0,
            restarts=0,
        )

    def conditioning(self, config: Bao2ksConfig, state: Bao2ksState) -> float:
        return max(1.0, config.kernel.mass(state.points, state.scale * state.coefficients.view)) if state.t else 1.0

    def extra_work(self, config: Bao2ksConfig, state: Bao2ksState, rounds: int) -> float:
        """Any round may change V: its coin decides."""
        return KERNEL_WORK * config.reservoir * len(state.points)

    def predict(self, config: Bao2ksConfig, state: Bao2ksState, x: F64) -> Forecast:
        _, prime, g = _look(config, state, x)
        return Forecast(forecast(config, state, prime, g))

    def play(self, config: Bao2ksConfig, state: Bao2ksState, x: F64, y: float, rng: RoundRng) -> Bao2ksRound:
        point, prime, g = _look(config, state, x)
        kappa = config.kernel.at(x)
        if not math.isfinite(kappa):
            raise _overflow()
        decision = decide(config, state, Seen(y, kappa, prime, g), rng)
        value = decision.value
        loss = max(0.0, 1.0 - y * value)
        return Bao2ksRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), point, decision)

    def learn(self, config: Bao2ksConfig, state: Bao2ksState, played: Bao2ksRound) -> None:
        M, points, a, slot = config.reservoir, state.points, state.coefficients, played.decision.slot
        point = played.point
        if state.t == 0:
            points.extend(np.tile(played.x, (M, 1)))
            # The first input has become the origin.
            point = points.encode(played.x)
        own, factor = carry(state, played.decision)
        if factor != 1.0:
            a.view[:] *= factor
        if slot >= 0:
            a.view[:M] += state.pull / max(1, min(state.t - 1, M)) * state.labels
            state.pull = 0.0
            if state.members[slot]:
                points.append_encoded(points.encoded(slot))
                a.append(a.view[slot])
            points.replace(slot, point)
            a.view[slot] = own
            state.labels[slot] = played.y
            state.members[slot] = float(own != 0.0)
        elif own != 0.0:
            points.append_encoded(point)
            a.append(own)
        if state.size > config.budget:
            points.truncate(M)
            a.truncate(M)
            a.view[:] = 0.0
            restart(state)
        if slot >= 0:
            _take_stock(config, state)

    def run(self, config: Bao2ksConfig, state: Bao2ksState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        kappas = config.kernel.diag(X)
        if not np.isfinite(kappas).all():
            raise _overflow()
        values = np.empty(len(y))
        start, M = 0, config.reservoir
        while start < len(y):
            rows = rows_at_once(max(M, len(state.points)), max(M, BLOCK))
            if rows < max(M, FEW):
                # The kernel values of the reservoir alone are more than a block may have, or it would hide nothing.
                played = self.play_and_learn(config, state, X[start], float(y[start]), rng)
                values[start] = played.forecast.value
                start += 1
                continue
            block = slice(start, start + min(rows, BLOCK))
            values[block] = Block(config, state, X[block], y[block], kappas[block]).run(rng)
            start = block.stop
        return BlockInfo(state.t, values, self.loss(config).values(values, y), None, rng.finish())

    def describe(self, config: Bao2ksConfig, state: Bao2ksState) -> dict[str, float]:
        arrays = (state.points, state.labels, state.members, state.coefficients)
        return {
            "t": state.t,
            "dictionary": state.size,
            "bytes": sum(array.nbytes for array in arrays),
            "step_size": config.eta(max(1, state.t)),
            "norm": math.sqrt(state.norm2),
            "violations": state.violations,
            "sampled": state.sampled,
            "restarts": state.restarts,
        }


def _look(config: Bao2ksConfig, state: Bao2ksState, x: F64) -> tuple[F64, float, float]:
    """x encoded, f'(x) and g(x)."""
    point = state.points.encode(x)
    if state.t == 0:
        return point, 0.0, 0.0
    M = config.reservoir
    row = config.kernel.encoded_row(state.points, point)
    g = ddot(state.labels, row[:M]) / min(state.t, M)
    return point, state.scale * (ddot(state.coefficients.view, row) + state.pull * g), g


def _take_stock(config: Bao2ksConfig, state: Bao2ksState) -> None:
    """<f', g> and |g|^2 once V has changed."""
    M = config.reservoir
    mean = state.labels / min(state.t, M)
    V, step = state.points.coordinates()[:M], rows_at_once(len(state.points), M)
    K = np.zeros(len(state.points))
    for start in range(0, M, step):
        part = slice(start, start + step)
        K += config.kernel.block(state.points, V[part]) @ mean[part]
    take_stock(state, float(state.coefficients.view @ K), float(mean @ K[:M]))


def _overflow() -> DivergedError:
    return DivergedError("k(x, x) overflows; scale the inputs down")
