"""AIOLI on a dictionary of points: improper logistic regression at a cost that does not grow with the stream."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import Field

from okl_core.contract.learner import register
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.second_order.embedding import Dictionary, KorsDictionary
from okl_core.second_order.improper import AioliRule, AioliTotals, KernelImproperConfig, kernel_norms
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
from okl_core.types import F64


class NystromAioliConfig(KernelImproperConfig):
    """Parameters of AIOLI on a dictionary."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    dictionary: Dictionary = Field(default=KorsDictionary(regularization=0.1), description="How points are chosen.")
    budget: Budget = DEFAULT_BUDGET
    carry: Carry = "transport"
    precision: Precision = "double"

    @property
    def cautions(self) -> tuple[str, ...]:
        return lost_digits(self)

    def norms(self, X: F64) -> list[float]:
        return kernel_norms(self.kernel, X)


@final
@register
class NystromAioli(SecondOrder[NystromAioliConfig, NystromState, NystromRound, AioliTotals]):
    r"""Improper logistic regression on a dictionary of points: good probabilities, at a bounded cost a round.

    `kernel-aioli` with the features phi_t of the dictionary in round t in place of the kernel's. Time O(|I|^2 + d |I|) a
    round, memory O(|I|^2 + d |I|).

    Notes
    -----
    The guarantee of `kernel-aioli` holds for the sequence of features, in which a point has no part in the coordinates that
    came after it: against every v with |v| <= B the regret is at most lambda |v|^2 + `bound`. Once the dictionary stays
    these are the functions of its span. With a half-life, or a carry that resets, it does not hold. Against a
    function f of the whole space |f| times the sum of what the dictionary misses of the inputs is added: docs/theorems.md, 3.
    [jezequel2020] leaves open whether a bounded cost can keep their guarantee; theorem 4 there says how far it can.

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

    def space(self, config: NystromAioliConfig) -> NystromSpace:
        return NystromSpace.of(config, config.alpha)

    def rule(self, config: NystromAioliConfig) -> AioliRule:
        return config.rule
