"""PROS-N-KONS and its continuation: online Newton steps in a Nystrom embedding that grows with its dictionary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from okl_core.learner import Learner, register
from okl_core.losses import LOSSES, Loss
from okl_core.newton import NewtonConfig, Step, account, clipped, newton_rule
from okl_core.nystrom import Nystrom, NystromConfig, NystromState, Turn
from okl_core.rng import RoundRng
from okl_core.types import F64, BlockInfo, Forecast, Round


class ProsNKonsConfig(NystromConfig, NewtonConfig):
    """Parameters of PROS-N-KONS. Published: `carry: reset`, `step: half-curvature`, no budget."""

    clip: float = Field(
        default=2.0, gt=0.0, description="C: bound on the predictions; labels are learned best when it is not touched."
    )
    regularization: float = Field(default=0.1, gt=0.0, description="alpha: A_0 = alpha I.")
    step: Step = Field(
        default="adaptive",
        description="eta: the loss's curvature at the point played (adaptive), on [-C, C] (curvature), half of that "
        "(half-curvature), 1 / (L C sqrt(t)) (inverse-sqrt), or a number.",
    )


@dataclass(slots=True)
class ProsNKonsState(NystromState):
    """The embedding's state, and the running terms of the regret bound."""

    loss: float
    bound_gradient: float
    bound_step: float


@dataclass(slots=True)
class ProsNKonsRound(Round):
    turn: Turn


@final
@register
class ProsNKons(Learner[ProsNKonsConfig, ProsNKonsState, ProsNKonsRound]):
    r"""Online Newton steps on a dictionary of points: second-order learning at a cost that does not grow with the stream.

    phi is the embedding of the dictionary I, into which row sampling takes x_t with a probability that its leverage asks
    for. With the symbols of `okl_core.newton`, g = l'(value), A_t = A_{t-1} + eta g^2 phi_t phi_t^T,

        u_t = w_{t-1} - A_{t-1}^{-1} g_{t-1} phi_{t-1},   value = clip(phi_t^T u_t, -C, C),
        w_t = u_t - (h(phi_t^T u_t) / q) A_{t-1}^{-1} phi_t.

    Time O(|I|^2 + d |I|) a round, memory O(|I|^2 + d |I|); |I| is at most the budget, and without one about the effective
    dimension of the stream times a logarithm of its length.

    Notes
    -----
    Against every f in the span of the dictionary with |f(x_t)| <= C, between two changes of the dictionary, the bound of
    `kons` holds with phi in place of the kernel's features. With `carry: reset` and `step: half-curvature`, the published
    algorithm, theorem 2 adds what the restarts and the span cost: J / gamma restarts, and a term that gamma bounds.
    `transport` carries A and w exactly, which its analysis does not cover and which measures better everywhere.

    A half-life weights round s with 2^{-(t - s) / half_life} in A and in s, in eight steps per half-life: the bound then
    holds against the best function of the recent past only.

    References: [calandriello2017b] algorithm 1, theorem 2; [calandriello2017] algorithm 2 for the dictionary.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "pros-n-kons"}, dim=1)
    >>> for _ in range(3):
    ...     info = learner.update(np.array([0.0]), 1.0)
    >>> round(info.forecast.value, 4)
    0.9524
    """

    kind: ClassVar[str] = "pros-n-kons"
    references: ClassVar[tuple[str, ...]] = ("calandriello2017b", "calandriello2017", "engel2004")
    config_type = ProsNKonsConfig
    state_type = ProsNKonsState

    def loss(self, config: ProsNKonsConfig) -> Loss:
        return LOSSES[config.loss]

    def largest_truth(self, config: ProsNKonsConfig) -> float:
        return config.largest_truth

    def init(self, config: ProsNKonsConfig, dim: int) -> ProsNKonsState:
        return ProsNKonsState(0, *_engine(config).parts(dim), loss=0.0, bound_gradient=0.0, bound_step=0.0)

    def predict(self, config: ProsNKonsConfig, state: ProsNKonsState, x: F64) -> Forecast:
        return self._forecast(config, clipped(config, _engine(config).mean(state, x)))

    def play(self, config: ProsNKonsConfig, state: ProsNKonsState, x: F64, y: float, rng: RoundRng) -> ProsNKonsRound:
        turn = _engine(config).play(state, x, y, newton_rule(config, rng), rng)
        forecast = self._forecast(config, turn.decision.value)
        loss = self.loss(config).value(turn.decision.value, y)
        return ProsNKonsRound(state.t + 1, x, y, forecast, loss, rng.choices(), turn)

    def learn(self, config: ProsNKonsConfig, state: ProsNKonsState, played: ProsNKonsRound) -> None:
        _engine(config).absorb(state, played.x, played.turn)
        account(config, state, played.loss, played.turn.projection.q, played.turn.decision)

    def run(self, config: ProsNKonsConfig, state: ProsNKonsState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        loss = self.loss(config)
        played = _engine(config).run(state, X, y, newton_rule(config, rng), rng)
        values = np.array([decision.value for _, decision in played], dtype=np.float64)
        losses = loss.values(values, y)
        for cost, (q, decision) in zip(losses.tolist(), played, strict=True):
            account(config, state, cost, q, decision)
        probabilities = [loss.probability(value) for value in values.tolist()]
        given = None if None in probabilities else np.array(probabilities, dtype=np.float64)
        return BlockInfo(state.t, values, losses, given, rng.finish())

    def describe(self, config: ProsNKonsConfig, state: ProsNKonsState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.sample),
            "bytes": state.nbytes,
            "loss": state.loss,
            "log_det": state.log_det,
            "bound_gradient": state.bound_gradient,
            "bound_step": state.bound_step,
        }

    def _forecast(self, config: ProsNKonsConfig, value: float) -> Forecast:
        return Forecast(value, self.loss(config).probability(value))


def _engine(config: ProsNKonsConfig) -> Nystrom:
    return Nystrom(config, config.regularization)
