r"""Online gradient descent in the space of the kernel: the first-order method that the others are measured against.

`kernel_ogd_round` has the equations, and a table of their letters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.first_order.in_blocks import BLOCK, FEW, run_in_blocks
from okl_core.learners.kernel_ogd.kernel_ogd_block import KernelOgdBlock
from okl_core.learners.kernel_ogd.kernel_ogd_round import KernelOgdStep, OldestPoint, absorb, projected_step
from okl_core.learners.kernel_ogd.kernel_ogd_state import KernelOgdConfig, KernelOgdState
from okl_core.linalg.guards import kernel_overflow
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Interval, Round


@dataclass(slots=True)
class KernelOgdRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    step: KernelOgdStep


@final
@register
class KernelOgd(Learner[KernelOgdConfig, KernelOgdState, KernelOgdRound]):
    r"""Online gradient descent in the kernel's feature space: the plain first-order method, NORMA if it is regularized.

        f <- (1 - eta lambda) f - eta g k(x_t, .),

    then the oldest point is dropped if more than B are stored, and then f is projected to |f| <= U. A round without
    loss stores nothing. Time O(d s) a round with s stored points, and as much again where a point is dropped and |f| is
    kept, which a norm bound needs; memory O(d s).

    Notes
    -----
    While nothing was dropped the regret against every f, with (lambda / 2) |f|^2 added to each loss, is at most

        1/2 sum eta |g k(x_t, .) + lambda f_t|^2      `bound_gradient`

    and one term more: nothing for `inverse-t`; |f|^2 / (2 eta) if eta is a number; 2 U^2 / eta_T for `inverse-sqrt` and
    |f| <= U. With lambda = 0 that is, altogether,

        U L sqrt(D T)                  for the number eta = U / (L sqrt(D T)), if |f| <= U,
        (c + 2 / c) U L sqrt(D T)      for `inverse-sqrt`, eta = c U / (L sqrt(D t)); least for the step factor c = sqrt(2),
        2 L^2 D (1 + log T) / lambda   for `inverse-t`, with its lambda > 0.

    L is the largest |l'| in the ball. Forecasts of the squared loss are clipped to [-C, C], which bounds its L; g is the
    derivative at the clipped value, and the bounds stay as they are.

    A point that is dropped is at least B rounds old. If eta is a number and lambda > 0, all points that were ever dropped
    would by now form a function of norm (1 - eta lambda)^B L sqrt(D) / lambda at most. If lambda = 0, nothing is
    guaranteed once a point was dropped.

    Against the papers: the margin is 1; a value within 1e-10 of the truth, or of the hinge's kink, counts as one without
    loss; for kernels without a bound D is the largest kappa so far.

    References: [kivinen2004]; [zinkevich2003] theorem 1; [hazan2007] theorem 1.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "kernel-ogd", "config": {"step_size": 0.5}}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> learner.predict(np.array([0.0])).value
    0.5
    """

    kind: ClassVar[str] = "kernel-ogd"
    references: ClassVar[tuple[str, ...]] = ("kivinen2004", "zinkevich2003", "hazan2007")
    config_type = KernelOgdConfig
    state_type = KernelOgdState

    def loss(self, config: KernelOgdConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: KernelOgdConfig) -> Interval:
        return -config.forecast_bound, config.forecast_bound

    def init(self, config: KernelOgdConfig, dim: int) -> KernelOgdState:
        return KernelOgdState.empty(config, dim)

    def conditioning(self, config: KernelOgdConfig, state: KernelOgdState) -> float:
        return max(1.0, config.kernel.mass(state.points, state.scale * state.coefficients.view))

    def predict(self, config: KernelOgdConfig, state: KernelOgdState, x: F64) -> Forecast:
        _, _, m = _look(config, state, x)
        return self.loss(config).forecast(config.value(m))

    def play(self, config: KernelOgdConfig, state: KernelOgdState, x: F64, y: float, rng: RoundRng) -> KernelOgdRound:
        point, row, m = _look(config, state, x)
        kappa = config.kernel.at(x)
        if not math.isfinite(kappa):
            raise kernel_overflow()
        oldest = None
        if len(state.coefficients) == config.budget and config.has_norm:
            oldest = partial(_oldest, config, state, row)
        step = projected_step(config, state, y, m, kappa, oldest, rng)
        loss = self.loss(config)
        forecast = loss.forecast(step.value)
        return KernelOgdRound(state.t + 1, x, y, forecast, loss.value(step.value, y), rng.choices(), point, step)

    def learn(self, config: KernelOgdConfig, state: KernelOgdState, played: KernelOgdRound) -> None:
        a = state.coefficients
        factor = absorb(state, played.step)
        if factor != 1.0:
            a.view[:] *= factor
        if not played.step.has_loss:
            return
        weight = played.step.weight / state.scale
        if len(a) == config.budget:
            state.points.replace(state.oldest, played.point)
            a.view[state.oldest] = weight
            state.oldest = (state.oldest + 1) % len(a)
            state.dropped += 1
        else:
            state.points.append(played.x)
            a.append(weight)

    def run(self, config: KernelOgdConfig, state: KernelOgdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        kappas = config.kernel.diag(X)
        if not np.isfinite(kappas).all():
            raise kernel_overflow()

        def play(start: int) -> list[float]:
            rows = rows_at_once(len(state.points), BLOCK)
            if rows < FEW:
                return [self.play_and_learn(config, state, X[start], y.item(start), rng).forecast.value]
            block = slice(start, start + rows)
            return KernelOgdBlock(config, state, X[block], y[block], kappas[block]).run(rng)

        return run_in_blocks(self.loss(config), state, y, play, rng)

    def describe(self, config: KernelOgdConfig, state: KernelOgdState) -> dict[str, float]:
        numbers: dict[str, float] = {
            "t": state.t,
            "dictionary": len(state.coefficients),
            "bytes": state.points.nbytes + state.coefficients.nbytes,
            "dropped": state.dropped,
            "step_size": config.eta(max(1, state.t), state.kappa),
        }
        if config.has_norm:
            numbers |= {"norm": math.sqrt(state.norm2), "bound_gradient": state.bound_gradient}
        return numbers


def _look(config: KernelOgdConfig, state: KernelOgdState, x: F64) -> tuple[F64, F64, float]:
    """The encoded x, its kernel row, and f(x)."""
    point = state.points.encode(x)
    row = config.kernel.encoded_row(state.points, point)
    # scipy's calls of BLAS cost a third of numpy's, but take no empty arrays.
    m = state.scale * ddot(state.coefficients.view, row) if len(row) else 0.0
    return point, row, m


def _oldest(config: KernelOgdConfig, state: KernelOgdState, row: F64) -> OldestPoint:
    """The point that is dropped next, for the kernel row k(., x_t)."""
    i = state.oldest
    own = config.kernel.encoded_row(state.points, state.points.encoded(i))
    f = state.scale * ddot(state.coefficients.view, own)
    return OldestPoint(state.scale * state.coefficients.view.item(i), f, row.item(i), own.item(i))
