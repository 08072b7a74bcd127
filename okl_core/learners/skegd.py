r"""SkeGD: gradient descent on an embedding by sketches of the kernel matrix, which new points enter now and then.

| symbol   | meaning                                                                        | shape        |
|----------|--------------------------------------------------------------------------------|--------------|
| B        | budget: points stored in the first phase; n, all stored by now                 |              |
| K        | kernel matrix of the points stored                                             | (n, n)       |
| S_p, c   | count sketch: a row has one entry +-1 / sqrt(c) in each of c blocks of columns | (n, s_p)     |
| m, s_m   | landmarks: points drawn of the first B                                         | (s_m, d)     |
| V, Sigma | the k largest eigenvalues of S_p^T K S_p                                       | (s_p, k), (k,) |
| Q        | (S_p^T K_{., m})^+ V Sigma^{1/2}                                               | (s_m, k)     |
| z        | Q^T (k(s, x_t))_{s in m}, the embedded input                                   | (k,)         |
| w        | weights of z                                                                   | (k,)         |

References: [zhang2019].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.contract.workload import KERNEL_WORK, embedding_work, rows_at_once
from okl_core.first_order.buffered import (
    BLOCK,
    BufferedConfig,
    BufferedState,
    absorb,
    decide_buffered,
    fills,
    fills_within,
    is_full,
    look,
    run_buffer,
    value,
    with_point,
)
from okl_core.first_order.steps import Step, decide, descent
from okl_core.kernels.points import Points
from okl_core.learners.skegd_sketch import (
    Embedding,
    draw_landmarks,
    embedding_matrix,
    least_squares,
    sketch_rows,
)
from okl_core.linalg.growing import GrowingArray
from okl_core.losses import LOSSES, Loss, probabilities
from okl_core.types import F64, BlockInfo, Forecast, Interval, Round

CYCLE_SHARE = 0.3
"""Violations between two points that enter the sketch, as a share of the horizon; the programs of [li2023]."""


class SkegdConfig(BufferedConfig):
    """Parameters of SkeGD. What is null is derived from the budget as in [zhang2019]."""

    sketch_size: int | None = Field(default=None, ge=1, description="s_p: columns of the sketch. null: 0.75 budget.")
    blocks: int = Field(default=4, ge=1, description="c: entries in a row of the sketch.")
    landmarks: int | None = Field(
        default=None, ge=1, description="s_m: points that an input is compared with. null: 0.2 sketch_size."
    )
    rank: int | None = Field(default=None, ge=1, description="k: dimensions of the embedding. null: 0.1 budget.")
    cycle: int | None = Field(
        default=None,
        ge=1,
        description="Violations after which one enters the sketch, and all is embedded anew. null: 0.3 horizon.",
    )
    carry: Literal["transport", "match"] = Field(
        default="transport",
        description="What a new embedding keeps of the learned function: all that it can express, "
        "or (as first published) its value at one input.",
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        s_p, s_m, k = self.sizes
        if not self.blocks <= s_p:
            raise ValueError(f"blocks is {self.blocks}; it must be at most the sketch_size, {s_p}")
        if not k <= min(s_p, s_m):
            raise ValueError(f"rank is {k}; it must be at most the sketch_size, {s_p}, and the landmarks, {s_m}")
        if not s_m <= self.budget:
            raise ValueError(f"landmarks is {s_m}; it must be at most the budget, {self.budget}")
        return self

    @property
    def sizes(self) -> tuple[int, int, int]:
        """s_p, s_m and k."""
        k = self.rank or max(1, round(0.1 * self.budget))
        s_p = self.sketch_size or max(self.blocks, k, round(0.75 * self.budget))
        return s_p, self.landmarks or min(self.budget, max(k, round(0.2 * s_p))), k

    def cycle_at(self, t: int) -> int:
        """The cycle as it stands in round t."""
        return self.cycle or math.ceil(CYCLE_SHARE * self.horizon_at(t))


@dataclass(slots=True)
class SkegdState(BufferedState):
    """All below is empty until the buffer is full."""

    rows: GrowingArray
    """(n, c): S_p as `sketch_rows` gives it."""
    landmarks: Points
    chosen: F64
    """(s_m,): which points the landmarks are."""
    Q: F64
    w: F64
    waited: int
    """Violations since the last embedding."""


@dataclass(slots=True)
class SkegdRound(Round):
    point: F64
    """x_t as the state's points encode it."""
    step: Step
    w: F64
    """After the step; empty in the first phase."""
    embedding: Embedding | None
    """Where this round makes one."""


