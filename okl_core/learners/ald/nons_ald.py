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
from typing import ClassVar, Literal, final

import numpy as np
from pydantic import Field

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.kernels.points import Points
from okl_core.learners.ald.ald_dictionary import AldConfig, condition, is_far, see
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.guards import require_bearable, require_finite
from okl_core.losses import LOSSES, Loss
from okl_core.second_order.posterior import Posterior, Projection
from okl_core.second_order.space_and_rule import Decision
from okl_core.types import F64, Forecast, Interval, LearnerState, Round


class NonsAldConfig(AldConfig):
    """Parameters of NONS-ALD."""

    budget: int = Field(
        default=400,
        ge=1,
        description="Points at most, an addition of ours; when they are used up the dictionary stays.",
    )
    clip: float = Field(default=1.0, ge=1e-50, description="C: forecasts are clipped to [-C, C], and truths lie there.")
    regularization: float = Field(default=1.0, gt=0.0, description="mu: A_0 = mu I.")
    step: Literal["textbook", "shipped"] = Field(
        default="textbook",
        description="Which inverse a round without a new point takes its step by: that of A with the round (textbook), or "
        "that before it, as the authors' program does (shipped).",
    )

    @property
    def eta(self) -> float:
        """The step parameter: the curvature of the loss for forecasts and truths in [-C, C]."""
        return LOSSES["squared"].curvature(self.clip)


@dataclass(slots=True)
class NonsAldState(LearnerState):
    """The dictionary with its factor, and v and P in the basis of it."""

    points: Points
    L: Factor
    posterior: Posterior


@dataclass(slots=True)
class NonsAldRound(Round):
    pulled: F64
    """What the clip adds to v, shape (k,)."""
    joined: tuple[F64, float] | None
    """The row of L of a point that joins: z, shape (k,), and sqrt(alpha)."""
    projection: Projection
    """Of z, with its new coordinate if x_t joins; m is not used."""
    decision: Decision


@final
@register
class NonsAld(Learner[NonsAldConfig, NonsAldState, NonsAldRound]):
    r"""Online Newton steps for numbers on a dictionary of points nearly independent of each other: few points, no coins.

    Time O(k^2 + d k) a round and memory O(k^2 + d k) with k points.

    Notes
    -----
    Its paper bounds the regret by the effective dimension times log T, with a k of the order of log T, if the
    eigenvalues of the kernel matrix decay exponentially. No constant is claimed here.

    Against the authors' program: eta is 1 / (8 C^2), which is its 1 / (4 C^2 + 4) for C = 1, and holds for every C; the
    budget, a T that need not be known, and the default of `step` are ours; a point that keeps less than 1e-6 of
    k(x, x) outside the span never joins; for kernels with k(x, x) other than 1 the threshold is a share of it. As there,
    the round of the first point is not learned beyond that point. A round with eta g^2 k(x, x) above 1e11 mu is refused
    (DivergedError).

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
        return NonsAldState(0, config.kernel.points(dim), Factor(), Posterior(config.regularization, 0))

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
        joined = None
        if len(z) < config.budget and is_far(config, t, seen, rng):
            joined = z, math.sqrt(seen.alpha)
            q, square = q + seen.alpha / mu, square + seen.alpha
            Pz = np.append(Pz, math.sqrt(seen.alpha) / mu)
        # The first point is stored alone.
        g = 2.0 * (value - y) if len(z) else 0.0
        w = config.eta * g * g
        D = 1.0 + w * q
        is_damped = config.step == "textbook" or joined is not None
        move = -g / D if is_damped else -g
        require_finite(t, m, q, pull, move, w * square, (value - y) ** 2)
        require_bearable(t, w, kappa, mu)
        # v <- v + move Pz, in the terms of `Posterior.absorb`
        decision = Decision(value, w, move, move * D / math.sqrt(w) if w > 0.0 else 0.0, g)
        told = (value - y) ** 2, rng.choices()
        projection = Projection(m, q, Pz, square)
        return NonsAldRound(t, x, y, Forecast(value), *told, pulled, joined, projection, decision)

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

    def describe(self, config: NonsAldConfig, state: NonsAldState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": state.nbytes,
            "threshold": config.threshold_at(state.t + 1),
        }


def _clipped(config: NonsAldConfig, m: float) -> float:
    return max(-config.clip, min(m, config.clip))
