"""AIOLI for more than two classes: improper regression on the softmax of linear logits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.kernels.feature_maps import DrawnFeatures, LinearMap
from okl_core.kernels.intercept import Intercept
from okl_core.linalg import square_root
from okl_core.losses import LEAST_PROBABILITY, LOSSES, Loss, log_loss
from okl_core.second_order import softmax
from okl_core.second_order.feature_space import FeatureSpace
from okl_core.second_order.forgetting import HalfLife, LearnedHalfLife
from okl_core.second_order.root_posterior import RootPosterior
from okl_core.types import F64, ClassCount, Forecast, Interval, LearnerConfig, LearnerState, Round, Target


class SoftmaxAioliConfig(LearnerConfig):
    """Parameters of softmax-aioli."""

    classes: ClassCount = 2
    intercept: Intercept = True
    comparator_norm: float = Field(
        default=8.0, gt=0.0, description="B: bound on the norm of the matrices that it competes with; larger is bolder."
    )
    regularization: float | None = Field(default=None, gt=0.0, description="lambda; 1 / B^2 by default.")
    hedge: float = Field(
        default=0.5,
        ge=0.5,
        le=1.0,
        description="h: how far the forecast leans to all classes before it sees the truth. 1 is AIOLI for two classes; its "
        "bound is twice that of 1/2.",
    )
    half_life: LearnedHalfLife = None

    @cached_property
    def space(self) -> FeatureSpace:
        """The features of an input, and alpha = 2 lambda."""
        alpha = 2.0 / self.comparator_norm**2 if self.regularization is None else 2.0 * self.regularization
        return FeatureSpace(LinearMap(self.intercept), alpha, HalfLife.of(self.half_life))

    @cached_property
    def basis(self) -> F64:
        return softmax.basis(self.classes)


@final
@dataclass(slots=True)
class SoftmaxAioliState(LearnerState):
    """Of the (K - 1) p numbers that W has in the basis; the cumulative loss, the sum of the bound, the longest input."""

    posterior: RootPosterior
    loss: float
    bound: float
    drawn: DrawnFeatures | None


@final
@dataclass(slots=True)
class SoftmaxAioliRound(Round):
    F: F64
    """S^T (I x phi), shape ((K - 1) p, K - 1)."""
    step: softmax.LogitStep


@final
@register
class SoftmaxAioli(Learner[SoftmaxAioliConfig, SoftmaxAioliState, SoftmaxAioliRound]):
    r"""K classes at once: probabilities from the softmax of K linear functions, with regret logarithmic in time.

    phi is the input, with one more coordinate of 1 for the intercept; W is a K x p matrix. With the symbols of
    `second_order.softmax`, A over all entries of W,

        A_t = A_{t-1} + kappa H x phi_t phi_t^T,   A_0 = 2 lambda I,
        v_t = the root of  v + h (2 Q p - c) = m,   p = softmax(v),   value = max p.

    Time O(K^3 p^2), memory O(K^2 p^2). `one-vs-rest` takes K times what `aioli` does, and has a bound to the sum of K losses
    of two labels each only.

    Notes
    -----
    Against every W with |W| <= B (root of the sum of squares) the regret of the log-loss is at most lambda |W|^2 + `bound`,
    and with |phi_t| <= R

        bound <= h (b / kappa) p (K - 1) log(1 + T R^2 / (2 lambda p (K - 1))),   1 / kappa <= 1 + (log K + sqrt(2) B R) / 2,

    b = x / log(1 + x) with x = kappa R^2 / (4 lambda), which is at most 1.5 where lambda is kappa R^2 / 4 or more.
    No learner that predicts with the softmax of a linear function can do without a factor exp(B R) in place of B R there, or
    else has a regret that grows with a power of T.

    A half-life weights round s with 2^{-(t - s) / half_life} in A and in the linear term, in four steps per half-life. The
    guarantee is lost, since the best matrix may need what was forgotten.

    The construction is ours, after [jezequel2020] and [agarwal2022], who first had a regret of this order at a cost quadratic
    in p. For two classes and h = 1 it is `aioli`, with a kappa of its own.

    References: [jezequel2020] algorithm 1; docs/theorems.md, 7.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "softmax-aioli", "config": {"classes": 3}}, dim=1)
    >>> for y in (0.0, 2.0, 2.0):
    ...     info = learner.update(np.array([1.0]), y)
    >>> forecast = learner.predict(np.array([1.0]))
    >>> [round(q, 2) for q in forecast.probabilities], forecast.label
    ([0.05, 0.03, 0.93], 2)
    """

    kind: ClassVar[str] = "softmax-aioli"
    references: ClassVar[tuple[str, ...]] = ("jezequel2020", "agarwal2022")
    config_type = SoftmaxAioliConfig
    state_type = SoftmaxAioliState

    def loss(self, config: SoftmaxAioliConfig) -> Loss:
        return LOSSES["logistic"]

    def target(self, config: SoftmaxAioliConfig) -> Target:
        return "class"

    def truth_range(self, config: SoftmaxAioliConfig) -> Interval:
        return 0.0, config.classes - 1.0

    def initial_bytes(self, config: SoftmaxAioliConfig, dim: int) -> int:
        return RootPosterior.bytes_of((config.classes - 1) * config.space.map.width(dim))

    def conditioning(self, config: SoftmaxAioliConfig, state: SoftmaxAioliState) -> float:
        length = config.space.map.longest(state.drawn) / config.space.alpha**0.5
        own = state.posterior.conditioning(config.space.alpha)
        return own + softmax.amplified(config.classes, config.hedge, length)

    def extra_work(self, config: SoftmaxAioliConfig, state: SoftmaxAioliState, rounds: int) -> float:
        """All of a round, since with hundreds of classes each is a long one; and a half-life discounts."""
        n = len(state.posterior)
        return softmax.round_work(config.classes, n) + config.space.forgetting.discount_work(state.t, rounds, n)

    def init(self, config: SoftmaxAioliConfig, dim: int) -> SoftmaxAioliState:
        width = (config.classes - 1) * config.space.map.width(dim)
        return SoftmaxAioliState(0, RootPosterior.prior(config.space.alpha, width), 0.0, 0.0, None)

    def predict(self, config: SoftmaxAioliConfig, state: SoftmaxAioliState, x: F64) -> Forecast:
        return _forecast(_played(config, state, x)[1])

    def play(
        self, config: SoftmaxAioliConfig, state: SoftmaxAioliState, x: F64, y: float, rng: RoundRng
    ) -> SoftmaxAioliRound:
        moments, played = _played(config, state, x)
        forecast = _forecast(played)
        assert forecast.probabilities is not None
        loss = log_loss(forecast.probabilities[int(y)])
        step = softmax.step(moments, played, config.basis, int(y))
        return SoftmaxAioliRound(state.t + 1, x, y, forecast, loss, rng.choices(), moments.F, step)

    def learn(self, config: SoftmaxAioliConfig, state: SoftmaxAioliState, played: SoftmaxAioliRound) -> None:
        """O(K^3 p^2), and O(K^3 p^3) where it discounts."""
        space, posterior, (gains, D, surplus) = config.space, state.posterior, played.step
        square_root.step_of_block(posterior.S, posterior.u, played.F, gains, D)
        state.t, state.loss, state.bound = state.t + 1, state.loss + played.loss, state.bound + surplus
        long = softmax.longest_calm(config.classes, config.hedge) ** 2 * space.alpha
        state.drawn = space.map.seen(state.drawn, played.x, space.square(played.x), long)
        factor = space.forgetting.factor(state.t)
        if factor is not None:
            posterior.discount(factor, space.alpha)
            state.drawn = space.map.discounted(state.drawn, factor, long)

    def describe(self, config: SoftmaxAioliConfig, state: SoftmaxAioliState) -> dict[str, float]:
        numbers = {"t": state.t, "dictionary": 0, "bytes": state.nbytes, "features": len(state.posterior)}
        numbers |= {"classes": config.classes, "loss": state.loss}
        return numbers | {"bound": state.bound} if config.space.is_whole else numbers


def _played(
    config: SoftmaxAioliConfig, state: SoftmaxAioliState, x: F64
) -> tuple[softmax.LogitMoments, softmax.Logits]:
    """What the past says of an input, and the logits that follow. Raises DivergedError."""
    t, phi = state.t + 1, config.space.map.phi(None, x)
    square = config.space.square(x)
    config.space.require_bearable(t, square)
    moments = softmax.moments(state.posterior, phi, config.basis)
    L = softmax.reach(config.classes, config.comparator_norm, square)
    return moments, softmax.hedged(moments.m, moments.Q, L, config.hedge, t)


def _forecast(played: softmax.Logits) -> Forecast:
    """Of which no truth costs more than it does of the logits themselves, so that the bound is that of both."""
    p = np.maximum(played.p, LEAST_PROBABILITY)
    return Forecast(float(p.max()), None, tuple(p.tolist()))
