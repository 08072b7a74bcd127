r"""Online Newton steps with late truths: a round adds the parabola at the issued forecast, whenever its truth arrives.

Rounds are numbered in the order in which they are learned. With v the issued forecast of round n, g = l'(v), w that of a
`kons` step at v, and m and q the mean and the variance of x_n given the rounds learned before it,

    A_n = A_{n-1} + w phi phi^T,   s_n = s_{n-1} + (w v - g) phi,   issued: clip(phi^T A^{-1} s, -C, C).

There is no projection: the parabolas add up, so that the order of arrival does not matter. For every f with |f(x_n)| <= C in
all rounds, the regret of the issued forecasts is at most (docs/late-truths.md)

    (alpha / 2) |f|^2 + 1/2 sum (q g^2 - 2 g (m - v) - w (m - v)^2) / (1 + w q).

References: [calandriello2017] for the steps; [qiu2025] for the idea; the form and the bound are ours.
"""

from __future__ import annotations

from typing import NamedTuple, final

from okl_core.delayed.delayed_learner import DelayedLearner
from okl_core.kernels.kernels import Kernel
from okl_core.linalg.guards import require_finite
from okl_core.second_order.kernel_space import KernelSpace
from okl_core.second_order.newton import NewtonRule
from okl_core.types import F64


class WaitingPoint(NamedTuple):
    """A waiting forecast."""

    x: F64
    value: float


@final
class DelayedNewton(DelayedLearner[WaitingPoint]):
    """The learner of this module; created by `create_delayed`."""

    def __init__(self, kernel: Kernel, regularization: float, rule: NewtonRule, dim: int) -> None:
        self._rule = rule
        self._bound = 0.0
        super().__init__(KernelSpace(kernel, regularization), rule.loss, rule.truth_range, dim)

    def _issue(self, x: F64) -> tuple[float, WaitingPoint]:
        m, q, _ = self._space.moments(self._state, self._issued + 1, x, needs_variance=False)
        value = self._rule.value(m, q)
        return value, WaitingPoint(x, value)

    def _learn(self, waiting: WaitingPoint, y: float) -> float:
        t = self._learned + 1
        self._rng.begin()
        self._rng.at(t)
        played = self._space.play(self._state, t, waiting.x, y, self._rule.at(waiting.value), self._rng)
        (m, q, _), (value, w, _, _, g) = played.moments, played.decision
        off = m - value
        price = 0.5 * (q * g * g - 2.0 * g * off - w * off * off) / (1.0 + w * q)
        require_finite(t, price)
        self._space.absorb(self._state, t, waiting.x, played)
        self._bound += price
        return self.loss.value(value, y)

    def _bytes_of(self, waiting: WaitingPoint) -> int:
        return waiting.x.nbytes

    def describe(self) -> dict[str, float]:
        """Add `log_det` and `bound`, the sum in the module's regret bound over the learned rounds."""
        return super().describe() | {"log_det": self._state.log_det, "bound": self._bound}
