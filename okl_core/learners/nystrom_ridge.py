"""Ridge regression and the Aggregating Algorithm Regression on a dictionary of points, at a cost that does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.second_order.least_squares import Aar, LeastSquaresLearner, Ridge
from okl_core.second_order.nystrom import Nystrom, NystromConfig, NystromState
from okl_core.second_order.nystrom_learner import NystromLearner


class NystromRidgeConfig(NystromConfig):
    """Parameters of both."""

    regularization: float = Field(default=0.1, gt=0.0, description="a: weight of the squared norm of the function.")
    clip: float | None = Field(default=None, gt=0.0, description="Y: bound on predictions and truths; none by default.")


@dataclass(slots=True)
class NystromRidgeState(NystromState):
    """The embedding's state, and what `second_order.least_squares` adds up."""

    loss: float
    comparator_loss: float
    largest: float


class _NystromRidge(LeastSquaresLearner, NystromLearner[NystromRidgeConfig, NystromRidgeState]):
    config_type = NystromRidgeConfig
    state_type = NystromRidgeState

    def engine(self, config: NystromRidgeConfig) -> Nystrom:
        return Nystrom(config, config.regularization)

    def init(self, config: NystromRidgeConfig, dim: int) -> NystromRidgeState:
        parts = self.engine(config).parts(dim)
        return NystromRidgeState(0, *parts, loss=0.0, comparator_loss=0.0, largest=0.0)

    def describe(self, config: NystromRidgeConfig, state: NystromRidgeState) -> dict[str, float]:
        numbers = self.describe_engine(config, state) | {"loss": state.loss}
        return numbers | self.fit.describe(config.clip, state) if self.is_whole(config) else numbers


@final
@register
class NystromRidge(_NystromRidge):
    r"""Ridge regression on a dictionary of points: least squares in the span of what was kept, at a cost that stays.

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
    fit = Ridge()


@final
@register
class NystromAar(_NystromRidge):
    r"""The Aggregating Algorithm Regression on a dictionary of points: `nystrom-ridge`, shrunk where unsure.

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
    fit = Aar()