@final
@register
class Skegd(Learner[SkegdConfig, SkegdState, SkegdRound]):
    r"""Gradient descent on an embedding by sketches: its rounds cost a few kernel values, whatever the budget.

    Kernel gradient descent until B points are stored. Then S_p and the landmarks are drawn, and

        value = w^T z(x_t),    w <- w - eta g z(x_t),

    where <z(x), z(x')> approximates k(x, x'). Every `cycle`-th violation is stored too, with a new row of S_p, and Q is
    made anew. Time O(d B) a round in the first phase, O(d s_m + s_m k) in the second; O(n^2 (d + s_p) + s_p^3) for a new
    embedding of n points. Memory O(d n + s_m k): it grows by a point a cycle.

    Notes
    -----
    Within a phase, and between two embeddings, it is gradient descent: its regret against every f of the embedding is at
    most |f - f'|^2 / (2 eta) + (eta / 2) sum g^2 |z|^2, f' the function carried over.

    Against the paper: a new embedding takes over the learned function, w <- Q_new^+ Q w (`carry` transport), and not only
    its value v at x_t, w <- v z / |z|^2 (`carry` match); the embedding is computed from the stored points each time, and not
    updated; singular values that are rounding errors are left out.

    References: [zhang2019], which keeps the first w open: here the least-squares fit, on the landmarks, of the function
    learned in the first phase.

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
        return SkegdState(
            t=0,
            points=config.kernel.points(dim),
            coefficients=GrowingArray(),
            rows=GrowingArray(config.blocks),
            landmarks=config.kernel.points(dim),
            chosen=np.empty(0),
            Q=np.empty((0, 0)),
            w=np.empty(0),
            waited=0,
        )

    def conditioning(self, config: SkegdConfig, state: SkegdState) -> float:
        """The points' coefficients, and |Q|^2, in which the inverses of small singular values are."""
        if not is_full(config, state):
            return max(1.0, config.kernel.mass(state.points, state.coefficients.view))
        square = float(np.einsum("ij,ij->", state.Q, state.Q)) * float(
            config.kernel.diag(state.landmarks.coordinates()).max()
        )
        return max(1.0, square) + config.kernel.mass(state.landmarks, state.Q @ state.w)

    def extra_work(self, config: SkegdConfig, state: SkegdState, rounds: int) -> float:
        n, s_p = len(state.points), config.sizes[0]
        if is_full(config, state):
            is_due, n = state.waited + rounds >= config.cycle_at(state.t + 1), n + 1
        else:
            is_due, n = fills_within(config, state, rounds), config.budget
        return n * n * (KERNEL_WORK + config.blocks) + embedding_work(s_p) if is_due else 0.0

    def predict(self, config: SkegdConfig, state: SkegdState, x: F64) -> Forecast:
        if is_full(config, state):
            m = ddot(state.w, config.kernel.row(state.landmarks, x).dot(state.Q))
        else:
            m = value(state, look(config, state, x).row)
        return self._forecast(config, config.value(m))

    def play(self, config: SkegdConfig, state: SkegdState, x: F64, y: float, rng: RoundRng) -> SkegdRound:
        t, kappa, w, embedding = state.t + 1, config.kernel.at(x), state.w, None
        if is_full(config, state):
            point = state.points.encode(x)
            z = config.kernel.row(state.landmarks, x).dot(state.Q)
            step = decide(config, t, y, ddot(w, z), kappa, rng)
            if step.has_loss:
                w = w + step.weight * z
                if state.waited + 1 >= config.cycle_at(t):
                    embedding = _embed_anew(config, state, with_point(state, point, 0.0)[0], w, rng)
        else:
            point, row = look(config, state, x)
            step = decide_buffered(config, t, y, value(state, row), kappa, rng)
            if fills(config, state, step):
                embedding = _embed(config, *with_point(state, point, step.weight), rng)
        loss, forecast = self.loss(config).value(step.value, y), self._forecast(config, step.value)
        return SkegdRound(t, x, y, forecast, loss, rng.choices(), point, step, w, embedding)

    def learn(self, config: SkegdConfig, state: SkegdState, played: SkegdRound) -> None:
        if is_full(config, state):
            state.t += 1
            state.w = played.w
            state.waited += played.step.has_loss
            if played.embedding is not None:
                state.points.append_encoded(played.point)
        else:
            absorb(state, played.x, played.step)
        if played.embedding is not None:
            _take(state, played.embedding)

    def run(self, config: SkegdConfig, state: SkegdState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        loss, values, start = self.loss(config), np.empty(len(y)), 0
        while start < len(y):
            if is_full(config, state):
                played = self._run_embedded(config, state, X[start:], y[start:], rng)
            else:
                played = run_buffer(config, state, X[start:], y[start:], rng)
                if is_full(config, state):
                    _take(state, _embed(config, state.points.coordinates(), state.coefficients.view, rng))
            values[start : start + len(played)] = played
            start += len(played)
        return BlockInfo(state.t, values, loss.values(values, y), probabilities(loss, values), rng.finish())

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

    def _run_embedded(self, config: SkegdConfig, state: SkegdState, X: F64, y: F64, rng: RoundRng) -> list[float]:
        """Rounds of the second phase, the last of which may make a new embedding; no earlier one can."""
        most = rows_at_once(len(state.landmarks), BLOCK)
        n = min(most, max(1, config.cycle_at(state.t + 1) - state.waited), len(y))
        # The transposed product would give columns, which the rounds would then read with strides.
        Z = np.dot(config.kernel.block(state.landmarks, X[:n]).T, state.Q)
        w = state.w.copy()
        steps = descent(config, state.t, w, Z, config.kernel.diag(X[:n]).tolist(), y[:n].tolist(), rng)
        state.t, state.w = state.t + n, w
        state.waited += sum(step.has_loss for step in steps)
        if steps[-1].has_loss and state.waited >= config.cycle_at(state.t):
            state.points.append(X[n - 1])
            _take(state, _embed_anew(config, state, state.points.coordinates(), w, rng))
        return [step.value for step in steps]

    def _forecast(self, config: SkegdConfig, value: float) -> Forecast:
        return Forecast(value, self.loss(config).probability(value))


def _embed(config: SkegdConfig, S: F64, a: F64, rng: RoundRng) -> Embedding:
    """The first embedding, of points (B, d) with coefficients (B,); nothing is drawn before it."""
    s_p, s_m, k = config.sizes
    rows = sketch_rows(len(S), s_p, config.blocks, rng)
    chosen = draw_landmarks(len(S), s_m, rng)
    m = chosen.astype(np.intp)
    Q = embedding_matrix(config.kernel, S, rows, s_p, m, k, rng)
    f = config.kernel.block(S[m], S) @ a
    return Embedding(chosen, rows, Q, least_squares(config.kernel.gram(S[m]) @ Q, f, rng))


def _embed_anew(config: SkegdConfig, state: SkegdState, S: F64, w: F64, rng: RoundRng) -> Embedding:
    """The embedding once a point, the last of S, has come; w are the weights in the old one."""
    s_p, _, k = config.sizes
    row = sketch_rows(1, s_p, config.blocks, rng)
    m = state.chosen.astype(np.intp)
    Q = embedding_matrix(config.kernel, S, np.vstack((state.rows.view, row)), s_p, m, k, rng)
    beta = state.Q @ w
    if config.carry == "match":
        k_m = config.kernel.block(S[m], S[-1:])[:, 0]
        z = k_m @ Q
        size2 = float(z @ z)
        return Embedding(state.chosen, row, Q, (float(k_m @ beta) / size2 if size2 > 0.0 else 0.0) * z)
    return Embedding(state.chosen, row, Q, least_squares(Q, beta, rng))


def _take(state: SkegdState, embedding: Embedding) -> None:
    if not len(state.landmarks):
        state.landmarks.extend(state.points.coordinates()[embedding.chosen.astype(np.intp)])
    state.rows.extend(embedding.rows)
    state.chosen, state.Q, state.w = embedding.chosen, embedding.Q, embedding.w
    state.waited = 0
