"""Kernel ridge regression as a forecaster, and the kernel Aggregating Algorithm: the yardsticks of squared loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.second_order.engine import Engine, EngineState, Rule
from okl_core.second_order.engine_learner import EngineConfig, EngineLearner
from okl_core.second_order.least_squares import Aar, LeastSquaresLearner, Ridge


class RidgeConfig(EngineConfig):
    """Parameters of both."""

    regularization: float = Field(default=1.0, gt=0.0, description="a: weight of the squared norm of the function.")
    clip: float | None = Field(default=None, gt=0.0, description="Y: bound on predictions and truths; none by default.")


@dataclass(slots=True)
class RidgeState(EngineState):
    """The engine's state; the cumulative loss, that of the best function in hindsight with its norm term, max |y|."""

    loss: float
    comparator_loss: float
    largest: float


class _Ridge(LeastSquaresLearner, EngineLearner[RidgeConfig, RidgeState, Rule]):
    config_type = RidgeConfig
    state_type = RidgeState

    def engine(self, config: RidgeConfig) -> Engine:
        return Engine(config.kernel, config.regularization)

    def init(self, config: RidgeConfig, dim: int) -> RidgeState:
        parts = self.engine(config).parts(dim, config.window)
        return RidgeState(0, *parts, loss=0.0, comparator_loss=0.0, largest=0.0)

    def describe(self, config: RidgeConfig, state: RidgeState) -> dict[str, float]:
        numbers = self.describe_engine(state) | {"loss": state.loss}
        return numbers if config.window is not None else numbers | self.fit.describe(config.clip, state)


@final
@register
class KernelRidge(_Ridge):
    r"""Kernel ridge regression, refitted in every round: least squares with a norm penalty over all that was seen.

    value = gamma_t, clipped to [-Y, Y] if a clip is given. Time O(t^2 + d t) a round, memory t^2 / 2 + O(d t).

    Notes
    -----
    `comparator_loss` is min_f sum (y_t - f(x_t))^2 + a |f|^2, by the identity of `least_squares`: `loss` minus it is
    the regret, the norm term included. It is at most `comparator_loss` times max q: small if a is large against kappa. With
    a clip the cumulative loss is at most `comparator_loss` + 4 Y^2 `log_det`, `log_det` = log det(I + K_T / a): that is
    `bound`.

    With a window this is the fit to the last W to 5/4 W rounds, and a round costs O(W^2 + d W). Neither the identity nor the
    bound holds then. It is for streams that drift.

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
    fit = Ridge()


@final
@register
class KernelAar(_Ridge):
    r"""The Aggregating Algorithm Regression with kernels (Vovk, Azoury and Warmuth): ridge regression, shrunk where unsure.

    value = m / (1 + q), what ridge regression would answer had it seen x_t already, with the truth 0. Time
    O(t^2 + d t) a round, memory t^2 / 2 + O(d t).

    Notes
    -----
    If |y_t| <= Y, known or not, the cumulative loss is at most min_f (sum (y_t - f(x_t))^2 + a |f|^2) plus
    Y^2 log det(I + K_T / a). `describe` gives them as `loss`, `comparator_loss`, and `bound` with Y the largest |y| so far.
    A clip to [-Y, Y] only lowers the loss.

    With a window this is the forecast from the last W to 5/4 W rounds, and a round costs O(W^2 + d W). The guarantee is
    lost. It is for streams that drift.

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
    fit = Aar()
