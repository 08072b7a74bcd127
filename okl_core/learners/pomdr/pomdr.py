r"""POMDR: optimistic mirror descent with the hinge loss and a dictionary of bounded size.

It predicts with f_t = f' + lambda_t g_t: the function learned so far, and a step along the mean of the last M negative
gradients, which is a guess at the next one. A round with loss moves f' along its own gradient. The worse the guess was,
the more the rate lambda_t falls: so the regret follows the alignment of the kernel with the labels. Phase 1 (POMD)
projects gradients that nearly lie in the span of the dictionary S, and stores the others, up to B0 points. Phase 2 (OMDR)
stores every gradient, and removes half of the points whenever there are B.

`pomdr_round` and `pomdr_removal` have the equations, and a table of their letters.

References: [li2023].
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
from okl_core.first_order.in_blocks import BLOCK, run_in_blocks
from okl_core.kernels.rounding import magnified
from okl_core.learners.pomdr.pomdr_block import PomdrBlock
from okl_core.learners.pomdr.pomdr_round import PomdrStep, PomdrView, absorb, learning_rate, mirror_step
from okl_core.learners.pomdr.pomdr_state import POMD, PomdrConfig, PomdrState
from okl_core.linalg.guards import kernel_overflow
from okl_core.losses import LOSSES, Loss
from okl_core.second_order.embedding import INDEPENDENT
from okl_core.types import F64, BlockInfo, Forecast, Round


@dataclass(slots=True)
class PomdrRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    row: F64
    """k(., x_t) over the window's slots and S: (M + |S|,)."""
    kappa: float
    step: PomdrStep | None
    """None without loss."""


