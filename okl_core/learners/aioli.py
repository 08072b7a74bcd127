"""AIOLI for linear functions of the inputs: improper logistic regression in O(d^2) a round."""

from __future__ import annotations

import math
from typing import ClassVar, final

from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import register
from okl_core.kernels.feature_maps import LinearMap
from okl_core.kernels.intercept import Intercept
from okl_core.second_order.feature_space import FeatureRound, FeatureSpace, FeatureState
from okl_core.second_order.forgetting import HalfLife
from okl_core.second_order.improper import AioliRule, AioliTotals, ImproperConfig
from okl_core.second_order.second_order import SecondOrder
from okl_core.types import F64


class AioliConfig(ImproperConfig):
    """Parameters of AIOLI."""

    intercept: Intercept = True

    def norms(self, X: F64) -> list[float]:
        """|phi| of the inputs X, shape (n, d), the intercept counted in."""
        return [math.sqrt(ddot(x, x) + self.intercept) for x in X]


@final
@register
class Aioli(SecondOrder[AioliConfig, FeatureState, FeatureRound, AioliTotals]):
    r"""Improper logistic regression: probabilities from a linear function, with regret logarithmic in time.

    phi is the input, with one more coordinate of 1 for the intercept. With the symbols of `second_order.improper`,

        theta_t = argmin  sum_{s < t} surrogate_s(theta) + l(phi_t^T theta) + l(-phi_t^T theta) + lambda |theta|^2,
        value = a = phi_t^T theta_t,  the root of  a + q tanh(a / 2) = m,

    A_t = A_{t-1} + w phi_t phi_t^T, A_0 = 2 lambda I. Time and memory O(d^2).

    | [jezequel2020]               | here                                                                              |
    |------------------------------|-----------------------------------------------------------------------------------|
    | (2): surrogates, eta_t       | w = eta_t g_t^2 of `AioliRule.decide`, with the flatness of `AioliRule.kappa`     |
    | (3): theta_t                 | never formed: its forecast is the root that `improper_value` finds                |
    | (5): A_t, b_t                | `RootPosterior`: A^{-1} = S S^T and u = A^{-1} b, by `RootPosterior.absorb`       |
    | (6), (7), lemmas 2 and 3     | `improper_value`, an equation in one unknown, takes their place                   |
    | algorithm 2: update of A     | `square_root.step`                                                                |

    Notes
    -----
    Against every theta with |theta| <= B the regret is at most lambda |theta|^2 + `bound`, and

        bound <= kappa log_det <= p kappa log(1 + n R^2 / (8 p lambda kappa)),   p features, |phi_t| <= R,

    kappa that of R. No learner that predicts with a linear function, such as `ons`, can do without a factor exp(B) in place
    of B, or else has a regret that grows with a power of n.

    Against the paper: an equation in one unknown in place of a problem in two; every round may have a kappa of its own,
    since its surrogate needs only |phi_s^T theta| <= B |phi_s|.

    A half-life weights round s with 2^{-(t - s) / half_life} in A and in s, in four steps per half-life. The guarantee is
    lost, since the best function may need what was forgotten.

    Frozen (`okl_core.freeze`), it predicts a new x with the same root, from the m and q that the kept state gives it. With
    the state before a uniformly drawn round the expected loss exceeds that of the best theta by at most the mean regret, of
    the order of p kappa log(n) / n (section 4.2).

    References: [jezequel2020] algorithm 1, theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "aioli", "config": {"intercept": False}}, dim=1)
    >>> round(learner.update(np.array([1.0]), 1.0).loss, 4)
    0.6931
    >>> learner.predict(np.array([1.0])).probability > 0.5
    True
    """

    kind: ClassVar[str] = "aioli"
    references: ClassVar[tuple[str, ...]] = ("jezequel2020",)
    config_type = AioliConfig

    def space(self, config: AioliConfig) -> FeatureSpace:
        return FeatureSpace(LinearMap(config.intercept), config.alpha, HalfLife.of(config.half_life))

    def rule(self, config: AioliConfig) -> AioliRule:
        return config.rule
