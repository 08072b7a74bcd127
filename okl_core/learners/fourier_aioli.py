"""AIOLI on random Fourier features: improper logistic regression with a kernel, and no points stored."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.kernels.feature_maps import FourierMap
from okl_core.kernels.fourier import SpectralKernel
from okl_core.kernels.kernels import Gaussian
from okl_core.second_order.feature_space import FeatureRound, FeatureSpace, FeatureState
from okl_core.second_order.forgetting import HalfLife
from okl_core.second_order.improper import AioliRule, AioliTotals, KernelImproperConfig, kernel_norms
from okl_core.second_order.second_order import SecondOrder
from okl_core.types import F64


class FourierAioliConfig(KernelImproperConfig):
    """Parameters of AIOLI on random features."""

    kernel: SpectralKernel = Field(default=Gaussian(), description="The kernel, one of a difference of inputs.")
    frequencies: int = Field(
        default=200, ge=1, le=2**15, description="D: random frequencies, each with a cosine and a sine."
    )

    def norms(self, X: F64) -> list[float]:
        return kernel_norms(self.kernel, X)


@final
@register
class FourierAioli(SecondOrder[FourierAioliConfig, FeatureState, FeatureRound, AioliTotals]):
    r"""Improper logistic regression on random Fourier features: stores only a matrix, at the same cost every round.

    `aioli` with the D random frequencies of `kernels.fourier` in place of the inputs: phi has 2 D coordinates, and
    |phi| = 1. Time O(D^2 + d D) a round, memory O(D^2 + d D).

    Notes
    -----
    Against every v in the space of the features with |v| <= B the regret is at most lambda |v|^2 + `bound`. A function
    f = sum_s a_s k(x_s, .) of the kernel's space has such a v near to it: with an error of |a|_1 epsilon at every point if
    all kernel values are met to epsilon, which takes D of the order of log(1 / epsilon) / epsilon^2.

    With a half-life the guarantee is lost, since the best function may need what was forgotten.

    References: [jezequel2020] algorithm 1, theorem 1; [rahimi2007].

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "fourier-aioli"}, dim=1)
    >>> for _ in range(3):
    ...     info = learner.update(np.array([0.0]), 1.0)
    >>> round(learner.predict(np.array([0.0])).probability, 4)
    0.8869
    """

    kind: ClassVar[str] = "fourier-aioli"
    references: ClassVar[tuple[str, ...]] = ("jezequel2020", "rahimi2007")
    config_type = FourierAioliConfig

    def space(self, config: FourierAioliConfig) -> FeatureSpace:
        features = FourierMap(config.kernel, config.frequencies)
        return FeatureSpace(features, config.alpha, HalfLife.of(config.half_life))

    def rule(self, config: FourierAioliConfig) -> AioliRule:
        return config.rule
