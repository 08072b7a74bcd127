"""AIOLI in the space of a kernel: logistic regression with the guarantee that only improper forecasts can have."""

from __future__ import annotations

from typing import ClassVar, final

from okl_core.contract.learner import register
from okl_core.second_order.improper import AioliRule, AioliTotals, KernelImproperConfig, kernel_norms
from okl_core.second_order.kernel_space import KernelRound, KernelSpace, KernelSpaceConfig, KernelState
from okl_core.second_order.second_order import SecondOrder
from okl_core.types import F64


class KernelAioliConfig(KernelImproperConfig, KernelSpaceConfig):
    """Parameters of kernel AIOLI."""

    @property
    def fade(self) -> float:
        # As old, in the mean, as the rounds in the window.
        return super().fade if self.window is None else (self.window - 1) / (self.window + 1)

    def norms(self, X: F64) -> list[float]:
        return kernel_norms(self.kernel, X)


@final
@register
class KernelAioli(SecondOrder[KernelAioliConfig, KernelState, KernelRound, AioliTotals]):
    r"""Improper logistic regression in the kernel's feature space, exactly: probabilities with the strongest guarantee.

    With the symbols of `second_order.improper`, A_t = A_{t-1} + w_t phi_t phi_t^T and A_0 = 2 lambda I,

        value = a,  the root of  a + q tanh(a / 2) = m,   p = 1 / (1 + exp(y a)),
        w = p (1 - p) / kappa,   s_t = s_{t-1} + (w a + y p) phi_t.

    Time O(t^2 + d t) a round, memory t^2 / 2 + O(d t).

    Notes
    -----
    For every f in the feature space with |f| <= B the regret is at most lambda |f|^2 + `bound`, and `bound` at most
    kappa `log_det`, kappa the largest of all rounds: the effective dimension of the stream times a logarithm of its length
    times B, where the bound of `kons` has exp(C) in place of B. The functions need not be bounded at the inputs.

    With a window all sums run over the rounds kept, between W and 5/4 W of them, with a half-life H over 10 H rounds,
    discounted in steps of H / 4. The guarantee is lost: the best function may need what was forgotten.

    A round with k(x, x) above 1e13 times 2 lambda raises DivergedError, since rounding would hide its q: with a linear kernel
    and the default lambda, an input longer than 4e5.

    References: [jezequel2020] algorithm 1, theorem 1, section 4 for kernels; [calandriello2017] for the recursion.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "kernel-aioli"}, dim=1)
    >>> round(learner.update(np.array([0.0]), 1.0).loss, 4)
    0.6931
    >>> round(learner.predict(np.array([0.0])).probability, 4)
    0.7208
    """

    kind: ClassVar[str] = "kernel-aioli"
    references: ClassVar[tuple[str, ...]] = ("jezequel2020", "calandriello2017")
    config_type = KernelAioliConfig

    def space(self, config: KernelAioliConfig) -> KernelSpace:
        return KernelSpace(config.kernel, config.alpha, config.memory)

    def rule(self, config: KernelAioliConfig) -> AioliRule:
        return config.rule
