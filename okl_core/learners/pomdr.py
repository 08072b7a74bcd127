r"""POMDR: optimistic mirror descent on the hinge loss that projects while its dictionary is small and prunes when full.

It plays f_t = f' + lambda_t g_t: the function learned so far and a step along the mean of the last M negative
gradients, a guess at the next one. A round with loss moves f' along its own gradient and lowers the rate by how wrong
the guess was, so that the regret follows the alignment of the kernel with the labels. Phase 1 (POMD) projects gradients
that nearly lie in the span of the dictionary S and stores the others, up to B0 points. Phase 2 (OMDR) stores every
gradient, and as soon as B points are stored gives the newer half's coefficients to their nearest points in the older.

========= ========================================================== ========== ===============
letter    meaning                                                    shape      where
========= ========================================================== ========== ===============
S, a      stored points, oldest first; f' = sum_i a_i k(x_i, .)      |S|        eq. (6)
g_t       (1/M_t) sum_{r<=M_t} y_{t-r} k(x_{t-r}, .), M_t=min(t-1,M) function   section 3
kappa, D  k(x_t, x_t) and its supremum                               scalar
G         sum of delta~ since the last removal                       scalar     eq. (10)
lambda_t  c U / sqrt(3 D + G), with c = 1 before a removal           scalar     eq. (10)
L, z      K_S = L L^T, z = L^{-1} k_S(x_t)                           |S|x|S|    appendix
alpha_t   kappa - z^T z: squared distance of k(x_t, .) to span S     scalar     ALD condition
beta      L^{-T} z: coefficients of the projection                   |S|        eq. (6)
grad~     -y k(x_t, .), or its projection                            function   algorithm 1
delta~_t  max(|grad~|^2 + 2 <grad~, g_t>, 0)                         scalar     algorithm 1
U, M      radius of the ball of f', length of the window             scalar
B0, B     stored points that end phase 1, that start a removal       scalar     algorithm 2
========= ========================================================== ========== ===============

One kernel row a round gives everything, since |grad~|^2 = z^T z and <f', grad~> = -y f'(x_t) for f' in span S.

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
from okl_core.errors import DivergedError
from okl_core.learners.pomdr_block import Block
from okl_core.learners.pomdr_step import PomdrConfig, PomdrState, Seen, Step, carry, decide, rate
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Round

BLOCK = 128
"""Rounds per block of `run`: enough to hide the calls, while the kernel values inside a block stay a small share."""


@dataclass(slots=True)
class PomdrRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    row: F64
    """k(., x_t) over the window's slots and S: (M + |S|,)."""
    kappa: float
    step: Step | None


