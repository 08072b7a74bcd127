r"""SkeGD: gradient descent on an embedding that is made from sketches of the kernel matrix, and renewed now and then.

`skegd_embedding` makes the embedding, and has a table of the letters.

References: [zhang2019].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import KERNEL_WORK, embedding_work, rows_at_once
from okl_core.first_order import buffered
from okl_core.first_order.buffered import is_full
from okl_core.first_order.in_blocks import BLOCK, run_in_blocks
from okl_core.first_order.steps import GradientStep, descend, gradient_step, kernel_sum
from okl_core.learners.skegd.skegd_embedding import SketchedEmbedding, absorb_embedding, embed, embed_anew
from okl_core.learners.skegd.skegd_state import SkegdConfig, SkegdState
from okl_core.losses import LOSSES, Loss
from okl_core.types import F64, BlockInfo, Forecast, Interval, Round


@dataclass(slots=True)
class SkegdRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    step: GradientStep
    w: F64
    """After the step; empty in the first phase."""
    embedding: SketchedEmbedding | None
    """Where this round makes one."""


@final
@register
class Skegd(Learner[SkegdConfig, SkegdState, SkegdRound]):
    r"""Gradient descent on an embedding by sketches: a round costs a few kernel values, for any budget.

    It is kernel gradient descent until B points are stored. Then S_p and the landmarks are drawn, and from then on

        value = w^T z(x_t),    w <- w - eta g z(x_t),

    where <z(x), z(x')> approximates k(x, x'). The input of every `cycle`-th violation is stored, too: S_p gets a new row,
    and Q is made anew. Time O(d B) a round in the first phase, O(d s_m + s_m k) in the second; O(n^2 (d + s_p) + s_p^3)
    for an embedding of n points. Memory O(d n + s_m k), where n grows by 1 a cycle.

    Notes
    -----
    Between two embeddings it is gradient descent. If eta is a number, its regret against every f of the embedding is at
    most |f - f'|^2 / (2 eta) + (eta / 2) sum g^2 |z|^2, where f' is the function that it starts from.

    Against the paper: a new embedding starts from the function learned, w <- Q_new^+ Q w (`carry` transport); in the paper
    it starts from a function with the same value v at x_t, w <- v z / |z|^2 (`carry` match). The paper leaves the first w
    open; here it is the least-squares fit, on the landmarks, of the function learned in the first phase. Embeddings are
    computed from the stored points, and not updated; singular values that are rounding errors are left out.

    References: [zhang2019].

    Examples
    --------
    >>> from okl_core import create
    >>> learner = create({"kind": "skegd", "config": {"step_size": 0.5, "budget": 4}}, dim=1)
    >>> for x in ([0.0], [1.0], [2.0], [3.0], [0.5]):
    ...     _ = learner.update(np.array(x), 1.0)
    >>> learner.describe()["phase"], learner.describe()["rank"], learner.describe()["landmarks"]
    (2, 1, 1)
    """

    kind: ClassVar[str] = "skegd"
    references: ClassVar[tuple[str, ...]] = ("zhang2019",)
    config_type = SkegdConfig
    state_type = SkegdState

    def loss(self, config: SkegdConfig) -> Loss:
        return LOSSES[config.loss]

    def truth_range(self, config: SkegdConfig) -> Interval:
        return -config.forecast_bound, config.forecast_bound

    def init(self, config: SkegdConfig, dim: int) -> SkegdState:
        return SkegdState.empty(config, dim)

    def conditioning(self, config: SkegdConfig, state: SkegdState) -> float:
        """From the points' coefficients, or from |Q|^2, which grows with the inverses of small singular values."""
        if not is_full(config, state):
            return max(1.0, config.kernel.mass(state.points, state.coefficients.view))
        largest = float(config.kernel.diag(state.landmarks.coordinates()).max())
        square = float(np.einsum("ij,ij->", state.Q, state.Q)) * largest
        return max(1.0, square) + config.kernel.mass(state.landmarks, state.Q @ state.w)

    def extra_work(self, config: SkegdConfig, state: SkegdState, rounds: int) -> float:
        n, s_p = len(state.points), config.sizes[0]
        if is_full(config, state):
            is_due, n = state.waited + rounds >= config.cycle_at(state.t + 1), n + 1
        else:
            is_due, n = buffered.fills_within(config, state, rounds), config.budget
        return n * n * (KERNEL_WORK + config.blocks) + embedding_work(s_p) if is_due else 0.0

    def predict(self, config: SkegdConfig, state: SkegdState, x: F64) -> Forecast:
        if is_full(config, state):
            m = ddot(state.w, config.kernel.row(state.landmarks, x).dot(state.Q))
        else:
            m = kernel_sum(state.coefficients.view, buffered.encode(config, state, x).row)
        return self.loss(config).forecast(config.value(m))

    def play(self, config: SkegdConfig, state: SkegdState, x: F64, y: float, rng: RoundRng) -> SkegdRound:
        t, kappa, w, embedding = state.t + 1, config.kernel.at(x), state.w, None
        if is_full(config, state):
            point = state.points.encode(x)
            z = config.kernel.row(state.landmarks, x).dot(state.Q)
            step = gradient_step(config, t, y, ddot(w, z), kappa, rng)
            if step.has_loss:
                w = w + step.weight * z
                if state.waited + 1 >= config.cycle_at(t):
                    embedding = embed_anew(config, state, buffered.with_point(state, point, 0.0)[0], w, rng)
        else:
            point, row = buffered.encode(config, state, x)
            step = buffered.next_step(config, t, y, kernel_sum(state.coefficients.view, row), kappa, rng)
            if buffered.fills(config, state, step):
                embedding = embed(config, *buffered.with_point(state, point, step.weight), rng)
        loss = self.loss(config)
        forecast = loss.forecast(step.value)
        return SkegdRound(t, x, y, forecast, loss.value(step.value, y), rng.choices(), point, step, w, embedding)

    def learn(self, config: SkegdConfig, state: SkegdState, played: SkegdRound) -> None:
        if is_full(config, state):
            state.t += 1
            state.w = played.w
            state.waited += played.step.has_loss
            if played.embedding is not None:
                state.points.append_encoded(played.point)
        else:
            buffered.absorb(state, played.x, played.step)
        if played.embedding is not None:
            absorb_embedding(state, played.embedding)

    def run(self, config: SkegdConfig, state: SkegdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        def play(start: int) -> list[float]:
            if is_full(config, state):
                return _play_block(config, state, X[start:], y[start:], rng)
            values = buffered.play_block(config, state, X[start:], y[start:], rng)
            if is_full(config, state):
                absorb_embedding(state, embed(config, state.points.coordinates(), state.coefficients.view, rng))
            return values

        return run_in_blocks(self.loss(config), state, y, play, rng)

    def describe(self, config: SkegdConfig, state: SkegdState) -> dict[str, float]:
        arrays = (state.points, state.coefficients, state.rows, state.landmarks, state.chosen, state.Q, state.w)
        return {
            "t": state.t,
            "dictionary": len(state.points),
            "bytes": sum(array.nbytes for array in arrays),
            "phase": 2 if is_full(config, state) else 1,
            "rank": len(state.w),
            "landmarks": len(state.landmarks),
            "step_size": config.eta(max(1, state.t)),
        }


def _play_block(config: SkegdConfig, state: SkegdState, X: F64, y: F64, rng: RoundRng) -> list[float]:
    """Learn a block of rounds of the second phase and return the forecasts.

    The block ends with the first round that may make a new embedding.
    """
    most = rows_at_once(len(state.landmarks), BLOCK)
    n = min(most, max(1, config.cycle_at(state.t + 1) - state.waited), len(y))
    # The transposed product would give columns, which the rounds would then read with strides.
    Z = np.dot(config.kernel.block(state.landmarks, X[:n]).T, state.Q)
    w = state.w.copy()
    steps = descend(config, state.t, w, Z, config.kernel.diag(X[:n]).tolist(), y[:n].tolist(), rng)
    state.t, state.w = state.t + n, w
    state.waited += sum(step.has_loss for step in steps)
    if steps[-1].has_loss and state.waited >= config.cycle_at(state.t):
        state.points.append(X[n - 1])
        absorb_embedding(state, embed_anew(config, state, state.points.coordinates(), w, rng))
    return [step.value for step in steps]
