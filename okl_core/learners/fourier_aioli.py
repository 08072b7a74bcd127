"""AIOLI on random Fourier features: improper logistic regression with a kernel, and no points stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from pydantic import Field

from okl_core.contract.learner import register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import DRAW_WORK
from okl_core.kernels.fourier import SpectralKernel, drawn, features
from okl_core.kernels.kernels import Gaussian
from okl_core.losses import LOSSES, Loss
from okl_core.second_order.engine import Decision, Rule
from okl_core.second_order.improper import improper_rule, improper_value
from okl_core.second_order.improper_learner import KernelImproperConfig, account
from okl_core.second_order.linear_learner import LinearLearner, LinearState, RootConfig
from okl_core.second_order.linear_root import Root
from okl_core.types import F64


class FourierAioliConfig(RootConfig, KernelImproperConfig):
    """Parameters of AIOLI on random features."""

    kernel: SpectralKernel = Field(default=Gaussian(), description="The kernel, one of a difference of inputs.")
    frequencies: int = Field(default=200, ge=1, description="D: random frequencies, each with a cosine and a sine.")


@dataclass(slots=True)
class FourierAioliState(LinearState):
    """The engine's state, the features', the cumulative loss, and the running sum of the regret bound."""

    origin: F64
    frequencies: F64
    loss: float
    bound: float


@dataclass(frozen=True, slots=True)
class FourierRule:
    """The rule, and the features of its rounds."""

    origin: F64
    frequencies: F64
    decide: Rule

    def __call__(self, m: float, q: float, y: float, t: int) -> Decision:
        return self.decide(m, q, y, t)


@final
@register
class FourierAioli(LinearLearner[FourierAioliConfig, FourierAioliState, FourierRule]):
    r"""Improper logistic regression on random Fourier features: nothing stored but a matrix, the same cost every round.

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
    state_type = FourierAioliState

    def loss(self, config: FourierAioliConfig) -> Loss:
        return LOSSES["logistic"]

    def alpha(self, config: FourierAioliConfig) -> float:
        return config.alpha

    def width(self, config: FourierAioliConfig, dim: int) -> int:
        return 2 * config.frequencies

    def init(self, config: FourierAioliConfig, dim: int) -> FourierAioliState:
        # A metric of another dimension would otherwise be found out in the first round only.
        config.kernel.root_for(dim)
        root = Root(config.alpha, self.width(config, dim))
        return FourierAioliState(0, root, 0.0, np.zeros(dim), np.empty((0, dim)), loss=0.0, bound=0.0)

    def extra_work(self, config: FourierAioliConfig, state: FourierAioliState, rounds: int) -> float:
        """The first round draws the frequencies, beside what a half-life takes."""
        drawing = DRAW_WORK * config.frequencies * len(state.origin) if state.t == 0 else 0.0
        return drawing + super().extra_work(config, state, rounds)

    def features(self, config: FourierAioliConfig, state: FourierAioliState, X: F64, rule: FourierRule | None) -> F64:
        """z of X; 0 for an input that is asked about before the first round."""
        source = state if rule is None else rule
        if not len(source.frequencies):
            return np.zeros(2 * config.frequencies)
        Z = features(source.frequencies, np.atleast_2d(X - source.origin))
        return Z[0] if X.ndim == 1 else Z

    def value(self, config: FourierAioliConfig, m: float, q: float) -> float:
        return improper_value(m, q)

    def rule(self, config: FourierAioliConfig, state: FourierAioliState, X: F64, rng: RoundRng) -> FourierRule:
        rng.at(state.t + 1)
        origin, frequencies = drawn(config.kernel, config.frequencies, state, X[0], rng)
        return FourierRule(origin, frequencies, improper_rule(config, config.norms(X), state.t + 1))

    def carry(
        self,
        config: FourierAioliConfig,
        state: FourierAioliState,
        rule: FourierRule,
        rounds: Sequence[tuple[float, float, Decision]],
    ) -> None:
        if not len(state.frequencies):
            state.origin, state.frequencies = rule.origin.copy(), rule.frequencies
        account(state, rounds)

    def describe(self, config: FourierAioliConfig, state: FourierAioliState) -> dict[str, float]:
        numbers = self.describe_engine(config, state) | {"loss": state.loss}
        numbers["bytes"] += state.origin.nbytes + state.frequencies.nbytes
        return numbers | {"bound": state.bound} if self.is_whole(config) else numbers
