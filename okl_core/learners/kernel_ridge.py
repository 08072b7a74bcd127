"""Kernel ridge regression as a forecaster, and the kernel Aggregating Algorithm: the yardsticks of squared loss."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.second_order.kernel_space import KernelRound, KernelSpace, KernelSpaceConfig, KernelState
from okl_core.second_order.least_squares import LeastSquares, LeastSquaresTotals, TruthBound
from okl_core.second_order.second_order import SecondOrder


class RidgeConfig(KernelSpaceConfig):
    """Parameters of both."""

    regularization: float = Field(default=1.0, gt=0.0, description="a: weight of the squared norm of the function.")
    clip: TruthBound = None


@final
@register
class KernelRidge(SecondOrder[RidgeConfig, KernelState, KernelRound, LeastSquaresTotals]):
    r"""Kernel ridge regression, refitted in every round: least squares with a norm penalty over all past rounds.

    value = gamma_t, clipped to [-Y, Y] if a clip is given. Time O(t^2 + d t) a round, memory t^2 / 2 + O(d t).

    Notes
    -----
    `comparator_loss` is min_f sum (y_t - f(x_t))^2 + a |f|^2, by the identity of `least_squares`: `loss` minus it is
    the regret, the norm term included. It is at most `comparator_loss` times max q: small if a is large against kappa. With
    a clip the cumulative loss is at most `comparator_loss` + 4 Y^2 `log_det`, `log_det` = log det(I + K_T / a): that is
    `bound`.

    With a window this is the fit to the last W to 5/4 W rounds, and a round costs O(W^2 + d W). With a half-life H it is the
    fit to the last 10 H rounds, whose squares are discounted in steps of H / 4 rounds. Neither the identity nor the bound
    holds then. Both are for streams that drift.

    References: [zhdanov2013] theorem 1, corollary 1.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "kernel-ridge"}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([0.0])).value, 4)
    0.5
    """

    kind: ClassVar[str] = "kernel-ridge"
    references: ClassVar[tuple[str, ...]] = ("zhdanov2013",)
    config_type = RidgeConfig

    def space(self, config: RidgeConfig) -> KernelSpace:
        return KernelSpace(config.kernel, config.regularization, config.memory)

    def rule(self, config: RidgeConfig) -> LeastSquares:
        return LeastSquares(config.clip, shrinks=False)


@final
@register
class KernelAar(SecondOrder[RidgeConfig, KernelState, KernelRound, LeastSquaresTotals]):
    r"""The Aggregating Algorithm for Regression with kernels (Vovk, Azoury, Warmuth): ridge regression, shrunk if uncertain.

    value = m / (1 + q), what ridge regression would answer had it seen x_t already, with the truth 0. Time
    O(t^2 + d t) a round, memory t^2 / 2 + O(d t).

    Notes
    -----
    If |y_t| <= Y, known or not, the cumulative loss is at most min_f (sum (y_t - f(x_t))^2 + a |f|^2) plus
    Y^2 log det(I + K_T / a). `describe` gives them as `loss`, `comparator_loss`, and `bound` with Y the largest |y| so far.
    A clip to [-Y, Y] only lowers the loss.

    With a window this is the forecast from the last W to 5/4 W rounds, and a round costs O(W^2 + d W); with a half-life H
    that from the last 10 H, discounted in steps of H / 4 rounds. The guarantee is lost. Both are for streams that drift.

    References: [vovk2001] theorem 1; [azoury2001]; [zhdanov2013] section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "kernel-aar"}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    1.0
    >>> round(learner.predict(np.array([0.0])).value, 4)
    0.3333
    """

    kind: ClassVar[str] = "kernel-aar"
    references: ClassVar[tuple[str, ...]] = ("vovk2001", "azoury2001", "zhdanov2013")
    config_type = RidgeConfig

    def space(self, config: RidgeConfig) -> KernelSpace:
        return KernelSpace(config.kernel, config.regularization, config.memory)

    def rule(self, config: RidgeConfig) -> LeastSquares:
        return LeastSquares(config.clip, shrinks=True)
