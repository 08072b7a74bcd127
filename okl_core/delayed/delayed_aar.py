r"""The Aggregating Algorithm with late truths: inputs are learned when the forecast is issued, truths when they arrive.

| symbol | meaning                                                                                         | shape |
|--------|-------------------------------------------------------------------------------------------------|-------|
| A_t    | a I + sum_{s <= t} phi_s phi_s^T: over all inputs including x_t, with or without a truth          |       |
| M_t    | the rounds whose truths are missing when round t is forecast                                    |       |
| m, q   | phi_t^T A_{t-1}^{-1} sum_{s < t, s not in M_t} y_s phi_s, and phi_t^T A_{t-1}^{-1} phi_t            |       |
| Y      | the clip                                                                                        |       |
| L, z, r | as in `second_order.kernel_space`; a round joins L when it is issued, its truth joins r later   |       |
| l_j    | L^{-1} e_j of a waiting round j                                                                   | (t,)  |
| b_tj   | phi_t^T A_t^{-1} phi_j = z^T l_j / (1 + q)                                                         |       |

The forecast is clip(m / (1 + q)). A truth adds y l_j to r, and a new row of L appends -z^T l_j / delta to l_j: the product
that measures the effect of the missing truth on the forecast also updates the vector. A round whose input is too small for L
has no l_j: its truth joins N of `second_order.kernel_space` when it arrives, and the bound sqrt(lambda_t kappa_j / a) >=
|b_tj| replaces b_tj, with lambda_t = q / (1 + q).

The regret of the issued forecasts is at most Y^2 log det(I + K / a) + Y^2 sum r_t (4 - r_t) with r_t = min(2, sum_{j in M_t}
|b_tj|): at most 1 + 4 tau times the first term if no truth is more than tau rounds late. docs/late-truths.md has the proof.

References: [vovk2001]; [azoury2001]; [qiu2025] for the idea; the bound is ours.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from okl_core.delayed.delayed_learner import DelayedLearner
from okl_core.kernels.kernels import Kernel
from okl_core.linalg.growing import GrowingArray
from okl_core.second_order.kernel_space import KernelSpace
from okl_core.second_order.least_squares import LeastSquares
from okl_core.types import F64


@final
class WaitingRow:
    """A waiting forecast: its value, and `row`, the vector l, as long as L.

    `row` is empty if x is too small for L; `share` is |phi|^2 / a.
    """

    __slots__ = ("row", "share", "value", "x")

    def __init__(self, value: float, x: F64, share: float) -> None:
        self.value, self.x, self.share = value, x, share
        self.row = GrowingArray()


@final
class DelayedAar(DelayedLearner[WaitingRow]):
    """The learner of this module; created by `create_delayed`."""

    def __init__(self, kernel: Kernel, regularization: float, clip: float, dim: int) -> None:
        self._rule = LeastSquares(clip, shrinks=True)
        self._clip = clip
        self._price = 0.0
        self._unseen = 0.0
        """Sum of y^2 over learned truths of inputs too small for L, which no function fits."""
        super().__init__(KernelSpace(kernel, regularization), self._rule.loss, self._rule.truth_range, dim)

    def _issue(self, x: F64) -> tuple[float, WaitingRow]:
        state, t = self._state, self._issued + 1
        self._rng.begin()
        # Play the round with the truth 0, which adds its row to L and leaves r unchanged.
        played = self._space.play(state, t, x, 0.0, self._rule, self._rng)
        waiting = [one for one in self._waiting.values() if len(one.row)]
        products = [float(played.z @ one.row.view) for one in waiting]
        small = sum(math.sqrt(one.share) for one in self._waiting.values() if not len(one.row))
        q, size = played.moments.q, len(state.J)
        self._space.absorb(state, t, x, played)
        issued = WaitingRow(played.decision.value, x, played.moments.kappa / self._space.alpha)
        if len(state.J) > size:
            delta = state.factor.L.diagonal().item(size)
            for one, product in zip(waiting, products, strict=True):
                one.row.append(-product / delta)
            issued.row.extend(np.zeros(size))
            issued.row.append(1.0 / delta)
        moved = min(2.0, sum(map(abs, products)) / (1.0 + q) + math.sqrt(q / (1.0 + q)) * small)
        self._price += moved * (4.0 - moved)
        return issued.value, issued

    def _learn(self, waiting: WaitingRow, y: float) -> float:
        state = self._state
        if len(waiting.row):
            r = state.r.view
            r += y * waiting.row.view
        else:
            t = self._issued
            self._space.absorb(state, t, waiting.x, self._space.play(state, t, waiting.x, y, self._rule, self._rng))
            self._unseen += y * y
        return self.loss.value(waiting.value, y)

    def _bytes_of(self, waiting: WaitingRow) -> int:
        return waiting.row.nbytes + waiting.x.nbytes

    def describe(self) -> dict[str, float]:
        """The numbers of the regret bound: `loss` is at most `comparator_loss` + `bound`, even with truths still missing.

        `comparator_loss` is min_f sum (y_t - f(x_t))^2 + a |f|^2 over all issued rounds, with 0 for missing truths.
        """
        Y2, log_det, r = self._clip * self._clip, self._state.log_det, math.sqrt(self._space.alpha) * self._state.r.view
        return super().describe() | {
            "comparator_loss": float(r @ r) + self._unseen,
            "log_det": log_det,
            "bound": Y2 * (log_det + self._price),
        }
