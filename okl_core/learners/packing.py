"""`packing`: regression by ellipsoid packing, under a metric that is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, NotPositiveDefiniteError
from okl_core.losses import LOSSES, Loss
from okl_core.metrics.mahalanobis import Entries, Matrix, factored
from okl_core.packing.balls import Packing, Placement
from okl_core.packing.packing_config import PackingConfig
from okl_core.packing.regret_bounds import balls_bound
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round


class FixedPackingConfig(PackingConfig):
    """Parameters of the packing with a fixed metric."""

    metric: Literal["identity"] | Entries | Matrix = Field(
        default="identity",
        description="M: the identity, the d entries of a diagonal matrix, or a symmetric d x d matrix; positive definite. "
        "Its scale does not matter.",
    )

    @property
    def dim(self) -> int | None:
        return None if self.metric == "identity" else len(self.metric)

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        if self.metric == "identity":
            return self
        try:
            factored(self.metric)
        except NotPositiveDefiniteError as error:
            raise ValueError(str(error)) from error
        return self


@dataclass(slots=True)
class PackingState(LearnerState):
    """The packing and the cumulative loss."""

    packing: Packing
    loss: float

    def require_config(self, config: FixedPackingConfig) -> None:
        self.packing.require_estimate(config)


@dataclass(slots=True)
class PackingRound(Round):
    """A round with its place in the packing."""

    placement: Placement


@final
@register
class EllipsoidPacking(Learner[FixedPackingConfig, PackingState, PackingRound]):
    r"""Regression by means over balls that shrink with time, with a guarantee for any smooth function and any stream.

    With s the nearest of the centres in the metric M, and T_s the rounds in its ball,

        value = mean of y over T_s, or the middle of `truth_range` if T_s is empty,
        |x_t - x_s|_M <= eps_t:  t joins T_s;  otherwise x_t becomes a centre, and T = {t} (or {}).

    `packing.radius` defines the radius eps_t = t^(-1 / (1 + rho_t)). With `estimate` "linear" the value is that of a linear
    function fitted to T_s (`packing.local_linear`), cut off at the ends of `truth_range`.

    A round takes the time of finding the nearest centre (`linalg.nearest`): with few inputs it hardly grows with the stream,
    with more it is O(|S| d) for |S| centres, of the order T^(rho / (1 + rho)). Memory is O(|S| d). Linear fits add O(d^2)
    time and O(|S| d^2) memory.

    Notes
    -----
    For truths in [0, 1] and inputs in the unit ball the regret against any differentiable f with values in [0, 1] is at most

        (8 ln(eT) + 1) |S| + 4 sqrt(sum_i |grad_{u_i} f|^2 / lambda_i) T^(rho / (1 + rho)),
        |S| <= (8 sqrt 2)^kappa sqrt(lambda_1 ... lambda_kappa) T^(kappa / (1 + rho)),

    rho = rho_T, kappa = kappa(rho, T), u_i the eigenvectors of M, |grad_{u_i} f| the largest slope of f along u_i
    (`packing.regret_bounds`). So M should be small in directions in which f hardly changes. `describe` reports the first
    term as `bound_balls`; the second depends on f. For another range of truths the first term is multiplied by the square
    of its length, the second by its length. Inputs outside the ball are taken too, and open more balls. The bound is about
    means: for linear fits nothing is claimed.

    Differences from the paper: where algorithm 1 prints S <- S u {s}, the text says that x_t becomes a centre. For that
    centre algorithm 1 prints an empty list, while the proof counts t itself. So does this learner, unless `include_center`
    is false, and errs several times less.

    References: [kuzborskij2017] algorithm 1, theorem 1 with the constants of its proof.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "packing"}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    0.25
    >>> learner.predict(np.array([0.2])).value
    1.0
    """

    kind: ClassVar[str] = "packing"
    references: ClassVar[tuple[str, ...]] = ("kuzborskij2017",)
    config_type = FixedPackingConfig
    state_type = PackingState

    def loss(self, config: FixedPackingConfig) -> Loss:
        return LOSSES["squared"]

    def truth_range(self, config: FixedPackingConfig) -> Interval:
        return config.interval

    def input_radius(self, config: FixedPackingConfig) -> float | None:
        return 1.0

    def initial_bytes(self, config: FixedPackingConfig, dim: int) -> int:
        # What a warm-up would find out at its end only.
        config.check_inputs(dim)
        return 0

    def init(self, config: FixedPackingConfig, dim: int) -> PackingState:
        if config.dim not in (None, dim):
            message = f"a metric for {config.dim} inputs, the learner has {dim}"
            raise ConfigError(f"packing: {message}", [(("config", "metric"), message)])
        M = np.ones(dim) if config.metric == "identity" else config.metric
        return PackingState(0, Packing.of(config, M), loss=0.0)

    def predict(self, config: FixedPackingConfig, state: PackingState, x: F64) -> Forecast:
        return Forecast(state.packing.predict(config, x))

    def play(self, config: FixedPackingConfig, state: PackingState, x: F64, y: float, rng: RoundRng) -> PackingRound:
        placement = state.packing.place(x, rng)
        value = state.packing.value(config, placement.centre, placement.z)
        loss = self.loss(config).value(value, y)
        return PackingRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), placement)

    def learn(self, config: FixedPackingConfig, state: PackingState, played: PackingRound) -> None:
        state.t += 1
        state.packing.absorb(config, played.placement, played.y)
        state.loss += played.loss

    def run(self, config: FixedPackingConfig, state: PackingState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        values = np.array(state.packing.run(config, X, y, rng, state.t + 1))
        losses = self.loss(config).values(values, y)
        state.t += len(y)
        state.loss = sum(losses.tolist(), state.loss)
        return BlockInfo(state.t, values, losses, None, rng.finish())

    def describe(self, config: FixedPackingConfig, state: PackingState) -> dict[str, float]:
        packing = state.packing
        low, high = config.interval
        bound = {"bound_balls": (high - low) ** 2 * balls_bound(state.t, len(packing))}
        return {
            "t": state.t,
            "dictionary": len(packing),
            "bytes": packing.nbytes,
            "effective_rank": packing.radius.rank(packing.t + 1),
            "radius": packing.radius.at(packing.t + 1),
            "loss": state.loss,
        } | (bound if config.estimate == "mean" else {})
