r"""NONS-ALD: online Newton steps for the squared loss, in the basis of a dictionary that grows.

| symbol | meaning                                                       | in [li2023b] |
|--------|---------------------------------------------------------------|--------------|
| z      | the input in the basis of the dictionary, `ald_dictionary`    | phi(x_t)     |
| C      | forecasts and truths lie in [-C, C]                           | C            |
| mu     | regularization, A_0 = mu I                                    | mu           |
| eta    | 1 / (8 C^2): of the steps                                     | eta          |
| v, P   | the weights before they are clipped, and A^{-1}: `Posterior`  | A^{-1}       |
| m, q   | v^T z and z^T P z                                             |              |
| h      | m - clip(m, -C, C)                                            |              |
| g      | 2 (value - y), the derivative at the point played             | g_t          |

A round forecasts clip(m); then v <- v - (h / q) P z. If x_t joins, v gets a 0, P gets 1 / mu on its diagonal, and z gets
sqrt(alpha). Last, with that z, q and D = 1 + eta g^2 q,

    v <- v - (g / D) P z      (without D, if `step` is "shipped" and x_t does not join),
    P <- P - (eta g^2 / D) (P z) (P z)^T.

The published form has the eigenvectors of K_S as its basis, and takes them anew when a point joins. Its forecasts are the
same: from one basis to the other it is a rotation, here without the cost.

References: [li2023b].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.learners.ald.ald_dictionary import condition, is_far, see
from okl_core.learners.ald.nons_ald_state import Cost, Costs, NonsAldConfig, NonsAldState, cost_of_clip, cost_of_step
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.losses import LOSSES, Loss
from okl_core.second_order.posterior import Posterior, Projection
from okl_core.second_order.space_and_rule import Decision
from okl_core.types import F64, Forecast, Interval, Round


@dataclass(slots=True)
class NonsAldRound(Round):
    pulled: F64
    """What the clip adds to v, shape (k,)."""
    joined: tuple[F64, float] | None
    """The row of L of a point that joins: z, shape (k,), and sqrt(alpha)."""
    projection: Projection
    """Of z, with its new coordinate if x_t joins; m is not used."""
    decision: Decision
    costs: tuple[Cost, ...]


@final
@register
class NonsAld(Learner[NonsAldConfig, NonsAldState, NonsAldRound]):
    r"""Online Newton steps for numbers on a dictionary of nearly independent points: few points, chosen without randomness.

    Time O(k^2 + d k) a round and memory O(k^2 + d k) with k points.

    Notes
    -----
    Its paper bounds the regret by the effective dimension times log T, with a k of the order of log T, if the
    eigenvalues of the kernel matrix decay exponentially; no constant of it is claimed here. `describe` has the sums of a
    bound of our own, for every stream (`nons_ald_state`; docs/theorems.md, theorem 9).

    Against the authors' program: eta is 1 / (8 C^2), which is its 1 / (4 C^2 + 4) for C = 1, and holds for every C; the
    budget, a half-life, a T that need not be known, and the default of `step` are ours; a point that keeps less than 1e-6 of
    k(x, x) outside the span never joins; for kernels with k(x, x) other than 1 the threshold is a share of it. As there,
    the round of the first point is not learned beyond that point. A round with eta g^2 k(x, x) above 1e11 mu is refused
    (DivergedError). A half-life H discounts A and what the function was learned from in steps of H / 4 rounds; the bound is
    lost then.

    References: [li2023b]; [engel2004] for the dictionary.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "nons-ald"}, dim=1)
    >>> for x in ([0.0], [0.0], [3.0]):
    ...     _ = learner.update(np.array(x), 1.0)
    >>> learner.describe()["dictionary"], round(learner.predict(np.array([0.0])).value, 4)
    (2, 1.0)
    """

    kind: ClassVar[str] = "nons-ald"
    references: ClassVar[tuple[str, ...]] = ("li2023b", "engel2004")
    config_type = NonsAldConfig
    state_type = NonsAldState

    def loss(self, config: NonsAldConfig) -> Loss:
        return LOSSES["squared"]

    def truth_range(self, config: NonsAldConfig) -> Interval:
        return -config.clip, config.clip

    def init(self, config: NonsAldConfig, dim: int) -> NonsAldState:
        return NonsAldState(
            0, config.kernel.points(dim), Factor(), Posterior(config.regularization, 0), Costs(0.0, 0.0, 0.0)
        )

    def conditioning(self, config: NonsAldConfig, state: NonsAldState) -> float:
        v = state.posterior
        return v.largest / v.alpha + condition(config, state.points, state.L, state.L.solve_transposed(v.u))

    def predict(self, config: NonsAldConfig, state: NonsAldState, x: F64) -> Forecast:
        m = state.posterior.mean(state.L.solve(config.kernel.row(state.points, x)))
        require_finite(state.t + 1, m)
        return Forecast(_clipped(config, m))

    def play(self, config: NonsAldConfig, state: NonsAldState, x: F64, y: float, rng: RoundRng) -> NonsAldRound:
        t, mu = state.t + 1, config.regularization
        seen = see(state.L, t, config.kernel.row(state.points, x), config.kernel.at(x))
        z, kappa = seen.z, seen.kappa
        m, q, Pz, square = state.posterior.project(z)
        value = _clipped(config, m)
        pull = (value - m) / q if q > 0.0 else 0.0
        pulled = pull * Pz
        clipped, alpha = cost_of_clip(m - value, q, seen.alpha), seen.alpha
        joined = None
        if len(z) < config.budget and is_far(config, t, seen, rng):
            joined = z, math.sqrt(alpha)
            q, square = q + alpha / mu, square + alpha
            Pz = np.append(Pz, math.sqrt(alpha) / mu)
            alpha = 0.0
        # The first point is stored alone.
        g = 2.0 * (value - y) if len(z) else 0.0
        w = config.eta * g * g
        D = 1.0 + w * q
        is_damped = config.step == "textbook" or joined is not None
        move = -g / D if is_damped else -g
        own = cost_of_step(config, g, q, alpha, is_damped=is_damped) if len(z) else Cost(y * y, 0.0, 0.0)
        require_finite(t, m, q, pull, move, w * square, (value - y) ** 2, *clipped, *own)
        require_bearable(t, w, kappa, mu)
        # v <- v + move Pz, in the terms of `Posterior.absorb`
        decision = Decision(value, w, move, move * D / math.sqrt(w) if w > 0.0 else 0.0, g)
        answer = (value - y) ** 2, rng.choices()
        projection = Projection(m, q, Pz, square)
        return NonsAldRound(t, x, y, Forecast(value), *answer, pulled, joined, projection, decision, (clipped, own))

    def learn(self, config: NonsAldConfig, state: NonsAldState, played: NonsAldRound) -> None:
        if played.joined is not None:
            # First, since the factor may refuse the row.
            state.L.append(*played.joined)
        state.t += 1
        state.posterior.u += played.pulled
        if played.joined is not None:
            state.points.append(played.x)
            state.posterior.grow()
        state.posterior.absorb(played.projection, played.decision)
        for cost in played.costs:
            state.costs.add(cost)
        factor = config.forgetting.factor(state.t)
        if factor is not None:
            state.posterior.discount(factor)

    def extra_work(self, config: NonsAldConfig, state: NonsAldState, rounds: int) -> float:
        """Where old rounds become lighter, A^{-1} is made anew."""
        return config.forgetting.discount_work(state.t, rounds, len(state.posterior) + rounds)

    def describe(self, config: NonsAldConfig, state: NonsAldState) -> dict[str, float]:
        numbers = {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": state.nbytes,
            "threshold": config.threshold_at(state.t + 1),
        }
        if config.half_life is not None:
            return numbers
        gradient, missed, square = state.costs.gradient, state.costs.missed, state.costs.square
        return numbers | {"bound_gradient": gradient, "bound_missed": missed, "bound_square": square}


def _clipped(config: NonsAldConfig, m: float) -> float:
    return max(-config.clip, min(m, config.clip))
