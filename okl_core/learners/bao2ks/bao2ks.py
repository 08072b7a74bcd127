r"""B(AO)2KS: optimistic mirror descent with the hinge loss that looks at few gradients, and restarts at its budget.

`bao2ks_round` has the equations, and a table of their letters.

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
from okl_core.first_order.in_blocks import BLOCK, FEW, run_in_blocks
from okl_core.learners.bao2ks.bao2ks_block import Bao2ksBlock
from okl_core.learners.bao2ks.bao2ks_round import (
    Bao2ksDecision,
    Bao2ksView,
    absorb,
    absorb_guess,
    decide_round,
    optimistic_value,
    restart,
)
from okl_core.learners.bao2ks.bao2ks_state import Bao2ksConfig, Bao2ksState
from okl_core.linalg.guards import kernel_overflow
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Round


@dataclass(slots=True)
class Bao2ksRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    decision: Bao2ksDecision


@final
@register
class Bao2ks(Learner[Bao2ksConfig, Bao2ksState, Bao2ksRound]):
    r"""Optimistic mirror descent with a reservoir of past gradients, for two classes; it restarts at its budget.

        f_t <- Proj_U(f' + lambda g);    if y f_t(x_t) < 1:    f' <- Proj_U(f' + lambda (g + (b/p) (y k(x_t, .) - g))),

    where b is a coin: only if it is 1 the gradient of the round is looked at, and x_t joins S. All points of V join S in
    both cases. Then x_t takes a slot of V: a free one in the first M rounds, later a random one with probability M / t.

    Time O(d (B + 2 M)) a round, and O(d M B) where V changes, which happens M (1 + ln(T / M)) times in the mean. Memory
    O(d (B + 2 M)).

    Notes
    -----
    With A_T = sum kappa_t - y^T K y / T and B of the order of sqrt(A_T T ln T) the regret is O((A_T T ln T)^{1/4}) with high
    probability ([li2023], table 1).

    With mixed labels g cancels, but its rounding does not: f_t(x) may be off by 0.01 eps kappa. With a linear kernel and
    offsets of 1e9, or a polynomial one of degree 2 and offsets of 1e7, forecasts are noise, and another processor replays
    others than `replay_tolerance` allows: scale such inputs down.

    Against the paper: p is 0 where the guess is right up to rounding, and the `reservoir` does not follow from T.

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
        return Bao2ksState.empty(config, dim)

    def conditioning(self, config: Bao2ksConfig, state: Bao2ksState) -> float:
        """That of f' + lambda g, without the projection."""
        if not state.t:
            return 1.0
        a = state.scale * np.abs(state.coefficients.view)
        of_g = state.scale * abs(state.pull) + config.eta(state.t + 1)
        a[: config.reservoir] += of_g * np.abs(state.guess_weights())
        return max(1.0, config.kernel.mass(state.points, a))

    def extra_work(self, config: Bao2ksConfig, state: Bao2ksState, rounds: int) -> float:
        """Any round may change V; a coin decides."""
        return KERNEL_WORK * config.reservoir * len(state.points)

    def predict(self, config: Bao2ksConfig, state: Bao2ksState, x: F64) -> Forecast:
        _, prime, g = _look(config, state, x)
        return Forecast(optimistic_value(config, state, prime, g))

    def play(self, config: Bao2ksConfig, state: Bao2ksState, x: F64, y: float, rng: RoundRng) -> Bao2ksRound:
        point, prime, g = _look(config, state, x)
        kappa = config.kernel.at(x)
        if not math.isfinite(kappa):
            raise kernel_overflow()
        decision = decide_round(config, state, Bao2ksView(y, kappa, prime, g), rng)
        value = decision.value
        loss = max(0.0, 1.0 - y * value)
        return Bao2ksRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), point, decision)

    def learn(self, config: Bao2ksConfig, state: Bao2ksState, played: Bao2ksRound) -> None:
        M, points, a, slot = config.reservoir, state.points, state.coefficients, played.decision.slot
        point, guess = played.point, state.guess_weights() if slot >= 0 else None
        if state.t == 0:
            points.extend(np.tile(played.x, (M, 1)))
            # The first input has become the origin.
            point = points.encode(played.x)
        own, factor = absorb(state, played.decision)
        if factor != 1.0:
            a.view[:] *= factor
        if guess is not None:
            a.view[:M] += state.pull * guess
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
            _look_at_guess(config, state)

    def run(self, config: Bao2ksConfig, state: Bao2ksState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        kappas = config.kernel.diag(X)
        if not np.isfinite(kappas).all():
            raise kernel_overflow()
        M = config.reservoir

        def play(start: int) -> list[float]:
            rows = rows_at_once(max(M, len(state.points)), max(M, BLOCK))
            if rows < max(M, FEW):
                # The kernel values of the reservoir alone are more than a block may have, or it would hide nothing.
                return [self.play_and_learn(config, state, X[start], y.item(start), rng).forecast.value]
            block = slice(start, start + min(rows, BLOCK))
            return Bao2ksBlock(config, state, X[block], y[block], kappas[block]).run(rng)

        return run_in_blocks(self.loss(config), state, y, play, rng)

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
    """The encoded x, f'(x) and g(x)."""
    point = state.points.encode(x)
    if state.t == 0:
        return point, 0.0, 0.0
    M = config.reservoir
    row = config.kernel.encoded_row(state.points, point)
    g = ddot(state.labels, row[:M]) / min(state.t, M)
    return point, state.scale * (ddot(state.coefficients.view, row) + state.pull * g), g


def _look_at_guess(config: Bao2ksConfig, state: Bao2ksState) -> None:
    """Carry a V that has changed into <f', g> and |g|^2."""
    M, guess = config.reservoir, state.guess_weights()
    V, step = state.points.coordinates()[:M], rows_at_once(len(state.points), M)
    # g at every point.
    K_g = np.zeros(len(state.points))
    for start in range(0, M, step):
        part = slice(start, start + step)
        K_g += config.kernel.block(state.points, V[part]) @ guess[part]
    absorb_guess(state, float(state.coefficients.view @ K_g), float(guess @ K_g[:M]))
