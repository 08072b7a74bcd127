r"""AOGD-ALD: gradient descent for the squared loss, on a dictionary first and on all inputs then.

| symbol | meaning                                                              | in [li2023b] |
|--------|----------------------------------------------------------------------|--------------|
| f      | the function learned, sum_i a_i k(s_i, .); value = f(x_t)            | f_t          |
| nu, U  | its norm, and the radius of the ball that it stays in                | U            |
| z      | the input in the basis of the dictionary, `ald_dictionary`           |              |
| beta   | L^{-T} z: the coefficients of the projection of k(x_t, .) to span S  | beta_t       |
| delta  | z^T z if the step is projected, else kappa                           |              |
| G      | 1 + sum 4 (value - y)^2 delta, this round included                   |              |
| eta    | U / sqrt(G)                                                          | lambda_t     |
| g      | 2 eta (value - y)                                                    |              |
| B0     | points that end the projections                                      | B_0          |

A round is f <- f - g sum_i beta_i k(s_i, .) where x_t does not join the dictionary, else f <- f - g k(x_t, .). Then f is
scaled into the ball. Once there are B0 points every input joins.

References: [li2023b].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.first_order.steps import into_ball, kernel_sum
from okl_core.learners.ald.ald_dictionary import condition, is_far, see
from okl_core.learners.ald.aogd_ald_state import PROJECTS, STORES, AogdAldConfig, AogdAldState
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.linalg.guards import require_finite
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, Forecast, Round


@dataclass(slots=True)
class AogdAldRound(Round):
    """f becomes shrink (f - g beta), or shrink (f - g k(x_t, .)) if beta is None; the letters of the module's table."""

    point: F64
    """x_t as the state's points encode it."""
    g: float
    beta: F64 | None
    joined: tuple[F64, float] | None
    """The row of L of a point that joins the dictionary: z, shape (k,), and sqrt(alpha)."""
    shrink: float
    norm2: float
    gain: float
    lost: float
    """What the round adds to the second term of `bound`."""


