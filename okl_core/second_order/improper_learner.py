"""AIOLI on an engine: what its linear, kernel and embedded forms do alike, and what the kernel's forms are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.losses import LOSSES, Loss, sigmoid
from okl_core.second_order.engine import Decision, Rule
from okl_core.second_order.improper import ImproperConfig, improper_rule, improper_value
from okl_core.second_order.rule_learner import RuleLearner
from okl_core.types import F64

if TYPE_CHECKING:
    from okl_core.second_order.engine_learner import EngineConfig
    from okl_core.second_order.nystrom import NystromConfig


class ImproperState(Protocol):
    """The cumulative loss, and the running sum of the regret bound."""

    loss: float
    bound: float


class ImproperLearner(RuleLearner[Any, Any, Rule, Any]):
    r"""The rule of `second_order.improper` on an engine.

    `bound` is the sum of p (1 - p) q / (1 + w q). With it, for every theta of the feature space with norm at most B,

        loss <= sum l(x_s^T theta) + lambda |theta|^2 + bound.

    For with L_t the sum of lambda |theta|^2 and the surrogates of the first t rounds, which are below the losses, the regret
    is at most lambda |theta|^2 and the sum of l(a_t) + min L_{t-1} - min L_t. Each of these is at most
    p (1 - p) phi_t^T A_t^{-1} phi_t, what `bound` adds. With one kappa for all rounds the sum is at most kappa `log_det`.

    References: [jezequel2020] theorem 1 and its proof.
    """

    def loss(self, config: Any) -> Loss:
        return LOSSES["logistic"]

    def value(self, config: Any, m: float, q: float) -> float:
        return improper_value(m, q)

    def rule(self, config: ImproperConfig, state: Any, X: F64, rng: RoundRng) -> Rule:
        return improper_rule(config, config.norms(X), state.t + 1)

    def carry(
        self, config: Any, state: ImproperState, rule: Rule, rounds: Sequence[tuple[float, float, Decision]]
    ) -> None:
        account(state, rounds)


def account(state: ImproperState, rounds: Sequence[tuple[float, float, Decision]]) -> None:
    """Add rounds, (loss, q, decision) each, to the cumulative loss and to the sum of the bound."""
    for loss, q, decision in rounds:
        a = decision.value
        state.loss += loss
        state.bound += sigmoid(a) * sigmoid(-a) * q / (1.0 + decision.w * q)


class KernelImproperConfig(ImproperConfig):
    """The parameters of AIOLI, for functions of a kernel."""

    comparator_norm: float = Field(
        default=10.0, gt=0.0, description="B: bound on the norm of the functions that it competes with."
    )

    def norms(self, X: F64) -> list[float]:
        """The root of k(x, x), which is |phi| or, where phi is projected, what bounds it."""
        return np.sqrt(cast("EngineConfig | NystromConfig", self).kernel.diag(X)).tolist()
