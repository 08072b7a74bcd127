r"""The Aggregating Algorithm with late truths: inputs are learned when the forecast is issued, truths when they come.

| symbol | meaning                                                                                         | shape |
|--------|-------------------------------------------------------------------------------------------------|-------|
| A_t    | a I + sum_{s <= t} phi_s phi_s^T: of all inputs, x_t among them, whether their truths came or not |       |
| M_t    | the rounds whose truths are missing when round t is forecast                                    |       |
| m, q   | phi_t^T A_{t-1}^{-1} sum_{s < t, s not in M_t} y_s phi_s, and phi_t^T A_{t-1}^{-1} phi_t            |       |
| Y      | the clip                                                                                        |       |
| L, z, r | of `second_order.kernel_space`: rows of L and r without the truths                              |       |
| l_j    | L^{-1} e_j of a round j that waits                                                                | (t,)  |
| b_tj   | phi_t^T A_t^{-1} phi_j = z^T l_j / (1 + q)                                                         |       |

The forecast is clip(m / (1 + q)). A truth adds y l_j to r, and a new row of L adds -z^T l_j / delta to l_j: the product that
says how far the missing truth moves the forecast is what keeps the vector. A round whose input is too small for L has none:
its truth joins N of `second_order.kernel_space` when it comes, and sqrt(lambda_t kappa_j / a) >= |b_tj| stands for b_tj,
with lambda_t = q / (1 + q).

The regret of what was issued is at most Y^2 log det(I + K / a) + Y^2 sum r_t (4 - r_t) with r_t = min(2, sum_{j in M_t}
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
    """A forecast that waits: its value, and l, as long as L; empty for an x too small for L, of which |phi|^2 / a stays."""

    __slots__ = ("row", "share", "value", "x")

    def __init__(self, value: float, x: F64, share: float) -> None:
        self.value, self.x, self.share = value, x, share
        self.row = GrowingArray()


@final
class DelayedAar(DelayedLearner[WaitingRow]):
    """See the module; made by `create_delayed`."""

    def __init__(self, kernel: Kernel, regularization: float, clip: float, dim: int) -> None:
        self._rule = LeastSquares(clip, shrinks=True)
        self._clip = clip
        self._price = 0.0
        self._unseen = 0.0
        """Sum of y^2 of the truths that came of inputs too small for L, which no function fits."""
        super().__init__(KernelSpace(kernel, regularization), self._rule.loss, self._rule.truth_range, dim)

    def _issue(self, x: F64) -> tuple[float, WaitingRow]:
        state, t = self._state, self._issued + 1
        self._rng.begin()
        # A round with the truth 0: its row joins L, and nothing of its truth joins r.
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
        """`loss` is at most `comparator_loss` + `bound`, whatever still waits.

        `comparator_loss` is min_f sum (y_t - f(x_t))^2 + a |f|^2 over all rounds issued, 0 for truths that have not come.
        """
        Y2, log_det, r = self._clip * self._clip, self._state.log_det, math.sqrt(self._space.alpha) * self._state.r.view
        return super().describe() | {
            "comparator_loss": float(r @ r) + self._unseen,
            "log_det": log_det,
            "bound": Y2 * (log_det + self._price),
        }
