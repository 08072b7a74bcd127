"""AIOLI on a dictionary of points: improper logistic regression at a cost that does not grow with the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.second_order.embedding import Dictionary, KorsDictionary
from okl_core.second_order.improper_learner import ImproperLearner, KernelImproperConfig
from okl_core.second_order.nystrom import Nystrom, NystromConfig, NystromState
from okl_core.second_order.nystrom_learner import NystromLearner


class NystromAioliConfig(NystromConfig, KernelImproperConfig):
    """Parameters of AIOLI on a dictionary."""

    dictionary: Dictionary = Field(default=KorsDictionary(regularization=0.1), description="How points are chosen.")


@dataclass(slots=True)
class NystromAioliState(NystromState):
    """The embedding's state, the cumulative loss, and the running sum of the regret bound."""

    loss: float
    bound: float


@final
@register
class NystromAioli(ImproperLearner, NystromLearner[NystromAioliConfig, NystromAioliState]):
    r"""Improper logistic regression on a dictionary of points: good probabilities, and a round costs the same for ever.

    `kernel-aioli` with the features phi_t of the dictionary in round t in place of the kernel's. Time O(|I|^2 + d |I|) a
    round, memory O(|I|^2 + d |I|).

    Notes
    -----
    The guarantee of `kernel-aioli` holds for the sequence of features, in which a point has no part in the coordinates that
    came after it: against every v with |v| <= B the regret is at most lambda |v|^2 + `bound`. Once the dictionary stays
    these are the functions of its span. With a half-life, or a carry that resets, it does not hold. Against the best
    function of the whole space nothing is guaranteed: what the dictionary misses is missed. [jezequel2020] leaves open
    whether a budget can keep their guarantee.

    References: [jezequel2020] algorithm 1, theorem 1; [calandriello2017b] for the embedding; [engel2004].

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "nystrom-aioli"}, dim=1)
    >>> for _ in range(3):
    ...     info = learner.update(np.array([0.0]), 1.0)
    >>> round(learner.predict(np.array([0.0])).probability, 4)
    0.83
    """

    kind: ClassVar[str] = "nystrom-aioli"
    references: ClassVar[tuple[str, ...]] = ("jezequel2020", "calandriello2017b", "engel2004")
    config_type = NystromAioliConfig
    state_type = NystromAioliState

    def engine(self, config: NystromAioliConfig) -> Nystrom:
        return Nystrom(config, config.alpha)

    def init(self, config: NystromAioliConfig, dim: int) -> NystromAioliState:
        return NystromAioliState(0, *self.engine(config).parts(dim), loss=0.0, bound=0.0)

    def describe(self, config: NystromAioliConfig, state: NystromAioliState) -> dict[str, float]:
        numbers = self.describe_engine(config, state) | {"loss": state.loss}
        return numbers | {"bound": state.bound} if self.is_whole(config) else numbers