@final
@register
class Pomdr(Learner[PomdrConfig, PomdrState, PomdrRound]):
    r"""Optimistic mirror descent with a budget, for two classes: its regret follows the alignment of the kernel.

    Time O(d |S| + |S|^2) a round in phase 1, O(d B) in phase 2; memory O(B0^2), then O(d B).

    Notes
    -----
    With A_T = sum kappa_t - y^T K y / T, D = 1, zeta = 1 and c = 1 the regret against every f in the ball is at most
    3 U sqrt(sum delta) + 9 U + 0.002 U P <= 6 U sqrt(A_T + 2) + 9 U + 0.002 U P while phase 1 lasts, with P projections,
    and N removals add at most 3 U sqrt(N sum delta) + 3 U sqrt(3 D) N.

    Against the paper: a gradient with alpha <= 1e-6 kappa is always projected, for at most |lambda_t g_t - f| sqrt(alpha)
    <= 0.002 U more, as f' lies in span S; the rate has 3 D where the paper has the largest delta to come, which nobody knows;
    c counts from the first removal on, as in the authors' program; D is the largest kappa so far for kernels without a bound.
    Without a `horizon` the ALD threshold and B0 follow T = max(1024, the power of two >= t), and nothing restarts. All
    removals keep the same points: after the first one f' hardly follows a drift.

    References: [li2023] algorithms 1 and 2, theorems 2 and 3.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "pomdr"}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([0.0])).value, 4)
    26.9338
    """

    kind: ClassVar[str] = "pomdr"
    references: ClassVar[tuple[str, ...]] = ("li2023",)
    config_type = PomdrConfig
    state_type = PomdrState

    def loss(self, config: PomdrConfig) -> Loss:
        return LOSSES["hinge"]

    def init(self, config: PomdrConfig, dim: int) -> PomdrState:
        return PomdrState.empty(config, dim)

    def conditioning(self, config: PomdrConfig, state: PomdrState) -> float:
        """From the coefficients, and from the points that gradients were projected to: phase 2 inherits that rounding."""
        if not len(state.coefficients):
            return 1.0
        a = np.concatenate((np.zeros(config.window), state.scale * state.coefficients.view))
        K = config.kernel.gram(state.points.coordinates()[state.of_phase_1(config)])
        norms = np.sqrt(np.diag(K))
        return magnified(float(np.linalg.cond(K / np.outer(norms, norms))), config.kernel.mass(state.points, a))

    def extra_work(self, config: PomdrConfig, state: PomdrState, rounds: int) -> float:
        """A removal computes the kernel matrix of the points that it keeps."""
        is_near = len(state.coefficients) + rounds >= config.budget
        return KERNEL_WORK * (config.budget // 2) ** 2 / 2.0 if is_near else 0.0

    def predict(self, config: PomdrConfig, state: PomdrState, x: F64) -> Forecast:
        _, _, kappa, prime, g = _look(config, state, x)
        return Forecast(prime + learning_rate(config, state, max(state.kappa, kappa)) * g)

    def play(self, config: PomdrConfig, state: PomdrState, x: F64, y: float, rng: RoundRng) -> PomdrRound:
        point, row, kappa, prime, g = _look(config, state, x)
        M, D = config.window, max(state.kappa, kappa)
        lambda_t = learning_rate(config, state, D)
        # Line 4, eq. (2): f_t = f' + lambda_t g_t
        value = prime + lambda_t * g
        loss = max(0.0, 1.0 - y * value)
        step = None
        if rng.decide(loss > 0.0):

            def guess_product(beta: F64) -> float:
                return float(state.labels.dot(beta.dot(state.ring.view))) / state.in_window(config)

            def kept() -> F64:
                return state.points.coordinates()[M : M + config.budget // 2]

            view = PomdrView(y, lambda_t, kappa, D, prime, g, row[M:])
            step = mirror_step(config, state, view, guess_product, kept, rng)
        return PomdrRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), point, row, kappa, step)

    def learn(self, config: PomdrConfig, state: PomdrState, played: PomdrRound) -> None:
        M, point, step = config.window, played.point, played.step
        if step is not None:
            # First, since the factor may refuse a point.
            absorb(config, state, step)
        slot = state.t % M
        if state.t == 0:
            state.points.extend(np.tile(played.x, (M, 1)))
            # The first input has become the origin.
            point = state.points.encode(played.x)
        else:
            state.points.replace(slot, point)
        state.labels[slot] = played.y
        state.kappa = max(state.kappa, played.kappa)
        if step is not None and step.removal is not None:
            state.points.truncate(M + config.budget // 2)
        elif step is not None and step.beta is None:
            state.points.append_encoded(point)
            if state.phase == POMD:
                state.ring.append(played.row[:M])
        if state.phase == POMD:
            column, s = state.ring.view[:, slot], len(played.row) - M
            column[:s] = played.row[M:]
            # A point stored just now has no entry in the row: it is x_t.
            column[s:] = played.kappa
        state.t += 1

    def run(self, config: PomdrConfig, state: PomdrState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        kappas = config.kernel.diag(X)
        if not np.isfinite(kappas).all():
            raise kernel_overflow()

        def play(start: int) -> list[float]:
            block = slice(start, start + rows_at_once(len(state.points), BLOCK))
            return PomdrBlock(config, state, X[block], y[block], kappas[block]).run(rng)

        return run_in_blocks(self.loss(config), state, y, play, rng)

    def describe(self, config: PomdrConfig, state: PomdrState) -> dict[str, float]:
        U, D, N = config.norm_bound, state.kappa, state.removals
        arrays = (state.points, state.labels, state.coefficients, state.nearest, state.factor, state.ring)
        # The tables leave out the first round; its delta is at most D.
        root = math.sqrt(state.sum_delta + D)
        return {
            "t": state.t,
            "dictionary": len(state.coefficients),
            "bytes": sum(array.nbytes for array in arrays),
            "phase": state.phase,
            "norm": math.sqrt(state.norm2),
            "rate": learning_rate(config, state, D),
            "sum_delta": state.sum_delta,
            "violations": state.violations,
            "ald_rounds": state.ald_rounds,
            "t_bar": state.t_bar,
            "removals": N,
            "bound_pomd": 3.0 * U * root + U * math.sqrt(D) * (9.0 + 2.0 * math.sqrt(INDEPENDENT) * state.ald_rounds),
            "bound_removals": 3.0 * U * math.sqrt(N) * root + 3.0 * U * math.sqrt(3.0 * D) * N,
        }


def _look(config: PomdrConfig, state: PomdrState, x: F64) -> tuple[F64, F64, float, float, float]:
    """The encoded x, its kernel row over the window and S, kappa, f'(x) and g_t(x)."""
    M, t = config.window, state.t
    point, kappa = state.points.encode(x), config.kernel.at(x)
    if not math.isfinite(kappa):
        raise kernel_overflow()
    if t == 0:
        return point, np.full(M, kappa), kappa, 0.0, 0.0
    row = config.kernel.encoded_row(state.points, point)
    # scipy's calls of BLAS cost a third of numpy's, but take no empty arrays.
    prime = state.scale * ddot(state.coefficients.view, row[M:]) if len(row) > M else 0.0
    return point, row, kappa, prime, ddot(state.labels, row[:M]) / min(t, M)
