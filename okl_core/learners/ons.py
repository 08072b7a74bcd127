"""Online Newton Steps for linear predictors: KONS with a linear kernel, at a cost that does not grow with the stream."""

from __future__ import annotations

from typing import ClassVar, final

from okl_core.contract.learner import register
from okl_core.kernels.feature_maps import LinearMap
from okl_core.kernels.intercept import Intercept
from okl_core.second_order.feature_space import FeatureRound, FeatureSpace, FeatureState
from okl_core.second_order.forgetting import HalfLife, LearnedHalfLife
from okl_core.second_order.newton import NewtonConfig, NewtonRule, NewtonTotals
from okl_core.second_order.second_order import SecondOrder


class OnsConfig(NewtonConfig):
    """Parameters of ONS."""

    intercept: Intercept = True
    half_life: LearnedHalfLife = None

    @property
    def cautions(self) -> tuple[str, ...]:
        # As if |phi| were 1, which the intercept makes it at least: of longer inputs nothing is known here.
        return self.swings(self.half_life, is_bounded=True)


@final
@register
class Ons(SecondOrder[OnsConfig, FeatureState, FeatureRound, NewtonTotals]):
    r"""Online Newton steps for a linear function of the inputs: second-order learning in O(d^2) a round.

    phi is the input, with one more coordinate of 1 for the intercept. With the symbols of `second_order.newton`,

        u_t = w_{t-1} - A_{t-1}^{-1} g_{t-1} phi_{t-1},   value = clip(phi_t^T u_t, -C, C),
        w_t = u_t - (h(phi_t^T u_t) / q) A_{t-1}^{-1} phi_t,   A_t = A_{t-1} + eta g^2 phi_t phi_t^T,   A_0 = alpha I.

    Time and memory O(d^2).

    Notes
    -----
    Against every weights v with |phi_t^T v| <= C in all rounds the regret is at most (alpha / 2) |v|^2 + `bound_gradient`
    + `bound_step`, as in `kons`. With curvature steps the last is 0, and the second at most `log_det` / (2 sigma), where

        log_det <= p log(1 + sigma L^2 R^2 T / (alpha p)),   p features, |phi_t| <= R.

    Against [hazan2007]: the set that is projected to is that of all weights whose next prediction is within C, where theirs
    is a fixed convex set; the projection is then a formula.

    Rounding moves predictions by about eps times the condition of A: over 10^5 rounds with d = 10 by 1e-14 for independent
    inputs, by 1e-13 where they all but lie in a plane (condition 6e5), by 1e-6 at most where moreover alpha = 1e-5
    (condition 1e10). Nothing is ever factorised again.

    References: [hazan2007] theorem 2; [calandriello2017] algorithm 1 for the projection.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "ons", "config": {"step": "adaptive", "intercept": False}}, dim=1)
    >>> learner.update(np.array([1.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([1.0])).value, 4)
    0.6667
    """

    kind: ClassVar[str] = "ons"
    references: ClassVar[tuple[str, ...]] = ("hazan2007", "calandriello2017")
    config_type = OnsConfig

    def space(self, config: OnsConfig) -> FeatureSpace:
        half_life = HalfLife.of(config.half_life)
        return FeatureSpace(LinearMap(config.intercept), config.regularization, half_life, is_clipped=True)

    def rule(self, config: OnsConfig) -> NewtonRule:
        return config.rule