@final
@register
class AogdAld(Learner[AogdAldConfig, AogdAldState, AogdAldRound]):
    r"""Gradient descent for numbers with loss-dependent steps: on a dictionary, then on all inputs up to a budget.

    Time O(k^2 + d k) a round with k <= B0 points, then O(d s) with s of them, at most the budget; memory as much.

    Notes
    -----
    Its paper bounds the regret against every f with |f| <= U by the order of sqrt(L(f)), where L(f) is the loss of f; no
    constant of it is claimed here. `bound` of `describe` is ours, for every stream (docs/theorems.md, theorem 10): with
    D = a_i k(s_i, .) for the point that is dropped and f~ = f - D, 3 U sqrt(G) - U plus in every round

        2 U |value - y| sqrt(alpha)                                                          if it is projected,
        (|f~|^2 - |f|^2 + 2 U |D|) sqrt(G) / (2 U) + 2 (value - y) D(x_t)                    if a point is dropped.

    The paper's second phase stores every input, without end. The budget is ours: one point more drops the oldest. That costs
    about 2 U |D| a round in `bound`, which then no longer tells much.

    Against the authors' program: delta is kappa where it has 1, and the threshold a share of it, for kernels with k(x, x)
    other than 1; a point that keeps less than 1e-6 of kappa outside the span is always projected; without a horizon
    T grows with the stream, and B0 with it.

    References: [li2023b]; [engel2004] for the dictionary.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "aogd-ald"}, dim=1)
    >>> for x in ([0.0], [0.0], [3.0]):
    ...     _ = learner.update(np.array(x), 1.0)
    >>> learner.describe()["dictionary"], round(learner.predict(np.array([3.0])).value, 4)
    (2, 1.1817)
    """

    kind: ClassVar[str] = "aogd-ald"
    references: ClassVar[tuple[str, ...]] = ("li2023b", "engel2004")
    config_type = AogdAldConfig
    state_type = AogdAldState

    def loss(self, config: AogdAldConfig) -> Loss:
        return LOSSES["squared"]

    def init(self, config: AogdAldConfig, dim: int) -> AogdAldState:
        points = config.kernel.points(dim)
        return AogdAldState(0, points, GrowingArray(), Factor(), PROJECTS, 0, 0, norm2=0.0, gain=1.0, lost=0.0)

    def conditioning(self, config: AogdAldConfig, state: AogdAldState) -> float:
        """From the coefficients, and from U |k(x, .)|, the largest value that f had and that a step back may cancel."""
        kernel, points, a = config.kernel, state.points, state.coefficients.view
        largest = config.norm_bound * math.sqrt(float(kernel.diag(points.coordinates()).max(initial=0.0)))
        if state.phase == PROJECTS:
            return largest + condition(config, points, state.L, a)
        return max(1.0, largest + kernel.mass(points, a))

    def predict(self, config: AogdAldConfig, state: AogdAldState, x: F64) -> Forecast:
        return Forecast(kernel_sum(state.coefficients.view, config.kernel.row(state.points, x)))

    def play(self, config: AogdAldConfig, state: AogdAldState, x: F64, y: float, rng: RoundRng) -> AogdAldRound:
        t, point, kappa = state.t + 1, state.points.encode(x), config.kernel.at(x)
        row = config.kernel.encoded_row(state.points, point)
        seen = see(state.L, t, row, kappa) if state.phase == PROJECTS else None
        value = kernel_sum(state.coefficients.view, row)
        error = value - y
        beta = joined = None
        U, delta, lost = config.norm_bound, kappa, 0.0
        if seen is not None:
            if is_far(config, t, seen, rng):
                joined = seen.z, math.sqrt(seen.alpha)
            else:
                beta, delta = state.L.solve_transposed(seen.z), kappa - seen.alpha
                lost = 2.0 * U * abs(error) * math.sqrt(seen.alpha)
        gain = state.gain + 4.0 * error * error * delta
        require_finite(t, value, kappa, gain)
        eta = U / math.sqrt(gain)
        g = 2.0 * eta * error
        norm2, at_x = state.norm2, value
        if seen is None and len(state.points) == config.budget:
            norm2, at_x, size = _without_oldest(config, state, row, value)
            lost = (norm2 - state.norm2 + 2.0 * U * size) / (2.0 * eta) + 2.0 * error * (value - at_x)
        norm2 = norm2 - 2.0 * g * at_x + g * g * delta
        require_finite(t, norm2, lost)
        shrink, norm2 = into_ball(norm2, U)
        answer = Forecast(value), error * error, rng.choices()
        return AogdAldRound(t, x, y, *answer, point, g, beta, joined, shrink, norm2, gain, lost)

    def learn(self, config: AogdAldConfig, state: AogdAldState, played: AogdAldRound) -> None:
        a, size = state.coefficients, len(state.points)
        if played.joined is not None:
            if size + 1 < config.dictionary_at(played.t, state.points.dim):
                # First, since the factor may refuse the row.
                state.L.append(*played.joined)
            else:
                state.phase, state.L = STORES, Factor()
        state.t, state.norm2, state.gain = played.t, played.norm2, played.gain
        state.lost += played.lost
        if played.beta is not None:
            a.view[:] -= played.g * played.beta
        elif size < config.budget:
            state.points.append(played.x)
            a.append(-played.g)
        else:
            state.points.replace(state.oldest, played.point)
            a.view[state.oldest] = -played.g
            state.oldest = (state.oldest + 1) % size
            state.dropped += 1
        if played.shrink != 1.0:
            a.view[:] *= played.shrink

    def describe(self, config: AogdAldConfig, state: AogdAldState) -> dict[str, float]:
        U, root = config.norm_bound, math.sqrt(state.gain)
        return {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": state.nbytes,
            "phase": state.phase,
            "dropped": state.dropped,
            "norm": math.sqrt(state.norm2),
            "step_size": U / root,
            "bound": 3.0 * U * root - U + state.lost,
        }


def _without_oldest(config: AogdAldConfig, state: AogdAldState, row: F64, value: float) -> tuple[float, float, float]:
    """|f~|^2, f~(x_t) and |D|, from k(., x_t), shape (s,), and f(x_t): f~ = f - D, D the part of the point dropped next."""
    i, a = state.oldest, state.coefficients.view
    own = config.kernel.encoded_row(state.points, state.points.encoded(i))
    weight, kappa = a.item(i), own.item(i)
    norm2 = state.norm2 + weight * (weight * kappa - 2.0 * kernel_sum(a, own))
    return norm2, value - weight * row.item(i), abs(weight) * math.sqrt(kappa)
