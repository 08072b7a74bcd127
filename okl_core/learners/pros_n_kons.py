"""PROS-N-KONS and CON-KONS: online Newton steps in a Nystrom embedding that grows with its dictionary."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.second_order.embedding import Dictionary, KorsDictionary
from okl_core.second_order.forgetting import LearnedHalfLife
from okl_core.second_order.newton import NewtonConfig, NewtonRule, NewtonTotals, Step
from okl_core.second_order.nystrom_space import (
    DEFAULT_BUDGET,
    Budget,
    Carry,
    NystromRound,
    NystromSpace,
    NystromState,
    Precision,
    lost_digits,
)
from okl_core.second_order.second_order import SecondOrder


class ProsNKonsConfig(NewtonConfig):
    """Parameters. Published: `step: half-curvature`, no budget, `carry` `reset` (PROS-N-KONS) or `transport` (CON-KONS)."""

    clip: float = Field(
        default=2.0,
        ge=1e-50,
        description="C: bound on the predictions; labels are learned best when it is not touched.",
    )
    regularization: float = Field(default=0.1, gt=0.0, description="alpha: A_0 = alpha I.")
    step: Step = Field(
        default="adaptive",
        description="eta: the loss's curvature at the point played (adaptive), on [-C, C] (curvature), half of that "
        "(half-curvature), 1 / (L C sqrt(t)) (inverse-sqrt), or a number.",
    )
    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    dictionary: Dictionary = Field(default=KorsDictionary(), description="How points are chosen.")
    budget: Budget = DEFAULT_BUDGET
    carry: Carry = Field(
        default="transport",
        description="What a new point does to the learned function: keep it (transport, as CON-KONS), or start again "
        "(reset, as PROS-N-KONS was published).",
    )
    half_life: LearnedHalfLife = None
    precision: Precision = "double"

    @property
    def cautions(self) -> tuple[str, ...]:
        swings = self.swings(self.half_life, self.kernel.translation_invariant)
        return swings + lost_digits(self, self.regularization)


@final
@register
class ProsNKons(SecondOrder[ProsNKonsConfig, NystromState, NystromRound, NewtonTotals]):
    r"""Online Newton steps on a dictionary of points: second-order learning at a cost that does not grow with the stream.

    phi is the embedding of the dictionary I, into which row sampling takes x_t with a probability that its leverage asks
    for. With the symbols of `second_order.newton`, g = l'(value), A_t = A_{t-1} + eta g^2 phi_t phi_t^T,

        u_t = w_{t-1} - A_{t-1}^{-1} g_{t-1} phi_{t-1},   value = clip(phi_t^T u_t, -C, C),
        w_t = u_t - (h(phi_t^T u_t) / q) A_{t-1}^{-1} phi_t.

    Time O(|I|^2 + d |I|) a round, memory O(|I|^2 + d |I|); |I| is at most the budget, and without one about the effective
    dimension of the stream times a logarithm of its length.

    Notes
    -----
    `transport`, the default, carries A and w exactly, as CON-KONS does: this is `kons` on the features phi_t, in which a
    round has no part in the coordinates that came after it. So against every v with |phi_t^T v| <= C in all rounds the
    regret is at most (alpha / 2) |v|^2 + `bound_gradient` + `bound_step`. Once the dictionary stays these are the functions
    of its span. What phi_t misses of the other functions of the kernel costs what theorem 3 of docs/theorems.md says.

    With `reset` the same holds from each restart to the next. With `step: half-curvature` too, the published algorithm,
    theorem 2 bounds the regret against the functions of the kernel: the J points kept cost J restarts, and what the span
    misses costs a term that the dictionary's regularization makes small.

    A point that keeps less than 1e-6 of its k(x, x) outside the span of the dictionary, 1e-4 in single precision, is stored,
    but adds no coordinate. There every f loses at most 1e-3 |f| sqrt(k(x, x)), or 1e-2; a coordinate as small would lose more
    to rounding.

    A half-life weights round s with 2^{-(t - s) / half_life} in A and in s, in four steps per half-life. The guarantee is
    lost, since the best function may need what was forgotten. It is for streams that drift.

    References: [calandriello2017b] algorithm 1, theorem 2; [calandriello2017] algorithm 2 for the dictionary.

    Examples
    --------
    >>> import numpy as np
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

    def space(self, config: ProsNKonsConfig) -> NystromSpace:
        return NystromSpace.of(config, config.regularization)

    def rule(self, config: ProsNKonsConfig) -> NewtonRule:
        return config.rule