@final
@register
class Pomdr(Learner[PomdrConfig, PomdrState, PomdrRound]):
    r"""Optimistic mirror descent with a budget, for two classes: its regret follows the alignment of the kernel.

    Time O(d |S| + |S|^2) a round in phase 1, O(d B) in phase 2; memory O(B0^2), then O(d B).

    Notes
    -----
    With A_T = sum kappa_t - y^T K y / T, D = 1, zeta = 1 and c = 1 the regret against every f in the ball is at most
    3 U sqrt(sum delta) + 9 U <= 6 U sqrt(A_T + 2) + 9 U while phase 1 lasts, and N removals add at most
    3 U sqrt(N sum delta) + 3 U sqrt(3 D) N.

    Against the paper: 3 D is the largest future delta in the rate, which nobody can know; c counts from the first
    removal on, as in the authors' program; D is the largest kappa so far for kernels without a bound. Without a
    `horizon` the ALD threshold and B0 follow T = max(1024, the power of two >= t), and nothing restarts. Every removal
    keeps the same half, so f' hardly follows a drift once one has happened.

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
        return PomdrState(
            t=0,
            points=config.kernel.points(dim),
            labels=np.zeros(config.window),
            coefficients=GrowingArray(),
            nearest=GrowingArray(),
            factor=Factor(),
            ring=GrowingArray(config.window),
            scale=1.0,
            norm2=0.0,
            gain=0.0,
            kappa=1.0 if config.kernel.translation_invariant else 0.0,
            phase=1,
            t_bar=0,
            removals=0,
            violations=0,
            ald_rounds=0,
            sum_delta=0.0,
        )

    def conditioning(self, config: PomdrConfig, state: PomdrState) -> float:
        a = np.concatenate((np.zeros(config.window), state.scale * state.coefficients.view))
        return max(1.0, config.kernel.mass(state.points, a)) if state.t else 1.0

    def extra_work(self, config: PomdrConfig, state: PomdrState, rounds: int) -> float:
        """A removal takes the kernel values between all points that it keeps."""
        is_near = len(state.coefficients) + rounds >= config.budget
        return KERNEL_WORK * (config.budget // 2) ** 2 / 2.0 if is_near else 0.0

    def predict(self, config: PomdrConfig, state: PomdrState, x: F64) -> Forecast:
        _, _, kappa, prime, g = _look(config, state, x)
        return Forecast(prime + rate(config, state, max(state.kappa, kappa)) * g)

    def play(self, config: PomdrConfig, state: PomdrState, x: F64, y: float, rng: RoundRng) -> PomdrRound:
        point, row, kappa, prime, g = _look(config, state, x)
        D = max(state.kappa, kappa)
        lambda_t = rate(config, state, D)
        value = prime + lambda_t * g
        loss = max(0.0, 1.0 - y * value)
        step = None
        if rng.decide(loss > 0.0):
            seen = Seen(y, lambda_t, kappa, D, prime, g)
            in_window = max(1, min(state.t, config.window))

            def average(beta: F64) -> float:
                return float(state.labels.dot(beta.dot(state.ring.view))) / in_window

            step = decide(config, state, seen, row[config.window :], average, rng)
        return PomdrRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), point, row, kappa, step)

    def learn(self, config: PomdrConfig, state: PomdrState, played: PomdrRound) -> None:
        M, point, step = config.window, played.point, played.step
        slot = state.t % M
        if state.t == 0:
            state.points.extend(np.tile(played.x, (M, 1)))
            # The first input has become the origin.
            point = state.points.encode(played.x)
        else:
            state.points.replace(slot, point)
        state.labels[slot] = played.y
        state.kappa = max(state.kappa, played.kappa)
        if step is not None:
            carry(config, state, step)
            if step.merged is not None:
                state.points.truncate(M + len(step.merged))
            elif step.beta is None:
                state.points.append_encoded(point)
                if state.phase == 1:
                    state.ring.append(played.row[:M])
        if state.phase == 1:
            column = state.ring.view[:, slot]
            # A point stored just now has no entry in the row, and kappa against itself.
            column[len(played.row) - M :] = played.kappa
            column[: len(played.row) - M] = played.row[M:]
        state.t += 1

    def run(self, config: PomdrConfig, state: PomdrState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        kappas = config.kernel.diag(X)
        if not np.isfinite(kappas).all():
            raise DivergedError("k(x, x) overflows; scale the inputs down")
        values: list[float] = []
        while (start := len(values)) < len(y):
            block = slice(start, start + rows_at_once(len(state.points), BLOCK))
            values += Block(config, state, X[block], y[block], kappas[block]).run(rng)
        played = np.array(values)
        return BlockInfo(state.t, played, self.loss(config).values(played, y), None, rng.finish())

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
            "rate": rate(config, state, D),
            "sum_delta": state.sum_delta,
            "violations": state.violations,
            "ald_rounds": state.ald_rounds,
            "t_bar": state.t_bar,
            "removals": N,
            "bound_pomd": 3.0 * U * root + 9.0 * U * math.sqrt(D),
            "bound_removals": 3.0 * U * math.sqrt(N) * root + 3.0 * U * math.sqrt(3.0 * D) * N,
        }


def _look(config: PomdrConfig, state: PomdrState, x: F64) -> tuple[F64, F64, float, float, float]:
    """x encoded, its kernel row over the window and S, kappa, f'(x) and g_t(x)."""
    M, t = config.window, state.t
    point = state.points.encode(x)
    kappa = config.kernel.at(x)
    if not math.isfinite(kappa):
        raise DivergedError("k(x, x) overflows; scale the inputs down")
    if t == 0:
        return point, np.full(M, kappa), kappa, 0.0, 0.0
    row = config.kernel.encoded_row(state.points, point)
    # scipy's calls of BLAS cost a third of numpy's, but take no empty arrays.
    prime = state.scale * ddot(state.coefficients.view, row[M:]) if len(row) > M else 0.0
    return point, row, kappa, prime, ddot(state.labels, row[:M]) / min(t, M)
