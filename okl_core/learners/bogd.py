r"""Budgeted online gradient descent: kernel gradient descent that removes a random point when the budget is used up.

| symbol | meaning                                          | in [zhao2012] |
|--------|--------------------------------------------------|---------------|
| f      | the function learned, sum_i a_i k(x_i, .)        | f_t           |
| B      | budget: stored points at most                    | B             |
| eta    | step size of round t                             | eta           |
| lambda | weight of \|f\|^2 / 2 in every loss              | lambda        |
| g      | l'(value)                                        | l'            |
| c_max  | largest coefficient                              | eta gamma     |

References: [zhao2012].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
from pydantic import Field, model_validator
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import rows_at_once
from okl_core.first_order.steps import FirstOrderConfig, Step, decide
from okl_core.kernels.kernels import Gaussian, Kernel
from okl_core.kernels.points import Points
from okl_core.kernels.rows import KernelRows
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss, probabilities
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round

BLOCK = 128
"""Rounds per block of `run`: enough to hide the calls, while the kernel values inside a block stay a small share."""


class BogdConfig(FirstOrderConfig):
    """Parameters of BOGD."""

    kernel: Kernel = Field(default=Gaussian(), description="The kernel.")
    budget: int = Field(default=400, ge=2, description="B: stored points; one more removes a random one.")
    regularization: float = Field(default=0.0, ge=0.0, description="lambda: adds (lambda / 2) |f|^2 to every loss.")
    coefficient_bound: float | None = Field(
        default=0.2, gt=0.0, description="c_max: no coefficient is larger. null: no bound."
    )

    @model_validator(mode="after")
    def _check_shrinkage(self) -> Self:
        if self.eta(1) * self.regularization > 1.0:
            raise ValueError(f"the first step is {self.eta(1)}; it must be at most 1 / regularization")
        return self


@dataclass(slots=True)
class BogdState(LearnerState):
    """f = sum_i coefficients_i k(points_i, .)."""

    points: Points
    coefficients: GrowingArray
    removed: int


@dataclass(slots=True)
class BogdRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    step: Step
    slot: int
    """Where the point goes, if it is stored: the index of the one removed, or one past the last."""


@final
@register
class Bogd(Learner[BogdConfig, BogdState, BogdRound]):
    r"""Kernel gradient descent on a budget that removes a random point: first-order, O(d B), follows drifting streams.

        f <- (1 - eta lambda) f - eta g k(x_t, .).

    If B points are stored already and there is a loss, one of them, each as likely, is removed first, and the
    coefficients of the others are multiplied by B / (B - 1), so that f stays what it was in the mean; then coefficients
    are cut to [-c_max, c_max]. Time O(d B) a round and memory O(d B).

    Notes
    -----
    In the mean over the removals the regret is of the order of sqrt(T) + T / sqrt(B).

    Against the paper: lambda may be 0, c_max is a number of its own, where there it is in proportion to eta, and a
    coefficient above it is cut, where there all are scaled down.

    References: [zhao2012] algorithm 1 with uniform sampling.

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "bogd", "config": {"budget": 2, "coefficient_bound": 0.5}}, dim=1)
    >>> for x in ([0.0], [5.0], [10.0]):
    ...     _ = learner.update(np.array(x), 1.0)
    >>> learner.describe()["dictionary"], round(learner.predict(np.array([10.0])).value, 3)
    (2, 0.5)
    """

    kind: ClassVar[str] = "bogd"
    references: ClassVar[tuple[str, ...]] = ("zhao2012",)
    config_type = BogdConfig
    state_type = BogdState

    def loss(self, config: BogdConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: BogdConfig) -> Interval:
        return -config.forecast_bound, config.forecast_bound

    def init(self, config: BogdConfig, dim: int) -> BogdState:
        return BogdState(0, config.kernel.points(dim), GrowingArray(), removed=0)

    def conditioning(self, config: BogdConfig, state: BogdState) -> float:
        return max(1.0, config.kernel.mass(state.points, state.coefficients.view))

    def predict(self, config: BogdConfig, state: BogdState, x: F64) -> Forecast:
        m = _value(state.coefficients.view, config.kernel.row(state.points, x))
        return self._forecast(config, config.value(m))

    def play(self, config: BogdConfig, state: BogdState, x: F64, y: float, rng: RoundRng) -> BogdRound:
        t, point = state.t + 1, state.points.encode(x)
        m = _value(state.coefficients.view, config.kernel.encoded_row(state.points, point))
        step = decide(config, t, y, m, config.kernel.at(x), rng)
        slot = _slot(config, step, len(state.points), rng)
        loss, forecast = self.loss(config).value(step.value, y), self._forecast(config, step.value)
        return BogdRound(t, x, y, forecast, loss, rng.choices(), point, step, slot)

    def learn(self, config: BogdConfig, state: BogdState, played: BogdRound) -> None:
        step, slot, size = played.step, played.slot, len(state.points)
        state.t += 1
        if step.has_loss and slot == size:
            state.points.append(played.x)
            state.coefficients.append(0.0)
        elif step.has_loss:
            state.points.replace(slot, played.point)
            state.removed += 1
        _carry(config, state.t, state.coefficients.view, step, slot, is_removal=slot < size)

    def run(self, config: BogdConfig, state: BogdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        loss, values = self.loss(config), np.empty(len(y))
        start = 0
        while start < len(y):
            block = slice(start, start + rows_at_once(len(state.points), BLOCK))
            values[block] = _run_block(config, state, X[block], y[block], rng)
            start = block.stop
        return BlockInfo(state.t, values, loss.values(values, y), probabilities(loss, values), rng.finish())

    def describe(self, config: BogdConfig, state: BogdState) -> dict[str, float]:
        return {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": state.points.nbytes + state.coefficients.nbytes,
            "removed": state.removed,
            "step_size": config.eta(max(1, state.t)),
        }

    def _forecast(self, config: BogdConfig, value: float) -> Forecast:
        return Forecast(value, self.loss(config).probability(value))


def _value(a: F64, row: F64) -> float:
    # scipy's calls of BLAS cost a third of numpy's, but take no empty arrays.
    return ddot(a, row) if len(row) else 0.0


def _slot(config: BogdConfig, step: Step, size: int, rng: RoundRng) -> int:
    """Where the point of a step goes, among `size` points."""
    if not step.has_loss or size < config.budget:
        return size
    return rng.pick(int(size * rng.uniform(1)[0]))


def _carry(config: BogdConfig, t: int, a: F64, step: Step, slot: int, *, is_removal: bool) -> None:
    """The coefficients after round t, in place. A point that is stored has its slot already."""
    factor = 1.0 - config.eta(t) * config.regularization
    if is_removal:
        factor *= len(a) / (len(a) - 1)
    if factor != 1.0:
        a *= factor
    if not step.has_loss:
        return
    a[slot] = step.weight
    if config.coefficient_bound is not None:
        # np.clip takes twice as long for so few numbers.
        np.minimum(a, config.coefficient_bound, out=a)
        np.maximum(a, -config.coefficient_bound, out=a)


def _run_block(config: BogdConfig, state: BogdState, X: F64, y: F64, rng: RoundRng) -> list[float]:
    """What `play` and `learn` do one by one, from one kernel block. Raises DivergedError before anything has changed."""
    s, B = len(state.points), config.budget
    size, last = s, min(s + len(X), B)
    rows = KernelRows(config.kernel, state.points, X, last)
    a = np.zeros(last)
    a[:s] = state.coefficients.view
    holds: dict[int, int] = {}
    """Slot -> the round whose point it holds."""
    values: list[float] = []
    joined: list[int] = []
    removed = 0
    for i, (truth, kappa) in enumerate(zip(y.tolist(), config.kernel.diag(X).tolist(), strict=True)):
        t = state.t + 1 + i
        rng.at(t)
        step = decide(config, t, truth, _value(a[:size], rows.row(i, size)), kappa, rng)
        values.append(step.value)
        slot = _slot(config, step, size, rng)
        is_removal = slot < size
        if step.has_loss:
            rows.put(i, slot)
            holds[slot] = i
            if is_removal:
                removed += 1
            else:
                joined.append(i)
                size += 1
        _carry(config, t, a[:size], step, slot, is_removal=is_removal)
    # The first point ever stored is the origin of all, even if the block has replaced it.
    state.points.extend(X[joined])
    slots = np.array(list(holds), dtype=np.intp)
    state.points.replace_block(slots, X[list(holds.values())])
    state.coefficients.view[:] = a[:s]
    state.coefficients.extend(a[s:size])
    state.t += len(values)
    state.removed += removed
    return values
