"""Ridge regression and the Aggregating Algorithm Regression on a dictionary of points, at a cost that does not grow."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.second_order.embedding import Dictionary, KorsDictionary
from okl_core.second_order.forgetting import LearnedHalfLife
from okl_core.second_order.least_squares import LeastSquares, LeastSquaresTotals, TruthBound
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
from okl_core.types import LearnerConfig


class NystromRidgeConfig(LearnerConfig):
    """Parameters of both."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    dictionary: Dictionary = Field(default=KorsDictionary(), description="How points are chosen.")
    budget: Budget = DEFAULT_BUDGET
    carry: Carry = "transport"
    half_life: LearnedHalfLife = None
    precision: Precision = "double"
    regularization: float = Field(default=0.1, gt=0.0, description="a: weight of the squared norm of the function.")
    clip: TruthBound = None

    @property
    def cautions(self) -> tuple[str, ...]:
        return lost_digits(self, self.regularization)


@final
@register
class NystromRidge(SecondOrder[NystromRidgeConfig, NystromState, NystromRound, LeastSquaresTotals]):
    r"""Ridge regression on a dictionary of points: least squares in the span of the stored points, at a bounded cost.

    `kernel-ridge` with the features phi_t of the dictionary in round t in place of the kernel's. Time O(|I|^2 + d |I|) a
    round, memory O(|I|^2 + d |I|).

    Notes
    -----
    The identity of `second_order.least_squares` holds for the sequence of features, in which a point has no part in the
    coordinates that came after it: `comparator_loss` is the loss of the best function of these, its norm term included.
    With a half-life, or a carry that resets, neither it nor the bound holds. Against the best function of the whole space
    nothing is guaranteed: what the dictionary misses is missed.

    References: [zhdanov2013] theorem 1; [calandriello2017b] for the embedding; [engel2004].

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "nystrom-ridge"}, dim=1)
    >>> for _ in range(2):
    ...     info = learner.update(np.array([0.0]), 1.0)
    >>> round(learner.predict(np.array([0.0])).value, 4)
    0.9091
    """

    kind: ClassVar[str] = "nystrom-ridge"
    references: ClassVar[tuple[str, ...]] = ("zhdanov2013", "calandriello2017b", "engel2004")
    config_type = NystromRidgeConfig

    def space(self, config: NystromRidgeConfig) -> NystromSpace:
        return NystromSpace.of(config, config.regularization)

    def rule(self, config: NystromRidgeConfig) -> LeastSquares:
        return LeastSquares(config.clip, shrinks=False)


@final
@register
class NystromAar(SecondOrder[NystromRidgeConfig, NystromState, NystromRound, LeastSquaresTotals]):
    r"""The Aggregating Algorithm for Regression on a dictionary of points: `nystrom-ridge`, shrunk if uncertain.

    value = m / (1 + q) with the variance q of the embedding, which is 0 for what the dictionary does not reach. Time
    O(|I|^2 + d |I|) a round, memory O(|I|^2 + d |I|).

    Notes
    -----
    The bound of `kernel-aar` holds for the sequence of features, as for `nystrom-ridge`: the cumulative loss is at most
    `comparator_loss` plus Y^2 `log_det`, `bound`.

    References: [vovk2001] theorem 1; [azoury2001]; [calandriello2017b] for the embedding; [engel2004].

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "nystrom-aar"}, dim=1)
    >>> for _ in range(2):
    ...     info = learner.update(np.array([0.0]), 1.0)
    >>> round(learner.predict(np.array([0.0])).value, 4)
    0.4762
    """

    kind: ClassVar[str] = "nystrom-aar"
    references: ClassVar[tuple[str, ...]] = ("vovk2001", "azoury2001", "calandriello2017b", "engel2004")
    config_type = NystromRidgeConfig

    def space(self, config: NystromRidgeConfig) -> NystromSpace:
        return NystromSpace.of(config, config.regularization)

    def rule(self, config: NystromRidgeConfig) -> LeastSquares:
        return LeastSquares(config.clip, shrinks=True)
